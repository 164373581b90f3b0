use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::BorrowedFd;

use guest_pages::report;
use vmm::lance::Sent;
use vmm::{
    COMBINE_FRAMES, COMBINE_MORE_FRAMES, COMBINE_TICK_US, GuestEnd, GuestOutcome, GuestTask,
    MODERATE_FRAMES, Receiver, Sender, Silence, Snapshot, Switches,
};

use crate::guest;

/// Checks frames against what the guest is to send; a byte in the pipe says of each if it was right.
struct CheckingSender {
    next: u64,
    size_bytes: usize,
    verdicts: PipeWriter,
}

/// A frame as the guest is to send it.
const RIGHT: u8 = 1;

impl Sender for CheckingSender {
    fn send(&mut self, frame: &[u8]) -> Sent {
        let right = frame.len() == self.size_bytes
            && frame[..6] == [0xff; 6]
            && frame[6..12] == guest::MAC
            && frame[14..22] == self.next.to_be_bytes()
            && (22..frame.len()).all(|i| frame[i] == (i * 7 + i / 256) as u8);
        self.next += 1;
        self.verdicts.write_all(&[if right { RIGHT } else { 0 }]).unwrap();
        Sent::Taken
    }

    fn call_count(&self) -> u64 {
        0
    }
}

const COUNT: u64 = 300;

/// Runs in which an effect that depends on the order of two threads must appear once.
const RUNS_MAX: usize = 50;

/// A wire that has a frame for the guest whenever the device asks.
struct Flood;

impl Receiver for Flood {
    fn receive(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        into[..60].fill(0);
        into[..6].copy_from_slice(&guest::MAC);
        Ok(Some(60))
    }

