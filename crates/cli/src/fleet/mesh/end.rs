//! A host of a mesh: a process there, with its echo and its pings on request.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use host::text::chain;
use house::signals;
use remote::work::{Answer, Call, Echo, PairCell, Ping};
use remote::{Failure, FarOptions};
use sys::netns::Netns;

use super::super::caller::{self, HostCaller, PAIR_TIMEOUT};
use super::super::hosts::Host;
use crate::running::Folders;

/// Time limit for pings that were given up.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two looks at signals and at the other host.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The near end of a host.
pub(super) struct MeshEnd {
    caller: HostCaller,
    /// Namespace of a host of this machine; `None` of another one.
    pub(super) netns: Option<Netns>,
}

/// An answer, or the reason why the host is lost.
type Answered<T> = Result<T, String>;

impl MeshEnd {
    /// Starts or reaches the host.
    ///
    /// - `address`: at which others ping it; `None` for that at which ssh has reached it.
    pub(super) fn open(
        host: &Host,
        ssh_options: &[String],
        address: Option<IpAddr>,
    ) -> Result<Self, Failure> {
        let netns = match host {
            Host::Ssh(_) => None,
            _ => Some(host.netns()?.map_or_else(Netns::current, Ok)?),
        };
        let options = FarOptions { ssh_options, address, ..FarOptions::default() };
        let caller = caller::start(host, &options, Folders::default())?;
        Ok(MeshEnd { caller, netns })
    }

    /// Address at which others ping a host of another machine.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.caller.address()
    }

    /// Starts its echo; [`await_echo`](Self::await_echo) waits for it.
    pub(super) fn start_echo(&mut self, ipv6: bool, session: u32) -> Result<(), Failure> {
        Ok(self.caller.call(&Call::Echo(Echo { ipv6, session, until: None }))?)
    }

    /// Waits until its echo has its socket. Errors: interrupted.
    pub(super) fn await_echo(&mut self) -> Result<Answered<()>, Failure> {
        Ok(match self.wait(PAIR_TIMEOUT, || None)? {
            Ok(Answer::Ready) => Ok(()),
            Ok(other) => Err(self.reason(&other)),
            Err(why) => Err(why),
        })
    }

    /// Lets it measure round trips; [`answer`](Self::answer) returns them.
    pub(super) fn ask(&mut self, address: IpAddr, count: u32, session: u32) -> Result<(), Failure> {
        Ok(self.caller.call(&Call::Ping(Ping { address, count, session, wait_s: 0 }))?)
    }

    /// Waits for the round trips. Errors: interrupted.
    ///
    /// - `is_over`: reason to give them up.
    pub(super) fn answer(
        &mut self,
        mut is_over: impl FnMut() -> Option<String>,
    ) -> Result<Answered<PairCell>, Failure> {
        let mut given_up = None;
        let mut answered = self.wait(PAIR_TIMEOUT, || {
            given_up = is_over();
            given_up.clone()
        })?;
        if given_up.is_some() {
            self.caller.call(&Call::StopPing)?;
            answered = self.wait(STOP_TIMEOUT, || None)?;
        }
        Ok(match answered {
            Ok(Answer::Pinged(cell)) => Ok(given_up.map_or(cell, PairCell::failed)),
            Ok(other) => Err(self.reason(&other)),
            Err(why) => Err(why),
        })
    }

    fn wait(
        &mut self,
        limit: Duration,
        mut is_over: impl FnMut() -> Option<String>,
    ) -> Result<Answered<Answer>, Failure> {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            match self.caller.answer(POLL_INTERVAL) {
                Ok(Some(answer)) => return Ok(Ok(answer)),
                Ok(None) => {}
                Err(error) => return Ok(Err(chain(&error))),
            }
            signals::check_stop()?;
            if let Some(why) = is_over() {
                return Ok(Err(why));
            }
        }
        Ok(Err(format!("no answer within {} s", limit.as_secs())))
    }

    /// Reason for its end; `None` if it runs. Only without a question that is open.
    pub(super) fn ended(&mut self) -> Option<String> {
        match self.caller.answer(Duration::ZERO) {
            Ok(None) => None,
            Ok(Some(answer)) => Some(self.reason(&answer)),
            Err(error) => Some(chain(&error)),
        }
    }

    fn reason(&self, answer: &Answer) -> String {
        match answer {
            Answer::Failed(failure) => failure.text().to_owned(),
            other => chain(&self.caller.unexpected(other)),
        }
    }
}
