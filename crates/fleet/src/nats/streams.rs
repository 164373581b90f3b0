//! Streams and the consumer of reports.

use std::time::Duration;

use async_nats::jetstream::consumer::{self, AckPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, Message};
use futures_util::StreamExt;

use super::connection::{Connection, Failure};
use crate::book::BookError;
use crate::message::MESSAGE_MAX;

/// Streams of a fleet.
pub const NAMES: [&str; 5] = ["JOBS", "RESULTS", "STORED", "LEASE", "ALIVE"];

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Room for reports while no collector runs; agents keep theirs beyond it. A broker refuses the stream if its disk has less.
const RESULTS_MAX_BYTES: i64 = 1024 * 1024 * 1024;
/// Reports in one batch.
const BATCH: usize = 1000;
/// Time for which a collector waits for a first report.
const FIRST_REPORT_TIMEOUT: Duration = Duration::from_millis(200);

/// Reads reports.
pub(super) type Collector = PullConsumer;

/// Creates the streams that are missing and the consumer of reports.
pub(super) fn prepare(connection: &Connection) -> Result<Collector, BookError> {
    connection.run("preparing its streams, for which it needs 1 GB of disk", async |client| {
        let context = jetstream::new(client.clone());
        for config in configs() {
            context.get_or_create_stream(config).await?;
        }
        let results = context.get_stream("RESULTS").await?;
        let config = pull::Config {
            durable_name: Some("collector".into()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: Duration::from_secs(30),
            max_deliver: -1,
            max_ack_pending: 2_000,
            ..pull::Config::default()
        };
        let consumer: consumer::Consumer<pull::Config> =
            results.get_or_create_consumer("collector", config).await?;
        Ok(consumer)
    })
}

fn configs() -> [Config; 5] {
    let latest = |name: &str, subject: &str| Config {
        name: name.into(),
        subjects: vec![subject.into()],
        max_messages_per_subject: 1,
        max_message_size: MESSAGE_MAX as i32,
        allow_direct: true,
        ..Config::default()
    };
    [
        Config { max_age: 7 * DAY, ..latest("JOBS", "wp.job.*") },
        Config {
            max_messages_per_subject: -1,
            retention: RetentionPolicy::WorkQueue,
            discard: DiscardPolicy::New,
            max_bytes: RESULTS_MAX_BYTES,
            allow_direct: false,
            ..latest("RESULTS", "wp.result.*")
        },
        Config { max_age: 7 * DAY, ..latest("STORED", "wp.stored.*.*") },
        Config { allow_message_ttl: true, ..latest("LEASE", "wp.lease.*") },
        Config { storage: StorageType::Memory, max_age: DAY, ..latest("ALIVE", "wp.hb.*") },
    ]
}

/// Reports that wait, at most [`BATCH`]; waits a little for the first one.
pub(super) async fn batch(collector: &Collector) -> Result<Vec<Message>, Failure> {
    let waiting = fetch(collector).await?;
    if !waiting.is_empty() {
        return Ok(waiting);
    }
    let mut one =
        collector.batch().max_messages(1).expires(FIRST_REPORT_TIMEOUT).messages().await?;
    let mut found = Vec::new();
    while let Some(message) = one.next().await {
        found.push(message?);
    }
    if !found.is_empty() {
        found.extend(fetch(collector).await?);
    }
    Ok(found)
}

async fn fetch(collector: &Collector) -> Result<Vec<Message>, Failure> {
    let mut messages = collector.fetch().max_messages(BATCH).messages().await?;
    let mut found = Vec::new();
    while let Some(message) = messages.next().await {
        found.push(message?);
    }
    Ok(found)
}
