//! `wirepath answer host`: the work of this host for a fleet or a roll-out.

use std::time::Duration;

use host::exclusive::{ExclusiveLock, OF_FLEET};
use house::context::Context;
use house::place::StateArgs;
use house::signals;
use model::Request;
use remote::work::{self, Answer, Call, Ping, Ran, RolloutStep};
use remote::{Calls, Failure, NearEndGone};
use runner::Proven;

use super::mesh::{MeshEcho, ping};
use crate::running::{Terminal, runner};
use crate::tune::live::cross;
use crate::tune::steps::{self, StepDone};

/// Time between two looks at an echo.
const ECHO_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Answers calls until the near end is gone.
pub(crate) fn run(context: &Context, state: &StateArgs) -> Result<(), Failure> {
    let calls = Calls::<work::Host>::start(signals::stop_flag())?;
    let mut host = Answering { context, state, calls, echo: None };
    host.answer_all()?;
    host.calls.finish()?;
    Ok(())
}

struct Answering<'a> {
    context: &'a Context,
    state: &'a StateArgs,
    calls: Calls<work::Host>,
    echo: Option<MeshEcho>,
}

impl Answering<'_> {
    fn answer_all(&mut self) -> Result<(), Failure> {
        loop {
            let call = match &self.echo {
                None => self.calls.next_call().ok_or(NearEndGone).map(Some),
                Some(_) => self.calls.within(ECHO_POLL_INTERVAL),
            };
            match call {
                Err(NearEndGone) => return Ok(()),
                // The pings that it should end have ended by themselves, and are answered.
                Ok(Some(Call::StopPing)) => {}
                Ok(Some(call)) => {
                    let answer = self.answer(call).unwrap_or_else(Answer::Failed);
                    self.calls.answer(&answer)?;
                }
                Ok(None) => {}
            }
            if let Some(end) = self.echo.as_mut().and_then(MeshEcho::ended) {
                self.echo = None;
                self.calls.answer(&end)?;
            }
        }
    }

    fn answer(&mut self, call: Call) -> Result<Answer, Failure> {
        match call {
            Call::Run(request) => self.run(&request),
            Call::RunAlone(request) => {
                let _lock = fleet_lock()?;
                self.run(&request)
            }
            Call::Cross(crossing) => {
                let _lock = fleet_lock()?;
                Ok(Answer::Crossed(Box::new(cross(self.state, &crossing)?)))
            }
            Call::Step(step) => self.step(&step),
            Call::Echo(echo) => {
                self.echo = Some(MeshEcho::start(&echo, fleet_lock()?)?);
                Ok(Answer::Ready)
            }
            Call::Ping(request) => self.ping(&request),
            Call::StopPing | Call::Interrupt => {
                Err(Failure::failed("nothing is under way that could be ended"))
            }
        }
    }

    fn run(&self, request: &Request) -> Result<Answer, Failure> {
        let terminal = Terminal::open(self.context, false)?;
        let runner = runner(self.context, self.state.journal(), &terminal);
        let Proven { outcome, is_stored, gave_up, broken } = runner.run(request)?;
        if let Some(why) = broken {
            return Err(Failure::Failed(why));
        }
        let outcome = report::json::finite(&outcome).into_owned();
        Ok(Answer::Ran(Box::new(Ran { outcome, is_stored, gave_up })))
    }

    fn step(&mut self, step: &RolloutStep) -> Result<Answer, Failure> {
        match steps::perform(self.state, step)? {
            StepDone::Done(text) => Ok(Answer::Done(text)),
            StepDone::Drifted(text) => Ok(Answer::Drifted(text)),
            StepDone::Applied(text, unconfirmed) => {
                self.calls.answer(&Answer::Done(text))?;
                unconfirmed.end()?;
                Ok(Answer::Done("confirmed".to_owned()))
            }
        }
    }

    fn ping(&mut self, request: &Ping) -> Result<Answer, Failure> {
        let _lock = if self.echo.is_none() { fleet_lock()? } else { None };
        let calls = &mut self.calls;
        let is_over = || match calls.within(Duration::ZERO) {
            Ok(None) => false,
            // Any call but the one that ends the pings breaks the order of the exchange, and ends them, too.
            Ok(Some(_)) | Err(NearEndGone) => true,
        };
        Ok(Answer::Pinged(ping(request, is_over)?))
    }
}

/// Locks the machine, unless the process that started this one has done so.
fn fleet_lock() -> Result<Option<ExclusiveLock>, Failure> {
    let is_of_fleet = std::env::var_os(OF_FLEET).is_some();
    Ok((!is_of_fleet).then(ExclusiveLock::acquire_alone).transpose()?)
}
