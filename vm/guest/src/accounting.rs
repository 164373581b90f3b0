//! Builds a measurement from the wire, QEMU's CPU times and the firmware's counters.

use std::time::Duration;

use hdrhistogram::Histogram;
use host::cpu::ThreadTimes;
use model::{Arm, Cost, Delivery, Measurement, NotEffective, Throughput, Trap};
use telemetry::{Counter, Snapshot};

use super::echo::EchoKind;
use super::flood::Flood;
use super::loads::GuestLoad;
use super::ping::Pinged;
use super::qemu::{PlacementInEffect, QemuTimes};
use super::tap::PingReport;
use crate::switches::Switch;

/// Virtio features that determine the kind of ring. Source: virtio 1.2, section 6.
const EVENT_IDX: u64 = 1 << 29;
const RING_PACKED: u64 = 1 << 34;

/// Counters of the firmware that distinguish arms.
const DIAGNOSTIC: [Counter; 18] = [
    Counter::Interrupts,
    Counter::InterruptsIdle,
    Counter::RxWakes,
    Counter::TxPollTurns,
    Counter::TxReaped,
    Counter::TxRefused,
    Counter::RxErrors,
    Counter::TxErrors,
    Counter::ContextSwitches,
    Counter::RxDoorbells,
    Counter::TxShown,
    Counter::TxDoorbells,
    Counter::TxTables,
    Counter::RxPasses,
    Counter::Ticks,
    Counter::TicksMissed,
    Counter::TicksServed,
    Counter::RxHandovers,
];
/// Switches whose effect shows in counts of packets alone.
const BY_PACKET_COUNTS: [Switch; 6] = [
    Switch::LazyReap,
    Switch::RxTask,
    Switch::NoTxInterrupt,
    Switch::IcmpInIrq,
    Switch::Batching,
    Switch::PollMode,
];
/// Interval of the firmware's kernel ticks.
const TICK_NS: f64 = 1e6;

/// The firmware's counters before and after the measured part.
#[derive(Debug, Clone, Copy)]
pub(super) struct FirmwareCounts {
    pub(super) before: Snapshot,
    pub(super) after: Snapshot,
}

impl FirmwareCounts {
    /// `None` if the counters were not read.
    pub(super) fn between(before: Option<Snapshot>, after: Option<Snapshot>) -> Option<Self> {
        before.zip(after).map(|(before, after)| FirmwareCounts { before, after })
    }

    fn grown(&self, counter: Counter) -> u64 {
        self.after.get(counter).wrapping_sub(self.before.get(counter))
    }

    /// True if packets were counted: without `no-counters` the request for the counters is one.
    fn has_counted(&self) -> bool {
        self.grown(Counter::RxPackets) > 0
    }

    /// Number of switches that are on in the firmware.
    pub(super) fn switch_count(&self) -> u32 {
        self.after.get(Counter::Switches).count_ones()
    }

    /// Adds the firmware's counters and the kind of ring.
    pub(super) fn add_to(&self, m: &mut Measurement) {
        for counter in DIAGNOSTIC {
            if counter.is_per_packet() && !self.has_counted() {
                continue;
            }
            m.counters.insert(format!("guest_{}_count", counter.name()), self.grown(counter));
        }
        let due = self.grown(Counter::UptimeNs) as f64 / TICK_NS;
        if due > 0.0 {
            let share = self.grown(Counter::Ticks) as f64 / due;
            m.figures.insert("guest_share_ticks".into(), share);
        }
        let served = self.grown(Counter::TicksServed);
        if served > 0 {
            let late_ns = self.grown(Counter::TickLateNs) as f64;
            m.figures.insert("guest_tick_late_ns_mean".into(), late_ns / served as f64);
            // The request before the measured part has reset it.
            let max_ns = self.after.get(Counter::TickLateNsMax) as f64;
            m.figures.insert("guest_tick_late_ns_max".into(), max_ns);
        }
        let polled = self.grown(Counter::TxPolled);
        if polled > 0 {
            let used_ns = self.grown(Counter::TxPolledNs) as f64 / polled as f64;
            m.figures.insert("guest_tx_used_ns_mean".into(), used_ns);
        }
        let kind = if self.has_feature(RING_PACKED) { "packed" } else { "split" };
        let events = if self.has_feature(EVENT_IDX) { "event index" } else { "flags" };
        m.mode.insert("ring".into(), format!("{kind}, {events}"));
    }

