//! The coordinator: gives jobs, and closes them by the reports of agents.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ATTEMPTS_MAX, Archive, BookEntry, BookError, Exchange, JobEvent, JobRow, JobState, Report,
    SILENCE_MS,
};

/// Time between two looks for silent hosts, milliseconds.
const SILENCE_CHECK_INTERVAL_MS: u64 = SILENCE_MS / 6;
/// Reports in a batch from which on more may wait.
const MANY: usize = 100;
/// Batches of reports between two looks at the jobs.
const BATCHES_MAX: usize = 20;

/// Drives the jobs of one experiment. It holds nothing but a name: all else is in the archive, so a
/// coordinator that was killed is replaced by another one.
#[derive(Debug)]
pub struct Coordinator {
    experiment: String,
    /// Fences of the jobs that this coordinator has given, and when; a new one gives open jobs again.
    given: BTreeMap<u64, u64>,
    /// Time of the latest look for silent hosts.
    looked_ms: Option<u64>,
    open: usize,
}

impl Coordinator {
    /// A coordinator of an experiment whose jobs are planned already.
    pub fn new(experiment: impl Into<String>) -> Self {
        Coordinator {
            experiment: experiment.into(),
            given: BTreeMap::new(),
            looked_ms: None,
            open: 0,
        }
    }

    /// One turn; returns true once every job has ended.
    pub fn turn(
        &mut self,
        exchange: &mut impl Exchange,
        archive: &mut impl Archive,
        now_ms: u64,
    ) -> Result<bool, BookError> {
        for _ in 0..BATCHES_MAX {
            if collect(exchange, archive)? < MANY {
                break;
            }
        }
        let entries = archive.open_entries(&self.experiment)?;
        self.open = entries.len();
        if entries.is_empty() {
            return Ok(true);
        }
        let silent = self.silent(&entries, exchange, now_ms)?;
        let due = self.due(&entries, &silent, archive, now_ms)?;
        self.give(due, exchange, archive, now_ms)?;
        Ok(false)
    }

    /// Jobs that had not ended in the latest turn.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Ends every open job as cancelled.
    pub fn cancel(&self, archive: &mut impl Archive, why: &str) -> Result<(), BookError> {
        for entry in archive.open_entries(&self.experiment)? {
            if entry.state.after(JobEvent::Cancel).is_some() {
                archive.close(&entry, &row(&entry, JobState::Cancelled, why))?;
            }
        }
        Ok(())
    }

    /// Hosts that should work and give no sign of life. Hosts are checked every [`SILENCE_CHECK_INTERVAL_MS`]; one that was
    /// given its job a moment ago has just taken it, and is not silent.
    fn silent<'a>(
        &mut self,
        entries: &'a [BookEntry],
        exchange: &mut impl Exchange,
        now_ms: u64,
    ) -> Result<BTreeSet<&'a str>, BookError> {
        let at_work = entries.iter().filter(|entry| {
            let given_ms = self.given.get(&entry.job.fence).copied();
            is_at_work(entry) && !is_within(given_ms, SILENCE_MS, now_ms)
        });
        let at_work: Vec<&str> = at_work.map(|entry| entry.job.host.as_str()).collect();
        if at_work.is_empty() || is_within(self.looked_ms, SILENCE_CHECK_INTERVAL_MS, now_ms) {
            return Ok(BTreeSet::new());
        }
        self.looked_ms = Some(now_ms);
        let alive = exchange.are_alive(&at_work, now_ms)?;
        Ok(at_work.into_iter().zip(alive).filter(|(_, alive)| !alive).map(|of| of.0).collect())
    }

    /// Jobs to give: the first one of each host. Those that expired or are lost are closed.
    fn due<'a>(
        &self,
        entries: &'a [BookEntry],
        silent: &BTreeSet<&str>,
        archive: &mut impl Archive,
        now_ms: u64,
    ) -> Result<Vec<&'a BookEntry>, BookError> {
        let mut busy = BTreeSet::new();
        let mut due = Vec::new();
        for entry in entries {
            let host = entry.job.host.as_str();
            if entry.state.after(JobEvent::Expire).is_some() && now_ms > entry.job.not_after_ms {
                let row = row(entry, JobState::Expired, "its time passed before a host took it");
                archive.close(entry, &row)?;
            } else if is_at_work(entry) && silent.contains(host) {
                // The next attempt comes before later jobs of the host, whose fences would be larger.
                busy.insert(host);
                lose(entry, archive)?;
            } else if busy.insert(host) {
                due.push(entry);
            }
        }
        Ok(due)
    }

    fn give(
        &mut self,
        due: Vec<&BookEntry>,
        exchange: &mut impl Exchange,
        archive: &mut impl Archive,
        now_ms: u64,
    ) -> Result<(), BookError> {
        let (mut planned, mut jobs) = (Vec::new(), Vec::new());
        for entry in due {
            match entry.state {
                JobState::Planned => planned.push(entry.clone()),
                JobState::Given if !self.given.contains_key(&entry.job.fence) => {
                    jobs.push(entry.job.clone());
                }
                _ => {}
            }
        }
        // The rows first: a report of a job that is not in the book as given would change nothing.
        jobs.extend(archive.give(&planned)?.into_iter().map(|entry| entry.job));
        exchange.send(&jobs)?;
        self.given.extend(jobs.iter().map(|job| (job.fence, now_ms)));
        Ok(())
    }
}

/// Enters a batch of reports of any experiment into the book, and confirms their ends. Returns its length.
pub fn collect(
    exchange: &mut impl Exchange,
    archive: &mut impl Archive,
) -> Result<usize, BookError> {
    let (numbers, reports): (Vec<i64>, Vec<Report>) = exchange.reports()?.into_iter().unzip();
    if reports.is_empty() {
        return Ok(0);
    }
    archive.store(&reports)?;
    // One that changes nothing, too: its agent may forget it.
    let mut ends = Vec::new();
    for report in &reports {
        if !matches!(report.state, JobState::Accepted | JobState::Running) {
            ends.push(report.fence);
        }
    }
    exchange.confirm(&ends)?;
    exchange.acknowledge(&numbers)?;
    Ok(reports.len())
}

/// True if the time since `begin_ms` is shorter than `length_ms`; false if there is none.
fn is_within(begin_ms: Option<u64>, length_ms: u64, now_ms: u64) -> bool {
    begin_ms.is_some_and(|begin| (begin..begin.saturating_add(length_ms)).contains(&now_ms))
}

fn is_at_work(entry: &BookEntry) -> bool {
    matches!(entry.state, JobState::Accepted | JobState::Running)
}

/// Plans another attempt of a job whose host is silent, or ends it after the last one.
fn lose(entry: &BookEntry, archive: &mut impl Archive) -> Result<(), BookError> {
    if entry.job.attempt < ATTEMPTS_MAX {
        archive.again(entry).map(drop)
    } else {
        archive.close(entry, &row(entry, JobState::Lost, "its host fell silent")).map(drop)
    }
}

fn row(entry: &BookEntry, state: JobState, body: &str) -> JobRow {
    JobRow {
        job: entry.job.job.clone(),
        host: entry.job.host.clone(),
        attempt: entry.job.attempt,
        state,
        body: body.to_owned(),
    }
}
