//! `wirepath tunnel check`: the doctor's checks that matter to packets on their way through.

use clap::Args;
use host::doctor::{self, Scene};
use host::tune::Profile;

use crate::args::Cli;
use crate::doctor::{OutputArgs, show};
use crate::end::Failure;
use crate::tune::{PlaceArgs, StateArgs, notice};

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    state: StateArgs,
}

pub(super) fn run(cli: &Cli, args: &CheckArgs) -> Result<(), Failure> {
    notice(&args.state);
    let system = args.place.open(&args.state)?;
    let interface = args.place.interface.as_deref();
    let scene = Scene::new(system, interface, Some(Profile::Forwarding), None)?;
    let report = doctor::examine_forwarding(&scene);
    show(cli, &report, &format!("{}, on the way through", args.place.title()), &args.output)
}