    /// True if the driver uses a feature of the card.
    fn has_feature(&self, bit: u64) -> bool {
        self.after.get(Counter::Features) & bit != 0
    }

    /// Switches of the firmware that were on without effect, by its counters.
    ///
    /// `quiet` is judged by the console ([`placement_and_console`]). With `no-counters` switches whose
    /// effect shows in counts of packets are not judged. Thresholds halve the distance
    /// between an interrupt for each frame, as in the baseline, and none.
    pub(super) fn not_effective(&self, arm: &Arm, load: GuestLoad) -> Vec<NotEffective> {
        let (sent, came) = (self.grown(Counter::TxPackets), self.grown(Counter::RxPackets));
        let interrupts = self.grown(Counter::Interrupts);
        let tx_interrupts = if arm.has(Switch::NoTxInterrupt) { 0 } else { sent };
        let is_uncounted = arm.has(Switch::NoCounters) && !self.has_counted();
        let mut found = Vec::new();
        let mut check = |switch: Switch, is_idle: bool, why: String| {
            let is_judged = !is_uncounted || !BY_PACKET_COUNTS.contains(&switch);
            if arm.has(switch) && is_idle && is_judged {
                found.push(NotEffective::new(switch, why));
            }
        };
        let turns = self.grown(Counter::TxPollTurns);
        check(
            Switch::AsyncTx,
            turns > 0 || self.grown(Counter::TxShown) == 0,
            format!("{sent} frames were sent, with {turns} turns of polling for completions"),
        );
        check(
            Switch::LazyReap,
            self.grown(Counter::TxReaped) == 0,
            format!("none of {sent} completions was reaped under load {load}"),
        );
        check(
            Switch::RxTask,
            self.grown(Counter::RxWakes) == 0,
            if arm.has(Switch::PollMode) {
                "in poll mode the polling task handles all frames".into()
            } else {
                format!(
                    "the receive task was never woken: the interrupt answered all {came} frames"
                )
            },
        );
        // A full ring enables the interrupt; in poll mode the rule below applies.
        check(
            Switch::NoTxInterrupt,
            !arm.has(Switch::PollMode)
                && self.grown(Counter::TxRefused) == 0
                && interrupts > came.saturating_add(sent / 2),
            format!(
                "the device raised {interrupts} interrupts for {came} frames received and {sent} sent, \
                 although the driver asked it not to for those sent"
            ),
        );
        check(
            Switch::EventIdx,
            !self.has_feature(EVENT_IDX),
            "the device does not offer VIRTIO_F_EVENT_IDX".into(),
        );
        check(
            Switch::IcmpInIrq,
            self.grown(Counter::AnsweredInPlace) == 0,
            format!("none of {came} frames was an ICMP echo answered in place under load {load}"),
        );
        check(
            Switch::Packed,
            !self.has_feature(RING_PACKED),
            "the device does not offer VIRTIO_F_RING_PACKED".into(),
        );
        check(
            Switch::Indirect,
            self.grown(Counter::TxTables) == 0,
            format!("none of {sent} frames was sent as a table of descriptors"),
        );
        // A pass of one frame is the same with and without.
        check(
            Switch::Batching,
            self.grown(Counter::TxShown) >= sent,
            format!(
                "the device was shown {sent} frames in {} batches: no pass found more than one to answer \
                 under load {load}",
                self.grown(Counter::TxShown)
            ),
        );
        check(
            Switch::PollMode,
            interrupts > tx_interrupts.saturating_add(came / 2),
            format!(
                "the device raised {interrupts} interrupts for {came} frames received, although the \
                 driver asked it not to"
            ),
        );
        check(
            Switch::RxBudget,
            self.grown(Counter::RxHandovers) == 0,
            format!("no interrupt found more than 16 of {came} frames under load {load}"),
        );
        let slots = self.after.get(Counter::TxRingFrames);
        check(Switch::Ring64, slots != 64, format!("the device's ring has {slots} slots"));
        let traced = self.grown(Counter::TraceRecorded);
        check(Switch::NoTrace, traced > 0, format!("{traced} events were traced"));
        check(Switch::NoCounters, came > 0, format!("{came} frames received were counted"));
        found
    }
}

