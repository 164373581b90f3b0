//! A connection to a broker, used by one thread: asynchronous code runs only while a call waits for it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_TTL};
use async_nats::{Client, ConnectOptions, HeaderMap, Message, Subscriber};
use futures_util::future::try_join_all;
use futures_util::{Stream, StreamExt};
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::{BrokerAddress, subjects};
use crate::book::BookError;

/// Any error of the client.
pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Requests at the same time.
const AT_ONCE: usize = 256;
/// Time limit of one operation.
const BROKER_TIMEOUT: Duration = Duration::from_secs(10);
/// More than the largest batch: the client drops messages silently beyond it.
const SUBSCRIPTION_CAPACITY: usize = 4096;
/// Error code of a broker whose latest message is not the expected one.
const WRONG_LAST_SEQUENCE: u64 = 10071;

/// The latest message of a subject.
pub(super) struct Stored {
    pub(super) sequence: u64,
    /// Milliseconds since 1970, of the broker's clock.
    pub(super) at_ms: u64,
    pub(super) payload: Vec<u8>,
}

/// Account of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Core,
    /// Reaches subjects of the other account by names of its own.
    Agent,
}

#[derive(Debug)]
pub(super) struct Connection {
    end: End,
    runtime: Runtime,
    client: Client,
    server: String,
    /// Times that the client had connected when it was last asked.
    connects: u64,
}

#[derive(Deserialize)]
struct PubAck {
    error: Option<ApiError>,
}

#[derive(Deserialize)]
struct ApiError {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

impl Connection {
    pub(super) fn open(address: &BrokerAddress, end: End) -> Result<Self, BookError> {
        let server = address.url.clone();
        let failed =
            |source| BookError::Broker { server: server.clone(), doing: "connecting", source };
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|e| failed(e.into()))?;
        let mut options = ConnectOptions::new()
            .name("wirepath")
            .custom_inbox_prefix(&address.inbox)
            .subscription_capacity(SUBSCRIPTION_CAPACITY)
            .read_buffer_capacity(4096)
            .connection_timeout(BROKER_TIMEOUT)
            .request_timeout(Some(BROKER_TIMEOUT));
        if let Some(seed) = &address.login {
            options = options.nkey(seed.clone());
        }
        if let Some(ca) = &address.ca {
            options = options.add_root_certificates(ca.clone()).require_tls(true);
        }
        let urls: Vec<&str> = server.split(',').collect();
        let client = runtime
            .block_on(async { timeout(BROKER_TIMEOUT, options.connect(urls)).await })
            .map_err(|_| failed("no answer in 10 s".into()))?
            .map_err(|e| failed(e.into()))?;
        Ok(Connection { end, runtime, client, server, connects: 1 })
    }

    /// Runs an operation to its end, at most for [`BROKER_TIMEOUT`].
    pub(super) fn run<T>(
        &self,
        doing: &'static str,
        operation: impl AsyncFnOnce(&Client) -> Result<T, Failure>,
    ) -> Result<T, BookError> {
        let limited = async { timeout(BROKER_TIMEOUT, operation(&self.client)).await };
        let ended = self.runtime.block_on(limited);
        let result = ended.unwrap_or_else(|_| Err("no answer in 10 s".into()));
        result.map_err(|source| BookError::Broker { server: self.server.clone(), doing, source })
    }

    /// True if the connection was lost and made again since the last call.
    pub(super) fn was_renewed(&mut self) -> bool {
        let connects = self.client.statistics().connects.load(Ordering::Relaxed);
        std::mem::replace(&mut self.connects, connects) < connects
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    pub(super) fn subscribe(&self, subject: String) -> Result<Subscriber, BookError> {
        self.run("subscribing to jobs", async |client| {
            let subscriber = client.subscribe(subject).await?;
            client.flush().await?;
            Ok(subscriber)
        })
    }

    /// True if a message came within `limit`; those that wait behind it are taken too.
    pub(super) fn next_within(&self, from: &mut Subscriber, limit: Duration) -> bool {
        self.runtime.block_on(came_within(from, limit))
    }

    pub(super) fn idle(&self, limit: Duration) {
        self.runtime.block_on(tokio::time::sleep(limit));
    }

    /// Stores messages in the streams of their subjects, many at the same time.
    pub(super) fn publish(&self, messages: &[(String, Vec<u8>)]) -> Result<(), BookError> {
        for part in messages.chunks(AT_ONCE) {
            self.run("storing messages", async |client| {
                let store = |(subject, payload): &(String, Vec<u8>)| {
                    store(client, self.to_send(subject), HeaderMap::new(), payload.clone())
                };
                try_join_all(part.iter().map(store)).await.map(drop)
            })?;
        }
        Ok(())
    }

    /// Sends a message whose answer no one awaits: it costs the broker half of a stored one, and may be lost.
    pub(super) fn tell(&self, subject: &str, payload: Vec<u8>) -> Result<(), BookError> {
        self.run("sending a sign of life", async |client| {
            client.publish(self.to_send(subject), payload.into()).await?;
            // Without a connection it waits for the next one, or for the time limit.
            Ok(client.flush().await?)
        })
    }

    /// Stores a message that ends after `ttl`, if the latest one of its subject is that of `expected`, 0 for none;
    /// false if it is another one.
    pub(super) fn replace(
        &self,
        subject: &str,
        payload: Vec<u8>,
        expected: u64,
        ttl: Duration,
    ) -> Result<bool, BookError> {
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected.to_string());
        headers.insert(NATS_MESSAGE_TTL, format!("{}s", ttl.as_secs().max(1)));
        self.run("storing a message", async |client| {
            store(client, self.to_send(subject), headers, payload).await
        })
    }

