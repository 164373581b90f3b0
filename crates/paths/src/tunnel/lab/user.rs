//! Our own forwarder over AF_XDP in the middle of the lab.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use host::lab::{End, Triple};
use io::forward::{Pool, PoolBalance, PortSpec, TunnelFrames, XskStatistics, open_port};
use io::rusage::ThreadUsage;
use io::thread::start;
use io::{Copying, XdpMode};
use model::Cost;

use super::{FORWARDER_IP, SINK_IP, UNDERLAY_MTU, VNI};
use crate::lab::settle;
use crate::path::PathError;
use crate::text::chain;
use crate::tunnel::decap::DecapSpec;
use crate::tunnel::encap::Encap;
use crate::tunnel::fdb::{Fdb, FdbSpec};
use crate::tunnel::forward::{Forwarder, ForwarderSpec, NamedCounts, RulesSpec, Tuning, Worker};
use crate::tunnel::order::{Books, OrderSpec};
use crate::tunnel::qos::{Classifier, QueueSpec, Shaper, TokenBucket};
use crate::tunnel::spec::{Carrier, Outer, Tunnel};

/// Frames of the pool, and of those the kernel has to receive into at each port.
const POOL_FRAMES: u32 = 8192;
const FILL_FRAMES: u32 = 2048;
const FRAME_BYTES: u32 = 2048;
/// Looks that found nothing before a worker sleeps: some 50 µs.
const IDLE_TURNS: u32 = 200;
const NAP: Duration = Duration::from_millis(1);
/// A worker that holds up others for so long is passed: on a shared CPU it may have to wait for
/// its time slice.
const STUCK_AFTER_NS: u64 = 500_000_000;
/// Of `qos`: more than any veth carries, so that the shaper works and holds nothing back.
const SHAPED_BITS_PER_S: u64 = 10_000_000_000;
const QUEUE: QueueSpec = QueueSpec { frame_count_max: 1024, byte_count_max: 4 << 20 };

/// What the forwarder says of a trial.
#[derive(Debug)]
pub(super) struct UserReport {
    pub(super) counts: NamedCounts,
    pub(super) books: [Books; 2],
    pub(super) balance: PoolBalance,
    pub(super) statistics: Option<XskStatistics>,
    /// CPU time, a worker each, and the frames that it had.
    pub(super) workers: Vec<(Cost, u64)>,
    pub(super) is_zero_copy: bool,
}

/// What an arm and a load make of the forwarder.
#[derive(Debug, Clone)]
pub(super) struct UserSpec {
    pub(super) tuning: Tuning,
    pub(super) has_qos: bool,
    /// CPUs of each worker; empty for anywhere.
    pub(super) workers: Vec<Vec<usize>>,
}

/// Whether AF_XDP can be had in the lab, found out by trying; else why not.
pub(super) fn try_user(lab: &Triple) -> Result<(), String> {
    let tuning = Tuning::default();
    let spec = UserSpec { tuning, has_qos: false, workers: Vec::new() };
    run(lab, &spec, || Ok(())).map(drop).map_err(|e| chain(&e))
}