/// Switches judged outside the firmware: placement of QEMU's threads, and the console.
pub(super) fn placement_and_console(
    arm: &Arm,
    placed: &PlacementInEffect,
    console: &str,
) -> Vec<NotEffective> {
    let PlacementInEffect { main_cpus, vcpu_cpus, vcpu_policy } = placed;
    let lines = console.matches(": rx packet ").count();
    let checks = [
        (Switch::Quiet, lines > 0, format!("the firmware printed {lines} lines for packets")),
        (
            Switch::VcpuSplit,
            main_cpus == vcpu_cpus,
            format!("QEMU's main thread may use CPUs {main_cpus}, and its vCPU too"),
        ),
        (
            Switch::VcpuFifo,
            vcpu_policy != "1",
            format!("the vCPU's thread has scheduling policy {vcpu_policy}, not 1 (SCHED_FIFO)"),
        ),
    ];
    let idle = checks.into_iter().filter(|(switch, is_idle, _)| *is_idle && arm.has(*switch));
    idle.map(|(switch, _, why)| NotEffective::new(switch, why)).collect()
}

/// Measurement of back-to-back echoes. Without the firmware's counters only round trips are known.
pub(super) fn echoes(
    pinged: &Pinged,
    kind: EchoKind,
    counts: Option<&FirmwareCounts>,
) -> Measurement {
    let mut m = Measurement { wall_ns: pinged.wall_ns.max(1), ..Measurement::default() };
    let came_count = pinged.answered_count + pinged.late_count;
    let counter = match kind {
        EchoKind::Icmp => Counter::AnsweredIcmp,
        EchoKind::Udp => Counter::AnsweredUdp,
    };
    let counts = counts.filter(|counts| counts.has_counted());
    let (sent_count, received_count) = (pinged.sent_count, came_count);
    match counts {
        Some(counts) => {
            // An echo that was answered had arrived.
            let answered_count = counts.grown(counter);
            add_deliveries(&mut m, sent_count, answered_count, answered_count, came_count);
        }
        None => m.enter_round_trips(Delivery { sent_count, received_count, ..Delivery::default() }),
    }
    m.segments.insert("rtt".into(), pinged.rtt.clone());
    m.costs.insert("near".into(), lab::cost_of(&pinged.usage));
    m
}

/// Measurement of starts under traffic, each of which was answered. The requests that came before an
/// answer are not counted, so there is no delivery.
pub(super) fn starts(times: &Histogram<u64>, wall: Duration) -> Measurement {
    let mut m = Measurement { wall_ns: wall.as_nanos() as u64, ..Measurement::default() };
    let why = "requests to a guest that starts go unanswered until it has started";
    m.refused.insert("lost_count".into(), why.into());
    m.segments.insert("start".into(), times.clone());
    m
}

/// Measurement of a flood of UDP echoes.
pub(super) fn flooded(flood: &Flood, payload_bytes: usize) -> Measurement {
    let wall_ns = (flood.duration.as_nanos() as u64).max(1);
    let mut m = Measurement { wall_ns, ..Measurement::default() };
    // The second request for the counters is received before they are read.
    let counted = flood.grown(Counter::RxPackets).checked_sub(1);
    // With `no-counters` frames without an answer are counted if they were refused.
    let taken_count = counted
        .unwrap_or_else(|| flood.answered_count.saturating_add(flood.grown(Counter::TxRefused)));
    // Frames that the firmware refused to send count as lost on the way back.
    add_deliveries(&mut m, flood.sent_count, taken_count, taken_count, flood.answered_count);
    m.throughput = Some(Throughput {
        interval_ns: flood.arriving.as_nanos() as u64,
        received_count: flood.answered_count,
        payload_bytes: flood.answered_count * payload_bytes as u64,
    });
    m.costs.insert("near".into(), lab::cost_of(&flood.usage));
    let found = flood.discrepancies();
    m.enter_balance("firmware", found.is_empty());
    if !found.is_empty() {
        m.traps.push(Trap {
            what: format!(
                "the firmware's counts differ from those of the wire: {}",
                found.join("; ")
            ),
            advice: "do not use the figures of this arm, and report this".into(),
        });
    }
    m
}

