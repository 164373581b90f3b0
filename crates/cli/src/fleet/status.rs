//! `wirepath fleet status`: jobs of recent experiments.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
use fleet::book::{self, Archive, BookEntry, BookError, JobState, SqliteBook};
use fleet::rollout::{Ledger, LedgerRow, SqliteLedger};
use house::console;
use house::context::Context;
use remote::Failure;
use schemars::JsonSchema;
use serde::Serialize;

use super::{book_file, lock_book};

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Of a fleet with agents: folder that `fleet init` wrote. Exit code 4 if a host is silent
    #[cfg(feature = "fleet")]
    #[arg(long, value_name = "DIR")]
    fleet: Option<std::path::PathBuf>,
}

/// Number of newest experiments that are shown.
const NEWEST: usize = 10;

/// Document of `fleet status --json`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Document")]
pub(crate) struct StatusDocument {
    schema: u32,
    /// True while a `fleet prove` or `fleet rollout` runs.
    running: bool,
    /// Newest first, at most ten.
    experiments: Vec<Experiment>,
    /// Newest first, at most ten.
    rollouts: Vec<RolloutStatus>,
    /// Hosts with agents; empty without `--fleet`.
    hosts: Vec<HostDocument>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RolloutDocument")]
struct RolloutStatus {
    id: String,
    state: fleet::rollout::RolloutState,
    /// Reason for the state.
    why: String,
}

#[derive(Serialize, JsonSchema)]
struct HostDocument {
    host: String,
    /// Gave a sign of life in the last 30 s, or measures.
    alive: bool,
}

#[derive(Serialize, JsonSchema)]
struct Experiment {
    id: String,
    jobs: Vec<JobDocument>,
}

#[derive(Serialize, JsonSchema)]
struct JobDocument {
    host: String,
    state: JobState,
    attempt: u32,
    /// State in which it ended; `None` before.
    ended: Option<JobState>,
    /// Reason for a missing outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

pub(crate) fn run(context: &Context, args: &StatusArgs) -> Result<(), Failure> {
    #[cfg(not(feature = "fleet"))]
    let StatusArgs {} = args;
    #[cfg(feature = "fleet")]
    if let Some(folder) = &args.fleet {
        return show_with_agents(context, folder);
    }
    let file = book_file(context)?;
    let (running, experiments, rollouts) = if file.exists() {
        let running = lock_book(context)?.is_none();
        (running, read(&mut SqliteBook::open(&file)?)?, read_rollouts(&file)?)
    } else {
        (false, Vec::new(), Vec::new())
    };
    let hosts = Vec::new();
    let schema = house::context::DOCUMENT;
    show(context, &StatusDocument { schema, running, experiments, rollouts, hosts })
}

#[cfg(feature = "fleet")]
fn show_with_agents(context: &Context, folder: &Path) -> Result<(), Failure> {
    use fleet::book::Exchange;

    let mut servers = super::servers::Servers::open(folder)?;
    let running = servers.archive.has_coordinator()?;
    let experiments = read(&mut servers.archive)?;
    let now_ms = servers.now_ms();
    let names: Vec<&str> = servers.fleet.hosts.keys().map(String::as_str).collect();
    let alive = servers.exchange.are_alive(&names, now_ms)?;
    let hosts: Vec<HostDocument> = names
        .iter()
        .zip(alive)
        .map(|(host, alive)| HostDocument { host: (*host).to_owned(), alive })
        .collect();
    let silent: Vec<&str> =
        hosts.iter().filter(|host| !host.alive).map(|host| host.host.as_str()).collect();
    let silent = silent.join(", ");
    let newest = servers.archive.newest_rollouts(NEWEST as u32)?;
    let rollouts = newest
        .into_iter()
        .map(|(id, row)| RolloutStatus { id, state: row.state, why: row.why })
        .collect();
    let schema = house::context::DOCUMENT;
    show(context, &StatusDocument { schema, running, experiments, rollouts, hosts })?;
    if silent.is_empty() { Ok(()) } else { Err(Failure::Threshold(format!("silent: {silent}"))) }
}

fn show(context: &Context, document: &StatusDocument) -> Result<(), Failure> {
    if context.json { console::json(document) } else { console::text(&text(document)) }
}

fn read(book: &mut impl Archive) -> Result<Vec<Experiment>, Failure> {
    let mut found = Vec::new();
    for id in book.newest(NEWEST as u32)? {
        let entries = match book.entries(Some(&id)) {
            Err(error @ BookError::Version { .. }) => {
                console::say(&format!("note: {id} is left out: {error}"));
                continue;
            }
            entries => entries?,
        };
        let rows = book.rows(&id)?;
        let rows: BTreeMap<&str, &book::JobRow> =
            rows.iter().map(|row| (row.job.as_str(), row)).collect();
        let jobs = entries.iter().map(|entry| job(entry, rows.get(&*entry.job.job).copied()));
        let jobs = jobs.collect();
        found.push(Experiment { id, jobs });
    }
    Ok(found)
}

fn read_rollouts(file: &Path) -> Result<Vec<RolloutStatus>, Failure> {
    let mut found = Vec::new();
    for id in SqliteLedger::ids(file)?.into_iter().take(NEWEST) {
        let Some(mut ledger) = SqliteLedger::open(file, &id)? else { continue };
        if let Some(LedgerRow { state, why, .. }) = ledger.rows()?.pop() {
            found.push(RolloutStatus { id, state, why });
        }
    }
    Ok(found)
}

fn job(entry: &BookEntry, row: Option<&book::JobRow>) -> JobDocument {
    let why = row.filter(|row| row.state != JobState::Done).map(|row| row.body.clone());
    JobDocument {
        host: entry.job.host.clone(),
        state: entry.state,
        attempt: entry.job.attempt,
        ended: row.map(|row| row.state),
        why,
    }
}

fn text(document: &StatusDocument) -> String {
    let mut lines: Vec<String> = document.hosts.iter().map(host_line).collect();
    if document.experiments.is_empty() && document.rollouts.is_empty() {
        lines.push("no experiment of a fleet; `wirepath fleet prove` runs one".into());
    }
    for experiment in &document.experiments {
        lines.push(experiment.id.clone());
        for job in &experiment.jobs {
            let state = job.ended.unwrap_or(job.state).name();
            let why = job.why.as_ref().map_or(String::new(), |why| format!(": {why}"));
            let attempt = match job.attempt {
                1 => String::new(),
                attempt => format!(", attempt {attempt}"),
            };
            lines.push(format!("  {}  {state}{attempt}{why}", job.host));
        }
    }
    for RolloutStatus { id, state, why } in &document.rollouts {
        lines.push(format!("{id}\n  {state}: {why}"));
        if (state.is_at_work() || matches!(state, fleet::rollout::RolloutState::RollingBack { .. }))
            && !document.running
        {
            lines.push(format!(
                "  its process has ended; go on with `wirepath fleet rollout --resume {id}`, or --abort {id}"
            ));
        }
    }
    let jobs = document.experiments.iter().flat_map(|experiment| &experiment.jobs);
    let open = jobs.filter(|job| job.ended.is_none()).count();
    if open > 0 && !document.running {
        let jobs = console::count(open, "job");
        lines.push(format!(
            "{jobs} of a coordinator that has ended; the next `wirepath fleet prove` closes them"
        ));
    }
    lines.join("\n")
}

fn host_line(document: &HostDocument) -> String {
    let state = if document.alive { "alive" } else { "silent" };
    format!("{}  {state}", document.host)
}
