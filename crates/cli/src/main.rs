//! `wirepath`: parse, wire together, print. The only crate that writes to a terminal.

mod answer;
mod args;
mod command;
mod console;
mod context;
mod doctor;
mod explain;
mod fake;
mod far_args;
mod feed;
mod fleet;
mod gate;
mod guest;
mod history;
mod http;
mod live;
mod lookup;
mod metrics;
mod notes;
mod path_page;
mod paths_list;
mod peer;
mod privileges;
mod probe;
mod prove;
mod proven;
mod receive_stamps;
mod report_cmd;
mod results;
mod running;
mod schema;
mod secret;
mod serve;
mod shared_args;
mod signals;
mod syslog;
mod tune;
mod tunnel;
mod vmnic;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use remote::Failure;

use crate::args::{Cli, Command};
use crate::context::Context;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let ran = signals::install()
        .map_err(Failure::from)
        .and_then(|()| privileges::restrict(cli.command.starts_programs()))
        .and_then(|()| run(&cli.context, &cli.command));
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
        Command::Paths(args) => paths_list::run(context, args),
        Command::Prove(args) => prove::run(context, args),
        Command::Probe(command) => probe::run(context, command),
        Command::Feed(command) => feed::run(context, command),
        Command::Guest(command) => guest::run(context, command),
        Command::Vmnic(command) => vmnic::run(context, command),
        Command::Tunnel(command) => tunnel::run(context, command),
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
            clap_complete::generate(*shell, &mut Cli::command(), "wirepath", &mut script);
            console::bytes(&script)
        }
        Command::Man { dir } => std::fs::create_dir_all(dir)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), dir))
            .map_err(|e| {
                Failure::failed(format!("cannot write man pages to {}: {e}", dir.display()))
            }),
    }
}
