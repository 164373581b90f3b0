//! `wirepath`: parse, wire together, print. The only crate that writes to a terminal.

mod answer;
mod args;
#[cfg(feature = "fleet")]
mod atlas;
mod command;
mod compare;
mod doctor;
mod doctor_prove;
mod explain;
mod fake;
mod far_args;
mod fleet;
mod gate;
mod guard;
mod history;
mod houses;
mod line;
mod load;
mod lookup;
mod path_page;
mod paths_list;
mod peer;
mod probe;
mod process;
mod prove;
mod proven;
mod report_cmd;
mod results;
mod running;
mod schema;
mod secret;
mod serve;
mod shared_args;
mod syslog;
mod tune;

use std::process::ExitCode;

use house::context::Context;
use house::{console, privileges, signals};
use remote::Failure;

use crate::args::Command;
use crate::line::Line;

fn main() -> ExitCode {
    let line = Line::parse();
    // A process with a second thread cannot enter a user namespace.
    let ran = privileges::for_lab(line.lab_use())
        .and_then(|()| signals::install().map_err(Failure::from))
        .and_then(|()| privileges::restrict(line.starts_programs()))
        .and_then(|()| line.run());
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            console::error(&failure);
            ExitCode::from(failure.exit_code().code())
        }
    }
}

fn run(context: &Context, command: &Command) -> Result<(), Failure> {
    match command {
        Command::Compare(args) => compare::run(context, args),
        Command::Paths(args) => paths_list::run(context, args),
        Command::Prove(args) => prove::run(context, args),
        Command::Probe(command) => probe::run(context, command),
        Command::Fleet(command) => fleet::run(context, command),
        Command::Doctor(args) => doctor::run(context, args),
        Command::Tune(args) => tune::run(context, args),
        Command::Load(command) => load::run(context, command),
        Command::Peer(args) => peer::run(args),
        Command::Secret(args) => secret::run(args),
        Command::Answer(args) => answer::run(context, args),
        Command::Explain(args) => explain::run(context, args),
        Command::History { command } => history::run(context, command.as_ref()),
        #[cfg(feature = "fleet")]
        Command::Atlas(args) => atlas::run(context, args),
        Command::Report(args) => report_cmd::run(context, args),
        Command::Serve(args) => serve::run(context, args),
        Command::Schema { command } => schema::run(command),
        Command::Completions { shell } => console::bytes(&line::complete::script(*shell)),
        Command::Complete { words } => line::complete::run(context, words),
        Command::Help { topic } => line::help(topic),
        Command::Man { dir } => std::fs::create_dir_all(dir)
            .and_then(|()| clap_mangen::generate_to(line::command_line(), dir))
            .map_err(|e| {
                Failure::failed(format!("cannot write man pages to {}: {e}", dir.display()))
            }),
    }
}
