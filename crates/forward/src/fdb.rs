//! The forwarding table: MAC addresses and their port or tunnel.
//!
//! Bounded and allocated once. Addresses are learnt from arriving frames and removed after the
//! ageing time; static addresses stay. The caller passes the time.

/// Destination of frames to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Port {
    /// Local interface, by number.
    Local(u16),
    /// A tunnel, by its index.
    Tunnel(u16),
}

/// Configuration of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FdbSpec {
    /// Maximum number of addresses; rounded up to a power of two, at least 16.
    pub entry_count_max: usize,
    /// Ageing time of a learnt address, in nanoseconds.
    pub ageing_ns: u64,
    /// A secret, so that senders cannot choose addresses that all hash to one bucket.
    pub seed: u64,
}

/// Result of learning an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Learned {
    /// Already known at this port.
    Known,
    /// New address.
    New,
    /// Previously known at another port.
    Moved,
    /// Static address, not changed.
    Static,
    /// Not learnt: its bucket is full of addresses in use.
    Full,
    /// Group or zero address, never learnt.
    NoSender,
}

/// Error of adding a static address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FdbError {
    /// Group or zero address.
    #[error("{} is not a unicast MAC address", Mac(*mac))]
    NoStation {
        /// The address.
        mac: [u8; 6],
    },
    /// Its bucket is full of other static addresses.
    #[error("no room for {}; make the table larger", Mac(*mac))]
    Full {
        /// The address.
        mac: [u8; 6],
    },
}

/// Displays a MAC address in the usual notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Address and network; 0 if empty.
    key: u64,
    seen_ns: u64,
    port: Port,
    is_static: bool,
}

const EMPTY: Entry = Entry { key: 0, seen_ns: 0, port: Port::Local(0), is_static: false };
/// Entries per bucket: a look-up reads one or two cache lines.
const WAYS: usize = 4;

/// The table.
#[derive(Debug, Clone)]
pub struct Fdb {
    sets: Box<[[Entry; WAYS]]>,
    ageing_ns: u64,
    seed: u64,
}

impl Fdb {
    /// An empty table.
    pub fn new(spec: FdbSpec) -> Fdb {
        let sets = spec.entry_count_max.clamp(16, 1 << 24).next_power_of_two() / WAYS;
        Fdb {
            sets: vec![[EMPTY; WAYS]; sets].into_boxed_slice(),
            ageing_ns: spec.ageing_ns,
            seed: spec.seed,
        }
    }

