//! `wirepath fleet collect`: reports of agents into the database.

use std::path::PathBuf;

use clap::Args;
use fleet::book;
use house::context::Context;
use house::{console, signals};
use remote::Failure;

use super::servers::{Servers, insist};

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
        let batch = insist(&mut servers, |servers| {
            let Servers { exchange, archive, .. } = servers;
            let count = book::collect(exchange, archive)?;
            servers.keep_refused()?;
            Ok(count)
        });
        let Some(count) = batch else { break };
        stored = stored.saturating_add(count as u64);
    }
    console::say(&format!("{stored} reports stored"));
    Ok(())
}