/// Measurement of a run of ping(8).
pub(super) fn tap_echoes(report: &PingReport) -> Measurement {
    let mut m = Measurement { wall_ns: report.wall_ns.max(1), ..Measurement::default() };
    let (sent, came) = (report.sent_count, report.received_count);
    m.enter_round_trips(Delivery {
        sent_count: sent,
        received_count: came.saturating_add(report.duplicated_count),
        duplicated_count: Some(report.duplicated_count),
        reordered_count: 0,
    });
    let mut rtt = model::latency_histogram();
    for time_ns in &report.times_ns {
        rtt.saturating_record(*time_ns);
    }
    m.segments.insert("rtt".into(), rtt);
    if let Some(summary) = report.summary.filter(|_| came == sent) {
        m.figures.insert("rtt_ns_min".into(), summary.min_ns);
        m.figures.insert("rtt_ns_mean".into(), summary.mean_ns);
        m.figures.insert("rtt_ns_mdev".into(), summary.mdev_ns);
    }
    m
}

fn add_deliveries(m: &mut Measurement, sent: u64, taken: u64, answered: u64, came: u64) {
    for (way, sent_count, received_count) in [("forward", sent, taken), ("return", answered, came)]
    {
        let delivery = Delivery { sent_count, received_count, ..Delivery::default() };
        m.deliveries.insert(way.into(), delivery);
        m.counters.insert(format!("{way}_sent_count"), sent_count);
    }
}

/// Adds the CPU time of QEMU's threads, and the time that its main thread waited for a CPU.
pub(super) fn add_qemu(m: &mut Measurement, times: &QemuTimes) {
    m.costs.insert("main".into(), thread_cost(&times.main));
    m.costs.insert("vcpu".into(), thread_cost(&times.vcpu));
    for (name, thread) in [("main", &times.main), ("vcpu", &times.vcpu)] {
        m.counters.insert(format!("{name}_cpu_ns"), thread.scheduled.run_ns);
        m.counters.insert(format!("{name}_wait_ns"), thread.scheduled.wait_ns);
    }
    let packets = m
        .packet_count
        .unwrap_or_else(|| model::total(m.deliveries.values().map(Delivery::first_arrival_count)));
    if packets > 0 {
        let wait_ns = times.main.scheduled.wait_ns as f64;
        m.figures.insert("main_wait_ns_per_packet".into(), wait_ns / packets as f64);
    }
}

fn thread_cost(times: &ThreadTimes) -> Cost {
    Cost {
        user_ns: times.scheduled.run_ns.saturating_sub(times.system_ns),
        system_ns: times.system_ns,
        context_switch_count: times.context_switch_count,
        ..Cost::default()
    }
}

#[cfg(test)]
mod tests {
    use host::cpu::Scheduled;

    use sys::rusage::ThreadUsage;

    use super::*;

    fn counts(counters: &[(Counter, u64)]) -> FirmwareCounts {
        let before = Snapshot([0; telemetry::COUNTERS]);
        let mut after = before;
        for (counter, value) in counters {
            after.0[*counter as usize] = *value;
        }
        FirmwareCounts { before, after }
    }

    fn pinged(sent_count: u64, answered_count: u64) -> Pinged {
        let mut rtt = model::latency_histogram();
        rtt.record_n(50_000, answered_count).unwrap();
        let usage = ThreadUsage::default();
        Pinged { sent_count, answered_count, late_count: 0, rtt, wall_ns: 1, usage }
    }

    #[test]
    fn answer_lost_on_the_way_back_counts_in_the_return_delivery() {
        let counts = counts(&[
            (Counter::RxPackets, 2001),
            (Counter::AnsweredIcmp, 2000),
            (Counter::Features, EVENT_IDX),
        ]);
        let mut m = echoes(&pinged(2000, 1999), EchoKind::Icmp, Some(&counts));
        counts.add_to(&mut m);
        assert_eq!(m.deliveries["forward"].lost_count(), 0);
        assert_eq!(m.deliveries["return"].lost_count(), 1);
        assert_eq!(m.mode["ring"], "split, event index");
    }

    #[test]
    fn guest_that_does_not_count_arrivals_has_no_delivery_by_direction() {
        let of_linux = echoes(&pinged(2000, 1999), EchoKind::Icmp, None);
        assert_eq!(of_linux.deliveries.keys().collect::<Vec<_>>(), [model::ROUND_TRIP]);
        assert_eq!(of_linux.lost_count(), 1);
        assert!(of_linux.refused["lost_count_forward"].contains("does not count arrivals"));
        let mut times = model::latency_histogram();
        times.record(1).unwrap();
        let starts = starts(&times, Duration::from_secs(1));
        assert!(starts.deliveries.is_empty() && starts.refused.contains_key("lost_count"));
    }

