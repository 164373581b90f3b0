//! `wirepath explain`: where the time of a packet goes on a live path, and where packets end.

use std::fmt::Write;
use std::time::{Duration, Instant};

use clap::Args;
use host::explain::{BpfError, Observer, Scope, Spec, StageRow, Summary};
use host::net::LinkWatch;
use host::netns::Netns;
use host::tune::Place;
use host::turn::{Turn, Work};
use io::capability::Capability;
use serde_json::{Value, json};

use crate::args::{Cli, parse_duration};
use crate::end::Failure;
use crate::{console, rights, stop};

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Interface at which packets are first seen, may be repeated; any unless given
    #[arg(short = 'i', long, value_name = "IF")]
    interface: Vec<String>,
    /// Network namespace: a name of `ip netns`, a process id or a path; may be repeated. The own
    /// one where interfaces are named, every one else
    #[arg(long, value_name = "NETNS")]
    netns: Vec<String>,
    /// How long
    #[arg(short = 'd', long, default_value = "5s", value_parser = parse_duration)]
    duration: Duration,
    /// Share of each second in which packets are followed, in per cent
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=100))]
    duty: u8,
    /// Of so many packets one is timed; all are counted
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    timed_one_in: u32,
    /// How often a second to look at what each CPU does; 0 for never
    #[arg(long, default_value_t = 997, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    samples: u32,
    /// Functions of the kernel to list
    #[arg(long, default_value_t = 12)]
    functions: usize,
    /// Print what there is after each second
    #[arg(long)]
    live: bool,
}

pub(crate) fn run(cli: &Cli, args: &ExplainArgs) -> Result<(), Failure> {
    if args.live && cli.json {
        return Err(Failure::Usage("--live prints tables; leave --json out".into()));
    }
    let (scopes, mut links) = scopes(args)?;
    let spec = Spec {
        scopes,
        duty: f64::from(args.duty) / 100.0,
        timed_one_in: args.timed_one_in,
        samples_per_second: args.samples,
    };
    let _turn = Turn::take(Work::Following).map_err(|busy| Failure::failed(busy.to_string()))?;
    let mut observer = Observer::new(&spec).map_err(failure)?;
    observer.start().map_err(failure)?;
    // Programs are attached anew in each period, and the kernel asked to count what they take.
    rights::keep(&[Capability::Bpf, Capability::Perfmon, Capability::SysAdmin])
        .map_err(Failure::failed)?;
    console::say(&format!("following packets for {:.1} s", args.duration.as_secs_f64()));
    let begun = Instant::now();
    let mut nothing_left = Ok(());
    loop {
        let left = args.duration.saturating_sub(begun.elapsed());
        if left.is_zero() || stop::asked() {
            break;
        }
        observer.period(left, stop::asked).map_err(failure)?;
        let mut gone = Vec::new();
        links.retain_mut(|link| match link.gone() {
            Some(name) => {
                gone.push(format!("interface {name} no longer exists"));
                false
            }
            None => true,
        });
        if links.is_empty() && !args.interface.is_empty() {
            nothing_left = Err(Failure::failed(gone.join("; ")));
            break;
        }
        gone.iter().for_each(|what| console::say(what));
        if args.live {
            let summary = observer.summary().map_err(failure)?;
            console::screen(&text(&summary, args))?;
        }
    }
    let summary = observer.summary().map_err(failure)?;
    drop(observer);
    match (cli.json, args.live) {
        (true, _) => console::text(&format!("{:#}", document(&summary)))?,
        (false, true) => {}
        (false, false) => console::text(&text(&summary, args))?,
    }
    nothing_left
}

fn failure(error: BpfError) -> Failure {
    match &error {
        BpfError::Invalid { what } => Failure::Usage(what.clone()),
        BpfError::Permission { .. } | BpfError::Load { .. } => {
            Failure::Unsupported(Failure::of(&error).text().to_owned())
        }
        _ => Failure::of(&error),
    }
}

/// Each interface in each namespace that is named, and what tells when an interface goes.
fn scopes(args: &ExplainArgs) -> Result<(Vec<Scope>, Vec<LinkWatch>), Failure> {
    let mut spaces = Vec::new();
    for name in &args.netns {
        spaces.push((name.as_str(), open_netns(name)?));
    }
    if spaces.is_empty() {
        if args.interface.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        spaces.push(("this namespace", Netns::current().map_err(|e| Failure::of(&e))?));
    }
    let (mut scopes, mut links) = (Vec::new(), Vec::new());
    for (name, space) in &spaces {
        let inode = space.inode().map_err(|e| Failure::of(&e))?;
        let netns = u32::try_from(inode).map_err(|_| {
            Failure::failed(format!("{name}: no namespace has an inode number of {inode}"))
        })?;
        if args.interface.is_empty() {
            scopes.push(Scope { netns, ifindex: 0 });
        }
        for interface in &args.interface {
            let look = || {
                let link = host::net::link_named(interface)?;
                Ok((LinkWatch::new(link.index)?, link))
            };
            // The own one is not entered, which would take CAP_SYS_ADMIN.
            let looked = match args.netns.is_empty() {
                true => look(),
                false => space.run(look).map_err(|e| Failure::of(&e))?,
            };
            let (watch, link) = looked.map_err(|e| match e {
                host::net::NetError::NoInterface { .. } => Failure::Usage(format!(
                    "there is no interface {interface} in {name}; `ip link` lists those that are"
                )),
                other => Failure::of(&other),
            })?;
            scopes.push(Scope { netns, ifindex: link.index });
            links.push(watch);
        }
    }
    Ok((scopes, links))
}

