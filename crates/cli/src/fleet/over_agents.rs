//! `wirepath fleet prove --fleet DIR`: the same experiment on hosts with agents.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use fleet::book::{Archive, Coordinator, Job, VERSION};
use model::pool::{PooledOutcome, pool};

use super::prove::outcomes;
use super::servers::{Servers, insist};
use super::{allowed, now_ms};
use crate::exit::Failure;
use crate::{console, signals};

#[derive(Debug, Args)]
pub(super) struct AgentsArgs {
    /// Measure on hosts with agents: folder that `fleet init` wrote
    #[arg(long, value_name = "DIR", conflicts_with_all = ["on", "ssh_option"])]
    fleet: Option<PathBuf>,
    /// Some hosts of the fleet; default: all
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', requires = "fleet")]
    agents: Vec<String>,
    /// Time in which an agent must take its job; later it counts as missing
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration, requires = "fleet")]
    taken_within: Duration,
}

impl AgentsArgs {
    /// Runs the experiment on agents, and pools their outcomes; `None` without `--fleet`.
    pub(super) fn prove(&self, arguments: &[String]) -> Result<Option<PooledOutcome>, Failure> {
        let Some(folder) = &self.fleet else { return Ok(None) };
        prove(folder, &self.agents, arguments, self.taken_within).map(Some)
    }
}

/// - `chosen`: hosts; all of the fleet if empty.
/// - `taken_within`: time after which a job that no agent took is given up.
fn prove(
    folder: &Path,
    chosen: &[String],
    arguments: &[String],
    taken_within: Duration,
) -> Result<PooledOutcome, Failure> {
    allowed::check_job(arguments)?;
    let mut servers = Servers::open(folder)?;
    let hosts = hosts(&servers, chosen)?;
    if !servers.archive.lock_coordinator()? {
        return Err(Failure::failed(
            "another `wirepath fleet prove` runs on the same database; wait for it",
        ));
    }
    end_leftovers(&mut servers)?;
    let id = format!("fleet-{}", now_ms());
    let not_after_ms = servers.now_ms().saturating_add(taken_within.as_millis() as u64);
    servers.archive.plan(&jobs(&id, &hosts, arguments, not_after_ms))?;
    conduct(&mut servers, &id)?;
    let rows = servers.archive.rows(&id)?;
    Ok(pool(&outcomes(&hosts, &rows)))
}

fn hosts(servers: &Servers, chosen: &[String]) -> Result<Vec<String>, Failure> {
    let known = &servers.fleet.hosts;
    if let Some(unknown) = chosen.iter().find(|host| !known.contains_key(*host)) {
        return Err(Failure::Usage(format!(
            "{unknown} is not in the fleet; `wirepath fleet init` adds hosts"
        )));
    }
    let is_chosen = |host: &&String| chosen.is_empty() || chosen.contains(host);
    Ok(known.keys().filter(is_chosen).cloned().collect())
}

/// Cancels what a coordinator that was killed left open: this one holds the lock.
fn end_leftovers(servers: &mut Servers) -> Result<(), Failure> {
    for entry in servers.archive.entries(None)? {
        if !entry.state.is_final() {
            let coordinator = Coordinator::new(entry.job.experiment.clone());
            coordinator.cancel(&mut servers.archive, "its coordinator ended")?;
        }
    }
    Ok(())
}

fn jobs(id: &str, hosts: &[String], arguments: &[String], not_after_ms: u64) -> Vec<Job> {
    let mut args = arguments.to_vec();
    args.push("--json".into());
    let job = |host: &String| Job {
        v: VERSION,
        job: format!("{id}-{host}"),
        experiment: id.to_owned(),
        host: host.clone(),
        attempt: 1,
        fence: 0,
        args: args.clone(),
        not_after_ms,
    };
    hosts.iter().map(job).collect()
}

/// Drives the jobs to their ends; a stop cancels those that are open.
fn conduct(servers: &mut Servers, id: &str) -> Result<(), Failure> {
    let mut coordinator = Coordinator::new(id);
    let mut ended = 0;
    loop {
        let turn = insist(servers, |servers| {
            let now_ms = servers.now_ms();
            let Servers { exchange, archive, .. } = servers;
            let has_ended = coordinator.turn(exchange, archive, now_ms)?;
            servers.keep_refused()?;
            Ok((has_ended, servers.archive.entries(Some(id))?))
        });
        let Some((has_ended, entries)) = turn else {
            coordinator.cancel(&mut servers.archive, "interrupted")?;
            return Ok(());
        };
        let now_ended = entries.iter().filter(|entry| entry.state.is_final()).count();
        if now_ended != ended {
            ended = now_ended;
            console::say(&format!("{ended} of {} ended", console::count(entries.len(), "job")));
        }
        if has_ended {
            return Ok(());
        }
        if signals::stop_requested() {
            coordinator.cancel(&mut servers.archive, "interrupted")?;
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
