//! `wirepath fleet prove`: the same experiment on every host.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use fleet::book::{Agent, Archive, Coordinator, Job, Outbox, SqliteBook};
use host::exclusive::ExclusiveLock;
use house::context::Context;
use house::{console, signals};
use model::Request;
use model::pool::{PooledOutcome, pool_groups};
use remote::work::Call;
use remote::{Failure, FarOptions};
use sys::thread::start;

use super::caller;
use super::hosts::{Host, HostsArgs};
use super::outcomes::outcomes;
use super::words::{HostProveArgs, Words};
use super::{agents_file, book_file, end_leftovers, lock_book, now_ms};
use crate::running::Folders;

#[derive(Debug, Args)]
pub(crate) struct FleetProveArgs {
    #[command(flatten)]
    hosts: HostsArgs,
    #[cfg(feature = "fleet")]
    #[command(flatten)]
    agents: super::over_agents::AgentsArgs,
    /// Hosts that share a rack or a class: the group is then the unit of the verdict, not the host; may be repeated.
    /// With --fleet, groups are those of the list of hosts (`fleet init`)
    #[arg(long, value_name = "NAME=HOST,…", value_parser = parse_group)]
    #[cfg_attr(feature = "fleet", arg(conflicts_with = "fleet"))]
    group: Vec<Group>,
    #[command(flatten)]
    words: Words<HostProveArgs>,
}

/// A group of hosts, as the command line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    name: String,
    hosts: Vec<Host>,
}

fn parse_group(text: &str) -> Result<Group, String> {
    let Some((name, hosts)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
        return Err(format!(
            "{text:?} is not a valid group; use NAME=HOST,HOST, as in rack1=ssh:db1,ssh:db2"
        ));
    };
    let hosts: Result<Vec<Host>, String> = hosts.split(',').map(str::parse).collect();
    Ok(Group { name: name.to_owned(), hosts: hosts? })
}

/// Group by name of the host. Errors: a host of a group is not one of the hosts, or in another group, too.
fn groups(given: &[Group], hosts: &[Host]) -> Result<BTreeMap<String, String>, Failure> {
    let mut found = BTreeMap::new();
    for (group, host) in given.iter().flat_map(|group| group.hosts.iter().map(move |h| (group, h)))
    {
        if !hosts.contains(host) {
            return Err(Failure::Usage(format!(
                "--group {} names {host}, which --on does not; add it there, or remove it here",
                group.name
            )));
        }
        if let Some(other) = found.insert(host.to_string(), group.name.clone()) {
            return Err(Failure::Usage(format!(
                "--group names {host} in {other} and in {}; name each host once",
                group.name
            )));
        }
    }
    Ok(found)
}

/// Time after which a job that no host took is given up.
const TAKE_TIMEOUT_MS: u64 = 24 * 3600 * 1000;

/// Time between two looks at the book.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn run(context: &Context, args: &FleetProveArgs) -> Result<(), Failure> {
    let request = args.words.0.request()?;
    #[cfg(feature = "fleet")]
    if let Some(pooled) = args.agents.prove(&request)? {
        return finish(context, &pooled);
    }
    let hosts = args.hosts.hosts()?;
    let groups = groups(&args.group, hosts)?;
    for host in hosts {
        host.netns()?;
    }
    let Some(_book_lock) = lock_book(context)? else {
        return Err(Failure::failed(
            "another `wirepath fleet` runs on the same book; wait for it, or choose another folder with --data-dir",
        ));
    };
    let has_local = hosts.iter().any(Host::is_local);
    let _lock = has_local.then(ExclusiveLock::acquire_alone).transpose()?;
    let mut book = SqliteBook::open(book_file(context)?)?;
    end_leftovers(&mut book)?;
    let id = format!("fleet-{}", now_ms());
    book.plan(&jobs(&id, hosts, &request))?;
    conduct(context, args, &id, &mut book)?;
    let names: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    finish(context, &pool_groups(&outcomes(&names, &book.rows(&id)?), &groups))
}

/// Shows the verdicts. Errors: no host has an outcome.
fn finish(context: &Context, pooled: &PooledOutcome) -> Result<(), Failure> {
    show(context, pooled)?;
    signals::check_stop()?;
    if pooled.hosts.iter().all(|host| host.id.is_none()) {
        let why = pooled.hosts.iter().find_map(|host| host.why.clone());
        return Err(Failure::failed(format!(
            "no host has an outcome: {}",
            why.unwrap_or_default()
        )));
    }
    Ok(())
}

