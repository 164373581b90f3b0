//! The echo of a mesh on this host, and its pings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use host::exclusive::ExclusiveLock;
use host::text::chain;
use house::{privileges, signals};
use io::{EngineKind, EngineSpec, Role};
use model::Measurement;
use probe::endpoint::{self, Choice};
use probe::role::{self, LiveCounts, Pace, Steering, Task};
use probe::{ROUND_TRIP, measurement};
use remote::Failure;
use remote::work::{Answer, Echo, EchoEnd, PairCell, Ping};
use sys::thread::start_free;

/// UDP port of every echo.
const ECHO_PORT: u16 = 9000;
/// UDP port from which pings are sent.
const PING_PORT: u16 = 9001;
/// UDP payload of a ping, bytes.
const PING_BYTES: usize = 64;
/// Time limit for the pings of one pair.
const PING_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two looks at signals.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Pause before pings are sent again to an echo that does not answer yet.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Silence that ends an echo after its last ping, and after an earlier one.
const LAST_PING_GRACE: Duration = Duration::from_secs(1);
const NEXT_PING_TIMEOUT: Duration = Duration::from_secs(5);

/// A role on a thread of its own. **It ends with this process, or once it is stopped.**
struct RoleThread {
    live: Arc<LiveCounts>,
    stop: Arc<AtomicBool>,
    ended: Receiver<Result<Measurement, String>>,
}

