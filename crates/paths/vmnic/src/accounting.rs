//! Measurement of a trial from the reports of guest, monitor and sink.

use model::{Arm, Cost, Delivery, Measurement, NotEffective, Throughput, total};
use wire::nettest::report;

use super::exit_book;
use super::host_stream::Passed;
use super::native::Ran;
use super::ping::Pinged;
use super::qemu;
use super::sink::Received;
use crate::switches::Switch;
use sys::rusage::ThreadUsage;
use vmm::{COMBINE_FRAMES, Snapshot};

/// Frames to an interrupt from which on its price is not a part of a frame's any more.
const RARE: u64 = 1000;

fn cost(usage: &ThreadUsage) -> Cost {
    Cost {
        user_ns: usage.user_ns,
        system_ns: usage.system_ns,
        softirq_ns: None,
        context_switch_count: usage.context_switch_count,
        syscall_count: None,
    }
}

/// Records delivery and throughput of one direction: `sent_count` measured frames after `warm_up`
/// others. Frames in `lost` may belong to either.
fn delivered(
    m: &mut Measurement,
    received: &Received,
    size_bytes: usize,
    sent_count: u64,
    warm_up: u64,
    lost: impl IntoIterator<Item = (&'static str, u64)> + Clone,
) {
    let delivery: Delivery = received.book.delivery(sent_count);
    let arrived_count = received.book.first_arrival_count();
    m.deliveries.insert("forward".into(), delivery);
    m.throughput = Some(Throughput {
        interval_ns: received.last_ns.saturating_sub(received.first_ns),
        received_count: arrived_count,
        payload_bytes: arrived_count.saturating_mul(size_bytes as u64),
    });
    let warm_up_lost = warm_up.saturating_sub(received.warm_up_count);
    let lost_counts = lost.clone().into_iter().map(|(_, count)| count);
    let accounted = total(lost_counts.chain([received.dropped_count, arrived_count]));
    let missing = sent_count.saturating_add(warm_up_lost).saturating_sub(accounted);
    m.counters.extend([
        ("sent_count".to_owned(), sent_count),
        ("received_count".to_owned(), arrived_count),
        ("dropped_by_sink_count".to_owned(), received.dropped_count),
        ("missing_count".to_owned(), missing),
        ("wrong_count".to_owned(), received.wrong_count),
    ]);
    m.counters.extend(lost.into_iter().map(|(name, count)| (name.to_owned(), count)));
    m.costs.insert("sink".into(), cost(&received.usage));
}

/// Measurement of a guest that sends to a sink.
pub(super) fn of_guest(
    seen: &Snapshot,
    received: &Received,
    size_bytes: usize,
    warm_up: u64,
    lost_count: u64,
) -> Measurement {
    let counted = &seen.report;
    let sent_count = counted[report::TX_FRAMES];
    let mut m = Measurement { wall_ns: seen.at_ns, ..Measurement::default() };
    let lost = [
        ("refused_by_back_end_count", seen.work.refused_count),
        ("lost_on_wire_count", lost_count),
    ];
    delivered(&mut m, received, size_bytes, sent_count, warm_up, lost);
    guest_figures(&mut m, seen, sent_count, received.call_count);
    m
}

/// Adds costs and counters of the guest and its device, each per frame.
///
/// - `packet_count`: number of frames.
/// - `call_count`: system calls at the other end.
fn guest_figures(m: &mut Measurement, seen: &Snapshot, packet_count: u64, call_count: u64) {
    let counted = &seen.report;
    m.costs.insert("vcpu".into(), cost(&seen.vcpu));
    // Read through another thread's CPU clock, which does not split user and system time.
    let device = Cost { system_ns: seen.device_cpu_ns, ..Cost::default() };
    m.costs.insert("device".into(), device);
    let (exits, work) = (&seen.exits, &seen.work);
    let vcpu_ns = seen.vcpu.cpu_ns();
    let calls = total([exits.count(), work.call_count(), call_count]);
    // Both clocks span the measured part.
    let scale = seen.at_ns as f64 / counted[report::TOTAL_TICKS].max(1) as f64;
    let guest_ns = |ticks: usize| (counted[ticks] as f64 * scale) as u64;
    let each = [
        ("wall_ns_per_packet", seen.at_ns),
        ("vcpu_ns_per_packet", vcpu_ns),
        ("device_ns_per_packet", seen.device_cpu_ns),
        ("handling_ns_per_packet", seen.handling_ns),
        ("exits_per_packet", exits.count()),
        ("coalesced_per_packet", exits.coalesced_count),
        ("doorbells_per_packet", work.doorbell_count),
        ("interrupts_per_packet", counted[report::INTERRUPTS]),
        ("pic_accesses_per_packet", counted[report::PIC_ACCESSES]),
        ("halts_per_packet", counted[report::HALTS]),
        ("syscalls_per_packet", calls),
        ("emulation_ns_per_packet", work.emulate_ns),
        ("transmit_ns_per_packet", work.transmit_ns),
        ("notification_ns_per_packet", work.notify_ns),
        ("receive_ns_per_packet", work.receive_ns),
        ("guest_copy_ns_per_packet", guest_ns(report::COPY_TICKS)),
        ("guest_port_ns_per_packet", guest_ns(report::PORT_TICKS)),
        ("guest_pic_ns_per_packet", guest_ns(report::PIC_TICKS)),
        ("guest_idle_ns_per_packet", guest_ns(report::IDLE_TICKS)),
        ("guest_full_ns_per_packet", guest_ns(report::FULL_TICKS)),
    ];
    // The kernel's own counts, where it has them: `exits` are all, whether the kernel or the process
    // handled them.
    let of_kernel =
        [("kvm_exits_per_packet", "exits"), ("kvm_irq_injections_per_packet", "irq_injections")];
    let of_kernel = of_kernel
        .into_iter()
        .filter_map(|(name, counter)| Some((name, *seen.kernel.get(counter)?)));
    let mut figure = |name: &str, value: f64| {
        if value.is_finite() {
            m.figures.insert(name.to_owned(), value);
        }
    };
    let book = exit_book::per_packet(seen);
    for (name, amount) in each.into_iter().chain(of_kernel).chain(book) {
        figure(name, amount as f64 / packet_count as f64);
    }
    if work.doorbell_wake_count > 0 {
        figure("frames_per_doorbell", packet_count as f64 / work.doorbell_wake_count as f64);
    }
    figure("frames_per_pass", packet_count as f64 / seen.nic.tx_pass_with_frames_count as f64);
    for (name, share) in exit_book::idle_shares(seen) {
        figure(name, share);
    }
    m.counters.extend(counters(seen));
}

/// Goodput and cost of a stream at the host.
///
/// - `frame_count`: frames that carried it, in both directions, which share the costs.
fn stream(wall_ns: u64, passed: &Passed, frame_count: u64) -> Measurement {
    let packet_count = Some(frame_count);
    let mut m = Measurement { wall_ns, packet_count, ..Measurement::default() };
    if passed.wall_ns > 0 {
        let goodput_bps = passed.bytes as f64 * 8e9 / passed.wall_ns as f64;
        m.figures.insert("goodput_bps".into(), goodput_bps);
    }
    let why = "a socket counts the bytes of a stream, not the frames that arrive";
    m.refused.insert("received_pps".into(), why.into());
    m.costs.insert("host".into(), cost(&passed.usage));
    m
}

/// Round trips of the echoes. The guest does not report how many reached it.
fn echoes(wall_ns: u64, pinged: &Pinged) -> Measurement {
    let mut m = Measurement { wall_ns, ..Measurement::default() };
    let (sent_count, received_count) = (pinged.sent_count, pinged.rtt.len());
    m.enter_round_trips(Delivery { sent_count, received_count, ..Delivery::default() });
    m.segments.insert("rtt".into(), pinged.rtt.clone());
    m.costs.insert("host".into(), cost(&pinged.usage));
    m
}

/// Measurement of echoes of a guest. An echo is two packets, there and back.
pub(super) fn of_ping(seen: &Snapshot, pinged: &Pinged) -> Measurement {
    let mut m = echoes(pinged.wall_ns, pinged);
    // A call to send each, and one to receive its answer.
    let call_count = pinged.sent_count.saturating_mul(2);
    let packet_count = m.packet_count.unwrap_or(0);
    guest_figures(&mut m, seen, packet_count, call_count);
    m
}

/// Measurement of echoes of a guest on QEMU's device.
pub(super) fn of_qemu_ping(ran: &qemu::Ran, pinged: &Pinged) -> Measurement {
    let mut m = echoes(pinged.wall_ns, pinged);
    let packet_count = m.packet_count.unwrap_or(0);
    qemu_figures(&mut m, ran, packet_count);
    m
}

/// Adds the bytes of the measured part that the guest digested: none in a judged trial.
fn add_digested(m: &mut Measurement, page: &[u64; report::LEN]) {
    let is_digested = page[report::DIGEST..report::DIGEST + 4].iter().any(|&word| word != 0);
    let digested_bytes = if is_digested { page[report::STREAM_BYTES] } else { 0 };
    m.counters.insert("digested_bytes".into(), digested_bytes);
}

/// Measurement of a stream of a guest. Its packets are the frames that carry it, in both directions.
pub(super) fn of_stream(seen: &Snapshot, passed: &Passed) -> Measurement {
    let lance = &seen.nic;
    let frame_count = lance.tx_frame_count.saturating_add(lance.rx_frame_count);
    let mut m = stream(seen.at_ns, passed, frame_count);
    guest_figures(&mut m, seen, frame_count, passed.call_count);
    add_digested(&mut m, &seen.report);
    m
}

/// All counters of a run by name.
fn counters(seen: &Snapshot) -> Vec<(String, u64)> {
    let (exits, work, lance) = (&seen.exits, &seen.work, &seen.nic);
    let counted = &seen.report;
    let mut counters: Vec<(String, u64)> = [
        ("exit_rap_read_count", exits.rap_read_count),
        ("exit_rap_write_count", exits.rap_write_count),
        ("exit_demand_count", exits.demand_count),
        ("exit_other_device_count", exits.other_device_count),
        ("exit_configuration_count", exits.configuration_count),
        ("exit_stray_count", exits.stray_count),
        ("exit_halt_count", exits.halt_count),
        ("exit_interrupted_count", exits.interrupted_count),
        ("coalesced_count", exits.coalesced_count),
        ("doorbell_count", work.doorbell_count),
        ("doorbell_wake_count", work.doorbell_wake_count),
        ("combined_count", work.combined_count),
        ("exit_flush_count", work.exit_flush_count),
        ("moderated_count", work.moderated_count),
        ("polled_frame_count", work.polled_frame_count),
        ("masked_frame_count", work.masked_frame_count),
        ("packed_frame_count", work.packed_frame_count),
        ("received_unpolled_count", work.received_unpolled_count),
        ("irq_raised_count", work.interrupt_count),
        ("irq_call_count", work.interrupt_call_count),
        ("wait_call_count", work.wait_call_count),
        ("event_call_count", work.event_call_count),
        ("back_end_call_count", work.backend_call_count),
        ("device_frame_count", lance.tx_frame_count),
        ("device_pass_count", lance.tx_pass_count),
        ("device_pass_with_frames_count", lance.tx_pass_with_frames_count),
        ("device_rx_frame_count", lance.rx_frame_count),
        ("in_place_frame_count", lance.in_place_frame_count),
        (
            "copied_frame_count",
            total([lance.tx_frame_count, lance.rx_frame_count])
                .saturating_sub(lance.in_place_frame_count),
        ),
        ("device_rx_missed_count", lance.rx_missed_count),
        ("device_dropped_count", total([lance.tx_dropped_count, lance.tx_torn_count])),
        ("guest_interrupt_count", counted[report::INTERRUPTS]),
        ("guest_port_access_count", counted[report::PORT_ACCESSES]),
        ("guest_pic_access_count", counted[report::PIC_ACCESSES]),
        ("guest_halt_count", counted[report::HALTS]),
        ("guest_ring_full_count", counted[report::TX_FULL]),
        ("guest_error_count", counted[report::ERRORS]),
    ]
    .into_iter()
    .map(|(name, count)| (name.to_owned(), count))
    .collect();
    let by_csr = [("read", &exits.csr_read_counts), ("write", &exits.csr_write_counts)];
    for (direction, counts) in by_csr {
        let some = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counters
            .extend(some.map(|(csr, &count)| (format!("exit_csr{csr}_{direction}_count"), count)));
    }
    counters
}

/// Switches of an arm that had no effect in the measured part, with the counts that show it.
///
/// A device that polls needs no demand, so the switches that make demands cheaper are not judged then;
/// nor is moderation while the guest masks the interrupt that it would delay.
pub(super) fn not_effective(arm: &Arm, seen: &Snapshot) -> Vec<NotEffective> {
    let (exits, work, lance) = (&seen.exits, &seen.work, &seen.nic);
    let (sent, received) = (lance.tx_frame_count, lance.rx_frame_count);
    let has_demands = !arm.has(Switch::OwnPolling);
    let demands = exits.demand_count.saturating_add(work.doorbell_count);
    let (interrupts, calls) = (work.interrupt_count, work.interrupt_call_count);
    let mut found = Vec::new();
    let mut check = |switch: Switch, is_idle: bool, why: String| {
        if arm.has(switch) && is_idle {
            found.push(NotEffective::new(switch, why));
        }
    };
    let why = match arm.has(Switch::VirtioNet) {
        true => "a virtio-net card has no address register".into(),
        false => {
            format!("the kernel recorded no write of the address register; {sent} frames were sent")
        }
    };
    check(Switch::RapInKernel, exits.coalesced_count == 0, why);
    check(
        Switch::TdmdDoorbell,
        has_demands && work.doorbell_count == 0,
        format!("none of {demands} transmit demands came as a doorbell"),
    );
    check(
        Switch::SendCombining,
        has_demands && work.combined_count == 0,
        format!(
            "none of {sent} frames waited for another: they were more than a tick apart, or sent \
             together anyway"
        ),
    );
    check(
        Switch::SharedRing,
        work.received_unpolled_count == 0 && work.backend_call_count >= sent,
        format!(
            "no poll() was avoided, since none of {received} frames was received without one, and no \
             call: {} sent {sent} frames",
            work.backend_call_count
        ),
    );
    check(
        Switch::CombineMore,
        has_demands && lance.tx_pass_frames_max <= COMBINE_FRAMES,
        format!(
            "at most {} frames were combined, no more than by send-combining",
            lance.tx_pass_frames_max
        ),
    );
    check(
        Switch::IntModeration,
        work.moderated_count == 0 && !arm.has(Switch::TxIntMask),
        format!(
            "none of {interrupts} interrupts was delayed: each was for a received frame, too; {sent} \
             frames were sent"
        ),
    );
    check(
        Switch::OwnPolling,
        work.polled_frame_count == 0 || demands >= sent,
        format!(
            "the device found {} of {sent} frames by polling, and the guest made {demands} demands",
            work.polled_frame_count
        ),
    );
    check(
        Switch::TxIntMask,
        work.masked_frame_count == 0,
        format!("none of {sent} frames was sent while the transmit interrupt was masked"),
    );
    check(
        Switch::IrqFd,
        interrupts.saturating_mul(RARE) < sent.saturating_add(received),
        format!(
            "{interrupts} interrupts were raised for {} frames, fewer than one in {RARE}",
            sent.saturating_add(received)
        ),
    );
    check(
        Switch::IrqFd,
        interrupts > 0 && calls / 2 >= interrupts,
        format!("{interrupts} interrupts took {calls} system calls, two each as without it"),
    );
    check(
        Switch::XdpRing,
        sent <= work.refused_count && received == 0,
        format!(
            "no frame passed the AF_XDP rings: {} of {sent} were refused, {received} received",
            work.refused_count
        ),
    );
    check(
        Switch::FlushAtExit,
        has_demands && work.exit_flush_count == 0,
        format!(
            "no exit of the guest for another cause than a demand found one of the {} frames that waited",
            work.combined_count
        ),
    );
    check(
        Switch::PackedRing,
        work.packed_frame_count == 0,
        format!("none of {sent} frames was sent from a packed queue"),
    );
    check(
        Switch::GuestUmem,
        lance.in_place_frame_count == 0,
        format!("none of {sent} frames sent and {received} received stayed in guest memory"),
    );
    let is_still = sent == 0 && received == 0;
    check(Switch::VirtioNet, is_still, "no frame passed the virtio-net card".into());
    check(
        Switch::EventIdx,
        has_demands && demands >= sent && interrupts >= sent.saturating_add(received),
        format!(
            "neither side was spared a notification: {demands} demands and {interrupts} interrupts for \
             {sent} frames sent and {received} received"
        ),
    );
    found
}

/// Measurement of a guest on QEMU's device that sends to a sink.
pub(super) fn of_qemu(
    ran: &qemu::Ran,
    received: &Received,
    size_bytes: usize,
    warm_up: u64,
    lost_count: u64,
) -> Measurement {
    let sent_count = ran.report[report::TX_FRAMES];
    let mut m = Measurement { wall_ns: ran.wall_ns, ..Measurement::default() };
    delivered(
        &mut m,
        received,
        size_bytes,
        sent_count,
        warm_up,
        [("lost_on_wire_count", lost_count)],
    );
    qemu_figures(&mut m, ran, sent_count);
    m
}

/// Measurement of a stream of a guest on QEMU's device.
pub(super) fn of_qemu_stream(ran: &qemu::Ran, passed: &Passed) -> Measurement {
    let frame_count = total([ran.report[report::TX_FRAMES], ran.report[report::RX_FRAMES]]);
    let mut m = stream(ran.wall_ns, passed, frame_count);
    qemu_figures(&mut m, ran, frame_count);
    add_digested(&mut m, &ran.report);
    m
}

/// Adds costs of QEMU's threads and counters of its guest. Exits are not counted; translated code has
/// none.
fn qemu_figures(m: &mut Measurement, ran: &qemu::Ran, packet_count: u64) {
    let counted = &ran.report;
    let vcpu_ns = ran.vcpu.scheduled.run_ns;
    let device_ns = ran.process_ns.saturating_sub(vcpu_ns);
    let of_thread = |ns| Cost { user_ns: ns, ..Cost::default() };
    m.costs.insert("vcpu".into(), of_thread(vcpu_ns));
    m.costs.insert("device".into(), of_thread(device_ns));
    m.mode.insert("back end".into(), "TAP".into());
    m.mode.insert("device".into(), ran.device.into());
    if packet_count > 0 {
        let each = [
            ("vcpu_ns_per_packet", vcpu_ns),
            ("device_ns_per_packet", device_ns),
            ("wall_ns_per_packet", ran.wall_ns),
            ("interrupts_per_packet", counted[report::INTERRUPTS]),
            ("pic_accesses_per_packet", counted[report::PIC_ACCESSES]),
            ("port_accesses_per_packet", counted[report::PORT_ACCESSES]),
            ("halts_per_packet", counted[report::HALTS]),
        ];
        let each = each.map(|(name, n)| (name.to_owned(), n as f64 / packet_count as f64));
        m.figures.extend(each);
    }
    let share = counted[report::IDLE_TICKS] as f64 / counted[report::TOTAL_TICKS].max(1) as f64;
    m.figures.insert("guest_share_idle".into(), share);
    let counts = [
        ("guest_interrupt_count", counted[report::INTERRUPTS]),
        ("guest_port_access_count", counted[report::PORT_ACCESSES]),
        ("guest_ring_full_count", counted[report::TX_FULL]),
        ("guest_error_count", counted[report::ERRORS]),
    ];
    m.counters.extend(counts.map(|(name, count)| (name.to_owned(), count)));
}

/// Measurement of a native loop that sends to a sink.
pub(super) fn of_native(
    ran: &Ran,
    received: &Received,
    size_bytes: usize,
    lost_count: u64,
    refused_count: u64,
) -> Measurement {
    let mut m = Measurement { wall_ns: ran.wall_ns, ..Measurement::default() };
    let lost = [("refused_by_back_end_count", refused_count), ("lost_on_wire_count", lost_count)];
    delivered(&mut m, received, size_bytes, ran.sent_count, 0, lost);
    // The loop does the work of the vCPU.
    m.costs.insert("vcpu".into(), cost(&ran.usage));
    if ran.sent_count > 0 {
        let each = |amount: u64| amount as f64 / ran.sent_count as f64;
        let loop_ns = ran.usage.user_ns + ran.usage.system_ns;
        m.figures.insert("vcpu_ns_per_packet".into(), each(loop_ns));
        let calls = ran.call_count + received.call_count;
        m.figures.insert("syscalls_per_packet".into(), each(calls));
    }
    let share = ran.idle_ns as f64 / ran.wall_ns.max(1) as f64;
    m.figures.insert("guest_share_idle".into(), share);
    m
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinged(sent_count: u64, answered_count: u64) -> Pinged {
        let mut rtt = model::latency_histogram();
        rtt.record_n(50_000, answered_count).unwrap();
        Pinged { sent_count, rtt, wall_ns: 1, usage: ThreadUsage::default() }
    }

    #[test]
    fn echoes_have_no_delivery_by_direction_and_metrics_say_why() {
        let m = of_ping(&Snapshot::default(), &pinged(1000, 999));
        assert_eq!(m.deliveries.keys().collect::<Vec<_>>(), [model::ROUND_TRIP]);
        assert_eq!((m.lost_count(), m.packet_count), (1, Some(1998)));
        let metrics = m.metrics();
        let value = |name: &str| {
            metrics.iter().find(|metric| metric.name == name).expect(name).value.clone()
        };
        assert_eq!(value("lost_count"), Ok(1.0));
        let why = value("lost_count_forward").unwrap_err();
        assert!(why.contains("does not count arrivals"), "{why}");
    }

    #[test]
    fn frames_of_a_stream_share_its_cost_and_are_not_its_arrivals() {
        let mut seen = Snapshot::default();
        (seen.nic.tx_frame_count, seen.nic.rx_frame_count) = (1000, 100);
        let m = of_stream(&seen, &passed(1_000_000));
        let metrics = m.metrics();
        let metric = |name: &str| metrics.iter().find(|metric| metric.name == name).expect(name);
        assert_eq!(metric("goodput_bps").value, Ok(8e9));
        assert!(metric("received_pps").value.is_err());
        assert_eq!(m.packet_count, Some(1100));
    }

    /// A snapshot of which every count is the largest.
    fn largest() -> Snapshot {
        let mut seen = Snapshot { report: [u64::MAX; report::LEN], ..Snapshot::default() };
        seen.exits.csr_read_counts = [u64::MAX; 128];
        (seen.exits.demand_count, seen.exits.stray_count) = (u64::MAX, u64::MAX);
        (seen.work.doorbell_count, seen.work.interrupt_count) = (u64::MAX, u64::MAX);
        (seen.work.wait_call_count, seen.work.event_call_count) = (u64::MAX, u64::MAX);
        (seen.nic.tx_frame_count, seen.nic.rx_frame_count) = (u64::MAX, u64::MAX);
        (seen.nic.tx_dropped_count, seen.nic.tx_torn_count) = (u64::MAX, u64::MAX);
        (seen.vcpu.user_ns, seen.vcpu.system_ns) = (u64::MAX, u64::MAX);
        seen
    }

    #[test]
    fn counts_of_any_size_from_a_guest_do_not_overflow() {
        let seen = largest();
        let received = Received {
            book: model::SequenceCounts::new(),
            warm_up_count: 0,
            wrong_count: 0,
            dropped_count: u64::MAX,
            first_ns: 0,
            last_ns: 0,
            usage: ThreadUsage::default(),
            call_count: u64::MAX,
        };
        let sent = of_guest(&seen, &received, usize::MAX, 16, u64::MAX);
        assert_eq!(sent.counters["sent_count"], u64::MAX);
        let mut passed = passed(u64::MAX);
        passed.call_count = u64::MAX;
        let streamed = of_stream(&seen, &passed);
        assert_eq!(streamed.packet_count, Some(u64::MAX));
        for m in [sent, streamed, of_ping(&seen, &pinged(u64::MAX, 1))] {
            assert!(!m.metrics().is_empty());
        }
        not_effective(&Arm::with(Switch::ALL.iter().copied()), &seen);
    }

    fn passed(bytes: u64) -> Passed {
        let usage = ThreadUsage::default();
        Passed { bytes, digest: [0; 32], wall_ns: 1_000_000, usage, call_count: 0 }
    }

    /// Reasons of an arm with one switch, after a run of 1,000 frames sent and 100 received, changed
    /// by `change`.
    fn reasons(switch: Switch, change: impl FnOnce(&mut Snapshot)) -> Vec<String> {
        let mut seen = Snapshot::default();
        seen.nic.tx_frame_count = 1000;
        seen.nic.rx_frame_count = 100;
        change(&mut seen);
        let found = not_effective(&Arm::with([switch]), &seen);
        assert!(found.iter().all(|one| one.switch == switch.to_string()), "{found:?}");
        found.into_iter().map(|one| one.why).collect()
    }

    /// `idle` makes a rule report `switch` with `evidence`; with `busy` none does.
    fn judges(
        switch: Switch,
        evidence: &str,
        idle: impl FnOnce(&mut Snapshot),
        busy: impl FnOnce(&mut Snapshot),
    ) {
        let found = reasons(switch, idle);
        assert!(found.len() == 1 && found[0].contains(evidence), "{switch}: {found:?}");
        assert_eq!(reasons(switch, busy), [""; 0], "{switch}");
    }

    #[test]
    fn virtio_net_that_moves_no_frame_is_not_effective() {
        judges(
            Switch::VirtioNet,
            "no frame passed",
            |seen| (seen.nic.tx_frame_count, seen.nic.rx_frame_count) = (0, 0),
            |_| {},
        );
    }

    #[test]
    fn packed_ring_that_the_driver_does_not_use_is_not_effective() {
        judges(
            Switch::PackedRing,
            "none of 1000 frames",
            |_| {},
            |seen| seen.work.packed_frame_count = 1000,
        );
    }

    #[test]
    fn guest_umem_that_keeps_no_frame_in_guest_memory_is_not_effective() {
        judges(
            Switch::GuestUmem,
            "none of 1000 frames sent",
            |_| {},
            |seen| seen.nic.in_place_frame_count = 1000,
        );
    }

    #[test]
    fn shared_ring_that_saves_neither_a_poll_nor_a_call_is_not_effective() {
        judges(
            Switch::SharedRing,
            "none of 100 frames was received without one, and no call: 1000 sent 1000 frames",
            |seen| seen.work.backend_call_count = 1000,
            |seen| {
                seen.work.backend_call_count = 1000;
                seen.work.received_unpolled_count = 1;
            },
        );
        assert!(reasons(Switch::SharedRing, |seen| seen.work.backend_call_count = 334).is_empty());
    }

    #[test]
    fn own_polling_that_never_finds_a_frame_is_not_effective() {
        judges(
            Switch::OwnPolling,
            "found 0 of 1000 frames by polling",
            |_| {},
            |seen| {
                seen.work.polled_frame_count = 900;
                seen.work.doorbell_count = 100;
            },
        );
        judges(
            Switch::OwnPolling,
            "the guest made 1000 demands",
            |seen| {
                seen.work.polled_frame_count = 900;
                seen.exits.demand_count = 1000;
            },
            |seen| seen.work.polled_frame_count = 1000,
        );
    }

    #[test]
    fn tx_int_mask_that_is_never_set_is_not_effective() {
        judges(
            Switch::TxIntMask,
            "none of 1000 frames was sent while",
            |seen| seen.work.interrupt_count = 10,
            |seen| seen.work.masked_frame_count = 1000,
        );
    }

    #[test]
    fn irq_fd_without_interrupts_or_with_two_calls_each_is_not_effective() {
        let raised = |interrupts: u64, calls: u64| {
            move |seen: &mut Snapshot| {
                seen.work.interrupt_count = interrupts;
                seen.work.interrupt_call_count = calls;
            }
        };
        judges(Switch::IrqFd, "1 interrupts were raised for 1100", raised(1, 1), raised(2, 2));
        judges(Switch::IrqFd, "20 interrupts took 40 system calls", raised(20, 40), raised(20, 20));
    }

    #[test]
    fn xdp_ring_that_no_frame_passes_is_not_effective() {
        judges(
            Switch::XdpRing,
            "1000 of 1000 were refused, 0 received",
            |seen| {
                seen.work.refused_count = 1000;
                seen.nic.rx_frame_count = 0;
            },
            |seen| seen.work.refused_count = 1,
        );
    }

    #[test]
    fn switches_of_demands_and_moderation_are_judged_by_their_counts() {
        judges(
            Switch::RapInKernel,
            "recorded no write",
            |_| {},
            |seen| seen.exits.coalesced_count = 1,
        );
        judges(
            Switch::TdmdDoorbell,
            "none of 1000 transmit demands",
            |seen| seen.exits.demand_count = 1000,
            |seen| seen.work.doorbell_count = 1,
        );
        judges(
            Switch::SendCombining,
            "none of 1000 frames waited",
            |_| {},
            |seen| seen.work.combined_count = 1,
        );
        judges(
            Switch::CombineMore,
            "at most 3 frames were combined",
            |seen| seen.nic.tx_pass_frames_max = 3,
            |seen| seen.nic.tx_pass_frames_max = 4,
        );
        judges(
            Switch::IntModeration,
            "none of 1000 interrupts was delayed",
            |seen| seen.work.interrupt_count = 1000,
            |seen| seen.work.moderated_count = 1,
        );
    }
}
