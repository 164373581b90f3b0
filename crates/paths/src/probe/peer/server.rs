//! The far end.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::protocol::{
    Answer, Ask, Hello, Lines, PATIENCE, PROTOCOL, PeerError, Say, challenge, proof, proven,
};
use crate::probe::endpoint::{self, Choice};
use crate::probe::role::{self, Live, RoleReport, Steering, Task, drain};
use crate::probe::watch::Watch;

/// How long a run may take at most, and how many datagrams it may send.
const RUN_MAX: Duration = Duration::from_secs(24 * 3600);
/// How often the listener looks at its stop flag.
const LOOK: Duration = Duration::from_millis(50);

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
    let listen = |source| PeerError::Listen { at, source };
    let listener = TcpListener::bind(at).map_err(listen)?;
    listener.set_nonblocking(true).map_err(listen)?;
    tell(&format!("listening on {}", listener.local_addr().unwrap_or(at)));
    let busy = AtomicBool::new(false);
    thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            let (stream, from) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    thread::sleep(LOOK);
                    continue;
                }
                Err(e) => {
                    tell(&format!("accept failed: {e}"));
                    thread::sleep(LOOK);
                    continue;
                }
            };
            if busy.swap(true, Ordering::AcqRel) {
                // Two runs at once would measure each other.
                refuse(stream, "busy: another near end is measuring");
                continue;
            }
            let busy = &busy;
            scope.spawn(move || {
                match converse(stream, from, options, stop, tell) {
                    Ok(()) => tell(&format!("{from} is done")),
                    Err(e) => tell(&format!("{from}: {}", crate::text::chain(&e))),
                }
                busy.store(false, Ordering::Release);
            });
        }
    });
    Ok(())
}

fn refuse(stream: TcpStream, why: &str) {
    if stream.set_nonblocking(false).is_err() {
        return;
    }
    if let Ok(mut lines) = Lines::new(stream) {
        let hello = Hello {
            wirepath_peer: PROTOCOL,
            version: String::new(),
            challenge: String::new(),
            secret: false,
        };
        // The near end learns why, or has gone; both are fine.
        let _ = lines.send(&hello).and_then(|()| lines.send(&Say::Error { why: why.to_owned() }));
    }
}

fn converse(
    stream: TcpStream,
    from: SocketAddr,
    options: &PeerOptions,
    stop: &AtomicBool,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<(), PeerError> {
    let broken = |source| PeerError::Broken { source };
    stream.set_nonblocking(false).map_err(broken)?;
    let own = stream.local_addr().map_err(broken)?;
    let mut lines = Lines::new(stream).map_err(broken)?;
    let ours = challenge().map_err(broken)?;
    lines.send(&Hello {
        wirepath_peer: PROTOCOL,
        version: options.version.clone(),
        challenge: ours.clone(),
        secret: options.secret.is_some(),
    })?;
    let answer: Answer = lines.expect()?;
    let own_proof = match &options.secret {
        None => None,
        Some(secret) => {
            let given = answer.proof.as_deref().unwrap_or("");
            if !proven(secret, "near", &ours, &answer.challenge, given) {
                let why = "the shared secret is wrong".to_owned();
                lines.send(&Say::Error { why: why.clone() })?;
                return Err(PeerError::Refused { at: from, why });
            }
            Some(proof(secret, "far", &ours, &answer.challenge))
        }
    };
    lines.send(&Say::Welcome { proof: own_proof })?;
    let (IpAddr::V4(near_ip), IpAddr::V4(own_ip)) = (from.ip(), own.ip()) else {
        let why = "only IPv4 is measured".to_owned();
        return lines.send(&Say::Error { why });
    };
    lines.set_patience(None);
    while let Some(ask) = next_ask(&mut lines, stop)? {
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

/// The next request, or `None` at the end of the connection or of the peer.
fn next_ask(lines: &mut Lines, stop: &AtomicBool) -> Result<Option<Ask>, PeerError> {
    lines.set_patience(Some(LOOK));
    loop {
        match lines.receive() {
            Err(PeerError::Broken { source })
                if matches!(source.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                if stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
            }
            other => {
                lines.set_patience(Some(PATIENCE));
                return other;
            }
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
        let running = scope.spawn(|| -> Result<RoleReport, String> {
            let opened = open(task, addresses);
            let (mut engine, watch, say) = match opened {
                Ok(opened) => opened,
                Err(why) => {
                    let _ = ready.send(Say::Error { why: why.clone() });
                    return Err(why);
                }
            };
            let _ = ready.send(say);
            let mut task = task.clone();
            task.duration = Some(task.duration.unwrap_or(RUN_MAX).min(RUN_MAX));
            role::run(&mut engine, &task, Steering { stop: &stop, live: Some(&live), watch })
        });
        let say = is_ready.recv().unwrap_or(Say::Error { why: "panicked".into() });
        let failed = matches!(say, Say::Error { .. });
        let mut asked = lines.send(&say).map(|()| None);
        if asked.is_ok() && !failed {
            asked = next_ask(lines, stop_peer);
        }
        // Whatever ended it, the run ends: nothing is sent for a near end that has gone.
        if matches!(asked, Ok(Some(Ask::Stop))) {
            drain(&live);
        }
        stop.store(true, Ordering::Relaxed);
        let report = running.join().unwrap_or_else(|_| Err("panicked".into()));
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
