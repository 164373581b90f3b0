//! Servers that are killed while agents work.

use std::collections::BTreeSet;
use std::time::Duration;

use wirepath_fleet::book::{
    Agent, AgentMoment, Archive, Coordinator, Exchange, Job, JobState, Measured, Report,
};
use wirepath_fleet::nats::NatsExchange;
use wirepath_fleet::postgres::PostgresArchive;

use super::Pair;
use super::faults::Server;
use super::servers::Servers;
use super::suite::job;

const HOSTS: [&str; 3] = ["h1", "h2", "h3"];

struct Fleet {
    agents: Vec<Agent>,
    begun: Vec<u64>,
    now_ms: u64,
}

impl Fleet {
    /// One turn of each agent; those of `killed` end at a moment, and start anew.
    fn turn(&mut self, case: &super::servers::Case<'_>, killed: Option<AgentMoment>) {
        self.now_ms += 1_000;
        for (at, host) in HOSTS.iter().enumerate() {
            let begun = &mut self.begun;
            let mut exchange = case.exchange();
            self.agents[at]
                .turn(
                    &mut exchange,
                    self.now_ms,
                    |job: &Job| {
                        begun.push(job.fence);
                        Measured::Done(format!("{} {}", job.job, job.attempt))
                    },
                    |moment| Some(moment) != killed,
                )
                .unwrap();
            if killed.is_some() {
                self.agents[at] = Agent::start(*host, case.outbox(host)).unwrap();
            }
        }
    }
}

/// As a collector: a batch to disk, then its confirmation, then its acknowledgement.
fn collect(exchange: &mut NatsExchange, archive: &mut PostgresArchive) {
    let found = exchange.reports().unwrap();
    let reports: Vec<Report> = found.iter().map(|(_, report)| report.clone()).collect();
    archive.store(&reports).unwrap();
    archive.store(&reports).unwrap();
    let fences: Vec<u64> = reports.iter().map(|report| report.fence).collect();
    exchange.confirm(&fences).unwrap();
    let numbers: Vec<i64> = found.iter().map(|(number, _)| *number).collect();
    exchange.acknowledge(&numbers).unwrap();
}

/// Faults in a row: an agent killed before and after its result is kept, the broker killed, its store deleted,
/// the database killed before a batch and between the batch and its acknowledgement, every batch stored twice.
pub(crate) fn run(servers: &mut Servers) {
    {
        let case = servers.case();
        let jobs: Vec<Job> = (0..9).map(|at| job(&format!("j{at}"), HOSTS[at % 3])).collect();
        case.archive().plan(&jobs).unwrap();
    }
    let name = servers.last_case();
    let mut coordinator = Coordinator::new("e");
    let mut fleet = {
        let case = servers.again(&name);
        let agents = HOSTS.map(|host| Agent::start(host, case.outbox(host)).unwrap()).into();
        Fleet { agents, begun: Vec::new(), now_ms: 0 }
    };
    let mut kills = 0;
    for round in 0..30 {
        match round {
            // The jobs were given, and are measured: the store of the broker is lost with them, or with results.
            2 | 8 => {
                let broker = servers.broker.get_mut();
                broker.kill_and_wipe();
                broker.resume();
                coordinator = Coordinator::new("e");
                kills += HOSTS.len();
            }
            4 => {
                servers.again(&name).restart(Server::Broker);
            }
            5 => {
                servers.again(&name).restart(Server::Database);
            }
            _ => {}
        }
        let case = servers.again(&name);
        let killed = match round {
            1 => Some(AgentMoment::Begun),
            3 => Some(AgentMoment::Kept),
            7 => Some(AgentMoment::Accepted),
            _ => None,
        };
        kills += if killed.is_some() { HOSTS.len() } else { 0 };
        let mut archive = case.archive();
        let mut exchange = case.exchange();
        if round % 2 == 0 {
            coordinator.turn(&mut exchange, &mut archive, fleet.now_ms).unwrap();
        }
        fleet.turn(&case, killed);
        if round == 6 {
            // Killed behind COMMIT: another collector gets the same reports.
            let found = exchange.reports().unwrap();
            let reports: Vec<Report> = found.into_iter().map(|(_, report)| report).collect();
            archive.store(&reports).unwrap();
            drop(exchange);
            exchange = case.exchange();
        }
        collect(&mut exchange, &mut archive);
        if archive.entries(Some("e")).unwrap().iter().all(|entry| entry.state.is_final()) {
            break;
        }
    }
    let case = servers.again(&name);
    let mut archive = case.archive();
    let has_ended = testkit::until(Duration::from_secs(30), || {
        fleet.turn(&case, None);
        let mut exchange = case.exchange();
        collect(&mut exchange, &mut archive);
        coordinator.turn(&mut exchange, &mut archive, fleet.now_ms).unwrap()
    });
    let entries = archive.entries(Some("e")).unwrap();
    assert!(has_ended, "{entries:?}");
    let rows = archive.rows("e").unwrap();
    let named: BTreeSet<&str> = rows.iter().map(|row| row.job.as_str()).collect();
    assert_eq!((rows.len(), named.len()), (9, 9), "{rows:?}");
    for row in rows.iter().filter(|row| row.state == JobState::Done) {
        assert_eq!(row.body, format!("{} {}", row.job, row.attempt));
    }
    let once: BTreeSet<u64> = fleet.begun.iter().copied().collect();
    assert_eq!(once.len(), fleet.begun.len(), "a fence was measured twice");
    assert!(fleet.begun.len() <= 9 + kills, "{} begun, {kills} kills", fleet.begun.len());
}
