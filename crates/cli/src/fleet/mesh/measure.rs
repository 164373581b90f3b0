//! Measurement of pairs of hosts: an echo on each, and pings of the first host of a pair.

use std::net::IpAddr;

use fleet::mesh::{HostPair, PairCell};
use host::exclusive::ExclusiveLock;
use host::net;
use host::text::chain;
use house::signals;
use probe::random_session;
use remote::Failure;
use remote::address_between;
use sys::netns::Netns;

use super::super::hosts::Host;
use super::end::MeshEnd;
use super::{At, Measure};

/// Hosts of a mesh, each with its echo.
pub(super) struct Mesh {
    members: Vec<Member>,
    /// Round trips of one measurement.
    count: u32,
    /// Number of the run: its echoes answer no other.
    session: u32,
    /// Released after the echoes have ended.
    _lock: ExclusiveLock,
}

struct Member {
    name: String,
    /// Address at which others ping it, as the user gave it.
    address: Option<IpAddr>,
    is_local: bool,
    /// Or the reason why it is lost.
    end: Result<MeshEnd, String>,
}

impl Mesh {
    /// Locks this machine, and starts the echoes. A host on which that fails is part of the mesh, as one whose pairs fail.
    ///
    /// Errors: another experiment runs, or interrupted.
    pub(super) fn open(
        hosts: &[At<Host>],
        ssh_options: &[String],
        count: u32,
    ) -> Result<Self, Failure> {
        let lock = ExclusiveLock::acquire_alone()?;
        let session = random_session()?;
        let mut members = Vec::new();
        for at in hosts {
            members.push(Member::open(at, ssh_options)?);
        }
        let ipv6 = members.iter().any(Member::is_pinged_over_ipv6);
        // One after the other: of two names of one machine the first one measures, as it is in use then.
        for member in &mut members {
            let answers_ipv6 = if member.is_local { ipv6 } else { member.is_pinged_over_ipv6() };
            member.try_on(|end| {
                Ok(end.start_echo(answers_ipv6, session).map_err(Failure::into_text))
            })?;
            member.try_on(MeshEnd::await_echo)?;
        }
        Ok(Mesh { members, count, session, _lock: lock })
    }

    /// Measures a pair, the first one pings.
    fn measure(&mut self, pair: HostPair) -> Result<PairCell, Failure> {
        signals::check_stop()?;
        match self.ask(pair)? {
            Ok(()) => self.answer(pair),
            Err(why) => Ok(PairCell::failed(why)),
        }
    }

    fn is_far(&self, at: usize) -> bool {
        self.members[at].end.is_ok() && !self.members[at].is_local
    }

    /// Starts the pings of a host. Returns the reason if it cannot.
    fn ask(&mut self, pair: HostPair) -> Result<Result<(), String>, Failure> {
        let address = match self.address(pair) {
            Ok(address) => address,
            Err(why) => return Ok(Err(why)),
        };
        match &mut self.members[pair.0].end {
            Ok(end) => end.ask(address, self.count, self.session).map(Ok),
            Err(why) => Ok(Err(why.clone())),
        }
    }

    /// Waits for the pings of a host.
    fn answer(&mut self, pair: HostPair) -> Result<PairCell, Failure> {
        let Some((near, far)) = self.both(pair) else {
            return Ok(PairCell::failed("no such pair"));
        };
        let Ok(end) = &mut near.end else { return Ok(PairCell::failed("its host is lost")) };
        match end.answer(|| far.lost())? {
            Ok(mut cell) => {
                if cell.rtt_ns.is_none()
                    && let Some(why) = far.lost()
                {
                    cell.why = Some(why);
                }
                Ok(cell)
            }
            Err(why) => {
                // With a question open, its next answer would be that of another pair.
                near.end = Err(why.clone());
                Ok(PairCell::failed(near.reason(&why)))
            }
        }
    }

    fn both(&mut self, (near, far): HostPair) -> Option<(&mut Member, &mut Member)> {
        let [near, far] = self.members.get_disjoint_mut([near, far]).ok()?;
        Some((near, far))
    }

    /// Address that the first host of a pair pings. Errors: one of them is lost, or there is none.
    fn address(&mut self, pair: HostPair) -> Result<IpAddr, String> {
        let (near, far) = self.both(pair).ok_or("no such pair")?;
        if let Some(why) = near.lost().or_else(|| far.lost()) {
            return Err(why);
        }
        let (one, other) = (near.end.as_ref()?, far.end.as_ref()?);
        if let Some(address) = other.address().or(far.address) {
            return Ok(address);
        }
        let netns = other.netns.as_ref().ok_or("it has no address")?;
        match (&one.netns, one.address()) {
            (Some(near), _) => {
                address_between(near, netns, &far.name).map_err(|error| chain(&error))
            }
            (None, Some(address)) => source(netns, address),
            (None, None) => Err(format!("{} has no address", near.name)),
        }
    }
}

impl Measure for Mesh {
    fn hosts(&self) -> usize {
        self.members.len()
    }

    /// Measures the pairs of a round: those between other machines at the same time, the others one after the
    /// other, because they share the CPUs of this one.
    fn round(&mut self, pairs: &[HostPair]) -> Result<Vec<(HostPair, PairCell)>, Failure> {
        let mut cells = Vec::new();
        let mut asked = Vec::new();
        let (others, own): (Vec<HostPair>, Vec<HostPair>) =
            pairs.iter().partition(|(a, b)| self.is_far(*a) && self.is_far(*b));
        for pair in others {
            match self.ask(pair)? {
                Ok(()) => asked.push(pair),
                Err(why) => cells.push((pair, PairCell::failed(why))),
            }
        }
        for pair in own {
            cells.push((pair, self.measure(pair)?));
        }
        for pair in asked {
            cells.push((pair, self.answer(pair)?));
        }
        Ok(cells)
    }
}

/// Address from which a namespace reaches another one.
fn source(netns: &Netns, to: IpAddr) -> Result<IpAddr, String> {
    let route = netns.run(|| net::route_to(to)).map_err(|error| chain(&error))?;
    route.map(|route| route.source).map_err(|error| chain(&error))
}

impl Member {
    /// Errors: interrupted.
    fn open(at: &At<Host>, ssh_options: &[String]) -> Result<Self, Failure> {
        signals::check_stop()?;
        Ok(Member {
            name: at.host.to_string(),
            address: at.address,
            is_local: at.host.is_local(),
            end: MeshEnd::open(&at.host, ssh_options, at.address).map_err(Failure::into_text),
        })
    }

    fn is_pinged_over_ipv6(&self) -> bool {
        let reached = self.end.as_ref().ok().and_then(MeshEnd::address);
        reached.or(self.address).is_some_and(|address| address.is_ipv6())
    }

    /// Does something that a host that is present can do; it is lost if it cannot. Errors: interrupted.
    fn try_on(
        &mut self,
        work: impl FnOnce(&mut MeshEnd) -> Result<Result<(), String>, Failure>,
    ) -> Result<(), Failure> {
        if let Ok(end) = &mut self.end
            && let Err(why) = work(end)?
        {
            self.end = Err(why);
        }
        Ok(())
    }

    /// The reason if the host is lost, now or before.
    fn lost(&mut self) -> Option<String> {
        let why = match &mut self.end {
            Ok(end) => end.ended()?,
            Err(why) => why.clone(),
        };
        let text = self.reason(&why);
        self.end = Err(why);
        Some(text)
    }

    fn reason(&self, why: &str) -> String {
        // Errors of ssh name the host themselves.
        if why.contains(&self.name) { why.to_owned() } else { format!("{}: {why}", self.name) }
    }
}
