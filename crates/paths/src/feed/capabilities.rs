//! What this host can do for a feed, found out by trying in a throw-away lab.

use std::sync::OnceLock;

use host::lab::{Pair, PairSpec};
use host::tune::{Held, KnobError};
use io::thread::start;
use io::{EngineKind, EngineSpec, Setup};
use model::{Arm, Support};

use super::switches::{FIFO_PRIORITY, RECEIVE_BUFFER_BYTES, RING_DESCRIPTORS};
use crate::lab::local;
use crate::text::chain;

/// What was tried, each with the reason when it failed.
#[derive(Debug, Clone)]
struct Capabilities {
    lab: Result<(), String>,
    fifo: Result<(), String>,
    lock_memory: Result<(), String>,
    receive_buffer: Result<(), String>,
    coalescing: Result<(), String>,
    ring: Result<(), String>,
    bypass: Result<(), String>,
    cpus: usize,
}

static TRIED: OnceLock<Capabilities> = OnceLock::new();

fn tried() -> &'static Capabilities {
    TRIED.get_or_init(|| {
        let on_a_thread = |attempt: fn() -> std::io::Result<()>| {
            let attempt = move || attempt().map_err(|e| e.to_string());
            std::thread::scope(|scope| start(scope, "attempt", attempt).end())
        };
        let fifo = on_a_thread(|| io::sched::set_fifo(FIFO_PRIORITY));
        let lock_memory = on_a_thread(|| io::sched::LockedMemory::hold().map(drop));
        let cpus = io::affinity::allowed_cpus().map_or(1, |c| c.len());
        let pair = match Pair::new(&PairSpec::default()) {
            Ok(pair) => pair,
            Err(error) => {
                let no = || Err(chain(&error));
                return Capabilities {
                    lab: no(),
                    fifo,
                    lock_memory,
                    receive_buffer: no(),
                    coalescing: no(),
                    ring: no(),
                    bypass: no(),
                    cpus,
                };
            }
        };
        let udp = EngineSpec {
            receive_buffer_bytes: Some(RECEIVE_BUFFER_BYTES),
            ..EngineSpec::plain(EngineKind::Udp)
        };
        let xdp = EngineSpec { frames: 64, ..EngineSpec::plain(EngineKind::Xdp) };
        let far = &pair.far;
        let held = |change: &dyn Fn(&mut Held) -> Result<(), KnobError>| {
            Held::new(&far.netns).and_then(|mut held| change(&mut held)).map_err(|e| chain(&e))
        };
        Capabilities {
            lab: Ok(()),
            fifo,
            lock_memory,
            receive_buffer: opens(&pair, &udp),
            coalescing: held(&|held| held.no_coalescing(&far.ifname)),
            ring: held(&|held| held.large_ring(&far.ifname, RING_DESCRIPTORS)),
            bypass: opens(&pair, &xdp),
            cpus,
        }
    })
}

/// Opens and closes a receiver at the far end of a lab.
fn opens(pair: &Pair, spec: &EngineSpec) -> Result<(), String> {
    let far = &pair.far;
    let local = local(far, far.ip, 10_000);
    let opened = far.run(|| io::open(&Setup::receive(spec, &local, 256)).map(drop));
    opened.map_err(|e| chain(&e))?.map_err(|e| chain(&e))
}

/// Whether the switches of an arm can be had in a lab here.
pub(super) fn support(arm: &Arm) -> Support {
    let t = tried();
    let no = |what: &str, needs: &str, why: &Result<(), String>| {
        let why = why.as_ref().err()?;
        Some(Support::unsupported(format!("{what} ({why})"), needs))
    };
    let rules: [(&str, &str, &str, &Result<(), String>); 6] = [
        ("fifo", "SCHED_FIFO", "CAP_SYS_NICE, or room in RLIMIT_RTPRIO", &t.fifo),
        ("lock-memory", "mlockall", "CAP_IPC_LOCK, or `ulimit -l unlimited`", &t.lock_memory),
        (
            "big-rcvbuf",
            "a receive buffer of 8 MiB",
            "CAP_NET_ADMIN, or sysctl net.core.rmem_max=8388608",
            &t.receive_buffer,
        ),
        (
            "no-coalescing",
            "changing coalescing on a veth",
            "a NIC whose driver has it (ethtool -c shows)",
            &t.coalescing,
        ),
        (
            "big-ring",
            "changing the receive ring of a veth",
            "a NIC whose driver has it (ethtool -g shows)",
            &t.ring,
        ),
        ("bypass", "AF_XDP", "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and Linux 5.9", &t.bypass),
    ];
    let missing = rules.iter().filter(|rule| arm.has(rule.0));
    no("a lab of network namespaces", "CAP_SYS_ADMIN and CAP_NET_ADMIN: run it as root", &t.lab)
        .or_else(|| missing.filter_map(|rule| no(rule.1, rule.2, rule.3)).next())
        .or_else(|| {
            let alone = ["pin", "irq-affinity"].into_iter().find(|id| arm.has(id) && t.cpus < 2);
            alone.map(|id| Support::unsupported(format!("{id} with one CPU"), "two CPUs"))
        })
        .unwrap_or(Support::Yes)
}
