//! Hosts and links that stand out of a mesh in every repeat.

use std::collections::{BTreeMap, BTreeSet};

use model::Random;
use model::statistics::median;
use serde::{Deserialize, Serialize};

use super::polish::{Cell, Fit, Table, polish};
use super::rounds::{Pair, shuffled};

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
pub enum Place {
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
    pub place: Place,
    /// Its difference, the least of all repeats.
    pub sign: Sign,
    /// Logarithm of the ratio from which on it stands out.
    threshold: f64,
}

/// Finds what stands out in every repeat. Nothing does with fewer than four hosts, where a host and its
/// links cannot be told apart.
pub fn suspects(repeats: &[Table]) -> Vec<Suspect> {
    let hosts = repeats.first().map_or(0, |table| table.hosts);
    if hosts < 4 {
        return Vec::new();
    }
    let mut found = losing(repeats, hosts);
    let losing: BTreeSet<Place> = found.iter().map(|suspect| suspect.place).collect();
    let fits: Vec<Fit> = repeats.iter().map(polish).collect();
    found.extend(slow(&fits, hosts).into_iter().filter(|slow| !losing.contains(&slow.place)));
    found
}

/// Slow hosts, and slow links between hosts that are not.
fn slow(fits: &[Fit], hosts: usize) -> Vec<Suspect> {
    let part = |fit: &Fit, host: usize| fit.hosts[host];
    let of_hosts = noise(fits, |fit| fit.hosts.iter().copied().enumerate().collect());
    let of_links = noise(fits, |fit| fit.rests.iter().map(|(pair, rest)| (*pair, *rest)).collect());
    let of_host = |host: usize| {
        stands_out(fits, |fit| {
            Some((part(fit, host), threshold(fit.hosts.iter().copied()).max(of_hosts)))
        })
        .map(|(excess, threshold)| suspect(Place::Host(host), excess, threshold))
    };
    let mut found: Vec<Suspect> = (0..hosts).filter_map(of_host).collect();
    let is_plain = |host: usize| !found.iter().any(|suspect| suspect.place == Place::Host(host));
    let links: BTreeSet<(usize, usize)> =
        fits.iter().flat_map(|fit| fit.rests.keys().copied()).collect();
    let of_link = |(a, b): (usize, usize)| {
        stands_out(fits, |fit| {
            Some((*fit.rests.get(&(a, b))?, threshold(fit.rests.values().copied()).max(of_links)))
        })
        .map(|(excess, threshold)| suspect(Place::Link(a, b), excess, threshold))
    };
    let slow: Vec<Suspect> = links
        .into_iter()
        .filter(|(a, b)| is_plain(*a) && is_plain(*b))
        .filter_map(of_link)
        .collect();
    found.extend(slow);
    found
}

