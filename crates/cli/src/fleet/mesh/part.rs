//! A host's part in the measurement of one pair, as a job of its agent: the echo, or the pings.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use fleet::book::Measured;
use fleet::mesh::Cell;
use host::exclusive::ExclusiveLock;
use remote::Failure;
use serde::{Deserialize, Serialize};
use sys::netns::Netns;

use super::super::experiment::{BEAT, LOOK, reason};
use super::local::{PATIENCE, echo, end_of, failed, ping};

/// First argument of such a job.
pub(in crate::fleet) const MESH: &str = "mesh";

/// Round trips of one measurement.
const COUNT_MAX: u32 = 1_000_000;
/// Time that one end waits for the other, seconds.
const WAIT_MAX_S: u32 = 3600;
/// Time of an echo beside its wait and the pings.
const SPARE: Duration = Duration::from_secs(20);
/// Pause between two looks for the echo.
const AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::fleet) struct Part {
    pub(super) does: Does,
    /// Of the echo.
    pub(super) address: IpAddr,
    /// Number of the run: the echo answers no other.
    pub(super) session: u32,
    /// Round trips.
    pub(super) count: u32,
    /// Time that one end waits for the other, seconds.
    pub(super) wait_s: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Does {
    Echo,
    Ping,
}

/// Signs of life of a host at work.
struct Pulse<'a> {
    beat: &'a mut dyn FnMut(),
    beaten: Instant,
}

impl Pulse<'_> {
    fn tick(&mut self) {
        if self.beaten.elapsed() >= BEAT {
            self.beaten = Instant::now();
            (self.beat)();
        }
    }
}

impl Part {
    /// Reads a job. Errors: its address is none of one host, or a limit is exceeded.
    pub(in crate::fleet) fn read(text: &str) -> Result<Self, Failure> {
        let part: Part = serde_json::from_str(text)
            .map_err(|error| Failure::Usage(format!("cannot read the part of a mesh: {error}")))?;
        part.check().map_err(Failure::Usage)?;
        Ok(part)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let is_broadcast = matches!(self.address, IpAddr::V4(v4) if v4.is_broadcast());
        if is_broadcast || self.address.is_multicast() || self.address.is_unspecified() {
            return Err(format!("{} is no address of one host", self.address));
        }
        if !(1..=COUNT_MAX).contains(&self.count) || self.wait_s > WAIT_MAX_S {
            return Err(format!(
                "agents send 1 to {COUNT_MAX} pings, and wait {WAIT_MAX_S} s at most"
            ));
        }
        Ok(())
    }

    /// Arguments of its job.
    pub(super) fn arguments(&self) -> Result<Vec<String>, Failure> {
        Ok(vec![MESH.to_owned(), serde_json::to_string(self)?])
    }

    /// Text for the log of an agent.
    pub(in crate::fleet) fn name(&self) -> String {
        match self.does {
            Does::Echo => "echo of a mesh".to_owned(),
            Does::Ping => format!("pings {}", self.address),
        }
    }

    /// Does it, to its end. The result of pings is a [`Cell`]; that of an echo is empty.
    ///
    /// - `beat`: called every few seconds meanwhile.
    pub(in crate::fleet) fn measure(&self, beat: &mut dyn FnMut()) -> Measured {
        let _lock = match ExclusiveLock::acquire_alone() {
            Ok(lock) => lock,
            Err(conflict) => return Measured::Failed(conflict.to_string()),
        };
        let mut pulse = Pulse { beat, beaten: Instant::now() };
        let ended = match self.does {
            Does::Echo => self.echo(&mut pulse).map(|()| String::new()),
            Does::Ping => self.ping(&mut pulse).and_then(|cell| Ok(serde_json::to_string(&cell)?)),
        };
        match ended {
            Ok(body) => Measured::Done(body),
            Err(failure) => Measured::Failed(failure.text().to_owned()),
        }
    }

    fn wait(&self) -> Duration {
        Duration::from_secs(self.wait_s.into())
    }

    fn echo(&self, pulse: &mut Pulse<'_>) -> Result<(), Failure> {
        let (count, wait) = (self.count.to_string(), format!("{}s", self.wait_s));
        let more = ["-c", &count, "--await-first", &wait];
        let child = echo(&Netns::current()?, self.address.is_ipv6(), self.session, &more)?;
        let limit = self.wait() + PATIENCE + SPARE;
        let is_over = || {
            pulse.tick();
            None
        };
        match end_of(child, limit, LOOK, is_over)? {
            Ok(ended) if ended.status.success() => Ok(()),
            Ok(ended) => Err(Failure::failed(format!(
                "its echo on UDP port 9000 has ended: {}",
                reason(&ended)
            ))),
            Err(_) => Err(Failure::failed("its pings did not end")),
        }
    }

    fn ping(&self, pulse: &mut Pulse<'_>) -> Result<Cell, Failure> {
        let netns = Netns::current()?;
        let mut send = |count| {
            let is_over = || {
                pulse.tick();
                None
            };
            ping(&netns, self.address, count, self.session, LOOK, is_over)
        };
        let until = Instant::now() + self.wait();
        // The other agent may take its job later.
        loop {
            let found = send(1)?;
            if found.lost < found.sent {
                return send(self.count);
            }
            if Instant::now() >= until {
                let why = found.why.unwrap_or_default();
                return Ok(failed(format!("no echo within {} s: {why}", self.wait_s)));
            }
            std::thread::sleep(AGAIN);
        }
    }
}
