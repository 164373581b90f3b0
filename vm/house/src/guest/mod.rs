//! `wirepath guest`: the firmware of path `guest`, run by hand.

pub(crate) mod run;
pub(crate) mod selftest;

use std::fs::File;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use guest::qemu::Boot;
use guest::{Switch, files};
use house::HouseCommand;
use house::context::Context;
use model::{PathError, PathSwitch, SwitchScope};
use remote::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum GuestCommand {
    /// Boot the firmware with its console on the terminal
    #[command(after_help = "\
Example:
  wirepath guest run --switches quiet,async-tx --tap --trace")]
    Run(run::RunArgs),
    /// Test the firmware's kernel on the machine, and that it catches a stack overflow
    #[command(after_help = "Example:\n  wirepath guest selftest")]
    Selftest(selftest::SelftestArgs),
}

#[derive(Debug, Args)]
pub(super) struct ImageArgs {
    /// Firmware image [default: WIREPATH_GUEST_IMAGE, next to the program, or the built one]
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Pace the console like a serial line of this speed: 87 µs a character
    #[arg(long, value_name = "BAUD", value_parser = ["115200"])]
    uart: Option<String>,
}

impl ImageArgs {
    /// A boot with these switches; `baseline` and the empty string mean none.
    fn boot(&self, switches: &str) -> Result<Boot, Failure> {
        let switches = if switches == "baseline" { "" } else { switches };
        let known = Switch::SPECS.iter().filter(|switch| switch.scope == SwitchScope::Guest);
        let known: Vec<&str> = known.map(|switch| switch.id).collect();
        let mut ids = switches.split(',').filter(|id| !id.is_empty());
        if let Some(id) = ids.find(|id| !known.contains(id)) {
            let hint = model::did_you_mean(id, known.iter().copied());
            let known = known.join(", ");
            return Err(Failure::Usage(format!(
                "the firmware has no switch {id}{hint}it has {known}"
            )));
        }
        let image = match &self.image {
            Some(image) => {
                File::open(image).map_err(|error| {
                    Failure::Usage(format!("cannot read the image {}: {error}", image.display()))
                })?;
                files::checked_version(image.clone()).map_err(PathError::from)?
            }
            None => files::image().map_err(PathError::from)?,
        };
        let boot = Boot::firmware(&image, switches);
        Ok(match &self.uart {
            Some(baud) => boot.with_words(&format!("wirepath.uart={baud}")),
            None => boot,
        })
    }
}

impl HouseCommand for GuestCommand {
    const NAME: &str = "guest";
    const ABOUT: &str = "Boot the firmware with the virtio-net driver by hand, or test its kernel";
    const EXAMPLE: &str = "  wirepath guest run --switches quiet --tap\n  \
                           wirepath prove guest --arms ladder --peers linux --time 120s";

    fn starts_programs(&self) -> bool {
        true
    }

    fn run(&self, context: &Context) -> Result<(), Failure> {
        match self {
            GuestCommand::Run(args) => run::run(context, args),
            GuestCommand::Selftest(args) => selftest::run(context, args),
        }
    }
}
