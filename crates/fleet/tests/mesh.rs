//! Meshes of simulated hosts: a planted fault is named, and nothing else.

use std::collections::BTreeSet;

use model::Random;
use wirepath_fleet::mesh::{
    HostPair, MeshTable, PairCell, SuspectPlace, confirming_pairs, is_confirmed, polish, rounds,
    suspects,
};

const SENT: u64 = 2_000;
const REPEATS: u64 = 3;

/// A fleet whose hosts and links differ by 3 %, with noise of 3 % and a loss of one datagram in a thousand.
struct Fleet {
    hosts: usize,
    parts: Vec<f64>,
    links: Vec<f64>,
    slow_host: Option<(usize, f64)>,
    slow_link: Option<(HostPair, f64)>,
    lossy_link: Option<(HostPair, f64)>,
    lossy_host: Option<(usize, f64)>,
    two_kinds: bool,
    random: Random,
}

impl Fleet {
    fn new(hosts: usize, seed: u64) -> Self {
        let mut random = Random::new(seed, 9);
        let mut parts = |count: usize| (0..count).map(|_| 0.03 * random.normal()).collect();
        Fleet {
            hosts,
            parts: parts(hosts),
            links: parts(hosts * hosts),
            slow_host: None,
            slow_link: None,
            lossy_link: None,
            lossy_host: None,
            two_kinds: false,
            random,
        }
    }

    fn measure(&mut self, (a, b): HostPair) -> PairCell {
        let (low, high) = (a.min(b), a.max(b));
        let is =
            |pair: Option<(HostPair, f64)>| pair.filter(|of| of.0 == (low, high)).map(|of| of.1);
        let of_host =
            |host: Option<(usize, f64)>| host.filter(|of| of.0 == a || of.0 == b).map(|of| of.1);
        let slower = of_host(self.slow_host).unwrap_or(1.0) * is(self.slow_link).unwrap_or(1.0);
        let kind = if self.two_kinds && self.random.unit() < 0.33 { 3f64.ln() } else { 0.0 };
        let log = 10.0
            + kind
            + self.parts[a]
            + self.parts[b]
            + self.links[low * self.hosts + high]
            + 0.03 * self.random.normal()
            + slower.ln();
        let loss = is(self.lossy_link).or(of_host(self.lossy_host)).unwrap_or(0.001);
        let lost = self.lost(loss);
        PairCell { rtt_ns: Some(log.exp()), sent: SENT, lost, why: None }
    }

    /// Number of lost datagrams, by the distances between them.
    fn lost(&mut self, share: f64) -> u64 {
        let mut distance = || ((1.0 - self.random.unit()).ln() / (1.0 - share).ln()) as u64 + 1;
        let mut at = distance();
        let mut lost = 0;
        while at <= SENT {
            lost += 1;
            at += distance();
        }
        lost
    }

    /// Measures as a mesh does, suspects again included; returns what is named.
    fn named(&mut self, seed: u64) -> BTreeSet<SuspectPlace> {
        let mut repeats = Vec::new();
        for repeat in 0..REPEATS {
            let mut table = MeshTable::new(self.hosts);
            for pair in rounds(self.hosts, None, seed, repeat).into_iter().flatten() {
                let cell = self.measure(pair);
                table.record(pair, cell);
            }
            repeats.push(table);
        }
        let found = suspects(&repeats);
        let mut random = Random::new(seed, 5);
        let mut named = BTreeSet::new();
        for suspect in &found {
            let fit = polish(&repeats[repeats.len() - 1]);
            let pairs = confirming_pairs(suspect, &found, &repeats[0], &mut random);
            let blocks: Vec<Vec<(HostPair, PairCell)>> = pairs
                .into_iter()
                .map(|block| block.into_iter().map(|pair| (pair, self.measure(pair))).collect())
                .collect();
            if is_confirmed(suspect, &fit, &blocks) {
                named.insert(suspect.place);
            }
        }
        named
    }
}

const SIZES: [usize; 4] = [6, 8, 13, 30];

fn count(seeds: u64, check: impl Fn(usize, u64) -> bool) -> u64 {
    SIZES.iter().map(|&hosts| (0..seeds).filter(|seed| check(hosts, *seed)).count() as u64).sum()
}

