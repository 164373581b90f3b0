//! Where the frames of a trial went: the counts of everything between source and sink, and what
//! nobody accounts for.

use std::collections::BTreeMap;

use host::lab::Triple;
use host::sysfs::Sysfs;
use model::{Delivery, Measurement};

use super::kernel::{BRIDGE, VXLAN};
use super::source::Sent;
use super::user::UserReport;
use crate::path::PathError;

/// Counters of the interfaces in the middle that frames can be lost at.
pub(super) struct Losses(Sysfs);

/// What they show, by name.
pub(super) type Lost = BTreeMap<String, u64>;

impl Losses {
    pub(super) fn open(lab: &Triple) -> Result<Losses, PathError> {
        Ok(Losses(Sysfs::of(&lab.middle.netns).map_err(PathError::part)?))
    }

    /// What has been lost until now, since the interfaces are there.
    pub(super) fn now(&self, lab: &Triple) -> Lost {
        let middle = &lab.middle;
        let places = [
            // What XDP could not redirect, and the backlog of another CPU.
            (middle.near_if.ifname.as_str(), "rx_dropped", "port_rx_dropped_count"),
            (BRIDGE, "rx_dropped", "bridge_rx_dropped_count"),
            (VXLAN, "tx_dropped", "vxlan_tx_dropped_count"),
            (VXLAN, "tx_errors", "vxlan_tx_error_count"),
            // The ring at the other end of the veth.
            (middle.far_if.ifname.as_str(), "tx_dropped", "underlay_tx_dropped_count"),
        ];
        let read = |(ifname, file, name): (&str, &str, &str)| {
            let path = format!("class/net/{ifname}/statistics/{file}");
            // The bridge and the device are there only while the kernel forwards.
            let count = self.0.read(path).ok()?.trim().parse().ok()?;
            Some((name.to_owned(), count))
        };
        places.into_iter().filter_map(read).collect()
    }
}

/// What has come on top from `before` to `after`.
pub(super) fn since(before: &Lost, after: &Lost) -> Lost {
    let change = |(name, count): (&String, &u64)| {
        (name.clone(), count.saturating_sub(before.get(name).copied().unwrap_or(0)))
    };
    after.iter().map(change).collect()
}

/// What a trial counted.
pub(super) struct Counted {
    pub(super) sent: Sent,
    pub(super) arrived: io::DropCounts,
    pub(super) lost: Lost,
    pub(super) user: Option<UserReport>,
}

/// Enters deliveries, costs and counters; `missing_count` is what was sent, did not arrive and
/// was counted as dropped by nobody.
pub(super) fn enter(m: &mut Measurement, counted: Counted) {
    let Counted { sent, arrived, lost, user } = counted;
    let delivery = Delivery {
        sent_count: sent.sent_count,
        received_count: arrived.frames,
        duplicated_count: arrived.duplicated,
        reordered_count: arrived.reordered,
    };
    m.deliveries.insert("forward".into(), delivery);
    m.costs.insert("source".into(), sent.cost);
    let mut dropped_count: u64 = lost.values().sum();
    let counters = &mut m.counters;
    counters.insert("sent_count".into(), sent.sent_count);
    counters
        .insert("received_count".into(), arrived.frames - arrived.duplicated.min(arrived.frames));
    counters.insert("generator_attempted_count".into(), sent.attempted_count);
    counters.extend(lost);
    if let Some(user) = user {
        dropped_count += user_drops(&user);
        let [books, back] = user.books;
        counters.extend(
            [
                ("admitted_count", books.admitted_frames),
                ("ticket_count", books.ticket_count),
                ("hole_count", books.hole_count),
                ("passed_count", books.passed_count),
                ("late_count", books.late_frames),
                ("window_full_count", books.refused_count),
                ("in_flight_count", books.in_flight_frames() + back.in_flight_frames()),
                ("pool_unbalanced_count", u64::from(!user.balance.balances())),
            ]
            .map(|(name, count)| (name.to_owned(), count)),
        );
        if let Some(statistics) = user.statistics {
            counters.insert("ring_full_count".into(), statistics.rx_ring_full_count);
            counters.insert("fill_ring_empty_count".into(), statistics.fill_ring_empty_count);
        }
        for (name, count) in user.counts.into_iter().filter(|(_, count)| *count > 0) {
            *counters.entry(format!("forwarder_{name}_count")).or_default() += count;
        }
        for (n, (cost, frame_count)) in user.workers.iter().enumerate() {
            m.costs.insert(format!("worker {n}"), *cost);
            m.counters.insert(format!("worker_{n}_frame_count"), *frame_count);
        }
        let copying = if user.is_zero_copy { "zero-copy" } else { "copy" };
        m.mode.insert("xdp".into(), format!("native, {copying}"));
    }
    let arrived_count = delivery.received_count.saturating_sub(delivery.duplicated_count);
    let missing_count =
        delivery.sent_count.saturating_sub(arrived_count).saturating_sub(dropped_count);
    m.counters.insert("missing_count".into(), missing_count);
}

/// Frames into the tunnel that our forwarder dropped, for whatever reason.
fn user_drops(user: &UserReport) -> u64 {
    let into_tunnels = user.books[0];
    // What its workers dropped is in the books; what came after the order is not.
    let behind = ["into_tunnels_ring_full", "into_tunnels_tail_drop", "into_tunnels_copy_failed"];
    let counted = user.counts.iter().filter(|(name, _)| behind.contains(name));
    into_tunnels.dropped_frames
        + into_tunnels.late_frames
        + into_tunnels.undelivered_frames
        + counted.map(|(_, count)| count).sum::<u64>()
}
