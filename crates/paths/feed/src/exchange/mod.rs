//! Exchange at a far end: `wirepath feed exchange`, asked by lines, each a JSON document.
//!
//! The far end opens with `Opened`. Each `Publish` is answered by the send times, in pieces, and `Sent`;
//! `Failed` takes the place of any answer. An empty line only shows that the connection holds.

mod near;
mod serve;

use std::net::{Ipv4Addr, SocketAddrV4};

use model::Machine;
use serde::{Deserialize, Serialize};

use super::script::Quotes;

pub(super) use near::FarExchange;
pub use serve::serve_exchange;

/// Longest line, bytes.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of quotes of a trial between two ends: their send times are sent to the near end.
pub(super) const QUOTE_COUNT_MAX: usize = 1_000_000;
/// Send times in a line.
const LAGS_PER_LINE: usize = 4096;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Request {
    Publish(Publication),
}

/// Quotes that the exchange sends, and how.
#[derive(Debug, Serialize, Deserialize)]
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
    Opened {
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