    /// Capacity in addresses.
    pub fn entry_count_max(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Learns that frames from `mac` arrive from `port`.
    ///
    /// - `network`: network number; the same address may be in several.
    #[inline]
    pub fn learn(&mut self, network: u16, mac: [u8; 6], port: Port, now_ns: u64) -> Learned {
        let Some(key) = key(network, mac) else { return Learned::NoSender };
        let ageing_ns = self.ageing_ns;
        let set = self.set_mut(key);
        if let Some(entry) = set.iter_mut().find(|entry| entry.key == key) {
            if entry.is_static {
                return Learned::Static;
            }
            let was_current = entry.is_current(now_ns, ageing_ns);
            let was_here = entry.port == port;
            (entry.port, entry.seen_ns) = (port, now_ns);
            return match (was_current, was_here) {
                (true, true) => Learned::Known,
                (true, false) => Learned::Moved,
                (false, _) => Learned::New,
            };
        }
        // Replaces the address that has been silent longest, if it has expired. Addresses in use are
        // not evicted: a flood of forged senders cannot empty the table.
        let place = set
            .iter_mut()
            .filter(|entry| !entry.is_current(now_ns, ageing_ns))
            .min_by_key(|entry| (entry.key != 0, entry.seen_ns));
        match place {
            Some(entry) => {
                *entry = Entry { key, seen_ns: now_ns, port, is_static: false };
                Learned::New
            }
            None => Learned::Full,
        }
    }

    /// Destination of frames to `mac`; `None` to flood (an unknown or group address).
    #[inline]
    pub fn lookup(&self, network: u16, mac: [u8; 6], now_ns: u64) -> Option<Port> {
        let key = key(network, mac)?;
        let entry = self.sets[self.place(key)].iter().find(|entry| entry.key == key)?;
        entry.is_current(now_ns, self.ageing_ns).then_some(entry.port)
    }

    /// Adds a static address, replacing a learnt one.
    pub fn add_static(&mut self, network: u16, mac: [u8; 6], port: Port) -> Result<(), FdbError> {
        let key = key(network, mac).ok_or(FdbError::NoStation { mac })?;
        let set = self.set_mut(key);
        let at = set.iter().position(|entry| entry.key == key).or_else(|| {
            let learnt = set.iter().enumerate().filter(|(_, entry)| !entry.is_static);
            let oldest = learnt.min_by_key(|(_, entry)| (entry.key != 0, entry.seen_ns));
            oldest.map(|(at, _)| at)
        });
        let at = at.ok_or(FdbError::Full { mac })?;
        set[at] = Entry { key, seen_ns: 0, port, is_static: true };
        Ok(())
    }

    /// Brings in the time of an address's last frame, seen by a faster path. Returns false if the
    /// address is not known any more.
    pub fn refresh(&mut self, network: u16, mac: [u8; 6], seen_ns: u64, now_ns: u64) -> bool {
        let Some(key) = key(network, mac) else { return false };
        let ageing_ns = self.ageing_ns;
        let found = self.set_mut(key).iter_mut().find(|entry| entry.key == key);
        found.is_some_and(|entry| {
            entry.seen_ns = entry.seen_ns.max(seen_ns);
            entry.is_current(now_ns, ageing_ns)
        })
    }

    /// Ageing time of a learnt address, in nanoseconds.
    pub fn ageing_ns(&self) -> u64 {
        self.ageing_ns
    }

    /// Removes all addresses of a port, static ones included. Returns their number.
    pub fn forget(&mut self, port: Port) -> usize {
        let mut count = 0;
        for entry in self.sets.iter_mut().flatten().filter(|e| e.key != 0 && e.port == port) {
            *entry = EMPTY;
            count += 1;
        }
        count
    }

    /// Returns a table with another specification and the learnt addresses of this one.
    ///
    /// - `moved`: maps an old tunnel index to the new one; `None` if the tunnel was removed, which
    ///   removes its addresses. Static addresses are not copied; the caller adds the new ones.
    pub fn rebuilt(&self, spec: FdbSpec, moved: impl Fn(u16) -> Option<u16>) -> Fdb {
        let mut table = Fdb::new(spec);
        let learnt = self.sets.iter().flatten().filter(|e| e.key != 0 && !e.is_static);
        for entry in learnt {
            let port = match entry.port {
                Port::Tunnel(tunnel) => moved(tunnel).map(Port::Tunnel),
                local => Some(local),
            };
            let Some(port) = port else { continue };
            let set = table.set_mut(entry.key);
            let oldest = set.iter_mut().min_by_key(|e| (e.key != 0, e.seen_ns));
            if let Some(place) = oldest
                && (place.key == 0 || place.seen_ns < entry.seen_ns)
            {
                *place = Entry { port, ..*entry };
            }
        }
        table
    }

    /// Known addresses: network, address, port, and true if static.
    pub fn iter(&self, now_ns: u64) -> impl Iterator<Item = (u16, [u8; 6], Port, bool)> + '_ {
        self.sets.iter().flatten().filter(move |e| e.is_current(now_ns, self.ageing_ns)).map(|e| {
            let [a, b, c, d, f, g, high, low] = e.key.to_be_bytes();
            (u16::from_be_bytes([high, low]), [a, b, c, d, f, g], e.port, e.is_static)
        })
    }

    fn set_mut(&mut self, key: u64) -> &mut [Entry; WAYS] {
        &mut self.sets[self.place(key)]
    }

    fn place(&self, key: u64) -> usize {
        // The finaliser of SplitMix64: every bit of the key affects every bit of the index.
        let mut mixed = key ^ self.seed;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) as usize & (self.sets.len() - 1)
    }
}

