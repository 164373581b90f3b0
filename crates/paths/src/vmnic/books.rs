//! All sides of a trial as one measurement.

use model::{Cost, Delivery, Measurement, NotEffective, Throughput};
use wire::nettest::report;

use super::native::Ran;
use super::qemu;
use super::sink::Received;
use super::stream::Passed;
use super::vmm::{COMBINE_FRAMES, Snapshot, Switches};
use io::rusage::ThreadUsage;

fn cost(usage: &ThreadUsage) -> Cost {
    Cost {
        user_ns: usage.user_ns,
        system_ns: usage.system_ns,
        softirq_ns: None,
        context_switch_count: usage.context_switch_count,
        syscall_count: None,
    }
}

/// Books and throughput of one direction: `sent_count` measured frames behind `warm_up` others.
/// What is `lost` may be of either.
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
        payload_bytes: arrived_count * size_bytes as u64,
    });
    let warm_up_lost = warm_up.saturating_sub(received.warm_up_count);
    let told: u64 =
        lost.clone().into_iter().map(|(_, count)| count).sum::<u64>() + received.dropped_count;
    let missing = (sent_count + warm_up_lost).saturating_sub(arrived_count + told);
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

/// What a guest sent and a sink received.
pub(super) fn of_guest(
    seen: &Snapshot,
    received: &Received,
    size_bytes: usize,
    warm_up: u64,
    lost_count: u64,
) -> Measurement {
    let told = &seen.report;
    let sent_count = told[report::TX_FRAMES];
    let mut m = Measurement { wall_ns: seen.at_ns, ..Measurement::default() };
    let lost = [
        ("refused_by_back_end_count", seen.work.refused_count),
        ("lost_on_wire_count", lost_count),
    ];
    delivered(&mut m, received, size_bytes, sent_count, warm_up, lost);
    guest_figures(&mut m, seen, sent_count, received.call_count);
    m
}

