//! Wirepath's forwarder over AF_XDP in the middle of the lab.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use forward::ports::{
    FastPath, FastSpec, Pool, PoolBalance, Port, PortSpec, TunnelFrames, TunnelId, XskStatistics,
    open_fast_ports, open_port,
};
use io::{Copying, XdpMode};
use lab::{End, Triple};
use model::{Arm, Cost};
use sys::bpf::{HEAD_BYTES_MAX, Heads};
use sys::rusage::ThreadUsage;
use sys::thread::start;

use crate::source::encapsulated;
use crate::switches::Switch;
use crate::topology::{Encapsulation, FORWARDER_IP, SINK_IP};
use forward::decap::DecapSpec;
use forward::encap::Encap;
use forward::fdb::{Fdb, FdbSpec};
use forward::forwarder::{
    Forwarder, ForwarderSpec, NamedCounts, PolicerSpec, RulesSpec, Tuning, Worker, ecn_table,
};
use forward::order::{OrderCounters, OrderSpec};
use forward::qos::{Classifier, QueueSpec, Shaper, TokenBucket};
use forward::spec::{Field, Outer};
use forward::tcx::{TcxError, open_tcx_ports};
use host::text::chain;
use lab::{RunCause, cost_of, settle};
use model::PathError;

/// Frames of the pool, and of those the kernel has to receive into at each port.
const POOL_FRAMES: u32 = 8192;
const FILL_FRAMES: u32 = 2048;
const FRAME_BYTES: u32 = 2048;
/// Of the forwarding table.
const STATIONS_MAX: usize = 256;
/// Empty polls before a worker sleeps: about 50 µs.
const IDLE_TURNS: u32 = 200;
const IDLE_TIMEOUT: Duration = Duration::from_millis(1);
/// From one reload to the next, beside what each takes.
const RELOAD_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum turns that find no frame while the queue empties after the end of a trial: about a second. Not
/// a time, because a worker may lose its CPU for longer.
const DRAIN_TURNS_MAX: u32 = 1000;
/// Time-out of a batch ticket: on a shared CPU a worker may have to wait for its time slice.
const STUCK_AFTER_NS: u64 = 500_000_000;
/// Of a shaper: a few milliseconds at the rate of `shape-50`.
const QUEUE: QueueSpec = QueueSpec { frame_count_max: 256, byte_count_max: 1 << 20 };
/// Preamble, frame check sequence and gap of a frame on an Ethernet wire.
pub(super) const WIRE_BYTES: u16 = 24;

/// Report of the forwarder on a trial.
#[derive(Debug)]
pub(super) struct UserReport {
    pub(super) counts: NamedCounts,
    pub(super) books: [OrderCounters; 2],
    pub(super) balance: PoolBalance,
    /// Of the sockets of port and underlay.
    pub(super) statistics: [Option<XskStatistics>; 2],
    /// CPU time and frames of each worker.
    pub(super) workers: Vec<(Cost, u64)>,
    /// How frames reach the workers: hook and mode.
    pub(super) mode: (&'static str, &'static str),
    /// How often the outer headers were replaced.
    pub(super) reload_count: Option<u64>,
}

/// Programs in front of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Front {
    /// None: the workers take every frame, over AF_XDP.
    Workers,
    /// XDP programs forward what they can, AF_XDP carries the rest.
    Xdp,
    /// tcx programs forward what they can, TAP devices carry the rest: for sockets of this machine.
    Tcx,
}

impl Front {
    /// That of an arm whose frames come from the generator.
    pub(super) fn new(arm: &Arm) -> Front {
        if arm.has(Switch::InKernel) { Front::Xdp } else { Front::Workers }
    }
}

/// Forwarder of an arm and a load.
#[derive(Debug, Clone)]
pub(super) struct UserSpec {
    pub(super) tuning: Tuning,
    pub(super) encapsulation: Encapsulation,
    /// Inside the ordered section.
    pub(super) policer: Option<PolicerSpec>,
    /// After the order is restored: bucket of the outer frames.
    pub(super) shaper: Option<TokenBucket>,
    /// CPUs of each worker; empty for anywhere.
    pub(super) workers: Vec<Vec<usize>>,
    pub(super) front: Front,
    /// The outer headers are replaced without a pause.
    pub(super) is_reloaded: bool,
}

