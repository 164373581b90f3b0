//! The near end's view of an exchange at a far end.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use host::text::printable;
use lab::FarEnd;
use model::{Machine, PathError};
use remote::{Caller, FarOptions, RemoteError};

use super::{FarFeed, Publication, Reply, Request};
use crate::publisher::Sent;
use crate::script::{Quotes, Script};

/// Time that an answer may take beyond that of the quotes.
const ANSWER_GRACE: Duration = Duration::from_secs(20);
/// Largest CPU time that is believed, so that sums do not overflow.
const CPU_NS_MAX: u64 = 1 << 53;
/// Longest text of the far end that is shown, characters.
const TEXT_LEN_MAX: usize = 200;

/// An exchange at a far end, started for one run. It ends when this is dropped or this process ends.
#[derive(Debug)]
pub(crate) struct FarExchange {
    caller: Caller<FarFeed>,
    address: Ipv4Addr,
    machine: Machine,
    /// It reads the same clock as this end.
    pub(crate) is_here: bool,
    pub(crate) cpu: Option<usize>,
}

impl FarExchange {
    /// Starts it.
    ///
    /// - `cpu`: its CPU; `None` for the first that it may use.
    pub(crate) fn start(
        end: &FarEnd,
        options: &FarOptions<'_>,
        cpu: Option<usize>,
    ) -> Result<Self, PathError> {
        let started = match end {
            FarEnd::Netns(name) => Caller::netns(name, options),
            FarEnd::Ssh(host) => Caller::ssh(host, options),
            FarEnd::Peer(_) => Err(RemoteError::OnlyProbe { end: end.to_string() }),
        };
        let mut caller = started.map_err(PathError::part)?;
        let address = match caller.address() {
            Some(IpAddr::V4(address)) => address,
            other => {
                let address = other.map_or_else(|| end.to_string(), |address| address.to_string());
                return Err(PathError::Invalid {
                    what: format!(
                        "{address} is an IPv6 address, and feeds are sent to IPv4 groups"
                    ),
                    remedy: "give the far end's IPv4 address with --far-address".into(),
                });
            }
        };
        caller.call(&Request::Describe).map_err(PathError::part)?;
        match reply(&mut caller, ANSWER_GRACE)? {
            Reply::Described { boot_id, machine } => {
                let is_here = boot_id.is_some() && boot_id == lab::boot_id();
                let machine = lab::machine_of_far_end(*machine);
                let machine = Machine { notes: BTreeMap::new(), ..machine };
                Ok(FarExchange { caller, address, machine, is_here, cpu })
            }
            other => Err(PathError::part(caller.unexpected(&other))),
        }
    }

    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Has the quotes sent to `group`. Returns the send times, and the CPU time of its process.
    ///
    /// - `script`: that of `quotes`.
    pub(crate) fn publish(
        &mut self,
        quotes: &Quotes,
        script: &mut Script,
        group: SocketAddrV4,
    ) -> Result<(Sent, u64), PathError> {
        let from = self.address();
        let publication = Publication { quotes: quotes.clone(), from, group, cpu: self.cpu };
        self.caller.call(&Request::Publish(publication)).map_err(PathError::part)?;
        let last_ns = script.len().checked_sub(1).map_or(0, |last| script.due_ns(last));
        let limit = Duration::from_nanos(last_ns) + ANSWER_GRACE;
        let until = Instant::now() + limit;
        let mut lags_ns = Vec::with_capacity(script.len());
        loop {
            match reply(&mut self.caller, until.saturating_duration_since(Instant::now()))? {
                Reply::Lags(piece) if lags_ns.len() + piece.len() <= script.len() => {
                    lags_ns.extend(piece);
                }
                Reply::Sent { begin_ns, is_undisturbed, cpu_ns } if is_time(begin_ns) => {
                    script.stamp(begin_ns);
                    for (n, ns) in lags_ns.iter_mut().enumerate() {
                        *ns = ns.saturating_add(begin_ns + script.due_ns(n));
                    }
                    let sent = Sent { begin_ns, at_ns: lags_ns, is_undisturbed };
                    return Ok((sent, cpu_ns.min(CPU_NS_MAX)));
                }
                other => return Err(PathError::part(self.caller.unexpected(&other))),
            }
        }
    }
}

/// A time of this century, whose sums with due times do not overflow.
fn is_time(ns: u64) -> bool {
    ns < 4_102_444_800_000_000_000
}

/// Its next answer. Errors: it reports a failure, has ended, or takes too long.
fn reply(caller: &mut Caller<FarFeed>, limit: Duration) -> Result<Reply, PathError> {
    match caller.expect_answer(limit).map_err(PathError::part)? {
        Reply::Failed { why } => Err(PathError::at("exchange", printable(&why, TEXT_LEN_MAX))),
        reply => Ok(reply),
    }
}
