//! Far end of the control connection.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use host::cpu::CpuClock;
use host::text::chain;
use lab::Meter;
use serde::de::DeserializeOwned;
use sys::capability::{self, Capability};
use sys::thread::start;

use super::host_settings::{Around, Host, pin};
use super::protocol::{
    Answer, Ask, Hello, Lines, PATIENCE, PROTOCOL, PeerError, Say, challenge, proof, proven,
};
use crate::endpoint::{self, Choice};
use crate::role::{self, Live, RoleReport, Steering, Task, drain};
use crate::watch::Watch;

/// Maximum duration of a run.
const RUN_MAX: Duration = Duration::from_secs(24 * 3600);
/// Poll interval of the listener for its stop flag and for new connections.
const LOOK: Duration = Duration::from_millis(50);
/// Maximum number of connections accepted per poll. The kernel queues or refuses the rest, so that
/// a connection flood hardly affects a run in progress.
const TAKEN_PER_LOOK_MAX: usize = 32;
/// Maximum number of concurrent handshakes, in total and per address; further connections are
/// closed.
const HANDSHAKES_MAX: usize = 32;
const HANDSHAKES_PER_ADDRESS_MAX: usize = 8;
/// Minimum interval between reports of refused connections, so that they cannot fill a log.
const TELL_PAUSE: Duration = Duration::from_secs(1);

/// Capabilities that opening an engine for a near end may need.
const RUNS_NEED: &[Capability] = &[
    Capability::NetRaw,
    Capability::NetAdmin,
    Capability::Bpf,
    Capability::Perfmon,
    Capability::IpcLock,
    Capability::NetBindService,
];

/// How a peer listens.
#[derive(Debug, Clone)]
pub struct PeerOptions {
    pub listen: SocketAddr,
    /// Secret that near ends must prove.
    pub secret: Option<String>,
    /// Wirepath version sent to near ends.
    pub version: String,
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
    #[cfg(target_arch = "x86_64")]
    sys::seccomp::Confinement::of_peer().and_then(|filter| filter.enter()).map_err(confine)?;
    tell(&format!("listening on {}", listener.local_addr().unwrap_or(at)));
    let desk = Desk::default();
    let mut told = Instant::now();
    thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..TAKEN_PER_LOOK_MAX {
                let (stream, from) = match listener.accept() {
                    Ok(accepted) => accepted,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) => {
                        // No file descriptor is left, for example: reported at the limited rate.
                        desk.turn_away(at, &format!("accept failed: {e}"));
                        break;
                    }
                };
                let Some(place) = desk.place_for(from.ip()) else {
                    desk.turn_away(from, "too many handshakes at once");
                    continue;
                };
                let (desk, host) = (&desk, &host);
                let seen_to = start(scope, "near", move || {
                    match greet(stream, from, options, (desk, host), stop) {
                        Ok(guest) => {
                            drop(place);
                            match converse(guest, from, host, stop, tell) {
                                Ok(()) => tell(&format!("{from} is done")),
                                Err(e) => tell(&format!("{from}: {}", chain(&e))),
                            }
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
            if told.elapsed() >= TELL_PAUSE
                && let Some(line) = desk.turned_away()
            {
                tell(&line);
                told = Instant::now();
            }
            thread::sleep(LOOK);
        }
    });
    Ok(())
}

/// Admission of near ends.
#[derive(Debug, Default)]
struct Desk {
    /// A near end is measuring.
    is_busy: AtomicBool,
    /// Addresses with a handshake in progress, once per handshake.
    waiting: Mutex<Vec<IpAddr>>,
    /// Connections refused since the last report, and the latest with its reason.
    away: Mutex<(u64, String)>,
}

impl Desk {
    /// Reserves a handshake slot; `None` if the limits are reached.
    fn place_for(&self, from: IpAddr) -> Option<Place<'_>> {
        let mut waiting = self.waiting.lock().expect("no panic while it is locked");
        let own = waiting.iter().filter(|ip| **ip == from).count();
        if waiting.len() >= HANDSHAKES_MAX || own >= HANDSHAKES_PER_ADDRESS_MAX {
            return None;
        }
        waiting.push(from);
        Some(Place { desk: self, from })
    }

