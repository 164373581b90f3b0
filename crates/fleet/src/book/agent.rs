//! An agent: takes the jobs of one host, measures, and reports until the report is in the archive.

use super::{BookError, Exchange, Job, JobState, Outbox, Report, VERSION};

/// Time for which a lease is taken or renewed, milliseconds.
const LEASE_TIMEOUT_MS: u64 = 30_000;

/// End of a measurement: its result, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Measured {
    /// A result.
    Done(String),
    /// It failed.
    Failed(String),
    /// This host does not do such work.
    Refused(String),
}

/// Step of [`Agent::turn`] after which the agent may be killed in a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentMoment {
    /// The job is on disk.
    Accepted,
    /// The measurement is about to begin, and the disk says so.
    Begun,
    /// The result is on disk and was not sent.
    Kept,
    /// The result was sent.
    Sent,
}

/// The agent of one host.
#[derive(Debug)]
pub struct Agent {
    host: String,
    outbox: Outbox,
}

impl Agent {
    /// Starts an agent with its memory. A measurement that was running when the agent ended is reported as
    /// interrupted, and never begun again without being asked for.
    pub fn start(host: impl Into<String>, mut outbox: Outbox) -> Result<Self, BookError> {
        for mut report in outbox.all()? {
            if matches!(report.state, JobState::Accepted | JobState::Running) {
                report.state = JobState::Interrupted;
                report.body = "the agent ended before the measurement did".into();
                outbox.put(&report)?;
            }
        }
        Ok(Agent { host: host.into(), outbox })
    }

    /// A turn without a look for a job: a sign of life, and what is unconfirmed is sent.
    pub fn tend(&mut self, exchange: &mut impl Exchange, now_ms: u64) -> Result<(), BookError> {
        exchange.beat(&self.host, now_ms)?;
        self.send(exchange)
    }

    /// One turn: sends what is unconfirmed, and does the host's job if it is new. Returns true if the job waits for the
    /// end of another one's lease.
    ///
    /// - `measure`: does the work; the lease is held meanwhile.
    /// - `goes_on`: asked at every moment; false ends the turn there, as a kill would.
    pub fn turn(
        &mut self,
        exchange: &mut impl Exchange,
        now_ms: u64,
        measure: impl FnOnce(&Job) -> Measured,
        mut goes_on: impl FnMut(AgentMoment) -> bool,
    ) -> Result<bool, BookError> {
        self.tend(exchange, now_ms)?;
        let Some(job) = exchange.next(&self.host)? else { return Ok(false) };
        if job.fence <= self.outbox.seen()? || now_ms > job.not_after_ms {
            return Ok(false);
        }
        if !exchange.lease(&self.host, job.fence, now_ms, now_ms + LEASE_TIMEOUT_MS)? {
            return Ok(true);
        }
        let mut report = self.accept(&job)?;
        if !goes_on(AgentMoment::Accepted) {
            return Ok(false);
        }
        report.state = JobState::Running;
        self.outbox.put(&report)?;
        exchange.report(&report)?;
        if !goes_on(AgentMoment::Begun) {
            return Ok(false);
        }
        (report.state, report.body) = match measure(&job) {
            Measured::Done(body) => (JobState::Done, body),
            Measured::Failed(why) => (JobState::Failed, why),
            Measured::Refused(why) => (JobState::Refused, why),
        };
        self.outbox.put(&report)?;
        exchange.release(&self.host, job.fence)?;
        if goes_on(AgentMoment::Kept) {
            exchange.report(&report)?;
            goes_on(AgentMoment::Sent);
        }
        Ok(false)
    }

    /// Renews the lease of a running measurement, and gives a sign of life.
    pub fn beat(
        host: &str,
        fence: u64,
        exchange: &mut impl Exchange,
        now_ms: u64,
    ) -> Result<(), BookError> {
        exchange.beat(host, now_ms)?;
        exchange.lease(host, fence, now_ms, now_ms + LEASE_TIMEOUT_MS).map(drop)
    }

    fn accept(&mut self, job: &Job) -> Result<Report, BookError> {
        let report = Report {
            v: VERSION,
            job: job.job.clone(),
            host: self.host.clone(),
            attempt: job.attempt,
            fence: job.fence,
            state: JobState::Accepted,
            body: String::new(),
        };
        self.outbox.put(&report)?;
        Ok(report)
    }

    /// Forgets what is in the archive, and sends the rest again.
    fn send(&mut self, exchange: &mut impl Exchange) -> Result<(), BookError> {
        for report in self.outbox.all()? {
            if report.state == JobState::Interrupted {
                // The lease of an agent that was killed; this one is the only agent of the host.
                exchange.release(&self.host, report.fence)?;
            }
            if exchange.is_confirmed(report.fence)? {
                self.outbox.forget(report.fence)?;
            } else {
                exchange.report(&report)?;
            }
        }
        Ok(())
    }
}
