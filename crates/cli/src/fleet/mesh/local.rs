//! A host of this machine in a mesh: its echo, and its pings.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use fleet::mesh::Cell;
use remote::Failure;
use serde_json::Value;
use sys::child::{Child, Finished, Place, this_program};
use sys::netns::Netns;

use crate::signals;

/// Limit for the start of an echo, and for one ping.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// Port of the echoes, as the kernel's tables of sockets have it.
const PORT_IN_HEX: &str = ":2328 ";

/// A namespace with an echo, which ends with this.
pub(super) struct Local {
    pub(super) netns: Netns,
    echo: Child,
}

pub(super) fn failed(why: impl Into<String>) -> Cell {
    Cell { why: Some(why.into()), ..Cell::default() }
}

/// This program in a namespace, with these arguments of `probe`.
fn probe(arguments: &[&str], netns: &Netns) -> Result<Child, Failure> {
    let mut command = this_program();
    command.arg("probe").args(arguments);
    Ok(Child::spawn(command, &Place { netns: Some(netns), cpus: &[] })?)
}

/// Starts an echo.
///
/// - `ipv6`: it answers IPv6 too.
/// - `session`: number of the only run that it answers.
/// - `more`: further options.
pub(super) fn echo(
    netns: &Netns,
    ipv6: bool,
    session: u32,
    more: &[&str],
) -> Result<Child, Failure> {
    let (ip, session) = (if ipv6 { "6" } else { "4" }, session.to_string());
    probe(&[&["echo", "--ip", ip, "--session", &session], more].concat(), netns)
}

/// Waits for the end of a program. Returns the reason if it did not come; the program is killed then. Errors: interrupted.
///
/// - `look`: time between two looks at `is_over` and at signals; the end is seen at once.
/// - `is_over`: reason to give up.
pub(super) fn end_of(
    mut child: Child,
    limit: Duration,
    look: Duration,
    mut is_over: impl FnMut() -> Option<String>,
) -> Result<Result<Finished, String>, Failure> {
    let until = Instant::now() + limit;
    while Instant::now() < until {
        if let Some(ended) = child.wait(look)? {
            return Ok(Ok(ended));
        }
        if signals::stop_requested() {
            return Err(Failure::Interrupted("interrupted".into()));
        }
        if let Some(why) = is_over() {
            return Ok(Err(why));
        }
    }
    Ok(Err(format!("no end within {} s", limit.as_secs())))
}

/// Measures round trips from a namespace to an address.
///
/// - `session`: number of the run, for the echo there.
/// - `look`, `is_over`: as of [`end_of`].
pub(super) fn ping(
    netns: &Netns,
    address: IpAddr,
    count: u32,
    session: u32,
    look: Duration,
    is_over: impl FnMut() -> Option<String>,
) -> Result<Cell, Failure> {
    let [address, count, session] = [address.to_string(), count.to_string(), session.to_string()];
    let arguments = ["ping", &address, "--no-peer", "-c", &count, "--session", &session, "--json"];
    let child = probe(&arguments, netns)?;
    Ok(match end_of(child, PATIENCE, look, is_over)? {
        Ok(ended) if ended.status.success() => cell(&ended.stdout),
        Ok(ended) => failed(String::from_utf8_lossy(&ended.stderr).trim()),
        Err(why) => failed(why),
    })
}

impl Local {
    /// Starts the echo.
    ///
    /// - `ipv6`, `session`: as of [`echo`].
    pub(super) fn start(netns: Netns, ipv6: bool, session: u32) -> Result<Self, Failure> {
        let echo = echo(&netns, ipv6, session, &[])?;
        Ok(Local { netns, echo })
    }

    /// Waits until the echo has its socket.
    ///
    /// - `is_over`: true if the wait is to be given up.
    pub(super) fn await_echo(&self, is_over: impl Fn() -> bool) -> Result<(), Failure> {
        let until = Instant::now() + PATIENCE;
        let tables = ["udp", "udp6"].map(|name| format!("/proc/{}/net/{name}", self.echo.pid()));
        let is_open = |table: &String| {
            std::fs::read_to_string(table).is_ok_and(|table| table.contains(PORT_IN_HEX))
        };
        while Instant::now() < until && !is_over() {
            if tables.iter().any(is_open) {
                return Ok(());
            }
            std::thread::sleep(LOOK / 5);
        }
        Err(Failure::failed(format!("no echo on UDP port 9000: {}", self.said())))
    }

    fn said(&self) -> String {
        let said = self.echo.stderr_so_far();
        format!("{}; is the port in use there?", String::from_utf8_lossy(&said).trim())
    }

    /// Reason for the end of its echo; `None` if it runs.
    pub(super) fn ended(&mut self) -> Option<String> {
        match self.echo.wait(Duration::ZERO) {
            Ok(None) => None,
            Ok(Some(_)) => Some(format!("its echo on UDP port 9000 has ended: {}", self.said())),
            Err(error) => Some(host::text::chain(&error)),
        }
    }
}

/// Reads the document of `probe ping --json`.
fn cell(document: &[u8]) -> Cell {
    let Ok(document) = serde_json::from_slice::<Value>(document) else {
        return failed("its document cannot be read");
    };
    let p50 = &document["metrics"]["rtt_ns_p50"];
    let count = |name: &str| document["deliveries"]["round-trip"][name].as_u64();
    let (Some(sent), Some(lost)) = (count("sent_count"), count("lost_count")) else {
        return failed("its document has no counts");
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