    fn turn_away(&self, from: SocketAddr, why: &str) {
        let mut away = self.away.lock().expect("no panic while it is locked");
        *away = (away.0 + 1, format!("{from}: {why}"));
    }

    /// Report of connections refused since the last report.
    fn turned_away(&self) -> Option<String> {
        let mut away = self.away.lock().expect("no panic while it is locked");
        let (count, last) = std::mem::take(&mut *away);
        match count {
            0 => None,
            1 => Some(last),
            _ => Some(format!("{count} connections refused, the last {last}")),
        }
    }

    /// Reserves the right to measure, released on drop; `None` if it is taken.
    fn turn(&self) -> Option<Turn<'_>> {
        // Two runs at once would measure each other.
        (!self.is_busy.swap(true, Ordering::AcqRel)).then_some(Turn(self))
    }
}

struct Place<'a> {
    desk: &'a Desk,
    from: IpAddr,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.desk.waiting.lock().expect("no panic while it is locked");
        if let Some(at) = waiting.iter().position(|ip| *ip == self.from) {
            waiting.swap_remove(at);
        }
    }
}

struct Turn<'a>(&'a Desk);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.is_busy.store(false, Ordering::Release);
    }
}

/// Authenticated near end that has the right to measure.
struct Guest<'a> {
    lines: Lines,
    near_ip: Ipv4Addr,
    own_ip: Ipv4Addr,
    _turn: Turn<'a>,
}

