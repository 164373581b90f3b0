//! Accounting of the frames of a trial: counts between source and sink, and the frames that none of
//! them explains.

use std::collections::BTreeMap;

use host::cpu::CpuClock;
use host::sysfs::Sysfs;
use lab::Triple;
use model::{Arm, Delivery, Measurement, NotEffective, Trap, total};

use super::kernel::{BRIDGE, GRETAP, VXLAN};
use super::source::Sent;
use super::user::UserReport;
use crate::switches::Switch;
use crate::topology::{Encapsulation, Limit};
use crate::traffic::{Traffic, Way};
use model::PathError;

/// Counters of the interfaces that frames can be lost at.
pub(super) struct Losses {
    middle: Sysfs,
    /// Of a source that sends socket buffers; the generator knows the frames that it could not send.
    near: Option<Sysfs>,
}

/// Their values, by direction and name.
pub(super) type Lost = BTreeMap<(Way, &'static str), u64>;

impl Losses {
    pub(super) fn open(lab: &Triple, traffic: &Traffic) -> Result<Losses, PathError> {
        let near = traffic.has_hash.then(|| Sysfs::of(&lab.near.netns)).transpose();
        Ok(Losses {
            middle: Sysfs::of(&lab.middle.netns).map_err(PathError::part)?,
            near: near.map_err(PathError::part)?,
        })
    }

    /// Losses since the interfaces were created.
    pub(super) fn now(&self, lab: &Triple) -> Lost {
        use Way::{Into, OutOf};
        let port = lab.middle.near_if.ifname.as_str();
        let underlay = lab.middle.far_if.ifname.as_str();
        let places = [
            // Frames that XDP could not redirect, and those that the backlog of another CPU dropped.
            (Into, port, "rx_dropped", "port_rx_dropped_count"),
            (Into, BRIDGE, "rx_dropped", "bridge_rx_dropped_count"),
            (Into, VXLAN, "tx_dropped", "vxlan_tx_dropped_count"),
            (Into, VXLAN, "tx_errors", "vxlan_tx_error_count"),
            (Into, GRETAP, "tx_dropped", "gretap_tx_dropped_count"),
            (Into, GRETAP, "tx_errors", "gretap_tx_error_count"),
            // The ring at the other end of the veth.
            (Into, underlay, "tx_dropped", "underlay_tx_dropped_count"),
            (OutOf, underlay, "rx_dropped", "underlay_rx_dropped_count"),
            (OutOf, VXLAN, "rx_dropped", "vxlan_rx_dropped_count"),
            (OutOf, VXLAN, "rx_errors", "vxlan_rx_error_count"),
            (OutOf, GRETAP, "rx_dropped", "gretap_rx_dropped_count"),
            (OutOf, GRETAP, "rx_errors", "gretap_rx_error_count"),
            (OutOf, port, "tx_dropped", "port_tx_dropped_count"),
        ];
        let counts = places.into_iter().filter_map(|(way, ifname, file, name)| {
            // The bridge and its device are there only while the kernel forwards.
            Some(((way, name), statistic(&self.middle, ifname, file)?))
        });
        // The ring at the forwarder's end of the veth.
        let source = self.near.as_ref().and_then(|near| {
            let count = statistic(near, &lab.near.ifname, "tx_dropped")?;
            Some(((Into, "source_tx_dropped_count"), count))
        });
        counts.chain(source).collect()
    }
}

fn statistic(sysfs: &Sysfs, ifname: &str, file: &str) -> Option<u64> {
    let text = sysfs.read(format!("class/net/{ifname}/statistics/{file}")).ok()?;
    text.trim().parse().ok()
}

/// Increase from `before` to `after`.
pub(super) fn since(before: &Lost, after: &Lost) -> Lost {
    let changes = after.iter().map(|(place, count)| {
        (*place, count.saturating_sub(before.get(place).copied().unwrap_or(0)))
    });
    changes.collect()
}

/// Counts of one direction: those of its source and of its sink.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    pub(super) way: Way,
    pub(super) sent: Sent,
    pub(super) arrived: sys::bpf::DropCounts,
}

