//! Counters of a forwarder.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::decap::DropReason;
use crate::encap::EncapDrop;

/// Counters by name, in frames.
pub type NamedCounts = Vec<(&'static str, u64)>;

/// Counters, in frames.
#[derive(Debug, Default)]
pub(super) struct ForwarderCounts {
    pub(super) encap_drops: [AtomicU64; EncapDrop::ALL.len()],
    pub(super) decap_drops: [AtomicU64; DropReason::ALL.len()],
    pub(super) local_count: AtomicU64,
    pub(super) flood_count: AtomicU64,
    pub(super) runt_count: AtomicU64,
    pub(super) unlearnt_count: AtomicU64,
    pub(super) odd_ecn_count: AtomicU64,
    pub(super) finished_count: AtomicU64,
    pub(super) policed_count: AtomicU64,
    pub(super) uncopied_count: AtomicU64,
    pub(super) reserved_count: AtomicU64,
    pub(super) vlan_count: AtomicU64,
    /// Frames to a tunnel, or a domain, that a reload has removed.
    pub(super) removed_count: AtomicU64,
    pub(super) too_big: TooBigCounts,
    pub(super) out: [OutCounts; 2],
}

/// Counters of packets that do not fit a tunnel.
#[derive(Debug, Default)]
pub(super) struct TooBigCounts {
    pub(super) v4_count: AtomicU64,
    pub(super) v6_count: AtomicU64,
    pub(super) limited_count: AtomicU64,
    pub(super) unanswered_count: AtomicU64,
    pub(super) clamped_count: AtomicU64,
}

/// Counters of one transmit side.
#[derive(Debug, Default)]
pub(super) struct OutCounts {
    pub(super) sent_count: AtomicU64,
    pub(super) ring_full_count: AtomicU64,
    pub(super) tail_drop_count: AtomicU64,
    pub(super) copy_failed_count: AtomicU64,
}

impl ForwarderCounts {
    /// All counters by name.
    pub(super) fn named(&self) -> NamedCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = self;
        let mut named = vec![
            ("into_tunnels_sent", load(&counts.out[0].sent_count)),
            ("into_tunnels_ring_full", load(&counts.out[0].ring_full_count)),
            ("into_tunnels_tail_drop", load(&counts.out[0].tail_drop_count)),
            ("into_tunnels_copy_failed", load(&counts.out[0].copy_failed_count)),
            ("out_of_tunnels_sent", load(&counts.out[1].sent_count)),
            ("out_of_tunnels_ring_full", load(&counts.out[1].ring_full_count)),
            ("local", load(&counts.local_count)),
            ("flooded", load(&counts.flood_count)),
            ("port_runt", load(&counts.runt_count)),
            ("unlearnt", load(&counts.unlearnt_count)),
            ("odd_ecn", load(&counts.odd_ecn_count)),
            ("checksums_finished", load(&counts.finished_count)),
            ("policed", load(&counts.policed_count)),
            ("uncopied", load(&counts.uncopied_count)),
            ("reserved", load(&counts.reserved_count)),
            ("other_vlan", load(&counts.vlan_count)),
            ("removed_tunnel", load(&counts.removed_count)),
            ("too_big_answered_v4", load(&counts.too_big.v4_count)),
            ("too_big_answered_v6", load(&counts.too_big.v6_count)),
            ("too_big_limited", load(&counts.too_big.limited_count)),
            ("too_big_unanswered", load(&counts.too_big.unanswered_count)),
            ("mss_clamped", load(&counts.too_big.clamped_count)),
        ];
        named.extend(EncapDrop::ALL.map(|r| (r.name(), load(&counts.encap_drops[r.index()]))));
        named.extend(DropReason::ALL.map(|r| (r.name(), load(&counts.decap_drops[r.index()]))));
        named
    }
}

pub(super) fn add(count: &AtomicU64) {
    add_many(count, 1);
}

pub(super) fn add_many(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}
