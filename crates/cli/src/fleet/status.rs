//! `wirepath fleet status`: jobs of recent experiments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use fleet::book::{Archive, Entry, Exchange, Row, SqliteBook, State};
use schemars::JsonSchema;
use serde::Serialize;

use super::servers::Servers;
use super::{book_file, lock_book};
use crate::console;
use crate::context::Context;
use crate::exit::Failure;

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Of a fleet with agents: folder that `fleet init` wrote. Exit code 4 if a host is silent
    #[arg(long, value_name = "DIR")]
    fleet: Option<PathBuf>,
}

/// Number of newest experiments that are shown.
const NEWEST: usize = 10;

/// Document of `fleet status --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Document {
    schema: u32,
    /// True while a `fleet prove` runs.
    running: bool,
    /// Newest first, at most ten.
    experiments: Vec<Experiment>,
    /// Hosts with agents; empty without `--fleet`.
    hosts: Vec<HostDocument>,
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
    state: State,
    attempt: u32,
    /// State in which it ended; `None` before.
    ended: Option<State>,
    /// Reason for a missing outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

pub(crate) fn run(context: &Context, args: &StatusArgs) -> Result<(), Failure> {
    if let Some(folder) = &args.fleet {
        return of_agents(context, folder);
    }
    let file = book_file(context)?;
    let (running, experiments) = match file.exists() {
        false => (false, Vec::new()),
        true => (lock_book(context)?.is_none(), read(&mut SqliteBook::open(file)?)?),
    };
    show(
        context,
        &Document { schema: crate::context::DOCUMENT, running, experiments, hosts: Vec::new() },
    )
}

fn of_agents(context: &Context, folder: &Path) -> Result<(), Failure> {
    let mut servers = Servers::open(folder)?;
    let running = servers.archive.has_coordinator()?;
    let experiments = read(&mut servers.archive)?;
    let now_ms = servers.now_ms();
    let mut hosts = Vec::new();
    for host in servers.fleet.hosts.keys() {
        let alive = servers.exchange.is_alive(host, now_ms)?;
        hosts.push(HostDocument { host: host.clone(), alive });
    }
    let silent: Vec<&str> =
        hosts.iter().filter(|host| !host.alive).map(|host| host.host.as_str()).collect();
    let silent = silent.join(", ");
    show(context, &Document { schema: crate::context::DOCUMENT, running, experiments, hosts })?;
    match silent.is_empty() {
        true => Ok(()),
        false => Err(Failure::Threshold(format!("silent: {silent}"))),
    }
}

fn show(context: &Context, document: &Document) -> Result<(), Failure> {
    match context.json {
        true => console::json(document),
        false => console::text(&text(document)),
    }
}

fn read(book: &mut impl Archive) -> Result<Vec<Experiment>, Failure> {
    let mut by_experiment: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
    for entry in book.entries(None)? {
        by_experiment.entry(entry.job.experiment.clone()).or_default().push(entry);
    }
    let mut found = Vec::new();
    for (id, entries) in by_experiment.into_iter().rev().take(NEWEST) {
        let rows = book.rows(&id)?;
        let jobs = entries.iter().map(|entry| job(entry, &rows)).collect();
        found.push(Experiment { id, jobs });
    }
    Ok(found)
}

fn job(entry: &Entry, rows: &[Row]) -> JobDocument {
    let row = rows.iter().find(|row| row.job == entry.job.job);
    let why = row.filter(|row| row.state != State::Done).map(|row| row.body.clone());
    JobDocument {
        host: entry.job.host.clone(),
        state: entry.state,
        attempt: entry.job.attempt,
        ended: row.map(|row| row.state),
        why,
    }
}

fn text(document: &Document) -> String {
    let mut lines: Vec<String> = document.hosts.iter().map(host).collect();
    if document.experiments.is_empty() {
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
    let is_open = |job: &JobDocument| job.ended.is_none();
    let open =
        document.experiments.iter().flat_map(|of| &of.jobs).filter(|job| is_open(job)).count();
    if open > 0 && !document.running {
        let jobs = console::count(open, "job");
        lines.push(format!(
            "{jobs} of a coordinator that has ended; the next `wirepath fleet prove` closes them"
        ));
    }
    lines.join("\n")
}

fn host(of: &HostDocument) -> String {
    let state = if of.alive { "alive" } else { "silent" };
    format!("{}  {state}", of.host)
}
