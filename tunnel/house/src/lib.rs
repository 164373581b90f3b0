//! The house of tunnels: path `tunnel` and `wirepath tunnel`.

mod check;
mod live;
mod measure;
mod picture;
mod run;

use clap::Subcommand;
use house::context::Context;
use house::document::{NamedSchema, written};
use house::findings::DoctorDocument;
use house::{Command, House, HouseCommand};
use remote::Failure;

#[derive(Debug, Subcommand)]
enum TunnelCommand {
    /// Forward between a port and tunnels by a configuration file; SIGHUP reloads it
    #[command(after_help = "\
Example:
  wirepath tunnel run tunnel.toml --listen 9101
  wirepath tunnel run tunnel.toml --live
  wirepath tunnel run tunnel.toml --check")]
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
  wirepath tunnel check vxlan0
  wirepath tunnel check br0 --netns gateway --severity medium --json")]
    Check(check::CheckArgs),
}

/// The house of tunnels.
pub struct TunnelHouse;

impl House for TunnelHouse {
    fn paths(&self) -> Vec<Box<dyn model::Path>> {
        vec![Box::new(tunnel::TunnelPath)]
    }

    fn commands(&self) -> &'static [Command] {
        const { &[Command::new::<TunnelCommand>()] }
    }

    fn documents(&self) -> &'static [NamedSchema] {
        &[("tunnel check", written::<DoctorDocument<'_>>)]
    }
}

impl HouseCommand for TunnelCommand {
    const NAME: &str = "tunnel";
    const ABOUT: &str = "Forward Ethernet frames through VXLAN and GRETAP tunnels";
    const EXAMPLE: &str = "  wirepath tunnel run /etc/wirepath/tunnel.toml";

    fn starts_programs(&self) -> bool {
        !matches!(self, TunnelCommand::Run(_))
    }

    fn run(&self, context: &Context) -> Result<(), Failure> {
        match self {
            TunnelCommand::Run(args) => run::run(context, args),
            TunnelCommand::Measure(args) => measure::run(context, args),
            TunnelCommand::Check(args) => check::run(context, args),
        }
    }
}