#[test]
fn nothing_is_named_in_a_clean_mesh() {
    let wrong = count(100, |hosts, seed| !Fleet::new(hosts, seed).named(seed).is_empty());
    assert_eq!(wrong, 0, "of 400");
}

/// A CPU that sleeps or is busy: a third of all measurements takes three times as long, the rest is alike.
#[test]
fn nothing_is_named_where_times_come_in_two_kinds() {
    let wrong = count(50, |hosts, seed| {
        let mut fleet = Fleet::new(hosts, seed);
        fleet.parts.fill(0.0);
        fleet.links.fill(0.0);
        fleet.two_kinds = true;
        !fleet.named(seed).is_empty()
    });
    assert_eq!(wrong, 0, "of 200");
}

#[test]
fn slow_host_is_named_alone() {
    let right = count(50, |hosts, seed| {
        let mut fleet = Fleet::new(hosts, seed);
        let host = seed as usize % hosts;
        fleet.slow_host = Some((host, 2.0));
        fleet.named(seed) == BTreeSet::from([SuspectPlace::Host(host)])
    });
    assert!(right >= 195, "{right} of 200");
}

#[test]
fn slow_link_is_named_alone() {
    let right = count(50, |hosts, seed| {
        let mut fleet = Fleet::new(hosts, seed);
        fleet.slow_link = Some(((1, 4), 2.0));
        fleet.named(seed) == BTreeSet::from([SuspectPlace::Link(1, 4)])
    });
    assert!(right >= 195, "{right} of 200");
}

#[test]
fn lossy_link_is_named_alone() {
    let right = count(50, |hosts, seed| {
        let mut fleet = Fleet::new(hosts, seed);
        fleet.lossy_link = Some(((0, 3), 0.02));
        fleet.named(seed) == BTreeSet::from([SuspectPlace::Link(0, 3)])
    });
    assert!(right >= 195, "{right} of 200");
}

#[test]
fn lossy_host_is_named_in_place_of_its_links() {
    let right = count(50, |hosts, seed| {
        let mut fleet = Fleet::new(hosts, seed);
        fleet.lossy_host = Some((2, 0.02));
        fleet.named(seed) == BTreeSet::from([SuspectPlace::Host(2)])
    });
    assert!(right >= 195, "{right} of 200");
}

/// A machine that stumbles during the repeats only is no fault of a host.
#[test]
fn suspect_that_is_fast_again_is_not_named() {
    let hosts = 8;
    let mut fleet = Fleet::new(hosts, 1);
    fleet.slow_host = Some((3, 1.5));
    let mut table = MeshTable::new(hosts);
    for pair in rounds(hosts, None, 1, 0).into_iter().flatten() {
        let cell = fleet.measure(pair);
        table.record(pair, cell);
    }
    let found = suspects(std::slice::from_ref(&table));
    let suspect = found.iter().find(|of| of.place == SuspectPlace::Host(3)).expect("a suspect");
    fleet.slow_host = None;
    let pairs = confirming_pairs(suspect, &found, &table, &mut Random::new(1, 1));
    assert!(pairs.iter().all(|block| block.len() == 4), "the suspect and three controls");
    let blocks: Vec<Vec<(HostPair, PairCell)>> = pairs
        .into_iter()
        .map(|block| block.into_iter().map(|pair| (pair, fleet.measure(pair))).collect())
        .collect();
    assert!(!is_confirmed(suspect, &polish(&table), &blocks));
}

#[test]
fn pair_that_fails_in_every_repeat_is_a_suspect() {
    let mut fleet = Fleet::new(6, 2);
    let mut repeats = Vec::new();
    for repeat in 0..REPEATS {
        let mut table = MeshTable::new(6);
        for pair in rounds(6, None, 3, repeat).into_iter().flatten() {
            let mut cell = fleet.measure(pair);
            if pair == (2, 5) || pair == (5, 2) {
                cell = PairCell { why: Some("no answer".into()), ..PairCell::default() };
            }
            table.record(pair, cell);
        }
        repeats.push(table);
    }
    let places: Vec<SuspectPlace> =
        suspects(&repeats).iter().map(|suspect| suspect.place).collect();
    assert_eq!(places, [SuspectPlace::Link(2, 5)]);
}
