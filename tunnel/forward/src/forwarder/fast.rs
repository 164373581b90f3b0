//! The maps of the XDP fast path, kept equal to the rules and the forwarding table.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ports::{
    FAST_ECN_DROP, FAST_ECN_ODD, FAST_TUNNELS_MAX, FastHeader, FastPath, FastRules, FastStation,
    TunnelCarrier, fast_station_fields, fast_station_key,
};
use io::IoError;
use wire::ecn::{self, Ecn};

use super::Rules;
use crate::domain::{Domains, Members};
use crate::fdb::{Fdb, FdbPort};
use crate::spec::Tunnel;

/// State of the fast path that the table's lock protects.
#[derive(Debug)]
pub(super) struct FastTable {
    pub(super) path: Arc<FastPath>,
    /// Numbers of the tunnels, which outlive a reload: stations refer to them.
    numbers: BTreeMap<Tunnel, u32>,
    /// By number: the header as last written.
    headers: Vec<Option<FastHeader>>,
    /// By the tunnel's index in the rules.
    by_index: Vec<Option<u32>>,
    /// Only tunnel of each network that has no other, as last written.
    sole: BTreeMap<u16, u32>,
    rules: Option<FastRules>,
    /// Frames wait for a shaper or for classes, which only the slow path has.
    pub(super) is_shaped: bool,
    /// Entries that the maps did not take; their frames take the slow path.
    pub(super) refused_count: u64,
}

impl FastTable {
    pub(super) fn new(path: Arc<FastPath>, is_shaped: bool) -> Self {
        FastTable {
            path,
            numbers: BTreeMap::new(),
            headers: Vec::new(),
            by_index: Vec::new(),
            sole: BTreeMap::new(),
            rules: None,
            is_shaped,
            refused_count: 0,
        }
    }

    /// Makes the maps follow new rules. Call [`FastPath::wait_for_readers`] before the next call.
    pub(super) fn apply(&mut self, rules: &Rules, fdb: &mut Fdb, now_ns: u64) {
        let tunnels = &rules.decap.spec().tunnels;
        let gone: Vec<Tunnel> =
            self.numbers.keys().filter(|known| !tunnels.contains(known)).copied().collect();
        for tunnel in &gone {
            self.path.remove_tunnel([tunnel.remote, tunnel.local], tunnel.carrier.into());
            let is_shared = tunnels
                .iter()
                .any(|other| (other.local, other.carrier) == (tunnel.local, tunnel.carrier));
            if !is_shared {
                self.path.remove_segment(tunnel.local, tunnel.carrier.into());
            }
        }
        self.by_index.clear();
        for (tunnel, encap) in tunnels.iter().zip(&rules.encaps) {
            let carrier: TunnelCarrier = tunnel.carrier.into();
            let mut written = self.path.add_segment(tunnel.local, carrier);
            let number = self.number(tunnel);
            self.by_index.push(number);
            if let Some(number) = number {
                let header = encap.fast_header();
                if self.headers[number as usize] != header {
                    written = written.and(self.path.set_header(number, header.as_ref()));
                    self.headers[number as usize] = header;
                }
                let ends = [tunnel.remote, tunnel.local];
                written = written.and(self.path.add_tunnel(ends, carrier, number));
            }
            self.refused_count += u64::from(written.is_err());
        }
        self.separate(&rules.domains);
        let was_on = self.rules.is_some_and(|rules| rules.is_on[0]);
        let fast = FastRules {
            ageing_ns: fdb.ageing_ns(),
            learns: rules.learns,
            has_vlans: rules.domains.has_vlans(),
            is_on: [!self.is_shaped, true],
        };
        if !was_on {
            // Nothing overtakes the frames that wait for the shaper.
            self.enter_all(fdb, now_ns, true);
        }
        self.path.set_rules(&fast);
        self.rules = Some(fast);
        self.enter_all(fdb, now_ns, false);
        for tunnel in gone {
            self.numbers.remove(&tunnel);
        }
    }

    /// Makes the broadcast domains those of the rules. Programs read these words for every frame, so
    /// only those that changed are written.
    fn separate(&mut self, domains: &Domains) {
        for (index, number) in self.by_index.iter().enumerate() {
            if let Some(number) = number {
                self.path.set_network(*number, domains.tunnel_network(index));
            }
        }
        let sole = sole_tunnels(domains, &self.by_index);
        for (network, tunnel) in changes(&self.sole, &sole) {
            self.path.set_sole_tunnel(network, tunnel);
        }
        self.sole = sole;
    }

    /// Number of a tunnel; `None` if there are too many.
    fn number(&mut self, tunnel: &Tunnel) -> Option<u32> {
        if let Some(number) = self.numbers.get(tunnel) {
            return Some(*number);
        }
        let mut numbers = 0..FAST_TUNNELS_MAX as u32;
        let number = numbers.find(|free| !self.numbers.values().any(|used| used == free))?;
        self.numbers.insert(*tunnel, number);
        if self.headers.len() <= number as usize {
            self.headers.resize(number as usize + 1, None);
        }
        Some(number)
    }

