//! Exchange over NATS JetStream (server 2.11 or later).
//!
//! | stream | subjects | holds |
//! |---|---|---|
//! | `JOBS` | `wp.job.<host>` | what each host should do now: one signed job a host |
//! | `RESULTS` | `wp.result.<host>` | signed reports until they are in the archive, read by the consumer `collector` |
//! | `STORED` | `wp.stored.<host>.<fence>` | fences of reports that are in the archive |
//! | `LEASE` | `wp.lease.<host>` | the fence that measures, and until when |
//! | `ALIVE` | `wp.hb.<host>` | time of the latest sign of life |
//!
//! An agent publishes its own subjects and reads by direct get: there is no consumer for each agent. All times are
//! those of the broker's clock, by [`NatsExchange::clock_offset_ms`].

mod connection;
mod exchange;
mod streams;
pub(crate) mod subjects;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use async_nats::Subscriber;
use async_nats::jetstream::{self, AckKind};

use crate::book::{BookError, JobState};
use crate::keys::Keyring;
use connection::{Connection, End};
pub use streams::NAMES as STREAM_NAMES;

/// How to reach the broker.
#[derive(Debug, Clone)]
pub struct BrokerAddress {
    /// `nats://HOST:PORT` or `tls://HOST:PORT`; several with commas.
    pub url: String,
    /// Seed of the key that logs in; `None` for a broker without accounts.
    pub login: Option<String>,
    /// Certificate authority of the broker; `None` for those of the system.
    pub ca: Option<PathBuf>,
    /// Inboxes for answers begin with it.
    pub inbox: String,
}

/// A message that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRefusal {
    /// Host of its subject.
    pub host: String,
    /// Reason.
    pub why: String,
    /// As it arrived.
    pub payload: Vec<u8>,
}

/// Time of a report's latest sending.
#[derive(Debug)]
struct Sent {
    at: Instant,
    count: u32,
}

/// A message that was taken from `RESULTS` and is not acknowledged.
#[derive(Debug)]
struct Held {
    message: jetstream::Message,
    /// Host of its subject, which its signature proves.
    host: String,
    /// `None` if it was refused.
    fence: Option<u64>,
}

/// An end of the exchange: an agent, a collector or a coordinator.
#[derive(Debug)]
pub struct NatsExchange {
    connection: Connection,
    keys: Keyring,
    /// Consumer of reports; `None` at an agent.
    collector: Option<streams::Collector>,
    held: BTreeMap<i64, Held>,
    sent: BTreeMap<(u64, JobState), Sent>,
    /// Confirmations seen.
    confirmed: BTreeMap<u64, Sent>,
    refusals: Vec<MessageRefusal>,
    /// Numbers of the refused reports.
    refused_numbers: Vec<i64>,
    /// Sequence of the latest job that was refused, to report it once.
    refused_job: u64,
    jobs: Option<Subscriber>,
    /// Host whose agent uses this end.
    host: String,
}

impl NatsExchange {
    /// Connects an agent, which may use the subjects of its host alone.
    pub fn agent(address: &BrokerAddress, keys: Keyring, host: &str) -> Result<Self, BookError> {
        let mut exchange = NatsExchange::new(address, keys, End::Agent)?;
        let jobs = exchange.connection.subscribe(format!("wp.job.{host}"))?;
        exchange.jobs = Some(jobs);
        host.clone_into(&mut exchange.host);
        Ok(exchange)
    }

    /// Connects a coordinator or collector, and creates missing streams.
    pub fn core(address: &BrokerAddress, keys: Keyring) -> Result<Self, BookError> {
        let mut exchange = NatsExchange::new(address, keys, End::Core)?;
        exchange.collector = Some(streams::prepare(&exchange.connection)?);
        Ok(exchange)
    }

    fn new(address: &BrokerAddress, keys: Keyring, end: End) -> Result<Self, BookError> {
        Ok(NatsExchange {
            connection: Connection::open(address, end)?,
            keys,
            collector: None,
            held: BTreeMap::new(),
            sent: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            refusals: Vec::new(),
            refused_numbers: Vec::new(),
            refused_job: 0,
            jobs: None,
            host: String::new(),
        })
    }

    /// Waits until a job may have arrived, or for `limit`; true if one may have, by its message or because the
    /// connection was made anew. It is kept alive meanwhile.
    pub fn wait(&mut self, limit: Duration) -> bool {
        match &mut self.jobs {
            Some(jobs) => {
                let has_news = self.connection.next_within(jobs, limit);
                self.connection.was_renewed() || has_news
            }
            None => {
                self.connection.idle(limit);
                false
            }
        }
    }

    /// Messages that were refused since the last call. Those of `RESULTS` are acknowledged by
    /// [`drop_refused`](Self::drop_refused).
    pub fn take_refusals(&mut self) -> Vec<MessageRefusal> {
        std::mem::take(&mut self.refusals)
    }

    /// Deletes all messages of streams, as the loss of the broker's store does.
    pub fn wipe(&mut self, streams: &[&str]) -> Result<(), BookError> {
        self.connection.run("deleting messages", async |client| {
            let context = jetstream::new(client.clone());
            for name in streams {
                context.get_stream(*name).await?.purge().await?;
            }
            Ok(())
        })
    }

    /// Difference of the broker's clock to the system's, milliseconds.
    ///
    /// - `name`: host, or another name for the sign of life by which it is measured.
    pub fn clock_offset_ms(&mut self, name: &str, now_ms: u64) -> Result<i64, BookError> {
        let subject = format!("wp.hb.{name}");
        self.connection.publish(&[(subject.clone(), now_ms.to_string().into_bytes())])?;
        let stored = self.connection.last("ALIVE", subject)?;
        Ok(stored.map_or(0, |stored| stored.at_ms as i64 - now_ms as i64))
    }
}

impl Drop for NatsExchange {
    /// Hands messages that are not in the archive to another collector at once.
    fn drop(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let held = std::mem::take(&mut self.held);
        let _ = self.connection.run("handing reports on", async |client| {
            for held in held.values() {
                held.message.ack_with(AckKind::Nak(None)).await?;
            }
            client.flush().await?;
            Ok(())
        });
    }
}
