//! A table of places for strangers, which no crowd of them can keep others out of.
//!
//! Places are few: connections in a handshake, domains of a feed, stations of a tunnel. A limit of their number alone
//! lets the first comer hold all. This table takes each newcomer, at the cost of the entry that has proved nothing and
//! belongs to the largest crowd:
//!
//! 1. the network that has most entries without a proof, the newcomer included;
//! 2. in it, the host that has most of them;
//! 3. of that host, the oldest.
//!
//! Among equal ones the network or host goes first that lost most entries without a proof before (its *strikes*), so that
//! a stranger that returns again and again displaces its like and not senders that come once; then the one with the
//! oldest entry.
//!
//! A proof (a finished handshake, a request, a sequence that goes on) protects an entry from every newcomer. Protected
//! entries are limited too, or proofs that cost little would fill the table: the proof above the limit takes the
//! protection from the oldest proof of the largest crowd. That entry stays until a newcomer needs its place.
//!
//! No I/O, no clock; memory for [`Slots::new`]'s number of entries and [`REMEMBERED_PER_PLACE`] times as many senders;
//! logarithmic time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Senders of which strikes are kept, for each place.
pub const REMEMBERED_PER_PLACE: usize = 8;

/// Origin of an entry on two levels: many hosts of one network are one crowd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotOrigin<S> {
    pub network: S,
    pub host: S,
}

/// IPv4: the address and its /24. IPv6: the /64, all of which one host has, and its /48, which a site has.
impl From<IpAddr> for SlotOrigin<IpAddr> {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(host) => {
                let network = Ipv4Addr::from_bits(host.to_bits() & !0xff);
                SlotOrigin { network: network.into(), host: host.into() }
            }
            IpAddr::V6(host) => {
                let prefix =
                    |bits: u32| Ipv6Addr::from_bits(host.to_bits() & (u128::MAX << (128 - bits)));
                SlotOrigin { network: prefix(48).into(), host: prefix(64).into() }
            }
        }
    }
}

/// Result of [`Slots::insert`].
#[derive(Debug, PartialEq, Eq)]
pub enum SlotAdmission<K, T> {
    /// There was room.
    Free,
    /// This entry lost its place to the newcomer.
    Displaced(K, T),
    /// Every entry is protected, or one has the newcomer's key. The newcomer's value comes back.
    Refused(T),
}

/// Entries with values `T`, by a key `K`, from senders whose names are `S`. See the [module](self).
#[derive(Debug)]
pub struct Slots<K, S, T> {
    place_count_max: usize,
    protected_count_max: usize,
    entries: BTreeMap<K, Entry<S, T>>,
    unproven: Ranked<S, Ranked<S, Queue<K>>>,
    protected: Ranked<S, Ranked<S, Queue<K>>>,
    host_strikes: Strikes<SlotOrigin<S>>,
    network_strikes: Strikes<S>,
    /// Order of the next entry or proof.
    next: u64,
}

#[derive(Debug)]
struct Entry<S, T> {
    sender: SlotOrigin<S>,
    /// Ascending with the time of the entry, or of its last change of standing or proof.
    order: u64,
    standing: Standing,
    value: T,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Unproven,
    Protected,
    /// It proved something; later proofs took the protection.
    Demoted,
}

impl<K: Ord + Clone, S: Ord + Clone, T> Slots<K, S, T> {
    /// An empty table.
    ///
    /// - `place_count_max`: entries at the same time; at least 1.
    /// - `protected_count_max`: those of them that a proof protects. If smaller, a newcomer always gets a place.
    pub fn new(place_count_max: usize, protected_count_max: usize) -> Self {
        let place_count_max = place_count_max.max(1);
        let remembered = place_count_max.saturating_mul(REMEMBERED_PER_PLACE);
        Slots {
            place_count_max,
            protected_count_max,
            entries: BTreeMap::new(),
            unproven: Ranked::default(),
            protected: Ranked::default(),
            host_strikes: Strikes::new(remembered),
            network_strikes: Strikes::new(remembered),
            next: 0,
        }
    }

