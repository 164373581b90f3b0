//! Switches of the feed, and the engine that they configure.

use host::tune::{ScopedSettings, cpus_to_mask};
use io::{EngineKind, EngineSpec, Stamps, Wait};
use lab::End;
use marketdata::pitfalls::{self, ReceiverConfig};
use model::{Arm, Measurement, NotEffective, PathError};
use sys::sched::LockedMemory;

use super::FeedLoad;
use super::error::EndError;

/// Datagrams per call with `batch`.
const BATCH: usize = 64;
/// Receive buffer of `big-rcvbuf`, bytes.
pub(super) const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
/// Priority of `fifo`.
pub(super) const FIFO_PRIORITY: i32 = 80;

model::switches! {
    /// Switches of the feed, in the order of the ladder, whose rungs keep earlier switches on.
    ///
    /// `rps` and `fifo` harm a spinner: the first adds a hop, the second costs it its CPU for part
    /// of each second. They come last, so that no other switch is measured beside them, and `fifo`
    /// after `rps`, because it widens the intervals.
    pub enum Switch {
        Quiet {
            effect: "statistics are kept in memory; off: one line per quote to a terminal",
            by: "printing nothing",
            scope: Process,
            needs: "",
            source: "tty(4): a write to a terminal is a system call and a lock",
        },
        Spin {
            effect: "the receiver polls its socket without sleeping",
            by: "polling",
            scope: Process,
            needs: "a dedicated CPU",
            source: "recv(2), MSG_DONTWAIT",
        },
        Pin {
            effect: "the receiver stays on one CPU, other than the sender's",
            by: "a fixed CPU",
            scope: Process,
            needs: "two CPUs",
            source: "sched_setaffinity(2)",
        },
        BigRcvbuf {
            effect: "a receive buffer of 8 MiB; off: the host's default (212,992 bytes hold 256 quotes)",
            by: "a larger receive buffer",
            scope: Process,
            needs: "CAP_NET_ADMIN, or net.core.rmem_max of 8 MiB",
            source: "socket(7), SO_RCVBUFFORCE",
        },
        Batch {
            effect: "up to 64 datagrams per system call",
            by: "batching",
            scope: Process,
            needs: "",
            source: "recvmmsg(2)",
        },
        BusyPoll {
            effect: "the receiver polls the device queue instead of waiting for its interrupt",
            by: "polling the queue",
            scope: Process,
            needs: "a driver whose queues have a NAPI id",
            source: "kernel documentation, networking/napi.rst, busy polling",
        },
        LockMemory {
            effect: "no page of the receiver is paged out or faulted in during a trial",
            by: "locking memory",
            scope: Process,
            needs: "CAP_IPC_LOCK, or room in RLIMIT_MEMLOCK",
            source: "mlockall(2)",
        },
        Bypass {
            effect: "frames bypass the stack through an AF_XDP ring in shared memory",
            by: "passing the stack",
            scope: Interface,
            needs: "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON; Linux 6.1",
            source: "kernel documentation, networking/af_xdp.rst",
        },
        Rps {
            effect: "the kernel's receive work hops to the receiver's CPU by a softirq, instead of running on the sender's",
            scope: Interface,
            needs: "pin, and two CPUs",
            source: "kernel documentation, networking/scaling.rst, RPS",
        },
        Fifo {
            effect: "the receiver has real-time priority 80",
            by: "real-time priority",
            scope: Process,
            needs: "CAP_SYS_NICE",
            source: "sched(7), SCHED_FIFO",
        },
    }
}

/// Configuration of a trial. Every switch is read here, once, and nowhere else.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Config {
    /// Set by `spin`, `big-rcvbuf`, `batch`, `busy-poll` and `bypass`.
    pub(super) engine: EngineSpec,
    /// Cleared by `quiet`: one line per quote to a terminal.
    pub(super) prints: bool,
    /// CPU of the receiver, set by `pin`.
    pub(super) cpu: Option<usize>,
    /// Real-time priority of the receiver, set by `fifo`.
    pub(super) fifo: Option<i32>,
    /// CPU to which RPS hands arrivals, set by `rps`: the receiver's.
    steering: Option<usize>,
    lock_memory: bool,
}

