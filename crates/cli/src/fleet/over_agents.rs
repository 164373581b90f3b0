//! `wirepath fleet prove --fleet DIR`: the same experiment on hosts with agents.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use fleet::book::{Archive, Coordinator, Job};
use fleet::enrol::Fleet;
use house::{console, signals};
use model::Request;
use model::pool::{PooledOutcome, pool_groups};
use remote::Failure;
use remote::work::Call;

use super::allowed::{self, Permissions};
use super::now_ms;
use super::outcomes::outcomes;
use super::servers::{Servers, insist};

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
    /// Folder of the fleet; `None` for hosts without agents.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.fleet.as_deref()
    }

    /// Time in which an agent must take a measurement.
    pub(super) fn taken_within(&self) -> Duration {
        self.taken_within
    }

    /// Names of the hosts: those chosen, or all of the fleet.
    pub(super) fn hosts(&self, fleet: &Fleet) -> Result<Vec<String>, Failure> {
        let known = &fleet.hosts;
        if let Some(unknown) = self.agents.iter().find(|host| !known.contains_key(*host)) {
            return Err(Failure::Usage(format!(
                "{unknown} is not in the fleet; `wirepath fleet init` adds hosts"
            )));
        }
        if self.agents.is_empty() {
            return Ok(known.keys().cloned().collect());
        }
        Ok(known.keys().filter(|host| self.agents.contains(host)).cloned().collect())
    }

    /// Runs the experiment on agents, and pools their outcomes; `None` without `--fleet`.
    pub(super) fn prove(&self, request: &Request) -> Result<Option<PooledOutcome>, Failure> {
        let Some(folder) = &self.fleet else { return Ok(None) };
        allowed::check_request(request, &Permissions::coordinator(false))?;
        let mut servers = Servers::open(folder)?;
        let hosts = self.hosts(&servers.fleet)?;
        servers.coordinate()?;
        let id = format!("fleet-{}", now_ms());
        let not_after_ms = servers.now_ms().saturating_add(self.taken_within.as_millis() as u64);
        servers.archive.plan(&jobs(&id, &hosts, request, not_after_ms))?;
        let mut ended = 0;
        conduct(&mut servers, &id, |open| {
            let now_ended = hosts.len().saturating_sub(open);
            if now_ended != ended {
                ended = now_ended;
                console::say(&format!("{ended} of {} ended", console::count(hosts.len(), "job")));
            }
        })?;
        let rows = servers.archive.rows(&id)?;
        Ok(Some(pool_groups(&outcomes(&hosts, &rows), &servers.fleet.groups)))
    }
}

fn jobs(id: &str, hosts: &[String], request: &Request, not_after_ms: u64) -> Vec<Job> {
    let call = Call::RunAlone(Box::new(request.clone()));
    hosts.iter().map(|host| Job::new(id, host, call.clone(), not_after_ms)).collect()
}

/// Drives the jobs of an experiment to their ends; a stop cancels those that are open.
///
/// - `tell`: called with the number of open jobs after each turn.
pub(super) fn conduct(
    servers: &mut Servers,
    id: &str,
    mut tell: impl FnMut(usize),
) -> Result<(), Failure> {
    let mut coordinator = Coordinator::new(id);
    loop {
        let turn = insist(servers, |servers| {
            let now_ms = servers.now_ms();
            let Servers { exchange, archive, .. } = servers;
            let has_ended = coordinator.turn(exchange, archive, now_ms)?;
            servers.keep_refused()?;
            Ok(has_ended)
        });
        let Some(has_ended) = turn else {
            coordinator.cancel(&mut servers.archive, "interrupted")?;
            return Ok(());
        };
        tell(coordinator.open());
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