/// Counts of a trial.
pub(super) struct Counted {
    pub(super) streams: Vec<Stream>,
    pub(super) lost: Lost,
    pub(super) user: Option<UserReport>,
}

/// Enters deliveries, costs and counters; `missing_count` is the number of frames that were sent,
/// did not arrive and appear in no drop counter of their direction.
pub(super) fn enter(m: &mut Measurement, counted: Counted) {
    let Counted { streams, lost, user } = counted;
    let mut missing_count = 0;
    for Stream { way, sent, arrived } in streams {
        let delivery = Delivery {
            sent_count: sent.sent_count,
            received_count: arrived.frames,
            duplicated_count: Some(arrived.duplicated),
            reordered_count: arrived.reordered,
        };
        let lost_here = lost.iter().filter(|((lost_way, _), _)| *lost_way == way);
        let dropped_count = lost_here.clone().map(|(_, count)| count).sum::<u64>()
            + user.as_ref().map_or(0, |user| user_drops(user, way));
        missing_count += delivery.lost_count().saturating_sub(dropped_count);
        m.deliveries.insert(way.name().into(), delivery);
        m.costs.insert(way.source().into(), sent.cost);
        m.counters.extend(lost_here.map(|((_, name), count)| ((*name).to_owned(), *count)));
        for (name, count) in [
            ("sent_count", sent.sent_count),
            ("received_count", delivery.first_arrival_count()),
            ("generator_attempted_count", sent.attempted_count),
            ("flow_count", arrived.flows),
        ] {
            *m.counters.entry(name.into()).or_default() += count;
        }
    }
    if let Some(user) = user {
        // Of both directions.
        let seam = user.counts.iter().filter(|(name, _)| *name == "seam_dropped");
        missing_count = missing_count.saturating_sub(seam.map(|(_, count)| count).sum());
        enter_user(m, user);
    }
    m.counters.insert("missing_count".into(), missing_count);
}

/// Enters the counts of Wirepath's forwarder, of both directions together.
pub(super) fn enter_user(m: &mut Measurement, user: UserReport) {
    m.enter_balance("pool", user.balance.balances());
    let counters = &mut m.counters;
    for order in &user.books {
        for (name, count) in [
            ("admitted_count", order.admitted_frames),
            ("ticket_count", order.ticket_count),
            ("hole_count", order.hole_count),
            ("passed_count", order.timed_out_count),
            ("late_count", order.late_frames),
            ("window_full_count", order.refused_count),
            ("in_flight_count", order.in_flight_frames()),
        ] {
            *counters.entry(name.into()).or_default() += count;
        }
    }
    for statistics in user.statistics.iter().flatten() {
        for (name, count) in [
            ("ring_full_count", statistics.rx_ring_full_count),
            ("fill_ring_empty_count", statistics.fill_ring_empty_count),
        ] {
            *counters.entry(name.into()).or_default() += count;
        }
    }
    for (name, count) in user.counts.into_iter().filter(|(_, count)| *count > 0) {
        *counters.entry(format!("forwarder_{name}_count")).or_default() += count;
    }
    counters.extend(user.reload_count.map(|count| ("reload_count".to_owned(), count)));
    for (n, (cost, frame_count)) in user.workers.iter().enumerate() {
        m.costs.insert(format!("worker {n}"), *cost);
        m.counters.insert(format!("worker_{n}_frame_count"), *frame_count);
    }
    let (hook, mode) = user.mode;
    m.mode.insert(hook.into(), mode.into());
}

/// Enters the packets that a second of CPU time delivers, all costs counted.
pub(super) fn enter_per_cpu(m: &mut Measurement) {
    let delivered_count = total(m.deliveries.values().map(Delivery::first_arrival_count));
    let cpu_ns = m.cpu_ns();
    if cpu_ns > 0 {
        let rate = delivered_count as f64 * 1e9 / cpu_ns as f64;
        m.figures.insert("received_pps_per_cpu".into(), rate);
    }
}

