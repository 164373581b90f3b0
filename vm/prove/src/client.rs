//! Load `client`: the user's command against or through the guest.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lab::adapters::{Figure, FigureError};
use lab::program::{FinishedProgram, Program, ProgramSpec, Ready};
use model::PathError;

use crate::check::{CheckedClient, CheckedVm};
use crate::error::failed_by;
use crate::machine::Machine;

/// Time limit for a client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for a server to start: it says nothing about itself.
const SERVER_READY: Ready = Ready::Sleep(Duration::from_millis(300));
const SERVER_READY_TIMEOUT: Duration = Duration::from_secs(10);
const SERVER_GRACE: Duration = Duration::from_secs(1);

/// A client that has ended.
pub(crate) struct Served<'a> {
    pub(crate) client: FinishedProgram,
    pub(crate) figures: Vec<(&'a Figure, f64)>,
}

/// Runs the server, if there is one, and the client.
///
/// Errors: one of them failed, or the client's output lacks a figure.
pub(crate) fn run<'a>(
    vm: &CheckedVm,
    client: &'a CheckedClient,
    machine: &Machine,
    variables: &[(String, String)],
    stop: &AtomicBool,
) -> Result<Served<'a>, PathError> {
    let server = match (&client.server, machine.far()) {
        (Some(command), Some(far)) => {
            let mut server = start(vm, "server", command, far, variables)?;
            let ready = server.wait_ready(&SERVER_READY, SERVER_READY_TIMEOUT, stop);
            ready.map_err(|error| failed_by("server", &error))?;
            Some(server)
        }
        _ => None,
    };
    let program = start(vm, "client", &client.line, machine.near(), variables)?;
    let finished = program.wait(CLIENT_TIMEOUT, stop);
    let finished = finished.map_err(|error| failed_by("client", &error))?;
    if let Some(server) = server {
        let stopped = server.stop(SERVER_GRACE);
        stopped.map_err(|error| failed_by("server", &error))?;
    }
    if !finished.status.success() {
        let why = crate::error::one_line(&finished.last_lines());
        return Err(PathError::at("client", format!("{}; {why}", finished.status)));
    }
    let figures = figures(client, finished.stdout.bytes()).map_err(|error| {
        let why = host::text::chain(&error);
        PathError::at(
            "client",
            crate::error::one_line(&format!("{why}; {}", finished.last_lines())),
        )
    })?;
    Ok(Served { client: finished, figures })
}

fn start(
    vm: &CheckedVm,
    name: &str,
    command: &str,
    port: &lab::TapPort,
    variables: &[(String, String)],
) -> Result<Program, PathError> {
    let spec = ProgramSpec {
        command,
        env: variables.to_vec(),
        netns: Some(&port.netns),
        cpus: &[],
        folder: &vm.folder,
        name,
    };
    Program::start(&spec).map_err(PathError::part)
}

fn figures<'a>(
    client: &'a CheckedClient,
    output: &[u8],
) -> Result<Vec<(&'a Figure, f64)>, FigureError> {
    let mut taken = Vec::new();
    if let Some(adapter) = &client.adapter {
        let values = adapter.take(output)?.into_iter().map(|(_, value)| value);
        taken.extend(adapter.figures.iter().zip(values));
    }
    for figure in &client.figures {
        taken.push((figure, figure.take(output)?));
    }
    Ok(taken)
}
