//! What a forwarder is made of.

use crate::tunnel::decap::DecapSpec;
use crate::tunnel::encap::Encap;
use crate::tunnel::fdb::Fdb;
use crate::tunnel::order::{BATCH_FRAMES_MAX, OrderError, OrderSpec};
use crate::tunnel::qos::{Classifier, Shaper};

use super::Work;

/// What a forwarder needs beside its ports.
#[derive(Debug)]
pub struct ForwarderSpec {
    /// Tunnels, and what is done with frames.
    pub rules: RulesSpec,
    /// The forwarding table, static addresses entered.
    pub fdb: Fdb,
    /// Shaper and queues into the tunnels, after the order is restored.
    pub shaper: Option<Shaper>,
    /// Order restoration, of each direction; flows are spread over its lanes.
    pub order: OrderSpec,
    /// How it works.
    pub tuning: Tuning,
}

/// What can be changed while frames pass.
#[derive(Debug, Clone)]
pub struct RulesSpec {
    /// Into each tunnel; indexes are those of `decap.tunnels`.
    pub encaps: Vec<Encap>,
    /// Out of the tunnels.
    pub decap: DecapSpec,
    /// Whether addresses are learnt.
    pub learns: bool,
    /// Classes of frames into the tunnels.
    pub classifier: Classifier,
    /// Policer of the frames into the tunnels, inside the ordered section; none to let all in.
    pub policer: Option<PolicerSpec>,
}

/// A rate above which frames are dropped, before the order is restored: what it drops leaves
/// holes that nobody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicerSpec {
    /// Bits of whole inner frames a second.
    pub rate_bits_per_s: u64,
    /// Bytes that may come at once.
    pub burst_bytes: u64,
}

/// How a forwarder works; the default is what is best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Frames of a ticket at most, 1 to [`BATCH_FRAMES_MAX`].
    pub batch_frames: usize,
    /// Whether frames leave in the order of their arrival. Off, a batch leaves as soon as its
    /// worker is done, whichever came first.
    pub is_ordered: bool,
    /// Whether outer headers go into the headroom in front of a frame; off, the frame is copied
    /// behind them into another.
    pub prepends: bool,
    /// Extra work on each frame into the tunnels.
    pub work: Work,
    /// Percentage of the frames into the tunnels that their worker drops, as a policer does.
    pub police_percent: u8,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            batch_frames: BATCH_FRAMES_MAX,
            is_ordered: true,
            prepends: true,
            work: Work::default(),
            police_percent: 0,
        }
    }
}

/// Why there is no such [`Forwarder`](super::Forwarder).
#[derive(Debug, thiserror::Error)]
pub enum ForwarderError {
    /// The order is out of range.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// The process has no descriptor left.
    #[error("a second descriptor of a port's socket")]
    Descriptor(#[source] std::io::Error),
}
