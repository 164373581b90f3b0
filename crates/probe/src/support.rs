//! Support for switches on this host, determined by trying them in a temporary lab.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

use host::idle::{IdleError, NoIdle};
use host::irq_suspend::IrqSuspend;
use io::{Copying, EngineKind, EngineSpec, Setup, XdpMode};
use lab::host_rights::{self, BPF};
use lab::{Pair, PairSpec};
use model::{Arm, Support};
use sys::capability::Capability;
use sys::epoll::Epoll;
use sys::thread::start;
use sys::uring::DatagramRing;
use xdp::Frames;

use super::far_end::ends;
use super::switches::{Switch, engine_spec};
use host::text::chain;
use lab::settle;

/// Results of the attempts, with the reasons of failures.
#[derive(Debug, Clone)]
struct ProbeCapabilities {
    lab: Result<(), String>,
    skb: Result<(), String>,
    native: Result<(), String>,
    zero_copy: Result<(), String>,
    idle: Result<(), Support>,
    epoll_busy_poll: Result<(), String>,
    io_uring: Result<(), String>,
    cpus: usize,
}

static TRIED: OnceLock<ProbeCapabilities> = OnceLock::new();

fn tried() -> &'static ProbeCapabilities {
    TRIED.get_or_init(|| {
        let cpus = sys::affinity::allowed_cpus().map_or(1, |c| c.len());
        let idle = sleepless();
        let epoll_busy_poll = try_socket(|socket| Epoll::of(socket)?.set_busy_poll());
        let io_uring = try_socket(|socket| DatagramRing::new(socket, 64, 64).map(drop));
        match Pair::new(&PairSpec::default()) {
            Err(error) => {
                let no = || Err(chain(&error));
                ProbeCapabilities {
                    lab: no(),
                    skb: no(),
                    native: no(),
                    zero_copy: no(),
                    idle,
                    epoll_busy_poll,
                    io_uring,
                    cpus,
                }
            }
            Ok(pair) => ProbeCapabilities {
                lab: Ok(()),
                skb: try_xdp(&pair, XdpMode::Skb, Copying::Copy),
                native: try_xdp(&pair, XdpMode::Native, Copying::Copy),
                zero_copy: try_xdp(&pair, XdpMode::Native, Copying::RequireZeroCopy),
                idle,
                epoll_busy_poll,
                io_uring,
                cpus,
            },
        }
    })
}

/// Tries to keep CPUs awake. Errors: the reason that they cannot be.
pub(super) fn sleepless() -> Result<(), Support> {
    NoIdle::hold().map(drop).map_err(|error| {
        let needs = match error {
            IdleError::Unsupported { needs, .. } => needs.to_owned(),
            error @ IdleError::Write { .. } => chain(&error),
        };
        Support::unsupported("/dev/cpu_dma_latency not opened", needs)
    })
}

