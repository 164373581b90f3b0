//! `wirepath tunnel`: run, measure and check a forwarder.

mod check;
mod live;
mod measure;
mod run;

use clap::Subcommand;
use remote::Failure;

use crate::context::Context;

#[derive(Debug, Subcommand)]
pub(crate) enum TunnelCommand {
    /// Forward between a port and tunnels by a configuration file; SIGHUP reloads it
    #[command(after_help = "\
Example:
  wirepath tunnel run --config tunnel.toml --metrics 9101
  wirepath tunnel run --config tunnel.toml --live
  wirepath tunnel run --config tunnel.toml --check")]
    Run(run::RunArgs),
    /// Find the highest rate of a forwarder at each frame size, and the delay below it
    #[command(after_help = "\
Example:
  wirepath tunnel measure --forwarder bypass+batch+prepend
  wirepath tunnel measure --forwarder kernel --sizes 64,1518 --trial 1s --json")]
    Measure(measure::MeasureArgs),
    /// Find what slows packets that the kernel forwards: hash, queues, headroom, hooks, captures
    #[command(after_help = "\
Example:
  wirepath tunnel check --interface vxlan0
  wirepath tunnel check --interface br0 --netns gateway --severity medium --json")]
    Check(check::CheckArgs),
}

pub(crate) fn run(context: &Context, command: &TunnelCommand) -> Result<(), Failure> {
    match command {
        TunnelCommand::Run(args) => run::run(context, args),
        TunnelCommand::Measure(args) => measure::run(context, args),
        TunnelCommand::Check(args) => check::run(context, args),
    }
}
