//! Support for switches on this host, determined by trying them in a temporary lab.

use std::error::Error;
use std::sync::LazyLock;

use io::{EngineKind, EngineSpec, Setup, Stamps};
use lab::host_rights::{self, BPF, GRANT};
use lab::{LabError, Pair, PairSpec};
use model::{Arm, ArmKind, Support};
use sys::capability::{self, Capability};
use sys::thread::start;

use super::switches::{FIFO_PRIORITY, RECEIVE_BUFFER_BYTES, Switch, contradiction};
use super::world::GROUP;
use host::text::chain;
use lab::local;

/// Result of trying one feature.
type Attempt = Result<(), Box<dyn Error + Send + Sync>>;

struct Tried {
    cpu_count: usize,
    fifo: Attempt,
    lock_memory: Attempt,
    lab: Result<TriedInLab, LabError>,
}

struct TriedInLab {
    receive_buffer: Attempt,
    bypass: Attempt,
}

static TRIED: LazyLock<Tried> = LazyLock::new(|| Tried {
    cpu_count: sys::affinity::allowed_cpus().map_or(1, |cpus| cpus.len()),
    fifo: attempt_on_a_thread(|| sys::sched::set_fifo(FIFO_PRIORITY)),
    lock_memory: attempt_on_a_thread(|| sys::sched::LockedMemory::hold().map(drop)),
    lab: Pair::new(&PairSpec::default()).map(|pair| TriedInLab::new(&pair)),
});

fn attempt_on_a_thread(attempt: fn() -> std::io::Result<()>) -> Attempt {
    std::thread::scope(|scope| start(scope, "attempt", move || Ok(attempt()?)).end())
}

impl TriedInLab {
    fn new(pair: &Pair) -> Self {
        let udp = EngineSpec {
            receive_buffer_bytes: Some(RECEIVE_BUFFER_BYTES),
            ..EngineSpec::plain(EngineKind::Udp)
        };
        let stamps = Stamps::Software;
        let xdp = EngineSpec { frames: 64, stamps, ..EngineSpec::plain(EngineKind::Xdp) };
        TriedInLab { receive_buffer: opens(pair, &udp), bypass: opens(pair, &xdp) }
    }
}

/// Opens and closes a receiver at the far end of a lab.
fn opens(pair: &Pair, spec: &EngineSpec) -> Attempt {
    let far = &pair.far;
    let local = local(far, *GROUP.ip(), GROUP.port());
    Ok(far.run(|| io::open(&Setup::receive(spec, &local, 256)).map(drop))??)
}

/// Support for an arm whose receiver is on a real interface.
pub(super) fn between_two_ends(arm: &Arm) -> Support {
    if arm.kind == ArmKind::Peer {
        return Support::Refused { why: "peer programs run only in the lab".into() };
    }
    if arm.has(Switch::Rps) {
        return Support::unsupported(
            "rps between two ends (settings of real interfaces are journaled, which prove does not do)",
            "a plan with rps-cpus: wirepath tune prove PLAN --path feed --far HOST",
        );
    }
    support(arm)
}

/// Reason of the first switch for which this process lacks a right on the whole host.
fn denied(arm: &Arm, tried: &Tried) -> Option<Support> {
    const NET_ADMIN: &[Capability] = &[Capability::NetAdmin];
    let rules = [(Switch::BusyPoll, NET_ADMIN), (Switch::Rps, NET_ADMIN), (Switch::Bypass, BPF)];
    let rule = rules
        .iter()
        .find(|(switch, needed)| arm.has(*switch) && capability::missing_on_host(needed).is_some());
    if let Some((_, needed)) = rule {
        return host_rights::denied(needed);
    }
    if arm.has(Switch::BigRcvbuf)
        && let Some(capped) = capped_buffer()
    {
        return Some(capped);
    }
    // A limit of this user may do in place of the capability.
    let limits = [
        (Switch::LockMemory, &tried.lock_memory, Capability::IpcLock, "`ulimit -l unlimited`"),
        (Switch::Fifo, &tried.fifo, Capability::SysNice, "room in RLIMIT_RTPRIO"),
    ];
    let mut failed = limits.iter().filter(|(switch, tried, ..)| arm.has(*switch) && tried.is_err());
    failed.find_map(|(_, _, needed, limit)| {
        let missing = capability::missing_on_host(&[*needed])?;
        Some(Support::unsupported(
            format!("no {missing} on this host"),
            format!("{limit}, or {GRANT}"),
        ))
    })
}

/// The reason why the kernel would cap the receive buffer of `big-rcvbuf`.
fn capped_buffer() -> Option<Support> {
    capability::missing_on_host(&[Capability::NetAdmin])?;
    let most = std::fs::read_to_string("/proc/sys/net/core/rmem_max").ok()?;
    let most: usize = most.trim().parse().ok().filter(|most| *most < RECEIVE_BUFFER_BYTES)?;
    let what = format!("net.core.rmem_max is {most}");
    Some(Support::unsupported(
        what,
        format!("root, or: sudo sysctl net.core.rmem_max={RECEIVE_BUFFER_BYTES}"),
    ))
}

fn missing(what: &str, needs: &str, why: &dyn Error) -> Support {
    Support::unsupported(format!("{what} ({})", chain(why)), needs)
}

/// Support for the switches of an arm in a lab on this host.
pub(super) fn support(arm: &Arm) -> Support {
    if let Some(why) = contradiction(arm) {
        return Support::Refused { why };
    }
    let tried = &*TRIED;
    let lab = match &tried.lab {
        Ok(lab) => lab,
        Err(why) => {
            let needs = "CAP_SYS_ADMIN and CAP_NET_ADMIN: run as root";
            return missing("a lab of network namespaces", needs, why);
        }
    };
    let rules: [(Switch, &str, &str, &Attempt); 4] = [
        (Switch::Fifo, "SCHED_FIFO", "CAP_SYS_NICE, or room in RLIMIT_RTPRIO", &tried.fifo),
        (
            Switch::LockMemory,
            "mlockall",
            "CAP_IPC_LOCK, or `ulimit -l unlimited`",
            &tried.lock_memory,
        ),
        (
            Switch::BigRcvbuf,
            "a receive buffer of 8 MiB",
            "CAP_NET_ADMIN, or sysctl net.core.rmem_max=8388608",
            &lab.receive_buffer,
        ),
        (
            Switch::Bypass,
            "AF_XDP",
            "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and Linux 6.1",
            &lab.bypass,
        ),
    ];
    let on = rules.into_iter().filter(|rule| arm.has(rule.0));
    let mut failed = on.filter_map(|(_, what, needs, tried)| {
        tried.as_ref().err().map(|why| missing(what, needs, why.as_ref()))
    });
    denied(arm, tried).or_else(|| failed.next()).unwrap_or_else(|| {
        let alone = [Switch::Pin, Switch::Rps]
            .into_iter()
            .find(|switch| arm.has(*switch) && tried.cpu_count < 2);
        alone.map_or(Support::Yes, |switch| {
            Support::unsupported(format!("{switch} with one CPU"), "two CPUs")
        })
    })
}