    #[test]
    fn wait_of_the_main_thread_is_reported_per_packet() {
        let mut m = echoes(&pinged(1000, 1000), EchoKind::Icmp, None);
        let waited = Scheduled { run_ns: 9_000_000, wait_ns: 5_000_000 };
        let main = ThreadTimes { scheduled: waited, system_ns: 4_000_000, context_switch_count: 7 };
        add_qemu(&mut m, &QemuTimes { main, vcpu: ThreadTimes::default() });
        let metrics = m.metrics();
        for (name, expected) in [("main_wait_ns_per_packet", 2500.0), ("cpu_ns_per_packet", 4500.0)]
        {
            let metric = metrics.iter().find(|metric| metric.name == name).unwrap();
            assert_eq!(metric.value, Ok(expected), "{name}");
        }
        assert_eq!(m.costs["main"].user_ns, 5_000_000);
        assert_eq!(m.counters["main_wait_ns"], 5_000_000);
    }

    #[test]
    fn switches_without_effect_are_found_in_the_counters() {
        let arm = Arm::with([Switch::RxTask, Switch::IcmpInIrq]);
        let idle = counts(&[]).not_effective(&arm, GuestLoad::UdpPing);
        let names: Vec<&str> = idle.iter().map(|found| found.switch.as_str()).collect();
        assert_eq!(names, ["rx-task", "icmp-in-irq"]);
        let busy = counts(&[(Counter::AnsweredInPlace, 5), (Counter::RxWakes, 5)]);
        assert!(busy.not_effective(&arm, GuestLoad::Ping).is_empty());
        let arm = Arm::with([Switch::AsyncTx, Switch::Packed, Switch::Indirect, Switch::Batching]);
        let frames = [(Counter::TxPackets, 100), (Counter::TxShown, 100)];
        let idle = counts(&frames).not_effective(&arm, GuestLoad::Ping);
        let names: Vec<&str> = idle.iter().map(|found| found.switch.as_str()).collect();
        assert_eq!(names, ["packed", "indirect", "batching"]);
        assert!(idle[2].why.contains("under load ping"), "{}", idle[2].why);
        let busy = counts(&[
            (Counter::Features, RING_PACKED),
            (Counter::TxTables, 100),
            (Counter::TxPackets, 100),
            (Counter::TxShown, 99),
        ]);
        assert!(busy.not_effective(&arm, GuestLoad::Flood).is_empty());
    }

    #[test]
    fn counters_of_any_size_from_a_guest_do_not_overflow() {
        let all = Snapshot([u64::MAX; telemetry::COUNTERS]);
        let none = Snapshot([0; telemetry::COUNTERS]);
        for (before, after) in [(none, all), (all, none)] {
            let counts = FirmwareCounts { before, after };
            counts.not_effective(&Arm::with(Switch::ALL.iter().copied()), GuestLoad::Ping);
            let mut m = echoes(&pinged(2, 2), EchoKind::Udp, Some(&counts));
            counts.add_to(&mut m);
            add_qemu(
                &mut m,
                &QemuTimes { main: ThreadTimes::default(), vcpu: ThreadTimes::default() },
            );
            assert!(!m.metrics().is_empty());
        }
    }

    #[test]
    fn interrupts_and_polling_show_switches_without_effect() {
        use Counter::{Interrupts, RxPackets, TxPackets, TxPollTurns};
        let [many, few, most, half] = [151, 150, 200, 100]
            .map(|count| [(RxPackets, 100), (TxPackets, 100), (Interrupts, count)]);
        for (switch, counters, is_idle) in [
            (Switch::NoTxInterrupt, &many[..], true),
            (Switch::NoTxInterrupt, &few, false),
            (Switch::PollMode, &most, true),
            (Switch::PollMode, &half, false),
            (Switch::AsyncTx, &[(TxPackets, 100), (TxPollTurns, 1)], true),
            (Switch::AsyncTx, &[], true),
            (Switch::AsyncTx, &[(Counter::TxShown, 100)], false),
            (Switch::LazyReap, &[], true),
            (Switch::LazyReap, &[(Counter::TxReaped, 1)], false),
        ] {
            let found = counts(counters).not_effective(&Arm::with([switch]), GuestLoad::Ping);
            assert_eq!(!found.is_empty(), is_idle, "{switch}: {counters:?}");
        }
    }

