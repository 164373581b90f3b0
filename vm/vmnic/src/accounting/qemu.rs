//! Measurement of the guest on a device of QEMU.

use guest_pages::report;
use model::{Cost, Measurement, total};

use super::{add_digested, delivered, echoes, stream};
use crate::host_stream::Passed;
use crate::ping::Pinged;
use crate::qemu;
use crate::sink::SinkReceived;

/// Measurement of a guest on QEMU's device that sends to a sink.
pub(crate) fn qemu_frames(
    ran: &qemu::Ran,
    received: &SinkReceived,
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
pub(crate) fn qemu_stream(ran: &qemu::Ran, passed: &Passed) -> Measurement {
    let frame_count = total([ran.report[report::TX_FRAMES], ran.report[report::RX_FRAMES]]);
    let mut m = stream(ran.wall_ns, passed, frame_count);
    qemu_figures(&mut m, ran, frame_count);
    add_digested(&mut m, &ran.report);
    m
}

/// Measurement of echoes of a guest on QEMU's device.
pub(crate) fn qemu_echoes(ran: &qemu::Ran, pinged: &Pinged) -> Measurement {
    let mut m = echoes(pinged.wall_ns, pinged);
    let packet_count = m.packet_count.unwrap_or(0);
    qemu_figures(&mut m, ran, packet_count);
    m
}

/// Adds costs of QEMU's threads and counters of its guest. Exits are not counted; translated code has
/// none.
fn qemu_figures(m: &mut Measurement, ran: &qemu::Ran, packet_count: u64) {
    let counted = &ran.report;
    let vcpu_ns = ran.vcpu.scheduled.run_ns;
    let device_ns = ran.process_ns.saturating_sub(vcpu_ns);
    for (name, user_ns) in [("vcpu", vcpu_ns), ("device", device_ns)] {
        m.costs.insert(name.into(), Cost { user_ns, ..Cost::default() });
    }
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
