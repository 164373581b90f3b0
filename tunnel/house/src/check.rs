//! `wirepath tunnel check`: the doctor's checks that matter to packets on their way through.

use clap::Args;
use host::causes::{self, Evidence};
use host::tune::Profile;
use house::context::Context;
use house::findings::{Examined, OutputArgs, show};
use house::next::CommandLine;
use house::place::{ExamineArgs, StateArgs, notice};
use remote::Failure;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    place: ExamineArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    state: StateArgs,
}

pub(super) fn run(context: &Context, args: &CheckArgs) -> Result<(), Failure> {
    notice(&args.state);
    let place = args.place.place();
    let system = place.open(&args.state)?;
    let interface = place.interface.as_deref();
    let view = Evidence::new(system, interface, Some(Profile::Forwarding), None)?;
    let report = causes::examine_forwarding(&view);
    let (place, command) = (&place, CommandLine::new("tunnel check"));
    let examined = Examined { place, purpose: ", on the way through", command };
    show(context, &report, &examined, &args.output)
}
