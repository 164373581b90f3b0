//! The forwarding table: MAC addresses and their port or tunnel.
//!
//! Bounded and allocated once. Addresses are learnt from arriving frames and removed after the
//! ageing time; static addresses stay. The caller passes the time.
//!
//! **Shares.** A full table is shared equally by its senders: each tunnel, and each network of the port. A sender
//! below its share takes the place of another's address, one above it only of its own. The oldest address that has
//! proved nothing goes first; a second frame some time after its first is the proof. So a site that forges addresses
//! crowds out its own.

mod shares;

use shares::{Shares, sender_index};

/// Destination of frames to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FdbPort {
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
    /// A secret, so that senders cannot choose addresses that all hash to one place.
    pub seed: u64,
}

/// Result of learning an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Learned {
    /// Already known at this port.
    Known,
    /// New address.
    New,
    /// New address, in the place of this one.
    Replaced {
        /// Its network.
        network: u16,
        /// The address.
        mac: [u8; 6],
    },
    /// Previously known at another port.
    Moved,
    /// Static address, not changed.
    Static,
    /// Not learnt: the table is full, and its sender's share with addresses in use or too new to judge.
    Full,
    /// Group or zero address, never learnt.
    NoSender,
}

/// Error of adding a static address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FdbError {
    /// Group or zero address.
    #[error("{} is not a unicast MAC address", MacDisplay(*mac))]
    NoStation {
        /// The address.
        mac: [u8; 6],
    },
    /// The table is full of other static addresses.
    #[error("no room for {}; make the table larger", MacDisplay(*mac))]
    Full {
        /// The address.
        mac: [u8; 6],
    },
}

/// Displays a MAC address in the usual notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacDisplay(pub [u8; 6]);

impl std::fmt::Display for MacDisplay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FdbSpec {
    /// Addresses that a table of this specification holds.
    pub fn capacity(&self) -> usize {
        self.entry_count_max.clamp(16, 1 << 24).next_power_of_two()
    }
}

/// Longest time from the first frame of an address to the one that proves it.
const PROOF_NS_MAX: u64 = 1_000_000_000;
/// Addresses examined for expiry when a new one finds the table full.
const SWEPT_MAX: usize = 16;
/// End of a chain.
const NONE: u32 = u32::MAX;

/// Standing of an address in its sender's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Learnt, and not heard again since.
    Unproven = 0,
    /// Heard again.
    Proven = 1,
    /// Never moved, aged or evicted.
    Static = 2,
}

/// Half a cache line, so that a look-up reads two: a head of a chain, and mostly one entry.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
struct Entry {
    /// Address and network; 0 if empty.
    key: u64,
    seen_ns: u64,
    port: FdbPort,
    /// Next entry of its chain, or of the empty ones.
    next: u32,
    standing: Standing,
}

const EMPTY: Entry =
    Entry { key: 0, seen_ns: 0, port: FdbPort::Local(0), next: NONE, standing: Standing::Unproven };

/// The table: entries in chains by hash.
#[derive(Debug, Clone)]
pub struct Fdb {
    /// First entry of each chain; twice as many as entries.
    heads: Box<[u32]>,
    entries: Box<[Entry]>,
    /// First empty entry.
    empty: u32,
    shares: Shares,
    /// Next entry to examine for expiry.
    hand: usize,
    static_count: usize,
    evicted_count: u64,
    ageing_ns: u64,
    seed: u64,
}

impl Fdb {
    /// An empty table.
    pub fn new(spec: FdbSpec) -> Fdb {
        let capacity = spec.capacity();
        let mut entries = vec![EMPTY; capacity].into_boxed_slice();
        for (at, entry) in (1_u32..).zip(&mut entries) {
            entry.next = if at as usize == capacity { NONE } else { at };
        }
        Fdb {
            heads: vec![NONE; 2 * capacity].into_boxed_slice(),
            entries,
            empty: 0,
            shares: Shares::new(capacity),
            hand: 0,
            static_count: 0,
            evicted_count: 0,
            ageing_ns: spec.ageing_ns,
            seed: spec.seed,
        }
    }

    /// Capacity in addresses.
    pub fn entry_count_max(&self) -> usize {
        self.entries.len()
    }

