//! Frames that the kernel has dropped on their way to the forwarder, or from it.

use host::net::{self, LinkDrops};

use crate::config::Config;
use crate::forwarder::Forwarder;

/// Drops of an interface by reason: missed, received, not sent.
type Reasons = [&'static str; 3];

const PORT: Reasons = ["port_rx_missed", "port_rx_dropped", "port_tx_dropped"];
const UNDERLAY: Reasons = ["underlay_rx_missed", "underlay_rx_dropped", "underlay_tx_dropped"];
/// The forwarder reads such a device: what it does not send, the forwarder does not get.
const SLOW_PATHS: [Reasons; 2] = [
    ["slow_into_tunnels_rx_missed", "slow_into_tunnels_rx_dropped", "slow_into_tunnels_full"],
    ["slow_out_of_tunnels_rx_missed", "slow_out_of_tunnels_rx_dropped", "slow_out_of_tunnels_full"],
];
const SOCKETS: [&str; 2] = ["port_socket_full", "underlay_socket_full"];

/// Counters of the interfaces since the start.
#[derive(Debug, Default)]
pub(super) struct KernelDrops {
    interfaces: Vec<Interface>,
    /// Of the packet sockets of port and underlay.
    socket_counts: [u64; 2],
}

#[derive(Debug)]
struct Interface {
    index: u32,
    reasons: Reasons,
    before: LinkDrops,
    /// Kept when the interface goes.
    now: LinkDrops,
}

impl KernelDrops {
    /// - `slow_paths`: devices behind tcx programs, into and out of tunnels.
    pub(super) fn begin(config: &Config, slow_paths: &[u32]) -> KernelDrops {
        let named = [(&config.port.name, PORT), (&config.underlay.name, UNDERLAY)];
        let named = named
            .into_iter()
            .filter_map(|(name, reasons)| Some((net::link_named(name).ok()?.index, reasons)));
        let slow_paths = slow_paths.iter().copied().zip(SLOW_PATHS);
        let interfaces = named.chain(slow_paths).map(|(index, reasons)| {
            let before = drop_counts(index).unwrap_or_default();
            Interface { index, reasons, before, now: before }
        });
        KernelDrops { interfaces: interfaces.collect(), socket_counts: [0; 2] }
    }

    /// Frames by reason since the start.
    pub(super) fn read(&mut self, forwarder: &Forwarder<'_>) -> Vec<(&'static str, u64)> {
        let mut counts = Vec::new();
        for it in &mut self.interfaces {
            it.now = drop_counts(it.index).unwrap_or(it.now);
            let [missed, received, sent] = it.reasons;
            let LinkDrops { rx_missed, rx_dropped, tx_dropped } = it.now;
            counts.push((missed, rx_missed.saturating_sub(it.before.rx_missed)));
            counts.push((received, rx_dropped.saturating_sub(it.before.rx_dropped)));
            counts.push((sent, tx_dropped.saturating_sub(it.before.tx_dropped)));
        }
        let more = forwarder.take_socket_drop_counts();
        for ((sum, more), reason) in self.socket_counts.iter_mut().zip(more).zip(SOCKETS) {
            *sum += more;
            counts.push((reason, *sum));
        }
        counts
    }
}

/// Drops of an interface, those of its queueing discipline among the frames that were not sent.
fn drop_counts(index: u32) -> Option<LinkDrops> {
    let drops = net::link_drops(index).ok()?;
    let queued = net::qdisc_drop_count(index).unwrap_or(0);
    Some(LinkDrops { tx_dropped: drops.tx_dropped + queued, ..drops })
}
