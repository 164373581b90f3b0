//! `wirepath fleet collect`: reports of agents into the database.

use std::path::PathBuf;

use clap::Args;
use fleet::book::{BookError, Exchange, Report, State};

use super::servers::{Servers, insist};
use crate::context::Context;
use crate::exit::Failure;
use crate::{console, signals};

#[derive(Debug, Args)]
pub(crate) struct CollectArgs {
    /// Folder that `fleet init` wrote
    #[arg(long, value_name = "DIR")]
    fleet: PathBuf,
}

/// Runs until it is stopped. It holds nothing but the batch in its hands: any number may run, and one that is
/// killed loses nothing.
pub(crate) fn run(_context: &Context, args: &CollectArgs) -> Result<(), Failure> {
    let mut servers = Servers::open(&args.fleet)?;
    console::say(&format!("collects reports of {}", servers.fleet.broker));
    let mut stored = 0_u64;
    while !signals::stop_requested() {
        let Some(count) = insist(&mut servers, batch) else { break };
        stored = stored.saturating_add(count);
    }
    console::say(&format!("{stored} reports stored"));
    Ok(())
}

/// Stores the reports that wait; each is acknowledged once it is on disk. Returns their number.
fn batch(servers: &mut Servers) -> Result<u64, BookError> {
    let found = servers.exchange.reports()?;
    servers.keep_refused()?;
    if found.is_empty() {
        return Ok(0);
    }
    let reports: Vec<Report> = found.iter().map(|(_, report)| report.clone()).collect();
    servers.archive.store(&reports)?;
    for (number, report) in &found {
        if !matches!(report.state, State::Accepted | State::Running) {
            servers.exchange.confirm(report.fence)?;
        }
        servers.exchange.acknowledge(*number)?;
    }
    Ok(found.len() as u64)
}
