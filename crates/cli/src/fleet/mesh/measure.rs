//! Measurement of pairs of hosts: an echo on each, and pings of the first host of a pair.

use std::net::IpAddr;

use fleet::mesh::{Cell, Pair};
use host::exclusive::ExclusiveLock;
use host::net;
use host::text::chain;
use probe::random_session;
use remote::Failure;
use remote::address_between;
use sys::netns::Netns;

use super::super::hosts::Host;
use super::far::Far;
use super::local::{LOOK, Local, failed, ping};
use super::{At, Measure};
use crate::signals;

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
    /// Or the reason why it is lost.
    end: Result<End, String>,
}

enum End {
    Local(Local),
    Far(Far),
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
            let end = match &at.host {
                Host::Ssh(host) => Far::open(host, ssh_options, at.address, session).map(End::Far),
                _ => Err(Failure::failed("not started")),
            };
            members.push(Member::new(at, end)?);
        }
        let is_ipv6 = |member: &Member| match &member.end {
            Ok(End::Far(far)) => far.address().is_ipv6(),
            _ => member.address.is_some_and(|address| address.is_ipv6()),
        };
        let ipv6 = members.iter().any(is_ipv6);
        for (member, at) in members.iter_mut().zip(hosts).filter(|(_, at)| at.host.is_local()) {
            *member = Member::new(at, local(&at.host, ipv6, session).map(End::Local))?;
        }
        for member in &mut members {
            member.await_echo()?;
        }
        Ok(Mesh { members, count, session, _lock: lock })
    }

    /// Measures a pair, the first one pings.
    fn measure(&mut self, pair: Pair) -> Result<Cell, Failure> {
        if signals::stop_requested() {
            return Err(Failure::Interrupted("interrupted".into()));
        }
        if self.is_far(pair.0) {
            return match self.ask(pair)? {
                Ok(()) => self.answer(pair),
                Err(why) => Ok(failed(why)),
            };
        }
        let address = match self.address(pair) {
            Ok(address) => address,
            Err(why) => return Ok(failed(why)),
        };
        let (count, session) = (self.count, self.session);
        let Some((near, far)) = self.both(pair) else { return Ok(failed("no such pair")) };
        match &near.end {
            Ok(End::Local(local)) => {
                ping(&local.netns, address, count, session, LOOK, || far.lost())
            }
            _ => Ok(failed(format!("{} is lost", near.name))),
        }
    }

    fn is_far(&self, at: usize) -> bool {
        matches!(self.members[at].end, Ok(End::Far(_)))
    }

    /// Starts the pings of a host on another machine. Returns the reason if it cannot.
    fn ask(&mut self, pair: Pair) -> Result<Result<(), String>, Failure> {
        let address = match self.address(pair) {
            Ok(address) => address,
            Err(why) => return Ok(Err(why)),
        };
        match &mut self.members[pair.0].end {
            Ok(End::Far(far)) => far.ask(address, self.count).map(Ok),
            _ => Ok(Err("its host is lost".into())),
        }
    }

    /// Waits for the pings of a host on another machine.
    fn answer(&mut self, pair: Pair) -> Result<Cell, Failure> {
        let Some((near, far)) = self.both(pair) else { return Ok(failed("no such pair")) };
        let Ok(End::Far(end)) = &mut near.end else { return Ok(failed("its host is lost")) };
        match end.answer()? {
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
                Ok(failed(near.reason(&why)))
            }
        }
    }

    fn both(&mut self, (near, far): Pair) -> Option<(&mut Member, &mut Member)> {
        let [near, far] = self.members.get_disjoint_mut([near, far]).ok()?;
        Some((near, far))
    }

    /// Address that the first host of a pair pings. Errors: one of them is lost, or there is none.
    fn address(&mut self, pair: Pair) -> Result<IpAddr, String> {
        let (near, far) = self.both(pair).ok_or("no such pair")?;
        if let Some(why) = near.lost().or_else(|| far.lost()) {
            return Err(why);
        }
        match (&near.end, &far.end) {
            (_, Ok(End::Far(end))) => Ok(end.address()),
            (_, Ok(_)) if far.address.is_some() => far.address.ok_or_else(String::new),
            (Ok(End::Local(one)), Ok(End::Local(other))) => {
                address_between(&one.netns, &other.netns, &far.name).map_err(|error| chain(&error))
            }
            (Ok(End::Far(one)), Ok(End::Local(other))) => source(&other.netns, one.address()),
            (Err(why), _) | (_, Err(why)) => Err(why.clone()),
        }
    }
}

impl Measure for Mesh {
    fn hosts(&self) -> usize {
        self.members.len()
    }

    /// Measures the pairs of a round: those between other machines at the same time, the others one after the
    /// other, because they share the CPUs of this one.
    fn round(&mut self, pairs: &[Pair]) -> Result<Vec<(Pair, Cell)>, Failure> {
        let mut cells = Vec::new();
        let mut asked = Vec::new();
        let (others, own): (Vec<Pair>, Vec<Pair>) =
            pairs.iter().partition(|(a, b)| self.is_far(*a) && self.is_far(*b));
        for pair in others {
            match self.ask(pair)? {
                Ok(()) => asked.push(pair),
                Err(why) => cells.push((pair, failed(why))),
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

fn local(host: &Host, ipv6: bool, session: u32) -> Result<Local, Failure> {
    Local::start(host.netns()?.map_or_else(Netns::current, Ok)?, ipv6, session)
}

impl Member {
    /// Errors: interrupted.
    fn new(at: &At<Host>, end: Result<End, Failure>) -> Result<Self, Failure> {
        if signals::stop_requested() {
            return Err(Failure::Interrupted("interrupted".into()));
        }
        let end = end.map_err(|failure| failure.text().to_owned());
        Ok(Member { name: at.host.to_string(), address: at.address, end })
    }

    fn await_echo(&mut self) -> Result<(), Failure> {
        if let Ok(End::Local(local)) = &self.end
            && let Err(failure) = local.await_echo(signals::stop_requested)
        {
            if signals::stop_requested() {
                return Err(Failure::Interrupted("interrupted".into()));
            }
            self.end = Err(failure.text().to_owned());
        }
        Ok(())
    }

    /// The reason if the host is lost, now or before.
    fn lost(&mut self) -> Option<String> {
        let ended = match &mut self.end {
            Ok(End::Local(local)) => local.ended(),
            Ok(End::Far(far)) => far.ended(),
            Err(why) => Some(why.clone()),
        }?;
        let text = self.reason(&ended);
        self.end = Err(ended);
        Some(text)
    }

    fn reason(&self, why: &str) -> String {
        // Errors of ssh name the host themselves.
        if why.contains(&self.name) { why.to_owned() } else { format!("{}: {why}", self.name) }
    }
}
