//! Two ends of a lab, each on a thread of its own, opened and run as the commands do it.

#![allow(dead_code, reason = "each test uses its own part")]

pub(crate) mod arms;
pub(crate) mod truth;

use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use host::lab::{End, Pair};
use io::{
    AnyEngine, Copying, EngineKind, EngineSpec, Local, Remote, Role, Setup, Stamps, Wait,
    XdpEngine, XdpMode,
};
use sys::xsk::LedgerBalance;
use wirepath_paths::probe::Watch;
use wirepath_paths::probe::role::{self, Live, Pace, RoleReport, Steering, Task};

pub(crate) const NEAR_PORT: u16 = 9001;
pub(crate) const FAR_PORT: u16 = 9000;

/// One lab at a time: two ends that spin are all the CPUs there are.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static LAB: Mutex<()> = Mutex::new(());
    LAB.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says why something was not tested.
pub(crate) fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Says what a long run found.
pub(crate) fn tell(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// Waits until `done`, at most ten seconds; says whether it came.
pub(crate) fn until(mut done: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        if done() {
            return true;
        }
        thread::sleep(Duration::from_millis(1));
    }
    done()
}

/// Runs `ip` in this thread's namespace; returns what it prints.
pub(crate) fn ip(arguments: &str) -> String {
    let out = Command::new("ip").args(arguments.split_whitespace()).output().expect("ip runs");
    assert!(out.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub(crate) fn local(end: &End, port: u16) -> Local {
    Local {
        ifindex: end.ifindex,
        ifname: end.ifname.clone(),
        mtu_bytes: end.mtu_bytes,
        queue: 0,
        queues: end.queues,
        mac: end.mac,
        ip: end.ip,
        port,
    }
}

pub(crate) fn remote(end: &End, port: u16) -> Remote {
    Remote { mac: end.mac, ip: end.ip, port }
}

/// A UDP engine whose buffer holds all that a test sends, however long its thread is away.
pub(crate) fn udp() -> EngineSpec {
    EngineSpec { receive_buffer_bytes: Some(64 << 20), ..EngineSpec::plain(EngineKind::Udp) }
}

pub(crate) fn packet() -> EngineSpec {
    EngineSpec::plain(EngineKind::Packet)
}

pub(crate) fn xdp(xdp_mode: XdpMode, wait: Wait, batch: usize) -> EngineSpec {
    EngineSpec { xdp_mode, wait, batch, ..EngineSpec::plain(EngineKind::Xdp) }
}

/// Every engine, by the name that a table gives it.
pub(crate) fn engines() -> Vec<(&'static str, EngineSpec)> {
    use Wait::{Block, Spin};
    use XdpMode::{Native, Skb};
    vec![
        ("udp", udp()),
        ("udp, spin", EngineSpec { wait: Spin, ..udp() }),
        ("udp, batch 64", EngineSpec { batch: 64, ..udp() }),
        ("udp, gso", EngineSpec { batch: 64, gso: true, ..udp() }),
        ("udp, stamped", EngineSpec { stamps: Stamps::Software, ..udp() }),
        ("packet", packet()),
        ("packet, spin, batch 64", EngineSpec { wait: Spin, batch: 64, ..packet() }),
        ("xdp skb", xdp(Skb, Block, 1)),
        ("xdp skb, spin, batch 64", xdp(Skb, Spin, 64)),
        ("xdp native", xdp(Native, Block, 1)),
        ("xdp native, spin, batch 64", xdp(Native, Spin, 64)),
        (
            "xdp native, need-wakeup, batch 64",
            EngineSpec { need_wakeup: true, copying: Copying::Copy, ..xdp(Native, Block, 64) },
        ),
    ]
}

/// Marks the datagrams of a run; no two runs of a process have the same.
pub(crate) fn session() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0x5eed_0000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Both ends' tasks of one run with the same engine.
pub(crate) fn tasks(
    near_role: Role,
    engine: &EngineSpec,
    pace: Pace,
    payload_bytes: usize,
    count: Option<u64>,
) -> (Task, Task) {
    let near = Task {
        role: near_role,
        engine: engine.clone(),
        pace,
        payload_bytes,
        flows: 1,
        first_flow: 0,
        session: Some(session()),
        count,
        duration: None,
        one_clock: false,
    };
    let role = if near_role == Role::Ping { Role::Echo } else { Role::Receive };
    let far = Task { role, count: None, ..near.clone() };
    (near, far)
}

/// What is left when an end has ended, well or not.
pub(crate) struct Outcome {
    pub(crate) ran: Result<RoleReport, String>,
    /// The frames' books after the run, whether it ended well or not.
    pub(crate) ledger: Option<LedgerBalance>,
    /// The engine, finished but not closed.
    pub(crate) engine: AnyEngine,
}

/// An end at work.
pub(crate) struct Running {
    stop: Arc<AtomicBool>,
    pub(crate) live: Arc<Live>,
    thread: JoinHandle<Outcome>,
}

impl Running {
    /// Opens an end on a thread in its namespace; it is open when this returns.
    pub(crate) fn start(
        end: &End,
        local: Local,
        remote: Option<Remote>,
        task: Task,
    ) -> Result<Self, String> {
        let netns = end.netns.try_clone().map_err(|e| e.to_string())?;
        let (stop, live) = (Arc::new(AtomicBool::new(false)), Arc::new(Live::default()));
        let (tell, told) = mpsc::channel();
        let (stop_too, live_too) = (stop.clone(), live.clone());
        let thread = thread::spawn(move || {
            let opened = netns.enter().map_err(|e| e.to_string()).and_then(|()| {
                let mut engine = task.engine.clone();
                if matches!((task.role, task.pace), (Role::Ping, Pace::Rate(_))) {
                    // As `open_and_run` does: an open loop naps by itself.
                    engine.wait = Wait::Spin;
                }
                let setup = Setup { spec: &engine, ..task.setup(&local, remote.as_ref()) };
                io::open(&setup).map_err(|e| host::text::chain(&e))
            });
            let watch = Watch::new(local.ifindex, &local.ifname);
            let mut engine = match opened {
                Ok(engine) => engine,
                Err(why) => {
                    let _ = tell.send(Some(why.clone()));
                    panic!("the end is not open: {why}");
                }
            };
            let _ = tell.send(None);
            let steering = Steering { stop: &stop_too, live: Some(&live_too), watch };
            let ran = role::run(&mut engine, &task, steering);
            let ledger = match &engine {
                AnyEngine::Xdp(engine) => Some(XdpEngine::ledger(engine)),
                _ => None,
            };
            Outcome { ran, ledger, engine }
        });
        match told.recv() {
            Ok(None) => Ok(Running { stop, live, thread }),
            Ok(Some(why)) => {
                let _ = thread.join();
                Err(why)
            }
            Err(_) => Err("the end's thread died".into()),
        }
    }

    /// Opens both ends of a pair, the far one first.
    pub(crate) fn both(pair: &Pair, near: Task, far: Task) -> Result<(Self, Self), String> {
        let answering = Running::start(&pair.far, local(&pair.far, FAR_PORT), None, far)?;
        let (from, to) = (local(&pair.near, NEAR_PORT), remote(&pair.far, FAR_PORT));
        Ok((Running::start(&pair.near, from, Some(to), near)?, answering))
    }

    /// Waits until it ends by itself.
    pub(crate) fn join(self) -> Outcome {
        self.thread.join().expect("the end does not panic")
    }

    /// Has it stop now.
    pub(crate) fn stop(self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        self.join()
    }

    /// Has it stop once nothing arrives any more.
    pub(crate) fn drained(self) -> Outcome {
        role::drain(&self.live);
        self.stop()
    }
}

/// Runs both tasks, the far end open before the near end begins.
pub(crate) fn run(
    near: &End,
    far: &End,
    near_task: &Task,
    far_task: &Task,
) -> Result<(RoleReport, RoleReport), String> {
    let answering = Running::start(far, local(far, FAR_PORT), None, far_task.clone())?;
    let ran = near
        .run(|| {
            let stop = AtomicBool::new(false);
            let (from, to) = (local(near, NEAR_PORT), remote(far, FAR_PORT));
            role::open_and_run(near_task, &from, Some(&to), &stop, None)
        })
        .map_err(|e| e.to_string());
    let answered = answering.drained();
    Ok((ran?.map_err(|e| format!("near: {e}"))?, answered.ran.map_err(|e| format!("far: {e}"))?))
}

/// A counter of a report; 0 when it has none of that name.
pub(crate) fn counter(report: &RoleReport, name: &str) -> u64 {
    report.engine.counters.iter().find(|(n, _)| n == name).map_or(0, |(_, value)| *value)
}
