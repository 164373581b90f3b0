//! What was seen on the wire, in QEMU and in the firmware, as one measurement.

use host::cpu::ThreadTimes;
use io::rusage::ThreadUsage;
use model::{Arm, Cost, Delivery, Measurement, NotEffective, Throughput};
use observe::{Counter, Snapshot};

use super::echo::Kind;
use super::flood::Flood;
use super::ping::Pinged;
use super::qemu::QemuTimes;
use super::tap::Report;

/// Virtio features that tell which ring is in use. Source: virtio 1.2, section 6.
const EVENT_IDX: u64 = 1 << 29;
const RING_PACKED: u64 = 1 << 34;

/// Counters of the firmware that tell arms apart.
const TOLD: [Counter; 14] = [
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
];

/// The firmware's counters around what was measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told {
    pub(super) before: Snapshot,
    pub(super) after: Snapshot,
}

impl Told {
    fn grown(&self, counter: Counter) -> u64 {
        self.after.get(counter).wrapping_sub(self.before.get(counter))
    }

    /// Whether the firmware runs with this many switches on.
    pub(super) fn switch_count(&self) -> u32 {
        self.after.get(Counter::Switches).count_ones()
    }

    /// Enters what the firmware counted, and which ring it used.
    pub(super) fn enter(&self, m: &mut Measurement) {
        for counter in TOLD {
            m.counters.insert(format!("guest_{}_count", counter.name()), self.grown(counter));
        }
        let features = self.after.get(Counter::Features);
        let has = |bit: u64| features & bit != 0;
        let kind = if has(RING_PACKED) { "packed" } else { "split" };
        let wish = if has(EVENT_IDX) { "event index" } else { "flags" };
        m.mode.insert("ring".into(), format!("{kind}, {wish}"));
    }

    /// Switches that were on and did nothing, by the firmware's own counters.
    pub(super) fn not_effective(&self, arm: &Arm, load: &str) -> Vec<NotEffective> {
        let mut found = Vec::new();
        let mut say = |switch: &str, why: &str| {
            found.push(NotEffective { switch: switch.to_owned(), why: why.to_owned() });
        };
        if arm.has("icmp-in-irq") && self.grown(Counter::AnsweredInPlace) == 0 {
            say("icmp-in-irq", &format!("no ICMP echo was answered in place under load {load}"));
        }
        if arm.has("event-idx") && self.after.get(Counter::Features) & EVENT_IDX == 0 {
            say("event-idx", "the device does not offer VIRTIO_F_EVENT_IDX");
        }
        if arm.has("rx-task") && self.grown(Counter::RxWakes) == 0 {
            let why = match arm.has("poll-mode") {
                true => "in poll mode frames are handled where they are found",
                false => "the receive task was never woken: all was answered in the interrupt",
            };
            say("rx-task", why);
        }
        let (interrupts, came) = (self.grown(Counter::Interrupts), self.grown(Counter::RxPackets));
        if arm.has("poll-mode") && arm.has("no-tx-interrupt") && interrupts > came / 2 {
            say("poll-mode", "the device interrupted although it was asked not to");
        }
        if arm.has("packed") && self.after.get(Counter::Features) & RING_PACKED == 0 {
            say("packed", "the device does not offer VIRTIO_F_RING_PACKED");
        }
        if arm.has("indirect") && self.grown(Counter::TxTables) == 0 {
            say("indirect", "no frame was sent as a table of descriptors");
        }
        // A pass of one frame is the same with and without. Tell the device of as many batches
        // as there are frames, and nothing was batched.
        let (shown, sent) = (self.grown(Counter::TxShown), self.grown(Counter::TxPackets));
        if arm.has("batching") && shown >= sent {
            let why = format!("no pass found more than one frame to answer under load {load}");
            say("batching", &why);
        }
        found
    }
}

/// Back-to-back echoes. Without the firmware's counters each answer stands for an arrival.
pub(super) fn of_ping(pinged: &Pinged, kind: Kind, told: Option<&Told>) -> Measurement {
    let mut m = Measurement { wall_ns: pinged.wall_ns.max(1), ..Measurement::default() };
    let came_count = pinged.answered_count + pinged.late_count;
    let counter = match kind {
        Kind::Icmp => Counter::AnsweredIcmp,
        Kind::Udp => Counter::AnsweredUdp,
    };
    let taken_count = told.map_or(came_count, |told| told.grown(counter));
    enter_books(&mut m, pinged.sent_count, taken_count, taken_count, came_count);
    m.segments.insert("rtt".into(), pinged.rtt.clone());
    m.costs.insert("near".into(), own_cost(&pinged.usage));
    m
}

/// A flood of UDP echoes.
pub(super) fn of_flood(flood: &Flood, payload_bytes: usize) -> Measurement {
    let wall_ns = (flood.duration.as_nanos() as u64).max(1);
    let mut m = Measurement { wall_ns, ..Measurement::default() };
    // The second question for the counters is received before they are read.
    let taken_count = flood.grown(Counter::RxPackets).saturating_sub(1);
    // What the firmware refused to send is missing on the way back.
    enter_books(&mut m, flood.sent_count, taken_count, taken_count, flood.answered_count);
    m.throughput = Some(Throughput {
        interval_ns: flood.arriving.as_nanos() as u64,
        received_count: flood.answered_count,
        payload_bytes: flood.answered_count * payload_bytes as u64,
    });
    m.costs.insert("near".into(), own_cost(&flood.usage));
    m
}

