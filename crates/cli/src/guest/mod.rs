//! `wirepath guest`: what the path `guest` does by hand.

mod bench;
mod run;
mod table;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use model::Scope;
use paths::PathError;
use paths::guest::qemu::Boot;
use paths::guest::{GuestError, SWITCHES, files};

use crate::args::Cli;
use crate::end::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum GuestCommand {
    /// Boot the firmware with its console on the terminal
    #[command(after_help = "\
Example:
  wirepath guest run --switches quiet,async-tx --tap --trace")]
    Run(run::RunArgs),
    /// Measure by hand, or test the kernel (`prove guest` compares arms properly)
    #[command(
        subcommand,
        after_help = "Example:\n  wirepath guest bench tap --count 100\n  \
                      wirepath guest bench flood --frames 1000000"
    )]
    Bench(bench::BenchCommand),
}

/// What is booted.
#[derive(Debug, Args)]
pub(super) struct ImageArgs {
    /// The firmware; WIREPATH_GUEST_IMAGE, next to the program, or what was built, unless given
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Pace the console like a line of so many baud: 87 µs a character
    #[arg(long, value_name = "BAUD", value_parser = ["115200"])]
    uart: Option<String>,
}

impl ImageArgs {
    /// A boot with these switches, `baseline` or nothing for none.
    fn boot(&self, switches: &str) -> Result<Boot, Failure> {
        let switches = if switches == "baseline" { "" } else { switches };
        let of_the_guest = || SWITCHES.iter().filter(|switch| switch.scope == Scope::Guest);
        for id in switches.split(',').filter(|id| !id.is_empty()) {
            if !of_the_guest().any(|switch| switch.id == id) {
                let known: Vec<&str> = of_the_guest().map(|switch| switch.id).collect();
                let known = known.join(", ");
                return Err(Failure::Usage(format!("no switch {id} in the firmware: {known}")));
            }
        }
        let image = match &self.image {
            Some(image) => image.clone(),
            None => files::image()?,
        };
        let boot = Boot::firmware(&image, switches);
        Ok(match &self.uart {
            Some(baud) => boot.with_words(&format!("wirepath.uart={baud}")),
            None => boot,
        })
    }
}

impl From<GuestError> for Failure {
    fn from(error: GuestError) -> Self {
        PathError::from(error).into()
    }
}

pub(crate) fn run(cli: &Cli, command: &GuestCommand) -> Result<(), Failure> {
    match command {
        GuestCommand::Run(args) => run::run(cli, args),
        GuestCommand::Bench(command) => bench::run(cli, command),
    }
}