    fn looks(&self) -> Option<bool> {
        Some(true)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn call_count(&self) -> u64 {
        0
    }
}

fn per_frame(count: u64) -> f64 {
    count as f64 / COUNT as f64
}

fn send(switches: Switches, size_bytes: u64) -> Option<(GuestOutcome, Snapshot)> {
    send_beside(switches, size_bytes, Silence)
}

/// As [`send`], with frames from `receiver` meanwhile.
fn send_beside(
    switches: Switches,
    size_bytes: u64,
    receiver: impl Receiver + 'static,
) -> Option<(GuestOutcome, Snapshot)> {
    let (mut verdicts, writer) = io::pipe().unwrap();
    let outcome = guest::run(GuestTask::send(size_bytes, COUNT), switches, || {
        // The monitor closes what it inherits.
        let verdicts = writer.try_clone()?;
        let sender = CheckingSender { next: 0, size_bytes: size_bytes as usize, verdicts };
        guest::halves(sender, receiver)
    })?;
    assert_eq!(outcome.end, GuestEnd::Done, "{switches:?} {:?}", outcome.total);
    let measured = outcome.measured.clone().expect("the guest marks its measured part");
    assert_eq!(measured.nic.tx_frame_count, COUNT, "{switches:?}");
    drop(writer);
    let mut checked = Vec::new();
    verdicts.read_to_end(&mut checked).unwrap();
    let wrong_count = checked.iter().filter(|&&verdict| verdict != RIGHT).count();
    assert_eq!((checked.len() as u64, wrong_count), (COUNT + COUNT / 10, 0), "{switches:?}");
    Some((outcome, measured))
}

#[test]
fn baseline_leaves_the_guest_twelve_times_a_frame_and_interrupts_it_once() {
    let Some((_, measured)) = send(Switches::default(), 1514) else { return };
    let exits = &measured.exits;
    assert!((10.0..=12.5).contains(&per_frame(exits.device_count())), "{exits:?}");
    assert!((0.9..=1.1).contains(&per_frame(measured.report[report::INTERRUPTS])));
    assert_eq!(exits.demand_count, COUNT);
    // The guest counted the same accesses.
    let accesses = measured.report[report::PORT_ACCESSES];
    assert!(accesses.abs_diff(exits.device_count()) <= 12, "{accesses} {exits:?}");
}

#[test]
fn every_register_access_of_a_virtio_card_is_an_exit_to_the_process() {
    let switches = Switches { virtio_net: true, ..Switches::default() };
    let Some((_, measured)) = send(switches, 1514) else { return };
    let exits = &measured.exits;
    assert!(exits.demand_count > 0, "{exits:?}");
    let accesses = measured.report[report::PORT_ACCESSES];
    assert!(accesses.abs_diff(exits.device_count()) <= 12, "{accesses} {exits:?}");
}

#[test]
fn kernel_agrees_about_the_exits_within_a_hundredth() {
    let Some((_, measured)) = send(Switches::default(), 60) else { return };
    // Where the guest's ports are emulated, they are counted as instructions. Either count has
    // the accesses that the kernel answers itself: those of the PIC.
    let counts =
        ["io_exits", "insn_emulation"].iter().filter_map(|name| measured.kernel.get(*name));
    let Some(&kernel) = counts.into_iter().find(|count| **count > 0) else {
        return testkit::skip("kernel", "KVM counts no exits here");
    };
    let ours = measured.exits.count() + measured.report[report::PIC_ACCESSES];
    assert!(ours.abs_diff(kernel) * 100 <= kernel, "{ours} here, {kernel} there");
}

#[test]
fn rap_in_kernel_takes_the_writes_of_the_address_register_off() {
    let switches = Switches { rap_in_kernel: true, ..Switches::default() };
    let Some((_, measured)) = send(switches, 60) else { return };
    assert_eq!(measured.exits.rap_write_count, 0);
    assert!((5.0..=6.5).contains(&per_frame(measured.exits.coalesced_count)), "{measured:?}");
    assert!((5.0..=6.5).contains(&per_frame(measured.exits.device_count())), "{measured:?}");
}

#[test]
fn tdmd_doorbell_takes_the_demand_off() {
    let switches = Switches { rap_in_kernel: true, tdmd_doorbell: true, ..Switches::default() };
    let Some((_, measured)) = send(switches, 60) else { return };
    assert_eq!(measured.exits.demand_count, 0);
    assert!(measured.work.doorbell_count >= COUNT - COUNT / 10, "{measured:?}");
}

/// True if a guest is so slow here that a frame takes longer than the tick for which others are waited for: nothing is combined
/// then. Seen where the ports of a nested guest are emulated instruction by instruction.
fn is_slower_than_tick(measured: &Snapshot) -> bool {
    let frame_us = measured.at_ns / 1_000 / COUNT;
    if frame_us > COMBINE_TICK_US {
        testkit::skip(
            "kernel",
            format!("a frame takes {frame_us} us here, a tick {COMBINE_TICK_US}"),
        );
    }
    frame_us > COMBINE_TICK_US
}

/// Ticks of the measured part, within which nothing that waits is held back twice.
fn ticks(measured: &Snapshot) -> u64 {
    measured.at_ns / 1_000 / COMBINE_TICK_US
}

#[test]
fn frames_are_timed_on_the_thread_that_sends_them() {
    let Some((_, measured)) = send(Switches::default(), 1514) else { return };
    let work = &measured.work;
    // The chip's own timer may find a frame before its demand comes.
    assert!(work.vcpu_sent_frame_count >= COUNT - COUNT / 10, "{work:?}");
    assert!(work.thread_pass_count <= COUNT - work.vcpu_sent_frame_count, "{work:?}");
    // Each send of this wire writes to a pipe, which takes longer than a reading of the clock.
    assert!(work.transmit_ns / COUNT > 100, "{work:?}");

    let switches = Switches { rap_in_kernel: true, tdmd_doorbell: true, ..Switches::default() };
    let Some((outcome, measured)) = send(switches, 1514) else { return };
    let (work, all) = (&measured.work, &outcome.total.work);
    assert!(work.vcpu_sent_frame_count < COUNT / 10, "{work:?}");
    assert!(all.device_timed_frame_count > 0 && all.thread_pass_count > 0, "{all:?}");
    // The first look is timed, and each eighth after it; a look finds a ring full of frames at most.
    assert!(all.device_timed_frame_count < COUNT + COUNT / 10, "{all:?}");
    assert!(all.device_transmit_ns / all.device_timed_frame_count > 100, "{all:?}");
}

#[test]
fn send_combining_lets_frames_go_together() {
    for tdmd_doorbell in [false, true] {
        let switches = Switches { send_combining: true, tdmd_doorbell, ..Switches::default() };
        let Some((_, measured)) = send(switches, 60) else { return };
        if is_slower_than_tick(&measured) {
            return;
        }
        assert!(measured.work.combined_count > 0, "{measured:?}");
        // A pass of fewer than three frames takes a tick.
        let passes = measured.nic.tx_pass_with_frames_count;
        let passes_max = COUNT / COMBINE_FRAMES + ticks(&measured) + 2;
        assert!(passes <= passes_max, "{passes} of {passes_max}: {measured:?}");
        // Combined frames share an interrupt; one may be from before the measured part.
        assert!(measured.work.interrupt_count <= passes + 1, "{measured:?}");
        assert!(measured.report[report::INTERRUPTS] <= passes + 1, "{measured:?}");
    }
}

#[test]
fn flush_at_exit_sends_what_waits_when_the_guest_is_left_for_another_cause() {
    let combining = Switches { combine_more: true, shared_ring: false, ..Switches::SOURCE };
    let Some((_, without)) = send(combining, 60) else { return };
    assert_eq!(without.work.exit_flush_count, 0);
    // A frame must wait at the moment when the guest is left. By a doorbell a fast guest has filled its ring
    // before the other thread looks at it, and nothing waits; without one each demand is counted at once.
    // Arriving frames interrupt the guest in between.
    let flushing = Switches { tdmd_doorbell: false, flush_at_exit: true, ..combining };
    let mut flushes = (0..RUNS_MAX).map_while(|_| send_beside(flushing, 60, Flood));
    assert!(flushes.any(|(_, with)| with.work.exit_flush_count > 0), "in none of {RUNS_MAX} runs");
    // A demand that leaves the guest is no such cause: with the address recorded, nothing else comes
    // between two of them but interrupts.
    let demands = Switches { tdmd_doorbell: false, flush_at_exit: true, ..combining };
    let Some((_, demands)) = send(demands, 60) else { return };
    assert!(demands.work.combined_count > 0, "{demands:?}");
}

#[test]
fn combine_more_lets_more_than_three_go_together() {
    let combining = Switches { rap_in_kernel: true, send_combining: true, ..Switches::default() };
    let Some((_, three)) = send(combining, 60) else { return };
    assert!(three.nic.tx_pass_frames_max <= COMBINE_FRAMES, "{three:?}");
    let switches = Switches { combine_more: true, ..combining };
    let Some((_, more)) = send(switches, 60) else { return };
    if is_slower_than_tick(&more) {
        return;
    }
    assert!(more.nic.tx_pass_frames_max > COMBINE_FRAMES, "{more:?}");
    assert!(more.nic.tx_pass_frames_max <= COMBINE_MORE_FRAMES, "{more:?}");
}

#[test]
fn int_moderation_tells_of_many_frames_at_once() {
    for tdmd_doorbell in [false, true] {
        let switches = Switches {
            rap_in_kernel: true,
            tdmd_doorbell,
            int_moderation: true,
            ..Switches::default()
        };
        let Some((_, measured)) = send(switches, 60) else { return };
        // Frames still go out in passes of their own, more of them than there are interrupts.
        let passes = measured.nic.tx_pass_with_frames_count;
        assert!(passes > measured.report[report::INTERRUPTS], "{measured:?}");
        assert!(measured.work.moderated_count > 0, "{measured:?}");
        // One that tells of fewer than sixteen frames has waited for a tick.
        let interrupts_max = COUNT / MODERATE_FRAMES + ticks(&measured) + 2;
        assert!(measured.report[report::INTERRUPTS] <= interrupts_max, "{measured:?}");
    }
}

#[test]
fn irq_fd_takes_no_call_to_lower_the_line() {
    let Some((_, measured)) = send(Switches::default(), 60) else { return };
    assert!(measured.work.interrupt_call_count > measured.work.interrupt_count);
    let switches = Switches { irq_fd: true, ..Switches::default() };
    let Some((outcome, measured)) = send(switches, 60) else { return };
    let all = outcome.total.work;
    assert!(all.interrupt_count > 0, "{all:?}");
    assert_eq!(all.interrupt_call_count, all.interrupt_count);
    // The kernel injects it from a worker of its own: one may stand for many frames, even for all of
    // the measured part, and one raised before that part may come within it.
    let taken = measured.report[report::INTERRUPTS];
    let raised = measured.work.interrupt_count;
    assert!(taken <= raised + 1, "{taken} of {raised}: {measured:?}");
}

#[test]
fn tx_int_mask_leaves_few_interrupts() {
    let Some((_, measured)) = send(Switches::default(), 60) else { return };
    assert_eq!(measured.work.masked_frame_count, 0, "{measured:?}");
    let switches = Switches { tx_int_mask: true, ..Switches::default() };
    let Some((_, measured)) = send(switches, 60) else { return };
    // With the ring full the guest unmasks it, and sleeps.
    assert!(measured.work.masked_frame_count > COUNT / 2, "{measured:?}");
    assert!(per_frame(measured.report[report::INTERRUPTS]) < 0.3, "{measured:?}");
}

#[test]
fn own_polling_leaves_few_demands() {
    let Some((_, measured)) = send(Switches::default(), 60) else { return };
    assert_eq!(measured.work.polled_frame_count, 0, "{measured:?}");
    let switches = Switches { own_polling: true, tx_int_mask: true, ..Switches::default() };
    let Some((_, measured)) = send(switches, 60) else { return };
    // The guest demands after a pause of so long only.
    let pauses_max = measured.at_ns / 1_000 / guest_pages::POLL_LINGER_US + 2;
    assert!(measured.exits.demand_count <= pauses_max.min(COUNT / 2), "{measured:?}");
    assert!(measured.work.polled_frame_count > 0, "{measured:?}");
}

#[test]
fn flood_from_the_wire_does_not_stop_what_the_guest_sends() {
    for switches in [
        Switches { shared_ring: true, ..Switches::default() },
        Switches { tdmd_doorbell: true, shared_ring: true, ..Switches::default() },
        Switches {
            tdmd_doorbell: true,
            send_combining: true,
            shared_ring: true,
            ..Switches::default()
        },
        Switches { own_polling: true, shared_ring: true, ..Switches::default() },
    ] {
        let Some((outcome, _)) = send_beside(switches, 60, Flood) else { return };
        let lance = &outcome.total.nic;
        assert!(lance.rx_frame_count + lance.rx_missed_count > COUNT, "{switches:?}: {lance:?}");
    }
}

#[test]
fn every_arm_delivers_every_frame_in_order() {
    for bits in 0..128u32 {
        // Half of the combinations that matter: each pair of switches in each state.
        if bits.count_ones() % 2 == 1 {
            continue;
        }
        let on: [bool; 7] = std::array::from_fn(|bit| bits & 1 << bit != 0);
        let switches = Switches {
            rap_in_kernel: on[0],
            tdmd_doorbell: on[1],
            send_combining: on[2],
            combine_more: on[2] && on[5],
            shared_ring: false,
            int_moderation: on[6],
            own_polling: on[3],
            tx_int_mask: on[4],
            irq_fd: on[5],
            xdp_ring: false,
            flush_at_exit: on[2] && on[4],
            virtio_net: false,
            event_idx: false,
            packed_ring: false,
            guest_umem: false,
        };
        if send(switches, 200).is_none() {
            return;
        }
    }
}
