//! Exchange at a far end: `wirepath answer feed`.
//!
//! Each `Publish` is answered by the send times, in pieces, and `Sent`; `Failed` takes the place of any answer.

mod near;
mod serve;

use std::net::{Ipv4Addr, SocketAddrV4};

use model::Machine;
use remote::Service;
use serde::{Deserialize, Serialize};

use super::script::Quotes;

pub(super) use near::FarExchange;
pub use serve::serve_exchange;

/// Name of the service of the far end, `wirepath answer feed`.
pub const SERVICE: &str = "feed";
/// Maximum number of quotes of a trial between two ends: their send times are sent to the near end.
pub(super) const QUOTE_COUNT_MAX: usize = 1_000_000;
/// Send times in a line.
const LAGS_PER_LINE: usize = 4096;

/// An exchange at a far end.
#[derive(Debug)]
enum FarFeed {}

impl Service for FarFeed {
    const NAME: &str = SERVICE;
    type Call = Request;
    type Answer = Reply;
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Request {
    /// Describes its machine: `Described`.
    Describe,
    Publish(Publication),
}

/// Quotes that the exchange sends, and how.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Publication {
    quotes: Quotes,
    /// Its own address, which selects the interface.
    from: Ipv4Addr,
    group: SocketAddrV4,
    /// CPU of the exchange; `None` for the first that it may use.
    cpu: Option<usize>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reply {
    Described {
        /// Equal for ends on one machine, which share a clock.
        boot_id: Option<String>,
        machine: Box<Machine>,
    },
    /// Send time of the next quotes, nanoseconds after they were due.
    Lags(Vec<u64>),
    Sent {
        begin_ns: u64,
        is_undisturbed: bool,
        /// CPU time of the exchange's process.
        cpu_ns: u64,
    },
    Failed {
        why: String,
    },
}
