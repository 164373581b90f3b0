//! State of a guest, its device and the monitor when a run failed.

use std::fmt;

use guest_pages::report;
use serde::{Deserialize, Serialize};

use super::counters::Snapshot;
use super::nic::NicState;

/// The device and what is around it, at the end of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// The card and its rings.
    pub nic: NicState,
    /// Demands that wait for others, which is `send-combining`.
    pub pending_demand_count: u64,
    /// Frames that the back end has taken and that the kernel has not.
    pub unsent_count: u64,
}

/// A condition with the counters of the run, in lines.
pub struct FailureReport<'a> {
    pub condition: &'a Condition,
    pub total: &'a Snapshot,
}

impl fmt::Display for FailureReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FailureReport { condition, total } = self;
        let Condition { nic, pending_demand_count, unsent_count } = condition;
        let (device, work, exits) = (&total.nic, &total.work, &total.exits);
        let guest = &total.report;
        writeln!(
            f,
            "  guest: stream state {} (4 is established), {} bytes of it, {} not acknowledged; {} \
             frames out, {} in, {} faulty; {} interrupts of the device, {} of the timer, {} sleeps, {} of \
             them too long, {} wake-ups lost; ring full {} times",
            guest[report::STREAM_STATE],
            guest[report::STREAM_BYTES],
            guest[report::STREAM_UNACKED_BYTES],
            guest[report::TX_FRAMES],
            guest[report::RX_FRAMES],
            guest[report::ERRORS],
            guest[report::INTERRUPTS],
            guest[report::TIMER_INTERRUPTS],
            guest[report::HALTS],
            guest[report::OVERSLEPT],
            guest[report::LOST_WAKE_UPS],
            guest[report::TX_FULL],
        )?;
        writeln!(f, "  device: {nic}")?;
        writeln!(
            f,
            "  device: {} frames sent, {} received, {} missed, {} bus errors; interrupts raised {}; \
             demands waiting {pending_demand_count}, frames with the back end {unsent_count}, \
             refused {}",
            device.tx_frame_count,
            device.rx_frame_count,
            device.rx_missed_count,
            device.bus_error_count,
            work.interrupt_count,
            work.refused_count,
        )?;
        write!(
            f,
            "  monitor: {} exits, {} doorbells, {} put off, {} sleeps of the device's thread; CPU \
             time {:.3} s of the processor's thread, {:.3} s of the device's",
            exits.count(),
            work.doorbell_count,
            work.combined_count,
            work.wait_call_count,
            total.vcpu.cpu_ns() as f64 / 1e9,
            total.device_cpu_ns as f64 / 1e9,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lance::{Lance, PlainMemory};

    #[test]
    fn what_is_told_has_the_guest_the_device_and_the_monitor() {
        let mut total = Snapshot::default();
        total.report[report::STREAM_STATE] = 4;
        total.report[report::STREAM_UNACKED_BYTES] = 131_072;
        total.work.interrupt_count = 17;
        let memory = PlainMemory::new(4096);
        let condition = Condition {
            nic: NicState::Lance(Lance::new([2, 0, 0, 0, 0, 1]).state(&memory)),
            pending_demand_count: 2,
            unsent_count: 3,
        };
        let text = FailureReport { condition: &condition, total: &total }.to_string();
        for part in [
            "stream state 4",
            "131072 not acknowledged",
            "CSR0 0004",
            "raised 17",
            "demands waiting 2",
            "with the back end 3",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
