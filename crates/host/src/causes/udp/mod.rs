//! UDP and multicast.

mod answers_refused;
mod bind;
mod checksum;
mod edns;
mod group;
mod igmp_max;
mod mcast_forward;
mod mcast_route;
mod membership;
mod no_port;
mod rcvbuf;
mod reasm;
mod shared_port;
mod sndbuf;
mod snooping;
mod socket_filter;
mod udp_mem;

use std::collections::BTreeMap;

use super::Cause;
use super::evidence::{Evidence, Losses, Window};
use crate::net::UdpSocket;

pub(super) use checksum::{in_text as checksums_in_text, losses as checksum_losses};
pub use group::{GroupArrivals, GroupQuestion, of_group};

pub(super) const CAUSES: &[Cause] = &[
    rcvbuf::CAUSE,
    no_port::CAUSE,
    answers_refused::CAUSE,
    igmp_max::CAUSE,
    edns::CAUSE,
    reasm::CAUSE,
    mcast_route::CAUSE,
    mcast_forward::CAUSE,
    bind::CAUSE,
    bind::OTHER_INTERFACE,
    membership::CAUSE,
    snooping::CAUSE,
    checksum::CAUSE,
    socket_filter::CAUSE,
    shared_port::CAUSE,
    shared_port::IMBALANCE,
    sndbuf::CAUSE,
    udp_mem::CAUSE,
    group::FRAMES,
    group::FILTER,
    group::HEADER,
];

/// Most sockets that a cause names.
const NAMED_MAX: usize = 8;

/// `UDP port 9000 of python3 (process 7)`.
fn named(view: &Evidence, socket: &UdpSocket) -> String {
    format!("UDP port {} of {}", socket.local.port(), view.owner(socket.inode))
}

/// Sockets that dropped datagrams, with their number; those of the window first.
fn dropping(window: &Window) -> Vec<(&UdpSocket, Losses)> {
    let earlier: BTreeMap<_, u32> = window
        .before
        .udp
        .iter()
        .map(|one| ((one.inode, one.local), one.memory.drop_count))
        .collect();
    let dropping = window.after.udp.iter().filter(|one| one.memory.drop_count > 0);
    let mut found: Vec<_> = dropping
        .map(|one| {
            // A socket of the window was opened in it.
            let before = earlier.get(&(one.inode, one.local)).copied().unwrap_or(0);
            (one, window.losses(before.into(), one.memory.drop_count.into()))
        })
        .collect();
    found.sort_by_key(|(_, lost)| std::cmp::Reverse((lost.now, lost.total)));
    found
}

/// Datagrams that the programs of the namespace read within the window.
fn datagrams_read(window: &Window) -> Losses {
    window.sum(&["UdpInDatagrams", "Udp6InDatagrams"])
}

/// Report of one cause about this machine with counters of a window.
#[cfg(test)]
pub(super) fn report(cause: &'static Cause, window: Window) -> super::DoctorReport {
    let system = crate::tune::System::open(&crate::tune::Place::default()).unwrap();
    let evidence = Evidence::new(system, None, None, None).unwrap();
    super::examine_for(&evidence.watched(window.before, window.after), |one| one.id == cause.id)
}
