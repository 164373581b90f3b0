//! Switches of the probe, and the engine configuration of an arm.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use host::idle::NoIdle;
use io::{Copying, EngineKind, EngineSpec, Receiving, UNALIGNED_FRAME_BYTES, Wait, XdpMode};
use model::{Arm, ArmPlan, ArmPlanError, Load, NotEffective, PathError, PathSwitch};

use crate::path::ProbeLoad;
use crate::peer::Settings;
use crate::role::WINDOW;
use crate::tcp;

/// Datagrams per system call or ring poll when batching.
const BATCH: usize = 64;
/// Entries of the rings with `big-rings`.
const BIG_RING_ENTRIES: u32 = 8192;
/// Size of the larger unaligned frames: the most lines of a page that are an odd number.
const UNALIGNED_LARGE_FRAME_BYTES: u32 = 4032;

model::switches! {
    /// Switches of the probe, in the order of the ladder.
    pub enum Switch {
        Spin {
            effect: "the receiver polls instead of sleeping until it is woken",
            by: "polling",
            scope: Process,
            needs: "a CPU of its own",
            source: "socket(7), O_NONBLOCK",
        },
        Batch {
            effect: "64 datagrams per system call or ring poll; a spinning one-way receiver waits 5 µs for a batch",
            by: "batching",
            scope: Process,
            needs: "",
            source: "recvmmsg(2), sendmmsg(2)",
        },
        Gso {
            effect: "one send call carries up to 64 datagrams, which the kernel (in the lab) or the NIC cuts apart behind the stack",
            by: "sending many in one call",
            scope: Process,
            needs: "Linux 4.18 (UDP_SEGMENT), 5.0 (UDP_GRO); sockets, so nothing under bypass",
            source: "udp(7), UDP_SEGMENT and UDP_GRO",
        },
        Bypass {
            effect: "frames bypass the stack through AF_XDP rings in shared memory",
            by: "passing the stack",
            scope: Interface,
            needs: "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON; Linux 5.9",
            source: "kernel documentation, networking/af_xdp.rst",
        },
        Native {
            effect: "the XDP program runs in the driver, before a socket buffer is allocated",
            by: "running in the driver",
            scope: Interface,
            needs: "bypass, and a driver with native XDP",
            source: "kernel documentation, networking/af_xdp.rst, XDP_DRV",
        },
        ZeroCopy {
            effect: "the device reads and writes packets in the shared memory, without a copy",
            by: "copying nothing",
            scope: Interface,
            needs: "bypass and native, and a driver with AF_XDP zero-copy",
            source: "kernel documentation, networking/af_xdp.rst, XDP_ZEROCOPY",
        },
        BusyPoll {
            effect: "the receiver polls the device queue instead of waiting for its interrupt",
            by: "polling the queue",
            scope: Process,
            needs: "a driver whose queue has a NAPI instance that sockets can name",
            source: "kernel documentation, networking/napi.rst, busy polling",
        },
        NeedWakeup {
            effect: "a system call only when the ring requests one",
            by: "fewer system calls",
            scope: Process,
            needs: "bypass",
            source: "kernel documentation, networking/af_xdp.rst, XDP_USE_NEED_WAKEUP",
        },
        HugePages {
            effect: "the frames of AF_XDP lie in huge pages of 2 MiB, so that few address translations cover them all",
            by: "huge pages",
            scope: Process,
            needs: "bypass; free huge pages of 2 MiB, which the machine has reserved",
            source: "mmap(2), MAP_HUGETLB",
        },
        BigRings {
            effect: "the RX and TX rings of AF_XDP hold 8,192 frames in place of 2,048, and the UMEM four times as many",
            by: "larger rings",
            scope: Process,
            needs: "bypass; a receiver that falls behind by more than 2,048 frames",
            source: "kernel documentation, networking/af_xdp.rst, XDP_RX_RING and XDP_TX_RING",
        },
        UnalignedChunks {
            effect: "frames of 2,112 bytes lie side by side, so that their first bytes are in different sets of the cache",
            scope: Process,
            needs: "bypass in copy mode; Linux 5.4",
            source: "kernel documentation, networking/af_xdp.rst, XDP_UMEM_UNALIGNED_CHUNK_FLAG",
        },
        NoIdleStates {
            effect: "idle CPUs stay awake: no time to leave a deep idle state",
            by: "keeping the CPUs awake",
            scope: Host,
            needs: "/dev/cpu_dma_latency, writable",
            source: "kernel documentation, power/pm_qos_interface.rst",
        },
        Pin {
            effect: "each end is pinned to one CPU",
            by: "fixed CPUs",
            scope: Process,
            needs: "four CPUs in a lab; with two, each end of the lab already has one",
            source: "sched_setaffinity(2)",
        },
        Rps {
            effect: "received packets are processed on the receiver's CPU instead of the sender's",
            by: "steering to the receiver's CPU",
            scope: Interface,
            needs: "two CPUs; no effect under bypass and native, which take packets before it",
            source: "kernel documentation, networking/scaling.rst, RPS",
        },
        Epoll {
            effect: "the receiver waits in epoll before each receive call, as an event loop does",
            by: "waiting in epoll",
            scope: Process,
            needs: "sockets, so not under bypass",
            source: "epoll(7), level-triggered",
        },
        EpollBusyPoll {
            effect: "epoll polls the device queue instead of waiting for its interrupt",
            by: "polling in epoll",
            scope: Process,
            needs: "epoll; Linux 6.9; a driver whose queue has a NAPI instance that sockets can name",
            source: "ioctl_eventpoll(2), EPIOCSPARAMS",
        },
        IoUring {
            effect: "one multishot request of io_uring receives all datagrams, into buffers that the kernel chooses",
            by: "receiving by io_uring",
            scope: Process,
            needs: "Linux 6.1, kernel.io_uring_disabled=0; sockets, so not under bypass; a lab, as a far end's filter forbids it",
            source: "io_uring_prep_recvmsg_multishot(3)",
        },
        ZeroCopySend {
            effect: "the sender's pages go to the device without a copy, and notifications report their end",
            by: "sending without a copy",
            scope: Process,
            needs: "sockets, so not under bypass; a device that reads pages of a process: not a veth",
            source: "kernel documentation, networking/msg_zerocopy.rst",
        },
        DeferHardIrqs {
            effect: "the interrupt of a receive queue stays off for two empty polls or 200 µs",
            by: "deferring interrupts",
            scope: Interface,
            needs: "a lab, as settings of real interfaces are not changed; a queue with NAPI: native on a veth",
            source: "kernel documentation, networking/napi.rst, software IRQ coalescing",
        },
        Nodelay {
            effect: "a small segment is sent at once, not when earlier ones are acknowledged (Nagle's algorithm)",
            by: "sending at once",
            scope: Process,
            needs: "load tcp-ping",
            source: "tcp(7), TCP_NODELAY",
        },
        Quickack {
            effect: "what arrives is acknowledged at once, in place of with an answer or after 40 ms",
            by: "acknowledging at once",
            scope: Process,
            needs: "load tcp-ping or tcp-flood",
            source: "tcp(7), TCP_QUICKACK",
        },
        IrqSuspend {
            effect: "the near end's interrupts stay off while epoll finds datagrams by polling the device queue",
            by: "suspending interrupts",
            scope: Interface,
            needs: "epoll and epoll-busy-poll; Linux 6.13; two hosts, as a veth names no NAPI instance to sockets",
            source: "kernel documentation, networking/napi.rst, IRQ suspension",
        },
    }
}

