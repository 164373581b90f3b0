//! A moment's counters and sockets of a namespace.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use super::host;
use crate::causes::finding::{Confidence, Severity};
use crate::net::nftables::{self, DropCount};
use crate::net::{
    self, Link, Neighbour, PacketSocket, QdiscLimits, QdiscState, TcpSocket, UdpSocket, ethtool,
};
use crate::tune::{KnobError, System};

/// Counters, queueing disciplines and sockets of a namespace at one moment.
#[derive(Debug, Clone)]
pub struct Sample {
    pub at: Instant,
    /// All counters of the kernel by name:
    ///
    /// - as `nstat` names them: `TcpExtListenOverflows`, `IpReasmFails`, `Udp6InErrors`, `XfrmInNoPols`;
    /// - a file, its row and the name: `sockstat TCP mem`, `nf_conntrack insert_failed`, `arp_cache table_fulls`;
    /// - `softnet dropped`, `softnet time_squeeze`, the sums of all CPUs of the machine, and `softnet cpu0 processed`;
    /// - `link eth0 rx_dropped`, of every interface of the namespace;
    /// - `fq eth0 flows_plimit`, the sum of all `fq` of an interface, and `fq eth0 flow_limit`, the smallest;
    /// - `ethtool eth0 rx_discards_phy`, of the drivers of real cards, with `ethtool eth0 pause rx_frames`;
    /// - of the host: `cpu0 softirq`, ticks by `/proc/stat`; `irq 24 cpu0`, of the interrupts of devices; `vmstat
    ///   balloon_inflate`; `idle cpu0 state2`, entries into an idle state; `group /PATH nr_throttled` of control groups
    ///   with a quota;
    /// - `mroute 239.1.1.1 from 10.1.0.1 packets` and `mroute_out eth0` of a multicast router.
    pub counters: BTreeMap<String, u64>,
    pub qdiscs: Vec<QdiscState>,
    pub packet: Vec<PacketSocket>,
    pub tcp: Vec<TcpSocket>,
    pub udp: Vec<UdpSocket>,
    pub neighbours: Vec<Neighbour>,
    /// Empty for a user who may not read the rules.
    pub drops: Vec<DropCount>,
}

impl Sample {
    pub fn take(system: &System) -> Result<Self, KnobError> {
        let mut counters = system.run(counters_here)?;
        for (link, name, count) in system.within(net::link_counters)? {
            counters.insert(format!("link {link} {name}"), count);
        }
        for (link, name, count) in system.within(ethtool::driver_counters)? {
            counters.insert(format!("ethtool {link} {name}"), count);
        }
        host::add(system, &mut counters);
        let qdiscs = system.within(net::qdiscs)?;
        add_fq(&qdiscs, &system.within(net::links)?, &mut counters);
        Ok(Sample {
            at: Instant::now(),
            counters,
            qdiscs,
            packet: system.within(net::packet_sockets)?,
            tcp: system.within(net::tcp_sockets)?,
            udp: system.within(net::udp_sockets)?,
            neighbours: system.within(net::neighbours)?,
            drops: system.within(nftables::drop_counts).unwrap_or_default(),
        })
    }
}

/// Counters of the calling thread's namespace, as in [`Sample::counters`] but for those of interfaces.
pub(crate) fn counters_here() -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    for (file, add) in FILES {
        // Not every kernel has them all; a user without privileges may read most.
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}"));
        add(file.rsplit('/').next().unwrap_or(file), &text.unwrap_or_default(), &mut counters);
    }
    counters
}

/// Adds the counters of a file, by its name and text.
type Add = fn(&str, &str, &mut BTreeMap<String, u64>);

/// Files of `/proc/net`, with their form.
const FILES: [(&str, Add); 13] = [
    ("snmp", add_named_lines),
    ("netstat", add_named_lines),
    ("snmp6", add_names),
    ("xfrm_stat", add_names),
    ("sockstat", add_pairs),
    ("sockstat6", add_pairs),
    ("softnet_stat", add_softnet),
    ("stat/nf_conntrack", add_columns),
    ("stat/arp_cache", add_columns),
    ("stat/ndisc_cache", add_columns),
    ("stat/rt_cache", add_columns),
    ("ip_mr_cache", add_multicast_routes),
    ("ip_mr_vif", add_multicast_outputs),
];

/// `Tcp: RtoMin InErrs` and below it `Tcp: 200 0`.
fn add_named_lines(_: &str, text: &str, counters: &mut BTreeMap<String, u64>) {
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks_exact(2) {
        let (Some((protocol, names)), Some((_, counts))) =
            (pair[0].split_once(": "), pair[1].split_once(": "))
        else {
            continue;
        };
        for (name, count) in names.split_whitespace().zip(counts.split_whitespace()) {
            // A limit of -1 is none.
            if let Ok(count) = count.parse() {
                counters.insert(format!("{protocol}{name}"), count);
            }
        }
    }
}

