//! Where the guest was left, and what that cost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sys::rusage::ThreadUsage;

use crate::counts::counts;
use crate::lance;

/// Sum of counts that a guest drives; the maximum if it is larger.
fn total(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// Exits to this process by what was accessed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exits {
    /// Reads of the address register.
    pub rap_read_count: u64,
    /// Writes of the address register that left the guest.
    pub rap_write_count: u64,
    /// Reads of the data register, by CSR.
    #[serde(with = "by_csr")]
    pub csr_read_counts: [u64; 128],
    /// Writes of the data register, by CSR.
    #[serde(with = "by_csr")]
    pub csr_write_counts: [u64; 128],
    /// Transmit demands: of the writes of CSR0, or of the registers of a virtio card.
    pub demand_count: u64,
    /// Other registers of a Lance: bus control, reset, address PROM; all registers of a virtio card.
    pub other_device_count: u64,
    /// PCI configuration.
    pub configuration_count: u64,
    /// The guest's signals.
    pub signal_count: u64,
    /// Ports and addresses that nothing answers.
    pub stray_count: u64,
    /// Halts that came to this process.
    pub halt_count: u64,
    /// Signals and requests for an exit.
    pub interrupted_count: u64,
    /// Writes of the address register that the kernel collected.
    pub coalesced_count: u64,
}

/// Counts of all CSRs, as a list.
mod by_csr {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(counts: &[u64; 128], to: S) -> Result<S::Ok, S::Error> {
        counts.as_slice().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u64; 128], D::Error> {
        let counts = Vec::<u64>::deserialize(from)?;
        counts.try_into().map_err(|_| D::Error::custom("not 128 counts"))
    }
}

impl Default for Exits {
    fn default() -> Self {
        Exits {
            rap_read_count: 0,
            rap_write_count: 0,
            csr_read_counts: [0; 128],
            csr_write_counts: [0; 128],
            demand_count: 0,
            other_device_count: 0,
            configuration_count: 0,
            signal_count: 0,
            stray_count: 0,
            halt_count: 0,
            interrupted_count: 0,
            coalesced_count: 0,
        }
    }
}

impl Exits {
    /// Exits for the device's ports.
    pub fn device_count(&self) -> u64 {
        let csrs = self.csr_read_counts.iter().chain(&self.csr_write_counts).copied();
        total(csrs.chain([self.rap_read_count, self.rap_write_count, self.other_device_count]))
    }

    /// All exits to this process.
    pub fn count(&self) -> u64 {
        total([
            self.device_count(),
            self.configuration_count,
            self.signal_count,
            self.stray_count,
            self.halt_count,
            self.interrupted_count,
        ])
    }

    fn since(&self, earlier: &Exits) -> Exits {
        Exits {
            rap_read_count: self.rap_read_count.saturating_sub(earlier.rap_read_count),
            rap_write_count: self.rap_write_count.saturating_sub(earlier.rap_write_count),
            csr_read_counts: differences(self.csr_read_counts, earlier.csr_read_counts),
            csr_write_counts: differences(self.csr_write_counts, earlier.csr_write_counts),
            demand_count: self.demand_count.saturating_sub(earlier.demand_count),
            other_device_count: self.other_device_count.saturating_sub(earlier.other_device_count),
            configuration_count: self
                .configuration_count
                .saturating_sub(earlier.configuration_count),
            signal_count: self.signal_count.saturating_sub(earlier.signal_count),
            stray_count: self.stray_count.saturating_sub(earlier.stray_count),
            halt_count: self.halt_count.saturating_sub(earlier.halt_count),
            interrupted_count: self.interrupted_count.saturating_sub(earlier.interrupted_count),
            coalesced_count: self.coalesced_count.saturating_sub(earlier.coalesced_count),
        }
    }
}

fn differences(now: [u64; 128], then: [u64; 128]) -> [u64; 128] {
    std::array::from_fn(|i| now[i].saturating_sub(then[i]))
}