/// Failure to read the arm of an engine that is used by hand.
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    #[error(transparent)]
    Unreadable(#[from] ArmPlanError),
    /// Its switches exclude each other, or one needs another.
    #[error("{0}")]
    Contradiction(String),
    #[error("{switch} is a switch of experiments; {remedy}")]
    OfExperiments { switch: Switch, remedy: &'static str },
}

/// Reads the arm of an engine that is used by hand, outside of experiments.
pub fn parse_arm(text: &str) -> Result<Arm, ArmError> {
    use Switch::{DeferHardIrqs, Nodelay, Pin, Quickack, Rps};
    let arm = ArmPlan::parse_one(text, &model::ids(Switch::SPECS))?;
    let elsewhere = [
        (Pin, "give the CPU: --pin CPU"),
        (Rps, "set it by a plan: wirepath tune"),
        (DeferHardIrqs, "set it by a plan: wirepath tune"),
        (Nodelay, "TCP is measured by wirepath prove probe --load tcp-ping"),
        (Quickack, "TCP is measured by wirepath prove probe --load tcp-ping"),
    ];
    if let Some((switch, remedy)) = elsewhere.into_iter().find(|(switch, _)| arm.has(*switch)) {
        return Err(ArmError::OfExperiments { switch, remedy });
    }
    contradiction(&arm, ProbeLoad::Flood).map_or(Ok(arm), |why| Err(ArmError::Contradiction(why)))
}

/// Engine configuration of an arm, computed once per trial.
pub fn engine_spec(arm: &Arm) -> EngineSpec {
    let bypass = arm.has(Switch::Bypass);
    let kind = if bypass { EngineKind::Xdp } else { EngineKind::Udp };
    let mut spec = EngineSpec::plain(kind);
    spec.wait = if arm.has(Switch::Spin) { Wait::Spin } else { Wait::Block };
    spec.batch = if arm.has(Switch::Batch) { BATCH } else { 1 };
    spec.gso = arm.has(Switch::Gso) && !bypass;
    spec.xdp_mode = if arm.has(Switch::Native) { XdpMode::Native } else { XdpMode::Skb };
    spec.copying = if arm.has(Switch::ZeroCopy) { Copying::PreferZeroCopy } else { Copying::Copy };
    spec.busy_poll = arm.has(Switch::BusyPoll);
    spec.need_wakeup = arm.has(Switch::NeedWakeup);
    spec.receiving = if bypass {
        Receiving::Direct
    } else if arm.has(Switch::IoUring) {
        Receiving::IoUring
    } else if arm.has(Switch::EpollBusyPoll) {
        Receiving::EpollBusyPoll
    } else if arm.has(Switch::Epoll) {
        Receiving::Epoll
    } else {
        Receiving::Direct
    };
    spec.zero_copy_send = arm.has(Switch::ZeroCopySend) && !bypass;
    spec.huge_pages = arm.has(Switch::HugePages);
    spec.unaligned_chunks = arm.has(Switch::UnalignedChunks);
    if spec.unaligned_chunks {
        spec.frame_bytes = UNALIGNED_FRAME_BYTES;
    }
    if arm.has(Switch::BigRings) {
        (spec.ring_entries, spec.frames) = (Some(BIG_RING_ENTRIES), 4 * spec.frames);
    }
    spec
}

/// Configuration of a trial. Every switch is read here or in [`engine_spec`], and its requirements are
/// checked in `support`.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) engine: EngineSpec,
    /// Each end stays on one CPU.
    pub(super) is_pinned: bool,
    /// Each end's arrivals are processed on that end's CPUs.
    pub(super) steers: bool,
    /// Interrupts of the receive queues are deferred.
    pub(super) defers: bool,
    /// Interrupts of the near end's interface are suspended while epoll finds datagrams.
    pub(super) suspends: bool,
    stays_awake: bool,
    /// The interface has NAPI whatever the engine.
    has_gro: bool,
}

