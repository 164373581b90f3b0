//! The two ends of a lab, each on its own thread, opened and run as by the commands.

#![allow(dead_code, reason = "each test uses its own part")]

pub(crate) mod truth;

#[allow(unused_imports, reason = "as above")]
pub(crate) use testkit::engines::{FAR_PORT, NEAR_PORT, engines, local, packet, remote, udp, xdp};
#[allow(unused_imports, reason = "as above")]
pub(crate) use testkit::{alone, beside, ip, note, skip};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use io::{AnyEngine, EngineSpec, IoError, Local, Remote, Role, Wait, XdpEngine};
use lab::{End, Pair};
use wirepath_probe::role::{self, LiveCounts, Pace, RoleError, RoleReport, Steering, Task};
use xdp::LedgerBalance;

/// Labs of a test in use at the same time.
const AT_ONCE: usize = 4;

/// Polls `done` for at most ten seconds; returns its last answer.
pub(crate) fn until(done: impl FnMut() -> bool) -> bool {
    testkit::until(Duration::from_secs(10), done)
}

/// Calls `each` with every item and a lab: with those that sleep, [`AT_ONCE`] of them at a time; then with the others, whose
/// ends spin and take a CPU each, one by one.
///
/// A run of a few datagrams spends most of its time asleep, until the kernel has attached a program or released a socket.
pub(crate) fn at_once<T: Sync, L>(
    items: &[T],
    sleeps: impl Fn(&T) -> bool,
    lab: impl Fn() -> L + Sync,
    each: impl Fn(&L, &T) + Sync,
) {
    let (sleeping, spinning): (Vec<&T>, Vec<&T>) = items.iter().partition(|item| sleeps(item));
    let work = |items: &[&T], labs: usize| {
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..labs.min(items.len()) {
                scope.spawn(|| {
                    let lab = lab();
                    while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                        each(&lab, item);
                    }
                });
            }
        });
    };
    work(&sleeping, AT_ONCE);
    work(&spinning, 1);
}

/// True if an end with this engine sleeps until a datagram arrives.
pub(crate) fn sleeps((_, engine): &(&str, EngineSpec)) -> bool {
    engine.wait == Wait::Block
}

/// Session id for the datagrams of a run, unique within the process.
pub(crate) fn session() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0x5eed_0000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Tasks of both ends of a run with one engine.
pub(crate) fn tasks(
    near_role: Role,
    engine: &EngineSpec,
    pace: Pace,
    payload_bytes: usize,
    count: Option<u64>,
) -> (Task, Task) {
    let near = Task {
        session: Some(session()),
        count,
        ..Task::new(near_role, engine.clone(), pace, payload_bytes)
    };
    let role = if near_role == Role::Ping { Role::Echo } else { Role::Receive };
    let far = Task { role, count: None, ..near.clone() };
    (near, far)
}

/// State of an end after its run, successful or not.
pub(crate) struct Outcome {
    pub(crate) ran: Result<RoleReport, String>,
    /// Frame ledger after the run.
    pub(crate) ledger: Option<LedgerBalance>,
    /// Finished but still open.
    pub(crate) engine: AnyEngine,
}

/// A running end.
pub(crate) struct Running {
    stop: Arc<AtomicBool>,
    pub(crate) live: Arc<LiveCounts>,
    thread: JoinHandle<Outcome>,
}

impl Running {
    /// Opens an end on a thread in its namespace. The engine is open on return.
    pub(crate) fn start(
        end: &End,
        local: Local,
        remote: Option<Remote>,
        task: Task,
    ) -> Result<Self, String> {
        let netns = end.netns.try_clone().map_err(|e| e.to_string())?;
        let (stop, live) = (Arc::new(AtomicBool::new(false)), Arc::new(LiveCounts::default()));
        let (tell, told) = mpsc::channel();
        let (stop_too, live_too) = (stop.clone(), live.clone());
        let thread = thread::spawn(move || {
            let opened = netns.enter().map_err(|e| e.to_string()).and_then(|()| {
                once_free(|| role::open(&task, &local, remote.as_ref()), is_port_taken)
                    .map_err(|e| host::text::chain(&e))
            });
            let (mut engine, watch) = match opened {
                Ok(opened) => opened,
                Err(why) => {
                    let _ = tell.send(Some(why.clone()));
                    panic!("the end is not open: {why}");
                }
            };
            let _ = tell.send(None);
            let steering = Steering { stop: &stop_too, live: Some(&live_too), watch };
            let ran = role::run(&mut engine, &task, steering).map_err(|e| host::text::chain(&e));
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

    /// Waits for the end of the run.
    pub(crate) fn join(self) -> Outcome {
        self.thread.join().expect("the end does not panic")
    }

    /// Stops the run.
    pub(crate) fn stop(self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        self.join()
    }

    /// Stops the run once arrivals have ceased.
    pub(crate) fn drained(self) -> Outcome {
        role::drain(&self.live);
        self.stop()
    }
}

/// Calls `open` until the port is free, for at most ten seconds.
///
/// A socket that this process has closed is held for a moment: by a program that another lab has started, until the kernel
/// has executed it, and by a ring of io_uring that was dropped by another thread than its own.
pub(crate) fn once_free<T, E>(
    mut open: impl FnMut() -> Result<T, E>,
    is_taken: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let mut opened = open();
    until(|| {
        let is_held = opened.as_ref().is_err_and(&is_taken);
        if is_held {
            opened = open();
        }
        !is_held
    });
    opened
}

fn is_port_taken(error: &RoleError) -> bool {
    matches!(error, RoleError::Io(IoError::PortTaken { .. }))
}

/// Runs both tasks; the far end is open before the near end starts.
pub(crate) fn run(
    near: &End,
    far: &End,
    near_task: &Task,
    far_task: &Task,
) -> Result<(RoleReport, RoleReport), String> {
    run_on(&[], near, far, near_task, far_task)
}

/// As [`run`], with CPUs for the near end; see [`role::open_and_run_on`].
pub(crate) fn run_on(
    cpus: &[usize],
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
            once_free(|| role::open_and_run_on(cpus, near_task, &from, &to, &stop), is_port_taken)
                .map_err(|e| host::text::chain(&e))
        })
        .map_err(|e| e.to_string());
    let answered = answering.drained();
    Ok((ran?.map_err(|e| format!("near: {e}"))?, answered.ran.map_err(|e| format!("far: {e}"))?))
}

/// A counter of a report; 0 if absent.
pub(crate) fn counter(report: &RoleReport, name: &str) -> u64 {
    report.engine.counters.iter().find(|(n, _)| n == name).map_or(0, |(_, value)| *value)
}
