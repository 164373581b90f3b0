//! Near end of the control connection.

use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::protocol::{
    Answer, Ask, DEFAULT_PORT, Hello, Lines, PATIENCE, PROTOCOL, PeerError, Say, challenge, proof,
    proven,
};
use crate::role::{RoleReport, Task};

/// Time limit for the far end to open its engine, and to close it.
const RUN_PATIENCE: Duration = Duration::from_secs(15);

/// Connected and authenticated far end.
#[derive(Debug)]
pub struct Far {
    lines: Lines,
    at: SocketAddr,
    /// Wirepath version of the far end.
    pub version: String,
}

/// Far end whose engine is open for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FarReady {
    pub ip: Ipv4Addr,
    /// UDP port.
    pub port: u16,
    pub ifname: String,
    /// Effective mode of its engine.
    pub mode: String,
}

impl Far {
    /// Connects to `host` or `host:port` and authenticates if a secret is given.
    pub fn connect(host: &str, secret: Option<&str>) -> Result<Self, PeerError> {
        let at = address(host)?;
        let stream = TcpStream::connect_timeout(&at, Duration::from_secs(3))
            .map_err(|source| PeerError::NotThere { at, source })?;
        let mut lines = Lines::new(stream).map_err(|source| PeerError::Broken { source })?;
        let hello: Hello = lines.expect(PATIENCE)?;
        if hello.wirepath_peer != PROTOCOL {
            return Err(PeerError::Version { theirs: hello.wirepath_peer });
        }
        if hello.secret && secret.is_none() {
            let why = "a shared secret is required; give it with --secret-file".to_owned();
            return Err(PeerError::Refused { at, why });
        }
        let ours = challenge().map_err(|source| PeerError::Broken { source })?;
        let near = secret.map(|s| proof(s, "near", &hello.challenge, &ours));
        lines.send(&Answer { challenge: ours.clone(), proof: near })?;
        match (lines.expect(PATIENCE)?, secret) {
            (Say::Welcome { .. }, None) => {}
            (Say::Welcome { proof: Some(far) }, Some(secret))
                if proven(secret, "far", &hello.challenge, &ours, &far) => {}
            (Say::Welcome { .. }, Some(_)) => {
                let why = "the peer could not prove that it knows the secret".to_owned();
                return Err(PeerError::Refused { at, why });
            }
            (Say::Error { why }, _) => return Err(PeerError::Refused { at, why }),
            (other, _) => return Err(unexpected(&other)),
        }
        lines.trust();
        Ok(Far { lines, at, version: hello.version })
    }

    pub fn address(&self) -> SocketAddr {
        self.at
    }

    /// Requests that the far end opens its engine and starts its role.
    ///
    /// - `near_port`: UDP port of the near end.
    pub fn prepare(
        &mut self,
        task: &Task,
        near_port: u16,
        port: u16,
    ) -> Result<FarReady, PeerError> {
        self.lines.send(&Ask::Run { task: task.clone(), near_port, port })?;
        match self.lines.expect(RUN_PATIENCE)? {
            Say::Ready { ip, port, ifname, mode } => Ok(FarReady { ip, port, ifname, mode }),
            Say::Error { why } => Err(PeerError::Far { why }),
            other => Err(unexpected(&other)),
        }
    }

    /// Runs `body`, the near end's part of a run. Sets `stop` when `asked` returns true, and when
    /// the far end closes the connection, so that nothing is sent to a host that stopped listening.
    pub fn watch<R>(
        &self,
        stop: &AtomicBool,
        asked: impl Fn() -> bool + Sync,
        body: impl FnOnce() -> R,
    ) -> Result<R, PeerError> {
        let set = || stop.store(true, Ordering::Relaxed);
        let tick = || {
            if asked() {
                set();
            }
        };
        self.lines.watch(tick, set, body).map_err(|source| PeerError::Broken { source })
    }

    /// Ends the run and returns the far end's report.
    pub fn stop(&mut self) -> Result<RoleReport, PeerError> {
        self.lines.send(&Ask::Stop)?;
        match self.lines.expect(RUN_PATIENCE)? {
            Say::Report { report } => (*report).try_into(),
            Say::Error { why } => Err(PeerError::Far { why }),
            other => Err(unexpected(&other)),
        }
    }
}

fn unexpected(say: &Say) -> PeerError {
    PeerError::Garbled { what: format!("unexpected reply {say:?}") }
}

fn address(host: &str) -> Result<SocketAddr, PeerError> {
    let found = match host.rsplit_once(':') {
        Some(_) => host.to_socket_addrs(),
        None => (host, DEFAULT_PORT).to_socket_addrs(),
    };
    let unknown = || PeerError::Unknown { host: host.to_owned() };
    found.map_err(|_| unknown())?.find(SocketAddr::is_ipv4).ok_or_else(unknown)
}
