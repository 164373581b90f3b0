//! Servers whose port and readiness are found by starting each once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host::netns::Netns;
use lab::program::{self, Program, ProgramError, ServerSocket, Transport};
use lab::{Pair, PairSpec};
use model::PathError;

use crate::At;
use crate::turn::TrialTurn;
use crate::variables::{WireEnd, variables};

/// Time for which the sockets of a server must stay the same.
const STILL_TIME: Duration = Duration::from_millis(300);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Time for a server to listen.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);
const STOP_GRACE: Duration = Duration::from_secs(2);
/// $WIREPATH_PORT of servers that are told their port.
const SCOUT_PORT: u16 = 9000;

/// A server to look at.
#[derive(Debug, Clone, Copy)]
pub struct ServerCommand<'a> {
    pub name: &'a str,
    pub command: &'a str,
}

/// Facts about the servers of an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServersSeen {
    pub transport: Transport,
    pub port: u16,
    /// True if a server is reached only from its own namespace.
    pub is_loopback: bool,
    /// Longest time until a server listened.
    pub ready: Duration,
}

/// Starts each server once in a lab, and looks for the sockets at which it waits for clients.
///
/// - `client`: its command line; a port that it names is preferred.
///
/// Errors: a server ended, or listens on no port, or they have none in common.
pub fn scout(
    servers: &[ServerCommand<'_>],
    client: &str,
    stop: &AtomicBool,
) -> Result<ServersSeen, PathError> {
    let pair = Pair::new(&PairSpec::default()).map_err(PathError::part)?;
    let ends = [&pair.near, &pair.far]
        .map(|end| WireEnd { ip: end.ip.into(), interface: end.ifname.clone() });
    let mut seen: Vec<(Vec<ServerSocket>, Duration)> = Vec::new();
    for server in servers {
        let turn = TrialTurn {
            name: server.name.to_owned(),
            variable: server.name.to_owned(),
            command: server.command.to_owned(),
            env: Vec::new(),
            near_env: Vec::new(),
            switches: Vec::new(),
            number: 0,
            port: SCOUT_PORT,
            is_fresh: false,
        };
        let env = variables(At::Far, &ends[0], &ends[1], &turn);
        let found = look(server, env, &pair.far.netns, stop)
            .map_err(|error| PathError::at(server.name, host::text::chain(&error)))?;
        seen.push(found);
    }
    let ready = seen.iter().map(|(_, ready)| *ready).max().unwrap_or_default();
    let found: Vec<Vec<ServerSocket>> = seen.into_iter().map(|(listeners, _)| listeners).collect();
    let (transport, port) = common_port(&found, client).ok_or_else(|| different_ports(&found))?;
    if let Some(named) = named_port(client).filter(|named| !listen_on(&found, *named)) {
        return Err(PathError::Invalid {
            what: format!(
                "the client names port {named}, and the servers listen on {transport} {port}"
            ),
            remedy: "correct one of them".into(),
        });
    }
    let is_loopback = found.iter().any(|of| is_loopback(of, transport, port));
    Ok(ServersSeen { transport, port, is_loopback, ready })
}

/// Starts a server, waits until its sockets stand still, and ends it.
fn look(
    server: &ServerCommand<'_>,
    env: Vec<(String, String)>,
    netns: &Netns,
    stop: &AtomicBool,
) -> Result<(Vec<ServerSocket>, Duration), ProgramError> {
    let folder = std::env::current_dir().map_err(|source| ProgramError::Io {
        name: server.name.to_owned(),
        what: "find the working directory",
        source,
    })?;
    let program = Program::start(&program::ProgramSpec {
        command: server.command,
        env,
        netns: Some(netns),
        cpus: &[],
        folder: &folder,
        name: "server",
    })?;
    let started = Instant::now();
    let mut last: Vec<ServerSocket> = Vec::new();
    let mut changed = started;
    loop {
        if !program.is_running()? {
            return Err(program.ended_unused());
        }
        if stop.load(Ordering::Relaxed) {
            return Err(ProgramError::Interrupted { name: "server".into() });
        }
        let now = program.listeners();
        if now != last {
            (last, changed) = (now, Instant::now());
        } else if !last.is_empty() && changed.elapsed() >= STILL_TIME {
            program.stop(STOP_GRACE)?;
            return Ok((last, changed - started));
        }
        if last.is_empty() && started.elapsed() >= LISTEN_TIMEOUT {
            return Err(ProgramError::Elsewhere {
                why: format!(
                    "it listens on no port after {} s; give --ready line:REGEX, file:PATH or sleep:MS",
                    LISTEN_TIMEOUT.as_secs()
                ),
            });
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Port that all servers have: the one that the client names, else the first of TCP, else of UDP.
fn common_port(servers: &[Vec<ServerSocket>], client: &str) -> Option<(Transport, u16)> {
    let (first, others) = servers.split_first()?;
    let mut common: Vec<(Transport, u16)> =
        first.iter().map(|listener| (listener.transport, listener.port)).collect();
    common
        .retain(|of| others.iter().all(|other| other.iter().any(|l| (l.transport, l.port) == *of)));
    let named = common.iter().find(|(_, port)| names_number(client, *port));
    named.or(common.first()).copied()
}

fn listen_on(servers: &[Vec<ServerSocket>], port: u16) -> bool {
    servers.iter().all(|listeners| listeners.iter().any(|listener| listener.port == port))
}

fn different_ports(servers: &[Vec<ServerSocket>]) -> PathError {
    let ports: Vec<String> = servers.iter().map(|listeners| ports_text(listeners)).collect();
    PathError::Invalid {
        what: format!(
            "the servers listen on different ports ({}), and one client is to measure both",
            ports.join("; ")
        ),
        remedy: "write '$WIREPATH_PORT' in place of the port in both commands and in the client's, in single quotes"
            .into(),
    }
}

/// Hosts in whose words a number behind a colon is a port.
const HOSTS: [&str; 4] = ["localhost:", "127.0.0.1:", "[::1]:", "WIREPATH_FAR:"];

/// Port that a client's line names by a URL or by `-p` and `--port`.
fn named_port(client: &str) -> Option<u16> {
    let of_host = HOSTS.iter().find_map(|host| client.split_once(host)).map(|(_, rest)| rest);
    let words: Vec<&str> = client.split_whitespace().collect();
    let mut pairs = words.windows(2);
    let of_option = pairs.find(|pair| matches!(pair[0], "-p" | "--port")).map(|pair| pair[1]);
    let text = of_host.or(of_option)?;
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// True if the text has a number that is no part of a longer one.
fn names_number(text: &str, number: u16) -> bool {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    numbers.any(|word| word.parse() == Ok(number))
}

fn is_loopback(listeners: &[ServerSocket], transport: Transport, port: u16) -> bool {
    let of_port = listeners.iter().filter(|l| l.transport == transport && l.port == port);
    of_port.map(|listener| listener.address).all(|address| address.to_canonical().is_loopback())
}

/// `TCP 80 and 443`.
fn ports_text(listeners: &[ServerSocket]) -> String {
    let mut ports: Vec<String> = listeners
        .iter()
        .map(|listener| format!("{} {}", listener.transport, listener.port))
        .collect();
    ports.dedup();
    ports.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(transport: Transport, port: u16, address: &str) -> ServerSocket {
        ServerSocket { transport, port, address: address.parse().unwrap() }
    }

    #[test]
    fn the_port_of_the_client_is_preferred_then_the_first_common_one() {
        let web = vec![
            listener(Transport::Tcp, 80, "0.0.0.0"),
            listener(Transport::Tcp, 443, "::"),
            listener(Transport::Udp, 443, "0.0.0.0"),
        ];
        let both = [web.clone(), web.clone()];
        assert_eq!(common_port(&both, "wrk https://x:443/"), Some((Transport::Tcp, 443)));
        assert_eq!(common_port(&both, "wrk https://x:4430/"), Some((Transport::Tcp, 80)));
        let other = vec![listener(Transport::Tcp, 8080, "0.0.0.0")];
        assert_eq!(common_port(&[web, other], "wrk"), None);
    }

    #[test]
    fn the_port_of_a_client_is_that_of_its_url_or_option() {
        for (client, port) in [
            ("wrk -d1s http://localhost:8080/x", Some(8080)),
            ("redis-benchmark -q -p 6391", Some(6391)),
            ("./bench 'http://$WIREPATH_FAR:81/'", Some(81)),
            ("ab -p body.txt http://localhost/", None),
            ("./bench --at 12:30", None),
        ] {
            assert_eq!(named_port(client), port, "{client}");
        }
    }

    #[test]
    fn a_server_is_on_the_loopback_if_no_other_address_has_its_port() {
        let of = [listener(Transport::Tcp, 80, "127.0.0.1"), listener(Transport::Tcp, 80, "::1")];
        assert!(is_loopback(&of, Transport::Tcp, 80));
        let open = [of[0], listener(Transport::Tcp, 80, "::")];
        assert!(!is_loopback(&open, Transport::Tcp, 80));
    }
}