/// Host settings of a trial, restored on drop.
pub(super) struct HostSettings {
    _interface: Option<ScopedSettings>,
    _memory: Option<LockedMemory>,
}

impl Config {
    /// - `receiver_cpu`: CPU to which `pin` moves the receiver.
    pub(super) fn new(arm: &Arm, receiver_cpu: Option<usize>) -> Self {
        let bypass = arm.has(Switch::Bypass);
        let mut engine = EngineSpec::plain(if bypass { EngineKind::Xdp } else { EngineKind::Udp });
        engine.wait = if arm.has(Switch::Spin) { Wait::Spin } else { Wait::Block };
        engine.batch = if arm.has(Switch::Batch) { BATCH } else { 1 };
        engine.busy_poll = arm.has(Switch::BusyPoll);
        engine.receive_buffer_bytes = arm.has(Switch::BigRcvbuf).then_some(RECEIVE_BUFFER_BYTES);
        // The kernel's stamp; with AF_XDP, which receives frames before it, that of the XDP program.
        engine.stamps = Stamps::Software;
        Config {
            engine,
            prints: !arm.has(Switch::Quiet),
            cpu: receiver_cpu.filter(|_| arm.has(Switch::Pin)),
            fifo: arm.has(Switch::Fifo).then_some(FIFO_PRIORITY),
            steering: receiver_cpu.filter(|_| arm.has(Switch::Rps)),
            lock_memory: arm.has(Switch::LockMemory),
        }
    }

    /// Applies the switches of the interface and of memory, until the result is dropped. Each
    /// setting of the interface is read back, so one without effect is an error.
    pub(super) fn apply(&self, receiver: &End) -> Result<HostSettings, PathError> {
        let interface = match self.steering {
            Some(cpu) => Some(receiver.set_knobs(&[("rps-cpus", &cpus_to_mask(&[cpu]))])?),
            None => None,
        };
        let locked = self.lock_memory.then(LockedMemory::hold).transpose();
        let memory = locked.map_err(|e| EndError::LockMemory(e).at("receiver"))?;
        Ok(HostSettings { _interface: interface, _memory: memory })
    }

    /// Adds modes, pitfalls and switches without effect to a measurement. The engine reports
    /// `busy-poll` and `big-rcvbuf` itself.
    ///
    /// - `end`: name of the receiver's end.
    /// - `locked_bytes`: locked memory during the trial.
    /// - `cpu_count`: CPUs of the process.
    pub(super) fn report(
        &self,
        m: &mut Measurement,
        end: &str,
        locked_bytes: u64,
        cpu_count: usize,
    ) {
        let has_one_cpu = cpu_count < 2;
        let is_fifo = m.mode.contains_key(&format!("{end} scheduling"));
        for (is_idle, switch, why) in [
            (self.cpu.is_some() && has_one_cpu, Switch::Pin, "the host has one CPU"),
            (self.steering.is_some() && has_one_cpu, Switch::Rps, "the host has one CPU"),
            (
                self.fifo.is_some() && !is_fifo,
                Switch::Fifo,
                "the receiver does not run under SCHED_FIFO",
            ),
            (
                self.lock_memory && locked_bytes == 0,
                Switch::LockMemory,
                "the kernel locked no memory",
            ),
        ] {
            if is_idle {
                m.not_effective.push(NotEffective::new(switch, why));
            }
        }
        if self.lock_memory {
            m.counters.insert("locked_bytes".into(), locked_bytes);
        }
        if let Some(cpu) = self.cpu {
            m.mode.insert(format!("{end} CPU"), format!("[{cpu}]"));
        }
        if self.steering.is_some() && self.engine.kind == EngineKind::Xdp {
            // SKB mode: the program runs after RPS, which has moved the packet already.
            m.mode.insert(format!("{end} steering"), "RPS before XDP".into());
        }
        let receiver = ReceiverConfig {
            spin: self.engine.wait == Wait::Spin,
            pin: self.cpu.is_some(),
            fifo: self.fifo.is_some(),
            fed_on_its_cpu: self.steering.is_some(),
        };
        m.traps.extend(pitfalls::find(receiver, cpu_count));
    }
}

