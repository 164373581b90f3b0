//! Hosts and links that stand out of a mesh in every repeat.

use std::collections::{BTreeMap, BTreeSet};

use model::Random;
use model::statistics::median;
use remote::work::PairCell;
use serde::{Deserialize, Serialize};

use super::polish::{Fit, MeshTable, polish};
use super::rounds::{HostPair, shuffled};

/// Deviations from which on a host or link stands out.
const DEVIATIONS: f64 = 5.0;
/// Ratio below which nothing stands out, however narrow the rest is.
const RATIO_MIN: f64 = 1.10;
/// Median absolute deviation of a normal distribution, as a share of its standard deviation; without it three
/// of 800 simulated meshes had a false name.
const OF_DEVIATION: f64 = 0.6745;

/// Chance of one false suspect by loss in a repeat.
const LOSS_CHANCE: f64 = 0.01;

/// Pairs of other hosts that are measured beside a suspect.
const CONTROLS: usize = 3;

/// Times that each suspect is measured again.
pub const CONFIRMING_BLOCKS: usize = 3;

/// A host or the link between two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SuspectPlace {
    /// A host by its place in the list.
    Host(usize),
    /// A link, the smaller place first.
    Link(usize, usize),
}

/// Difference from the rest of the mesh.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Sign {
    /// Round trips take longer: so many times as long as the rest of the mesh makes likely.
    Slow(f64),
    /// Loses this share of datagrams, or fails.
    Loses(f64),
}

/// A host or link that stood out in every repeat.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Suspect {
    /// The host or link.
    pub place: SuspectPlace,
    /// Its difference, the least of all repeats.
    pub sign: Sign,
    /// Logarithm of the ratio from which on it stands out.
    threshold: f64,
}

/// Finds what stands out in every repeat. Nothing does with fewer than four hosts, where a host and its
/// links cannot be told apart.
pub fn suspects(repeats: &[MeshTable]) -> Vec<Suspect> {
    let hosts = repeats.first().map_or(0, |table| table.hosts);
    if hosts < 4 {
        return Vec::new();
    }
    let mut found = losing(repeats, hosts);
    let losing: BTreeSet<SuspectPlace> = found.iter().map(|suspect| suspect.place).collect();
    let fits: Vec<Fit> = repeats.iter().map(polish).collect();
    found.extend(slow(&fits, hosts).into_iter().filter(|slow| !losing.contains(&slow.place)));
    found
}

/// Slow hosts, and slow links between hosts that are not.
fn slow(fits: &[Fit], hosts: usize) -> Vec<Suspect> {
    let host_noise = noise(fits, |fit| fit.hosts.iter().copied().enumerate().collect());
    let link_noise =
        noise(fits, |fit| fit.rests.iter().map(|(pair, rest)| (*pair, *rest)).collect());
    let mut found = Vec::new();
    let mut slow_hosts = BTreeSet::new();
    for host in 0..hosts {
        let excess = stands_out(fits, |fit| {
            Some((fit.hosts[host], threshold(fit.hosts.iter().copied()).max(host_noise)))
        });
        if let Some((excess, threshold)) = excess {
            slow_hosts.insert(host);
            found.push(suspect(SuspectPlace::Host(host), excess, threshold));
        }
    }
    let mut links: BTreeSet<(usize, usize)> =
        fits.iter().flat_map(|fit| fit.rests.keys().copied()).collect();
    links.retain(|(a, b)| !slow_hosts.contains(a) && !slow_hosts.contains(b));
    for (a, b) in links {
        let excess = stands_out(fits, |fit| {
            Some((*fit.rests.get(&(a, b))?, threshold(fit.rests.values().copied()).max(link_noise)))
        });
        let slow =
            excess.map(|(excess, threshold)| suspect(SuspectPlace::Link(a, b), excess, threshold));
        found.extend(slow);
    }
    found
}

fn suspect(place: SuspectPlace, excess: f64, threshold: f64) -> Suspect {
    Suspect { place, sign: Sign::Slow(excess.exp()), threshold }
}

