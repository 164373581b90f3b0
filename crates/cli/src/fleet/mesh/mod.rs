//! `wirepath fleet mesh`: all pairs of hosts, and what stands out.

mod document;
mod measure;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use fleet::mesh::{
    Cell, Pair, Suspect, Table, confirming_pairs, is_confirmed, polish, rounds, suspects,
};
use host::exclusive::ExclusiveLock;
use model::Random;

pub(crate) use self::document::Document;
use self::measure::Mesh;
use super::hosts::{Host, HostsArgs};
use crate::context::Context;
use crate::exit::Failure;
use crate::{console, signals};

#[derive(Debug, Args)]
pub(crate) struct MeshArgs {
    #[command(flatten)]
    hosts: HostsArgs,
    /// Load of each pair
    #[arg(long, default_value = "ping", value_parser = ["ping"])]
    load: String,
    /// Times that each pair is measured
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Round trips of one measurement of a pair
    #[arg(short = 'c', long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(20..=1_000_000))]
    count: u32,
    /// Peers of each host; default: all up to 200 hosts, 12 above
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    degree: Option<u32>,
    /// Seed of the order of pairs; default: the time
    #[arg(long)]
    seed: Option<u64>,
    /// Also write a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// A mesh that was measured.
pub(super) struct Measured {
    pub(super) hosts: Vec<String>,
    pub(super) load: String,
    pub(super) count: u32,
    pub(super) seed: u64,
    pub(super) repeats: Vec<Table>,
    /// Hosts and links that stood out, and whether they did again.
    pub(super) suspects: Vec<(Suspect, bool)>,
}

pub(crate) fn run(context: &Context, args: &MeshArgs) -> Result<(), Failure> {
    let hosts = args.hosts.hosts()?;
    if hosts.len() < 2 {
        return Err(Failure::Usage("a mesh needs two hosts at least; name more with --on".into()));
    }
    if let Some(Host::Ssh(host)) = hosts.iter().find(|host| !host.is_local()) {
        return Err(Failure::Unsupported(format!(
            "ssh:{host} cannot be part of a mesh yet: pairs are measured between namespaces of this machine"
        )));
    }
    let _lock = ExclusiveLock::acquire_alone()?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = args.seed.unwrap_or(since.as_nanos() as u64);
    let mut mesh = Mesh::open(hosts, args.count)?;
    let measured = measure(args, seed, hosts, &mut mesh)?;
    drop(mesh);
    let document = Document::new(&measured);
    if let Some(why) = document.failure() {
        return Err(Failure::failed(format!("no pair of hosts could be measured: {why}")));
    }
    let page = document.page();
    if let Some(file) = &args.html {
        console::write_file(file, report::html::mesh_page(&page))?;
    }
    match context.json {
        true => console::json(&document)?,
        false => console::text(&report::text::mesh(&page, console::style()))?,
    }
    match document.named().as_slice() {
        [] => Ok(()),
        named => Err(Failure::Threshold(named.join("; "))),
    }
}

fn measure(
    args: &MeshArgs,
    seed: u64,
    hosts: &[Host],
    mesh: &mut Mesh,
) -> Result<Measured, Failure> {
    let degree = args.degree.map(|degree| degree as usize);
    let mut repeats = Vec::new();
    for repeat in 0..u64::from(args.rounds) {
        console::say(&format!("repeat {} of {}", repeat + 1, args.rounds));
        let mut table = Table::new(hosts.len());
        for pair in rounds(hosts.len(), degree, seed, repeat).into_iter().flatten() {
            table.record(pair, once(mesh, pair)?);
        }
        repeats.push(table);
    }
    let found = suspects(&repeats);
    let mut random = Random::new(seed, u64::MAX);
    let mut confirmed = Vec::new();
    for suspect in &found {
        confirmed.push((*suspect, again(mesh, suspect, &found, &repeats, &mut random)?));
    }
    Ok(Measured {
        hosts: hosts.iter().map(Host::to_string).collect(),
        load: args.load.clone(),
        count: args.count,
        seed,
        repeats,
        suspects: confirmed,
    })
}

/// Measures a suspect again, between pairs of other hosts; true if it stands out again.
fn again(
    mesh: &mut Mesh,
    suspect: &Suspect,
    all: &[Suspect],
    repeats: &[Table],
    random: &mut Random,
) -> Result<bool, Failure> {
    let Some(last) = repeats.last() else { return Ok(false) };
    let mut blocks: Vec<Vec<(Pair, Cell)>> = Vec::new();
    for pairs in confirming_pairs(suspect, all, last, random) {
        let cells = pairs.into_iter().map(|pair| Ok((pair, once(mesh, pair)?)));
        blocks.push(cells.collect::<Result<_, Failure>>()?);
    }
    Ok(is_confirmed(suspect, &polish(last), &blocks))
}

fn once(mesh: &mut Mesh, pair: Pair) -> Result<Cell, Failure> {
    match signals::stop_requested() {
        true => Err(Failure::failed("interrupted")),
        false => mesh.measure(pair),
    }
}