/// `Ip6InReceives   12` in each line.
fn add_names(_: &str, text: &str, counters: &mut BTreeMap<String, u64>) {
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(Ok(count))) = (words.next(), words.next().map(str::parse)) {
            counters.insert(name.to_owned(), count);
        }
    }
}

/// `TCP: inuse 5 orphan 0` in each line.
fn add_pairs(file: &str, text: &str, counters: &mut BTreeMap<String, u64>) {
    for (row, rest) in text.lines().filter_map(|line| line.split_once(": ")) {
        let words: Vec<&str> = rest.split_whitespace().collect();
        for pair in words.chunks_exact(2) {
            if let Ok(count) = pair[1].parse() {
                counters.insert(format!("{file} {row} {}", pair[0]), count);
            }
        }
    }
}

/// Names in the first line, and hexadecimal numbers of a CPU in each other; `entries` is the same in all.
fn add_columns(file: &str, text: &str, counters: &mut BTreeMap<String, u64>) {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    for line in lines {
        for (name, count) in names.iter().zip(line.split_whitespace()) {
            let count = u64::from_str_radix(count, 16).unwrap_or(0);
            let sum = counters.entry(format!("{file} {name}")).or_default();
            *sum = if *name == "entries" { count } else { sum.saturating_add(count) };
        }
    }
}

/// Sums of the disciplines `fq` of each interface, and the smallest limit of a flow.
fn add_fq(qdiscs: &[QdiscState], links: &[Link], counters: &mut BTreeMap<String, u64>) {
    for fq in qdiscs.iter().filter(|qdisc| qdisc.kind == "fq") {
        // The interface may be gone by now.
        let Some(link) = links.iter().find(|link| link.index == fq.interface) else { continue };
        *counters.entry(format!("fq {} flows_plimit", link.name)).or_default() +=
            fq.own("flows_plimit").unwrap_or(0);
        let limit = counters.entry(format!("fq {} flow_limit", link.name)).or_insert(u64::MAX);
        *limit = (*limit).min(fq.own("flow_limit").unwrap_or(u64::MAX));
    }
}

/// Most lines of a table of multicast routes.
const MULTICAST_ROUTES_MAX: usize = 10_000;

/// `mroute 239.1.1.1 from 10.1.0.1 packets`, and `wrong`, `outputs` and `unresolved` of the same.
fn add_multicast_routes(_: &str, text: &str, counters: &mut BTreeMap<String, u64>) {
    let address =
        |text: &str| u32::from_str_radix(text, 16).ok().map(|ip| Ipv4Addr::from(ip.to_ne_bytes()));
    for line in text.lines().skip(1).take(MULTICAST_ROUTES_MAX) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [group, origin, input, packets, _, wrong, outputs @ ..] = &words[..] else { continue };
        let (Some(group), Some(origin)) = (address(group), address(origin)) else { continue };
        let columns = [
            ("packets", packets.parse().unwrap_or(0)),
            ("wrong", wrong.parse().unwrap_or(0)),
            ("outputs", outputs.len() as u64),
            ("unresolved", u64::from(*input == "-1")),
        ];
        for (column, count) in columns {
            counters.insert(format!("mroute {group} from {origin} {column}"), count);
        }
    }
}

/// `mroute_out eth0`: packets that multicast routing sent there.
fn add_multicast_outputs(_: &str, text: &str, counters: &mut BTreeMap<String, u64>) {
    for line in text.lines().skip(1).take(MULTICAST_ROUTES_MAX) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [_, name, _, _, _, packets, ..] = words[..] {
            counters.insert(format!("mroute_out {name}"), packets.parse().unwrap_or(0));
        }
    }
}

/// Columns of `softnet_stat`; the others are unused or of newer kernels.
///
/// Source: net/core/net-procfs.c, softnet_seq_show.
const SOFTNET: [(usize, &str); 6] = [
    (0, "processed"),
    (1, "dropped"),
    (2, "time_squeeze"),
    (9, "received_rps"),
    (10, "flow_limit"),
    (11, "backlog"),
];

fn add_softnet(_: &str, text: &str, counters: &mut BTreeMap<String, u64>) {
    for (row, line) in text.lines().enumerate() {
        let columns: Vec<u64> = line
            .split_whitespace()
            .map(|text| u64::from_str_radix(text, 16).unwrap_or(0))
            .collect();
        // Offline CPUs have no row, so the kernel prints the number since Linux 5.10.
        let cpu = columns.get(12).copied().unwrap_or(row as u64);
        for (column, name) in SOFTNET {
            let Some(count) = columns.get(column) else { continue };
            *counters.entry(format!("softnet {name}")).or_default() += count;
            counters.insert(format!("softnet cpu{cpu} {name}"), *count);
        }
    }
}