    /// Adds an entry that has proved nothing.
    pub fn insert(&mut self, key: K, sender: SlotOrigin<S>, value: T) -> SlotAdmission<K, T> {
        if self.entries.contains_key(&key) {
            return SlotAdmission::Refused(value);
        }
        let order = self.next_order();
        self.queue_up(&sender, |queue| queue.add(order, key.clone()));
        let mut displaced = SlotAdmission::Free;
        if self.entries.len() >= self.place_count_max {
            let Some(loser) = self.unproven.first_to_go(order).cloned() else {
                self.queue_up(&sender, |queue| queue.remove(order));
                return SlotAdmission::Refused(value);
            };
            if let Some(value) = self.remove(&loser) {
                displaced = SlotAdmission::Displaced(loser, value);
            }
        }
        self.entries.insert(key, Entry { sender, order, standing: Standing::Unproven, value });
        displaced
    }

    /// Protects an entry from newcomers, and forgives its host's strikes. A proof of a protected entry makes it the newest.
    /// Returns false if there is no such entry.
    pub fn prove(&mut self, key: &K) -> bool {
        let Some(entry) = self.entries.get(key) else { return false };
        let (sender, before, standing) = (entry.sender.clone(), entry.order, entry.standing);
        let had_strikes = self.host_strikes.forgive(&sender);
        if standing == Standing::Protected {
            self.protect(&sender, |queue| queue.remove(before));
        }
        if standing != Standing::Protected || had_strikes {
            self.queue_up(&sender, |queue| queue.remove(before));
        }
        let order = self.stand(key, Standing::Protected);
        self.protect(&sender, |queue| queue.add(order, key.clone()));
        if self.protected.len() > self.protected_count_max {
            self.demote_one();
        }
        true
    }

    /// Removes an entry. One that proved nothing is a strike against its sender.
    pub fn remove(&mut self, key: &K) -> Option<T> {
        let Entry { sender, order, standing, value } = self.entries.remove(key)?;
        match standing {
            Standing::Protected => self.protect(&sender, |queue| queue.remove(order)),
            Standing::Demoted => self.queue_up(&sender, |queue| queue.remove(order)),
            Standing::Unproven => {
                let forgotten = self.host_strikes.add(&sender);
                let forgotten_network = self.network_strikes.add(&sender.network);
                self.queue_up(&sender, |queue| queue.remove(order));
                if let Some(sender) = forgotten {
                    self.queue_up(&sender, |_| ());
                }
                if let Some(network) = forgotten_network {
                    let strikes = self.network_strikes.count(&network);
                    self.unproven.change(&network, strikes, |_| ());
                }
            }
        }
        Some(value)
    }

    pub fn get(&self, key: &K) -> Option<&T> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut T> {
        self.entries.get_mut(key).map(|entry| &mut entry.value)
    }

    /// True if a proof protects the entry from newcomers.
    pub fn is_protected(&self, key: &K) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.standing == Standing::Protected)
    }

    /// Entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &T)> {
        self.entries.iter().map(|(key, entry)| (key, &entry.value))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes the protection from the oldest proof of the largest crowd.
    fn demote_one(&mut self) {
        let Some(key) = self.protected.first_to_go(u64::MAX).cloned() else { return };
        let Some(entry) = self.entries.get(&key) else { return };
        let (sender, before) = (entry.sender.clone(), entry.order);
        self.protect(&sender, |queue| queue.remove(before));
        let order = self.stand(&key, Standing::Demoted);
        self.queue_up(&sender, |queue| queue.add(order, key));
    }

    /// Changes the standing of an entry, and makes it the newest of that standing. Returns its order.
    fn stand(&mut self, key: &K, standing: Standing) -> u64 {
        let order = self.next_order();
        if let Some(entry) = self.entries.get_mut(key) {
            (entry.order, entry.standing) = (order, standing);
        }
        order
    }

    fn next_order(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Changes the unprotected entries of a sender, and ranks it by its strikes.
    fn queue_up(&mut self, sender: &SlotOrigin<S>, change: impl FnOnce(&mut Queue<K>)) {
        let strikes = self.host_strikes.count(sender);
        self.unproven.change(
            &sender.network,
            self.network_strikes.count(&sender.network),
            |hosts| {
                hosts.change(&sender.host, strikes, change);
            },
        );
    }

    /// Changes the protected entries of a sender. They rank by number and age alone.
    fn protect(&mut self, sender: &SlotOrigin<S>, change: impl FnOnce(&mut Queue<K>)) {
        self.protected.change(&sender.network, 0, |hosts| hosts.change(&sender.host, 0, change));
    }
}

/// A crowd of entries.
trait Group: Default {
    type Key;

    fn len(&self) -> usize;

    /// Order of the oldest entry; `None` if there is none.
    fn oldest(&self) -> Option<u64>;

    /// Entry that has to go first, other than the one of order `spared`.
    fn first_to_go(&self, spared: u64) -> Option<&Self::Key>;
}