    /// Addresses in use that made room for those of a sender with a smaller share, or for newer ones of their own.
    pub fn evicted_count(&self) -> u64 {
        self.evicted_count
    }

    /// Learns that frames from `mac` arrive from `port`.
    ///
    /// - `network`: network number; the same address may be in several.
    #[inline]
    pub fn learn(&mut self, network: u16, mac: [u8; 6], port: FdbPort, now_ns: u64) -> Learned {
        let Some(key) = key(network, mac) else { return Learned::NoSender };
        let Some(at) = self.find(key) else { return self.learn_new(key, port, now_ns) };
        let proof_ns = self.proof_ns();
        let ageing_ns = self.ageing_ns;
        let entry = &mut self.entries[at];
        if entry.standing == Standing::Static {
            return Learned::Static;
        }
        let was_current = entry.is_current(now_ns, ageing_ns);
        let was_here = entry.port == port;
        entry.seen_ns = now_ns;
        if was_current && was_here {
            if entry.standing == Standing::Unproven {
                self.prove(at, now_ns, proof_ns);
            }
            return Learned::Known;
        }
        self.shares.remove(at, sender_index(entry.port, network), entry.standing as usize);
        entry.port = port;
        entry.standing = Standing::Unproven;
        self.shares.add(at, sender_index(port, network), Standing::Unproven as usize, now_ns);
        if was_current { Learned::Moved } else { Learned::New }
    }

    #[cold]
    fn learn_new(&mut self, key: u64, port: FdbPort, now_ns: u64) -> Learned {
        let (network, _) = station(key);
        let sender = sender_index(port, network);
        let gone = match self.empty {
            NONE => match self.make_room(sender, now_ns) {
                Some(gone) => Some(gone),
                None => return Learned::Full,
            },
            _ => None,
        };
        self.insert(key, port, now_ns, Standing::Unproven);
        let (at, standing) = (self.heads[self.place(key)] as usize, Standing::Unproven as usize);
        self.shares.add(at, sender, standing, now_ns);
        match gone.map(station) {
            Some((network, mac)) => Learned::Replaced { network, mac },
            None => Learned::New,
        }
    }

    /// Destination of frames to `mac`; `None` to flood (an unknown or group address).
    #[inline]
    pub fn lookup(&self, network: u16, mac: [u8; 6], now_ns: u64) -> Option<FdbPort> {
        let entry = &self.entries[self.find(key(network, mac)?)?];
        entry.is_current(now_ns, self.ageing_ns).then_some(entry.port)
    }

    /// Adds a static address, replacing a learnt one.
    pub fn add_static(
        &mut self,
        network: u16,
        mac: [u8; 6],
        port: FdbPort,
    ) -> Result<(), FdbError> {
        let key = key(network, mac).ok_or(FdbError::NoStation { mac })?;
        match self.find(key) {
            Some(at) => {
                let entry = &mut self.entries[at];
                if entry.standing != Standing::Static {
                    let sender = sender_index(entry.port, network);
                    self.shares.remove(at, sender, entry.standing as usize);
                    self.static_count += 1;
                }
                entry.standing = Standing::Static;
                entry.port = port;
            }
            None => {
                if self.empty == NONE {
                    let largest = self.shares.largest(0).ok_or(FdbError::Full { mac })?;
                    let oldest = self.shares.oldest(largest, Standing::Unproven as usize);
                    let oldest =
                        oldest.or_else(|| self.shares.oldest(largest, Standing::Proven as usize));
                    self.remove(oldest.ok_or(FdbError::Full { mac })?);
                }
                self.insert(key, port, 0, Standing::Static);
                self.static_count += 1;
            }
        }
        Ok(())
    }

    /// Brings in the time of an address's last frame, seen by a faster path. Returns false if the
    /// address is not known any more.
    pub fn refresh(&mut self, network: u16, mac: [u8; 6], seen_ns: u64, now_ns: u64) -> bool {
        let Some(at) = key(network, mac).and_then(|key| self.find(key)) else { return false };
        let (ageing_ns, proof_ns) = (self.ageing_ns, self.proof_ns());
        let entry = &mut self.entries[at];
        entry.seen_ns = entry.seen_ns.max(seen_ns);
        let (is_current, standing) = (entry.is_current(now_ns, ageing_ns), entry.standing);
        if standing == Standing::Unproven {
            self.prove(at, seen_ns, proof_ns);
        }
        is_current
    }

