//! Far end of the control connection.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use host::cpu::CpuClock;
use host::netns::Netns;
use host::text::chain;
use lab::{LossWatch, Meter};
use remote::RemoteError;
use remote::tcp::{Connection, Handshake, LINE_TIMEOUT};
use serde::de::DeserializeOwned;
use sys::capability::{self, Capability};
use sys::thread::start;

use super::desk::{Desk, Place, Turn};
use super::host_settings::{Around, Host, pin};
use super::protocol::{Answer, Ask, Hello, PROTOCOL, PeerError, Say};
use crate::endpoint::{self, Choice};
use crate::role::{self, LiveCounts, RoleReport, Steering, Task, drain};
use crate::vlan::in_own_vlan;
use crate::watch::InterfaceWatch;

/// Poll interval of the listener for its stop flag and for new connections.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of connections accepted per poll. The kernel queues or refuses the rest, so that
/// a connection flood hardly affects a run in progress.
const TAKEN_PER_POLL_MAX: usize = 32;
/// Those of them that close another one: a near end has half a second for its handshake, even if its own address floods
/// the peer.
const DISPLACED_PER_POLL_MAX: usize = 4;
/// Minimum interval between reports of refused connections, so that they cannot fill a log.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Capabilities that opening an engine for a near end may need.
const RUNS_NEED: &[Capability] = &[
    Capability::NetRaw,
    Capability::NetAdmin,
    Capability::Bpf,
    Capability::Perfmon,
    Capability::IpcLock,
];

/// How a peer listens.
#[derive(Debug, Clone)]
pub struct PeerOptions {
    pub listen: SocketAddr,
    /// Secret that near ends must prove.
    pub secret: Option<String>,
    /// Wirepath version sent to near ends.
    pub version: String,
    /// UDP ports of runs at this end.
    pub ports: RangeInclusive<u16>,
    pub limits: SessionLimits,
}

/// Time limits of a session, so that a near end that is stuck or silent does not keep others out.
#[derive(Debug, Clone, Copy)]
pub struct SessionLimits {
    /// Time without a run.
    pub idle: Duration,
    /// Time without a sign of life during a run.
    pub silence: Duration,
    /// Time of a run, for every role.
    pub run: Duration,
}

impl Default for SessionLimits {
    fn default() -> Self {
        SessionLimits {
            idle: Duration::from_secs(20),
            silence: Duration::from_secs(10),
            run: Duration::from_secs(24 * 3600),
        }
    }
}

/// Serves near ends, one at a time, until `stop` is set. `tell` receives one line per event.
pub fn serve(
    options: &PeerOptions,
    stop: &AtomicBool,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<(), PeerError> {
    let at = options.listen;
    let confine = |source| PeerError::Confine { source };
    let listen = |source| PeerError::Listen { at, source };
    let listener = TcpListener::bind(at).map_err(listen)?;
    listener.set_nonblocking(true).map_err(listen)?;
    let host = Host::open();
    capability::keep(RUNS_NEED).map_err(confine)?;
    // Without Landlock the filter bounds only how files are opened.
    let gaps = sys::landlock::read_only(&[c"/proc", c"/sys"]).map_err(confine)?;
    #[cfg(target_arch = "x86_64")]
    sys::seccomp::Confinement::of_peer().and_then(|filter| filter.enter()).map_err(confine)?;
    let (first, last) = (options.ports.start(), options.ports.end());
    tell(&format!("listening on {}", listener.local_addr().unwrap_or(at)));
    tell(&format!("runs use UDP ports {first}-{last} of this host"));
    for gap in gaps {
        tell(&format!("warning: Landlock of this kernel does not take from the peer: {gap}"));
    }
    let desk = Desk::new();
    let mut told = Instant::now();
    thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            let (mut taken_count, mut displaced_count) = (0, 0);
            while taken_count < TAKEN_PER_POLL_MAX && displaced_count < DISPLACED_PER_POLL_MAX {
                let (stream, from) = match listener.accept() {
                    Ok(accepted) => accepted,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) => {
                        // No file descriptor is left, for example: reported at the limited rate.
                        desk.turn_away(at, &format!("accept failed: {e}"));
                        break;
                    }
                };
                taken_count += 1;
                let place = match desk.place_for(from.ip(), &stream) {
                    Ok((place, displaced)) => {
                        displaced_count += usize::from(displaced);
                        place
                    }
                    Err(e) => {
                        desk.turn_away(from, &e.to_string());
                        continue;
                    }
                };
                let (desk, host) = (&desk, &host);
                let seen_to = start(scope, "near", move || {
                    match greet(stream, from, options, (desk, host, &place), stop) {
                        Ok(guest) => {
                            drop(place);
                            match converse(guest, from, (host, options), stop, tell) {
                                Ok(()) => tell(&format!("{from} is done")),
                                Err(e) => tell(&format!("{from}: {}", chain(&e))),
                            }
                        }
                        Err(_) if place.is_lost() => {
                            let why = "closed for another connection: too many handshakes at once";
                            desk.turn_away(from, why);
                        }
                        Err(e) => desk.turn_away(from, &chain(&e)),
                    }
                    Ok::<_, String>(())
                });
                // Without a thread the connection is closed; a later one may succeed.
                if let Some(why) = seen_to.refused() {
                    desk.turn_away(from, &why.to_string());
                }
            }
            if told.elapsed() >= REPORT_INTERVAL
                && let Some(line) = desk.turned_away()
            {
                tell(&line);
                told = Instant::now();
            }
            thread::sleep(POLL_INTERVAL);
        }
    });
    Ok(())
}

