//! The far end.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use ::io::capability::{self, Capability};
use ::io::thread::start;
use serde::de::DeserializeOwned;

use super::protocol::{
    Answer, Ask, Hello, Lines, PATIENCE, PROTOCOL, PeerError, Say, challenge, proof, proven,
};
use crate::probe::endpoint::{self, Choice};
use crate::probe::role::{self, Live, RoleReport, Steering, Task, drain};
use crate::probe::watch::Watch;

/// How long a run may take at most, and how many datagrams it may send.
const RUN_MAX: Duration = Duration::from_secs(24 * 3600);
/// How often the listener looks at its stop flag, and at its door.
const LOOK: Duration = Duration::from_millis(50);
/// Connections that are taken at a look. More wait or are turned away by the kernel, so that a
/// crowd at the door costs a run under way next to nothing.
const TAKEN_PER_LOOK_MAX: usize = 32;
/// Handshakes under way at most, of all addresses and of one; the rest are hung up on.
const HANDSHAKES_MAX: usize = 32;
const HANDSHAKES_PER_ADDRESS_MAX: usize = 8;
/// How often it is told how many were turned away: whoever knocks does not fill a log.
const TELL_PAUSE: Duration = Duration::from_secs(1);

/// What opening an engine for a near end may take.
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
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Secret that near ends must prove.
    pub secret: Option<String>,
    /// Wirepath's version, told to near ends.
    pub version: String,
}

