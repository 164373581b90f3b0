//! Configuration of a forwarder.

use std::sync::Arc;

use crate::ports::FastPath;

use crate::decap::DecapSpec;
use crate::encap::Encap;
use crate::fdb::Fdb;
use crate::keepalive::Keepalive;
use crate::order::{BATCH_FRAMES_MAX, OrderError, OrderSpec};
use crate::qos::{Classifier, Shaper};

use super::Work;

/// Configuration of a forwarder apart from its ports.
#[derive(Debug)]
pub struct ForwarderSpec {
    /// Tunnels and rules for frames.
    pub rules: RulesSpec,
    /// Forwarding table with its static addresses.
    pub fdb: Fdb,
    /// Shaper and queues into the tunnels, after the order is restored.
    pub shaper: Option<Shaper>,
    /// Order restoration of each direction; flows are spread over its lanes.
    pub order: OrderSpec,
    /// Optimisations.
    pub tuning: Tuning,
    /// Frames of port and underlay may have checksums that their senders left to a device, which AF_XDP does not
    /// tell ([`wire::offload::finish_left`]).
    pub is_unfinished: [bool; 2],
    /// XDP programs of both ports that forward by themselves (`crate::ports::open_fast_ports`); see
    /// [`Forwarder::attach`](super::Forwarder::attach).
    pub fast: Option<FastPath>,
}

/// Rules that can be changed while frames pass.
#[derive(Debug, Clone)]
pub struct RulesSpec {
    /// Encapsulation for each tunnel, with the indexes of `decap.tunnels`.
    pub encaps: Vec<Encap>,
    /// By tunnel: the VLAN of the port that it carries, see [`crate::domain`]; missing ones are `None`.
    pub vlans: Vec<Option<u16>>,
    /// By tunnel: keepalives whose answers are counted; missing ones are `None`. Requests of the far end
    /// are always answered.
    pub keepalives: Vec<Option<Arc<Keepalive>>>,
    /// Configuration of decapsulation.
    pub decap: DecapSpec,
    /// True to learn addresses.
    pub learns: bool,
    /// Classes of frames into the tunnels.
    pub classifier: Classifier,
    /// Policer of the frames into the tunnels, inside the ordered section; `None` for no limit.
    pub policer: Option<PolicerSpec>,
}

/// Rate above which frames are dropped before the order is restored. The resulting holes do not
/// delay other frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicerSpec {
    /// Rate in bits per second, counted over whole inner frames.
    pub rate_bits_per_s: u64,
    /// Credit that it can collect, in bytes.
    pub burst_bytes: u64,
}

/// Optimisations of a forwarder, all on by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Maximum number of frames per ticket, 1 to [`BATCH_FRAMES_MAX`].
    pub batch_frames: usize,
    /// True to send frames in the order of arrival. If false, a batch is sent as soon as its worker
    /// is done.
    pub is_ordered: bool,
    /// True to write outer headers into the headroom of a frame. If false, the frame is copied into
    /// another buffer behind them.
    pub prepends: bool,
    /// Extra work on each frame into the tunnels.
    pub work: Work,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            batch_frames: BATCH_FRAMES_MAX,
            is_ordered: true,
            prepends: true,
            work: Work::default(),
        }
    }
}

/// Error of [`Forwarder::new`](super::Forwarder::new).
#[derive(Debug, thiserror::Error)]
pub enum ForwarderError {
    /// Invalid order specification.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// No file descriptor is free.
    #[error("cannot duplicate the socket of a port")]
    Descriptor(#[source] std::io::Error),
}