impl UserSpec {
    /// Workers and optimisations, without limits.
    pub(super) fn new(
        tuning: Tuning,
        encapsulation: Encapsulation,
        workers: Vec<Vec<usize>>,
        front: Front,
    ) -> UserSpec {
        let (policer, shaper, is_reloaded) = (None, None, false);
        UserSpec { tuning, encapsulation, policer, shaper, workers, front, is_reloaded }
    }
}

/// Outer headers of a frame in both versions of [`rules`], without the sequence number of GRE, their last field.
pub(super) fn heads(
    lab: &Triple,
    encapsulation: Encapsulation,
    frame: &[u8],
) -> Result<Heads, PathError> {
    let flow_hash = wire::flow::tuple(frame).crc32c();
    let mut versions = [[0; HEAD_BYTES_MAX]; 2];
    for (version, head) in versions.iter_mut().enumerate() {
        let encap = encap(lab, encapsulation, version)?;
        let whole = encapsulated(&encap, encapsulation.headers_bytes(), frame, flow_hash)?;
        head.copy_from_slice(&whole[..HEAD_BYTES_MAX]);
    }
    Ok(Heads { versions, len: encapsulation.at_source().headers_bytes() })
}

/// Tries the forwarder in the lab. Errors: the reason why it is not possible.
pub(super) fn try_user(lab: &Triple, front: Front) -> Result<(), String> {
    let spec = UserSpec::new(Tuning::default(), Encapsulation::Vxlan, Vec::new(), front);
    run(lab, &spec, || Ok(())).map(drop).map_err(|e| chain(&e))
}

/// Forwards while `body` runs. Returns its result and the forwarder's report.
pub(super) fn run<T>(
    lab: &Triple,
    spec: &UserSpec,
    body: impl FnOnce() -> Result<T, PathError>,
) -> Result<(T, UserReport), PathError> {
    let pool = Pool::allocate(FRAME_BYTES, POOL_FRAMES)
        .map_err(|e| PathError::at("forwarder", format!("16 MiB of frames: {e}")))?;
    let middle = &lab.middle;
    let opened = middle.netns.run(|| ports(&pool, lab, spec));
    let (near, far, fast) = opened.map_err(PathError::part)?.map_err(PathError::part)?;
    let mode = match spec.front {
        Front::Tcx => ("tcx", "TAP devices for the rest"),
        _ if near.rx.is_zero_copy() => ("xdp", "native, zero-copy"),
        _ => ("xdp", "native, copy"),
    };
    let forwarder_spec = ForwarderSpec { fast, ..forwarder_spec(lab, spec)? };
    let forwarder = Forwarder::new(&pool, near, far, forwarder_spec).map_err(PathError::part)?;
    let attached = middle.netns.run(|| forwarder.attach(XdpMode::Native));
    attached.map_err(PathError::part)?.map_err(PathError::part)?;
    let stop = AtomicBool::new(false);
    let (result, workers, reload_count) = thread::scope(|scope| {
        let threads: Vec<_> = spec
            .workers
            .iter()
            .map(|cpus| {
                let (forwarder, stop) = (&forwarder, &stop);
                start(scope, "worker", move || {
                    let settled = settle(&middle.near_if, cpus).map_err(RunCause::from);
                    let worked = settled.and_then(|()| work(forwarder, stop));
                    // The others stop when one worker fails.
                    stop.store(stop.load(Ordering::Relaxed) || worked.is_err(), Ordering::Relaxed);
                    worked
                })
            })
            .collect();
        let reloader = spec.is_reloaded.then(|| {
            let (forwarder, stop) = (&forwarder, &stop);
            start(scope, "reloader", move || reload(forwarder, lab, spec, stop))
        });
        let result = body();
        stop.store(true, Ordering::Relaxed);
        let reload_count = reloader.map(|thread| thread.end()).transpose();
        let workers: Result<Vec<_>, PathError> = threads
            .into_iter()
            .map(|thread| thread.end().map_err(|why| PathError::at("a worker", why)))
            .collect();
        (result, workers, reload_count)
    });
    let workers = workers?;
    let reload_count = reload_count.map_err(|why| PathError::at("a reload", why))?;
    let report = UserReport {
        counts: forwarder.counts(),
        books: forwarder.counters(),
        balance: pool.balance(),
        statistics: forwarder.ring_statistics(),
        workers,
        mode,
        reload_count,
    };
    drop(forwarder);
    Ok((result?, report))
}