fn suspect(place: Place, excess: f64, threshold: f64) -> Suspect {
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
fn losing(repeats: &[Table], hosts: usize) -> Vec<Suspect> {
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
    let touches = |pair: &(usize, usize), host: usize| pair.0 == host || pair.1 == host;
    let links_of = |host: usize| repeats[0].cells.keys().filter(|pair| touches(pair, host)).count();
    let loses =
        |place: Place, share: f64| Suspect { place, sign: Sign::Loses(share), threshold: 0.0 };
    let of_host = |host: usize| {
        let own: Vec<f64> = always
            .iter()
            .filter(|(pair, _)| touches(pair, host))
            .map(|(_, share)| *share)
            .collect();
        let is_most = own.len() >= 2 && 2 * own.len() > links_of(host);
        is_most.then(|| loses(Place::Host(host), own.iter().copied().fold(1.0, f64::min)))
    };
    let mut found: Vec<Suspect> = (0..hosts).filter_map(of_host).collect();
    let bad: Vec<Place> = found.iter().map(|suspect| suspect.place).collect();
    let is_explained = |host: usize| bad.contains(&Place::Host(host));
    found.extend(
        always
            .iter()
            .filter(|((a, b), _)| !is_explained(*a) && !is_explained(*b))
            .map(|(&(a, b), share)| loses(Place::Link(a, b), *share)),
    );
    found
}

/// Links that failed, or lost more than links of other hosts make likely, with the share that they lost.
fn losing_links(table: &Table) -> BTreeMap<(usize, usize), f64> {
    let cells = &table.cells;
    // Links of other hosts: what all lost without what the two hosts of a link did.
    let add = |sum: (u64, u64), cell: &Cell| (sum.0 + cell.sent, sum.1 + cell.lost);
    let total = cells.values().fold((0, 0), add);
    let mut of_host = vec![(0, 0); table.hosts];
    for (&(a, b), cell) in cells {
        of_host[a] = add(of_host[a], cell);
        of_host[b] = add(of_host[b], cell);
    }
    let is_losing = |&(&(a, b), cell): &(&(usize, usize), &Cell)| {
        if cell.why.is_some() {
            return true;
        }
        let sent = total.0 + cell.sent - of_host[a].0 - of_host[b].0;
        let lost = total.1 + cell.lost - of_host[a].1 - of_host[b].1;
        // One more than was seen: a mesh without any loss has no rate of 0.
        let rate = (lost + 1) as f64 / sent.max(1) as f64;
        let chance = poisson_tail(cell.lost, rate * cell.sent as f64);
        chance * (cells.len() as f64) < LOSS_CHANCE
    };
    let share = |cell: &Cell| match cell.why {
        Some(_) => 1.0,
        None => cell.lost as f64 / cell.sent.max(1) as f64,
    };
    cells.iter().filter(is_losing).map(|(pair, cell)| (*pair, share(cell))).collect()
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
    table: &Table,
    random: &mut Random,
) -> Vec<Vec<Pair>> {
    let is_suspect = |(a, b): (usize, usize)| {
        all.iter().any(|suspect| match suspect.place {
            Place::Host(host) => host == a || host == b,
            Place::Link(c, d) => (a, b) == (c, d),
        })
    };
    let pairs: Vec<(usize, usize)> = table.cells.keys().copied().collect();
    let plain: Vec<(usize, usize)> =
        pairs.iter().copied().filter(|pair| !is_suspect(*pair)).collect();
    let own: Vec<(usize, usize)> = match of.place {
        Place::Link(a, b) => vec![(a, b)],
        Place::Host(host) => {
            let alone = |pair: (usize, usize)| {
                let others = all.iter().filter(|other| other.place != of.place);
                !others.into_iter().any(|other| touches_place(other.place, pair))
            };
            pairs.into_iter().filter(|p| (p.0 == host || p.1 == host) && alone(*p)).collect()
        }
    };
    if own.is_empty() || plain.is_empty() {
        return Vec::new();
    }
    let mut pick = |from: &[(usize, usize)], count: usize| -> Vec<Pair> {
        let order = shuffled((0..from.len()).collect(), random);
        order.into_iter().take(count).map(|at| from[at]).collect()
    };
    (0..CONFIRMING_BLOCKS).map(|_| [pick(&own, 1), pick(&plain, CONTROLS)].concat()).collect()
}

fn touches_place(place: Place, (a, b): (usize, usize)) -> bool {
    match place {
        Place::Host(host) => host == a || host == b,
        Place::Link(c, d) => (a, b) == (c, d),
    }
}

/// True if a suspect stands out of the controls in every block that was measured again.
///
/// - `blocks`: the cells of [`confirming_pairs`], the suspect's first.
/// - `fit`: that of the last repeat; of it only the parts of hosts that are not the suspect are used.
pub fn is_confirmed(suspect: &Suspect, fit: &Fit, blocks: &[Vec<(Pair, Cell)>]) -> bool {
    !blocks.is_empty() && blocks.iter().all(|block| stands_out_again(suspect, fit, block))
}

fn stands_out_again(suspect: &Suspect, fit: &Fit, block: &[(Pair, Cell)]) -> bool {
    let Some(((pair, cell), controls)) = block.split_first() else { return false };
    let rate = |cell: &Cell| match cell.why {
        Some(_) => 1.0,
        None => cell.lost as f64 / cell.sent.max(1) as f64,
    };
    if let Sign::Loses(_) = suspect.sign {
        let worst = controls.iter().map(|(_, cell)| rate(cell)).fold(0.0, f64::max);
        return rate(cell) > worst;
    }
    let mut others = fit.clone();
    if let Place::Host(host) = suspect.place {
        others.hosts[host] = 0.0;
    }
    let excess = |(pair, cell): (&Pair, &Cell)| Some(others.excess(*pair, cell.rtt_ns?));
    let controls: Vec<f64> =
        controls.iter().filter_map(|(pair, cell)| excess((pair, cell))).collect();
    match (excess((pair, cell)), median(&controls)) {
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
        let mut table = Table::new(3);
        for (pair, rtt) in [((0, 1), 1e3), ((0, 2), 1e6), ((1, 2), 1e6)] {
            table.record(pair, Cell { rtt_ns: Some(rtt), sent: 10, ..Cell::default() });
        }
        assert!(suspects(&[table.clone(), table]).is_empty());
    }
}