impl Config {
    pub(super) fn new(arm: &Arm, load: &Load, kind: ProbeLoad) -> Config {
        let mut engine = EngineSpec { vlan_tag: load.vlan_tag, ..engine_spec(arm) };
        fit(&mut engine, load.size_bytes, load.ipv6);
        if kind == ProbeLoad::EchoFlood {
            // Holds the whole window: a datagram of the kernel occupies more than its payload.
            engine.receive_buffer_bytes = Some(WINDOW as usize * (load.size_bytes + 2048));
        }
        Config {
            engine,
            is_pinned: arm.has(Switch::Pin),
            steers: arm.has(Switch::Rps),
            defers: arm.has(Switch::DeferHardIrqs),
            suspends: arm.has(Switch::IrqSuspend),
            stays_awake: arm.has(Switch::NoIdleStates),
            has_gro: kind == ProbeLoad::Storm,
        }
    }

    /// Keeps the CPUs out of idle states until the guard drops, if the arm has the switch.
    pub(super) fn stay_awake(&self) -> Result<Option<NoIdle>, PathError> {
        self.stays_awake.then(NoIdle::hold).transpose().map_err(PathError::part)
    }

    /// The part of the far end between two hosts.
    ///
    /// - `cpus`: of the far end; empty for all.
    /// - `cpu`: for `pin`; `None` for the first of them.
    pub(super) fn far_settings(&self, cpus: &[usize], cpu: Option<usize>) -> Settings {
        let (is_pinned, stays_awake) = (self.is_pinned, self.stays_awake);
        let cpus = match cpu {
            Some(cpu) if is_pinned => vec![cpu],
            _ => cpus.to_vec(),
        };
        Settings { cpus, is_pinned, stays_awake }
    }