    /// The latest message of a subject of a stream.
    pub(super) fn last(&self, stream: &str, subject: String) -> Result<Option<Stored>, BookError> {
        Ok(self.last_of_each(stream, &[subject])?.pop().flatten())
    }

    /// The latest message of each subject of a stream, many at the same time.
    pub(super) fn last_of_each(
        &self,
        stream: &str,
        subjects: &[String],
    ) -> Result<Vec<Option<Stored>>, BookError> {
        let mut found = Vec::with_capacity(subjects.len());
        for part in subjects.chunks(AT_ONCE) {
            let got = self.run("reading messages", async |client| {
                Ok(try_join_all(part.iter().map(|subject| {
                    client.request(self.to_read(stream, subject), Vec::new().into())
                }))
                .await?)
            })?;
            for message in got {
                found.push(self.read(message)?);
            }
        }
        Ok(found)
    }

    fn to_send(&self, subject: &str) -> String {
        match self.end {
            End::Core => subject.to_owned(),
            End::Agent => subjects::to_send(subject),
        }
    }

    fn to_read(&self, stream: &str, subject: &str) -> String {
        match self.end {
            End::Core => format!("$JS.API.DIRECT.GET.{stream}.{subject}"),
            End::Agent => subjects::to_read(subject),
        }
    }

    /// Answer of a direct get; `None` if there is no message.
    fn read(&self, got: Message) -> Result<Option<Stored>, BookError> {
        match got.status.map(|status| status.as_u16()) {
            None => self.stored(got).map(Some),
            Some(404) => Ok(None),
            Some(code) => Err(BookError::Broker {
                server: self.server.clone(),
                doing: "reading a message",
                source: format!("status {code}").into(),
            }),
        }
    }

    fn stored(&self, got: Message) -> Result<Stored, BookError> {
        let header = |name: &str| {
            got.headers.as_ref().and_then(|headers| headers.get(name)).map(|value| value.as_str())
        };
        let sequence = header("Nats-Sequence").and_then(|text| text.parse().ok());
        let at =
            header("Nats-Time-Stamp").and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok());
        let (Some(sequence), Some(at)) = (sequence, at) else {
            return Err(BookError::Strange {
                place: self.server.clone(),
                what: "message",
                why: "it has no sequence or time".into(),
            });
        };
        let at_ms = u64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
        Ok(Stored { sequence, at_ms, payload: got.payload.to_vec() })
    }
}

/// As [`Connection::next_within`].
async fn came_within(from: &mut (impl Stream + Unpin), limit: Duration) -> bool {
    let first = timeout(limit, from.next()).await;
    if let Ok(None) = first {
        tokio::time::sleep(limit).await;
        return false;
    }
    let mut came = first.is_ok();
    // Each wakes its reader; the reader asks for the latest one. This takes a millisecond, in which one may come.
    while let Ok(Some(_)) = timeout(Duration::ZERO, from.next()).await {
        came = true;
    }
    came
}

/// Stores a message in the stream of its subject; false if its latest message is not the expected one.
async fn store(
    client: &Client,
    subject: String,
    headers: HeaderMap,
    payload: Vec<u8>,
) -> Result<bool, Failure> {
    let answer = client.request_with_headers(subject, headers, payload.into()).await?;
    let ack: PubAck = serde_json::from_slice(&answer.payload)?;
    match ack.error {
        None => Ok(true),
        Some(error) if error.err_code == WRONG_LAST_SEQUENCE => Ok(false),
        Some(error) => Err(error.description.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    /// True if a message counts that is there when it is asked for the third time: a wait asks at its begin and its end.
    fn came_third(asked_before: u32) -> bool {
        let mut asked = asked_before;
        let mut from = futures_util::stream::poll_fn(|_| {
            asked += 1;
            if asked == 3 { Poll::Ready(Some(())) } else { Poll::Pending }
        });
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(came_within(&mut from, Duration::from_millis(5)))
    }

    #[test]
    fn message_that_comes_after_the_wait_and_is_taken_is_news() {
        assert!(came_third(0), "behind the wait");
        assert!(came_third(1) && came_third(2), "within it");
        assert!(!came_third(3), "not at all");
    }
}
