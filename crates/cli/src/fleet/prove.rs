//! `wirepath fleet prove`: the same experiment on every host.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use clap::{Args, Parser};
use fleet::book::{Agent, Archive, Coordinator, Job, Outbox, Row, SqliteBook, State};
use host::exclusive::ExclusiveLock;
use model::Outcome;
use model::pool::{PooledOutcome, pool_groups};
use remote::Failure;
use sys::thread::start;

use super::hosts::{Host, HostsArgs};
use super::{agents_file, book_file, end_leftovers, experiment, lock_book, now_ms};
use crate::args::Cli;
use crate::context::Context;
use crate::{console, signals};

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
    /// Path or `command`, and all other arguments of `prove`
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PATH"
    )]
    arguments: Vec<String>,
}

/// A group of hosts, as the command line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    name: String,
    hosts: Vec<Host>,
}

fn parse_group(text: &str) -> Result<Group, String> {
    let refused = || {
        format!("{text:?} is not a valid group; use NAME=HOST,HOST, as in rack1=ssh:db1,ssh:db2")
    };
    let (name, hosts) = text.split_once('=').ok_or_else(refused)?;
    if name.is_empty() {
        return Err(refused());
    }
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

/// Options that belong before the path, or to one host alone.
const NOT_OF_A_HOST: [&str; 12] = [
    "--on",
    "--group",
    "--json",
    "--data-dir",
    "--runs",
    "--every",
    "--baseline",
    "--fail-on",
    "--against",
    "--far",
    "--check",
    "--resume",
];

/// Time after which a job that no host took is given up.
const TAKEN_WITHIN_MS: u64 = 24 * 3600 * 1000;

const LOOK: Duration = Duration::from_millis(100);

/// Checks arguments of `prove` for one host of a fleet.
///
/// - `arguments`: as given, or with the `--json` that every host gets at its end.
pub(super) fn check(arguments: &[String]) -> Result<(), Failure> {
    let given = match arguments.split_last() {
        Some((last, given)) if last == "--json" => given,
        _ => arguments,
    };
    let name =
        |word: &String| word.split_once('=').map_or(word.clone(), |(name, _)| name.to_owned());
    if let Some(word) = given.iter().map(name).find(|word| NOT_OF_A_HOST.contains(&&**word)) {
        return Err(Failure::Usage(format!(
            "{word} cannot be given behind the path of `fleet prove`: --on, --group, --json and --data-dir belong before \
             it, and the other options to a single host"
        )));
    }
    let words = ["wirepath".to_owned(), "prove".to_owned()];
    let parsed = Cli::try_parse_from(words.iter().chain(given));
    parsed.map(drop).map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        Failure::Usage(line.trim_start_matches("error: ").to_owned())
    })
}

pub(crate) fn run(context: &Context, args: &FleetProveArgs) -> Result<(), Failure> {
    #[cfg(feature = "fleet")]
    if let Some(pooled) = args.agents.prove(&args.arguments)? {
        return finish(context, &pooled);
    }
    let hosts = args.hosts.hosts()?;
    let groups = groups(&args.group, hosts)?;
    check(&args.arguments)?;
    for host in hosts {
        host.netns()?;
    }
    let Some(_book_lock) = lock_book(context)? else {
        return Err(Failure::failed(
            "another `wirepath fleet` runs on the same book; wait for it, or choose another folder with --data-dir",
        ));
    };
    let _lock = match hosts.iter().any(Host::is_local) {
        true => Some(ExclusiveLock::acquire_alone()?),
        false => None,
    };
    let mut book = SqliteBook::open(book_file(context)?)?;
    end_leftovers(&mut book)?;
    let id = format!("fleet-{}", now_ms());
    book.plan(&jobs(&id, hosts, &arguments(context, args)))?;
    conduct(context, args, &id, &mut book)?;
    let names: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    finish(context, &pool_groups(&outcomes(&names, &book.rows(&id)?), &groups))
}

/// Shows the verdicts. Errors: there are none.
fn finish(context: &Context, pooled: &PooledOutcome) -> Result<(), Failure> {
    show(context, pooled)?;
    match signals::stop_requested() {
        true => Err(Failure::Interrupted("interrupted".into())),
        false if pooled.hosts.iter().all(|host| host.id.is_none()) => {
            let why = pooled.hosts.iter().find_map(|host| host.why.clone());
            Err(Failure::failed(format!("no host has an outcome: {}", why.unwrap_or_default())))
        }
        false => Ok(()),
    }
}

/// Arguments that every host gets.
fn arguments(context: &Context, args: &FleetProveArgs) -> Vec<String> {
    let has_remote = args.hosts.on.iter().any(|host| !host.is_local());
    let mut all = args.arguments.clone();
    if let Some(folder) = context.data_dir.as_ref().filter(|_| !has_remote) {
        // A folder of this machine says nothing to another one.
        all.extend(["--data-dir".into(), folder.to_string_lossy().into_owned()]);
    }
    all.push("--json".into());
    all
}