    /// Switches without effect in a lab with `cpu_count` CPUs. The engines report their own
    /// (`EngineReport::not_effective`).
    pub(super) fn not_effective(&self, cpu_count: usize) -> Vec<NotEffective> {
        let is_native =
            self.engine.kind == EngineKind::Xdp && self.engine.xdp_mode == XdpMode::Native;
        let pin = (self.is_pinned && cpu_count < 4).then(|| {
            let why = format!("with {cpu_count} CPUs each end has a CPU of its own");
            NotEffective::new(Switch::Pin, why)
        });
        let rps = (self.steers && is_native).then(|| {
            let why = "the driver's XDP program redirects packets before RPS sees them";
            NotEffective::new(Switch::Rps, why)
        });
        let defer = (self.defers && !is_native && !self.has_gro).then(|| {
            let why = "the veth has no NAPI instance without GRO or a program in its driver: there is no \
                       interrupt to defer";
            NotEffective::new(Switch::DeferHardIrqs, why)
        });
        pin.into_iter().chain(rps).chain(defer).collect()
    }
}

/// Sizes the frames of an AF_XDP engine for the payload: larger frames, or several per packet.
fn fit(spec: &mut EngineSpec, payload_bytes: usize, ipv6: bool) {
    let any: IpAddr =
        if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    // Behind the kernel's headroom of 256 bytes.
    let needed = spec.packet_frame_bytes(any, payload_bytes) + 256;
    let unaligned = (UNALIGNED_FRAME_BYTES, UNALIGNED_LARGE_FRAME_BYTES);
    let (small, large) = if spec.unaligned_chunks { unaligned } else { (2048, 4096) };
    spec.frame_bytes = if needed > small as usize { large } else { small };
    spec.multi_buffer = needed > large as usize;
}

/// Most rungs of a ladder, so that each has long trials and many blocks.
const RUNGS_MAX: usize = 6;

/// Switches that can act under a load, in the order of the ladder's rungs.
///
/// - `is_lab`: the wire is a veth, which has neither zero-copy nor a NAPI instance that sockets can name.
/// - `cpu_count`: CPUs of each end between hosts, of both ends in a lab.
///
/// Sleep comes first: its end is part of each round trip of a socket that waits, and would otherwise be counted as the
/// gain of the first switch that does not wait.
pub(super) fn ladder(load: ProbeLoad, is_lab: bool, cpu_count: usize) -> Vec<Switch> {
    use Switch::{
        Batch, BusyPoll, Bypass, DeferHardIrqs, Gso, Native, NeedWakeup, NoIdleStates, Nodelay,
        Pin, Quickack, Rps, Spin, ZeroCopy,
    };
    let rungs: &[Switch] = match load {
        ProbeLoad::Ping | ProbeLoad::Paced => {
            &[NoIdleStates, Spin, Bypass, Native, ZeroCopy, BusyPoll, Pin]
        }
        ProbeLoad::Storm => &[Spin, Batch, Gso, Bypass, Native, DeferHardIrqs],
        ProbeLoad::TcpPing => &[NoIdleStates, Nodelay, Quickack, Spin, BusyPoll, Pin],
        ProbeLoad::TcpConnect => &[NoIdleStates, Spin, BusyPoll, Rps, Pin],
        ProbeLoad::TcpFlood => &[Spin, Quickack, Rps, BusyPoll, Pin],
        // Whatever fills the wire.
        ProbeLoad::Flood | ProbeLoad::EchoFlood => {
            &[Spin, Batch, Gso, Bypass, Native, ZeroCopy, NeedWakeup]
        }
    };
    let acting = rungs.iter().copied().filter(|switch| match switch {
        ZeroCopy | BusyPoll => !is_lab,
        DeferHardIrqs => is_lab,
        Pin => cpu_count >= if is_lab { 4 } else { 2 },
        Rps => cpu_count >= 2,
        _ => true,
    });
    acting.take(RUNGS_MAX).collect()
}

