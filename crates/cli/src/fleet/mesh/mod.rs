//! `wirepath fleet mesh`: all pairs of hosts, and what stands out.

#[cfg(feature = "fleet")]
mod agents;
mod document;
mod end;
mod measure;
mod metrics;
mod serve;
mod watch;

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use fleet::mesh::{
    HostPair, MeshTable, PairCell, Sign, Suspect, confirming_pairs, is_confirmed, polish, rounds,
    suspects,
};
use model::Random;
use remote::Failure;

pub(crate) use self::document::MeshDocument;
use self::measure::Mesh;
pub(super) use self::serve::{MeshEcho, ping};
use super::hosts::{Host, check_named_once};
use house::args::parse_duration;
use house::console;
use house::context::Context;

#[derive(Debug, Args)]
pub(crate) struct MeshArgs {
    /// Hosts: `netns:NAME` of this machine, `ssh:[USER@]HOST[:PORT]`, and `this`; each with `=ADDRESS` if others shall
    /// ping it there
    #[arg(long, value_name = "HOST[=ADDRESS],…", value_delimiter = ',')]
    on: Vec<At<Host>>,
    /// Option of the ssh client as in its configuration file, e.g. IdentityFile=FILE; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    ssh_option: Vec<String>,
    #[cfg(feature = "fleet")]
    #[command(flatten)]
    agents: agents::MeshAgentsArgs,
    /// Load of each pair
    #[arg(long, default_value = "ping", value_parser = ["ping"])]
    load: String,
    /// Times that each pair is measured; with --watch, in a row before anything can be named
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
    /// Measure again and again until Ctrl-C, and report what begins and ceases to stand out
    #[arg(long)]
    watch: bool,
    /// Time from the begin of one repeat to that of the next
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_duration, requires = "watch")]
    every: Duration,
    /// Serve Prometheus metrics on this PORT of loopback, or on ADDRESS:PORT
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = house::metrics::parse_address, requires = "watch")]
    listen: Option<SocketAddr>,
}

/// A host of a mesh.
#[derive(Debug, Clone)]
struct At<H> {
    host: H,
    /// Address at which others ping it; `None` for that of the route, of the ssh connection, or of the list of hosts.
    address: Option<IpAddr>,
}

impl<H: FromStr<Err: Display>> FromStr for At<H> {
    type Err = String;

    /// Reads `HOST=ADDRESS`, whose second half may be missing.
    fn from_str(text: &str) -> Result<Self, String> {
        let (host, address) = match text.rsplit_once('=') {
            None => (text, None),
            Some((host, address)) => match address.parse() {
                Ok(address) => (host, Some(address)),
                Err(_) => {
                    return Err(format!(
                        "{address:?} is not a valid address; use HOST=192.0.2.7 or HOST=fd00::7"
                    ));
                }
            },
        };
        let host = host.parse().map_err(|error: H::Err| error.to_string())?;
        Ok(At { host, address })
    }
}

/// Measures pairs of hosts, which it knows by their places.
trait Measure {
    /// Number of hosts.
    fn hosts(&self) -> usize;
    /// Takes hosts that were lost for present.
    fn try_lost_again(&mut self) {}
    /// Measures pairs of which no two share a host; the first host of each pings.
    fn round(&mut self, pairs: &[HostPair]) -> Result<Vec<(HostPair, PairCell)>, Failure>;
}

/// A mesh that was measured.
pub(super) struct Measured {
    pub(super) hosts: Vec<String>,
    pub(super) load: String,
    pub(super) count: u32,
    pub(super) seed: u64,
    pub(super) repeats: Vec<MeshTable>,
    /// Hosts and links that stood out, and whether they did again.
    pub(super) suspects: Vec<(Suspect, bool)>,
}

pub(crate) fn run(context: &Context, args: &MeshArgs) -> Result<(), Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = args.seed.unwrap_or(since.as_nanos() as u64);
    let document = MeshDocument::new(&measured(args, seed)?);
    if let Some(why) = document.failure() {
        return Err(Failure::failed(format!("no pair of hosts could be measured: {why}")));
    }
    let page = document.page();
    if let Some(file) = &args.html {
        console::write_file(file, report::html::mesh_page(&page))?;
    }
    if context.json {
        console::json(&document)?
    } else {
        console::text(&report::text::mesh(&page, console::style()))?
    }
    match document.named().as_slice() {
        [] => Ok(()),
        named => Err(Failure::Threshold(named.join("; "))),
    }
}

impl Measured {
    fn new(args: &MeshArgs, hosts: Vec<String>, seed: u64) -> Self {
        Measured {
            hosts,
            load: args.load.clone(),
            count: args.count,
            seed,
            repeats: Vec::new(),
            suspects: Vec::new(),
        }
    }

    /// Finds what stands out in every repeat, and measures it again.
    fn judge(&mut self, mesh: &mut dyn Measure) -> Result<(), Failure> {
        let found = suspects(&self.repeats);
        let mut random = Random::new(self.seed, u64::MAX);
        self.suspects.clear();
        for suspect in &found {
            let is_named = again(mesh, suspect, &found, &self.repeats, &mut random)?;
            self.suspects.push((*suspect, is_named));
        }
        Ok(())
    }
}