/// What ping(8) reports.
pub(super) fn of_report(report: &Report) -> Measurement {
    let mut m = Measurement { wall_ns: report.wall_ns.max(1), ..Measurement::default() };
    let (sent, came) = (report.sent_count, report.received_count);
    enter_books(&mut m, sent, came, came, came + report.duplicated_count);
    if let Some(back) = m.deliveries.get_mut("return") {
        back.duplicated_count = report.duplicated_count;
    }
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

fn enter_books(m: &mut Measurement, sent: u64, taken: u64, answered: u64, came: u64) {
    let books =
        |sent_count, received_count| Delivery { sent_count, received_count, ..Delivery::default() };
    m.deliveries.insert("forward".into(), books(sent, taken));
    m.deliveries.insert("return".into(), books(answered, came));
    m.counters.insert("forward_sent_count".into(), sent);
    m.counters.insert("return_sent_count".into(), answered);
}

/// Enters what QEMU's threads used, and how long its main thread waited for a CPU.
pub(super) fn enter_qemu(m: &mut Measurement, times: &QemuTimes) {
    m.costs.insert("main".into(), thread_cost(&times.main));
    m.costs.insert("vcpu".into(), thread_cost(&times.vcpu));
    for (name, thread) in [("main", &times.main), ("vcpu", &times.vcpu)] {
        m.counters.insert(format!("{name}_cpu_ns"), thread.scheduled.run_ns);
        m.counters.insert(format!("{name}_wait_ns"), thread.scheduled.wait_ns);
    }
    let first = |books: &Delivery| books.received_count.saturating_sub(books.duplicated_count);
    let packets: u64 = m.deliveries.values().map(first).sum();
    if packets > 0 {
        let wait_ns = times.main.scheduled.wait_ns as f64;
        m.figures.insert("main_wait_ns_per_packet".into(), wait_ns / packets as f64);
    }
}

fn own_cost(usage: &ThreadUsage) -> Cost {
    Cost {
        user_ns: usage.user_ns,
        system_ns: usage.system_ns,
        context_switch_count: usage.context_switch_count,
        ..Cost::default()
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

    use super::*;

    fn told(counters: &[(Counter, u64)]) -> Told {
        let before = Snapshot([0; observe::COUNTERS]);
        let mut after = before;
        for (counter, value) in counters {
            after.0[*counter as usize] = *value;
        }
        Told { before, after }
    }

    fn pinged(sent_count: u64, answered_count: u64) -> Pinged {
        let mut rtt = model::latency_histogram();
        rtt.record_n(50_000, answered_count).unwrap();
        let usage = ThreadUsage::default();
        Pinged { sent_count, answered_count, late_count: 0, rtt, wall_ns: 1, usage }
    }

    #[test]
    fn an_answer_that_got_lost_on_the_way_back_is_in_the_return_s_books() {
        let told = told(&[(Counter::AnsweredIcmp, 2000), (Counter::Features, EVENT_IDX)]);
        let mut m = of_ping(&pinged(2000, 1999), Kind::Icmp, Some(&told));
        told.enter(&mut m);
        assert_eq!(m.deliveries["forward"].lost_count(), 0);
        assert_eq!(m.deliveries["return"].lost_count(), 1);
        assert_eq!(m.mode["ring"], "split, event index");
        let of_linux = of_ping(&pinged(2000, 1999), Kind::Icmp, None);
        assert_eq!(of_linux.lost_count(), 1);
    }

    #[test]
    fn what_qemu_s_main_thread_waited_is_told_per_packet() {
        let mut m = of_ping(&pinged(1000, 1000), Kind::Icmp, None);
        let waited = Scheduled { run_ns: 9_000_000, wait_ns: 5_000_000 };
        let main = ThreadTimes { scheduled: waited, system_ns: 4_000_000, context_switch_count: 7 };
        enter_qemu(&mut m, &QemuTimes { main, vcpu: ThreadTimes::default() });
        let metrics = m.metrics();
        let value = |name: &str| {
            metrics.iter().find(|metric| metric.name == name).unwrap().value.clone().unwrap()
        };
        assert_eq!(value("main_wait_ns_per_packet"), 2500.0);
        assert_eq!(value("cpu_ns_per_packet"), 4500.0);
        assert_eq!(m.costs["main"].user_ns, 5_000_000);
        assert_eq!(m.counters["main_wait_ns"], 5_000_000);
    }

    #[test]
    fn switches_that_did_nothing_are_found_in_the_counters() {
        let arm = Arm::of(["rx-task", "icmp-in-irq"]);
        let idle = told(&[]).not_effective(&arm, "udp-ping");
        let names: Vec<&str> = idle.iter().map(|found| found.switch.as_str()).collect();
        assert_eq!(names, ["icmp-in-irq", "rx-task"]);
        let busy = told(&[(Counter::AnsweredInPlace, 5), (Counter::RxWakes, 5)]);
        assert!(busy.not_effective(&arm, "ping").is_empty());
        let arm = Arm::of(["async-tx", "packed", "indirect", "batching"]);
        let frames = [(Counter::TxPackets, 100), (Counter::TxShown, 100)];
        let idle = told(&frames).not_effective(&arm, "ping");
        let names: Vec<&str> = idle.iter().map(|found| found.switch.as_str()).collect();
        assert_eq!(names, ["packed", "indirect", "batching"]);
        assert!(idle[2].why.contains("under load ping"), "{}", idle[2].why);
        let busy = told(&[
            (Counter::Features, RING_PACKED),
            (Counter::TxTables, 100),
            (Counter::TxPackets, 100),
            (Counter::TxShown, 99),
        ]);
        assert!(busy.not_effective(&arm, "flood").is_empty());
    }
}
