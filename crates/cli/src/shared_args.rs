//! Arguments that several commands share.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use host::private_file;
use house::args::{parse_bytes, parse_duration};
use model::{Limits, LoadRequest, RESOLVE, Request, Series, TwoHosts, VLANS, WireSpec};
use remote::Failure;
use report::text::Detail;

/// Load of a path.
#[derive(Debug, Clone, Args)]
pub(crate) struct LoadArgs {
    /// Load; `wirepath paths PATH` lists those of a path
    #[arg(long)]
    pub(crate) load: Option<String>,
    /// Payload of each datagram, or of each message over TCP: 1460, 4KiB; default: the load's own
    #[arg(long, value_parser = parse_bytes)]
    pub(crate) size: Option<usize>,
    /// Datagrams per second of a load with a schedule; default: the load's own
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) rate: Option<u64>,
    /// Measured part of one trial; default: the load's own
    #[arg(long, value_parser = parse_duration)]
    pub(crate) trial: Option<Duration>,
    /// IP version of the load (path probe); default: 4, or that of the far end's address
    #[arg(long, value_name = "4|6", hide_possible_values = true)]
    pub(crate) ip: Option<IpVersion>,
    /// VLAN of the load and its priority (path probe): AF_XDP writes the tags, a VLAN device those of sockets
    #[arg(long, value_name = "ID[:PRIORITY]", value_parser = parse_vlan)]
    pub(crate) vlan: Option<u16>,
    #[command(flatten)]
    pub(crate) wire: WireArgs,
}

/// A wire with distance.
#[derive(Debug, Clone, Args)]
pub(crate) struct WireArgs {
    /// Wire between the two namespaces of the lab: delay=20ms,rate=100mbit and, if wanted, buffer=1bdp, loss=0.1%, burst=4,
    /// jitter=2ms, reorder, mark=0.2bdp; the delay is one way, and losses are the same for all arms of a block
    #[arg(long, value_name = "WIRE")]
    pub(crate) wire: Option<WireSpec>,
}

impl LoadArgs {
    /// - `far`: far end on another host.
    pub(crate) fn request(&self, far: Option<TwoHosts>) -> LoadRequest {
        LoadRequest {
            kind: self.load.clone(),
            size_bytes: self.size,
            rate_pps: self.rate,
            trial: self.trial,
            ipv6: IpVersion::is_v6(self.ip),
            vlan_tag: self.vlan,
            wire: self.wire.wire.clone(),
            far,
            replay: None,
        }
    }
}

/// The user's name for an experiment, and note on it.
#[derive(Debug, Clone, Args)]
pub(crate) struct TitleArgs {
    /// Name of the experiment in its result and in lists
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// Note that is kept with the result
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

impl TitleArgs {
    pub(crate) fn add_to(&self, request: &mut Request) {
        request.name.clone_from(&self.name);
        request.note.clone_from(&self.note);
    }
}

/// Limits of an experiment, and its seed.
#[derive(Debug, Clone, Args)]
pub(crate) struct LimitArgs {
    /// Time to spend: 60s, 1m30s
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    pub(crate) time: Duration,
    /// Seed of the order of trials; default: random
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Minimum number of blocks before a verdict, at least 6; default: 8, or as many as the number of
    /// verdicts needs
    #[arg(long)]
    pub(crate) min_blocks: Option<u32>,
    /// Maximum number of blocks, at least 6
    #[arg(long)]
    pub(crate) max_blocks: Option<u32>,
    #[command(flatten)]
    pub(crate) resolve: ResolveArgs,
    /// Run each arm uncounted before each of its trials, so that no trial follows another program's; takes twice
    /// the time
    #[arg(long)]
    pub(crate) settle: bool,
    /// Do not store the result
    #[arg(long)]
    pub(crate) no_history: bool,
    #[command(flatten)]
    pub(crate) title: TitleArgs,
}

impl LimitArgs {
    /// Errors: no verdict is possible under them.
    pub(crate) fn limits(&self) -> Result<Limits, Failure> {
        let limits = Limits {
            time: self.time,
            resolve: self.resolve.ratio(),
            seed: self.seed,
            min_blocks: self.min_blocks,
            max_blocks: self.max_blocks,
            settle: self.settle,
        };
        limits.check().map_err(Failure::usage)?;
        Ok(limits)
    }
}

/// Extent of a printed result.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct DetailArgs {
    /// Print all figures: a table for each metric, reasons, machine and method
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

impl DetailArgs {
    pub(crate) fn detail(self) -> Detail {
        if self.verbose { Detail::Full } else { Detail::Brief }
    }
}

/// Output of a run that goes on.
#[derive(Debug, Clone, Args)]
pub(crate) struct WatchArgs {
    /// Print the result so far after each block, with verdicts that hold at every look
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) detail: DetailArgs,
}