/// Tries a setting of a UDP socket.
fn try_socket(set: impl FnOnce(BorrowedFd<'_>) -> std::io::Result<()>) -> Result<(), String> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    socket.and_then(|socket| set(socket.as_fd())).map_err(|e| e.to_string())
}

/// Opens and closes an AF_XDP engine at the far end of a lab.
fn try_xdp(pair: &Pair, mode: XdpMode, copying: Copying) -> Result<(), String> {
    let mut spec = EngineSpec::plain(EngineKind::Xdp);
    (spec.xdp_mode, spec.copying, spec.frames) = (mode, copying, 64);
    let (_, (local, _)) = ends(pair);
    std::thread::scope(|scope| {
        let tried = start(scope, "xdp", || {
            settle(&pair.far, &[]).map_err(|e| chain(&e))?;
            let opened = io::open(&Setup::receive(&spec, &local, 64));
            opened.map(drop).map_err(|e| chain(&e))
        });
        tried.end()
    })
}

/// Remedy where a veth cannot do it.
const TWO_HOSTS: &str =
    "a NIC whose driver supports it: prove between two hosts, with --far ssh:HOST";

/// Frames of the live-frame generator, which is a BPF program; `None` if this process may load one.
pub(super) fn no_generator() -> Option<Support> {
    host_rights::denied_load("storm", BPF)
}

/// The reason why this process may not poll the queue of a device.
pub(super) fn no_busy_poll() -> Option<Support> {
    host_rights::denied(&[Capability::NetAdmin])
}

/// The reason why this kernel or process cannot suspend interrupts.
pub(super) fn irq_suspend() -> Option<Support> {
    let why = IrqSuspend::probe().err()?;
    Some(Support::unsupported("irq-suspend", chain(&why)))
}

/// The reason why the UMEMs of this many ends cannot lie in huge pages; their memory is taken and freed.
pub(super) fn huge_pages(arm: &Arm, end_count: u32) -> Option<Support> {
    let spec = engine_spec(arm);
    if !spec.huge_pages {
        return None;
    }
    // For frames of up to half a page; larger ones need twice as many, and their trial says so.
    let (frame_bytes, frames) = (spec.frame_bytes, spec.frames);
    let why = Frames::allocate_in(spec.frame_memory(), frame_bytes, frames, end_count).err()?;
    let page_count = spec.huge_page_count(end_count);
    Some(Support::unsupported(
        "huge-pages",
        format!(
            "{page_count} free huge pages of 2 MiB: echo {page_count} > \
             /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages ({why})"
        ),
    ))
}

/// The reason why a lab has no VLAN devices.
pub(super) fn vlan() -> Option<Support> {
    static TRIED: OnceLock<Result<(), String>> = OnceLock::new();
    let spec = PairSpec { vlan: Some(1), ..PairSpec::default() };
    let tried = TRIED.get_or_init(|| Pair::new(&spec).map(drop).map_err(|why| chain(&why)));
    let why = tried.as_ref().err()?;
    let needs = format!("the kernel's module 8021q: modprobe 8021q ({why})");
    Some(Support::unsupported("a lab with VLAN devices", needs))
}

/// Support for XDP verbs at the far end of a lab.
pub(super) fn verbs() -> Support {
    let tried = tried();
    match (&tried.lab, &tried.native) {
        (Err(why), _) => Support::unsupported("a lab of network namespaces", why.clone()),
        (_, Err(why)) => Support::unsupported("native XDP on veth", why.clone()),
        _ => Support::Yes,
    }
}

/// Support for an arm in a lab on this host.
pub(super) fn support(arm: &Arm) -> Support {
    let tried = tried();
    if let Err(why) = &tried.lab {
        return Support::unsupported("a lab of network namespaces", why.clone());
    }
    let missing = Switch::ALL.iter().filter(|switch| arm.has(**switch));
    let mut missing = missing.filter_map(|switch| missing_for(*switch, tried));
    missing.next().or_else(|| huge_pages(arm, 2)).unwrap_or(Support::Yes)
}

/// The reason why a switch is not possible in a lab here.
fn missing_for(switch: Switch, tried: &ProbeCapabilities) -> Option<Support> {
    let (what, why) = match switch {
        Switch::Bypass => {
            let why = tried.skb.as_ref().err()?;
            if let Some(denied) = host_rights::denied(BPF) {
                return Some(denied);
            }
            ("AF_XDP".to_owned(), why.clone())
        }
        Switch::BusyPoll => return no_busy_poll(),
        Switch::Native => ("native XDP on veth".to_owned(), tried.native.as_ref().err()?.clone()),
        Switch::ZeroCopy => {
            tried.zero_copy.as_ref().err()?;
            let what = "a veth does not support AF_XDP zero-copy (refused by the kernel)";
            (what.to_owned(), TWO_HOSTS.to_owned())
        }
        Switch::NoIdleStates => return tried.idle.clone().err(),
        Switch::EpollBusyPoll => {
            let why = tried.epoll_busy_poll.as_ref().err()?;
            let what = "busy polling of an epoll instance".to_owned();
            (what, format!("Linux 6.9 (EPIOCSPARAMS: {why})"))
        }
        Switch::IoUring => {
            let why = tried.io_uring.as_ref().err()?;
            let needs = "Linux 6.1 and sysctl kernel.io_uring_disabled=0";
            ("io_uring".to_owned(), format!("{needs} (io_uring_setup: {why})"))
        }
        Switch::IrqSuspend => (
            "irq-suspend in a lab, whose veth names no NAPI instance to sockets".to_owned(),
            TWO_HOSTS.to_owned(),
        ),
        Switch::Pin | Switch::Rps if tried.cpus < 2 => {
            (format!("{switch} with one CPU"), "give it two CPUs".to_owned())
        }
        // Settings of the lab's own interfaces, but the kernel requires the right on the host.
        Switch::Rps | Switch::DeferHardIrqs => {
            return host_rights::denied(&[Capability::NetAdmin]);
        }
        _ => return None,
    };
    Some(Support::unsupported(what, why))
}
