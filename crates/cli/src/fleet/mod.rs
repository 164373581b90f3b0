//! `wirepath fleet`: many hosts.

#[cfg(feature = "fleet")]
mod agent;
#[cfg(feature = "fleet")]
mod allowed;
mod caller;
#[cfg(feature = "fleet")]
mod collect;
pub(crate) mod host;
mod hosts;
#[cfg(feature = "fleet")]
mod init;
#[cfg(feature = "fleet")]
pub(crate) mod keys;
pub(crate) mod mesh;
mod outcomes;
#[cfg(feature = "fleet")]
mod over_agents;
pub(crate) mod prove;
pub(crate) mod rollout;
#[cfg(feature = "fleet")]
mod servers;
mod site;
#[cfg(feature = "fleet")]
mod station;
pub(crate) mod status;
mod words;

use std::fs::File;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use fleet::book::{Archive, Coordinator, Exchange, SqliteBook};
use house::context::Context;
use remote::Failure;

use crate::results;

#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Run the same experiment on every host, and pool the verdicts
    #[command(after_help = "\
Example:
  wirepath fleet prove --on ssh:db1,ssh:db2,this probe --load ping --arms spin --time 60s
  wirepath fleet prove --on netns:a,netns:b command --arm a=./main --arm b=./pr --client ./bench
  wirepath fleet prove --fleet fleet/ probe --load ping --arms spin --time 60s")]
    Prove(Box<prove::FleetProveArgs>),
    /// Measure all pairs of hosts, and name hosts and links that stand out
    #[command(after_help = "\
Example:
  wirepath fleet mesh --on ssh:db1,ssh:db2,ssh:db3=10.0.0.3,this --html mesh.html
  wirepath fleet mesh --on netns:a,netns:b,netns:c,netns:d --watch --every 5m --listen 9103
  wirepath fleet mesh --fleet fleet/ --agents db1,db2,db3=10.0.0.3")]
    Mesh(mesh::MeshArgs),
    /// Apply a plan in stages, each one proved first; roll back if it is worse (exit code 4)
    #[command(after_help = "\
Example:
  wirepath fleet rollout plan.toml --on ssh:db1,ssh:db2 --stages 1,100% -- --load ping
  wirepath fleet rollout plan.toml --on netns:a,netns:b --hold 10m -- --from red --load ping
  wirepath fleet rollout plan.toml --fleet fleet/ --stages 1,100% -- --far peer:h9 --load ping
  wirepath fleet rollout --abort rollout-1764105600000")]
    Rollout(Box<rollout::RolloutArgs>),
    /// Show the jobs of recent experiments, and roll-outs
    #[command(after_help = "Example:\n  wirepath fleet status --fleet fleet/")]
    Status(status::StatusArgs),
    /// Write keys, an enrolment for each host, and the files of the broker and the database
    #[command(after_help = "\
Example:
  wirepath fleet init --dir fleet/ --hosts hosts.txt --broker nats://broker.example:4222")]
    #[cfg(feature = "fleet")]
    Init(init::InitArgs),
    /// Make the keys of this host, and print its line for the list of hosts
    #[command(after_help = "Example:\n  wirepath fleet keys db1 --out /etc/wirepath/db1.keys")]
    #[cfg(feature = "fleet")]
    Keys(keys::KeysArgs),
    /// Wait for jobs of this host, measure, and report
    #[command(after_help = "\
Example:
  wirepath fleet agent --enrol /etc/wirepath/db1.wp
  wirepath fleet agent --enrol /etc/wirepath/db1.wp --unit > wirepath-agent.service")]
    #[cfg(feature = "fleet")]
    Agent(agent::AgentArgs),
    /// Write reports of agents to the database; any number may run
    #[command(after_help = "Example:\n  wirepath fleet collect --fleet fleet/")]
    #[cfg(feature = "fleet")]
    Collect(collect::CollectArgs),
}

pub(crate) fn run(context: &Context, command: &FleetCommand) -> Result<(), Failure> {
    match command {
        FleetCommand::Prove(args) => prove::run(context, args),
        FleetCommand::Mesh(args) => mesh::run(context, args),
        FleetCommand::Rollout(args) => rollout::run(context, args),
        FleetCommand::Status(args) => status::run(context, args),
        #[cfg(feature = "fleet")]
        FleetCommand::Init(args) => init::run(context, args),
        #[cfg(feature = "fleet")]
        FleetCommand::Keys(args) => keys::run(args),
        #[cfg(feature = "fleet")]
        FleetCommand::Agent(args) => agent::run(context, args),
        #[cfg(feature = "fleet")]
        FleetCommand::Collect(args) => collect::run(context, args),
    }
}

/// File of jobs and their outcomes, beside the results database.
fn book_file(context: &Context) -> Result<PathBuf, Failure> {
    Ok(results::database(context).file()?.with_file_name("fleet.db"))
}

/// File of the memory of this machine's agents.
fn agents_file(context: &Context) -> Result<PathBuf, Failure> {
    Ok(results::database(context).file()?.with_file_name("fleet-agents.db"))
}

/// Locks the book for one coordinator; `None` if another one has it.
fn lock_book(context: &Context) -> Result<Option<File>, Failure> {
    let file = results::database(context).file()?.with_file_name("fleet.lock");
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let opened = File::options().create(true).truncate(false).write(true).open(&file);
    let lock =
        opened.map_err(|e| Failure::failed(format!("cannot open {}: {e}", file.display())))?;
    Ok(lock.try_lock().is_ok().then_some(lock))
}

/// Ends the jobs of coordinators that were killed, and their leases.
fn end_leftovers(book: &mut SqliteBook) -> Result<(), Failure> {
    for entry in book.entries(None)? {
        book.release(&entry.job.host, entry.job.fence)?;
        let coordinator = Coordinator::new(entry.job.experiment.clone());
        coordinator.cancel(book, "its coordinator ended")?;
    }
    Ok(())
}

/// Milliseconds since 1970, for times in the book.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}
