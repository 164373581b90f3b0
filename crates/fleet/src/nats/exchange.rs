//! [`Exchange`] over the streams.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use async_nats::jetstream;
use serde::{Deserialize, Serialize};

use super::{Held, MessageRefusal, NatsExchange, Sent, streams};
use crate::book::{BookError, Exchange, Job, Report, SILENCE_MS};
use crate::message::{open, seal};

/// Pause before a report is sent again; doubles up to [`RESEND_INTERVAL_MAX`].
const RESEND_INTERVAL: Duration = Duration::from_secs(20);
const RESEND_INTERVAL_MAX: Duration = Duration::from_secs(600);
/// Pause before a confirmation is asked for again; doubles up to [`RESEND_INTERVAL_MAX`].
const CONFIRMATION_INTERVAL: Duration = Duration::from_secs(1);
/// The broker forgets a lease that was not renewed for this time, whatever the clocks of its owner say.
const LEASE_TIMEOUT: Duration = Duration::from_secs(90);

/// Largest time ahead of the reader's clock that is believed.
const AHEAD_MS_MAX: u64 = 120_000;

/// Value of a lease.
#[derive(Serialize, Deserialize)]
struct Lease {
    fence: u64,
    until_ms: u64,
}

impl Lease {
    /// A lease is written by its host: one that cannot be read is none.
    fn read(payload: &[u8]) -> Self {
        serde_json::from_slice(payload).unwrap_or(Lease { fence: 0, until_ms: 0 })
    }
}

impl Sent {
    /// True if it is not due again.
    fn is_recent(&self, pause: Duration) -> bool {
        let pause = pause
            .saturating_mul(1 << self.count.saturating_sub(1).min(16))
            .min(RESEND_INTERVAL_MAX);
        self.at.elapsed() < pause
    }
}

fn again<K: Ord>(of: &mut std::collections::BTreeMap<K, Sent>, key: K) {
    let sent = of.entry(key).or_insert(Sent { at: Instant::now(), count: 0 });
    sent.at = Instant::now();
    sent.count = sent.count.saturating_add(1);
}

impl NatsExchange {
    fn strange(&self, what: &'static str, why: impl ToString) -> BookError {
        BookError::Strange {
            place: self.connection.server().to_owned(),
            what,
            why: why.to_string(),
        }
    }

    fn current_lease(&self, host: &str) -> Result<Option<(u64, Lease)>, BookError> {
        let stored = self.connection.last("LEASE", format!("wp.lease.{host}"))?;
        Ok(stored.map(|stored| (stored.sequence, Lease::read(&stored.payload))))
    }

    fn write_lease(&self, host: &str, lease: &Lease, expected: u64) -> Result<bool, BookError> {
        let payload = serde_json::to_vec(lease).map_err(|e| self.strange("lease", e))?;
        self.connection.replace(&format!("wp.lease.{host}"), payload, expected, LEASE_TIMEOUT)
    }

    /// Keeps a message until it is acknowledged, and reads its report.
    fn hold(&mut self, message: jetstream::Message) -> Option<(i64, Report)> {
        let host = message.subject.as_str().rsplit('.').next().unwrap_or_default().to_owned();
        let number = message.info().map(|info| info.stream_sequence).ok()?;
        let number = i64::try_from(number).ok()?;
        let payload = message.payload.to_vec();
        let read = open::<Report>(&self.keys, &host, &payload);
        let fence = read.as_ref().ok().map(|report| report.fence);
        self.held.insert(number, Held { message, host: host.clone(), fence });
        match read {
            Ok(report) => Some((number, report)),
            Err(e) => {
                let why = e.to_string();
                self.refused_numbers.push(number);
                self.refusals.push(MessageRefusal { host, why, payload });
                None
            }
        }
    }

    /// Acknowledges the reports among the refusals that were taken, once they are on record.
    pub fn drop_refused(&mut self) -> Result<(), BookError> {
        let numbers = std::mem::take(&mut self.refused_numbers);
        self.acknowledge(&numbers)
    }
}

impl Exchange for NatsExchange {
    fn send(&mut self, jobs: &[Job]) -> Result<(), BookError> {
        let mut messages = Vec::new();
        for job in jobs {
            let sealed = seal(&self.keys, job).map_err(|why| self.strange("job", why))?;
            messages.push((format!("wp.job.{}", job.host), sealed));
        }
        self.connection.publish(&messages)
    }

    fn next(&mut self, host: &str) -> Result<Option<Job>, BookError> {
        let Some(stored) = self.connection.last("JOBS", format!("wp.job.{host}"))? else {
            return Ok(None);
        };
        match open(&self.keys, host, &stored.payload) {
            Ok(job) => Ok(Some(job)),
            Err(e) => {
                if self.refused_job != stored.sequence {
                    self.refused_job = stored.sequence;
                    let payload = stored.payload;
                    self.refusals.push(MessageRefusal {
                        host: host.to_owned(),
                        why: e.to_string(),
                        payload,
                    });
                }
                Ok(None)
            }
        }
    }