/// Authenticated near end that has the right to measure.
struct Guest<'a> {
    lines: Connection,
    near_ip: IpAddr,
    own_ip: IpAddr,
    _turn: Turn<'a>,
}

fn greet<'a>(
    stream: TcpStream,
    from: SocketAddr,
    options: &PeerOptions,
    (desk, host, place): (&'a Desk, &Host, &Place<'_>),
    stop: &AtomicBool,
) -> Result<Guest<'a>, PeerError> {
    let own = stream.set_nonblocking(false).and_then(|()| stream.local_addr());
    let own = own.map_err(|source| RemoteError::Lost { source })?;
    let mut lines = Connection::new(stream)?;
    let welcomed = known(&mut lines, options, stop).and_then(|()| {
        place.prove();
        // A listener on [::] names IPv4 as ::ffff:a.b.c.d.
        let (near_ip, own_ip) = (from.ip().to_canonical(), own.ip().to_canonical());
        let turn = desk.turn().ok_or("busy: another near end is measuring")?;
        let host = Some(Box::new(host.facts(near_ip)));
        Ok((Say::Welcome { host }, near_ip, own_ip, turn))
    });
    match welcomed {
        Ok((welcome, near_ip, own_ip, turn)) => {
            lines.trust();
            lines.send(&welcome)?;
            Ok(Guest { lines, near_ip, own_ip, _turn: turn })
        }
        Err(Unwelcome::Refused(why)) => {
            lines.send(&Say::Error { why: why.to_owned() })?;
            Err(PeerError::Refused { at: from, why: why.to_owned() })
        }
        Err(Unwelcome::Failed(error)) => Err(error),
    }
}

/// Rejection of a near end.
enum Unwelcome {
    /// The reason is sent to the near end.
    Refused(&'static str),
    Failed(PeerError),
}

impl From<&'static str> for Unwelcome {
    fn from(why: &'static str) -> Self {
        Unwelcome::Refused(why)
    }
}

impl<E: Into<PeerError>> From<E> for Unwelcome {
    fn from(error: E) -> Self {
        Unwelcome::Failed(error.into())
    }
}

