//! `wirepath answer NAME`: the end that answers calls of another process of this program, which starts it.

use clap::Args;
use clap::builder::PossibleValue;
use command::FarMeans;
use house::context::Context;
use house::place::StateArgs;
use house::signals;
use remote::path::PathService;
use remote::{Failure, Service};

use crate::guard::Guard;
use crate::{houses, lookup};

#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    /// Service
    #[arg(value_name = "NAME", value_parser = services())]
    service: String,
    /// Path of this program, for service path
    #[arg(value_name = "PATH", required_if_eq("service", PathService::NAME))]
    path: Option<String>,
    #[command(flatten)]
    state: StateArgs,
}

/// Services of the core, and those of the houses.
fn services() -> Vec<PossibleValue> {
    let own = [
        (command::SERVICE, "Servers for `prove command --far ssh:HOST`"),
        (remote::work::Host::NAME, "Experiments, steps of roll-outs and pings for `fleet --on`"),
        (probe::FarPeers::NAME, "Servers of peer programs for `prove probe --far ssh:HOST`"),
        (PathService::NAME, "Trials of a path for `prove --against`"),
    ];
    let others = services_of_houses().map(|service| (service.name, service.what));
    own.into_iter().chain(others).map(|(name, what)| PossibleValue::new(name).help(what)).collect()
}

fn services_of_houses() -> impl Iterator<Item = &'static house::HouseService> {
    houses::all().iter().flat_map(|house| house.services())
}

impl AnswerArgs {
    /// True if the service starts other programs.
    pub(crate) fn starts_programs(&self) -> bool {
        service_of_house(&self.service).is_none_or(|service| service.starts_programs)
    }
}

fn service_of_house(name: &str) -> Option<&'static house::HouseService> {
    services_of_houses().find(|service| service.name == name)
}

/// Answers the calls on standard input, until it ends.
pub(crate) fn run(context: &Context, args: &AnswerArgs) -> Result<(), Failure> {
    match args.service.as_str() {
        command::SERVICE => answer_programs(&args.state),
        remote::work::Host::NAME => crate::fleet::host::run(context, &args.state),
        probe::FarPeers::NAME => Ok(probe::answer_peers(signals::stop_flag())?),
        PathService::NAME => answer_path(args.path.as_deref().unwrap_or_default()),
        name => match service_of_house(name) {
            Some(service) => (service.answer)(),
            None => Err(Failure::Usage(format!("no service named {name}"))),
        },
    }
}

fn answer_path(name: &str) -> Result<(), Failure> {
    let path = lookup::built_in(name)
        .ok_or_else(|| Failure::Usage(format!("this build has no path named {name}")))?;
    runner::answer_path(path.as_ref(), signals::stop_flag())
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