fn jobs(id: &str, hosts: &[Host], arguments: &[String]) -> Vec<Job> {
    let job = |(at, host): (usize, &Host)| Job {
        job: format!("{id}-{at}"),
        ..Job::new(id, &host.to_string(), arguments.to_vec(), now_ms() + TAKEN_WITHIN_MS)
    };
    hosts.iter().enumerate().map(job).collect()
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
    let has_ended = Mutex::new(false);
    let ended = || has_ended.lock().is_ok_and(|ended| *ended);
    let mut exchange = SqliteBook::open(book_file(context)?)?;
    let mut coordinator = Coordinator::new(id);
    std::thread::scope(|scope| {
        let workers: Vec<_> = groups
            .filter(|group| !group.is_empty())
            .map(|group| start(scope, "wp-agent", || work(context, group, options, &ended)))
            .collect();
        let driven = loop {
            if signals::stop_requested() {
                break Ok(());
            }
            match coordinator.turn(&mut exchange, book, now_ms()) {
                Ok(false) if workers.iter().all(|worker| worker.is_finished()) => break Ok(()),
                Ok(false) => std::thread::sleep(LOOK),
                Ok(true) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if let Ok(mut ended) = has_ended.lock() {
            *ended = true;
        }
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
    ended: &dyn Fn() -> bool,
) -> Result<(), String> {
    let text = |failure: Failure| failure.text().to_owned();
    let file = |of: Result<std::path::PathBuf, Failure>| of.map_err(text);
    let (book, memory) = (file(book_file(context))?, file(agents_file(context))?);
    let said = |error: fleet::book::BookError| host::text::chain(&error);
    let mut exchange = SqliteBook::open(&book).map_err(said)?;
    let mut beats = SqliteBook::open(&book).map_err(said)?;
    let mut agents = Vec::new();
    for host in hosts {
        let outbox = Outbox::open(&memory, host.to_string()).map_err(said)?;
        agents.push((host, Agent::start(host.to_string(), outbox).map_err(said)?));
    }
    while !ended() {
        for (host, agent) in &mut agents {
            let measure = |job: &Job| {
                console::say(&format!("{host} measures"));
                let mut beat = || {
                    // A beat that fails is made up for by the next one, or shows in the next turn.
                    let _ = Agent::beat(&job.host, job.fence, &mut beats, now_ms());
                };
                experiment::measure(host, ssh_options, &job.args, &mut beat)
            };
            let goes_on = |_| true;
            agent.turn(&mut exchange, now_ms(), measure, goes_on).map_err(said)?;
            if signals::stop_requested() {
                return Ok(());
            }
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Outcome of each host, or the reason for its absence.
pub(super) fn outcomes(hosts: &[String], rows: &[Row]) -> Vec<(String, Result<Outcome, String>)> {
    let of = |name: &String| {
        let outcome = match rows.iter().find(|row| row.host == *name) {
            Some(row) if row.state == State::Done => {
                serde_json::from_str(&row.body).map_err(|error| error.to_string())
            }
            Some(row) => Err(format!("{}: {}", row.state.name(), row.body)),
            None => Err("its job has not ended".to_owned()),
        };
        (name.clone(), outcome)
    };
    hosts.iter().map(of).collect()
}

fn show(context: &Context, pooled: &PooledOutcome) -> Result<(), Failure> {
    match context.json {
        true => console::json(pooled),
        false => console::text(&report::text::pooled(pooled, console::style())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn groups_name_hosts_of_the_command_once() {
        let hosts = ["ssh:db1", "ssh:db2", "this"].map(|text| text.parse::<Host>().unwrap());
        let read = |texts: &[&str]| {
            let given: Vec<Group> = texts.iter().map(|text| parse_group(text).unwrap()).collect();
            groups(&given, &hosts).map_err(|failure| failure.text().to_owned())
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

    #[test]
    fn arguments_of_prove_are_checked_before_any_host_is_asked() {
        assert!(check(&words("probe --load ping --arms spin --max-blocks 8")).is_ok());
        assert!(check(&words("command --arm a=x --arm b=y --client z")).is_ok());
        for (bad, named) in [
            ("probe --on this", "--on"),
            ("probe --json --load ping", "--json"),
            ("probe --baseline=last", "--baseline"),
            ("probe --runs 3", "--runs"),
            ("nonsense", "nonsense"),
            ("probe --no-such-option", "--no-such-option"),
        ] {
            let failure = check(&words(bad)).unwrap_err();
            assert_eq!(failure.code(), 2, "{bad}");
            assert!(failure.text().contains(named), "{bad}: {}", failure.text());
        }
    }
}
