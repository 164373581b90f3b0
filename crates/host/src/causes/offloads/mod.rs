//! Work that interfaces do for the stack, and merging.

mod missing;
mod switched_off;
mod udp_merge;

use std::collections::BTreeMap;

use super::Cause;
use super::evidence::{Evidence, Window};
use crate::net::Link;
use crate::net::ethtool::{self, Offload};

pub(super) const CAUSES: &[Cause] = &[udp_merge::CAUSE, missing::CAUSE, switched_off::CAUSE];

/// Offloads of an interface by their names in the kernel.
type Offloads = BTreeMap<String, Offload>;

/// Packets a second from which an interface is asked for its offloads: fewer are hardly merged, and cost little.
const FEW_PER_S: f64 = 100.0;

/// Interfaces of the path that carry packets now, with their offloads.
fn busy<'a>(view: &'a Evidence, window: &'a Window) -> impl Iterator<Item = (&'a Link, Offloads)> {
    let packets = |link: &Link| {
        let rate = |counter| window.link(&link.name, counter).per_second();
        rate("rx_packets") + rate("tx_packets")
    };
    view.interfaces().filter(move |link| packets(link) >= FEW_PER_S).filter_map(|link| {
        // Not every interface has any.
        Some((link, view.system.within(|| ethtool::offloads(link.index)).ok()?))
    })
}