counts! {
    /// Counters of the device's side of the monitor.
    pub struct DeviceWork {
        /// Transmit demands that came as a doorbell.
        pub doorbell_count: u64,
        /// Wake-ups of the device's thread by doorbells.
        pub doorbell_wake_count: u64,
        /// Times that the interrupt line was raised.
        pub interrupt_count: u64,
        /// System calls that raised or lowered it.
        pub interrupt_call_count: u64,
        /// System calls of the device's thread that waited.
        pub wait_call_count: u64,
        /// System calls that wake the other thread or read a doorbell.
        pub event_call_count: u64,
        /// System calls of the back end that moved frames or found none.
        pub backend_call_count: u64,
        /// Frames that the back end took and the kernel refused.
        pub refused_count: u64,
        /// Demands that were put off to go with others.
        pub combined_count: u64,
        /// Exits of the guest that sent what was put off.
        pub exit_flush_count: u64,
        /// Frames that those exits sent.
        pub exit_flushed_frame_count: u64,
        /// Frames sent whose interrupt was delayed.
        pub moderated_count: u64,
        /// Frames sent that the device found by reading its ring, without a demand.
        pub polled_frame_count: u64,
        /// Frames sent while the guest masked the transmit interrupt.
        pub masked_frame_count: u64,
        /// Frames sent from a packed queue.
        pub packed_frame_count: u64,
        /// Frames received without a poll() before them, because shared memory showed them.
        pub received_unpolled_count: u64,
        /// Wall time that the vCPU's thread spent emulating the device, nanoseconds, without the next two.
        pub emulate_ns: u64,
        /// Wall time that it spent in the back end.
        pub transmit_ns: u64,
        /// Wall time that it spent raising and lowering the interrupt line.
        pub notify_ns: u64,
        /// Frames that the vCPU's thread sent; all of them are in `transmit_ns`.
        pub vcpu_sent_frame_count: u64,
        /// Looks of the device's thread at the ring that found frames.
        pub thread_pass_count: u64,
        /// Frames of the looks that were timed: the first one and each eighth.
        pub device_timed_frame_count: u64,
        /// Wall time that the device's thread spent in the back end for the timed frames.
        pub device_transmit_ns: u64,
        /// Wall time that the device's thread spent receiving frames and passing them to the device.
        pub receive_ns: u64,
    }
}

impl DeviceWork {
    /// System calls of both threads beside KVM_RUN, of which there is one an exit.
    pub fn call_count(&self) -> u64 {
        total([
            self.interrupt_call_count,
            self.wait_call_count,
            self.event_call_count,
            self.backend_call_count,
        ])
    }
}

/// All counters at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// CLOCK_MONOTONIC, nanoseconds; of a difference its length.
    pub at_ns: u64,
    /// Of a difference: when it began, on the same clock.
    pub began_ns: u64,
    /// Exits by reason.
    pub exits: Exits,
    /// The device's side.
    pub work: DeviceWork,
    /// The device itself; its maxima are since the start.
    pub nic: lance::Counters,
    /// CPU time and switches of the processor's thread, inside the guest and out.
    pub vcpu: ThreadUsage,
    /// CPU time of the device's thread, nanoseconds.
    pub device_cpu_ns: u64,
    /// Time that the processor's thread spent handling exits, nanoseconds.
    pub handling_ns: u64,
    /// The kernel's counters of the processor.
    pub kernel: BTreeMap<String, u64>,
    /// The guest's report page, by [`guest_pages::report`].
    pub report: [u64; guest_pages::report::LEN],
}

impl Snapshot {
    /// Difference between `earlier` and `self`. The report page is copied as it is: the guest clears
    /// it when the measured part begins.
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        let nic = &self.nic;
        Snapshot {
            at_ns: self.at_ns.saturating_sub(earlier.at_ns),
            began_ns: earlier.at_ns,
            exits: self.exits.since(&earlier.exits),
            work: self.work.since(&earlier.work),
            nic: lance::Counters {
                tx_pass_frames_max: nic.tx_pass_frames_max,
                ..nic.since(&earlier.nic)
            },
            vcpu: self.vcpu.since(&earlier.vcpu),
            device_cpu_ns: self.device_cpu_ns.saturating_sub(earlier.device_cpu_ns),
            handling_ns: self.handling_ns.saturating_sub(earlier.handling_ns),
            kernel: self
                .kernel
                .iter()
                .map(|(name, &value)| {
                    let before = earlier.kernel.get(name).copied().unwrap_or(0);
                    (name.clone(), value.saturating_sub(before))
                })
                .collect(),
            report: self.report,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_the_largest_size_neither_overflow_nor_underflow() {
        let exits = Exits {
            rap_read_count: u64::MAX,
            csr_read_counts: [u64::MAX; 128],
            stray_count: u64::MAX,
            ..Exits::default()
        };
        let work =
            DeviceWork { wait_call_count: u64::MAX, event_call_count: 1, ..DeviceWork::default() };
        assert_eq!((exits.count(), work.call_count()), (u64::MAX, u64::MAX));
        let late = Snapshot { exits, work, at_ns: u64::MAX, ..Snapshot::default() };
        // A snapshot before an earlier one counts nothing.
        let nothing = Snapshot::default().since(&late);
        assert_eq!((nothing.exits.count(), nothing.work.call_count(), nothing.at_ns), (0, 0, 0));
    }
}