/// Opens both interfaces of the forwarder, with the programs in front.
fn ports<'p>(
    pool: &'p Pool,
    lab: &Triple,
    spec: &UserSpec,
) -> Result<(Port<'p>, Port<'p>, Option<FastPath>), TcxError> {
    let &UserSpec { front, encapsulation, .. } = spec;
    let middle = &lab.middle;
    let fast = FastSpec {
        station_count_max: STATIONS_MAX as u32,
        inner_bytes_max: DecapSpec::default().inner_bytes_max as u32,
        vxlan_port: wire::vxlan::PORT,
        ecn: ecn_table(),
        is_unfinished: [false; 2],
    };
    if front == Front::Tcx {
        let interfaces = [&middle.near_if, &middle.far_if].map(|end| (end.ifindex, end.mtu_bytes));
        let ([near, far], path) = open_tcx_ports(pool, interfaces, true, &fast)?;
        return Ok((near, far, Some(path)));
    }
    let near = port(&middle.near_if, TunnelFrames::All);
    let tunnel = encapsulation.tunnel(FORWARDER_IP, SINK_IP);
    let ids = vec![TunnelId { local: tunnel.local, carrier: tunnel.carrier.into() }];
    let tunnels = TunnelFrames::Tunnels { vxlan_port: wire::vxlan::PORT, ids };
    let far = port(&middle.far_if, tunnels);
    if front == Front::Xdp {
        let ([near, far], path) = open_fast_ports(pool, [&near, &far], &fast)?;
        return Ok((near, far, Some(path)));
    }
    let near = open_port(pool, &near, None)?;
    let far = open_port(pool, &far, Some(&near.rx))?;
    Ok((near, far, None))
}

/// Loop of a worker until the stop flag is set and no frame waits: a worker that had lost its CPU at the
/// end of a trial finds the last frames in the ring. Returns its CPU time and its frames.
fn work(forwarder: &Forwarder<'_>, stop: &AtomicBool) -> Result<(Cost, u64), RunCause> {
    let begun = ThreadUsage::counted();
    let mut worker = Worker::default();
    let mut idle_turns = 0;
    let mut drain_turns = 0;
    loop {
        let taken = forwarder.turn(&mut worker, sys::clock::monotonic_ns())?;
        if taken == 0 && stop.load(Ordering::Relaxed) {
            // An underlay that takes no more frames leaves some in the queue for ever.
            if forwarder.queued().unwrap_or(0) == 0 || drain_turns >= DRAIN_TURNS_MAX {
                break;
            }
            drain_turns += 1;
        }
        match taken {
            0 if idle_turns >= IDLE_TURNS => {
                forwarder.wait(IDLE_TIMEOUT).map_err(|e| format!("waiting for frames: {e}"))?;
            }
            0 => idle_turns += 1,
            _ => idle_turns = 0,
        }
    }
    let used = ThreadUsage::counted().since(&begun);
    Ok((cost_of(&used), worker.frame_count))
}

/// Replaces the rules by those of the other version until the stop flag is set. Returns how often.
fn reload(
    forwarder: &Forwarder<'_>,
    lab: &Triple,
    spec: &UserSpec,
    stop: &AtomicBool,
) -> Result<u64, RunCause> {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        count += 1;
        forwarder.reload(rules(lab, spec, count as usize % 2)?, Fdb::clone);
        thread::sleep(RELOAD_INTERVAL);
    }
    Ok(count)
}

/// - `version`: 0, or 1 for another time to live and class of service.
fn encap(lab: &Triple, encapsulation: Encapsulation, version: usize) -> Result<Encap, PathError> {
    let tunnel = encapsulation.tunnel(FORWARDER_IP, SINK_IP);
    let outer = encapsulation.underlay(&tunnel, lab.middle.far_if.mac, lab.far.mac);
    let outer = match version {
        0 => outer,
        _ => Outer { ttl: Field::Fixed(9), dscp: Field::Fixed(10), ..outer },
    };
    Encap::new(tunnel, outer).map_err(PathError::part)
}

