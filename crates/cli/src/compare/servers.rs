//! Servers and their client: port, readiness and place are found by looking.

use std::time::Duration;

use command::{ServerCommand, ServersSeen};
use house::{console, signals};
use lab::adapters::{self, Client};
use lab::program::Transport;
use model::Programs;
use remote::Failure;

use super::{NEW, OLD, failed};

/// Time to start from which on each trial's start is worth a remark.
const SLOW_START: Duration = Duration::from_millis(500);
const PORT_VARIABLE: &str = "WIREPATH_PORT";

/// Adds the client's adapter, and the servers' port and place.
///
/// Errors: a server cannot be measured by a client.
pub(super) fn complete(
    programs: &mut Programs,
    old: &str,
    new: &str,
    line: &str,
) -> Result<(), Failure> {
    let far = lab::pair_far_ip().to_string();
    let is_shared = !adapters::client(line, Some(&far)).names_server;
    let is_loopback = match programs.ready {
        Some(_) => is_shared,
        None => {
            let seen = look(old, new, line)?;
            take(programs, &seen, [old, new]);
            say_server(&seen);
            seen.is_loopback || is_shared
        }
    };
    let client = adapters::client(line, (!is_loopback).then_some(far.as_str()));
    if is_loopback {
        programs.place = Some("loopback".to_owned());
        console::say(
            "server and client run in one namespace, over its loopback: no wire is between them",
        );
    }
    if client.is_changed {
        console::say(&format!("client: {}", client.line));
    }
    judge(programs, &client);
    programs.client = Some(client.line);
    Ok(())
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
    programs.keep = is_told && seen.ready >= SLOW_START;
}

fn say_server(seen: &ServersSeen) {
    let ServersSeen { transport, port, ready, .. } = seen;
    let slow = match ready {
        ready if *ready >= SLOW_START => {
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
