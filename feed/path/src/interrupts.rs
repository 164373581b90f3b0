//! Interrupts of the receiver's device during a trial, by the CPU that handles them.

use host::netns::Netns;
use host::tune::{Place, System};
use model::Measurement;

/// A device that raises interrupts.
pub(super) struct DeviceInterrupts {
    system: System,
    ifname: String,
}

/// Counts by CPU at one time.
pub(super) struct Reading(Vec<u64>);

impl DeviceInterrupts {
    /// `None` for a virtual interface, or if this process cannot read its device.
    pub(super) fn open(netns: Netns, ifname: &str) -> Option<Self> {
        let system = System::from_netns(netns, Place::default()).ok()?;
        let has_any = !system.irqs(ifname).is_empty();
        has_any.then(|| DeviceInterrupts { system, ifname: ifname.to_owned() })
    }

    /// A setting may have given the device other interrupts, so that they are listed each time.
    pub(super) fn read(&self) -> Reading {
        Reading(self.system.interrupt_counts(&self.ifname))
    }
}

impl Reading {
    /// Adds the interrupts since `before` to a trial.
    ///
    /// - `end`: name of the receiver's end in counters.
    pub(super) fn account(&self, before: &Reading, end: &str, m: &mut Measurement) {
        for (cpu, now) in self.0.iter().enumerate() {
            let count = now.saturating_sub(before.0.get(cpu).copied().unwrap_or_default());
            if count > 0 {
                m.counters.insert(format!("{end}_interrupt_cpu{cpu}_count"), count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_of_a_trial_are_counted_by_cpu_and_idle_cpus_are_left_out() {
        let mut m = Measurement::default();
        // A CPU came online, and the count of another one began anew with its interrupt.
        Reading(vec![105, 7, 3, 4]).account(&Reading(vec![100, 7, 9]), "near", &mut m);
        let counters: Vec<(&str, u64)> = m.counters.iter().map(|(name, n)| (&**name, *n)).collect();
        assert_eq!(counters, [("near_interrupt_cpu0_count", 5), ("near_interrupt_cpu3_count", 4)]);
    }
}
