//! Near end of the control connection.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lab::HostTime;
use model::Machine;
use remote::tcp::{Connection, Handshake, LINE_TIMEOUT, parse_message};
use remote::{Heartbeat, RemoteError};

use super::protocol::{
    Answer, Ask, DEFAULT_PORT, Hello, HostFacts, PROTOCOL, PeerError, Say, Settings,
};
use crate::role::{RoleReport, Task};

/// Time limit for the far end to open its engine, and to close it.
const RUN_TIMEOUT: Duration = Duration::from_secs(15);

/// Connected and authenticated far end.
#[derive(Debug)]
pub struct Far {
    /// During a run.
    heartbeat: Option<Heartbeat>,
    lines: Connection,
    at: SocketAddr,
    host: Option<HostFacts>,
    mtu_bytes: Option<u32>,
    /// Wirepath version of the far end.
    pub version: String,
}

/// Report of the far end about one run.
#[derive(Debug, Clone)]
pub struct FarReport {
    pub role: RoleReport,
    /// CPU time of its host; `None` if it cannot be read there.
    pub host_time: Option<HostTime>,
    /// Causes of packets that it lost, as it tells them.
    pub losses: Vec<String>,
}

/// Far end whose engine is open for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FarReady {
    pub ip: IpAddr,
    /// UDP port.
    pub port: u16,
    pub ifname: String,
    /// Effective mode of its engine.
    pub mode: String,
}

impl Far {
    /// As [`connect_by`](Self::connect_by), by IPv4 where a name has both.
    pub fn connect(host: &str, secret: Option<&str>) -> Result<Self, PeerError> {
        Far::connect_by(host, false, secret)
    }

    /// Connects to `host`, `host:port` or `[address]:port` and authenticates if a secret is given.
    ///
    /// - `ipv6`: IP version that is preferred where a name has addresses of both.
    pub fn connect_by(host: &str, ipv6: bool, secret: Option<&str>) -> Result<Self, PeerError> {
        let at = address(host, ipv6)?;
        Far::connect_to(at, secret).map_err(|error| match error {
            error if error.is_timeout() => error,
            PeerError::Connection(RemoteError::Lost { source }) => PeerError::Closed { at, source },
            error => error,
        })
    }

    fn connect_to(at: SocketAddr, secret: Option<&str>) -> Result<Self, PeerError> {
        let stream = TcpStream::connect_timeout(&at, Duration::from_secs(3))
            .map_err(|source| PeerError::NotThere { at, source })?;
        let mut lines = Connection::new(stream)?;
        let greeting = lines.receive_line(LINE_TIMEOUT)?.ok_or_else(RemoteError::closed)?;
        let hello: Hello = parse_message(&greeting)?;
        if hello.wirepath_peer != PROTOCOL {
            // It says the same of this end.
            let _ = lines.send(&Answer { wirepath_peer: PROTOCOL, handshake: None });
            return Err(PeerError::Version { theirs: hello.wirepath_peer });
        }
        match (hello.secret, secret) {
            (true, None) => {
                return refused(at, "a shared secret is required; give it with --secret-file");
            }
            (false, Some(_)) => {
                return refused(
                    at,
                    "the peer could not prove that it knows the secret: it has none",
                );
            }
            (false, None) => {
                lines.send(&Answer { wirepath_peer: PROTOCOL, handshake: None })?;
            }
            (true, Some(secret)) => {
                let mut handshake =
                    Handshake::near(secret, &greeting).map_err(RemoteError::from)?;
                let first = Some(handshake.write().map_err(RemoteError::from)?);
                lines.send(&Answer { wirepath_peer: PROTOCOL, handshake: first })?;
                match lines.expect(LINE_TIMEOUT)? {
                    Say::Secured { handshake: second } if handshake.read(&second).is_ok() => {
                        lines.encrypt(handshake)?;
                    }
                    Say::Secured { .. } => {
                        return refused(at, "the peer could not prove that it knows the secret");
                    }
                    Say::Error { why } => return refused(at, &why),
                    other => return Err(unexpected(&other)),
                }
            }
        }
        let host = match lines.expect(LINE_TIMEOUT)? {
            Say::Welcome { host } => host,
            Say::Error { why } => return refused(at, &why),
            other => return Err(unexpected(&other)),
        };
        lines.trust();
        let host =
            host.map(|host| HostFacts { machine: lab::machine_of_far_end(host.machine), ..*host });
        Ok(Far { heartbeat: None, lines, at, host, mtu_bytes: None, version: hello.version })
    }

