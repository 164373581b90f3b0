//! A moment's counters and sockets of a namespace.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::causes::finding::{Confidence, Severity};
use crate::net::{self, ShaperQdisc, TcpSocket, UdpSocket};
use crate::tune::{KnobError, System};

/// Counters, queueing disciplines and sockets of a namespace at one moment.
#[derive(Debug)]
pub struct Sample {
    pub at: Instant,
    /// All counters of the kernel by name:
    ///
    /// - as `nstat` names them: `TcpExtListenOverflows`, `IpReasmFails`, `Udp6InErrors`, `XfrmInNoPols`;
    /// - a file, its row and the name: `sockstat TCP mem`, `nf_conntrack insert_failed`, `arp_cache table_fulls`;
    /// - `softnet dropped`, `softnet time_squeeze`, the sums of all CPUs of the machine, and `softnet cpu0 processed`;
    /// - `link eth0 rx_dropped`, of every interface of the namespace.
    pub counters: BTreeMap<String, u64>,
    pub shapers: Vec<ShaperQdisc>,
    pub tcp: Vec<TcpSocket>,
    pub udp: Vec<UdpSocket>,
}

impl Sample {
    pub fn take(system: &System) -> Result<Self, KnobError> {
        let mut counters = BTreeMap::new();
        for (file, add) in FILES {
            // Not every kernel has them all; a user without privileges may read most.
            let text =
                system.run(|| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")))?;
            add(file.rsplit('/').next().unwrap_or(file), &text.unwrap_or_default(), &mut counters);
        }
        for (link, name, count) in system.within(net::link_counters)? {
            counters.insert(format!("link {link} {name}"), count);
        }
        Ok(Sample {
            at: Instant::now(),
            counters,
            shapers: system.within(net::shapers)?,
            tcp: system.within(net::tcp_sockets)?,
            udp: system.within(net::udp_sockets)?,
        })
    }
}

/// Adds the counters of a file, by its name and text.
type Add = fn(&str, &str, &mut BTreeMap<String, u64>);

/// Files of `/proc/net`, with their form.
const FILES: [(&str, Add); 11] = [
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
}

impl Window {
    pub(crate) fn time(&self) -> Duration {
        self.after.at.saturating_duration_since(self.before.at)
    }

    /// Sum of some counters, by the names of [`Sample::counters`]; 0 for one that this kernel lacks.
    pub(crate) fn sum(&self, names: &[&str]) -> Losses {
        let sum =
            |sample: &Sample| names.iter().filter_map(|name| sample.counters.get(*name)).sum();
        self.losses(sum(&self.before), sum(&self.after))
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

    /// Shapers at the second sample, each with its drops.
    pub(crate) fn shapers(&self) -> impl Iterator<Item = (&ShaperQdisc, Losses)> {
        self.after.shapers.iter().map(|shaper| {
            let mut earlier = self.before.shapers.iter();
            let before = earlier
                .find(|other| other.interface == shaper.interface && other.limits == shaper.limits)
                .map_or(0, |one| one.drop_count);
            (shaper, self.losses(before.into(), shaper.drop_count.into()))
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
            shapers: Vec::new(),
            tcp: Vec::new(),
            udp: Vec::new(),
        };
        Window { before: sample(at, false), after: sample(at + Duration::from_secs(1), true) }
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
        let of = |name: &str| counters.get(name).copied();
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