impl RoleThread {
    fn start(task: Task, local: io::Local, remote: Option<io::Remote>) -> Result<Self, Failure> {
        let (live, stop): (Arc<LiveCounts>, Arc<AtomicBool>) = Default::default();
        let (sender, ended) = sync_channel(1);
        let (own_live, own_stop) = (live.clone(), stop.clone());
        // Tests look for these names.
        let name = if task.role == Role::Ping { "wp-ping" } else { "wp-echo" };
        start_free(name, move || {
            // Its owner may have given it up.
            let _ = sender.send(run_role(&task, &local, remote.as_ref(), &own_live, &own_stop));
        })?;
        Ok(RoleThread { live, stop, ended })
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Opens the engine of a task, and runs it without capabilities in this thread.
fn run_role(
    task: &Task,
    local: &io::Local,
    remote: Option<&io::Remote>,
    live: &LiveCounts,
    stop: &AtomicBool,
) -> Result<Measurement, String> {
    let opened = role::open(task, local, remote);
    let (mut engine, watch) = opened.map_err(|error| chain(&error))?;
    privileges::drop_all()?;
    let report = role::run(&mut engine, task, Steering { stop, live: Some(live), watch });
    Ok(measurement(task.role, report.map_err(|error| chain(&error))?, None))
}

/// The echo of this host.
pub(in crate::fleet) struct MeshEcho {
    role: RoleThread,
    until: Option<EchoEnd>,
    /// Pings so far, and when their number changed.
    heard: (u64, Instant),
    _lock: Option<ExclusiveLock>,
}

impl MeshEcho {
    /// Starts the echo, and returns once it has its socket.
    pub(in crate::fleet) fn start(
        echo: &Echo,
        lock: Option<ExclusiveLock>,
    ) -> Result<Self, Failure> {
        let choice = Choice { ifname: None, queue: 0, port: ECHO_PORT };
        let local = endpoint::listening(&choice, echo.ipv6)?;
        let bytes = if echo.ipv6 { 1452 } else { 1472 };
        let spec = EngineSpec::plain(EngineKind::Udp);
        let task =
            Task { session: Some(echo.session), ..Task::new(Role::Echo, spec, Pace::Flood, bytes) };
        let role = RoleThread::start(task, local, None)?;
        let echo = MeshEcho { role, until: echo.until, heard: (0, Instant::now()), _lock: lock };
        while !echo.role.live.is_open.load(Ordering::Acquire) {
            match echo.role.ended.recv_timeout(Duration::from_millis(1)) {
                Err(RecvTimeoutError::Timeout) => {}
                ended => {
                    let why = end_text(ended.unwrap_or_else(|_| Err("its thread ended".into())));
                    return Err(Failure::failed(format!(
                        "no echo on UDP port {ECHO_PORT}: {why}; is the port in use there?"
                    )));
                }
            }
        }
        Ok(echo)
    }

    /// Answer at its end; `None` while it runs.
    pub(in crate::fleet) fn ended(&mut self) -> Option<Answer> {
        if let Ok(ended) = self.role.ended.try_recv() {
            let why = format!("its echo on UDP port {ECHO_PORT} has ended: {}", end_text(ended));
            return Some(Answer::Failed(Failure::Failed(why)));
        }
        let end = self.until?;
        let received = self.role.live.received_count.load(Ordering::Relaxed);
        if received != self.heard.0 {
            self.heard = (received, Instant::now());
        }
        let silence_max = match received {
            0 => Duration::from_secs(end.wait_s.into()),
            // Those that looked for this echo before are among them.
            received if received >= end.count.into() => LAST_PING_GRACE,
            _ => NEXT_PING_TIMEOUT,
        };
        (self.heard.1.elapsed() >= silence_max).then(|| Answer::Done(String::new()))
    }
}

impl Drop for MeshEcho {
    fn drop(&mut self) {
        self.role.stop();
        // Its socket is closed then.
        let _ = self.role.ended.recv_timeout(POLL_INTERVAL);
    }
}

fn end_text(ended: Result<Measurement, String>) -> String {
    ended.map_or_else(|why| why, |_| "it was stopped".to_owned())
}

/// Measures round trips; those that get no answer are sent again for as long as the echo may take to start.
///
/// - `is_given_up`: called every 100 ms until it returns true.
pub(in crate::fleet) fn ping(
    ping: &Ping,
    mut is_given_up: impl FnMut() -> bool,
) -> Result<PairCell, Failure> {
    let mut is_stopped = false;
    let mut is_over = || {
        is_stopped = is_stopped || signals::stop_requested() || is_given_up();
        is_stopped
    };
    let until = Instant::now() + Duration::from_secs(ping.wait_s.into());
    if ping.wait_s == 0 {
        return send(ping, ping.count, &mut is_over);
    }
    loop {
        let found = send(ping, 1, &mut is_over)?;
        if found.lost < found.sent {
            return send(ping, ping.count, &mut is_over);
        }
        if Instant::now() >= until || is_over() {
            let why = found.why.unwrap_or_default();
            return Ok(PairCell::failed(format!("no echo within {} s: {why}", ping.wait_s)));
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}

fn send(ping: &Ping, count: u32, is_over: &mut dyn FnMut() -> bool) -> Result<PairCell, Failure> {
    let choice = Choice { ifname: None, queue: 0, port: PING_PORT };
    let (local, remote) = match endpoint::towards(ping.address, ECHO_PORT, &choice) {
        Ok(ends) => ends,
        Err(error) => return Ok(PairCell::failed(chain(&error))),
    };
    let spec = EngineSpec::plain(EngineKind::Udp);
    let task = Task {
        session: Some(ping.session),
        count: Some(count.into()),
        duration: Some(PING_TIMEOUT),
        ..Task::new(Role::Ping, spec, Pace::PingPong, PING_BYTES)
    };
    let role = RoleThread::start(task, local, Some(remote))?;
    loop {
        match role.ended.recv_timeout(POLL_INTERVAL) {
            Ok(Ok(measured)) => return Ok(cell(&measured, count)),
            Ok(Err(why)) => return Ok(PairCell::failed(why)),
            Err(RecvTimeoutError::Disconnected) => {
                return Ok(PairCell::failed("the thread of its pings ended"));
            }
            Err(RecvTimeoutError::Timeout) if is_over() => role.stop(),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn cell(measured: &Measurement, count: u32) -> PairCell {
    let Some(delivery) = measured.deliveries.get(ROUND_TRIP) else {
        return PairCell::failed("its pings were not counted");
    };
    let (sent, lost) = (delivery.sent_count, delivery.lost_count());
    if sent > 0 && lost >= sent {
        return PairCell { sent, lost, ..PairCell::failed("no answer") };
    }
    if sent < count.into() {
        let seconds = PING_TIMEOUT.as_secs();
        return PairCell::failed(format!(
            "no end within {seconds} s, after {sent} of {count} pings"
        ));
    }
    let metrics = measured.metrics();
    let median = metrics.into_iter().find(|metric| metric.name == "rtt_ns_p50");
    match median.map(|metric| metric.value) {
        Some(Ok(rtt_ns)) => PairCell { rtt_ns: Some(rtt_ns), sent, lost, why: None },
        Some(Err(refused)) => {
            PairCell { rtt_ns: None, sent, lost, why: (lost == 0).then(|| refused.to_string()) }
        }
        None => PairCell { sent, lost, ..PairCell::failed("its pings have no median") },
    }
}

#[cfg(test)]
mod tests {
    use model::Delivery;

    use super::*;

    fn measured(sent_count: u64, received_count: u64) -> PairCell {
        let mut measured = Measurement::default();
        let delivery = Delivery { sent_count, received_count, ..Delivery::default() };
        measured.deliveries.insert(ROUND_TRIP.into(), delivery);
        cell(&measured, 20)
    }

    #[test]
    fn losses_are_counted_and_silence_is_a_failure() {
        let some = measured(20, 5);
        assert_eq!((some.rtt_ns, some.sent, some.lost), (None, 20, 15));
        assert_eq!(measured(20, 0).why.as_deref(), Some("no answer"));
        assert!(measured(7, 7).why.is_some_and(|why| why.contains("7 of 20")));
        assert!(cell(&Measurement::default(), 20).why.is_some());
    }
}