    /// Enters a station that was learnt or has moved.
    pub(super) fn learnt(&mut self, network: u16, mac: [u8; 6], port: FdbPort, now_ns: u64) {
        self.enter(fast_station_key(network, mac), port, false, now_ns);
    }

    /// Removes a station that made room for another.
    pub(super) fn forgotten(&self, network: u16, mac: [u8; 6]) {
        self.path.remove_station(fast_station_key(network, mac));
    }

    fn enter(&mut self, key: u64, port: FdbPort, is_static: bool, now_ns: u64) {
        match self.station_tunnel(port) {
            Some(tunnel) => {
                let station = FastStation { seen_ns: now_ns, tunnel, is_static };
                let entered = self.path.set_station(key, &station, now_ns);
                self.refused_count += u64::from(entered.is_err());
            }
            None => self.path.remove_station(key),
        }
    }

    /// `Some(None)` for the port, `None` for a tunnel that the fast path does not serve.
    fn station_tunnel(&self, port: FdbPort) -> Option<Option<u32>> {
        match port {
            FdbPort::Local(_) => Some(None),
            FdbPort::Tunnel(index) => self.by_index.get(usize::from(index)).copied()?.map(Some),
        }
    }

    /// Largest packet that the programs have sent since the last call, by the tunnel's index in the rules.
    pub(super) fn take_sent_bytes_max(&self, index: usize) -> u32 {
        let number = self.by_index.get(index).copied().flatten();
        number.map_or(0, |number| self.path.take_sent_bytes_max(number))
    }

    /// Brings the times of the last frames into the table, and removes stations that it does not know.
    pub(super) fn refresh(&self, fdb: &mut Fdb, entered: &[(u64, FastStation)], now_ns: u64) {
        for (key, station) in entered {
            let (network, mac) = fast_station_fields(*key);
            if !fdb.refresh(network, mac, station.seen_ns, now_ns) {
                self.path.remove_station(*key);
            }
        }
    }

    /// Makes the stations those of the table.
    ///
    /// - `all`: enter every station again, so that it waits for the slow path to be empty.
    fn enter_all(&mut self, fdb: &mut Fdb, now_ns: u64, all: bool) {
        let Ok(entered) = self.path.stations() else {
            self.refused_count += 1;
            return;
        };
        self.refresh(fdb, &entered, now_ns);
        let mut entered: BTreeMap<u64, FastStation> = entered.into_iter().collect();
        let known: Vec<_> = fdb.iter(now_ns).collect();
        for (network, mac, port, is_static) in known {
            let key = fast_station_key(network, mac);
            let is_right = entered.remove(&key).is_some_and(|station| {
                Some(station.tunnel) == self.station_tunnel(port) && station.is_static == is_static
            });
            if all || !is_right {
                self.enter(key, port, is_static, now_ns);
            }
        }
    }

    /// Takes credit of the programs' limit for copies that they did not see.
    pub(super) fn charge(&self, bytes: u64) {
        self.path.charge_policer(bytes);
    }

    /// Sets the limit of the programs, which count the frames of both paths.
    pub(super) fn set_policer(&self, rules: &Rules, now_ns: u64) {
        self.path.set_policer(rules.policer.map(|p| (p.rate_bits_per_s, p.burst_bytes)), now_ns);
    }
}

/// Number of the only tunnel of each network that has no other.
fn sole_tunnels(domains: &Domains, by_index: &[Option<u32>]) -> BTreeMap<u16, u32> {
    let numbers = by_index.iter().enumerate();
    let sole = numbers.filter_map(|(index, number)| {
        let network = domains.tunnel_network(index);
        let is_sole = matches!(domains.members(network), Members::One(_));
        Some((network, (*number).filter(|_| is_sole)?))
    });
    sole.collect()
}

/// Networks whose only tunnel is another than before: `None` if it has none any more.
fn changes(before: &BTreeMap<u16, u32>, after: &BTreeMap<u16, u32>) -> Vec<(u16, Option<u32>)> {
    let gone = before.keys().filter(|network| !after.contains_key(network));
    let changed = after.iter().filter(|(network, tunnel)| before.get(network) != Some(tunnel));
    let gone = gone.map(|network| (*network, None));
    gone.chain(changed.map(|(network, tunnel)| (*network, Some(*tunnel)))).collect()
}

/// Frames of one direction that the programs gave to the slow path and that no counter of the kernel or
/// of the forwarder has: without them new stations would wait until they are taken over by force.
#[derive(Debug)]
pub(super) struct Missing {
    lost_count: AtomicU64,
    /// Least number that was missing when the receive ring was empty. A frame on its way to the ring is
    /// missing too, for microseconds.
    least_count: AtomicU64,
    /// Frames that others gave to the slow path: the kernel's own on a TAP device, before the program that keeps
    /// them away is attached.
    foreign_count: AtomicU64,
}