fn converse(
    guest: Guest<'_>,
    from: SocketAddr,
    (host, options): (&Host, &PeerOptions),
    stop: &AtomicBool,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<(), PeerError> {
    let Guest { mut lines, near_ip, own_ip, _turn } = guest;
    let limits = options.limits;
    // Its files may be hidden in a container: then the near end gets no time of this host.
    let clock = CpuClock::open().ok();
    let mut idle_until = Instant::now() + limits.idle;
    loop {
        let asked = match await_message(&mut lines, idle_until, stop) {
            Err(error) if error.is_timeout() => {
                let (what, seconds) = ("no run was requested", limits.idle.as_secs());
                return Err(farewell(&lines, PeerError::Silent { what, seconds }));
            }
            Err(error @ PeerError::Connection(RemoteError::Invalid { .. })) => {
                return Err(farewell(&lines, error));
            }
            asked => asked?,
        };
        match asked {
            None => return Ok(()),
            Some(Ask::Stop) => refuse(&lines, "no run is in progress".into())?,
            Some(Ask::Run { task, settings, near_port, port }) => {
                let what = format!("{:?} {:?}", task.engine.kind, task.role).to_lowercase();
                tell(&format!("{from}: {what}, {} byte payloads", task.payload_bytes));
                let checked = task.check().map_err(|e| chain(&e));
                if let Err(why) = checked.and_then(|()| check_ports(&options.ports, &task, port)) {
                    refuse(&lines, why)?;
                    continue;
                }
                let addresses = Addresses { near_ip, near_port, own_ip, port };
                let around = Around { settings: &settings, host, clock: clock.as_ref() };
                one_run(&mut lines, &task, addresses, (&around, limits), stop)?;
                idle_until = Instant::now() + limits.idle;
            }
        }
    }
}

/// Errors: the run would use a UDP port of this host outside the operator's range.
fn check_ports(ports: &RangeInclusive<u16>, task: &Task, port: u16) -> Result<(), String> {
    // A flow each, from ascending ports.
    let last = usize::from(port) + task.flows.max(1) - 1;
    if ports.contains(&port) && last <= usize::from(*ports.end()) {
        return Ok(());
    }
    let (start, end) = (ports.start(), ports.end());
    let asked = if last == usize::from(port) { port.to_string() } else { format!("{port}-{last}") };
    Err(format!(
        "UDP port {asked} is outside of the peer's range, {start}-{end}; choose one within, or start the \
         peer with another --ports"
    ))
}

/// Tells the near end why the session ends; the same as an error.
fn farewell(lines: &Connection, error: PeerError) -> PeerError {
    // It may be gone.
    let _ = lines.send(&Say::Error { why: error.to_string() });
    error
}

/// Authenticates a near end, and encrypts the connection, if there is a secret.
fn known(
    lines: &mut Connection,
    options: &PeerOptions,
    stop: &AtomicBool,
) -> Result<(), Unwelcome> {
    let challenge = host::random::random_hex().map_err(|source| RemoteError::Lost { source })?;
    let greeting = lines.send(&Hello {
        wirepath_peer: PROTOCOL,
        version: options.version.clone(),
        challenge,
        secret: options.secret.is_some(),
    })?;
    let answer = await_message(lines, Instant::now() + LINE_TIMEOUT, stop)?;
    let answer: Answer = answer.ok_or(PeerError::Unanswered)?;
    if answer.wirepath_peer != PROTOCOL {
        let error = PeerError::Version { theirs: answer.wirepath_peer };
        let why = format!(
            "the peer uses protocol version {PROTOCOL}, the near end {}; run the same wirepath version \
             at both ends",
            answer.wirepath_peer
        );
        lines.send(&Say::Error { why })?;
        return Err(error.into());
    }
    let Some(secret) = &options.secret else { return Ok(()) };
    let first = answer.handshake.ok_or("a shared secret is required")?;
    let mut handshake = Handshake::far(secret, &greeting).map_err(RemoteError::from)?;
    handshake.read(&first).map_err(|_| "the shared secret is wrong")?;
    let second = handshake.write().map_err(RemoteError::from)?;
    lines.send(&Say::Secured { handshake: second })?;
    lines.encrypt(handshake)?;
    Ok(())
}

/// Receives the next message; `None` if the connection is closed or `stop` is set.
///
/// Errors: nothing came until `until`; see [`PeerError::is_timeout`].
fn await_message<T: DeserializeOwned>(
    lines: &mut Connection,
    until: Instant,
    stop: &AtomicBool,
) -> Result<Option<T>, PeerError> {
    loop {
        match lines.receive(POLL_INTERVAL) {
            Err(error) if error.is_timeout() => {
                if stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                if Instant::now() >= until {
                    return Err(error.into());
                }
            }
            other => return Ok(other?),
        }
    }
}

/// Waits for the end of a run. `None` if the connection is closed or `stop` is set.
fn await_end(
    lines: &mut Connection,
    limits: SessionLimits,
    stop: &AtomicBool,
) -> Result<Option<Ask>, PeerError> {
    let began = Instant::now();
    loop {
        match lines.receive(POLL_INTERVAL) {
            Err(error) if error.is_timeout() => {}
            asked => return Ok(asked?),
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if began.elapsed() >= limits.run {
            return Err(farewell(lines, PeerError::TooLong { seconds: limits.run.as_secs() }));
        }
        if lines.silence().min(began.elapsed()) >= limits.silence {
            let what = "the near end gave no sign of life during a run";
            let seconds = limits.silence.as_secs();
            return Err(farewell(lines, PeerError::Silent { what, seconds }));
        }
    }
}

/// Tells the near end that a request failed.
fn refuse(lines: &Connection, why: String) -> Result<(), PeerError> {
    lines.send(&Say::Error { why })?;
    Ok(())
}

#[derive(Debug, Clone, Copy)]
struct Addresses {
    near_ip: IpAddr,
    near_port: u16,
    own_ip: IpAddr,
    port: u16,
}

/// Runs one role until the near end stops it, disconnects or falls silent, its time is over, or the peer is
/// stopped.
fn one_run(
    lines: &mut Connection,
    task: &Task,
    addresses: Addresses,
    (around, limits): (&Around<'_>, SessionLimits),
    stop_peer: &AtomicBool,
) -> Result<(), PeerError> {
    let cpus = match around.cpus() {
        Ok(cpus) => cpus,
        Err(why) => return refuse(lines, why),
    };
    let (_awake, asleep) = around.stay_awake();
    let losses = Netns::current().ok().and_then(|netns| LossWatch::begin(&netns));
    let meter = around.clock.and_then(|clock| Meter::start(clock, &cpus).ok());
    let stop = AtomicBool::new(false);
    let live = LiveCounts::default();
    let (ready, is_ready) = mpsc::sync_channel::<Say>(1);
    thread::scope(|scope| {
        let running = start(scope, "run", || -> Result<RoleReport, String> {
            // Moved in, so that it is dropped when the thread ends and `recv` cannot block forever.
            let ready = ready;
            let opened = pin(&cpus).and_then(|()| open(task, addresses));
            let (mut engine, watch, say) = match opened {
                Ok(opened) => opened,
                Err(why) => {
                    let _ = ready.send(Say::Error { why: why.clone() });
                    return Err(why);
                }
            };
            if let Err(why) = confine_run() {
                let why = format!("cannot drop privileges: {why}");
                let _ = ready.send(Say::Error { why: why.clone() });
                return Err(why);
            }
            let _ = ready.send(say);
            let mut task = task.clone();
            task.duration = Some(task.duration.unwrap_or(limits.run).min(limits.run));
            let steering = Steering { stop: &stop, live: Some(&live), watch };
            role::run(&mut engine, &task, steering).map_err(|e| chain(&e))
        });
        let say = is_ready.recv().unwrap_or(Say::Error { why: "panicked".into() });
        let failed = matches!(say, Say::Error { .. });
        let mut asked = lines.send(&say).map(|_| None).map_err(PeerError::from);
        if asked.is_ok() && !failed {
            asked = await_end(lines, limits, stop_peer);
        }
        // The run ends for any reply or error: nothing is sent to a near end that disconnected.
        if matches!(asked, Ok(Some(Ask::Stop))) {
            drain(&live);
        }
        stop.store(true, Ordering::Relaxed);
        let report = running.end();
        if failed {
            return Ok(());
        }
        let host_time = meter.and_then(|meter| Some(meter.stop().ok()?.host_time()));
        let mut losses = losses.map_or_else(Vec::new, LossWatch::end);
        // Other programs of this host are not the near end's business.
        let own = format!("(process {})", std::process::id());
        losses.retain(|cause| !cause.contains("(process ") || cause.contains(&own));
        match (asked?, report) {
            (None, _) => Ok(()),
            (Some(Ask::Run { .. }), _) => {
                refuse(lines, "a run is in progress; stop it first".into())
            }
            (Some(Ask::Stop), Ok(mut report)) => {
                report.engine.not_effective.extend(asleep);
                lines.send(&Say::Report { report: Box::new(report.into()), host_time, losses })?;
                Ok(())
            }
            (Some(Ask::Stop), Err(why)) => refuse(lines, why),
        }
    })
}

/// Takes from the calling thread all that reading datagrams does not need.
fn confine_run() -> io::Result<()> {
    capability::keep(&[])?;
    #[cfg(target_arch = "x86_64")]
    sys::seccomp::Confinement::of_peer_run().and_then(|filter| filter.enter())?;
    Ok(())
}

fn open(
    task: &Task,
    addresses: Addresses,
) -> Result<(::io::AnyEngine, Option<InterfaceWatch>, Say), String> {
    if task.engine.receiving == ::io::Receiving::IoUring {
        // The filter would end the process.
        return Err(
            "the far end does not receive by io_uring: its system-call filter cannot check the \
                    requests; leave io-uring out of --arm"
                .into(),
        );
    }
    if task.session.is_none() {
        // An echo without a session would answer any sender, and so addresses that never asked.
        return Err("a run over the network needs a session id".into());
    }
    let Addresses { near_ip, near_port, own_ip, port } = addresses;
    let choice = Choice { ifname: None, queue: 0, port };
    let (local, remote) = endpoint::towards(near_ip, near_port, &choice).map_err(|e| chain(&e))?;
    if local.ip != own_ip && !own_ip.is_loopback() {
        return Err(format!(
            "the route to {near_ip} starts at {}, but the near end sends to {own_ip}",
            local.ip
        ));
    }
    let local = in_own_vlan(local, &task.engine).map_err(|e| chain(&e))?;
    // A connected socket's queue takes datagrams of this near end alone: others cannot fill it. With
    // several flows the near end sends from several ports.
    let has_one_sender = task.engine.kind == ::io::EngineKind::Udp && task.flows <= 1;
    let sends = task.role.sends() && task.role != ::io::Role::Echo;
    let connect = (sends || has_one_sender).then_some(&remote);
    let engine = ::io::open(&task.setup(&local, connect)).map_err(|e| chain(&e))?;
    let watch = InterfaceWatch::new(local.ifindex, &local.ifname);
    let say = Say::Ready {
        ip: local.ip,
        port: local.port,
        mtu_bytes: Some(local.mtu_bytes),
        ifname: local.ifname,
        mode: format!("{:?}", task.engine.kind).to_lowercase(),
    };
    Ok((engine, watch, say))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::Mutex;

    use ::io::{EngineKind, EngineSpec, Role};

    use super::super::client::Far;
    use super::super::protocol::Settings;
    use super::*;
    use crate::role::Pace;

    /// Ends a peer, also after a failed assertion.
    struct Ended<'a>(&'a AtomicBool);

    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn free_port() -> u16 {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.local_addr().expect("bound").port()
    }

    #[test]
    fn run_that_lasts_too_long_is_ended_for_every_role() {
        let stop = AtomicBool::new(false);
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let options = PeerOptions {
            listen: ([127, 0, 0, 1], 0).into(),
            secret: None,
            version: "test".into(),
            ports: 1024..=65535,
            limits: SessionLimits { run: Duration::from_secs(1), ..SessionLimits::default() },
        };
        thread::scope(|scope| {
            let _ended = Ended(&stop);
            // The thread is confined, the test's own is not.
            scope.spawn(|| {
                serve(&options, &stop, &|line: &str| {
                    drop(tell.lock().expect("no panic").send(line.to_owned()))
                })
            });
            let line = told.recv_timeout(Duration::from_secs(10)).expect("it listens");
            let at = line.strip_prefix("listening on ").expect("its first line");
            for role in [Role::Receive, Role::Echo, Role::Send] {
                // The session before is over a moment after it said so.
                let connect = |_| {
                    let far = Far::connect(at, None).ok();
                    thread::sleep(POLL_INTERVAL);
                    far
                };
                let mut far = (0..100).find_map(connect).expect("it becomes free");
                let engine = EngineSpec::plain(EngineKind::Udp);
                let task =
                    Task { session: Some(7), ..Task::new(role, engine, Pace::Rate(100), 64) };
                let near_end = UdpSocket::bind("127.0.0.1:0").expect("a socket");
                let near_port = near_end.local_addr().expect("bound").port();
                let ready = far.prepare(&task, &Settings::default(), near_port, free_port());
                ready.expect("it opens");
                let (over, began) = (AtomicBool::new(false), Instant::now());
                let watched = far.watch(
                    &over,
                    || began.elapsed() > Duration::from_secs(10),
                    || {
                        while !over.load(Ordering::Relaxed) {
                            thread::sleep(POLL_INTERVAL);
                        }
                    },
                );
                watched.expect("a thread");
                let why = far.stop().expect_err("the session is over").to_string();
                assert!(why.contains("a run takes at most 1 s"), "{role:?}: {why}");
            }
        });
    }
}