/// Share of the CPU that forwarded the most frames.
const BUSIEST: &str = "busiest_cpu_percent";

/// Enters the frames of each CPU, and the share of the busiest.
pub(super) fn enter_cpus(m: &mut Measurement, frames_by_cpu: &[u64]) {
    let whole: u64 = frames_by_cpu.iter().sum();
    let busiest = frames_by_cpu.iter().copied().max().unwrap_or(0);
    if whole > 0 {
        m.figures.insert(BUSIEST.into(), busiest as f64 * 100.0 / whole as f64);
    }
    for (cpu, count) in frames_by_cpu.iter().enumerate().filter(|(_, count)| **count > 0) {
        m.counters.insert(format!("cpu_{cpu}_frame_count"), *count);
    }
}

/// Enters the kernel as the forwarder, and the frames that its CPUs steered.
///
/// - `steered_before`: interrupts of steering when the trial began, if they can be read.
pub(super) fn enter_kernel(
    m: &mut Measurement,
    encapsulation: Encapsulation,
    steered_before: Option<u64>,
    clock: &CpuClock,
) {
    if let (Some(before), Some(after)) = (steered_before, clock.steering_interrupts()) {
        m.counters.insert(STEERED.into(), after.abs_diff(before));
    }
    let device = match encapsulation {
        Encapsulation::Vxlan => "VXLAN",
        Encapsulation::Gretap { .. } => "gretap",
    };
    m.mode.insert("forwarder".into(), format!("bridge and {device} device of the kernel"));
}

/// Counter of the inter-processor interrupts by which CPUs hand steered frames over.
const STEERED: &str = "rps_interrupt_count";

/// Frames that XDP programs put into the tunnel, and took out of it.
const FAST: &str = "forwarder_fast_into_tunnels_count";
const FAST_OUT: &str = "forwarder_fast_out_of_tunnels_count";

fn count(m: &Measurement, counter: &str) -> u64 {
    m.counters.get(counter).copied().unwrap_or(0)
}

/// Switches of the arm that had no effect in its trial, with the evidence.
pub(super) fn not_effective(arm: &Arm, m: &Measurement) -> Vec<NotEffective> {
    const BYPASSED: &str =
        "under bypass AF_XDP takes the frames before steering, hooks and packet sockets";
    const ONE_WORKER: &str = "one worker took every frame";
    let is_bypassed = arm.has(Switch::Bypass);
    let workers =
        (0..m.costs.len()).filter(|n| count(m, &format!("worker_{n}_frame_count")) > 0).count();
    // Where the CPU of each frame is counted, no frame of another program can be mistaken for one of the lab.
    let (is_unsteered, unsteered) = match m.figures.get(BUSIEST) {
        Some(percent) => (*percent >= 100.0, "one CPU forwarded every frame"),
        None => {
            let handed = m.counters.get(STEERED);
            (handed == Some(&0), "no CPU was handed a frame by another (softnet_stat)")
        }
    };
    let is_slow = count(m, FAST) + count(m, FAST_OUT) == 0;
    let is_out_alone = !m.deliveries.contains_key(Way::Into.name());
    let is_single = count(m, "ticket_count") >= count(m, "admitted_count");
    let rules = [
        (Switch::Rps, is_bypassed, BYPASSED),
        (Switch::Rps, is_unsteered && !is_bypassed, unsteered),
        (Switch::NoNetfilter, is_bypassed, BYPASSED),
        (Switch::NoCapture, is_bypassed, BYPASSED),
        (Switch::Batch, is_single, "no batch had more than one frame"),
        (Switch::Parallel, workers < 2, ONE_WORKER),
        (Switch::Ordered, workers < 2, ONE_WORKER),
        (Switch::InKernel, is_slow, "the XDP programs forwarded no frame"),
        (Switch::FlowHash, is_bypassed, BYPASSED),
        (Switch::FlowHash, is_unsteered && !is_bypassed, unsteered),
        (Switch::Sequence, is_out_alone, "no frame went into the tunnel"),
    ];
    let idle = rules.into_iter().filter(|(switch, is_idle, _)| *is_idle && arm.has(*switch));
    idle.map(|(switch, _, why)| NotEffective::new(switch, why)).collect()
}

