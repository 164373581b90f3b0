//! `wirepath`: parse, wire together, print. The only crate that writes to a terminal.

mod answer;
mod args;
mod command;
mod compare;
mod doctor;
mod explain;
mod fake;
mod far_args;
mod fleet;
mod gate;
mod guard;
mod history;
mod houses;
mod lookup;
mod path_page;
mod paths_list;
mod peer;
mod probe;
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

use crate::args::{Command, Line};

fn main() -> ExitCode {
    let line = Line::parse();
    let ran = signals::install()
        .map_err(Failure::from)
        .and_then(|()| privileges::restrict(line.starts_programs()))
        .and_then(|()| line.run());
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            console::error(&failure);
            ExitCode::from(failure.code())
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
        Command::Peer(args) => peer::run(args),
        Command::Secret(args) => secret::run(args),
        Command::Answer(args) => answer::run(context, args),
        Command::Explain(args) => explain::run(context, args),
        Command::History { command } => history::run(context, command.as_ref()),
        Command::Report(args) => report_cmd::run(context, args),
        Command::Serve(args) => serve::run(context, args),
        Command::Schema { command } => schema::run(command),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut args::command_line(), "wirepath", &mut script);
            console::bytes(&script)
        }
        Command::Man { dir } => std::fs::create_dir_all(dir)
            .and_then(|()| clap_mangen::generate_to(args::command_line(), dir))
            .map_err(|e| {
                Failure::failed(format!("cannot write man pages to {}: {e}", dir.display()))
            }),
    }
}
