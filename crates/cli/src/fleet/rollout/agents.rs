//! Hosts of a roll-out that are reached by their agents: a job for each step of each host.

use std::path::Path;
use std::time::Duration;

use fleet::book::BookError;
use fleet::postgres::{PostgresArchive, PostgresLedger};
use fleet::rollout::{Answers, HostStep, Ledger, LedgerRow, StepLimits, Steps};
use host::tune::Plan;
use house::context::Context;
use house::signals;
use remote::Failure;
use remote::work::{Call, RolloutStep};

use super::super::allowed::{self, Permissions};
use super::super::caller::STEP_TIMEOUT;
use super::super::now_ms;
use super::super::servers::{Servers, persist};
use super::super::site::held_timeout;
use super::members::Reach;
use super::request::RolloutArgs;
use super::{go_on, unknown};

/// Time between two turns.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A host that comes back later rolls back all the same.
const ROLL_BACK_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

pub(super) fn run(context: &Context, args: &RolloutArgs, folder: &Path) -> Result<(), Failure> {
    let mut servers = Servers::open(folder)?;
    let begun = match args.existing() {
        None => {
            let hosts = args.agents.hosts(&servers.fleet)?;
            let permissions = Permissions::coordinator(true);
            Some(args.header(hosts, |call| allowed::check(call, &permissions))?)
        }
        Some(_) => None,
    };
    servers.coordinate()?;
    let fleet = &servers.fleet;
    // Of its own: the other connection is the lock of the coordinator.
    let archive = PostgresArchive::open(&fleet.database, fleet.database_ca.as_deref())?;
    let ledger = match begun {
        Some(header) => PostgresLedger::begin(archive, header)?,
        None => {
            let id = args.existing().unwrap_or_default();
            PostgresLedger::open(archive, id)?.ok_or_else(|| unknown(id))?
        }
    };
    let header = ledger.header().clone();
    let gone = header.hosts.iter().find(|host| !servers.fleet.hosts.contains_key(*host));
    if let Some(gone) = gone {
        return Err(Failure::failed(format!(
            "{gone} of {} is no longer in the fleet; add it with `wirepath fleet init` first",
            header.id
        )));
    }
    let (names, id) = (header.hosts.clone(), header.id.clone());
    let taken_within = args.agents.taken_within();
    go_on(context, args, &header, &mut Persistent(ledger), |request| {
        let answer_within = held_timeout(request.within());
        Ok(ByAgents { servers, names, id, number: 0, taken_within, answer_within })
    })
}

/// The ledger, over a database that may be away for a while.
struct Persistent(PostgresLedger);

impl Ledger for Persistent {
    fn record(&mut self, row: &LedgerRow) -> Result<(), BookError> {
        persist(&mut self.0, |ledger| ledger.record(row))
    }

    fn rows(&mut self) -> Result<Vec<LedgerRow>, BookError> {
        persist(&mut self.0, Ledger::rows)
    }
}

struct ByAgents {
    servers: Servers,
    names: Vec<String>,
    /// Id of the roll-out.
    id: String,
    /// Number of the latest step.
    number: u64,
    /// Time in which an agent must take a measurement.
    taken_within: Duration,
    /// Time in which a host must answer any other step.
    answer_within: Duration,
}

impl ByAgents {
    fn limits(&self, call: &Call) -> StepLimits {
        let now_ms = self.servers.now_ms();
        let deadline_ms = |time: Duration| now_ms.saturating_add(time.as_millis() as u64);
        let within = self.answer_within;
        let (taken_within, answered_within) = match call {
            // Its agent knows its time limit.
            call if call.is_measurement() => (self.taken_within, None),
            // Slow devices; it is taken as soon as any other step.
            call if is_application(call) => (within, Some(within + STEP_TIMEOUT)),
            Call::Step(step) if matches!(**step, RolloutStep::RollBack { .. }) => {
                (ROLL_BACK_TIMEOUT, Some(within))
            }
            _ => (within, Some(within)),
        };
        StepLimits {
            not_after_ms: deadline_ms(taken_within),
            until_ms: answered_within.map(deadline_ms),
        }
    }

    fn plan(&mut self, calls: &[(usize, Call)], limits: StepLimits) -> Result<Steps, Failure> {
        let steps: Vec<HostStep> = calls
            .iter()
            .map(|(at, call)| HostStep {
                at: *at,
                host: self.names[*at].clone(),
                call: call.clone(),
                is_repeatable: !is_application(call),
            })
            .collect();
        // Also larger than those of an earlier process.
        self.number = now_ms().max(self.number + 1);
        let (id, number) = (&self.id, self.number);
        Ok(persist(&mut self.servers, |servers| {
            Steps::plan(&mut servers.archive, id, number, &steps, limits)
        })?)
    }

    /// Waits until every host has answered or counts as silent.
    fn drive(&mut self, steps: &mut Steps, measures: bool) -> Result<(), Failure> {
        loop {
            let has_ended = persist(&mut self.servers, |servers| {
                let now_ms = servers.now_ms();
                let Servers { exchange, archive, .. } = servers;
                let has_ended = steps.turn(exchange, archive, now_ms)?;
                servers.keep_refused()?;
                Ok(has_ended)
            })?;
            if has_ended {
                return Ok(());
            }
            if measures && signals::stop_requested() {
                let archive = &mut self.servers.archive;
                return Ok(persist(archive, |archive| steps.cancel(archive, "interrupted"))?);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

fn is_application(call: &Call) -> bool {
    matches!(call, Call::Step(step) if matches!(**step, RolloutStep::Apply { .. }))
}

impl Reach for ByAgents {
    fn word(&self, at: usize) -> String {
        self.names[at].clone()
    }

    fn plan_text(&self, _at: usize, plan: &Plan) -> String {
        plan.to_text()
    }

    /// All at the same time.
    fn each(&mut self, calls: &[(usize, Call)]) -> Result<Answers, Failure> {
        let Some((_, first)) = calls.first() else { return Ok(Vec::new()) };
        let mut planned = self.plan(calls, self.limits(first))?;
        self.drive(&mut planned, first.is_measurement())?;
        let archive = &mut self.servers.archive;
        Ok(persist(archive, |archive| planned.answers(archive))?)
    }

    fn apply(&mut self, calls: &[(usize, Call)]) -> Result<Answers, Failure> {
        self.each(calls)
    }

    /// Agents end it themselves.
    fn end_waiting(&mut self, _hosts: &[usize]) {}
}