fn greet<'a>(
    stream: TcpStream,
    from: SocketAddr,
    options: &PeerOptions,
    (desk, host): (&'a Desk, &Host),
    stop: &AtomicBool,
) -> Result<Guest<'a>, PeerError> {
    let broken = |source| PeerError::Broken { source };
    stream.set_nonblocking(false).map_err(broken)?;
    let own = stream.local_addr().map_err(broken)?;
    let mut lines = Lines::new(stream).map_err(broken)?;
    let welcomed = known(&mut lines, options, stop).and_then(|proof| {
        let (IpAddr::V4(near_ip), IpAddr::V4(own_ip)) = (from.ip(), own.ip()) else {
            return Err("only IPv4 is measured".into());
        };
        let turn = desk.turn().ok_or("busy: another near end is measuring")?;
        let host = Some(Box::new(host.facts(near_ip)));
        Ok((Say::Welcome { proof, host }, near_ip, own_ip, turn))
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

impl From<PeerError> for Unwelcome {
    fn from(error: PeerError) -> Self {
        Unwelcome::Failed(error)
    }
}

fn converse(
    guest: Guest<'_>,
    from: SocketAddr,
    host: &Host,
    stop: &AtomicBool,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<(), PeerError> {
    let Guest { mut lines, near_ip, own_ip, _turn } = guest;
    // Its files may be hidden in a container: then the near end gets no time of this host.
    let clock = CpuClock::open().ok();
    while let Some(ask) = await_message(&mut lines, None, stop)? {
        match ask {
            Ask::Stop => lines.send(&Say::Error { why: "no run is in progress".into() })?,
            Ask::Run { task, settings, near_port, port } => {
                let what = format!("{:?} {:?}", task.engine.kind, task.role).to_lowercase();
                tell(&format!("{from}: {what}, {} byte payloads", task.payload_bytes));
                let addresses = Addresses { near_ip, near_port, own_ip, port };
                let around = Around { settings: &settings, host, clock: clock.as_ref() };
                one_run(&mut lines, &task, addresses, &around, stop)?;
            }
        }
    }
    Ok(())
}

/// Authenticates a near end if there is a secret; returns the far end's own proof.
fn known(
    lines: &mut Lines,
    options: &PeerOptions,
    stop: &AtomicBool,
) -> Result<Option<String>, Unwelcome> {
    let ours = challenge().map_err(|source| PeerError::Broken { source })?;
    lines.send(&Hello {
        wirepath_peer: PROTOCOL,
        version: options.version.clone(),
        challenge: ours.clone(),
        secret: options.secret.is_some(),
    })?;
    let closed = || PeerError::Broken { source: io::ErrorKind::UnexpectedEof.into() };
    let answer: Answer = await_message(lines, Some(PATIENCE), stop)?.ok_or_else(closed)?;
    let Some(secret) = &options.secret else { return Ok(None) };
    let given = answer.proof.as_deref().unwrap_or("");
    if !proven(secret, "near", &ours, &answer.challenge, given) {
        return Err("the shared secret is wrong".into());
    }
    Ok(Some(proof(secret, "far", &ours, &answer.challenge)))
}

/// Receives the next message; `None` if the connection is closed or `stop` is set.
///
/// - `within`: time limit; `None` for none.
fn await_message<T: DeserializeOwned>(
    lines: &mut Lines,
    within: Option<Duration>,
    stop: &AtomicBool,
) -> Result<Option<T>, PeerError> {
    let began = Instant::now();
    loop {
        match lines.receive(LOOK) {
            Err(PeerError::Broken { source })
                if matches!(source.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                if stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                if within.is_some_and(|within| began.elapsed() >= within) {
                    return Err(PeerError::Broken { source: io::ErrorKind::TimedOut.into() });
                }
            }
            other => return other,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Addresses {
    near_ip: Ipv4Addr,
    near_port: u16,
    own_ip: Ipv4Addr,
    port: u16,
}

/// Runs one role until the near end stops it or disconnects, or the peer is stopped.
fn one_run(
    lines: &mut Lines,
    task: &Task,
    addresses: Addresses,
    around: &Around<'_>,
    stop_peer: &AtomicBool,
) -> Result<(), PeerError> {
    let cpus = match around.cpus() {
        Ok(cpus) => cpus,
        Err(why) => return lines.send(&Say::Error { why }),
    };
    let (_awake, asleep) = around.stay_awake();
    let meter = around.clock.and_then(|clock| Meter::start(clock, &cpus).ok());
    let stop = AtomicBool::new(false);
    let live = Live::default();
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
            // Reading datagrams needs no capability.
            let given_up = capability::keep(&[]);
            if let Err(why) = given_up {
                let why = format!("cannot drop capabilities: {why}");
                let _ = ready.send(Say::Error { why: why.clone() });
                return Err(why);
            }
            let _ = ready.send(say);
            let mut task = task.clone();
            task.duration = Some(task.duration.unwrap_or(RUN_MAX).min(RUN_MAX));
            let steering = Steering { stop: &stop, live: Some(&live), watch };
            role::run(&mut engine, &task, steering).map_err(|e| chain(&e))
        });
        let say = is_ready.recv().unwrap_or(Say::Error { why: "panicked".into() });
        let failed = matches!(say, Say::Error { .. });
        let mut asked = lines.send(&say).map(|()| None);
        if asked.is_ok() && !failed {
            asked = await_message(lines, None, stop_peer);
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
        match (asked?, report) {
            (None, _) => Ok(()),
            (Some(Ask::Run { .. }), _) => {
                lines.send(&Say::Error { why: "a run is in progress; stop it first".into() })
            }
            (Some(Ask::Stop), Ok(mut report)) => {
                report.engine.not_effective.extend(asleep);
                lines.send(&Say::Report { report: Box::new(report.into()), host_time })
            }
            (Some(Ask::Stop), Err(why)) => lines.send(&Say::Error { why }),
        }
    })
}

fn open(
    task: &Task,
    addresses: Addresses,
) -> Result<(::io::AnyEngine, Option<Watch>, Say), String> {
    task.check().map_err(|e| chain(&e))?;
    if task.engine.receiving == ::io::Receiving::IoUring {
        // The filter would end the process.
        return Err(
            "the far end does not receive by io_uring: its system-call filter cannot check the \
                    requests; use another --receiving"
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
    // A connected socket's queue takes datagrams of this near end alone: others cannot fill it. With
    // several flows the near end sends from several ports.
    let has_one_sender = task.engine.kind == ::io::EngineKind::Udp && task.flows <= 1;
    let sends = task.role.sends() && task.role != ::io::Role::Echo;
    let connect = (sends || has_one_sender).then_some(&remote);
    let engine = ::io::open(&task.setup(&local, connect)).map_err(|e| chain(&e))?;
    let watch = Watch::new(local.ifindex, &local.ifname);
    let say = Say::Ready {
        ip: local.ip,
        port: local.port,
        ifname: local.ifname,
        mode: format!("{:?}", task.engine.kind).to_lowercase(),
    };
    Ok((engine, watch, say))
}