/// Returns the reason if a set of switches is invalid, for a load.
pub(super) fn contradiction(arm: &Arm, load: ProbeLoad) -> Option<String> {
    if let Some(why) = tcp::contradiction(arm, load) {
        return Some(why);
    }
    use Switch::{
        BigRings, Bypass, Epoll, EpollBusyPoll, HugePages, IoUring, IrqSuspend, Native, NeedWakeup,
        UnalignedChunks, ZeroCopy, ZeroCopySend,
    };
    let has = |switch: Switch| arm.has(switch);
    let af_xdp = [Native, ZeroCopy, NeedWakeup, HugePages, BigRings, UnalignedChunks];
    let sockets = [Epoll, EpollBusyPoll, IoUring, ZeroCopySend];
    if let Some(id) = af_xdp.into_iter().find(|switch| has(*switch) && !has(Bypass)) {
        return Some(format!("{id} is an AF_XDP setting and needs bypass; use bypass+{id}"));
    }
    if let Some(id) = sockets.into_iter().find(|switch| has(*switch) && has(Bypass)) {
        return Some(format!("{id} is a setting of UDP sockets; use it without bypass"));
    }
    let rules = [
        (has(ZeroCopy) && !has(Native), "zero-copy needs native mode; use bypass+native+zero-copy"),
        (
            has(UnalignedChunks) && has(ZeroCopy),
            "unaligned-chunks crosses pages, and a zero-copy device drops a frame whose pages are not side by \
             side for it; use unaligned-chunks without zero-copy",
        ),
        (
            has(EpollBusyPoll) && !has(Epoll),
            "epoll-busy-poll needs epoll; use epoll+epoll-busy-poll",
        ),
        (
            has(IrqSuspend) && !has(EpollBusyPoll),
            "irq-suspend acts while epoll polls the device queue; use \
             epoll+epoll-busy-poll+irq-suspend",
        ),
        (has(Epoll) && has(IoUring), "epoll and io-uring are two ways to receive; use one of them"),
        (
            has(ZeroCopySend) && load == ProbeLoad::Storm,
            "the datagrams of storm come from the kernel; use zero-copy-send with flood",
        ),
    ];
    rules.into_iter().find(|(is_broken, _)| *is_broken).map(|(_, why)| why.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::PathLoad;

    use super::*;

    #[test]
    fn a_ladder_has_the_switches_that_can_act_and_all_of_its_rungs_are_valid() {
        use Switch::{Bypass, Native, NoIdleStates, Pin, Spin, ZeroCopy};
        assert_eq!(ladder(ProbeLoad::Ping, true, 2), [NoIdleStates, Spin, Bypass, Native]);
        assert_eq!(ladder(ProbeLoad::Ping, true, 8), [NoIdleStates, Spin, Bypass, Native, Pin]);
        assert!(ladder(ProbeLoad::Ping, false, 8).contains(&ZeroCopy));
        for load in ProbeLoad::ALL.iter().copied() {
            for (is_lab, cpu_count) in [(true, 1), (true, 2), (true, 8), (false, 8)] {
                let rungs = ladder(load, is_lab, cpu_count);
                assert!((1..=RUNGS_MAX).contains(&rungs.len()), "{load} {rungs:?}");
                for count in 1..=rungs.len() {
                    let arm = Arm::with(rungs[..count].iter().copied());
                    assert_eq!(contradiction(&arm, load), None, "{load} {}", arm.name);
                }
            }
        }
    }

    #[test]
    fn an_arm_by_hand_is_read_and_what_cannot_act_there_is_refused_with_the_remedy() {
        assert_eq!(parse_arm("baseline").unwrap(), Arm::baseline());
        let xdp = engine_spec(&parse_arm("spin+bypass+batch").unwrap());
        assert_eq!((xdp.kind, xdp.wait, xdp.batch), (EngineKind::Xdp, Wait::Spin, BATCH));
        for (text, remedy) in [
            ("pin", "--pin CPU"),
            ("spin+rps", "wirepath tune"),
            ("defer-hard-irqs", "wirepath tune"),
            ("nodelay", "--load tcp-ping"),
            ("native", "bypass+native"),
            ("spin,batch", "such as spin+batch"),
            ("warp", "is not a switch of this path; it has: spin, batch"),
        ] {
            let why = parse_arm(text).unwrap_err().to_string();
            assert!(why.contains(remedy), "{text}: {why}");
        }
    }

    #[test]
    fn the_baseline_is_a_blocking_socket_one_datagram_a_call() {
        let spec = engine_spec(&Arm::baseline());
        assert_eq!(spec, EngineSpec::plain(EngineKind::Udp));
        assert_eq!((spec.wait, spec.batch), (Wait::Block, 1));
    }

    #[test]
    fn each_engine_switch_changes_the_engine() {
        let base = engine_spec(&Arm::with([Switch::Bypass, Switch::Native]));
        for id in
            [Switch::Spin, Switch::Batch, Switch::ZeroCopy, Switch::BusyPoll, Switch::NeedWakeup]
                .into_iter()
                .chain([Switch::HugePages, Switch::BigRings, Switch::UnalignedChunks])
        {
            assert_ne!(engine_spec(&Arm::with([Switch::Bypass, Switch::Native, id])), base, "{id}");
        }
        assert_ne!(engine_spec(&Arm::with([Switch::Gso])), engine_spec(&Arm::baseline()));
        assert_eq!(engine_spec(&Arm::with([Switch::Bypass])).xdp_mode, XdpMode::Skb);
    }

    #[test]
    fn af_xdp_switches_without_bypass_are_refused_with_the_way_to_ask() {
        let of_umem = [Switch::HugePages, Switch::BigRings, Switch::UnalignedChunks];
        for id in [Switch::Native, Switch::ZeroCopy, Switch::NeedWakeup].into_iter().chain(of_umem)
        {
            assert!(
                contradiction(&Arm::with([id]), ProbeLoad::Ping).unwrap().contains("bypass+"),
                "{id}"
            );
        }
        let whole = Arm::with([Switch::Bypass, Switch::Native, Switch::ZeroCopy]);
        assert!(contradiction(&whole, ProbeLoad::Ping).is_none());
        assert!(
            contradiction(&Arm::with([Switch::Bypass, Switch::ZeroCopy]), ProbeLoad::Ping)
                .is_some()
        );
    }

    #[test]
    fn unaligned_frames_hold_every_size_and_are_refused_with_zero_copy() {
        let arm = Arm::with([Switch::Bypass, Switch::UnalignedChunks]);
        for (payload_bytes, frame_bytes, multi_buffer) in
            [(64, 2112, false), (1814, 2112, false), (1815, 4032, false), (3735, 4032, true)]
        {
            // The headers of IPv6 have 20 bytes more, and a VLAN tag 4.
            for (more_bytes, ipv6, vlan_tag) in
                [(0, false, None), (20, true, None), (24, true, Some(7))]
            {
                let mut spec = EngineSpec { vlan_tag, ..engine_spec(&arm) };
                fit(&mut spec, payload_bytes - more_bytes, ipv6);
                let fitted = (spec.frame_bytes, spec.multi_buffer);
                assert_eq!(fitted, (frame_bytes, multi_buffer), "{payload_bytes} {more_bytes}");
            }
        }
        assert_eq!(contradiction(&arm, ProbeLoad::Flood), None);
        use Switch::{Bypass, Native, UnalignedChunks, ZeroCopy};
        let both = Arm::with([Bypass, Native, ZeroCopy, UnalignedChunks]);
        let why = contradiction(&both, ProbeLoad::Flood).unwrap();
        assert!(why.contains("without zero-copy"), "{why}");
    }

    #[test]
    fn each_socket_switch_changes_the_engine_and_is_refused_under_bypass() {
        use Switch::{Bypass, Epoll, EpollBusyPoll, IoUring, ZeroCopySend};
        for set in [&[Epoll][..], &[Epoll, EpollBusyPoll], &[IoUring], &[ZeroCopySend]] {
            let arm = Arm::with(set.iter().copied());
            assert_ne!(engine_spec(&arm), engine_spec(&Arm::baseline()), "{set:?}");
            assert_eq!(contradiction(&arm, ProbeLoad::Flood), None, "{set:?}");
            let both = Arm::with(set.iter().copied().chain([Bypass]));
            assert!(
                contradiction(&both, ProbeLoad::Flood).unwrap().contains("without bypass"),
                "{set:?}"
            );
        }
        assert!(
            contradiction(&Arm::with([EpollBusyPoll]), ProbeLoad::Ping).unwrap().contains("epoll+")
        );
        assert!(contradiction(&Arm::with([Epoll, IoUring]), ProbeLoad::Ping).is_some());
        let suspend =
            contradiction(&Arm::with([Epoll, Switch::IrqSuspend]), ProbeLoad::Ping).unwrap();
        assert!(suspend.contains("epoll+epoll-busy-poll+irq-suspend"), "{suspend}");
        let whole = Arm::with([Epoll, EpollBusyPoll, Switch::IrqSuspend]);
        let ping = testkit::arms::load(&crate::Probe, "ping", Duration::from_secs(1));
        assert_eq!(contradiction(&whole, ProbeLoad::Ping), None);
        assert!(Config::new(&whole, &ping, ProbeLoad::Ping).suspends);
        assert!(
            contradiction(&Arm::with([ZeroCopySend]), ProbeLoad::Storm).unwrap().contains("flood")
        );
    }
}
