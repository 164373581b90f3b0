//! Errors of far ends.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use host::net::NetError;
use host::text::printable;
use sys::child::ChildError;
use sys::netns::NetnsError;
use sys::thread::ThreadError;

use crate::TooLong;

/// A far end could not be started, ended early, or broke a rule of the exchange.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error(transparent)]
    Netns(#[from] NetnsError),
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(transparent)]
    Child(#[from] ChildError),
    #[error("cannot prepare {what} for the far end")]
    Start {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    /// No address of the namespace is reached from here, and reaches here, directly.
    #[error(
        "no address of namespace {name} is reached from here{by}; join both by a wire with an address \
         at each end (--ip 6: of IPv6), or give --far-address"
    )]
    NoAddress {
        name: String,
        /// The interface that was asked for, as ` by IF`.
        by: String,
    },
    #[error(
        "namespace {name} has several addresses that are reached from here: {list}; choose one with --far-address"
    )]
    ManyAddresses { name: String, list: String },
    /// A peer that runs already was named for another path.
    #[error("{end} serves path probe alone; use --far netns:NAME or --far ssh:HOST")]
    OnlyProbe { end: String },
    #[error(
        "netns:{name} is the namespace that this command runs in; name another one, or run this in another"
    )]
    Own { name: String },
    #[error("cannot reach {host} by ssh: {said}; {remedy}")]
    Ssh { host: String, said: String, remedy: String },
    #[error(
        "{host} is {theirs}, and this host {ours}: this program cannot run there; install wirepath {version} there"
    )]
    OtherPlatform { host: String, theirs: String, ours: String, version: &'static str },
    #[error(
        "cannot tell the address of {host} that a load can use (SSH_CONNECTION is {said:?}); give it with --far-address"
    )]
    UnknownAddress { host: String, said: String },
    #[error(
        "wirepath did not start at {host}: {said}; install wirepath {version} there (PATH of a command by ssh), \
         or its libraries (libelf1, zlib1g)"
    )]
    Copy { host: String, said: String, version: &'static str },
    #[error("the far end {end} did not answer within {seconds} s; is its host overloaded?")]
    Silent { end: String, seconds: u64 },
    #[error("the far end {end} ended: {said}")]
    Ended { end: String, said: String },
    #[error("{end} sent an unexpected line: {line:?}")]
    Garbled { end: String, line: String },
    #[error("{end} sent an unexpected line: {line:?} ({why})")]
    Misread { end: String, line: String, why: String },
    /// A message that is of the service, and not allowed.
    #[error("the far end {end} broke a rule of the exchange: {why}")]
    Rule { end: String, why: String },
    #[error(
        "wirepath-{name} did not start at {host}: {said}; install it there, in the PATH of a command by ssh"
    )]
    NoPathProgram { host: String, name: String, said: String },
    #[error("{end} has {theirs}, this end {ours}; run the same wirepath version at both ends")]
    Version { end: String, theirs: String, ours: String },
    #[error("{end} sent a line that is too long")]
    TooLong {
        end: String,
        #[source]
        error: TooLong,
    },
    #[error("the near end sent more than {count_max} calls without waiting for an answer")]
    Flood { count_max: usize },
    #[error("the near end sent nothing for {seconds} s; its host or the connection has stopped")]
    NearSilent { seconds: u64 },
    #[error("cannot send a call to the far end {end}")]
    Unsendable {
        end: String,
        #[source]
        source: io::Error,
    },
    /// A message that was not made with the secret and the keys of its connection.
    #[error("a message of the control connection was not made with the shared secret")]
    Forged,
    /// A line of a connection that is not a valid message.
    #[error(
        "invalid message on the control connection: {what}; do both ends run the same wirepath version?"
    )]
    Invalid { what: String },
    #[error("the control connection broke; is the peer still running?")]
    Lost {
        #[source]
        source: io::Error,
    },
    /// The other end is connected, and sent nothing in time.
    #[error(
        "the peer did not answer within {} s; its host is busy, or its link stopped: try again, and lower \
         the load there (top, dmesg)",
        .within.as_secs_f64()
    )]
    Late { within: Duration },
    #[error("the connection to {end} broke")]
    Broken {
        end: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "the far end listens on {address} and is not reached there; give another of its addresses with \
         --far-address, or open its firewall for TCP and UDP from this host"
    )]
    Unreachable { address: IpAddr },
}

impl RemoteError {
    pub(crate) fn thread(error: ThreadError) -> Self {
        RemoteError::Start { what: "a thread", source: io::Error::other(error) }
    }

    /// Error of a connection that the other end has closed.
    pub fn closed() -> Self {
        RemoteError::Lost { source: io::ErrorKind::UnexpectedEof.into() }
    }

    /// True if nothing came over a connection within the time limit.
    pub fn is_timeout(&self) -> bool {
        use io::ErrorKind::{TimedOut, WouldBlock};
        let RemoteError::Lost { source } = self else { return false };
        // The kernel's own ETIMEDOUT is the end of the connection.
        matches!(source.kind(), WouldBlock | TimedOut)
            && source.raw_os_error() != Some(sys::socket::ETIMEDOUT)
    }

    /// - `end`: the end that sent `line`.
    pub(crate) fn garbled(end: &str, line: &[u8]) -> Self {
        let begin = String::from_utf8_lossy(&line[..line.len().min(400)]);
        RemoteError::Garbled { end: end.to_owned(), line: printable(&begin, 400) }
    }
}
