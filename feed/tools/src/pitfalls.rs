//! Pitfalls: settings that are known to degrade a receiver.

use model::Trap;

/// Configuration of a receiver.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReceiverConfig {
    pub spin: bool,
    pub pin: bool,
    pub fifo: bool,
    /// The kernel's receive work runs on the receiver's CPU.
    pub fed_on_its_cpu: bool,
}

fn trap(what: String, advice: &str) -> Trap {
    Trap { what, advice: advice.to_owned() }
}

/// Pitfalls of a receiver on this host with `cpus` CPUs.
pub fn find(running: ReceiverConfig, cpus: usize) -> Vec<Trap> {
    let ReceiverConfig { spin, pin, fifo, fed_on_its_cpu } = running;
    let mut traps = Vec::new();
    let real_time = spin && fifo;
    if let Some((runtime_us, period_us)) = sys::sched::real_time_share_us().filter(|_| real_time) {
        traps.push(trap(
            format!(
                "a spinner under SCHED_FIFO loses its CPU for {} ms in each {} ms \
                 (sched_rt_runtime_us is {runtime_us}), or to the fair server if another task \
                 waits there; quotes queue up during that time",
                (period_us - runtime_us) / 1000,
                period_us / 1000
            ),
            "use fifo without spin, or spin without fifo on an isolated CPU; on a dedicated host, \
             sysctl kernel.sched_rt_runtime_us=-1",
        ));
    }
    if spin && !pin && cpus > 1 {
        traps.push(trap(
            "the speed of a spinner that is not pinned depends on its CPU".into(),
            "combine spin with pin",
        ));
    }
    if spin && pin && fed_on_its_cpu {
        traps.push(trap(
            "the receiver spins on the CPU of the kernel's receive work; the two alternate".into(),
            "leave rps off, or sleep instead of spinning",
        ));
    }
    traps
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPINNER: ReceiverConfig =
        ReceiverConfig { spin: true, pin: false, fifo: false, fed_on_its_cpu: false };

    #[test]
    fn spinner_without_a_dedicated_cpu_is_a_pitfall() {
        assert!(find(SPINNER, 2)[0].what.contains("not pinned"));
        let pinned = ReceiverConfig { pin: true, ..SPINNER };
        assert!(find(pinned, 2).is_empty());
        assert!(find(ReceiverConfig { spin: false, ..pinned }, 2).is_empty());
        let fed = ReceiverConfig { fed_on_its_cpu: true, ..pinned };
        assert!(find(fed, 2)[0].what.contains("alternate"));
    }

    #[test]
    fn real_time_spinner_is_a_pitfall_if_throttled() {
        let traps = find(ReceiverConfig { pin: true, fifo: true, ..SPINNER }, 2);
        // Without throttling of real-time tasks there is no pitfall.
        assert_eq!(traps.is_empty(), sys::sched::real_time_share_us().is_none());
    }
}
