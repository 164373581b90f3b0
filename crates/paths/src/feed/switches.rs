//! The switches of the feed, and the receiver that a set of them makes.

use io::{EngineKind, EngineSpec, Stamps, Wait};
use model::{Arm, Scope, Switch};

/// Datagrams a call when batching.
const BATCH: usize = 64;
/// Receive buffer of `big-rcvbuf`, bytes.
pub(super) const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
/// Descriptors of `big-ring`.
pub(super) const RING_DESCRIPTORS: u32 = 4096;
/// Priority of `fifo`.
pub(super) const FIFO_PRIORITY: i32 = 80;

/// In the order of the ladder.
pub static SWITCHES: [Switch; 12] = [
    Switch {
        id: "quiet",
        effect: "statistics are kept in memory; off: a line per quote to a terminal",
        scope: Scope::Process,
        needs: "",
        source: "tty(4): a write to a terminal is a system call and a lock",
    },
    Switch {
        id: "spin",
        effect: "the receiver looks again at once instead of sleeping until it is woken",
        scope: Scope::Process,
        needs: "a CPU to itself",
        source: "recv(2), MSG_DONTWAIT",
    },
    Switch {
        id: "pin",
        effect: "the receiver stays on one CPU, which is not the one that feeds it",
        scope: Scope::Process,
        needs: "two CPUs",
        source: "sched_setaffinity(2)",
    },
    Switch {
        id: "fifo",
        effect: "the receiver has real-time priority 80",
        scope: Scope::Process,
        needs: "CAP_SYS_NICE",
        source: "sched(7), SCHED_FIFO",
    },
    Switch {
        id: "irq-affinity",
        effect: "the kernel's receive work is done on the receiver's CPU (by RPS where there is no interrupt)",
        scope: Scope::Interface,
        needs: "two CPUs; no effect under bypass in native mode, which takes packets before RPS",
        source: "kernel documentation, networking/scaling.rst",
    },
    Switch {
        id: "no-coalescing",
        effect: "the NIC interrupts for every packet (rx-usecs 0)",
        scope: Scope::Interface,
        needs: "a driver with coalescing settings",
        source: "ethtool(8), -C",
    },
    Switch {
        id: "big-ring",
        effect: "4096 receive descriptors",
        scope: Scope::Interface,
        needs: "a driver with ring settings",
        source: "ethtool(8), -G",
    },
    Switch {
        id: "big-rcvbuf",
        effect: "a receive buffer of 8 MiB; off: the host's default (212,992 bytes hold 256 quotes)",
        scope: Scope::Process,
        needs: "CAP_NET_ADMIN, or net.core.rmem_max of 8 MiB",
        source: "socket(7), SO_RCVBUFFORCE",
    },
    Switch {
        id: "batch",
        effect: "up to 64 datagrams a system call",
        scope: Scope::Process,
        needs: "",
        source: "recvmmsg(2)",
    },
    Switch {
        id: "busy-poll",
        effect: "the receiver polls the device queue itself instead of awaiting its interrupt",
        scope: Scope::Process,
        needs: "a driver whose queue has a NAPI instance that sockets can name",
        source: "kernel documentation, networking/napi.rst, busy polling",
    },
    Switch {
        id: "lock-memory",
        effect: "no page of the receiver is paged out or faulted in late",
        scope: Scope::Process,
        needs: "CAP_IPC_LOCK, or room in RLIMIT_MEMLOCK",
        source: "mlockall(2)",
    },
    Switch {
        id: "bypass",
        effect: "frames go around the stack through an AF_XDP ring in shared memory",
        scope: Scope::Interface,
        needs: "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON; Linux 5.9",
        source: "kernel documentation, networking/af_xdp.rst",
    },
];

/// The engine that an arm's switches make; read once, when a trial begins.
pub(super) fn engine_of(arm: &Arm) -> EngineSpec {
    let bypass = arm.has("bypass");
    let mut spec = EngineSpec::plain(if bypass { EngineKind::Xdp } else { EngineKind::Udp });
    spec.wait = if arm.has("spin") { Wait::Spin } else { Wait::Block };
    spec.batch = if arm.has("batch") { BATCH } else { 1 };
    spec.busy_poll = arm.has("busy-poll");
    spec.receive_buffer_bytes = arm.has("big-rcvbuf").then_some(RECEIVE_BUFFER_BYTES);
    // AF_XDP takes frames before the kernel stamps them.
    spec.stamps = if bypass { Stamps::Off } else { Stamps::Software };
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_switch_of_the_engine_changes_it() {
        let base = engine_of(&Arm::baseline());
        assert_eq!((base.kind, base.wait, base.batch), (EngineKind::Udp, Wait::Block, 1));
        for id in ["spin", "big-rcvbuf", "batch", "busy-poll", "bypass"] {
            assert_ne!(engine_of(&Arm::of([id])), base, "{id}");
        }
    }

    #[test]
    fn switches_of_other_parts_leave_the_engine_alone() {
        let base = engine_of(&Arm::baseline());
        for id in ["quiet", "pin", "fifo", "irq-affinity", "lock-memory"] {
            assert_eq!(engine_of(&Arm::of([id])), base, "{id}");
        }
    }
}