impl Default for Missing {
    fn default() -> Self {
        Missing {
            lost_count: AtomicU64::new(0),
            least_count: AtomicU64::new(u64::MAX),
            foreign_count: AtomicU64::new(0),
        }
    }
}

impl Missing {
    /// Frames finished, from those counted, at a moment when the ring was empty.
    pub(super) fn finished(&self, given: u64, counted: u64) -> u64 {
        let counted = counted.saturating_sub(self.foreign_count.load(Ordering::Relaxed));
        let lost = self.lost_count.load(Ordering::Relaxed);
        let finished = counted.saturating_add(lost);
        match given.checked_sub(finished) {
            Some(missing) => {
                self.least_count.fetch_min(missing, Ordering::Relaxed);
                finished
            }
            // One that was given up was only on its way.
            None => {
                self.lost_count.store(0, Ordering::Relaxed);
                // A frame counts as given before it can arrive.
                let foreign = counted.saturating_sub(given);
                self.foreign_count.fetch_add(foreign, Ordering::Relaxed);
                counted - foreign
            }
        }
    }

    /// Gives up the frames that have been missing since the last call.
    pub(super) fn give_up(&self) {
        let least = self.least_count.swap(u64::MAX, Ordering::Relaxed);
        if least != u64::MAX {
            self.lost_count.fetch_add(least, Ordering::Relaxed);
        }
    }
}

/// Table of decapsulation for the programs.
///
/// Source: RFC 6040, section 4.2, by [`ecn::decapsulate`].
pub fn ecn_table() -> [u8; 16] {
    std::array::from_fn(|at| {
        let (outer, inner) = (at as u8 >> 2, at as u8 & 3);
        match ecn::decapsulate(Ecn::of_service(inner), Ecn::of_service(outer)) {
            None => FAST_ECN_DROP,
            Some(combined) => combined.ecn as u8 | if combined.is_odd { FAST_ECN_ODD } else { 0 },
        }
    })
}

/// Counters of the programs by name. Frames that they sent are also in the forwarder's sums.
pub(super) fn counts(path: &FastPath) -> Result<Vec<(&'static str, u64)>, IoError> {
    let counts = path.counts()?;
    let mut named: Vec<_> = crate::ports::FAST_COUNTS.into_iter().zip(counts).collect();
    let [into, out_of, ..] = counts;
    named.extend([("into_tunnels_sent", into), ("out_of_tunnels_sent", out_of)]);
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_that_stays_missing_is_given_up_and_one_on_its_way_is_not() {
        let missing = Missing::default();
        assert_eq!(missing.finished(10, 9), 9);
        assert_eq!(missing.finished(11, 11), 11);
        missing.give_up();
        assert_eq!(missing.finished(20, 18), 18, "nothing was given up");
        assert_eq!(missing.finished(25, 24), 24);
        missing.give_up();
        assert_eq!(missing.finished(26, 25), 26, "one has been missing all the time");
        // It was slow, not lost.
        assert_eq!(missing.finished(26, 26), 26);
        assert_eq!(missing.finished(27, 26), 26);
    }

    #[test]
    fn frames_that_the_programs_did_not_give_hold_up_no_station() {
        let missing = Missing::default();
        assert_eq!(missing.finished(2, 3), 2, "one is the kernel's own");
        assert_eq!(missing.finished(5, 5), 4, "one of ours is on its way");
        assert_eq!(missing.finished(5, 6), 5);
    }

    #[test]
    fn reload_writes_only_the_networks_whose_only_tunnel_changed() {
        let by_index = [Some(5), Some(6), Some(7), None];
        let [before, after] = [[10, 20, 20, 30], [11, 20, 21, 30]].map(|vlans| vlans.map(Some));
        let first = sole_tunnels(&Domains::new(4, &before), &by_index);
        // Two tunnels share 20; the programs do not serve that of 30.
        assert_eq!(first, BTreeMap::from([(10, 5)]));
        assert_eq!(changes(&BTreeMap::new(), &first), [(10, Some(5))]);
        assert_eq!(changes(&first, &first), []);
        let second = sole_tunnels(&Domains::new(4, &after), &by_index);
        assert_eq!(
            changes(&first, &second),
            [(10, None), (11, Some(5)), (20, Some(6)), (21, Some(7))]
        );
        let untagged = sole_tunnels(&Domains::new(1, &[]), &by_index[..1]);
        assert_eq!(changes(&second, &untagged).last(), Some(&(0, Some(5))));
    }

    #[test]
    fn marks_of_the_programs_are_those_of_the_rfc() {
        let table = ecn_table();
        // Outer CE: dropped, then copied; outer ECT(1) over ECT(0); unmarked.
        assert_eq!(table[12..], [FAST_ECN_DROP, 3, 3, 3]);
        assert_eq!(table[1 << 2 | 2], 1);
        assert_eq!(table[..4], [0, 1, 2, 3]);
        assert_eq!(table[1 << 2], FAST_ECN_ODD);
    }
}
