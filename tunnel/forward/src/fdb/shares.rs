//! Shares of the table: the addresses of each sender, oldest first.

use super::{FdbPort, NONE};

/// Number of a sender: a tunnel, or the port in one network.
#[inline]
pub(super) fn sender_index(port: FdbPort, network: u16) -> usize {
    match port {
        FdbPort::Local(_) => 2 * usize::from(network),
        FdbPort::Tunnel(tunnel) => 2 * usize::from(tunnel) + 1,
    }
}

/// Standings that are told apart: unproven and proven.
const STANDINGS: usize = 2;

/// Neighbours of an address in the list of its sender and standing.
#[derive(Debug, Clone, Copy)]
struct Neighbours {
    older: u32,
    newer: u32,
    /// Time of its first frame there.
    since_ns: u64,
}

/// Addresses of one sender and standing.
#[derive(Debug, Clone, Copy)]
struct AddressList {
    oldest: u32,
    newest: u32,
    count: u32,
}

const EMPTY: AddressList = AddressList { oldest: NONE, newest: NONE, count: 0 };

/// Lists of all senders, linked through one array: no operation allocates, apart from a sender's first.
#[derive(Debug, Clone)]
pub(super) struct Shares {
    neighbours: Box<[Neighbours]>,
    /// By sender.
    lists: Vec<[AddressList; STANDINGS]>,
}

impl Shares {
    pub(super) fn new(capacity: usize) -> Shares {
        let alone = Neighbours { older: NONE, newer: NONE, since_ns: 0 };
        Shares { neighbours: vec![alone; capacity].into_boxed_slice(), lists: Vec::new() }
    }

    /// Adds an address as the newest.
    pub(super) fn add(&mut self, at: usize, sender: usize, standing: usize, since_ns: u64) {
        if self.lists.len() <= sender {
            self.lists.resize(sender + 1, [EMPTY; STANDINGS]);
        }
        let list = &mut self.lists[sender][standing];
        let older = std::mem::replace(&mut list.newest, at as u32);
        list.count += 1;
        self.neighbours[at] = Neighbours { older, newer: NONE, since_ns };
        match self.neighbours.get_mut(older as usize) {
            Some(older) => older.newer = at as u32,
            None => list.oldest = at as u32,
        }
    }

    /// Removes an address that was added with this sender and standing.
    pub(super) fn remove(&mut self, at: usize, sender: usize, standing: usize) {
        let Neighbours { older, newer, .. } = self.neighbours[at];
        let list = &mut self.lists[sender][standing];
        list.count -= 1;
        match self.neighbours.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => list.oldest = newer,
        }
        match self.neighbours.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => list.newest = older,
        }
    }

    /// Time of an address's first frame.
    pub(super) fn since_ns(&self, at: usize) -> u64 {
        self.neighbours[at].since_ns
    }

    /// Oldest address of a sender and standing.
    pub(super) fn oldest(&self, sender: usize, standing: usize) -> Option<usize> {
        let oldest = self.lists.get(sender)?[standing].oldest;
        (oldest != NONE).then_some(oldest as usize)
    }

    /// Addresses of a sender.
    pub(super) fn count(&self, sender: usize) -> usize {
        self.lists.get(sender).map_or(0, list_len)
    }

    /// Senders with an address, and this one.
    pub(super) fn sender_count(&self, sender: usize) -> usize {
        let others = self.lists.iter().enumerate().filter(|(at, _)| *at != sender);
        1 + others.filter(|(_, lists)| list_len(lists) > 0).count()
    }

    /// Sender with the most addresses, if they are more than `share`.
    pub(super) fn largest(&self, share: usize) -> Option<usize> {
        let above = self.lists.iter().enumerate().filter(|(_, lists)| list_len(lists) > share);
        above.max_by_key(|(_, lists)| list_len(lists)).map(|(sender, _)| sender)
    }

    /// Sender with the most unproven addresses among those that have more addresses than `share`.
    pub(super) fn most_unproven(&self, share: usize) -> Option<usize> {
        let above = self.lists.iter().enumerate().filter(|(_, lists)| list_len(lists) > share);
        above.max_by_key(|(_, [unproven, _])| unproven.count).map(|(sender, _)| sender)
    }
}

fn list_len(lists: &[AddressList; STANDINGS]) -> usize {
    lists.iter().map(|list| list.count as usize).sum()
}