    /// The far machine, as it describes itself; `None` if it does not.
    pub fn machine(&self) -> Option<&Machine> {
        self.host.as_ref().map(|host| &host.machine)
    }

    /// True if the far end runs on this machine.
    pub fn is_here(&self) -> bool {
        let theirs = self.host.as_ref().and_then(|host| host.boot_id.as_deref());
        theirs.is_some() && theirs == lab::boot_id().as_deref()
    }

    pub fn address(&self) -> SocketAddr {
        self.at
    }

    /// MTU of its interface in the last run; `None` before, or if it does not report it.
    pub fn mtu_bytes(&self) -> Option<u32> {
        self.mtu_bytes
    }

    /// Requests that the far end opens its engine and starts its role.
    ///
    /// - `near_port`: UDP port of the near end.
    pub fn prepare(
        &mut self,
        task: &Task,
        settings: &Settings,
        near_port: u16,
        port: u16,
    ) -> Result<FarReady, PeerError> {
        let (task, settings) = (Box::new(task.clone()), settings.clone());
        self.lines.send(&Ask::Run { task, settings, near_port, port })?;
        match self.lines.expect(RUN_TIMEOUT)? {
            Say::Ready { ip, port, ifname, mode, mtu_bytes } => {
                self.mtu_bytes = mtu_bytes;
                self.heartbeat = Some(self.lines.heartbeat()?);
                Ok(FarReady { ip, port, ifname, mode })
            }
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
        let end = || stop.store(true, Ordering::Relaxed);
        Ok(self.lines.watch(
            || {
                if asked() {
                    end()
                }
            },
            end,
            body,
        )?)
    }

    /// Ends the run and returns the far end's report.
    pub fn stop(&mut self) -> Result<FarReport, PeerError> {
        self.heartbeat = None;
        let sent = self.lines.send(&Ask::Stop);
        // A far end that ended the session before has said why.
        let reply = self.lines.expect(RUN_TIMEOUT);
        match reply.map_err(|error| sent.err().unwrap_or(error))? {
            Say::Report { report, host_time, losses } => {
                Ok(FarReport { role: (*report).try_into()?, host_time, losses })
            }
            Say::Error { why } => Err(PeerError::Far { why }),
            other => Err(unexpected(&other)),
        }
    }
}

fn refused<T>(at: SocketAddr, why: &str) -> Result<T, PeerError> {
    Err(PeerError::Refused { at, why: why.to_owned() })
}

fn unexpected(say: &Say) -> PeerError {
    PeerError::invalid(format!("unexpected reply {say:?}"))
}

fn address(host: &str, ipv6: bool) -> Result<SocketAddr, PeerError> {
    let literal = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    if let Ok(ip) = literal.parse::<IpAddr>() {
        return Ok((ip, DEFAULT_PORT).into());
    }
    let found = match host.rsplit_once(':') {
        Some(_) => host.to_socket_addrs(),
        None => (host, DEFAULT_PORT).to_socket_addrs(),
    };
    let nearest = found.ok().and_then(|found| found.min_by_key(|at| at.is_ipv6() != ipv6));
    nearest.ok_or_else(|| PeerError::Unknown { host: host.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_named_by_addresses_of_both_ip_versions_with_and_without_a_port() {
        for (host, expected) in [
            ("192.0.2.7", Some("192.0.2.7:7117")),
            ("192.0.2.7:80", Some("192.0.2.7:80")),
            ("fd00::2", Some("[fd00::2]:7117")),
            ("[fd00::2]", Some("[fd00::2]:7117")),
            ("[fd00::2]:80", Some("[fd00::2]:80")),
            ("[fd00::2", None),
            ("fd00::2]:80", None),
            ("192.0.2.7:x", None),
        ] {
            let found = address(host, false).map(|at| at.to_string()).ok();
            assert_eq!(found.as_deref(), expected, "{host}");
        }
    }
}