/// Repetition of a whole experiment.
#[derive(Debug, Clone, Args)]
pub(crate) struct SeriesArgs {
    /// Repeat the whole experiment; each time in a new process and lab; a comparison between runs needs at
    /// least 5 sessions
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// Time from the start of one run to the start of the next; default: one after the other
    #[arg(long, value_name = "TIME", requires = "runs", value_parser = parse_duration)]
    pub(crate) every: Option<Duration>,
}

impl SeriesArgs {
    pub(crate) fn series(&self) -> Series {
        Series { runs: self.runs, every: self.every }
    }
}

#[derive(Debug, Args)]
pub(crate) struct BaselineArgs {
    /// Compare with these earlier experiments at the end: ids or unique prefixes, separated by commas,
    /// 'PREFIX*' for all that begin so, or a document: FILE.json or ./FILE
    #[arg(long, value_name = "IDS", group = "earlier")]
    pub(crate) baseline: Option<String>,
    /// Exit with 4 if it is shown, with 0 if it is excluded, and with 5 if neither; with --baseline, at least 5
    /// sessions a side are needed
    #[arg(long, value_enum, requires = "gated")]
    pub(crate) fail_on: Option<FailOn>,
    /// End with 0 if --fail-on is not decided
    #[arg(long)]
    pub(crate) accept_undecided: bool,
    /// Unit that gives one figure to the comparison with --baseline
    #[arg(long, value_enum, default_value = "session", requires = "baseline")]
    pub(crate) unit: UnitName,
    /// Compare even if an earlier experiment ran on another machine
    #[arg(long, requires = "baseline")]
    pub(crate) any_machine: bool,
}

/// Resolution of a run or of a comparison.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ResolveArgs {
    /// Difference that matters: 2%, 0.5%. Smaller ones count as no difference, --fail-on allows them, and the run goes
    /// on until larger ones are shown or excluded; default: 5%
    #[arg(long = "resolve", value_name = "PERCENT", value_parser = parse_resolve)]
    ratio: Option<f64>,
}

impl ResolveArgs {
    /// As a ratio above 1; `None` if it is not given.
    pub(crate) fn given(&self) -> Option<f64> {
        self.ratio
    }

    /// As a ratio above 1.
    pub(crate) fn ratio(&self) -> f64 {
        self.ratio.unwrap_or(RESOLVE)
    }
}

const RESOLVE_PERCENT_MAX: f64 = 50.0;

/// A resolution such as `2%`, `2` or `0.5%`, as a ratio above 1. Errors: not a number, 0, or above 50 %.
pub(crate) fn parse_resolve(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix('%').unwrap_or(text).trim();
    let percent = number.parse::<f64>().ok().filter(|p| *p > 0.0 && *p <= RESOLVE_PERCENT_MAX);
    let ratio = percent.map(|percent| 1.0 + percent / 100.0).filter(|ratio| *ratio > 1.0);
    ratio.ok_or_else(|| {
        format!("give a percentage above 0 and up to {RESOLVE_PERCENT_MAX}, such as 2% or 0.5%")
    })
}

#[derive(Debug, Clone, Args)]
pub(crate) struct SecretArgs {
    /// File with the shared secret of both ends
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
}

impl SecretArgs {
    /// Reads the secret from the file, without the line break at its end; `None` without a file.
    ///
    /// Errors: other users may read or change it, or it is too short.
    pub(crate) fn read(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.secret_file else { return Ok(None) };
        let text = private_file::read_text(path, SECRET_BYTES_MAX).map_err(Failure::usage)?;
        let secret = text.trim_end_matches(['\n', '\r']);
        check_secret(secret, &format!("in {}", path.display())).map_err(Failure::Usage)?;
        Ok(Some(secret.to_owned()))
    }
}

const SECRET_BYTES_MIN: usize = 16;
pub(crate) const SECRET_BYTES_MAX: u64 = 4096;

/// Errors: the secret is short enough to be guessed.
///
/// - `place`: where it was read, as in `on standard input`.
pub(crate) fn check_secret(secret: &str, place: &str) -> Result<(), String> {
    if secret.len() >= SECRET_BYTES_MIN {
        return Ok(());
    }
    Err(format!(
        "the secret {place} is shorter than {SECRET_BYTES_MIN} bytes; make one: wirepath secret --out FILE"
    ))
}

