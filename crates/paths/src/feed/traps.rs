//! Settings that are known to spoil a receiver, found before they puzzle anybody.

use model::Trap;

/// How a receiver runs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Running {
    /// It looks again at once instead of sleeping.
    pub(super) spin: bool,
    /// It stays on one CPU.
    pub(super) pin: bool,
    /// It has a real-time priority.
    pub(super) fifo: bool,
    /// The kernel's receive work is done on its CPU.
    pub(super) fed_on_its_cpu: bool,
}

/// Traps that a receiver goes into on this host, of so many CPUs.
pub(super) fn of(running: Running, cpus: usize) -> Vec<Trap> {
    let Running { spin, pin, fifo, fed_on_its_cpu } = running;
    let mut traps = Vec::new();
    let mut found = |what: String, advice: &str| {
        traps.push(Trap { what, advice: advice.to_owned() });
    };
    let real_time = spin && fifo;
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
    if spin && !pin && cpus > 1 {
        found(
            "a spinner that is not pinned is fast or slow by where the scheduler puts it".into(),
            "read spin together with pin",
        );
    }
    if spin && pin && fed_on_its_cpu {
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

    const SPINNER: Running = Running { spin: true, pin: false, fifo: false, fed_on_its_cpu: false };

    #[test]
    fn a_spinner_without_a_cpu_of_its_own_is_warned_of() {
        assert!(of(SPINNER, 2)[0].what.contains("not pinned"));
        let pinned = Running { pin: true, ..SPINNER };
        assert!(of(pinned, 2).is_empty());
        assert!(of(Running { spin: false, ..pinned }, 2).is_empty());
        let fed = Running { fed_on_its_cpu: true, ..pinned };
        assert!(of(fed, 2)[0].what.contains("take turns"));
    }

    #[test]
    fn a_real_time_spinner_is_told_what_the_kernel_takes() {
        let traps = of(Running { pin: true, fifo: true, ..SPINNER }, 2);
        // Where real-time tasks may run all the time there is nothing to warn of.
        assert_eq!(traps.is_empty(), io::sched::real_time_share_us().is_none());
    }
}
