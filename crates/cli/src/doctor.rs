//! `wirepath doctor`: settings that slow packets, with the remedy.

use clap::Args;
use host::causes::{self, Evidence};
use host::tune::Profile;
use house::context::Context;
use house::findings::{Examined, OutputArgs, show};
use house::next::CommandLine;
use house::place::{ExamineArgs, StateArgs, notice};
use remote::Failure;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    place: ExamineArgs,
    /// Purpose of the packets; without it, settings that help one purpose and harm another pass
    #[arg(long, value_enum)]
    profile: Option<Profile>,
    /// CPU of the application that receives the packets
    #[arg(long, value_name = "CPU")]
    app_cpu: Option<usize>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    state: StateArgs,
}

pub(crate) fn run(context: &Context, args: &DoctorArgs) -> Result<(), Failure> {
    notice(&args.state);
    let place = args.place.place();
    let system = place.open(&args.state)?;
    let profile = args.profile;
    let view = Evidence::new(system, place.interface.as_deref(), profile, args.app_cpu)?;
    let report = causes::examine(&view);
    let purpose = profile.map_or(String::new(), |profile| format!(", for {}", profile.name()));
    let examined = Examined { place: &place, purpose: &purpose, command: command(args) };
    show(context, &report, &examined, &args.output)
}

/// This command with its options but those of the place and of the output.
fn command(args: &DoctorArgs) -> CommandLine {
    let cpu = args.app_cpu.map(|cpu| cpu.to_string());
    let line = CommandLine::new("doctor").option("--profile", args.profile.map(Profile::name));
    line.option("--app-cpu", cpu.as_deref())
}
