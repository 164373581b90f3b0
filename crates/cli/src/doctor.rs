//! `wirepath doctor`: settings that slow packets, with the remedy.

use clap::Args;
use host::doctor::{self, HostView};
use host::tune::Profile;
use house::context::Context;
use house::findings::{OutputArgs, show};
use house::place::{NetnsArgs, PlaceArgs, StateArgs, notice};
use remote::Failure;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Interface; default: all
    #[arg(value_name = "INTERFACE")]
    interface: Option<String>,
    #[command(flatten)]
    netns: NetnsArgs,
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

impl DoctorArgs {
    fn place(&self) -> PlaceArgs {
        PlaceArgs { interface: self.interface.clone(), netns: self.netns.clone() }
    }
}

pub(crate) fn run(context: &Context, args: &DoctorArgs) -> Result<(), Failure> {
    notice(&args.state);
    let place = args.place();
    let system = place.open(&args.state)?;
    let profile = args.profile;
    let view = HostView::new(system, place.interface.as_deref(), profile, args.app_cpu)?;
    let report = doctor::examine(&view);
    show(context, &report, &title(&place, args.profile), &args.output)
}

fn title(place: &PlaceArgs, profile: Option<Profile>) -> String {
    let purpose = profile.map_or(String::new(), |p| format!(", for {}", p.name()));
    format!("{}{purpose}", place.title())
}
