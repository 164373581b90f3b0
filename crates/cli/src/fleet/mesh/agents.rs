//! `wirepath fleet mesh --fleet DIR`: pairs of hosts with agents. A round is an experiment with two jobs a pair.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fleet::book::{Archive, Job, JobRow, JobState};
use fleet::enrol::Fleet;
use fleet::mesh::{HostPair, PairCell};
use probe::random_session;
use remote::Failure;
use remote::work::{Call, Echo, EchoEnd, Ping};

use super::super::over_agents::conduct;
use super::super::servers::{Servers, insist};
use super::super::{allowed, now_ms};
use super::{At, Measure};

/// Time that one end of a pair waits for the other, beside that in which an agent must take its job.
const PAIR_GRACE: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(super) struct MeshAgentsArgs {
    /// Measure between hosts with agents: folder that `fleet init` wrote
    #[arg(long, value_name = "DIR", conflicts_with_all = ["on", "ssh_option"])]
    fleet: Option<PathBuf>,
    /// Some hosts of the fleet, each with `=ADDRESS` if others shall ping it there and not at that of the list of
    /// hosts; default: all
    #[arg(long, value_name = "NAME[=ADDRESS],…", value_delimiter = ',', requires = "fleet")]
    agents: Vec<At<String>>,
    /// Time in which an agent must take a job; later its host is lost until the next repeat
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = humantime::parse_duration, requires = "fleet")]
    taken_within: Duration,
}

impl MeshAgentsArgs {
    /// The hosts; `None` without `--fleet`.
    ///
    /// - `count`: round trips of one measurement.
    pub(super) fn hosts(&self, count: u32) -> Result<Option<Agents>, Failure> {
        let Some(folder) = &self.fleet else { return Ok(None) };
        let fleet = Fleet::read(folder).map_err(Failure::usage)?;
        let hosts = self.members(&fleet).map_err(Failure::Usage)?;
        let wait = self.taken_within.saturating_add(PAIR_GRACE);
        let wait_s = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX);
        for host in &hosts {
            allowed::check_ping(&Ping { address: host.address, count, session: 0, wait_s })?;
        }
        let (folder, taken_within) = (folder.clone(), self.taken_within);
        Ok(Some(Agents { folder, hosts, count, taken_within, wait_s }))
    }

    /// The hosts. Errors: one is unknown, named twice or without an address, or there are less than two.
    fn members(&self, fleet: &Fleet) -> Result<Vec<Member>, String> {
        let mut chosen = self.agents.clone();
        if chosen.is_empty() {
            chosen.extend(fleet.hosts.keys().map(|host| At { host: host.clone(), address: None }));
        }
        let mut hosts: Vec<Member> = Vec::new();
        for At { host: name, address } in chosen {
            if !fleet.hosts.contains_key(&name) {
                return Err(format!(
                    "{name} is not in the fleet; `wirepath fleet init` adds hosts"
                ));
            }
            if hosts.iter().any(|host| host.name == name) {
                return Err(format!("--agents names {name} twice; name each host once"));
            }
            let listed = fleet.addresses.get(&name).copied();
            let Some(address) = address.or(listed) else {
                return Err(format!(
                    "{name} has no address at which others ping it; give --agents {name}=ADDRESS, or \
                     `address=ADDRESS` in its line of the list of hosts to `wirepath fleet init`"
                ));
            };
            hosts.push(Member { name, address, lost: None });
        }
        match hosts.len() {
            0 | 1 => Err("a mesh needs two hosts at least; name more with --agents".into()),
            _ => Ok(hosts),
        }
    }
}

/// Hosts of a mesh, each with its agent.
#[derive(Clone)]
pub(super) struct Agents {
    /// Of the fleet.
    folder: PathBuf,
    hosts: Vec<Member>,
    /// Round trips of one measurement.
    count: u32,
    /// Time in which an agent must take a job.
    taken_within: Duration,
    /// Time that one end of a pair waits for the other.
    wait_s: u32,
}

/// Measures between them, as the only coordinator.
pub(super) struct ByAgents {
    agents: Agents,
    servers: Servers,
    id: String,
    /// Number of the latest round.
    round: u64,
}

#[derive(Clone)]
struct Member {
    name: String,
    address: IpAddr,
    /// Reason why it counts as lost in this repeat.
    lost: Option<String>,
}

impl Member {
    /// Result of its job, or the reason for its absence. A host that did not take it, or fell silent, is lost.
    fn ended(&mut self, rows: &[JobRow]) -> Result<String, String> {
        let (is_lost, why) = match rows.iter().find(|row| row.host == self.name) {
            Some(row) if row.state == JobState::Done => return Ok(row.body.clone()),
            Some(row) => (
                matches!(row.state, JobState::Expired | JobState::Lost),
                format!("{}: {}: {}", self.name, row.state.name(), row.body),
            ),
            None => (true, format!("{}: its job has not ended", self.name)),
        };
        if is_lost {
            self.lost = Some(why.clone());
        }
        Err(why)
    }
}

impl Agents {
    pub(super) fn names(&self) -> Vec<String> {
        self.hosts.iter().map(|host| host.name.clone()).collect()
    }