/// Two samples.
#[derive(Debug)]
pub struct Window {
    pub before: Sample,
    pub after: Sample,
    /// Positions of the TCP sockets that are in both samples.
    tcp_pairs: std::sync::OnceLock<Vec<(usize, usize)>>,
}

impl Window {
    pub(crate) fn new(before: Sample, after: Sample) -> Self {
        Window { before, after, tcp_pairs: Default::default() }
    }

    /// TCP sockets that are in both samples, listeners included.
    pub(crate) fn tcp_pairs(&self) -> impl Iterator<Item = (&TcpSocket, &TcpSocket)> {
        let pairs = self.tcp_pairs.get_or_init(|| {
            let name = |one: &TcpSocket| (one.local, one.remote, one.inode);
            let earlier: HashMap<_, _> =
                self.before.tcp.iter().enumerate().map(|(at, one)| (name(one), at)).collect();
            let later = self.after.tcp.iter().enumerate();
            later.filter_map(|(at, one)| Some((*earlier.get(&name(one))?, at))).collect()
        });
        pairs.iter().map(|(before, after)| (&self.before.tcp[*before], &self.after.tcp[*after]))
    }

    pub(crate) fn time(&self) -> Duration {
        self.after.at.saturating_duration_since(self.before.at)
    }

    /// Sum of some counters, by the names of [`Sample::counters`]; 0 for one that this kernel lacks.
    pub(crate) fn sum(&self, names: &[&str]) -> Losses {
        let sum =
            |sample: &Sample| names.iter().filter_map(|name| sample.counters.get(*name)).sum();
        self.losses(sum(&self.before), sum(&self.after))
    }

    /// Counter of an interface, such as `rx_dropped`.
    pub(crate) fn link(&self, name: &str, counter: &str) -> Losses {
        self.row("link", name, counter)
    }

    /// Counter of a row of a table, as in [`Sample::counters`]: `group`, `/PATH`, `nr_throttled`.
    pub(crate) fn row(&self, table: &str, row: &str, counter: &str) -> Losses {
        self.sum(&[&format!("{table} {row} {counter}")])
    }

    /// Latest value of a counter or gauge; `None` if this kernel lacks it.
    pub(crate) fn latest(&self, name: &str) -> Option<u64> {
        self.after.counters.get(name).copied()
    }

    /// Names of the counters of an interface that begin with a text and grew or are above 0, with their counts.
    pub(crate) fn of_prefix<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, Losses)> {
        let range = self.after.counters.range(prefix.to_owned()..);
        let named = range.take_while(move |(name, _)| name.starts_with(prefix));
        named.map(move |(name, after)| {
            let before = self.before.counters.get(name).copied().unwrap_or(*after);
            (&name[prefix.len()..], self.losses(before, *after))
        })
    }

    pub(crate) fn losses(&self, before: u64, after: u64) -> Losses {
        Losses { now: after.saturating_sub(before), total: after, window: self.time() }
    }

    /// Queueing disciplines at the second sample, each with its state at the first one, if it was there.
    pub(crate) fn qdiscs(&self) -> impl Iterator<Item = (Option<&QdiscState>, &QdiscState)> {
        let key = |one: &QdiscState| (one.interface, one.handle, one.parent);
        let earlier: BTreeMap<_, _> =
            self.before.qdiscs.iter().map(|one| (key(one), one)).collect();
        self.after.qdiscs.iter().map(move |after| {
            let before = earlier.get(&key(after)).copied();
            (before.filter(|before| before.kind == after.kind), after)
        })
    }

    /// Disciplines that slow an interface on purpose, each with its limits and drops.
    pub(crate) fn shapers(&self) -> impl Iterator<Item = (&QdiscState, QdiscLimits, Losses)> {
        self.qdiscs().filter_map(|(before, after)| {
            let earlier = before.map_or(0, |before| before.drop_count);
            let drops = self.losses(earlier.into(), after.drop_count.into());
            Some((after, after.limits?, drops))
        })
    }
}

/// Counted losses: while they were watched, and in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Losses {
    /// Within the window.
    pub now: u64,
    /// Since the namespace or the object was created.
    pub total: u64,
    pub window: Duration,
}

impl Losses {
    /// Those of `self` that are not among `others`.
    pub(crate) fn without(self, others: Losses) -> Losses {
        Losses {
            now: self.now.saturating_sub(others.now),
            total: self.total.saturating_sub(others.total),
            ..self
        }
    }

