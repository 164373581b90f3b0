//! Switches that had no effect in the measured part, by its counts.

use model::{Arm, NotEffective};
use vmm::{COMBINE_FRAMES, MODERATE_FRAMES, Snapshot};

use crate::switches::Switch;

/// Frames to one event from which on its gain or price is no part of a frame's any more.
const RARE: u64 = 1000;

/// Switches of an arm that had no effect in the measured part, with the counts that show it.
///
/// A device that polls needs no demand, so the switches that make demands cheaper are not judged then;
/// nor is moderation while the guest masks the interrupt that it would delay. `flush-at-exit` is judged then, too:
/// what such a guest demands after a pause may wait.
pub(crate) fn not_effective(arm: &Arm, seen: &Snapshot) -> Vec<NotEffective> {
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
    let why = if arm.has(Switch::VirtioNet) {
        "a virtio-net card has no address register".into()
    } else {
        format!("the kernel recorded no write of the address register; {sent} frames were sent")
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
            "none of {interrupts} interrupts was delayed: each told of a received frame, or of {MODERATE_FRAMES} or \
             more sent at once; {sent} frames were sent"
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
        work.exit_flushed_frame_count == 0
            || work.exit_flushed_frame_count.saturating_mul(RARE) < sent,
        format!(
            "of {sent} frames sent {} waited for others, and exits of the guest sent {}: none, or fewer than one in {RARE}",
            work.combined_count, work.exit_flushed_frame_count
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn flush_at_exit_that_sends_no_frame_or_few_is_not_effective_with_polling_too() {
        judges(
            Switch::FlushAtExit,
            "of 1000 frames sent 700 waited for others, and exits of the guest sent 0",
            |seen| seen.work.combined_count = 700,
            |seen| seen.work.exit_flushed_frame_count = 1,
        );
        let polled = Arm::with([Switch::FlushAtExit, Switch::OwnPolling]);
        let mut seen = Snapshot::default();
        (seen.nic.tx_frame_count, seen.work.polled_frame_count) = (141_456, 141_000);
        let found = |seen: &Snapshot| {
            let found = not_effective(&polled, seen);
            found.into_iter().map(|one| one.switch.to_string()).collect::<Vec<_>>()
        };
        seen.work.exit_flushed_frame_count = 117;
        assert_eq!(found(&seen), ["flush-at-exit"]);
        seen.work.exit_flushed_frame_count = 142;
        assert_eq!(found(&seen), [""; 0]);
    }

    #[test]
    fn event_idx_that_spares_no_notification_is_not_effective() {
        judges(
            Switch::EventIdx,
            "1000 demands and 1100 interrupts for 1000 frames sent and 100 received",
            |seen| (seen.exits.demand_count, seen.work.interrupt_count) = (1000, 1100),
            |seen| (seen.exits.demand_count, seen.work.interrupt_count) = (1000, 1099),
        );
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

    /// Sets the interrupts that were raised, and the calls that they took.
    fn raised(interrupts: u64, calls: u64) -> impl FnOnce(&mut Snapshot) {
        move |seen| {
            seen.work.interrupt_count = interrupts;
            seen.work.interrupt_call_count = calls;
        }
    }

    #[test]
    fn irq_fd_without_interrupts_or_with_two_calls_each_is_not_effective() {
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