/// Least excess and largest threshold over all repeats; `None` unless it is beyond in each of them.
fn stands_out(fits: &[Fit], of: impl Fn(&Fit) -> Option<(f64, f64)>) -> Option<(f64, f64)> {
    let all: Option<Vec<(f64, f64)>> = fits.iter().map(of).collect();
    let all = all.filter(|all| !all.is_empty() && all.iter().all(|(value, beyond)| value > beyond));
    all?.into_iter().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// Change from one repeat to the next that 95 % of the hosts or links stay below: times that come in two
/// kinds, such as those of a woken and of a busy CPU, have no deviation in most pairs and are no finding.
fn noise<K: Ord>(fits: &[Fit], of: impl Fn(&Fit) -> BTreeMap<K, f64>) -> f64 {
    let mut changes: Vec<f64> = Vec::new();
    for two in fits.windows(2) {
        let (before, now) = (of(&two[0]), of(&two[1]));
        changes.extend(before.iter().filter_map(|(k, v)| Some((now.get(k)? - v).abs())));
    }
    changes.sort_by(f64::total_cmp);
    let at = (changes.len() as f64 * 0.95).ceil() as usize;
    at.checked_sub(1).and_then(|at| changes.get(at).copied()).unwrap_or(0.0)
}

/// Distance from 0 that stands out among these values, whose median is 0; at least the margin up to which
/// a difference does not matter, because quiet hosts may agree to a thousandth.
fn threshold(values: impl Iterator<Item = f64>) -> f64 {
    let distances: Vec<f64> = values.map(f64::abs).collect();
    (DEVIATIONS / OF_DEVIATION * median(&distances).unwrap_or(0.0)).max(RATIO_MIN.ln())
}

/// Links that lose or fail in every repeat; a host in their place if most of its links do.
fn losing(repeats: &[MeshTable], hosts: usize) -> Vec<Suspect> {
    let each: Vec<BTreeMap<(usize, usize), f64>> = repeats.iter().map(losing_links).collect();
    let Some((first, others)) = each.split_first() else { return Vec::new() };
    let always: BTreeMap<(usize, usize), f64> = first
        .iter()
        .filter_map(|(pair, share)| {
            let shares = others.iter().map(|of| of.get(pair).copied());
            Some((*pair, shares.chain([Some(*share)]).collect::<Option<Vec<f64>>>()?))
        })
        .map(|(pair, shares)| (pair, shares.into_iter().fold(1.0, f64::min)))
        .collect();
    let mut found = Vec::new();
    let mut losing_hosts = BTreeSet::new();
    for host in 0..hosts {
        let place = SuspectPlace::Host(host);
        let losses = always.iter().filter(|(pair, _)| touches_place(place, **pair));
        let own: Vec<f64> = losses.map(|(_, share)| *share).collect();
        let links = repeats[0].cells.keys().filter(|pair| touches_place(place, **pair)).count();
        if own.len() >= 2 && 2 * own.len() > links {
            losing_hosts.insert(host);
            found.push(loser(place, own.into_iter().fold(1.0, f64::min)));
        }
    }
    for ((a, b), share) in always {
        if !losing_hosts.contains(&a) && !losing_hosts.contains(&b) {
            found.push(loser(SuspectPlace::Link(a, b), share));
        }
    }
    found
}

fn loser(place: SuspectPlace, share: f64) -> Suspect {
    Suspect { place, sign: Sign::Loses(share), threshold: 0.0 }
}

/// Links that failed, or lost more than links of other hosts make likely, with the share that they lost.
fn losing_links(table: &MeshTable) -> BTreeMap<(usize, usize), f64> {
    let cells = &table.cells;
    // Links of other hosts: what all lost without what the two hosts of a link did.
    let mut total = (0, 0);
    let mut hosts = vec![(0, 0); table.hosts];
    for (&(a, b), cell) in cells {
        total = (total.0 + cell.sent, total.1 + cell.lost);
        for host in [a, b] {
            hosts[host] = (hosts[host].0 + cell.sent, hosts[host].1 + cell.lost);
        }
    }
    let mut losing = BTreeMap::new();
    for (&(a, b), cell) in cells {
        let sent = total.0 + cell.sent - hosts[a].0 - hosts[b].0;
        let lost = total.1 + cell.lost - hosts[a].1 - hosts[b].1;
        // One more than was seen: a mesh without any loss has no rate of 0.
        let rate = (lost + 1) as f64 / sent.max(1) as f64;
        let chance = poisson_tail(cell.lost, rate * cell.sent as f64);
        if cell.why.is_some() || chance * (cells.len() as f64) < LOSS_CHANCE {
            losing.insert((a, b), lost_share(cell));
        }
    }
    losing
}

/// Share of a pair's datagrams that was lost; all of them if its measurement failed.
fn lost_share(cell: &PairCell) -> f64 {
    match cell.why {
        Some(_) => 1.0,
        None => cell.lost as f64 / cell.sent.max(1) as f64,
    }
}

/// Probability of `count` events or more if `mean` are expected.
fn poisson_tail(count: u64, mean: f64) -> f64 {
    let mut term = (-mean).exp();
    let mut below = 0.0;
    for at in 0..count {
        below += term;
        term *= mean / (at + 1) as f64;
        if term < 1e-300 && at as f64 > mean {
            break;
        }
    }
    (1.0 - below).max(0.0)
}

/// Pairs to measure again for one suspect: its own between those of other hosts, in order.
///
/// - `all`: suspects, whose hosts are no controls.
pub fn confirming_pairs(
    of: &Suspect,
    all: &[Suspect],
    table: &MeshTable,
    random: &mut Random,
) -> Vec<Vec<HostPair>> {
    let (mut own, mut plain) = (Vec::new(), Vec::new());
    if let SuspectPlace::Link(a, b) = of.place {
        own.push((a, b));
    }
    for pair in table.cells.keys().copied() {
        let touching: Vec<SuspectPlace> = all
            .iter()
            .map(|suspect| suspect.place)
            .filter(|place| touches_place(*place, pair))
            .collect();
        if touching.is_empty() {
            plain.push(pair);
        } else if matches!(of.place, SuspectPlace::Host(_)) && touching == [of.place] {
            own.push(pair);
        }
    }
    if own.is_empty() || plain.is_empty() {
        return Vec::new();
    }
    let mut blocks = Vec::new();
    for _ in 0..CONFIRMING_BLOCKS {
        let suspect = drawn(&own, 1, random);
        blocks.push([suspect, drawn(&plain, CONTROLS, random)].concat());
    }
    blocks
}

/// Draws pairs at random.
fn drawn(pairs: &[HostPair], count: usize, random: &mut Random) -> Vec<HostPair> {
    let order = shuffled((0..pairs.len()).collect(), random);
    order.into_iter().take(count).map(|at| pairs[at]).collect()
}

fn touches_place(place: SuspectPlace, (a, b): (usize, usize)) -> bool {
    match place {
        SuspectPlace::Host(host) => host == a || host == b,
        SuspectPlace::Link(c, d) => (a, b) == (c, d),
    }
}

/// True if a suspect stands out of the controls in every block that was measured again.
///
/// - `blocks`: the cells of [`confirming_pairs`], the suspect's first.
/// - `fit`: that of the last repeat; of it only the parts of hosts that are not the suspect are used.
pub fn is_confirmed(suspect: &Suspect, fit: &Fit, blocks: &[Vec<(HostPair, PairCell)>]) -> bool {
    !blocks.is_empty() && blocks.iter().all(|block| stands_out_again(suspect, fit, block))
}

fn stands_out_again(suspect: &Suspect, fit: &Fit, block: &[(HostPair, PairCell)]) -> bool {
    let Some(((pair, cell), controls)) = block.split_first() else { return false };
    if let Sign::Loses(_) = suspect.sign {
        let worst = controls.iter().map(|(_, cell)| lost_share(cell)).fold(0.0, f64::max);
        return lost_share(cell) > worst;
    }
    let mut others = fit.clone();
    if let SuspectPlace::Host(host) = suspect.place {
        others.hosts[host] = 0.0;
    }
    let controls: Vec<f64> = controls
        .iter()
        .filter_map(|(pair, cell)| Some(others.excess(*pair, cell.rtt_ns?)))
        .collect();
    let own = cell.rtt_ns.map(|rtt_ns| others.excess(*pair, rtt_ns));
    match (own, median(&controls)) {
        (Some(own), Some(level)) => own - level > suspect.threshold,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_tail_is_that_of_scipy() {
        // scipy.stats.poisson.sf(count - 1, mean)
        for (count, mean, expected) in
            [(0, 2.0, 1.0), (1, 0.5, 0.3934693402873666), (5, 2.0, 0.052653017343711125)]
        {
            assert!((poisson_tail(count, mean) - expected).abs() < 1e-12, "{count}");
        }
        assert!(poisson_tail(1_000_000, 3.0) < 1e-9);
    }

    #[test]
    fn three_hosts_have_no_suspects() {
        let mut table = MeshTable::new(3);
        for (pair, rtt) in [((0, 1), 1e3), ((0, 2), 1e6), ((1, 2), 1e6)] {
            table.record(pair, PairCell { rtt_ns: Some(rtt), sent: 10, ..PairCell::default() });
        }
        assert!(suspects(&[table.clone(), table]).is_empty());
    }
}