    #[test]
    fn without_packet_counts_their_switches_are_not_judged_and_each_answer_counts() {
        use Counter::{RxPackets, TxRefused, TxShown};
        let arm = Arm::with([Switch::AsyncTx, Switch::IcmpInIrq, Switch::NoCounters]);
        let silent = counts(&[(TxShown, 100)]);
        assert!(silent.not_effective(&arm, GuestLoad::Ping).is_empty());
        let counting =
            counts(&[(TxShown, 100), (RxPackets, 7)]).not_effective(&arm, GuestLoad::Ping);
        let why: Vec<&str> = counting.iter().map(|found| found.why.as_str()).collect();
        assert_eq!(why.last(), Some(&"7 frames received were counted"));
        assert_eq!(counting.len(), 2, "{why:?}");
        let mut m = echoes(&pinged(2000, 1999), EchoKind::Icmp, Some(&silent));
        assert_eq!(m.lost_count(), 1);
        silent.add_to(&mut m);
        assert!(m.counters.contains_key("guest_tx_shown_count"));
        assert!(!m.counters.contains_key("guest_interrupts_count"), "{:?}", m.counters);
        let flood = Flood {
            sent_count: 100,
            answered_count: 90,
            duration: Duration::ZERO,
            arriving: Duration::ZERO,
            usage: ThreadUsage::default(),
            before: silent.before,
            after: counts(&[(TxRefused, 8)]).after,
        };
        let m = flooded(&flood, 18);
        assert_eq!(m.deliveries["forward"].received_count, 98);
        assert_eq!(m.deliveries["return"].received_count, 90);
        assert_eq!(m.counters["firmware_unbalanced_count"], 1);
        let [differ] = &m.traps[..] else { panic!("{:?}", m.traps) };
        let said = "echoes answered by the firmware or refused: 98, expected 100";
        assert!(differ.what.ends_with(said), "{}", differ.what);
        let balanced = Flood { answered_count: 92, ..flood };
        assert!(flooded(&balanced, 18).traps.is_empty());
    }

    #[test]
    fn console_and_placement_show_switches_without_effect() {
        let arm = Arm::with([Switch::Quiet, Switch::VcpuSplit, Switch::VcpuFifo]);
        let [idle, busy] =
            [(["0-1", "0-1", "0"], "virtio-net: rx packet 1, 98 bytes"), (["0", "1", "1"], "")]
                .map(|(placed, console)| {
                    let [main_cpus, vcpu_cpus, vcpu_policy] = placed.map(str::to_owned);
                    let placed = PlacementInEffect { main_cpus, vcpu_cpus, vcpu_policy };
                    let found = placement_and_console(&arm, &placed, console);
                    found.into_iter().map(|one| one.why).collect::<Vec<_>>()
                });
        assert_eq!(
            idle,
            [
                "the firmware printed 1 lines for packets",
                "QEMU's main thread may use CPUs 0-1, and its vCPU too",
                "the vCPU's thread has scheduling policy 0, not 1 (SCHED_FIFO)",
            ]
        );
        assert_eq!(busy, [""; 0]);
    }

    #[test]
    fn share_of_ticks_is_that_of_the_kernels_ticks_that_were_due() {
        let mut m = Measurement::default();
        counts(&[(Counter::UptimeNs, 400_000_000), (Counter::Ticks, 300)]).add_to(&mut m);
        assert_eq!(m.figures["guest_share_ticks"], 0.75);
        let late = [
            (Counter::TicksServed, 300),
            (Counter::TickLateNs, 600_000),
            (Counter::TickLateNsMax, 90_000),
        ];
        counts(&late).add_to(&mut m);
        assert_eq!(m.figures["guest_tick_late_ns_mean"], 2000.0);
        assert_eq!(m.figures["guest_tick_late_ns_max"], 90_000.0);
        counts(&[(Counter::TxPolled, 4), (Counter::TxPolledNs, 100_000)]).add_to(&mut m);
        assert_eq!(m.figures["guest_tx_used_ns_mean"], 25_000.0);
        let mut unknown = Measurement::default();
        counts(&[]).add_to(&mut unknown);
        assert!(!unknown.figures.contains_key("guest_share_ticks"));
    }
}