impl Entry {
    fn is_current(&self, now_ns: u64, ageing_ns: u64) -> bool {
        self.key != 0 && (self.is_static || now_ns.saturating_sub(self.seen_ns) <= ageing_ns)
    }
}

/// Address and network in one word; `None` for group addresses and the zero address.
#[inline]
fn key(network: u16, mac: [u8; 6]) -> Option<u64> {
    let [a, b, c, d, e, f] = mac;
    let [high, low] = network.to_be_bytes();
    (a & 1 == 0 && mac != [0; 6]).then(|| u64::from_be_bytes([a, b, c, d, e, f, high, low]))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const SPEC: FdbSpec = FdbSpec { entry_count_max: 64, ageing_ns: 100, seed: 0x1234 };
    const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
    const HERE: Port = Port::Local(0);
    const THERE: Port = Port::Tunnel(3);

    #[test]
    fn lookup_returns_the_port_that_was_last_learnt() {
        let mut fdb = Fdb::new(SPEC);
        assert_eq!(fdb.lookup(0, A, 0), None);
        assert_eq!(fdb.learn(0, A, HERE, 0), Learned::New);
        assert_eq!(fdb.learn(0, A, HERE, 1), Learned::Known);
        assert_eq!(fdb.lookup(0, A, 2), Some(HERE));
        assert_eq!(fdb.learn(0, A, THERE, 2), Learned::Moved);
        assert_eq!(fdb.lookup(0, A, 2), Some(THERE));
    }

    #[test]
    fn rebuilt_table_keeps_learnt_addresses_of_remaining_tunnels() {
        let mut fdb = Fdb::new(SPEC);
        let mac = |last| [2, 0, 0, 0, 0, last];
        fdb.learn(0, mac(1), HERE, 5);
        fdb.learn(0, mac(2), Port::Tunnel(0), 6);
        fdb.learn(0, mac(3), Port::Tunnel(1), 7);
        fdb.add_static(0, mac(4), Port::Tunnel(1)).expect("there is room");
        let spec = FdbSpec { entry_count_max: 16, seed: 9, ..SPEC };
        let fdb = fdb.rebuilt(spec, |tunnel| (tunnel == 1).then_some(0));
        assert_eq!(fdb.lookup(0, mac(1), 10), Some(HERE));
        assert_eq!(fdb.lookup(0, mac(2), 10), None, "its tunnel was removed");
        assert_eq!(fdb.lookup(0, mac(3), 10), Some(Port::Tunnel(0)));
        assert_eq!(fdb.lookup(0, mac(4), 10), None, "static addresses come from the new list");
        assert_eq!(fdb.lookup(0, mac(3), 108), None, "ageing continues");
    }

    #[test]
    fn address_whose_frames_take_a_faster_path_does_not_expire() {
        let mut fdb = Fdb::new(SPEC);
        fdb.learn(0, A, HERE, 0);
        assert!(fdb.refresh(0, A, 90, 95));
        assert_eq!(fdb.lookup(0, A, 150), Some(HERE));
        assert!(fdb.refresh(0, A, 40, 150), "an older time changes nothing");
        assert_eq!(fdb.lookup(0, A, 190), Some(HERE));
        assert!(!fdb.refresh(0, A, 0, 191), "it is silent on both paths");
        assert!(!fdb.refresh(1, A, 0, 0), "not in that network");
    }

    #[test]
    fn networks_are_separate() {
        let mut fdb = Fdb::new(SPEC);
        fdb.learn(1, A, HERE, 0);
        assert_eq!(fdb.lookup(2, A, 0), None);
        fdb.learn(2, A, THERE, 0);
        assert_eq!((fdb.lookup(1, A, 0), fdb.lookup(2, A, 0)), (Some(HERE), Some(THERE)));
    }

    #[test]
    fn silent_address_expires_and_an_active_one_stays() {
        let mut fdb = Fdb::new(SPEC);
        fdb.learn(0, A, HERE, 1000);
        assert_eq!(fdb.lookup(0, A, 1100), Some(HERE));
        assert_eq!(fdb.lookup(0, A, 1101), None);
        fdb.learn(0, A, HERE, 1100);
        assert_eq!(fdb.lookup(0, A, 1200), Some(HERE));
        assert_eq!(fdb.lookup(0, A, 900), Some(HERE), "a lagging clock expires nothing");
        assert_eq!(fdb.learn(0, A, HERE, 1201), Learned::New);
    }

    #[test]
    fn group_and_zero_addresses_are_not_learnt() {
        let mut fdb = Fdb::new(SPEC);
        for mac in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0; 6]] {
            assert_eq!(fdb.learn(0, mac, HERE, 0), Learned::NoSender);
            assert_eq!(fdb.lookup(0, mac, 0), None);
            assert_eq!(fdb.add_static(0, mac, HERE), Err(FdbError::NoStation { mac }));
        }
    }

    #[test]
    fn static_address_neither_moves_nor_ages_and_is_removed_with_its_port() {
        let mut fdb = Fdb::new(SPEC);
        fdb.learn(0, A, HERE, 0);
        fdb.add_static(0, A, THERE).expect("there is room");
        assert_eq!(fdb.learn(0, A, HERE, 0), Learned::Static);
        assert_eq!(fdb.lookup(0, A, u64::MAX), Some(THERE));
        assert_eq!(fdb.iter(u64::MAX).collect::<Vec<_>>(), [(0, A, THERE, true)]);
        assert_eq!((fdb.forget(HERE), fdb.forget(THERE)), (0, 1));
        assert_eq!(fdb.lookup(0, A, 0), None);
    }

    #[test]
    fn flood_of_forged_senders_evicts_no_address_in_use() {
        let mut fdb = Fdb::new(SPEC);
        let mac = |n: u32| {
            let [a, b, c, d] = n.to_be_bytes();
            [2, 0, a, b, c, d]
        };
        let known: Vec<_> =
            (0..200).filter(|n| fdb.learn(0, mac(*n), HERE, 0) == Learned::New).collect();
        assert!((32..=64).contains(&known.len()), "{} are in", known.len());
        for n in 200..10_000 {
            assert_ne!(fdb.learn(0, mac(n), THERE, 50), Learned::Moved);
        }
        assert!(known.iter().all(|n| fdb.lookup(0, mac(*n), 50) == Some(HERE)));
        // Once they have expired, their entries can be replaced.
        assert_eq!(fdb.learn(0, mac(10_000), THERE, 1000), Learned::New);
    }

    #[test]
    fn static_address_that_does_not_fit_is_named_in_the_error() {
        let mut fdb = Fdb::new(FdbSpec { entry_count_max: 0, ..SPEC });
        assert_eq!(fdb.entry_count_max(), 16);
        let refused = (0..100).find_map(|n| fdb.add_static(0, [2, 0, 0, 0, 0, n], HERE).err());
        let text = refused.expect("16 places do not hold 100").to_string();
        assert!(text.starts_with("no room for 02:00:00:00:00:"), "{text}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// A table with room for all addresses behaves like a map.
        #[test]
        fn table_is_a_map_with_ageing(
            steps in prop::collection::vec((0u8..12, 0u16..2, any::<bool>(), 0u64..60), 1..200),
            seed: u64,
        ) {
            let mut fdb = Fdb::new(FdbSpec { entry_count_max: 1 << 14, ageing_ns: 100, seed });
            let mut map = HashMap::new();
            let mut now_ns = 0;
            for (n, network, learn, later_ns) in steps {
                now_ns += later_ns;
                let mac = [2, 0, 0, 0, 0, n];
                if learn {
                    let port = Port::Tunnel((now_ns % 3) as u16);
                    prop_assert_ne!(fdb.learn(network, mac, port, now_ns), Learned::Full);
                    map.insert((network, mac), (port, now_ns));
                }
                let known = map.get(&(network, mac)).filter(|(_, seen)| now_ns - seen <= 100);
                prop_assert_eq!(fdb.lookup(network, mac, now_ns), known.map(|(port, _)| *port));
            }
            let current = map.values().filter(|(_, seen)| now_ns - seen <= 100).count();
            prop_assert_eq!(fdb.iter(now_ns).count(), current);
        }
    }
}