/// Question of a gate: exit code 4 if the answer is yes, 0 if it is no, 5 if it is not decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// A judged value of any arm is worse, because of the machine or of a change
    Worse,
    /// Any arm is worth less against its own baseline, which cancels the machine
    LessWorth,
}

/// Unit of a comparison between runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UnitName {
    /// Each run: whatever a day shifts counts as a change
    Run,
    /// Runs of one machine with less than an hour between them
    Session,
    /// Runs of one machine and one day (UTC)
    Day,
}

impl UnitName {
    pub(crate) fn unit(self) -> model::Unit {
        match self {
            UnitName::Run => model::Unit::Run,
            UnitName::Session => model::Unit::Session,
            UnitName::Day => model::Unit::Day,
        }
    }
}

/// IP version of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IpVersion {
    #[value(name = "4")]
    V4,
    #[value(name = "6")]
    V6,
}

impl IpVersion {
    pub(crate) fn is_v6(choice: Option<IpVersion>) -> bool {
        choice == Some(IpVersion::V6)
    }
}

/// The tag of a VLAN, 16 bits: `7`, or `7:3` with a priority.
pub(crate) fn parse_vlan(text: &str) -> Result<u16, String> {
    let (id, priority) = text.split_once(':').unwrap_or((text, "0"));
    let number = |text: &str, numbers: RangeInclusive<u16>| {
        text.parse::<u16>().ok().filter(|number| numbers.contains(number))
    };
    match (number(id, VLANS), number(priority, 0..=7)) {
        (Some(id), Some(priority)) => Ok(priority << 13 | id),
        _ => {
            Err("give a VLAN of 1 to 4094, with or without a priority of 0 to 7: 7 or 7:3"
                .to_owned())
        }
    }
}

/// An address that the probe can measure.
pub(crate) fn parse_ip(text: &str) -> Result<IpAddr, String> {
    match text.parse().map(|ip: IpAddr| ip.to_canonical()) {
        Ok(IpAddr::V6(ip)) if ip.is_unicast_link_local() => Err(
            "that is an address of one link; give the host's global or unique local one (ip -6 address)"
                .to_owned(),
        ),
        Ok(ip) => Ok(ip),
        Err(_) => Err("that is not a valid address; give one such as 192.0.2.7 or fd00::7".to_owned()),
    }
}

/// An address that the generator can send to.
pub(crate) fn parse_ipv4(text: &str) -> Result<Ipv4Addr, String> {
    match parse_ip(text)? {
        IpAddr::V4(ip) => Ok(ip),
        IpAddr::V6(_) => {
            Err("the generator sends no UDP checksums, which IPv6 requires; give an IPv4 address"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use runner::resolve_text;

    use super::*;

    #[test]
    fn addresses_of_both_ip_versions_are_read_and_those_of_a_link_are_refused() {
        for (text, ip) in
            [("192.0.2.7", "192.0.2.7"), ("fd00::7", "fd00::7"), ("::ffff:1.2.3.4", "1.2.3.4")]
        {
            assert_eq!(parse_ip(text), Ok(ip.parse().unwrap()), "{text}");
        }
        assert!(parse_ip("fe80::1").unwrap_err().contains("unique local"));
        assert!(parse_ip("db2").unwrap_err().contains("192.0.2.7"));
        assert!(parse_ipv4("::1").unwrap_err().contains("IPv4 address"));
    }

    #[test]
    fn vlans_are_read_with_and_without_a_priority() {
        for (text, tag) in [("1", 1), ("7", 7), ("7:3", 0x6007), ("4094:7", 0xeffe)] {
            assert_eq!(parse_vlan(text), Ok(tag), "{text}");
        }
        for bad in ["", "0", "4095", "7:8", "7:", ":3", "7:3:1", "vlan7", "-1"] {
            assert!(parse_vlan(bad).unwrap_err().contains("7 or 7:3"), "{bad}");
        }
    }

    #[test]
    fn resolutions_are_read_and_printed_as_they_were() {
        for (text, ratio, printed) in
            [("2%", 1.02, "2%"), ("2", 1.02, "2%"), ("0.5%", 1.005, "0.5%"), ("50 %", 1.5, "50%")]
        {
            assert_eq!(parse_resolve(text), Ok(ratio), "{text}");
            assert_eq!(resolve_text(ratio), printed);
        }
        assert_eq!(resolve_text(RESOLVE), "5%");
        for bad in ["", "%", "0", "0%", "-1", "51%", "nan", "inf", "1e-30", "2%%", "two"] {
            assert!(parse_resolve(bad).unwrap_err().contains("such as 2%"), "{bad}");
        }
    }
}
