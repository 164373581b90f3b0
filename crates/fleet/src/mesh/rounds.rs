//! Which pairs of hosts measure in which round.

use model::Random;

/// Two hosts by their places in the list; the first one sends.
pub type HostPair = (usize, usize);

/// Hosts above which a plan measures a part of the pairs, unless asked for all.
pub const ALL_PAIRS_MAX: usize = 200;

/// Peers of each host in a plan of a part of the pairs.
pub const DEGREE: usize = 12;

/// All pairs in rounds, by the circle method: each pair once, and no host twice in a round. With an odd
/// number of hosts one rests in each round.
///
/// Source: Kirkman 1847, Cambridge and Dublin Mathematical Journal 2, 191-204.
pub fn circle(hosts: usize) -> Vec<Vec<HostPair>> {
    if hosts < 2 {
        return Vec::new();
    }
    // A host that does not exist rests with its partner.
    let seats = hosts + hosts % 2;
    let turning = seats - 1;
    let mut rounds = Vec::new();
    for at in 0..turning {
        let fixed = (at, seats - 1);
        let others =
            (1..seats / 2).map(|step| ((at + step) % turning, (at + turning - step) % turning));
        let pairs = std::iter::once(fixed).chain(others);
        rounds.push(pairs.filter(|(a, b)| *a < hosts && *b < hosts).collect());
    }
    rounds
}

/// Rounds of one repeat of a mesh.
///
/// - `degree`: number of peers that each host measures with; `None` for all up to [`ALL_PAIRS_MAX`] hosts,
///   and for [`DEGREE`] above. With an odd number of hosts, those that rest in a round have one less.
/// - `seed`: shuffles the hosts and chooses the rounds.
/// - `repeat`: number of the repeat; the direction of a pair alternates.
pub fn rounds(hosts: usize, degree: Option<usize>, seed: u64, repeat: u64) -> Vec<Vec<HostPair>> {
    let mut random = Random::new(seed, 0);
    let seats = shuffled((0..hosts).collect(), &mut random);
    let all = circle(hosts);
    let default = if hosts > ALL_PAIRS_MAX { DEGREE } else { all.len() };
    let mut chosen: Vec<usize> = (0..all.len()).collect();
    if degree.unwrap_or(default) < all.len() {
        // Two neighbouring rounds form one path through all hosts: no part of the fleet is cut off.
        let rest = shuffled(chosen.split_off(2.min(all.len())), &mut random);
        chosen.extend(rest);
        chosen.truncate(degree.unwrap_or(default));
    }
    let mut rounds = Vec::new();
    for round in shuffled(chosen, &mut Random::new(seed, 1 + repeat)) {
        let is_turned = !(round as u64 + repeat).is_multiple_of(2);
        let pairs = all[round].iter().map(|(a, b)| {
            let (a, b) = (seats[*a], seats[*b]);
            if is_turned { (b, a) } else { (a, b) }
        });
        rounds.push(pairs.collect());
    }
    rounds
}

/// Shuffles by Fisher and Yates.
pub(crate) fn shuffled(mut items: Vec<usize>, random: &mut Random) -> Vec<usize> {
    for at in (1..items.len()).rev() {
        items.swap(at, random.below(at as u64 + 1) as usize);
    }
    items
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn check_rounds(rounds: &[Vec<HostPair>]) -> BTreeMap<HostPair, usize> {
        let mut seen = BTreeMap::new();
        for round in rounds {
            let mut busy = BTreeSet::new();
            for &(a, b) in round {
                assert!(a != b && busy.insert(a) && busy.insert(b), "twice in a round: {round:?}");
                *seen.entry((a.min(b), a.max(b))).or_insert(0) += 1;
            }
        }
        seen
    }

    #[test]
    fn every_pair_measures_once_and_no_host_twice_in_a_round() {
        for hosts in 2..=200 {
            let rounds = circle(hosts);
            assert_eq!(rounds.len(), hosts - 1 + hosts % 2, "{hosts} hosts");
            assert!(rounds.iter().all(|round| round.len() == hosts / 2), "{hosts} hosts");
            let seen = check_rounds(&rounds);
            assert_eq!(seen.len(), hosts * (hosts - 1) / 2);
            assert!(seen.values().all(|count| *count == 1));
        }
        assert!(circle(0).is_empty() && circle(1).is_empty());
    }

    #[test]
    fn direction_of_a_pair_alternates_from_repeat_to_repeat() {
        let directions = |repeat| -> BTreeSet<HostPair> {
            rounds(9, None, 7, repeat).into_iter().flatten().collect()
        };
        let turned = directions(0).into_iter().map(|(a, b)| (b, a)).collect::<BTreeSet<HostPair>>();
        assert_eq!(turned, directions(1));
        assert_eq!(directions(0), directions(2));
    }

    /// Number of hosts that are reached from the first.
    fn reached(hosts: usize, rounds: &[Vec<HostPair>]) -> usize {
        let mut found = BTreeSet::from([0]);
        for _ in 0..hosts {
            for &(a, b) in rounds.iter().flatten() {
                if found.contains(&a) || found.contains(&b) {
                    found.extend([a, b]);
                }
            }
        }
        found.len()
    }

    proptest! {
        #[test]
        fn every_host_has_so_many_peers_and_reaches_all(
            hosts in 4usize..120, degree in 2usize..14, seed: u64, repeat in 0u64..4,
        ) {
            let rounds = rounds(hosts, Some(degree), seed, repeat);
            let seen = check_rounds(&rounds);
            prop_assert!(seen.values().all(|count| *count == 1));
            let full = hosts - 1 + hosts % 2;
            prop_assert_eq!(rounds.len(), degree.min(full));
            for host in 0..hosts {
                let peers = seen.keys().filter(|(a, b)| *a == host || *b == host).count();
                prop_assert!(peers + hosts % 2 >= rounds.len() && peers <= rounds.len());
            }
            if hosts % 2 == 0 {
                prop_assert_eq!(reached(hosts, &rounds), hosts);
            }
        }
    }

    #[test]
    fn large_fleets_measure_a_part_of_the_pairs() {
        assert_eq!(rounds(ALL_PAIRS_MAX, None, 1, 0).len(), ALL_PAIRS_MAX - 1);
        assert_eq!(rounds(1000, None, 1, 0).len(), DEGREE);
        assert_eq!(rounds(1000, Some(3), 1, 0).len(), 3);
    }
}