/// Shares of the admitted frames that a limit of half the rate may drop: bursts pass, and frames that
/// a busy machine delivers late find no credit.
const HALF: std::ops::RangeInclusive<f64> = 0.4..=0.6;

/// Condition that the load's limit did not drop half of the frames, if so.
pub(super) fn not_half(m: &Measurement, limit: Limit) -> Option<Trap> {
    let (name, counter) = match limit {
        Limit::Policer => ("policer", "forwarder_policed_count"),
        Limit::Shaper => ("shaper", "forwarder_into_tunnels_tail_drop_count"),
    };
    // The policer of the fast path counts the frames of both paths.
    let offered = match count(m, FAST) {
        0 => count(m, "admitted_count"),
        fast => fast + count(m, "admitted_count") + count(m, counter),
    };
    let share = count(m, counter) as f64 / (offered as f64).max(1.0);
    // The same text in each trial: equal warnings are printed once.
    (!HALF.contains(&share)).then(|| Trap {
        what: format!(
            "in some trials the {name} did not drop half of the frames that it was given"
        ),
        advice: "the source or the forwarder did not keep up: give a lower --rate, or stop other \
                 work on this machine"
            .into(),
    })
}

/// Frames of one direction that Wirepath's forwarder dropped, for any reason but the seam.
fn user_drops(user: &UserReport, way: Way) -> u64 {
    let books = user.books[way as usize];
    // Drops of its workers are in the order's counters; drops after the order are not.
    // The programs' drops are before it. Their policer is the only one while they run.
    let has_programs = user.counts.iter().any(|(name, _)| *name == "fast_into_tunnels");
    const INTO: [&str; 4] =
        ["into_tunnels_ring_full", "into_tunnels_tail_drop", "into_tunnels_copy_failed", "policed"];
    let behind: &[&str] = match way {
        Way::Into if has_programs => &INTO,
        Way::Into => &INTO[..3],
        Way::OutOf => &["out_of_tunnels_ring_full"],
    };
    let counted = user.counts.iter().filter(|(name, _)| behind.contains(name));
    books.dropped_frames
        + books.late_frames
        + books.undelivered_frames
        + counted.map(|(_, count)| count).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use model::Cost;

    use super::*;

    fn measured(counters: &[(&str, u64)]) -> Measurement {
        let ends = ["source", "worker 0", "worker 1"];
        Measurement {
            counters: counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            costs: ends.map(|end| (end.into(), Cost::default())).into(),
            ..Measurement::default()
        }
    }

    /// Switches without effect.
    fn named(switches: &[Switch], counters: &[(&str, u64)]) -> String {
        let found = not_effective(&Arm::with(switches.iter().copied()), &measured(counters));
        found.into_iter().map(|report| report.switch).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_switch_without_effect_is_named() {
        use Switch::{
            Batch, Bypass, FlowHash, InKernel, NoCapture, NoNetfilter, Ordered, Parallel, Prepend,
            Rps,
        };
        let busy = [
            ("admitted_count", 640),
            ("ticket_count", 10),
            ("worker_0_frame_count", 320),
            ("worker_1_frame_count", 320),
        ];
        let idle = [("admitted_count", 9), ("ticket_count", 9), ("worker_0_frame_count", 9)];
        let own = [Bypass, Batch, Prepend, Parallel, Ordered];
        assert_eq!(named(&own, &busy), "");
        assert_eq!(named(&own, &idle), "batch parallel ordered");
        assert_eq!(named(&[Bypass, Prepend], &idle), "");
        assert_eq!(named(&[Bypass, InKernel], &idle), "in-kernel");
        assert_eq!(named(&[Bypass, InKernel], &[(FAST, 1)]), "");
        assert_eq!(named(&[Bypass, InKernel], &[(FAST_OUT, 1)]), "");
        let kernels = [Rps, NoNetfilter, NoCapture];
        assert_eq!(named(&kernels, &[(STEERED, 1)]), "");
        assert_eq!(named(&kernels, &[(STEERED, 0)]), "rps");
        // Cannot be read.
        assert_eq!(named(&kernels, &[]), "");
        assert_eq!(named(&[FlowHash, Bypass], &busy), "flow-hash");
        for (frames_by_cpu, idle) in [([1000, 0], 2), ([999, 1], 0)] {
            let mut m = measured(&[(STEERED, 1)]);
            enter_cpus(&mut m, &frames_by_cpu);
            assert_eq!(not_effective(&Arm::with([Rps, FlowHash]), &m).len(), idle);
        }
        let both = [Rps, NoNetfilter, NoCapture, Bypass];
        assert_eq!(named(&both, &busy), "rps no-netfilter no-capture");
    }

    #[test]
    fn frames_missing_in_one_direction_are_not_made_up_for_by_drops_of_the_other() {
        for (dropped, missing_count) in
            [((Way::Into, "port_rx_dropped_count"), 0), ((Way::OutOf, "port_tx_dropped_count"), 10)]
        {
            let mut m = Measurement::default();
            let streams = [(Way::Into, 90), (Way::OutOf, 100)].map(|(way, frames)| Stream {
                way,
                sent: Sent { sent_count: 100, ..Sent::default() },
                arrived: sys::bpf::DropCounts { frames, ..Default::default() },
            });
            let lost = Lost::from([(dropped, 10)]);
            enter(&mut m, Counted { streams: streams.into(), lost, user: None });
            assert_eq!((m.deliveries["forward"].lost_count(), m.counters["sent_count"]), (10, 200));
            assert_eq!(m.deliveries["return"].lost_count(), 0);
            assert_eq!(m.counters["missing_count"], missing_count);
        }
    }

    #[test]
    fn share_of_the_busiest_cpu_is_of_all_frames() {
        let mut m = measured(&[]);
        enter_cpus(&mut m, &[0, 0]);
        assert_eq!(m.figures.get("busiest_cpu_percent"), None);
        enter_cpus(&mut m, &[300, 0, 100]);
        assert_eq!(m.figures["busiest_cpu_percent"], 75.0);
        assert_eq!((count(&m, "cpu_0_frame_count"), count(&m, "cpu_2_frame_count")), (300, 100));
        assert!(!m.counters.contains_key("cpu_1_frame_count"));
    }

    #[test]
    fn packets_a_second_of_each_cpu_are_all_that_arrived_by_all_that_was_spent() {
        let mut m = measured(&[]);
        enter_per_cpu(&mut m);
        assert_eq!(m.figures.get("received_pps_per_cpu"), None);
        for (way, received_count) in [("forward", 300), ("return", 100)] {
            let delivery = Delivery { sent_count: 500, received_count, ..Delivery::default() };
            m.deliveries.insert(way.into(), delivery);
        }
        m.costs.insert("source".into(), Cost { user_ns: 1_000_000, ..Cost::default() });
        m.costs.insert("worker 0".into(), Cost { system_ns: 3_000_000, ..Cost::default() });
        enter_per_cpu(&mut m);
        assert_eq!(m.figures["received_pps_per_cpu"], 100_000.0);
    }

    #[test]
    fn limit_that_drops_something_else_than_half_is_reported() {
        for (limit, counter) in [
            (Limit::Policer, "forwarder_policed_count"),
            (Limit::Shaper, "forwarder_into_tunnels_tail_drop_count"),
        ] {
            for (dropped_count, is_reported) in [(0, true), (390, true), (480, false), (650, true)]
            {
                let m = measured(&[("admitted_count", 1000), (counter, dropped_count)]);
                let found = not_half(&m, limit);
                assert_eq!(found.is_some(), is_reported, "{limit:?}: {dropped_count}");
            }
        }
        assert!(not_half(&Measurement::default(), Limit::Policer).is_some());
    }
}
