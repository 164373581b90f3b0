//! Servers and their client: port, readiness and place are found by looking.

use std::collections::BTreeMap;
use std::time::Duration;

use command::{Journals, ServerCommand, ServersSeen};
use house::{console, signals};
use lab::adapters::{self, Client};
use lab::program::Transport;
use model::Programs;
use remote::Failure;
use runner::JournalFolder;

use super::{NEW, OLD, failed};

/// Time to start from which on each trial's start is worth a remark.
const SLOW_START_MIN: Duration = Duration::from_millis(500);
/// Place of both ends in one namespace.
const LOOPBACK: &str = "loopback";
const PORT_VARIABLE: &str = "WIREPATH_PORT";

/// Adds the client's adapter, and the servers' port and place. The client runs once beforehand.
///
/// Errors: a server cannot be measured by this client.
pub(super) fn complete(
    programs: &mut Programs,
    old: &str,
    new: &str,
    line: &str,
) -> Result<(), Failure> {
    let far = lab::pair_far_ip().to_string();
    let over_wire = adapters::client(line, Some(&far));
    let over_loopback = adapters::client(line, None);
    judge(programs, &over_wire);
    let mut is_loopback = !over_wire.names_server;
    if programs.ready.is_none() {
        let seen = look(old, new, line)?;
        take(programs, &seen, [old, new]);
        say_server(&seen);
        is_loopback |= seen.is_loopback;
    }
    if programs.wire.is_some() || programs.arm.iter().any(|arm| !arm.switches.is_empty()) {
        // Neither is of a loopback.
        *programs = placed(programs, &over_wire, None);
        return rehearse(programs);
    }
    let shared = placed(programs, &over_loopback, Some(LOOPBACK));
    let joined = placed(programs, &over_wire, None);
    let tried = if is_loopback { Err(None) } else { rehearse(&joined).map_err(Some) };
    *programs = match tried {
        Ok(()) => joined,
        Err(None) => {
            rehearse(&shared)?;
            say_loopback("");
            shared
        }
        // A server may serve clients of its own host alone.
        Err(Some(refused)) => {
            if rehearse(&shared).is_err() {
                return Err(refused);
            }
            say_loopback(", because the client fails from another host");
            shared
        }
    };
    if over_wire.is_changed {
        console::say(&format!("client: {}", programs.client.as_deref().unwrap_or_default()));
    }
    Ok(())
}

fn say_loopback(why: &str) {
    console::say(&format!(
        "server and client run in one namespace{why}: over its loopback, with no wire between them"
    ));
}

/// The experiment with a client, in a place.
fn placed(programs: &Programs, client: &Client, place: Option<&str>) -> Programs {
    Programs {
        client: Some(client.line.clone()),
        place: place.map(str::to_owned),
        ..programs.clone()
    }
}

fn rehearse(programs: &Programs) -> Result<(), Failure> {
    let spec = command::resolve(programs).map_err(Failure::usage)?;
    let journals = JournalFolder::default();
    let journals =
        Journals { far: journals.store(), near: journals.store(), places: BTreeMap::new() };
    command::rehearse(&spec, journals, signals::stop_flag()).map_err(|error| failed(&error))
}

fn look(old: &str, new: &str, client: &str) -> Result<ServersSeen, Failure> {
    let servers =
        [ServerCommand { name: OLD, command: old }, ServerCommand { name: NEW, command: new }];
    command::scout(&servers, client, signals::stop_flag()).map_err(|error| failed(&error))
}

/// Takes the port that was found. Servers that are told their port are kept if they start slowly.
fn take(programs: &mut Programs, seen: &ServersSeen, commands: [&str; 2]) {
    let transport = match seen.transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
    };
    programs.port = Some(seen.port);
    programs.ready = Some(format!("{transport}:{}", seen.port));
    let is_told = commands.iter().all(|command| command.contains(PORT_VARIABLE));
    programs.keep = is_told && seen.ready >= SLOW_START_MIN;
}

fn say_server(seen: &ServersSeen) {
    let ServersSeen { transport, port, ready, .. } = seen;
    let slow = match ready {
        ready if *ready >= SLOW_START_MIN => {
            "; it starts anew in each trial: with $WIREPATH_PORT as its port it would be kept"
        }
        _ => "",
    };
    console::say(&format!(
        "servers: {transport} port {port}, ready after {} ms{slow}",
        ready.as_millis()
    ));
}

/// Chooses the figures: those that were asked for, else those of a known client, else the wall time.
fn judge(programs: &mut Programs, client: &Client) {
    if let Some(adapter) = client.adapter {
        programs.adapter = Some(adapter.to_owned());
        let first =
            adapters::ready_made(adapter).and_then(|adapter| adapter.figures.into_iter().next());
        if programs.metrics.is_empty() {
            programs.deciding = first.into_iter().map(|figure| figure.name).collect();
        }
    } else if programs.metrics.is_empty() {
        programs.deciding = vec!["client_wall_ns".to_owned()];
        console::say(
            "this client is not a known one, so its wall time decides; if it runs for a fixed time, name a figure of its \
             output with --metric",
        );
    }
}
