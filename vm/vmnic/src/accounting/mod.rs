//! Measurement of a trial from the reports of guest, monitor and sink.

mod effects;
mod exit_book;
mod guest;
mod qemu;

use guest_pages::report;
use lab::cost_of;
use model::{Delivery, Measurement, Throughput, total};

use super::host_stream::Passed;
use super::native::Ran;
use super::ping::Pinged;
use super::sink::SinkReceived;

pub(super) use effects::not_effective;
pub(super) use guest::{guest_echoes, guest_frames, guest_stream};
pub(super) use qemu::{qemu_echoes, qemu_frames, qemu_stream};

/// Records delivery and throughput of one direction: `sent_count` measured frames after `warm_up`
/// others. Frames in `lost` may belong to either.
fn delivered(
    m: &mut Measurement,
    received: &SinkReceived,
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
    m.costs.insert("sink".into(), cost_of(&received.usage));
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
    m.costs.insert("host".into(), cost_of(&passed.usage));
    m
}

/// Round trips of the echoes. The guest does not report how many reached it.
fn echoes(wall_ns: u64, pinged: &Pinged) -> Measurement {
    let mut m = Measurement { wall_ns, ..Measurement::default() };
    let (sent_count, received_count) = (pinged.sent_count, pinged.rtt.len());
    m.enter_round_trips(Delivery { sent_count, received_count, ..Delivery::default() });
    m.segments.insert("rtt".into(), pinged.rtt.clone());
    m.costs.insert("host".into(), cost_of(&pinged.usage));
    m
}

/// Adds the bytes of the measured part that the guest digested: none in a judged trial.
fn add_digested(m: &mut Measurement, page: &[u64; report::LEN]) {
    let is_digested = page[report::DIGEST..report::DIGEST + 4].iter().any(|&word| word != 0);
    let digested_bytes = if is_digested { page[report::STREAM_BYTES] } else { 0 };
    m.counters.insert("digested_bytes".into(), digested_bytes);
}

/// Measurement of a native loop that sends to a sink.
pub(super) fn native_frames(
    ran: &Ran,
    received: &SinkReceived,
    size_bytes: usize,
    lost_count: u64,
    refused_count: u64,
) -> Measurement {
    let mut m = Measurement { wall_ns: ran.wall_ns, ..Measurement::default() };
    let lost = [("refused_by_back_end_count", refused_count), ("lost_on_wire_count", lost_count)];
    delivered(&mut m, received, size_bytes, ran.sent_count, 0, lost);
    // The loop does the work of the vCPU.
    m.costs.insert("vcpu".into(), cost_of(&ran.usage));
    if ran.sent_count > 0 {
        for (name, amount) in [
            ("vcpu_ns_per_packet", ran.usage.cpu_ns()),
            ("syscalls_per_packet", ran.call_count + received.call_count),
        ] {
            m.figures.insert(name.into(), amount as f64 / ran.sent_count as f64);
        }
    }
    let share = ran.idle_ns as f64 / ran.wall_ns.max(1) as f64;
    m.figures.insert("guest_share_idle".into(), share);
    m
}