    /// Ageing time of a learnt address, in nanoseconds.
    pub fn ageing_ns(&self) -> u64 {
        self.ageing_ns
    }

    /// Returns a table with another specification and the learnt addresses of this one.
    ///
    /// - `moved`: maps an old tunnel index to the new one; `None` if the tunnel was removed, which
    ///   removes its addresses. Static addresses are not copied; the caller adds the new ones.
    pub fn rebuilt(&self, spec: FdbSpec, moved: impl Fn(u16) -> Option<u16>) -> Fdb {
        let mut table = Fdb::new(spec);
        table.evicted_count = self.evicted_count;
        let mut learnt = Vec::new();
        for (at, entry) in self.entries.iter().enumerate().filter(|(_, entry)| entry.is_learnt()) {
            let port = match entry.port {
                FdbPort::Tunnel(tunnel) => moved(tunnel).map(FdbPort::Tunnel),
                local => Some(local),
            };
            if let Some(port) = port {
                learnt.push((self.shares.since_ns(at), Entry { port, ..*entry }));
            }
        }
        learnt.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.seen_ns));
        learnt.truncate(table.entry_count_max());
        learnt.sort_by_key(|(since_ns, _)| *since_ns);
        for (since_ns, entry) in learnt {
            table.insert(entry.key, entry.port, entry.seen_ns, entry.standing);
            let at = table.heads[table.place(entry.key)] as usize;
            let (network, _) = station(entry.key);
            let sender = sender_index(entry.port, network);
            table.shares.add(at, sender, entry.standing as usize, since_ns);
        }
        table
    }

    /// Known addresses: network, address, port, and true if static.
    pub fn iter(&self, now_ns: u64) -> impl Iterator<Item = (u16, [u8; 6], FdbPort, bool)> + '_ {
        self.entries.iter().filter(move |e| e.is_current(now_ns, self.ageing_ns)).map(|e| {
            let (network, mac) = station(e.key);
            (network, mac, e.port, e.standing == Standing::Static)
        })
    }

    /// Makes room for an address of a sender. Returns the key that went, or `None` if none may.
    fn make_room(&mut self, sender: usize, now_ns: u64) -> Option<u64> {
        if let Some(at) = self.expired(now_ns) {
            return Some(self.remove(at));
        }
        const UNPROVEN: usize = Standing::Unproven as usize;
        const PROVEN: usize = Standing::Proven as usize;
        let (proof_ns, ageing_ns) = (self.proof_ns(), self.ageing_ns);
        let share =
            (self.entries.len() - self.static_count) / self.shares.sender_count(sender).max(1);
        let is_below = self.shares.count(sender) < share;
        let shares = &self.shares;
        // One that is too new to have proved anything keeps its place, which also bounds the changes a second.
        let own = shares.oldest(sender, UNPROVEN);
        let own = own.filter(|at| now_ns.saturating_sub(shares.since_ns(*at)) >= proof_ns);
        let victim = if is_below {
            let of_others = shares.most_unproven(share).and_then(|it| shares.oldest(it, UNPROVEN));
            of_others
                .or(own)
                .or_else(|| shares.largest(share).and_then(|it| shares.oldest(it, PROVEN)))
        } else {
            own.or_else(|| {
                let oldest = shares.oldest(sender, PROVEN);
                oldest.filter(|at| !self.entries[*at].is_current(now_ns, ageing_ns))
            })
        }?;
        self.evicted_count += u64::from(self.entries[victim].is_current(now_ns, ageing_ns));
        Some(self.remove(victim))
    }

    /// An expired entry among the next few.
    fn expired(&mut self, now_ns: u64) -> Option<usize> {
        for _ in 0..SWEPT_MAX {
            let at = self.hand;
            self.hand = (at + 1) & (self.entries.len() - 1);
            let entry = &self.entries[at];
            if entry.is_learnt() && !entry.is_current(now_ns, self.ageing_ns) {
                return Some(at);
            }
        }
        None
    }

    /// Notes that an address was heard again, if its first frame is long enough ago.
    #[cold]
    fn prove(&mut self, at: usize, seen_ns: u64, proof_ns: u64) {
        let since_ns = self.shares.since_ns(at);
        if seen_ns.saturating_sub(since_ns) < proof_ns {
            return;
        }
        let entry = &mut self.entries[at];
        let sender = sender_index(entry.port, station(entry.key).0);
        entry.standing = Standing::Proven;
        self.shares.remove(at, sender, Standing::Unproven as usize);
        self.shares.add(at, sender, Standing::Proven as usize, since_ns);
    }

    fn proof_ns(&self) -> u64 {
        (self.ageing_ns / 8).min(PROOF_NS_MAX)
    }

    #[inline]
    fn find(&self, key: u64) -> Option<usize> {
        let mut at = self.heads[self.place(key)] as usize;
        // No chain has a cycle; its end is beyond all entries.
        while let Some(entry) = self.entries.get(at) {
            if entry.key == key {
                return Some(at);
            }
            at = entry.next as usize;
        }
        None
    }

    /// Takes the first empty entry, which there is, and puts it at the head of its chain.
    fn insert(&mut self, key: u64, port: FdbPort, seen_ns: u64, standing: Standing) {
        let place = self.place(key);
        let at = self.empty;
        let Some(entry) = self.entries.get_mut(at as usize) else { return };
        self.empty = entry.next;
        *entry = Entry { key, seen_ns, port, next: self.heads[place], standing };
        self.heads[place] = at;
    }

    /// Empties a learnt entry. Returns its key.
    fn remove(&mut self, at: usize) -> u64 {
        let Entry { key, port, next, standing, .. } = self.entries[at];
        self.shares.remove(at, sender_index(port, station(key).0), standing as usize);
        let place = self.place(key);
        let mut before = self.heads[place] as usize;
        if before == at {
            self.heads[place] = next;
        } else {
            while let Some(entry) = self.entries.get_mut(before) {
                if entry.next as usize == at {
                    entry.next = next;
                    break;
                }
                before = entry.next as usize;
            }
        }
        self.entries[at] = Entry { next: self.empty, ..EMPTY };
        self.empty = at as u32;
        key
    }

    #[inline]
    fn place(&self, key: u64) -> usize {
        // The finaliser of SplitMix64: every bit of the key affects every bit of the index.
        let mut mixed = key ^ self.seed;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) as usize & (self.heads.len() - 1)
    }
}

