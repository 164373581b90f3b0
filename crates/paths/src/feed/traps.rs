//! Settings that are known to spoil a receiver, found before they puzzle anybody.

use model::{Arm, Trap};

/// Traps that an arm goes into on this host.
pub(super) fn of(arm: &Arm, cpus: usize) -> Vec<Trap> {
    let mut traps = Vec::new();
    let mut found = |what: String, advice: &str| {
        traps.push(Trap { what, advice: advice.to_owned() });
    };
    let real_time = arm.has("spin") && arm.has("fifo");
    if let Some((runtime_us, period_us)) = io::sched::real_time_share_us().filter(|_| real_time) {
        found(
            format!(
                "a spinner under SCHED_FIFO loses its CPU for {} ms in each {} ms \
                 (sched_rt_runtime_us is {runtime_us}), or to the fair server when another task \
                 waits there: quotes queue up meanwhile",
                (period_us - runtime_us) / 1000,
                period_us / 1000
            ),
            "use fifo with a receiver that sleeps, or spin without fifo on an isolated CPU; on a \
             host of your own, sysctl kernel.sched_rt_runtime_us=-1",
        );
    }
    if arm.has("spin") && !arm.has("pin") && cpus > 1 {
        found(
            "a spinner that is not pinned is fast or slow by where the scheduler puts it".into(),
            "read spin together with pin",
        );
    }
    if arm.has("spin") && arm.has("pin") && arm.has("irq-affinity") {
        found(
            "the receiver spins on the CPU that does the kernel's receive work: they take turns"
                .into(),
            "with irq-affinity let the receiver sleep, or steer to a CPU that shares its cache",
        );
    }
    traps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(ids: &[&str]) -> Arm {
        Arm::variant("x", ids.iter().map(|s| (*s).to_owned()).collect())
    }

    #[test]
    fn a_spinner_without_a_cpu_of_its_own_is_warned_of() {
        assert!(of(&arm(&["spin"]), 2)[0].what.contains("not pinned"));
        assert!(of(&arm(&["spin", "pin"]), 2).is_empty());
        assert!(of(&arm(&["pin", "quiet"]), 2).is_empty());
    }

    #[test]
    fn a_real_time_spinner_is_told_what_the_kernel_takes() {
        let traps = of(&arm(&["spin", "pin", "fifo"]), 2);
        // Where real-time tasks may run all the time there is nothing to warn of.
        assert_eq!(traps.is_empty(), io::sched::real_time_share_us().is_none());
    }
}