/// What the guest and its device cost, and did, for each of `packet_count` frames; `call_count`
/// system calls were made at the other end.
fn guest_figures(m: &mut Measurement, seen: &Snapshot, packet_count: u64, call_count: u64) {
    let told = &seen.report;
    m.costs.insert("vcpu".into(), cost(&seen.vcpu));
    // Another thread's clock, which has no split.
    let device = Cost { system_ns: seen.device_cpu_ns, ..Cost::default() };
    m.costs.insert("device".into(), device);
    let (exits, work) = (&seen.exits, &seen.work);
    let vcpu_ns = seen.vcpu.user_ns + seen.vcpu.system_ns;
    let calls = exits.count() + work.call_count() + call_count;
    // Both clocks span the measured part.
    let scale = seen.at_ns as f64 / told[report::TOTAL_TICKS].max(1) as f64;
    let guest_ns = |ticks: usize| (told[ticks] as f64 * scale) as u64;
    let each = [
        ("wall_ns_per_packet", seen.at_ns),
        ("vcpu_ns_per_packet", vcpu_ns),
        ("device_ns_per_packet", seen.device_cpu_ns),
        ("handling_ns_per_packet", seen.handling_ns),
        ("exits_per_packet", exits.count()),
        ("coalesced_per_packet", exits.coalesced_count),
        ("doorbells_per_packet", work.doorbell_count),
        ("interrupts_per_packet", told[report::INTERRUPTS]),
        ("pic_accesses_per_packet", told[report::PIC_ACCESSES]),
        ("halts_per_packet", told[report::HALTS]),
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
    let mut figure = |name: &str, value: f64| {
        if value.is_finite() {
            m.figures.insert(name.to_owned(), value);
        }
    };
    for (name, amount) in each {
        figure(name, amount as f64 / packet_count as f64);
    }
    if work.doorbell_wake_count > 0 {
        figure("frames_per_doorbell", packet_count as f64 / work.doorbell_wake_count as f64);
    }
    figure("frames_per_pass", packet_count as f64 / seen.lance.tx_pass_with_frames_count as f64);
    let share = told[report::IDLE_TICKS] as f64 / told[report::TOTAL_TICKS].max(1) as f64;
    figure("guest_share_idle", share);
    m.counters.extend(counters(seen));
}

/// What `passed` at the host in `frame_count` frames, and what that cost there.
fn stream(wall_ns: u64, passed: &Passed, frame_count: u64) -> Measurement {
    let throughput = Throughput {
        interval_ns: passed.wall_ns,
        received_count: frame_count,
        payload_bytes: passed.bytes,
    };
    let mut m = Measurement { wall_ns, throughput: Some(throughput), ..Measurement::default() };
    m.costs.insert("host".into(), cost(&passed.usage));
    m
}

/// What a stream cost a guest; its packets are the frames that carry it, either way.
pub(super) fn of_stream(seen: &Snapshot, passed: &Passed) -> Measurement {
    let lance = &seen.lance;
    let frame_count = lance.tx_frame_count + lance.rx_frame_count;
    let mut m = stream(seen.at_ns, passed, frame_count);
    guest_figures(&mut m, seen, frame_count, passed.call_count);
    m
}

/// Every count of a run, by name.
fn counters(seen: &Snapshot) -> Vec<(String, u64)> {
    let (exits, work, lance) = (&seen.exits, &seen.work, &seen.lance);
    let told = &seen.report;
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
        ("moderated_count", work.moderated_count),
        ("irq_raised_count", work.interrupt_count),
        ("irq_call_count", work.interrupt_call_count),
        ("wait_call_count", work.wait_call_count),
        ("event_call_count", work.event_call_count),
        ("back_end_call_count", work.backend_call_count),
        ("device_frame_count", lance.tx_frame_count),
        ("device_pass_count", lance.tx_pass_count),
        ("device_pass_with_frames_count", lance.tx_pass_with_frames_count),
        ("device_rx_frame_count", lance.rx_frame_count),
        ("device_rx_missed_count", lance.rx_missed_count),
        ("device_dropped_count", lance.tx_dropped_count + lance.tx_torn_count),
        ("guest_interrupt_count", told[report::INTERRUPTS]),
        ("guest_port_access_count", told[report::PORT_ACCESSES]),
        ("guest_pic_access_count", told[report::PIC_ACCESSES]),
        ("guest_halt_count", told[report::HALTS]),
        ("guest_ring_full_count", told[report::TX_FULL]),
        ("guest_error_count", told[report::ERRORS]),
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

/// Switches that were on and that nothing came of.
pub(super) fn not_effective(switches: &Switches, seen: &Snapshot) -> Vec<NotEffective> {
    // A device that looks by itself is told nothing: what tells it has no part.
    let told = !switches.own_polling;
    let rules = [
        (
            "rap-in-kernel",
            switches.rap_in_kernel && seen.exits.coalesced_count == 0,
            "the kernel recorded no write of the address register",
        ),
        (
            "tdmd-doorbell",
            switches.tdmd_doorbell && told && seen.work.doorbell_count == 0,
            "not one transmit demand came as a doorbell",
        ),
        (
            "send-combining",
            switches.send_combining && told && seen.work.combined_count == 0,
            "no frame waited for another: they came more than a tick apart, or together anyway",
        ),
        (
            "combine-more",
            switches.combine_more && told && seen.lance.tx_pass_frames_max <= COMBINE_FRAMES,
            "never did more frames go together than send-combining lets",
        ),
        (
            "int-moderation",
            switches.int_moderation
                && seen.work.moderated_count == 0
                && !switches.tx_int_mask
                && seen.lance.tx_frame_count > 0,
            "no interrupt was put off: each told of a frame received, too",
        ),
    ];
    rules
        .into_iter()
        .filter(|(_, is_so, _)| *is_so)
        .map(|(switch, _, why)| NotEffective { switch: switch.into(), why: why.into() })
        .collect()
}

/// What a guest on QEMU's device sent and a sink received.
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

/// What a stream cost a guest on QEMU's device.
pub(super) fn of_qemu_stream(ran: &qemu::Ran, passed: &Passed) -> Measurement {
    let frame_count = ran.report[report::TX_FRAMES] + ran.report[report::RX_FRAMES];
    let mut m = stream(ran.wall_ns, passed, frame_count);
    qemu_figures(&mut m, ran, frame_count);
    m
}

/// QEMU's threads, and what its guest counted. Its exits nobody counts; translated code has none.
fn qemu_figures(m: &mut Measurement, ran: &qemu::Ran, packet_count: u64) {
    let told = &ran.report;
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
            ("interrupts_per_packet", told[report::INTERRUPTS]),
            ("pic_accesses_per_packet", told[report::PIC_ACCESSES]),
            ("port_accesses_per_packet", told[report::PORT_ACCESSES]),
            ("halts_per_packet", told[report::HALTS]),
        ];
        let each = each.map(|(name, n)| (name.to_owned(), n as f64 / packet_count as f64));
        m.figures.extend(each);
    }
    let share = told[report::IDLE_TICKS] as f64 / told[report::TOTAL_TICKS].max(1) as f64;
    m.figures.insert("guest_share_idle".into(), share);
    let counts = [
        ("guest_interrupt_count", told[report::INTERRUPTS]),
        ("guest_port_access_count", told[report::PORT_ACCESSES]),
        ("guest_ring_full_count", told[report::TX_FULL]),
        ("guest_error_count", told[report::ERRORS]),
    ];
    m.counters.extend(counts.map(|(name, count)| (name.to_owned(), count)));
}

/// What a native loop sent and a sink received.
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
    // What the guest's processor does, the loop does.
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
