//! Measurement of a guest in this monitor, whatever it did.

use guest_pages::report;
use lab::cost_of;
use model::{Cost, Measurement, total};
use vmm::Snapshot;

use super::{add_digested, delivered, echoes, exit_book, stream};
use crate::host_stream::Passed;
use crate::ping::Pinged;
use crate::sink::SinkReceived;

/// Measurement of a guest that sends to a sink.
pub(crate) fn guest_frames(
    seen: &Snapshot,
    received: &SinkReceived,
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

/// Measurement of echoes of a guest. An echo is two packets, there and back.
pub(crate) fn guest_echoes(seen: &Snapshot, pinged: &Pinged) -> Measurement {
    let mut m = echoes(pinged.wall_ns, pinged);
    // A call to send each, and one to receive its answer.
    let call_count = pinged.sent_count.saturating_mul(2);
    let packet_count = m.packet_count.unwrap_or(0);
    guest_figures(&mut m, seen, packet_count, call_count);
    m
}

/// Measurement of a stream of a guest. Its packets are the frames that carry it, in both directions.
pub(crate) fn guest_stream(seen: &Snapshot, passed: &Passed) -> Measurement {
    let lance = &seen.nic;
    let frame_count = lance.tx_frame_count.saturating_add(lance.rx_frame_count);
    let mut m = stream(seen.at_ns, passed, frame_count);
    guest_figures(&mut m, seen, frame_count, passed.call_count);
    add_digested(&mut m, &seen.report);
    m
}

/// Adds costs and counters of the guest and its device, each per frame.
///
/// - `packet_count`: number of frames.
/// - `call_count`: system calls at the other end.
fn guest_figures(m: &mut Measurement, seen: &Snapshot, packet_count: u64, call_count: u64) {
    let counted = &seen.report;
    m.costs.insert("vcpu".into(), cost_of(&seen.vcpu));
    // Read through another thread's CPU clock, which does not split user and system time.
    let device = Cost { system_ns: seen.device_cpu_ns, ..Cost::default() };
    m.costs.insert("device".into(), device);
    let (exits, work) = (&seen.exits, &seen.work);
    let vcpu_ns = seen.vcpu.cpu_ns();
    let calls = total([exits.count(), work.call_count(), call_count]);
    // Both clocks span the measured part.
    let scale = seen.at_ns as f64 / counted[report::TOTAL_TICKS].max(1) as f64;
    let [copy_ns, port_ns, pic_ns, idle_ns, full_ns] = [
        report::COPY_TICKS,
        report::PORT_TICKS,
        report::PIC_TICKS,
        report::IDLE_TICKS,
        report::FULL_TICKS,
    ]
    .map(|ticks| (counted[ticks] as f64 * scale) as u64);
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
        ("guest_copy_ns_per_packet", copy_ns),
        ("guest_port_ns_per_packet", port_ns),
        ("guest_pic_ns_per_packet", pic_ns),
        ("guest_idle_ns_per_packet", idle_ns),
        ("guest_full_ns_per_packet", full_ns),
    ];
    // The kernel's own counts, where it has them: `exits` are all, whether the kernel or the process
    // handled them.
    let of_kernel =
        [("kvm_exits_per_packet", "exits"), ("kvm_irq_injections_per_packet", "irq_injections")];
    let of_kernel = of_kernel
        .into_iter()
        .filter_map(|(name, counter)| Some((name, *seen.kernel.get(counter)?)));
    let book = exit_book::per_packet(seen);
    let per_packet = each.into_iter().chain(of_kernel).chain(book);
    let per_packet = per_packet.map(|(name, amount)| (name, amount as f64 / packet_count as f64));
    let passes = seen.nic.tx_pass_with_frames_count;
    let per_pass = ("frames_per_pass", packet_count as f64 / passes as f64);
    let doorbells = work.doorbell_wake_count;
    let per_doorbell =
        (doorbells > 0).then(|| ("frames_per_doorbell", packet_count as f64 / doorbells as f64));
    // Of a frame that the thread itself sent, which for the other thread is a part of all.
    let per_sent = [
        ("vcpu_transmit_ns_per_frame", work.transmit_ns, work.vcpu_sent_frame_count),
        ("device_transmit_ns_per_frame", work.device_transmit_ns, work.device_timed_frame_count),
    ];
    let per_sent = per_sent.map(|(name, ns, frame_count)| (name, ns as f64 / frame_count as f64));
    let figures = per_packet.chain([per_pass]).chain(per_doorbell).chain(per_sent);
    for (name, value) in figures.chain(exit_book::idle_shares(seen)) {
        if value.is_finite() {
            m.figures.insert(name.to_owned(), value);
        }
    }
    m.counters.extend(counters(seen));
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
        ("exit_flushed_frame_count", work.exit_flushed_frame_count),
        ("vcpu_sent_frame_count", work.vcpu_sent_frame_count),
        ("device_timed_frame_count", work.device_timed_frame_count),
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

#[cfg(test)]
mod tests {
    use sys::rusage::ThreadUsage;

    use super::*;
    use crate::accounting::not_effective;
    use crate::switches::Switch;

    fn pinged(sent_count: u64, answered_count: u64) -> Pinged {
        let mut rtt = model::latency_histogram();
        rtt.record_n(50_000, answered_count).unwrap();
        Pinged { sent_count, rtt, wall_ns: 1, usage: ThreadUsage::default() }
    }

    #[test]
    fn echoes_have_no_delivery_by_direction_and_metrics_say_why() {
        let m = guest_echoes(&Snapshot::default(), &pinged(1000, 999));
        assert_eq!(m.deliveries.keys().collect::<Vec<_>>(), [model::ROUND_TRIP]);
        assert_eq!((m.lost_count(), m.packet_count), (1, Some(1998)));
        let metrics = m.metrics();
        let [all, forward] = ["lost_count", "lost_count_forward"].map(|name| {
            metrics.iter().find(|metric| metric.name == name).expect(name).value.clone()
        });
        assert_eq!(all, Ok(1.0));
        let why = forward.unwrap_err();
        assert!(why.contains("does not count arrivals"), "{why}");
    }

    #[test]
    fn transmit_time_of_a_frame_is_that_of_the_thread_that_sent_it() {
        let mut seen = Snapshot::default();
        seen.nic.tx_frame_count = 1000;
        (seen.work.transmit_ns, seen.work.vcpu_sent_frame_count) = (40_000, 10);
        let figures = guest_stream(&seen, &passed(1)).figures;
        assert_eq!(figures["vcpu_transmit_ns_per_frame"], 4000.0);
        assert!(!figures.contains_key("device_transmit_ns_per_frame"), "{figures:?}");
        (seen.work.device_transmit_ns, seen.work.device_timed_frame_count) = (300_000, 100);
        let figures = guest_stream(&seen, &passed(1)).figures;
        assert_eq!(figures["device_transmit_ns_per_frame"], 3000.0);
    }

    #[test]
    fn frames_of_a_stream_share_its_cost_and_are_not_its_arrivals() {
        let mut seen = Snapshot::default();
        (seen.nic.tx_frame_count, seen.nic.rx_frame_count) = (1000, 100);
        let m = guest_stream(&seen, &passed(1_000_000));
        let metrics = m.metrics();
        let [goodput, received] = ["goodput_bps", "received_pps"]
            .map(|name| metrics.iter().find(|metric| metric.name == name).expect(name));
        assert_eq!(goodput.value, Ok(8e9));
        assert!(received.value.is_err());
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
        let received = SinkReceived {
            book: model::SequenceCounts::new(),
            warm_up_count: 0,
            wrong_count: 0,
            dropped_count: u64::MAX,
            first_ns: 0,
            last_ns: 0,
            usage: ThreadUsage::default(),
            call_count: u64::MAX,
        };
        let sent = guest_frames(&seen, &received, usize::MAX, 16, u64::MAX);
        assert_eq!(sent.counters["sent_count"], u64::MAX);
        let mut passed = passed(u64::MAX);
        passed.call_count = u64::MAX;
        let streamed = guest_stream(&seen, &passed);
        assert_eq!(streamed.packet_count, Some(u64::MAX));
        for m in [sent, streamed, guest_echoes(&seen, &pinged(u64::MAX, 1))] {
            assert!(!m.metrics().is_empty());
        }
        not_effective(&model::Arm::with(Switch::ALL.iter().copied()), &seen);
    }

    fn passed(bytes: u64) -> Passed {
        let usage = ThreadUsage::default();
        Passed { bytes, digest: [0; 32], wall_ns: 1_000_000, usage, call_count: 0 }
    }
}