fn measured(args: &MeshArgs, seed: u64) -> Result<Measured, Failure> {
    #[cfg(feature = "fleet")]
    if let Some(agents) = args.agents.hosts(args.count)? {
        let measured = Measured::new(args, agents.names(), seed);
        return measure(args, measured, || agents.open());
    }
    let hosts: Vec<Host> = args.on.iter().map(|at| at.host.clone()).collect();
    check_named_once(&hosts)?;
    if hosts.len() < 2 {
        return Err(Failure::Usage("a mesh needs two hosts at least; name more with --on".into()));
    }
    for host in &hosts {
        host.netns()?;
    }
    let measured = Measured::new(args, hosts.iter().map(ToString::to_string).collect(), seed);
    measure(args, measured, || Mesh::open(&args.on, &args.ssh_option, args.count))
}

/// - `open`: begins to measure; other experiments may run before, and after the end of its result.
fn measure<M: Measure>(
    args: &MeshArgs,
    mut measured: Measured,
    mut open: impl FnMut() -> Result<M, Failure>,
) -> Result<Measured, Failure> {
    if args.watch {
        return watch::run(args, measured, open);
    }
    let mut mesh = open()?;
    for number in 0..args.rounds {
        console::say(&format!("repeat {} of {}", number + 1, args.rounds));
        measured.repeats.push(repeat(args, &mut mesh, measured.seed, number.into())?);
    }
    measured.judge(&mut mesh)?;
    Ok(measured)
}

/// Measures every pair of the plan once.
fn repeat(
    args: &MeshArgs,
    mesh: &mut dyn Measure,
    seed: u64,
    number: u64,
) -> Result<MeshTable, Failure> {
    mesh.try_lost_again();
    let hosts = mesh.hosts();
    let mut table = MeshTable::new(hosts);
    let degree = args.degree.map(|degree| degree as usize);
    for round in rounds(hosts, degree, seed, number) {
        for (pair, cell) in mesh.round(&round)? {
            table.record(pair, cell);
        }
    }
    Ok(table)
}

/// Measures a suspect again, between pairs of other hosts; true if it stands out again.
fn again(
    mesh: &mut dyn Measure,
    suspect: &Suspect,
    all: &[Suspect],
    repeats: &[MeshTable],
    random: &mut Random,
) -> Result<bool, Failure> {
    let Some(last) = repeats.last() else { return Ok(false) };
    // A host that was lost in the last repeat may be here again.
    mesh.try_lost_again();
    let mut blocks: Vec<Vec<(HostPair, PairCell)>> = Vec::new();
    for pairs in confirming_pairs(suspect, all, last, random) {
        let mut block = Vec::new();
        // One after the other: they may share hosts.
        for (at, pair) in pairs.into_iter().enumerate() {
            let twice = at > 0 || matches!(suspect.sign, Sign::Slow(_));
            block.extend(measured_again(mesh, pair, twice)?);
        }
        blocks.push(block);
    }
    Ok(is_confirmed(suspect, &polish(last), &blocks))
}

/// Measures one pair.
///
/// - `twice`: if that fails, once more: a control that failed is none, and neither is a slow link that did.
fn measured_again(
    mesh: &mut dyn Measure,
    pair: HostPair,
    twice: bool,
) -> Result<Vec<(HostPair, PairCell)>, Failure> {
    let cells = mesh.round(&[pair])?;
    if !twice || cells.iter().all(|(_, cell)| cell.why.is_none()) {
        return Ok(cells);
    }
    mesh.try_lost_again();
    mesh.round(&[pair])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts whose first measurement fails.
    struct Flaky(u64);

    impl Measure for Flaky {
        fn hosts(&self) -> usize {
            2
        }

        fn round(&mut self, pairs: &[HostPair]) -> Result<Vec<(HostPair, PairCell)>, Failure> {
            self.0 += 1;
            let why = (self.0 == 1).then(|| "busy".to_owned());
            Ok(vec![(pairs[0], PairCell { why, sent: self.0, ..PairCell::default() })])
        }
    }

    #[test]
    fn failed_control_is_measured_once_more() {
        let tries = |twice| match measured_again(&mut Flaky(0), (0, 1), twice) {
            Ok(cells) => (cells[0].1.sent, cells[0].1.why.is_some()),
            Err(failure) => panic!("{}", failure.text()),
        };
        assert_eq!((tries(true), tries(false)), ((2, false), (1, true)));
    }

    #[test]
    fn address_of_a_host_follows_its_name() {
        let read = |text: &str| text.parse::<At<Host>>();
        let at = read("ssh:root@db2:2222=10.0.0.2").unwrap();
        assert_eq!(at.host.to_string(), "ssh:root@db2:2222");
        assert_eq!(at.address, Some("10.0.0.2".parse().unwrap()));
        assert_eq!(read("this=fd00::7").unwrap().address, Some("fd00::7".parse().unwrap()));
        assert_eq!(read("netns:a").unwrap().address, None);
        assert!(read("ssh:db2=db3").unwrap_err().contains("\"db3\" is not a valid address"));
        assert!(read("db2=10.0.0.2").unwrap_err().contains("is not a valid host"));
    }
}