/// Entries of one host, by their order.
#[derive(Debug)]
struct Queue<K>(BTreeMap<u64, K>);

impl<K> Queue<K> {
    fn add(&mut self, order: u64, key: K) {
        self.0.insert(order, key);
    }

    fn remove(&mut self, order: u64) {
        self.0.remove(&order);
    }
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Queue(BTreeMap::new())
    }
}

impl<K> Group for Queue<K> {
    type Key = K;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn oldest(&self) -> Option<u64> {
        self.0.first_key_value().map(|(order, _)| *order)
    }

    fn first_to_go(&self, spared: u64) -> Option<&K> {
        self.0.iter().find(|(order, _)| **order != spared).map(|(_, key)| key)
    }
}

/// Groups that are not empty, by name, ranked: the greatest rank has to go first.
#[derive(Debug)]
struct Ranked<S, G> {
    groups: BTreeMap<S, (Rank, G)>,
    ranks: BTreeSet<(Rank, S)>,
    /// Oldest entry of each group.
    oldest: BTreeSet<u64>,
    entry_count: usize,
}

/// Fields in the order in which they count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    entry_count: usize,
    strikes: u32,
    oldest: Reverse<u64>,
}

impl<S, G> Default for Ranked<S, G> {
    fn default() -> Self {
        let (groups, ranks, oldest) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Ranked { groups, ranks, oldest, entry_count: 0 }
    }
}

impl<S: Ord + Clone, G: Group> Ranked<S, G> {
    /// Changes one group and ranks it again.
    fn change(&mut self, name: &S, strikes: u32, change: impl FnOnce(&mut G)) {
        let mut group = match self.groups.remove(name) {
            None => G::default(),
            Some((rank, group)) => {
                self.entry_count -= rank.entry_count;
                self.oldest.remove(&rank.oldest.0);
                self.ranks.remove(&(rank, name.clone()));
                group
            }
        };
        change(&mut group);
        if let Some(oldest) = group.oldest() {
            let rank = Rank { entry_count: group.len(), strikes, oldest: Reverse(oldest) };
            self.entry_count += rank.entry_count;
            self.oldest.insert(oldest);
            self.ranks.insert((rank, name.clone()));
            self.groups.insert(name.clone(), (rank, group));
        }
    }
}

impl<S: Ord + Clone, G: Group> Group for Ranked<S, G> {
    type Key = G::Key;

    fn len(&self) -> usize {
        self.entry_count
    }

    fn oldest(&self) -> Option<u64> {
        self.oldest.first().copied()
    }

    fn first_to_go(&self, spared: u64) -> Option<&G::Key> {
        // At most two steps: one group alone may hold nothing but the spared entry.
        let mut groups = self.ranks.iter().rev().filter_map(|(_, name)| self.groups.get(name));
        groups.find_map(|(_, group)| group.first_to_go(spared))
    }
}

/// Entries that senders lost without a proof, for a limited number of senders: those whose last strike is longest ago
/// are forgotten.
#[derive(Debug)]
struct Strikes<S> {
    sender_count_max: usize,
    /// Number of strikes, and the time of the last one.
    senders: BTreeMap<S, (u32, u64)>,
    by_time: BTreeMap<u64, S>,
    time: u64,
}

impl<S: Ord + Clone> Strikes<S> {
    fn new(sender_count_max: usize) -> Self {
        Strikes { sender_count_max, senders: BTreeMap::new(), by_time: BTreeMap::new(), time: 0 }
    }

    fn count(&self, sender: &S) -> u32 {
        self.senders.get(sender).map_or(0, |(count, _)| *count)
    }

    /// Counts one. Returns the sender that is forgotten for it.
    fn add(&mut self, sender: &S) -> Option<S> {
        self.time += 1;
        let (count, last) = self.senders.get(sender).copied().unwrap_or_default();
        self.by_time.remove(&last);
        self.senders.insert(sender.clone(), (count.saturating_add(1), self.time));
        self.by_time.insert(self.time, sender.clone());
        if self.senders.len() <= self.sender_count_max {
            return None;
        }
        let (_, forgotten) = self.by_time.pop_first()?;
        self.senders.remove(&forgotten);
        Some(forgotten)
    }

    /// Returns true if there were any.
    fn forgive(&mut self, sender: &S) -> bool {
        let Some((_, last)) = self.senders.remove(sender) else { return false };
        self.by_time.remove(&last);
        true
    }
}

#[cfg(test)]
mod tests;