fn open_netns(name: &str) -> Result<Netns, Failure> {
    let place = Place { netns: Some(name.to_owned()), root: None };
    Netns::open(place.netns_file()).map_err(|error| {
        Failure::Usage(format!(
            "no network namespace {name}: {}; give a name of `ip netns`, a process id or a path",
            Failure::of(&error).text()
        ))
    })
}

/// Nanoseconds, as one reads them.
fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

fn text(summary: &Summary, args: &ExplainArgs) -> String {
    let mut out = String::new();
    let seconds = summary.followed.as_secs_f64();
    let _ = writeln!(
        out,
        "{} packets followed in {seconds:.2} s ({} % of the time), one in {} timed\n",
        summary.packets_count, args.duty, args.timed_one_in
    );
    if !summary.stages.is_empty() {
        let _ =
            writeln!(out, "{:<40}{:>9}{:>9}{:>9}{:>9}", "stage", "packets", "p50", "p99", "max");
        for StageRow { name, count, timed_count, p50_ns, p99_ns, max_ns, .. } in &summary.stages {
            let of_timed = |ns: f64| if *timed_count > 0 { time(ns) } else { "-".to_owned() };
            let [p50, p99, max] = [*p50_ns, *p99_ns, *max_ns as f64].map(of_timed);
            let _ = writeln!(out, "{name:<40}{count:>9}{p50:>9}{p99:>9}{max:>9}");
        }
    }
    let _ = writeln!(out, "\n{:<30}{:<36}{:>10}", "dropped for", "by", "packets");
    for row in &summary.drops {
        let _ = writeln!(out, "{:<30}{:<36}{:>10}", row.reason, row.function, row.count);
    }
    if summary.drops.is_empty() {
        out.push_str("nothing\n");
    }
    if !summary.places.is_empty() {
        let _ = writeln!(out, "\n{:<60}{:>16}", "CPUs were", "of the time");
        for row in &summary.places {
            let _ = writeln!(out, "{:<60}{:>14.1} %", row.name, row.share * 100.0);
        }
        let _ = writeln!(out, "\n{:<60}{:>16}", "busy in function", "of busy time");
        for row in summary.functions.iter().take(args.functions) {
            let _ = writeln!(out, "{:<60}{:>14.1} %", row.name, row.share * 100.0);
        }
    }
    out.push('\n');
    match summary.cost.ns_per_packet() {
        Some(ns) => {
            let _ = writeln!(
                out,
                "Following a packet took {ns:.0} ns of CPU time ({:.1} runs of a program, their \
                 entry and exit\nnot counted; a mean of {} packets).",
                summary.cost.runs_count as f64 / summary.cost.packets_count as f64,
                summary.cost.packets_count
            );
        }
        None => out.push_str("What following a packet costs was not counted.\n"),
    }
    if summary.read_unseen_count > 0 {
        let _ = writeln!(
            out,
            "{} datagrams were read that had come before they were followed.",
            summary.read_unseen_count
        );
    }
    if summary.evicted_count > 0 {
        let _ = writeln!(
            out,
            "{} packets were lost sight of: more were under way than the table holds.",
            summary.evicted_count
        );
    }
    for what in &summary.missing {
        let _ = writeln!(out, "not offered here: {what}");
    }
    out
}

fn document(summary: &Summary) -> Value {
    json!({
        "schema": model::SCHEMA,
        "command": "explain",
        "followed_ns": summary.followed.as_nanos() as u64,
        "packets_count": summary.packets_count,
        "read_unseen_count": summary.read_unseen_count,
        "evicted_count": summary.evicted_count,
        "stages": summary.stages.iter().map(|row| json!({
            "name": row.name,
            "from": row.from,
            "to": row.to,
            "count": row.count,
            "timed_count": row.timed_count,
            "mean_ns": row.mean_ns,
            "p50_ns": row.p50_ns,
            "p90_ns": row.p90_ns,
            "p99_ns": row.p99_ns,
            "max_ns": row.max_ns,
        })).collect::<Vec<_>>(),
        "drops": summary.drops.iter().map(|row| json!({
            "reason": row.reason,
            "function": row.function,
            "count": row.count,
        })).collect::<Vec<_>>(),
        "places": summary.places.iter().map(|row| json!({
            "name": row.name,
            "count": row.count,
            "share": row.share,
        })).collect::<Vec<_>>(),
        "functions": summary.functions.iter().map(|row| json!({
            "name": row.name,
            "count": row.count,
            "share": row.share,
        })).collect::<Vec<_>>(),
        "cost": {
            "ns": summary.cost.ns,
            "runs_count": summary.cost.runs_count,
            "packets_count": summary.cost.packets_count,
            "ns_per_packet": summary.cost.ns_per_packet(),
        },
        "missing": summary.missing,
    })
}