    /// High while packets are lost; low for those of the past.
    pub(crate) fn severity(self) -> Severity {
        if self.now > 0 { Severity::High } else { Severity::Low }
    }

    pub(crate) fn confidence(self) -> Confidence {
        if self.now > 0 { Confidence::Now } else { Confidence::Before }
    }

    /// Number per second within the window.
    pub(crate) fn per_second(self) -> f64 {
        self.now as f64 / self.window.as_secs_f64().max(1e-3)
    }

    pub(crate) fn evidence(self) -> String {
        let seconds = self.window.as_secs_f64();
        format!("{} more within {seconds:.0} s, {} in all", self.now, self.total)
    }

    /// `9 packets were dropped within a second` while there are any, else `20 packets were dropped in all`.
    pub(crate) fn sentence(self, what: &str) -> String {
        if self.now == 0 {
            return format!("{} {what} in all", self.total);
        }
        match self.window.as_secs_f64().round() {
            seconds if seconds <= 1.0 => format!("{} {what} within a second", self.now),
            seconds => format!("{} {what} within {seconds:.0} s", self.now),
        }
    }
}

#[cfg(test)]
impl Window {
    /// A window of a second with these counters, each with its values before and after, and nothing else.
    pub(crate) fn with_counters(counters: &[(&str, u64, u64)]) -> Self {
        let at = Instant::now();
        let sample = |at, is_after: bool| Sample {
            at,
            counters: counters
                .iter()
                .map(|(name, before, after)| {
                    ((*name).to_owned(), if is_after { *after } else { *before })
                })
                .collect(),
            qdiscs: Vec::new(),
            packet: Vec::new(),
            tcp: Vec::new(),
            udp: Vec::new(),
            neighbours: Vec::new(),
            drops: Vec::new(),
        };
        Window::new(sample(at, false), sample(at + Duration::from_secs(1), true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_counter_file_is_read_by_name() {
        let mut counters = BTreeMap::new();
        add_named_lines(
            "snmp",
            "Udp: InDatagrams InErrors\nUdp: 5 7\nTcp: MaxConn\nTcp: -1\n",
            &mut counters,
        );
        add_names("snmp6", "Udp6InErrors   \t4\nnonsense\n", &mut counters);
        add_pairs("sockstat", "sockets: used 9\nTCP: inuse 2 mem 3\n", &mut counters);
        add_columns("arp_cache", "entries table_fulls\n0000000a 1\n0000000a 2\n", &mut counters);
        add_softnet("softnet_stat", "10 1 2 0 0 0 0 0 0 0 0 0 3\n", &mut counters);
        let entry = format!(
            "{:08X} {:08X} 0 50 6400 2 1:1",
            u32::from_ne_bytes([239, 1, 1, 1]),
            u32::from_ne_bytes([10, 1, 0, 1])
        );
        add_multicast_routes("ip_mr_cache", &format!("Group\n{entry}\nshort\n"), &mut counters);
        add_multicast_outputs("ip_mr_vif", "Interface\n 1 right 0 0 640 5 00000\n", &mut counters);
        let of = |name: &str| counters.get(name).copied();
        let route = |column: &str| of(&format!("mroute 239.1.1.1 from 10.1.0.1 {column}"));
        assert_eq!(
            (route("packets"), route("wrong"), route("unresolved")),
            (Some(50), Some(2), Some(0))
        );
        assert_eq!(of("mroute_out right"), Some(5));
        assert_eq!(
            (of("UdpInErrors"), of("TcpMaxConn"), of("Udp6InErrors")),
            (Some(7), None, Some(4))
        );
        assert_eq!((of("sockstat TCP mem"), of("sockstat sockets used")), (Some(3), Some(9)));
        assert_eq!((of("arp_cache entries"), of("arp_cache table_fulls")), (Some(10), Some(3)));
        assert_eq!((of("softnet time_squeeze"), of("softnet cpu3 processed")), (Some(2), Some(16)));
    }

    #[test]
    fn growth_and_totals_are_of_both_versions_of_ip() {
        let window =
            Window::with_counters(&[("UdpInErrors", 7, 9), ("Udp6InErrors", 0, 4), ("A", 3, 3)]);
        let both = window.sum(&["UdpInErrors", "Udp6InErrors"]);
        assert_eq!((both.now, both.total, both.severity()), (6, 13, Severity::High));
        let steady = window.sum(&["A", "no such one"]);
        assert_eq!((steady.now, steady.total, steady.severity()), (0, 3, Severity::Low));
        assert_eq!(both.without(steady).total, 10);
        let found: Vec<_> = window.of_prefix("Udp").map(|(name, lost)| (name, lost.now)).collect();
        assert_eq!(found, [("6InErrors", 4), ("InErrors", 2)]);
    }
}