    /// Connects to the servers. Errors: one does not answer, or another experiment runs on them.
    pub(super) fn open(&self) -> Result<ByAgents, Failure> {
        let mut servers = Servers::open(&self.folder)?;
        servers.coordinate()?;
        Ok(ByAgents { agents: self.clone(), servers, id: format!("fleet-{}", now_ms()), round: 0 })
    }
}

impl ByAgents {
    fn jobs(&self, id: &str, pairs: &[HostPair]) -> Result<Vec<Job>, Failure> {
        let Agents { hosts, count, taken_within, wait_s, .. } = &self.agents;
        let within_ms = u64::try_from(taken_within.as_millis()).unwrap_or(u64::MAX);
        let not_after_ms = self.servers.now_ms().saturating_add(within_ms);
        let mut jobs = Vec::new();
        for &(near, far) in pairs {
            let (address, session) = (hosts[far].address, random_session()?);
            let (count, wait_s) = (*count, *wait_s);
            let until = Some(EchoEnd { count, wait_s });
            let echo = Call::Echo(Echo { ipv6: address.is_ipv6(), session, until });
            let ping = Call::Ping(Ping { address, count, session, wait_s });
            for (at, call) in [(far, echo), (near, ping)] {
                jobs.push(Job::new(id, &hosts[at].name, call, not_after_ms));
            }
        }
        Ok(jobs)
    }

    fn cell(&mut self, (near, far): HostPair, rows: &[JobRow]) -> PairCell {
        let echo = self.agents.hosts[far].ended(rows);
        let host = &mut self.agents.hosts[near];
        let mut cell: PairCell = match host.ended(rows) {
            Ok(body) => serde_json::from_str(&body).unwrap_or_else(|error| {
                PairCell::failed(format!("{}: its answer cannot be read: {error}", host.name))
            }),
            Err(why) => PairCell::failed(why),
        };
        // Its reason says more than the silence that the pings met.
        if cell.rtt_ns.is_none()
            && host.lost.is_none()
            && let Err(why) = echo
        {
            cell.why = Some(why);
        }
        cell
    }
}

impl Measure for ByAgents {
    fn hosts(&self) -> usize {
        self.agents.hosts.len()
    }

    fn try_lost_again(&mut self) {
        for host in &mut self.agents.hosts {
            host.lost = None;
        }
    }

    /// All at the same time.
    fn round(&mut self, pairs: &[HostPair]) -> Result<Vec<(HostPair, PairCell)>, Failure> {
        let (mut cells, mut asked) = (Vec::new(), Vec::new());
        let hosts = &self.agents.hosts;
        for &(near, far) in pairs {
            let lost = hosts[near].lost.as_ref().or(hosts[far].lost.as_ref());
            match lost {
                Some(why) => cells.push(((near, far), PairCell::failed(why.clone()))),
                None => asked.push((near, far)),
            }
        }
        if asked.is_empty() {
            return Ok(cells);
        }
        self.round += 1;
        // With a dot: `fleet status` lists no parts of experiments.
        let id = format!("{}.{}", self.id, self.round);
        let jobs = self.jobs(&id, &asked)?;
        let planned = insist(&mut self.servers, |servers| servers.archive.plan(&jobs));
        if planned.is_none() {
            return Err(Failure::interrupted());
        }
        conduct(&mut self.servers, &id, |_| {})?;
        let rows = insist(&mut self.servers, |servers| servers.archive.rows(&id));
        let rows = rows.ok_or_else(Failure::interrupted)?;
        for pair in asked {
            cells.push((pair, self.cell(pair, &rows)));
        }
        Ok(cells)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fleet::keys::PublicKeys;

    use super::*;

    fn hosts(chosen: &str) -> Result<Vec<(String, String)>, String> {
        let keys = || PublicKeys { login: String::new(), sign: String::new() };
        let known = ["h1", "h2", "h3"].map(|name| (name.to_owned(), keys()));
        let mut fleet = Fleet::new(keys(), BTreeMap::from(known));
        for (name, address) in [("h1", "10.0.0.1"), ("h2", "fd00::2")] {
            fleet.addresses.insert(name.into(), address.parse().unwrap());
        }
        let agents = chosen.split_whitespace().map(str::parse).collect::<Result<_, String>>()?;
        let args = MeshAgentsArgs { fleet: None, agents, taken_within: Duration::ZERO };
        let shown = |host: Member| (host.name, host.address.to_string());
        Ok(args.members(&fleet)?.into_iter().map(shown).collect())
    }

    #[test]
    fn addresses_are_those_of_the_user_then_of_the_list() {
        let found = hosts("h2 h1=10.0.0.9").unwrap();
        let wanted = [("h2", "fd00::2"), ("h1", "10.0.0.9")];
        assert_eq!(found, wanted.map(|(name, address)| (name.to_owned(), address.to_owned())));
        for (chosen, named) in [
            ("", "h3=ADDRESS"),
            ("h1", "two hosts"),
            ("h1 h4", "h4 is not in the fleet"),
            ("h1 h2 h1", "h1 twice"),
            ("h1 h2=db2", "\"db2\" is not a valid address"),
        ] {
            let why = hosts(chosen).unwrap_err();
            assert!(why.contains(named), "{chosen}: {why}");
        }
    }
}