fn rules(lab: &Triple, spec: &UserSpec, version: usize) -> Result<RulesSpec, PathError> {
    let encap = encap(lab, spec.encapsulation, version)?;
    let tunnel = *encap.tunnel();
    Ok(RulesSpec {
        encaps: vec![encap],
        vlans: Vec::new(),
        keepalives: Vec::new(),
        decap: DecapSpec { tunnels: vec![tunnel], ..DecapSpec::default() },
        learns: true,
        classifier: Classifier::new(0),
        policer: spec.policer,
    })
}

fn forwarder_spec(lab: &Triple, spec: &UserSpec) -> Result<ForwarderSpec, PathError> {
    let now_ns = sys::clock::monotonic_ns();
    let shaper = spec.shaper.clone().map(|bucket| Shaper::new(Some(bucket), WIRE_BYTES, &[QUEUE]));
    Ok(ForwarderSpec {
        rules: rules(lab, spec, 0)?,
        fdb: Fdb::new(FdbSpec {
            entry_count_max: STATIONS_MAX,
            ageing_ns: 60_000_000_000,
            seed: now_ns,
        }),
        shaper,
        order: OrderSpec { lanes: 1, window_tickets: 64, stuck_after_ns: STUCK_AFTER_NS },
        tuning: spec.tuning,
        // The generator's are whole, and at tcx the kernel finishes them.
        is_unfinished: [false; 2],
        fast: None,
    })
}

fn port(end: &End, frames: TunnelFrames) -> PortSpec {
    PortSpec {
        ifindex: end.ifindex,
        ifname: end.ifname.clone(),
        queues: 1,
        mode: XdpMode::Native,
        copying: Copying::Copy,
        frames,
        fill_target: FILL_FRAMES,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sys::bpf::DropSpec;

    use super::*;
    use crate::path::TunnelLoad;
    use crate::sink::{Intake, Sink};
    use crate::source::Flow;
    use crate::topology::{Offloads, build};
    use crate::traffic::{Traffic, Way};

    /// Flags of a GRE header with a sequence number and nothing else, and the protocol of bridged Ethernet.
    ///
    /// Source: RFC 2784 section 2.1, RFC 2890 section 2.
    const NUMBERED: u32 = 0x1000_6558;
    const NUMBER_AT: usize = 38;

    #[test]
    fn gre_numbers_of_a_flow_arrive_without_a_gap_or_a_repetition() {
        let _alone = testkit::alone();
        let lab = build(Offloads::Off).expect("a lab");
        let encapsulation = Encapsulation::Gretap { has_sequence: true };
        let traffic = Traffic::of(TunnelLoad::Flood);
        let flow = Flow::new(&lab, Way::Into, &traffic, 64, encapsulation).expect("a flow");
        let tuning =
            Tuning { batch_frames: 64, prepends: true, is_ordered: true, ..Tuning::default() };
        for front in [Front::Workers, Front::Xdp] {
            let spec = UserSpec::new(tuning, encapsulation, vec![Vec::new(); 2], front);
            let by_number =
                DropSpec { sequence_offset: Some(NUMBER_AT), tag: NUMBERED, ..DropSpec::default() };
            let sink = Sink::open(&lab.far, &by_number, Intake::Xdp).expect("a sink");
            let (sent, report) = run(&lab, &spec, || {
                let sent = std::thread::scope(|scope| {
                    let thread = start(scope, "source", || {
                        let source = flow.source(&lab.near, &[])?;
                        source.send(Duration::from_millis(100), 50_000.0, None)
                    });
                    thread.end()
                });
                let sent = sent.map_err(|why| PathError::at("source", why))?;
                sink.drain(sent.sent_count)?;
                Ok(sent)
            })
            .expect("it forwards");
            let arrived = sink.counts().expect("it counts");
            assert!(sent.sent_count > 1000 && arrived.frames > 1000, "{front:?}: {arrived:?}");
            assert_eq!((arrived.reordered, arrived.duplicated), (0, 0), "{front:?}: {arrived:?}");
            // Numbered behind the queues: a frame that was dropped before has no number.
            assert_eq!(arrived.sequence_breaks, 0, "{front:?}: {arrived:?} {:?}", report.counts);
            assert_eq!(arrived.strays, 0, "{front:?}: {arrived:?}");
        }
    }
}