fn jobs(id: &str, hosts: &[Host], request: &Request) -> Vec<Job> {
    let call = Call::RunAlone(Box::new(request.clone()));
    let numbered = hosts.iter().enumerate();
    numbered
        .map(|(at, host)| Job {
            job: format!("{id}-{at}"),
            ..Job::new(id, &host.to_string(), call.clone(), now_ms() + TAKE_TIMEOUT_MS)
        })
        .collect()
}

/// Runs coordinator and agents until every job has ended. Hosts of this machine share one thread, so that
/// they measure one after the other.
fn conduct(
    context: &Context,
    args: &FleetProveArgs,
    id: &str,
    book: &mut SqliteBook,
) -> Result<(), Failure> {
    let (hosts, options) = (&args.hosts.on, &args.hosts.ssh_option);
    let (local, remote): (Vec<&Host>, Vec<&Host>) = hosts.iter().partition(|host| host.is_local());
    let groups = std::iter::once(local).chain(remote.into_iter().map(|host| vec![host]));
    let has_ended = AtomicBool::new(false);
    let mut exchange = SqliteBook::open(book_file(context)?)?;
    let mut coordinator = Coordinator::new(id);
    std::thread::scope(|scope| {
        let workers: Vec<_> = groups
            .filter(|group| !group.is_empty())
            .map(|group| {
                start(scope, "wp-agent", || {
                    work(context, group, options, &has_ended).map_err(Failure::into_text)
                })
            })
            .collect();
        let driven = loop {
            if signals::stop_requested() {
                break Ok(());
            }
            match coordinator.turn(&mut exchange, book, now_ms()) {
                Ok(false) if workers.iter().all(|worker| worker.is_finished()) => break Ok(()),
                Ok(false) => std::thread::sleep(POLL_INTERVAL),
                Ok(true) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        has_ended.store(true, Ordering::Relaxed);
        let worked: Result<(), String> = workers.into_iter().try_for_each(|worker| worker.end());
        driven?;
        // The reports of agents that have ended meanwhile.
        coordinator.turn(&mut exchange, book, now_ms())?;
        coordinator.cancel(book, "interrupted before it began")?;
        worked.map_err(Failure::failed)
    })
}

/// Agents of hosts that measure one after the other.
fn work(
    context: &Context,
    hosts: Vec<&Host>,
    ssh_options: &[String],
    has_ended: &AtomicBool,
) -> Result<(), Failure> {
    let (book, memory) = (book_file(context)?, agents_file(context)?);
    let mut exchange = SqliteBook::open(&book)?;
    let mut beats = SqliteBook::open(&book)?;
    let options = FarOptions { ssh_options, ..FarOptions::default() };
    let folders = Folders { data: context.data_dir.as_deref(), ..Folders::default() };
    let mut agents = Vec::new();
    for host in hosts {
        let outbox = Outbox::open(&memory, host.to_string())?;
        agents.push((host, Agent::start(host.to_string(), outbox)?));
    }
    while !has_ended.load(Ordering::Relaxed) {
        for (host, agent) in &mut agents {
            let measured = |job: &Job| {
                console::say(&format!("{host} measures"));
                caller::measure(host, &options, folders, &job.call, &mut || {
                    // A beat that fails is made up for by the next one, or shows in the next turn.
                    let _ = Agent::beat(&job.host, job.fence, &mut beats, now_ms());
                })
            };
            agent.turn(&mut exchange, now_ms(), measured, |_| true)?;
            if signals::stop_requested() {
                return Ok(());
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn show(context: &Context, pooled: &PooledOutcome) -> Result<(), Failure> {
    if context.json {
        return console::json(pooled);
    }
    console::text(&report::text::pooled(pooled, console::style()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_name_hosts_of_the_command_once() {
        let hosts = ["ssh:db1", "ssh:db2", "this"].map(|text| text.parse::<Host>().unwrap());
        let read = |texts: &[&str]| {
            let given: Vec<Group> = texts.iter().map(|text| parse_group(text).unwrap()).collect();
            groups(&given, &hosts).map_err(Failure::into_text)
        };
        let found = read(&["rack1=ssh:db1,this", "rack2=ssh:db2"]).unwrap();
        assert_eq!(found["this"], "rack1");
        assert_eq!((found["ssh:db2"].as_str(), found.len()), ("rack2", 3));
        assert!(read(&["rack1=ssh:db3"]).unwrap_err().contains("--on does not"));
        assert!(read(&["a=this", "b=this"]).unwrap_err().contains("in a and in b"));
        for bad in ["rack1", "=this"] {
            assert!(parse_group(bad).unwrap_err().contains("not a valid group"), "{bad}");
        }
        assert!(parse_group("rack1=").unwrap_err().contains("netns:NAME"));
    }
}