    fn report(&mut self, report: &Report) -> Result<(), BookError> {
        report.host.clone_into(&mut self.host);
        let key = (report.fence, report.state);
        if self.sent.get(&key).is_some_and(|sent| sent.is_recent(RESEND_INTERVAL)) {
            return Ok(());
        }
        let sealed = seal(&self.keys, report).map_err(|why| self.strange("report", why))?;
        self.connection.publish(&[(format!("wp.result.{}", report.host), sealed)])?;
        again(&mut self.sent, key);
        Ok(())
    }

    fn reports(&mut self) -> Result<Vec<(i64, Report)>, BookError> {
        let Some(collector) = &self.collector else { return Ok(Vec::new()) };
        let messages =
            self.connection.run("reading reports", async |_| streams::batch(collector).await)?;
        Ok(messages.into_iter().filter_map(|message| self.hold(message)).collect())
    }

    fn acknowledge(&mut self, numbers: &[i64]) -> Result<(), BookError> {
        let held: Vec<Held> =
            numbers.iter().filter_map(|number| self.held.remove(number)).collect();
        let Some((last, others)) = held.split_last() else { return Ok(()) };
        self.connection.run("acknowledging reports", async |_| {
            for held in others {
                held.message.ack().await?;
            }
            // The broker takes them in their order: its answer is one to all.
            last.message.double_ack().await
        })
    }

    fn confirm(&mut self, fences: &[u64]) -> Result<(), BookError> {
        let fences: BTreeSet<u64> = fences.iter().copied().collect();
        // Only to the host that reported it: a host could name the fence of another one.
        let mut messages = Vec::new();
        for held in self.held.values() {
            if let Some(fence) = held.fence.filter(|fence| fences.contains(fence)) {
                messages.push((format!("wp.stored.{}.{fence}", held.host), Vec::new()));
            }
        }
        self.connection.publish(&messages)
    }

    fn is_confirmed(&mut self, fence: u64) -> Result<bool, BookError> {
        if self.confirmed.get(&fence).is_some_and(|asked| asked.is_recent(CONFIRMATION_INTERVAL)) {
            return Ok(false);
        }
        let found =
            self.connection.last("STORED", format!("wp.stored.{}.{fence}", self.host))?.is_some();
        if found {
            self.confirmed.remove(&fence);
            self.sent.retain(|(sent, _), _| *sent != fence);
        } else {
            again(&mut self.confirmed, fence);
        }
        Ok(found)
    }

    fn lease(
        &mut self,
        host: &str,
        fence: u64,
        now_ms: u64,
        until_ms: u64,
    ) -> Result<bool, BookError> {
        let current = self.current_lease(host)?;
        let expected = current.as_ref().map_or(0, |(sequence, _)| *sequence);
        match current {
            Some((_, lease)) if lease.fence != fence && lease.until_ms >= now_ms => Ok(false),
            _ => self.write_lease(host, &Lease { fence, until_ms }, expected),
        }
    }

    fn release(&mut self, host: &str, fence: u64) -> Result<(), BookError> {
        match self.current_lease(host)? {
            // Another owner that took it meanwhile keeps it.
            Some((sequence, lease)) if lease.fence == fence && lease.until_ms > 0 => {
                self.write_lease(host, &Lease { fence, until_ms: 0 }, sequence).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn beat(&mut self, host: &str, now_ms: u64) -> Result<(), BookError> {
        host.clone_into(&mut self.host);
        self.connection.tell(&format!("wp.hb.{host}"), now_ms.to_string().into_bytes())
    }

    fn are_alive(&mut self, hosts: &[&str], now_ms: u64) -> Result<Vec<bool>, BookError> {
        // Both are the word of the host: a time far ahead counts for nothing.
        let (early, late) =
            (now_ms.saturating_sub(SILENCE_MS), now_ms.saturating_add(AHEAD_MS_MAX));
        let subjects: Vec<String> = hosts.iter().map(|host| format!("wp.hb.{host}")).collect();
        let beats = self.connection.last_of_each("ALIVE", &subjects)?;
        let mut alive = Vec::new();
        for beat in beats {
            let at = beat.and_then(|beat| String::from_utf8(beat.payload).ok()?.parse().ok());
            alive.push(at.is_some_and(|at: u64| (early..=late).contains(&at)));
        }
        let doubtful: Vec<usize> = (0..hosts.len()).filter(|at| !alive[*at]).collect();
        let subjects: Vec<String> =
            doubtful.iter().map(|at| format!("wp.lease.{}", hosts[*at])).collect();
        let leases = self.connection.last_of_each("LEASE", &subjects)?;
        for (at, lease) in doubtful.into_iter().zip(leases) {
            let until_ms = lease.map(|lease| Lease::read(&lease.payload).until_ms);
            alive[at] = until_ms.is_some_and(|until| (now_ms.max(1)..=late).contains(&until));
        }
        Ok(alive)
    }
}