impl Entry {
    #[inline]
    fn is_current(&self, now_ns: u64, ageing_ns: u64) -> bool {
        let is_static = self.standing == Standing::Static;
        self.key != 0 && (is_static || now_ns.saturating_sub(self.seen_ns) <= ageing_ns)
    }

    fn is_learnt(&self) -> bool {
        self.key != 0 && self.standing != Standing::Static
    }
}

/// Address and network in one word; `None` for group addresses and the zero address.
#[inline]
fn key(network: u16, mac: [u8; 6]) -> Option<u64> {
    let [a, b, c, d, e, f] = mac;
    let [high, low] = network.to_be_bytes();
    (a & 1 == 0 && mac != [0; 6]).then(|| u64::from_be_bytes([a, b, c, d, e, f, high, low]))
}

/// Network and address of a key.
#[inline]
fn station(key: u64) -> (u16, [u8; 6]) {
    let [a, b, c, d, e, f, high, low] = key.to_be_bytes();
    (u16::from_be_bytes([high, low]), [a, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const SPEC: FdbSpec = FdbSpec { entry_count_max: 64, ageing_ns: 100, seed: 0x1234 };
    const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
    const HERE: FdbPort = FdbPort::Local(0);
    const THERE: FdbPort = FdbPort::Tunnel(3);

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
        fdb.learn(0, mac(2), FdbPort::Tunnel(0), 6);
        fdb.learn(0, mac(3), FdbPort::Tunnel(1), 7);
        fdb.add_static(0, mac(4), FdbPort::Tunnel(1)).expect("there is room");
        let spec = FdbSpec { entry_count_max: 16, seed: 9, ..SPEC };
        let fdb = fdb.rebuilt(spec, |tunnel| (tunnel == 1).then_some(0));
        assert_eq!(fdb.lookup(0, mac(1), 10), Some(HERE));
        assert_eq!(fdb.lookup(0, mac(2), 10), None, "its tunnel was removed");
        assert_eq!(fdb.lookup(0, mac(3), 10), Some(FdbPort::Tunnel(0)));
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
        assert_eq!(fdb.iter(1201).count(), 1);
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
    fn static_address_neither_moves_nor_ages() {
        let mut fdb = Fdb::new(SPEC);
        fdb.learn(0, A, HERE, 0);
        fdb.add_static(0, A, THERE).expect("there is room");
        assert_eq!(fdb.learn(0, A, HERE, 0), Learned::Static);
        assert_eq!(fdb.lookup(0, A, u64::MAX), Some(THERE));
        assert_eq!(fdb.iter(u64::MAX).collect::<Vec<_>>(), [(0, A, THERE, true)]);
        // It is in no share: learnt addresses fill the rest.
        for n in 0..200 {
            fdb.learn(0, mac(n), HERE, 0);
        }
        assert_eq!(fdb.iter(0).count(), 64);
        assert_eq!(fdb.lookup(0, A, 0), Some(THERE));
        fdb.add_static(0, mac(1000), THERE).expect("a learnt address makes room");
        assert_eq!(fdb.iter(0).count(), 64);
    }

    /// Address number `n`.
    fn mac(n: u32) -> [u8; 6] {
        let [a, b, c, d] = n.to_be_bytes();
        [2, 0, a, b, c, d]
    }

    /// Learns addresses by number at a port. Returns the number of those that were not learnt.
    fn learn_all(
        fdb: &mut Fdb,
        numbers: std::ops::Range<u32>,
        port: FdbPort,
        now_ns: u64,
    ) -> usize {
        numbers.filter(|n| fdb.learn(0, mac(*n), port, now_ns) == Learned::Full).count()
    }

    fn known(fdb: &Fdb, numbers: std::ops::Range<u32>, port: FdbPort, now_ns: u64) -> usize {
        numbers.filter(|n| fdb.lookup(0, mac(*n), now_ns) == Some(port)).count()
    }

    #[test]
    fn site_that_forges_addresses_crowds_out_its_own_only() {
        const FORGED: std::ops::Range<u32> = 10_000..90_000;
        let mut fdb = Fdb::new(SPEC);
        assert_eq!(learn_all(&mut fdb, 0..20, HERE, 0), 0);
        for now_ns in 0..80 {
            let from = FORGED.start + now_ns as u32 * 1000;
            learn_all(&mut fdb, from..from + 1000, THERE, now_ns);
        }
        assert_eq!(known(&fdb, 0..20, HERE, 80), 20, "those that were there");
        assert_eq!(learn_all(&mut fdb, 20..32, HERE, 80), 0, "new ones, up to half of the table");
        assert_eq!(known(&fdb, 0..32, HERE, 80), 32);
        assert_eq!(known(&fdb, FORGED, THERE, 80), 32);
        // A third site too: its share is a third of 64.
        let third = FdbPort::Tunnel(4);
        assert_eq!(learn_all(&mut fdb, 40..61, third, 81), 0);
        assert_eq!(known(&fdb, 40..61, third, 81), 21);
        assert!(known(&fdb, 0..32, HERE, 81) >= 21);
        assert!(fdb.evicted_count() > 100, "{}", fdb.evicted_count());
    }

    #[test]
    fn address_that_was_heard_again_outlives_its_site_s_forged_ones() {
        let mut fdb = Fdb::new(SPEC);
        learn_all(&mut fdb, 0..8, THERE, 0);
        learn_all(&mut fdb, 0..8, THERE, 20);
        for now_ns in 21..100 {
            learn_all(&mut fdb, now_ns as u32 * 1000..now_ns as u32 * 1000 + 500, THERE, now_ns);
        }
        assert_eq!(known(&fdb, 0..8, THERE, 99), 8);
        // The programs of the fast path hear it instead.
        let mut fdb = Fdb::new(SPEC);
        fdb.learn(0, A, THERE, 0);
        assert!(fdb.refresh(0, A, 20, 21));
        for now_ns in 21..100 {
            learn_all(&mut fdb, now_ns as u32 * 1000..now_ns as u32 * 1000 + 500, THERE, now_ns);
        }
        assert_eq!(fdb.lookup(0, A, 99), Some(THERE));
    }

    #[test]
    fn newcomer_has_time_to_prove_itself_and_changes_are_bounded() {
        let mut fdb = Fdb::new(SPEC);
        let newcomer = mac(5000);
        assert_eq!(learn_all(&mut fdb, 0..64, THERE, 0), 0);
        assert_eq!(fdb.learn(0, newcomer, THERE, 1), Learned::Full, "all others are as new");
        let Learned::Replaced { network: 0, mac: gone } = fdb.learn(0, newcomer, THERE, 20) else {
            panic!("the oldest makes room");
        };
        assert_eq!(gone, mac(0));
        assert_eq!((fdb.lookup(0, gone, 20), fdb.lookup(0, newcomer, 20)), (None, Some(THERE)));
        let refused = learn_all(&mut fdb, 1000..2000, THERE, 21);
        assert_eq!(refused, 1000 - 63, "each of the others once");
    }

    #[test]
    fn network_of_the_port_that_is_flooded_leaves_the_others_their_share() {
        let mut fdb = Fdb::new(SPEC);
        for n in 0..10_000 {
            fdb.learn(10, mac(n), HERE, 0);
        }
        for n in 0..32 {
            assert_ne!(fdb.learn(20, mac(n), HERE, 0), Learned::Full, "{n}");
        }
        assert!((0..32).all(|n| fdb.lookup(20, mac(n), 0) == Some(HERE)));
    }

    #[test]
    fn expired_addresses_make_room_first() {
        let mut fdb = Fdb::new(SPEC);
        learn_all(&mut fdb, 0..64, HERE, 0);
        learn_all(&mut fdb, 0..1, HERE, 90);
        assert_eq!(learn_all(&mut fdb, 100..163, THERE, 150), 0);
        assert_eq!(fdb.lookup(0, mac(0), 150), Some(HERE), "the only one in use");
        assert_eq!(fdb.evicted_count(), 0);
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
                    let port = FdbPort::Tunnel((now_ns % 3) as u16);
                    prop_assert_ne!(fdb.learn(network, mac, port, now_ns), Learned::Full);
                    map.insert((network, mac), (port, now_ns));
                }
                let known = map.get(&(network, mac)).filter(|(_, seen)| now_ns - seen <= 100);
                prop_assert_eq!(fdb.lookup(network, mac, now_ns), known.map(|(port, _)| *port));
            }
            let current = map.values().filter(|(_, seen)| now_ns - seen <= 100).count();
            prop_assert_eq!(fdb.iter(now_ns).count(), current);
        }

        /// No sender within its share loses an address in use to another, and a sender below it is always heard
        /// unless its own addresses are all too new.
        #[test]
        fn no_sender_within_its_share_loses_an_address_to_another(
            steps in prop::collection::vec((0u32..4, 0u32..40, 0u64..9), 1..600), seed: u64,
        ) {
            let mut fdb = Fdb::new(FdbSpec { entry_count_max: 16, ageing_ns: 80, seed });
            let mut now_ns = 0;
            for (sender, n, later_ns) in steps {
                now_ns += later_ns;
                let port = if sender == 0 { HERE } else { FdbPort::Tunnel(sender as u16) };
                // No address is at two ports.
                let station = mac(sender * 100 + n);
                let before: Vec<_> = fdb.iter(now_ns).collect();
                let share = 16 / fdb.shares.sender_count(sender_index(port, 0));
                let counts: HashMap<FdbPort, usize> = [HERE]
                    .into_iter()
                    .chain((1..4).map(FdbPort::Tunnel))
                    .map(|port| (port, fdb.shares.count(sender_index(port, 0))))
                    .collect();
                let learned = fdb.learn(0, station, port, now_ns);
                for (_, other, at, _) in before {
                    if at != port && counts[&at] <= share {
                        prop_assert_eq!(fdb.lookup(0, other, now_ns), Some(at), "of {:?}", at);
                    }
                }
                if learned == Learned::Full {
                    prop_assert!(counts[&port] >= share, "{counts:?}");
                } else {
                    prop_assert_eq!(fdb.lookup(0, station, now_ns), Some(port));
                }
                let held: usize = (0..8).map(|sender| fdb.shares.count(sender)).sum();
                prop_assert_eq!(held, fdb.entries.iter().filter(|entry| entry.is_learnt()).count());
            }
        }
    }
}