/// Switches that can act under a load, in the order of the ladder's rungs.
///
/// - `load`: `None` for a capture, whose schedule is not known.
/// - `is_lab`: the wire is a veth, which has no NAPI instance that sockets can name.
pub(super) fn ladder(load: Option<FeedLoad>, is_lab: bool, cpu_count: usize) -> Vec<Switch> {
    let switches = Switch::ALL.iter().copied().filter(|switch| match switch {
        Switch::BusyPoll => !is_lab,
        Switch::Pin | Switch::Rps => cpu_count >= 2,
        // One quote at a time.
        Switch::Batch => load != Some(FeedLoad::Paced),
        // The host's default holds 256 quotes, and a burst has 100.
        Switch::BigRcvbuf => !matches!(load, Some(FeedLoad::Paced | FeedLoad::Burst)),
        _ => true,
    });
    switches.collect()
}

/// Returns the reason if a set of switches is invalid.
pub(super) fn contradiction(arm: &Arm) -> Option<String> {
    (arm.has(Switch::Rps) && !arm.has(Switch::Pin)).then(|| {
        "rps hands arrivals to the CPU to which the receiver is pinned, and needs pin; use pin+rps"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use model::PathLoad;

    use super::*;

    fn config(switches: &[Switch]) -> Config {
        Config::new(&Arm::with(switches.iter().copied()), Some(1))
    }

    #[test]
    fn each_switch_changes_the_configuration() {
        let base = config(&[]);
        let engine = &base.engine;
        assert_eq!((engine.kind, engine.wait, engine.batch), (EngineKind::Udp, Wait::Block, 1));
        for switch in Switch::ALL {
            assert_ne!(config(&[*switch]), base, "{switch}");
        }
    }

    #[test]
    fn a_ladder_leaves_out_what_cannot_act_and_each_rung_is_valid() {
        let loads = FeedLoad::ALL.iter().copied().map(Some).chain([None]);
        for load in loads {
            for (is_lab, cpu_count) in [(true, 1), (true, 2), (false, 8)] {
                let rungs = ladder(load, is_lab, cpu_count);
                assert_eq!(rungs.contains(&Switch::BusyPoll), !is_lab, "{rungs:?}");
                assert_eq!(rungs.contains(&Switch::Pin), cpu_count > 1, "{rungs:?}");
                for count in 1..=rungs.len() {
                    let arm = Arm::with(rungs[..count].iter().copied());
                    assert_eq!(contradiction(&arm), None, "{}", arm.name);
                }
            }
        }
        let paced = ladder(Some(FeedLoad::Paced), true, 2);
        assert!(!paced.contains(&Switch::Batch) && !paced.contains(&Switch::BigRcvbuf));
        assert!(ladder(Some(FeedLoad::Surge), true, 2).contains(&Switch::BigRcvbuf));
        assert!(ladder(None, true, 2).contains(&Switch::Batch));
    }

    #[test]
    fn harmful_switches_are_the_last_of_the_ladder() {
        assert!(Switch::ALL.ends_with(&[Switch::Rps, Switch::Fifo]));
    }

    #[test]
    fn switches_without_effect_are_reported() {
        let mut m = Measurement::default();
        config(&[Switch::Pin, Switch::Fifo, Switch::LockMemory]).report(&mut m, "far", 0, 1);
        let switches: Vec<&str> = m.not_effective.iter().map(|n| n.switch.as_str()).collect();
        assert_eq!(switches, ["pin", "fifo", "lock-memory"]);
        let mut m = Measurement::default();
        m.mode.insert("far scheduling".into(), "SCHED_FIFO 80".into());
        config(&[Switch::Pin, Switch::Fifo, Switch::LockMemory]).report(&mut m, "far", 4096, 2);
        assert!(m.not_effective.is_empty(), "{:?}", m.not_effective);
    }
}
