//! `wirepath`: parse, wire together, print. The only crate that writes to a terminal.

mod args;
mod console;
mod doctor;
mod end;
mod explain;
mod fake;
mod feed;
mod generate;
mod guest;
mod history;
#[cfg(test)]
#[path = "../../../fuzz/inputs.rs"]
mod inputs;
mod live;
mod machine;
mod metrics;
mod near;
mod path_page;
mod paths_list;
mod peer;
mod prove;
#[cfg(test)]
mod reference;
mod report_cmd;
mod rights;
mod serve;
mod stop;
mod summary;
mod tune;
mod tunnel;
mod vmnic;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::args::{Cli, Command, ProbeCommand};
use crate::end::Failure;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let ran = stop::install()
        .map_err(Failure::from)
        .and_then(|()| rights::begin(&cli.command))
        .and_then(|()| run(&cli));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            console::error(&failure);
            ExitCode::from(failure.code())
        }
    }
}

fn run(cli: &Cli) -> Result<(), Failure> {
    match &cli.command {
        Command::Paths => paths_list::run(cli),
        Command::Prove(args) => prove::run(cli, args),
        Command::Probe(ProbeCommand::Send(args)) => near::send(cli, args),
        Command::Probe(ProbeCommand::Ping(args)) => near::ping(cli, args),
        Command::Probe(ProbeCommand::Receive(args)) => near::receive(cli, args),
        Command::Probe(ProbeCommand::Echo(args)) => near::echo(cli, args),
        Command::Probe(ProbeCommand::Generate(args)) => generate::run(cli, args),
        Command::Feed(command) => feed::run(cli, command),
        Command::Guest(command) => guest::run(cli, command),
        Command::Vmnic(command) => vmnic::run(cli, command),
        Command::Tunnel(command) => tunnel::run(cli, command),
        Command::Doctor(args) => doctor::run(cli, args),
        Command::Tune(args) => tune::run(cli, args),
        Command::Peer(args) => peer::run(args),
        Command::Explain(args) => explain::run(cli, args),
        Command::History { command } => history::run(cli, command.as_ref()),
        Command::Report(args) => report_cmd::run(cli, args),
        Command::Serve(args) => serve::run(cli, args),
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