/// Serves near ends, one at a time, until `stop`. `tell` gets a line for each event.
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
    capability::keep(RUNS_NEED).map_err(confine)?;
    #[cfg(target_arch = "x86_64")]
    io_engine::Confinement::of_peer().and_then(|filter| filter.enter()).map_err(confine)?;
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
                        // As long as no descriptor is left: no line for each look.
                        desk.turn_away(at, &format!("accept failed: {e}"));
                        break;
                    }
                };
                let Some(place) = desk.place_for(from.ip()) else {
                    desk.turn_away(from, "too many handshakes at once");
                    continue;
                };
                let desk = &desk;
                let seen_to = start(scope, "near", move || {
                    match greet(stream, from, options, desk, stop) {
                        Ok(guest) => {
                            drop(place);
                            match converse(guest, from, stop, tell) {
                                Ok(()) => tell(&format!("{from} is done")),
                                Err(e) => tell(&format!("{from}: {}", crate::text::chain(&e))),
                            }
                        }
                        Err(e) => desk.turn_away(from, &crate::text::chain(&e)),
                    }
                    Ok(())
                });
                // Who finds no thread to see to it finds the door closed; the next may find one.
                if let Some(why) = seen_to.refused() {
                    desk.turn_away(from, why);
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

/// Who is being seen to.
#[derive(Debug, Default)]
struct Desk {
    /// Whether a near end is measuring.
    is_busy: AtomicBool,
    /// Addresses whose handshakes are under way.
    waiting: Mutex<Vec<IpAddr>>,
    /// How many were turned away since that was told, and the last of them with the reason.
    away: Mutex<(u64, String)>,
}

impl Desk {
    /// A place in which to show who one is, if there is one left.
    fn place_for(&self, from: IpAddr) -> Option<Place<'_>> {
        let mut waiting = self.waiting.lock().expect("nobody panics with it");
        let own = waiting.iter().filter(|ip| **ip == from).count();
        if waiting.len() >= HANDSHAKES_MAX || own >= HANDSHAKES_PER_ADDRESS_MAX {
            return None;
        }
        waiting.push(from);
        Some(Place { desk: self, from })
    }

    fn turn_away(&self, from: SocketAddr, why: &str) {
        let mut away = self.away.lock().expect("nobody panics with it");
        *away = (away.0 + 1, format!("{from}: {why}"));
    }

    /// A line on those who were turned away since the last such line.
    fn turned_away(&self) -> Option<String> {
        let mut away = self.away.lock().expect("nobody panics with it");
        let (count, last) = std::mem::take(&mut *away);
        match count {
            0 => None,
            1 => Some(last),
            _ => Some(format!("{count} turned away, the last {last}")),
        }
    }

    /// The only right to measure, given back when dropped.
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
        let mut waiting = self.desk.waiting.lock().expect("nobody panics with it");
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

/// A near end that has shown who it is, and whose turn it is.
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
    desk: &'a Desk,
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
        Ok((Say::Welcome { proof }, near_ip, own_ip, turn))
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

/// Why a near end does not get in.
enum Unwelcome {
    /// It is told why.
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
    stop: &AtomicBool,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<(), PeerError> {
    let Guest { mut lines, near_ip, own_ip, _turn } = guest;
    while let Some(ask) = await_message(&mut lines, None, stop)? {
        match ask {
            Ask::Stop => lines.send(&Say::Error { why: "nothing runs".into() })?,
            Ask::Run { task, near_port, port } => {
                let what = format!("{:?} {:?}", task.engine.kind, task.role).to_lowercase();
                tell(&format!("{from}: {what}, {} byte payloads", task.payload_bytes));
                one_run(&mut lines, &task, Addresses { near_ip, near_port, own_ip, port }, stop)?;
            }
        }
    }
    Ok(())
}

/// Has a near end prove the secret, if there is one, in time; gives our own proof.
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

/// The next message, `within` so long if that is given, or `None` at the end of the connection or
/// of the peer.
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

/// Runs one role until the near end stops it, goes away, or the peer is stopped.
fn one_run(
    lines: &mut Lines,
    task: &Task,
    addresses: Addresses,
    stop_peer: &AtomicBool,
) -> Result<(), PeerError> {
    let stop = AtomicBool::new(false);
    let live = Live::default();
    let (ready, is_ready) = mpsc::sync_channel::<Say>(1);
    thread::scope(|scope| {
        let running = start(scope, "run", || -> Result<RoleReport, String> {
            // Gone with the thread, however that ends: nobody waits for it then.
            let ready = ready;
            let opened = open(task, addresses);
            let (mut engine, watch, say) = match opened {
                Ok(opened) => opened,
                Err(why) => {
                    let _ = ready.send(Say::Error { why: why.clone() });
                    return Err(why);
                }
            };
            // Datagrams are read without a right that reading them does not need.
            let given_up = capability::keep(&[]);
            if let Err(why) = given_up {
                let why = format!("rights could not be given up: {why}");
                let _ = ready.send(Say::Error { why: why.clone() });
                return Err(why);
            }
            let _ = ready.send(say);
            let mut task = task.clone();
            task.duration = Some(task.duration.unwrap_or(RUN_MAX).min(RUN_MAX));
            role::run(&mut engine, &task, Steering { stop: &stop, live: Some(&live), watch })
        });
        let say = is_ready.recv().unwrap_or(Say::Error { why: "panicked".into() });
        let failed = matches!(say, Say::Error { .. });
        let mut asked = lines.send(&say).map(|()| None);
        if asked.is_ok() && !failed {
            asked = await_message(lines, None, stop_peer);
        }
        // Whatever ended it, the run ends: nothing is sent for a near end that has gone.
        if matches!(asked, Ok(Some(Ask::Stop))) {
            drain(&live);
        }
        stop.store(true, Ordering::Relaxed);
        let report = running.end();
        if failed {
            return Ok(());
        }
        match (asked?, report) {
            (None, _) => Ok(()),
            (Some(Ask::Run { .. }), _) => {
                lines.send(&Say::Error { why: "a run is still on; stop it first".into() })
            }
            (Some(Ask::Stop), Ok(report)) => {
                lines.send(&Say::Report { report: Box::new(report.into()) })
            }
            (Some(Ask::Stop), Err(why)) => lines.send(&Say::Error { why }),
        }
    })
}

fn open(
    task: &Task,
    addresses: Addresses,
) -> Result<(io_engine::AnyEngine, Option<Watch>, Say), String> {
    task.check()?;
    if task.session.is_none() {
        // An echo that follows whoever sends would answer addresses that never asked.
        return Err("a run over the network names its session".into());
    }
    let Addresses { near_ip, near_port, own_ip, port } = addresses;
    let choice = Choice { ifname: None, queue: 0, port };
    let (local, remote) =
        endpoint::towards(near_ip, near_port, &choice).map_err(|e| crate::text::chain(&e))?;
    if local.ip != own_ip && !own_ip.is_loopback() {
        return Err(format!(
            "the way back to {near_ip} begins at {} and not at {own_ip}, where the near end sends",
            local.ip
        ));
    }
    let remote = task.role.sends().then_some(&remote);
    let connect = (task.role != io_engine::Role::Echo).then_some(remote).flatten();
    let engine =
        io_engine::open(&task.setup(&local, connect)).map_err(|e| crate::text::chain(&e))?;
    let watch = Watch::new(local.ifindex, &local.ifname);
    let say = Say::Ready {
        ip: local.ip,
        port: local.port,
        ifname: local.ifname,
        mode: format!("{:?}", task.engine.kind).to_lowercase(),
    };
    Ok((engine, watch, say))
}

/// The crate of engines; `io` alone would read as the standard library's here.
use ::io as io_engine;