/// Forwards while `body` runs; gives its result, and what the forwarder says.
pub(super) fn run<T>(
    lab: &Triple,
    spec: &UserSpec,
    body: impl FnOnce() -> Result<T, PathError>,
) -> Result<(T, UserReport), PathError> {
    let failed = |why: String| PathError::End { end: "forwarder".into(), why };
    let pool = Pool::allocate(FRAME_BYTES, POOL_FRAMES)
        .map_err(|e| failed(format!("16 MiB of frames: {e}")))?;
    let middle = &lab.middle;
    let ports = middle.netns.run(|| {
        let near = open_port(&pool, &port(&middle.near_if, TunnelFrames::All), None)?;
        let tunnels = TunnelFrames::Tunnels { vxlan_port: wire::vxlan::PORT, gre: false };
        let far = open_port(&pool, &port(&middle.far_if, tunnels), Some(&near.rx))?;
        Ok::<_, io::IoError>((near, far))
    });
    let (near, far) = ports.map_err(PathError::part)?.map_err(PathError::part)?;
    let is_zero_copy = near.rx.is_zero_copy();
    let forwarder =
        Forwarder::new(&pool, near, far, forwarder_spec(lab, spec)?).map_err(PathError::part)?;
    let stop = AtomicBool::new(false);
    let (result, workers) = thread::scope(|scope| {
        let threads: Vec<_> = spec
            .workers
            .iter()
            .map(|cpus| {
                let (forwarder, stop) = (&forwarder, &stop);
                start(scope, "worker", move || {
                    let worked = settle(&middle.near_if, cpus).and_then(|()| work(forwarder, stop));
                    // Nobody goes on with a forwarder that lacks a worker.
                    stop.store(stop.load(Ordering::Relaxed) || worked.is_err(), Ordering::Relaxed);
                    worked
                })
            })
            .collect();
        let result = body();
        stop.store(true, Ordering::Relaxed);
        let workers: Result<Vec<_>, String> = threads
            .into_iter()
            .map(|thread| thread.end().map_err(|why| format!("a worker: {why}")))
            .collect();
        (result, workers)
    });
    let workers = workers.map_err(failed)?;
    let report = UserReport {
        counts: forwarder.counts(),
        books: forwarder.books(),
        balance: pool.balance(),
        statistics: io::forward::xsk_statistics(forwarder.sockets()[0]),
        workers,
        is_zero_copy,
    };
    drop(forwarder);
    Ok((result?, report))
}

/// What a worker does until it is told to stop: its CPU time and its frames.
fn work(forwarder: &Forwarder<'_>, stop: &AtomicBool) -> Result<(Cost, u64), String> {
    let begun = ThreadUsage::now();
    let mut worker = Worker::default();
    let mut idle_turns = 0;
    while !stop.load(Ordering::Relaxed) {
        match forwarder.turn(&mut worker, io::clock::monotonic_ns()).map_err(|e| chain(&e))? {
            0 if idle_turns >= IDLE_TURNS => {
                forwarder.wait(NAP).map_err(|e| format!("waiting for frames: {e}"))?;
            }
            0 => idle_turns += 1,
            _ => idle_turns = 0,
        }
    }
    let used = ThreadUsage::now().since(&begun);
    let cost = Cost {
        user_ns: used.user_ns,
        system_ns: used.system_ns,
        softirq_ns: None,
        context_switch_count: used.context_switch_count,
        syscall_count: None,
    };
    Ok((cost, worker.frame_count))
}

fn forwarder_spec(lab: &Triple, spec: &UserSpec) -> Result<ForwarderSpec, PathError> {
    let tunnel = Tunnel {
        local: FORWARDER_IP.into(),
        remote: SINK_IP.into(),
        carrier: Carrier::Vxlan { vni: VNI },
    };
    let suggested = Outer::suggested(&tunnel, lab.middle.far_if.mac, lab.far.mac);
    let outer = Outer { mtu_bytes: UNDERLAY_MTU as u16, ..suggested };
    let encap = Encap::new(tunnel, outer).map_err(PathError::part)?;
    let now_ns = io::clock::monotonic_ns();
    let shaper = || {
        let bucket = TokenBucket::new(SHAPED_BITS_PER_S, 1 << 20, now_ns);
        Shaper::new(Some(bucket), 24, &[QUEUE, QUEUE])
    };
    Ok(ForwarderSpec {
        rules: RulesSpec {
            encaps: vec![encap],
            decap: DecapSpec { tunnels: vec![tunnel], ..DecapSpec::default() },
            learns: true,
            classifier: Classifier::new(1),
            policer: None,
        },
        fdb: Fdb::new(FdbSpec { entry_count_max: 256, ageing_ns: 60_000_000_000, seed: now_ns }),
        shaper: spec.has_qos.then(shaper),
        order: OrderSpec { lanes: 1, window_tickets: 64, stuck_after_ns: STUCK_AFTER_NS },
        tuning: spec.tuning,
    })
}

fn port(end: &End, frames: TunnelFrames) -> PortSpec {
    PortSpec {
        ifindex: end.ifindex,
        ifname: end.ifname.clone(),
        queue: 0,
        queues: 1,
        mode: XdpMode::Native,
        copying: Copying::Copy,
        frames,
        fill_target: FILL_FRAMES,
    }
}
