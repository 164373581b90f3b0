//! Measurement of pairs of namespaces: an echo in each, and a ping at a time.

use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use fleet::mesh::{Cell, Pair};
use lab::address_between;
use serde_json::Value;
use sys::child::{Child, Place};
use sys::netns::Netns;

use super::super::hosts::Host;
use crate::exit::Failure;
use crate::signals;

/// Limit for the start of an echo, and for one ping beyond its own time.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// Port of the echoes, as the kernel's table of sockets has it.
const PORT_IN_HEX: &str = ":2328 ";

/// Hosts of a mesh, each with its echo.
pub(super) struct Mesh {
    hosts: Vec<Member>,
    /// Round trips of one measurement.
    count: u32,
}

struct Member {
    name: String,
    netns: Netns,
    /// Ends with this.
    echo: Child,
}

impl Mesh {
    pub(super) fn open(hosts: &[Host], count: u32) -> Result<Self, Failure> {
        let hosts = hosts.iter().map(Member::open).collect::<Result<Vec<Member>, Failure>>()?;
        for member in &hosts {
            member.await_echo()?;
        }
        Ok(Mesh { hosts, count })
    }

    /// Starts echoes that have ended again.
    pub(super) fn revive(&mut self) -> Result<(), Failure> {
        for member in &mut self.hosts {
            if member.echo.wait(Duration::ZERO)?.is_some() {
                member.echo = probe(&["echo"], &member.netns)?;
                member.await_echo()?;
            }
        }
        Ok(())
    }

    /// Measures a pair, the first one pings.
    pub(super) fn measure(&mut self, (near, far): Pair) -> Result<Cell, Failure> {
        let (near, far) = (&self.hosts[near], &self.hosts[far]);
        match address_between(&near.netns, &far.netns, &far.name) {
            Ok(address) => near.ping(address, self.count),
            Err(error) => Ok(failed(host::text::chain(&error))),
        }
    }
}

fn failed(why: String) -> Cell {
    Cell { why: Some(why), ..Cell::default() }
}

/// This program in a namespace, with these arguments of `probe`.
fn probe(arguments: &[&str], netns: &Netns) -> Result<Child, Failure> {
    // The image of this process, also after its file was replaced.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("wirepath").arg("probe").args(arguments);
    Ok(Child::spawn(command, &Place { netns: Some(netns), cpus: &[] })?)
}

impl Member {
    fn open(host: &Host) -> Result<Self, Failure> {
        let netns = host.netns()?.map_or_else(Netns::current, Ok)?;
        let echo = probe(&["echo"], &netns)?;
        Ok(Member { name: host.to_string(), netns, echo })
    }

    /// Waits until the echo has its socket.
    fn await_echo(&self) -> Result<(), Failure> {
        let until = Instant::now() + PATIENCE;
        let table = format!("/proc/{}/net/udp", self.echo.pid());
        while Instant::now() < until && !signals::stop_requested() {
            if std::fs::read_to_string(&table).is_ok_and(|table| table.contains(PORT_IN_HEX)) {
                return Ok(());
            }
            std::thread::sleep(LOOK / 5);
        }
        let said = self.echo.stderr_so_far();
        let said = String::from_utf8_lossy(&said);
        Err(Failure::failed(format!(
            "{}: no echo on UDP port 9000: {}; is the port in use there?",
            self.name,
            said.trim()
        )))
    }

    fn ping(&self, address: IpAddr, count: u32) -> Result<Cell, Failure> {
        let (address, count) = (address.to_string(), count.to_string());
        let arguments = ["ping", &address, "--no-peer", "-c", &count, "--json"];
        let mut child = probe(&arguments, &self.netns)?;
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(ended) = child.wait(LOOK)? {
                let said = String::from_utf8_lossy(&ended.stderr);
                return Ok(match ended.status.success() {
                    true => cell(&ended.stdout),
                    false => failed(said.trim().to_owned()),
                });
            }
            if signals::stop_requested() {
                return Err(Failure::failed("interrupted"));
            }
            if Instant::now() >= until {
                return Ok(failed(format!("no end within {} s", PATIENCE.as_secs())));
            }
        }
    }
}

/// Reads the document of `probe ping --json`.
fn cell(document: &[u8]) -> Cell {
    let Ok(document) = serde_json::from_slice::<Value>(document) else {
        return failed("its document cannot be read".into());
    };
    let p50 = &document["metrics"]["rtt_ns_p50"];
    let count = |name: &str| document["deliveries"]["round-trip"][name].as_u64();
    let (Some(sent), Some(lost)) = (count("sent_count"), count("lost_count")) else {
        return failed("its document has no counts".into());
    };
    let why = match sent > 0 && lost >= sent {
        true => Some("no answer".to_owned()),
        false => p50["refused"].as_str().filter(|_| lost == 0).map(str::to_owned),
    };
    Cell { rtt_ns: p50["value"].as_f64(), sent, lost, why }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(p50: Value, sent: u64, lost: u64) -> Cell {
        let counts = json!({ "sent_count": sent, "lost_count": lost });
        let document =
            json!({ "metrics": { "rtt_ns_p50": p50 }, "deliveries": { "round-trip": counts } });
        cell(document.to_string().as_bytes())
    }

    #[test]
    fn losses_are_counted_and_silence_is_a_failure() {
        let found = of(json!({ "value": 7.0 }), 200, 3);
        assert_eq!(found, Cell { rtt_ns: Some(7.0), sent: 200, lost: 3, why: None });
        let refused = of(json!({ "refused": "too few" }), 20, 15);
        assert_eq!((refused.rtt_ns, refused.lost, refused.why), (None, 15, None));
        assert_eq!(of(json!({}), 200, 200).why.as_deref(), Some("no answer"));
        assert!(cell(b"x").why.is_some() && cell(b"{}").why.is_some());
    }
}
