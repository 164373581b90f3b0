//! Times of pairs as a level, a part of each host and a rest of each link.

use std::collections::BTreeMap;

use model::statistics::median;
use remote::work::PairCell;

/// One repeat of a mesh: measurements by pair, the smaller place first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MeshTable {
    /// Number of hosts.
    pub hosts: usize,
    /// Measured pairs, failed ones included.
    pub cells: BTreeMap<(usize, usize), PairCell>,
}

impl MeshTable {
    /// A table without measurements.
    pub fn new(hosts: usize) -> Self {
        MeshTable { hosts, cells: BTreeMap::new() }
    }

    /// Records a pair in any order.
    pub fn record(&mut self, (a, b): (usize, usize), cell: PairCell) {
        self.cells.insert((a.min(b), a.max(b)), cell);
    }

    /// Logarithms of the round trips that were measured.
    fn logs(&self) -> BTreeMap<(usize, usize), f64> {
        let rtts = self.cells.iter().filter_map(|(pair, cell)| Some((*pair, cell.rtt_ns?)));
        rtts.filter(|(_, rtt_ns)| *rtt_ns > 0.0).map(|(pair, rtt_ns)| (pair, rtt_ns.ln())).collect()
    }
}

/// log(rtt) of a pair = level + part of one host + part of the other + rest.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// Typical logarithm of a round trip in nanoseconds.
    pub level: f64,
    /// Part of each host; 0 for a host without a measurement. Their median is 0.
    pub hosts: Vec<f64>,
    /// Rest of each measured pair.
    pub rests: BTreeMap<(usize, usize), f64>,
}

/// Number of sweeps; a table of 200 hosts moves by less than 1e-9 after some ten.
const SWEEPS: usize = 60;

/// Fits a table by median polish, so that one bad host or link moves no other's part.
///
/// Source: Tukey 1977, Exploratory Data Analysis, chapter 11.
pub fn polish(table: &MeshTable) -> Fit {
    let (pairs, mut rests): (Vec<(usize, usize)>, Vec<f64>) = table.logs().into_iter().unzip();
    let mut of_host = vec![Vec::new(); table.hosts];
    for (at, &(a, b)) in pairs.iter().enumerate() {
        of_host[a].push(at);
        of_host[b].push(at);
    }
    let mut level = median(&rests).unwrap_or(0.0);
    rests.iter_mut().for_each(|rest| *rest -= level);
    let mut hosts = vec![0.0; table.hosts];
    for _ in 0..SWEEPS {
        let parts = hosts.iter_mut().zip(&of_host);
        let moved = parts.map(|(part, own)| sweep(part, own, &mut rests));
        if moved.fold(0.0, f64::max) < 1e-9 {
            break;
        }
    }
    let shift = median(&hosts).unwrap_or(0.0);
    hosts.iter_mut().for_each(|part| *part -= shift);
    level += 2.0 * shift;
    Fit { level, hosts, rests: pairs.into_iter().zip(rests).collect() }
}

/// Moves the median of a host's rests into its part; returns its size.
///
/// - `own`: places of the host's pairs among the rests.
fn sweep(part: &mut f64, own: &[usize], rests: &mut [f64]) -> f64 {
    let values: Vec<f64> = own.iter().map(|at| rests[*at]).collect();
    let Some(middle) = median(&values) else { return 0.0 };
    *part += middle;
    own.iter().for_each(|at| rests[*at] -= middle);
    middle.abs()
}

impl Fit {
    /// Logarithm of a pair's time over that which level and both hosts make likely.
    pub fn excess(&self, (a, b): (usize, usize), rtt_ns: f64) -> f64 {
        rtt_ns.ln() - self.level - self.hosts[a] - self.hosts[b]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(hosts: usize, log: impl Fn(usize, usize) -> f64) -> MeshTable {
        let mut table = MeshTable::new(hosts);
        for a in 0..hosts {
            for b in a + 1..hosts {
                let cell =
                    PairCell { rtt_ns: Some(log(a, b).exp()), sent: 100, ..PairCell::default() };
                table.record((b, a), cell);
            }
        }
        table
    }

    #[test]
    fn additive_table_is_taken_apart_exactly() {
        let parts = [0.0, 0.1, -0.2, 0.05, -0.1, 0.9, 0.0];
        let fit = polish(&table(7, |a, b| 10.0 + parts[a] + parts[b]));
        for (found, expected) in fit.hosts.iter().zip(parts) {
            assert!((found - expected).abs() < 1e-6, "{fit:?}");
        }
        assert!((fit.level - 10.0).abs() < 1e-6);
        assert!(fit.rests.values().all(|rest| rest.abs() < 1e-6));
        assert!((fit.excess((1, 5), 12f64.exp()) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn bad_link_stays_in_its_own_rest() {
        let fit = polish(&table(8, |a, b| if (a, b) == (2, 5) { 12.0 } else { 10.0 }));
        assert!((fit.rests[&(2, 5)] - 2.0).abs() < 1e-6);
        assert!(fit.hosts.iter().all(|part| part.abs() < 1e-6));
    }

    #[test]
    fn empty_table_has_a_fit() {
        let mut failed = MeshTable::new(3);
        failed.record((0, 1), PairCell { sent: 10, lost: 10, ..PairCell::default() });
        assert_eq!(polish(&failed).hosts, [0.0; 3]);
        assert!(polish(&MeshTable::new(0)).hosts.is_empty());
    }
}
