//! `wirepath answer NAME`: the end that answers calls of another process of this program, which starts it.

use clap::{Args, ValueEnum};
use command::FarMeans;
use remote::path::PathService;
use remote::{Failure, Service};

use crate::context::Context;
use crate::tune::{Guard, StateArgs};
use crate::{lookup, signals};

#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    /// Service
    #[arg(value_enum, value_name = "NAME")]
    service: AnswerService,
    /// Path of this program, for service path
    #[arg(value_name = "PATH", required_if_eq("service", "path"))]
    path: Option<String>,
    #[command(flatten)]
    state: StateArgs,
}

/// Services by their [`remote::Service::NAME`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AnswerService {
    /// Servers for `prove command --far ssh:HOST`
    #[value(name = command::SERVICE)]
    Programs,
    /// Quotes for `prove feed --far`
    #[value(name = feed::SERVICE)]
    Feed,
    /// Experiments, steps of roll-outs and pings for `fleet --on`
    #[value(name = remote::work::Host::NAME)]
    Host,
    /// Trials of a path for `prove --against`
    #[value(name = PathService::NAME)]
    Path,
}

impl AnswerArgs {
    /// True if the service starts other programs.
    pub(crate) fn starts_programs(&self) -> bool {
        match self.service {
            AnswerService::Programs | AnswerService::Host | AnswerService::Path => true,
            AnswerService::Feed => false,
        }
    }
}

/// Answers the calls on standard input, until it ends.
pub(crate) fn run(context: &Context, args: &AnswerArgs) -> Result<(), Failure> {
    match args.service {
        AnswerService::Programs => answer_programs(&args.state),
        AnswerService::Feed => Ok(feed::serve_exchange(signals::stop_flag())?),
        AnswerService::Host => crate::fleet::host::run(context, &args.state),
        AnswerService::Path => {
            let name = args.path.as_deref().unwrap_or_default();
            let path = lookup::built_in(name)
                .ok_or_else(|| Failure::Usage(format!("this build has no path named {name}")))?;
            runner::answer_path(path.as_ref(), signals::stop_flag())
        }
    }
}

fn answer_programs(state: &StateArgs) -> Result<(), Failure> {
    signals::stop_on_hangup()?;
    let mut guard = None;
    let mut start_guard = || {
        guard = Some(Guard::start(&state.journal()).map_err(Failure::into_text)?);
        Ok(())
    };
    let means = FarMeans {
        journal: state.store(),
        start_guard: &mut start_guard,
        stop: signals::stop_flag(),
    };
    let served = command::serve_near(means);
    drop(guard);
    Ok(served?)
}
