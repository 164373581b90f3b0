//! The switches of the probe, and the engine that a set of them makes.

use io::{Copying, EngineKind, EngineSpec, Wait, XdpMode};
use model::{Arm, Scope, Switch};

/// Datagrams a call or a look at a ring when batching.
const BATCH: usize = 64;

/// In the order of the ladder.
pub static SWITCHES: [Switch; 11] = [
    Switch {
        id: "spin",
        effect: "the receiver looks again at once instead of sleeping until it is woken",
        scope: Scope::Process,
        needs: "a CPU to itself",
        source: "socket(7), O_NONBLOCK",
    },
    Switch {
        id: "batch",
        effect: "64 datagrams a system call or a look at a ring; a spinning one-way receiver lets them gather for 5 µs",
        scope: Scope::Process,
        needs: "",
        source: "recvmmsg(2), sendmmsg(2)",
    },
    Switch {
        id: "gso",
        effect: "one send is cut into up to 64 datagrams behind the stack and received as one",
        scope: Scope::Process,
        needs: "Linux 4.18 (UDP_SEGMENT), 5.0 (UDP_GRO); sockets, so nothing under bypass",
        source: "udp(7), UDP_SEGMENT and UDP_GRO",
    },
    Switch {
        id: "bypass",
        effect: "frames go around the stack through AF_XDP rings in shared memory",
        scope: Scope::Interface,
        needs: "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON; Linux 5.9",
        source: "kernel documentation, networking/af_xdp.rst",
    },
    Switch {
        id: "native",
        effect: "the XDP program runs in the driver, before a socket buffer is made",
        scope: Scope::Interface,
        needs: "bypass, and a driver with native XDP",
        source: "kernel documentation, networking/af_xdp.rst, XDP_DRV",
    },
    Switch {
        id: "zero-copy",
        effect: "the driver moves packets in and out of the shared memory without a copy",
        scope: Scope::Interface,
        needs: "bypass and native, and a driver with AF_XDP zero-copy",
        source: "kernel documentation, networking/af_xdp.rst, XDP_ZEROCOPY",
    },
    Switch {
        id: "busy-poll",
        effect: "the receiver polls the device queue itself instead of awaiting its interrupt",
        scope: Scope::Process,
        needs: "a driver whose queue has a NAPI instance that sockets can name",
        source: "kernel documentation, networking/napi.rst, busy polling",
    },
    Switch {
        id: "need-wakeup",
        effect: "the rings say when the kernel wants a system call, and none is made otherwise",
        scope: Scope::Process,
        needs: "bypass",
        source: "kernel documentation, networking/af_xdp.rst, XDP_USE_NEED_WAKEUP",
    },
    Switch {
        id: "no-idle-states",
        effect: "idle CPUs stay awake: no time to leave a deep idle state",
        scope: Scope::Host,
        needs: "/dev/cpu_dma_latency, writable",
        source: "kernel documentation, power/pm_qos_interface.rst",
    },
    Switch {
        id: "pin",
        effect: "each end stays on one CPU of its half of them",
        scope: Scope::Process,
        needs: "four CPUs; with two each end of the lab has one already",
        source: "sched_setaffinity(2)",
    },
    Switch {
        id: "rps",
        effect: "received packets are processed on the receiver's CPU instead of the sender's",
        scope: Scope::Interface,
        needs: "two CPUs; no effect under bypass and native, which take packets before it",
        source: "kernel documentation, networking/scaling.rst, RPS",
    },
];

/// The engine that an arm's switches make; read once, when a trial begins.
pub fn engine_of(arm: &Arm) -> EngineSpec {
    let bypass = arm.has("bypass");
    let kind = if bypass { EngineKind::Xdp } else { EngineKind::Udp };
    let mut spec = EngineSpec::plain(kind);
    spec.wait = if arm.has("spin") { Wait::Spin } else { Wait::Block };
    spec.batch = if arm.has("batch") { BATCH } else { 1 };
    spec.gso = arm.has("gso") && !bypass;
    spec.xdp_mode = if arm.has("native") { XdpMode::Native } else { XdpMode::Skb };
    spec.copying = if arm.has("zero-copy") { Copying::PreferZeroCopy } else { Copying::Copy };
    spec.busy_poll = arm.has("busy-poll");
    spec.need_wakeup = arm.has("need-wakeup");
    spec
}

/// Gives an AF_XDP engine frames that hold the payload: larger ones, or several a packet.
pub(super) fn fit(spec: &mut EngineSpec, payload_bytes: usize) {
    // Headers of 42 bytes behind the kernel's headroom of 256.
    let needed = payload_bytes + 42 + 256;
    spec.frame_bytes = if needed > 2048 { 4096 } else { 2048 };
    spec.multi_buffer = needed > 4096;
}

/// Why a set of switches makes no sense, if it does not.
pub(super) fn contradiction(arm: &Arm) -> Option<String> {
    let without_bypass = |id: &str| arm.has(id) && !arm.has("bypass");
    if let Some(id) =
        ["native", "zero-copy", "need-wakeup"].into_iter().find(|id| without_bypass(id))
    {
        return Some(format!(
            "{id} is a property of AF_XDP and means nothing without bypass; try bypass+{id}"
        ));
    }
    if arm.has("zero-copy") && !arm.has("native") {
        return Some(
            "zero-copy needs the program in the driver; try bypass+native+zero-copy".into(),
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_a_blocking_socket_one_datagram_a_call() {
        let spec = engine_of(&Arm::baseline());
        assert_eq!(spec, EngineSpec::plain(EngineKind::Udp));
        assert_eq!((spec.wait, spec.batch), (Wait::Block, 1));
    }

    #[test]
    fn each_engine_switch_changes_the_engine() {
        let base = engine_of(&Arm::of(["bypass", "native"]));
        for id in ["spin", "batch", "zero-copy", "busy-poll", "need-wakeup"] {
            assert_ne!(engine_of(&Arm::of(["bypass", "native", id])), base, "{id}");
        }
        assert_ne!(engine_of(&Arm::of(["gso"])), engine_of(&Arm::baseline()));
        assert_eq!(engine_of(&Arm::of(["bypass"])).xdp_mode, XdpMode::Skb);
    }

    #[test]
    fn af_xdp_switches_without_bypass_are_refused_with_the_way_to_ask() {
        for id in ["native", "zero-copy", "need-wakeup"] {
            assert!(contradiction(&Arm::of([id])).unwrap().contains("bypass+"), "{id}");
        }
        assert!(contradiction(&Arm::of(["bypass", "native", "zero-copy"])).is_none());
        assert!(contradiction(&Arm::of(["bypass", "zero-copy"])).is_some());
    }
}
