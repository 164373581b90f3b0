use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

type Key = u16;

/// The rules of the [module](super) in their plainest form: one list, searched from end to end.
#[derive(Debug)]
struct Oracle {
    place_count_max: usize,
    protected_count_max: usize,
    entries: Vec<(Key, SlotOrigin<u8>, u64, Standing)>,
    /// Last strike last.
    host_strikes: Vec<(SlotOrigin<u8>, u32)>,
    network_strikes: Vec<(u8, u32)>,
    next: u64,
}

/// Strikes of one sender.
fn strikes_of<S: PartialEq>(strikes: &[(S, u32)], sender: &S) -> u32 {
    strikes.iter().find(|(known, _)| known == sender).map_or(0, |(_, count)| *count)
}

fn add_strike<S: PartialEq>(strikes: &mut Vec<(S, u32)>, sender: S, sender_count_max: usize) {
    let count = strikes_of(strikes, &sender) + 1;
    strikes.retain(|(known, _)| *known != sender);
    strikes.push((sender, count));
    if strikes.len() > sender_count_max {
        strikes.remove(0);
    }
}

impl Oracle {
    fn new(place_count_max: usize, protected_count_max: usize) -> Self {
        Oracle {
            place_count_max,
            protected_count_max,
            entries: Vec::new(),
            host_strikes: Vec::new(),
            network_strikes: Vec::new(),
            next: 0,
        }
    }

    /// Key of the entry that has to go first among those that are protected, or those that are not; not the newest of
    /// order `spared`.
    fn first_to_go(&self, protected: bool, spared: u64) -> Option<Key> {
        let among: Vec<_> = self
            .entries
            .iter()
            .filter(|(.., standing)| (*standing == Standing::Protected) == protected)
            .collect();
        let rank = |sender: &SlotOrigin<u8>, order: u64| {
            let network = among.iter().filter(|(_, other, ..)| other.network == sender.network);
            let host = among.iter().filter(|(_, other, ..)| other == sender);
            let strikes = if protected {
                (0, 0)
            } else {
                (
                    strikes_of(&self.network_strikes, &sender.network),
                    strikes_of(&self.host_strikes, sender),
                )
            };
            (
                (network.clone().count(), strikes.0, network.map(|entry| Reverse(entry.2)).max()),
                (host.clone().count(), strikes.1, host.map(|entry| Reverse(entry.2)).max()),
                Reverse(order),
            )
        };
        let others = among.iter().filter(|(_, _, order, _)| *order != spared);
        others.max_by_key(|(_, sender, order, _)| rank(sender, *order)).map(|(key, ..)| *key)
    }

    fn insert(&mut self, key: Key, sender: SlotOrigin<u8>) -> SlotAdmission<Key, ()> {
        if self.entries.iter().any(|(known, ..)| *known == key) {
            return SlotAdmission::Refused(());
        }
        let is_full = self.entries.len() >= self.place_count_max;
        self.next += 1;
        self.entries.push((key, sender, self.next, Standing::Unproven));
        if !is_full {
            return SlotAdmission::Free;
        }
        match self.first_to_go(false, self.next) {
            None => {
                self.entries.pop();
                SlotAdmission::Refused(())
            }
            Some(loser) => {
                self.remove(loser);
                SlotAdmission::Displaced(loser, ())
            }
        }
    }

    fn prove(&mut self, key: Key) -> bool {
        let Some(sender) = self.entries.iter().find(|(known, ..)| *known == key).map(|e| e.1)
        else {
            return false;
        };
        self.stand(key, Standing::Protected);
        self.host_strikes.retain(|(known, _)| *known != sender);
        let protected = self.entries.iter().filter(|(.., s)| *s == Standing::Protected).count();
        if protected > self.protected_count_max
            && let Some(loser) = self.first_to_go(true, 0)
        {
            self.stand(loser, Standing::Demoted);
        }
        true
    }

    fn stand(&mut self, key: Key, standing: Standing) {
        self.next += 1;
        for entry in self.entries.iter_mut().filter(|(known, ..)| *known == key) {
            (entry.2, entry.3) = (self.next, standing);
        }
    }

    fn remove(&mut self, key: Key) -> bool {
        let Some(at) = self.entries.iter().position(|(known, ..)| *known == key) else {
            return false;
        };
        let (_, sender, _, standing) = self.entries.remove(at);
        if standing == Standing::Unproven {
            let remembered = self.place_count_max * REMEMBERED_PER_PLACE;
            add_strike(&mut self.host_strikes, sender, remembered);
            add_strike(&mut self.network_strikes, sender.network, remembered);
        }
        true
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Insert(Key, SlotOrigin<u8>),
    Prove(Key),
    Remove(Key),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..24u16;
    let sender = (0..12u8, 0..3u8).prop_map(|(network, host)| SlotOrigin { network, host });
    prop_oneof![
        6 => (key(), sender).prop_map(|(key, sender)| Step::Insert(key, sender)),
        2 => key().prop_map(Step::Prove),
        1 => key().prop_map(Step::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn table_agrees_with_a_plain_list(
        places in 1..9usize,
        protected in 0..10usize,
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut slots = Slots::new(places, protected);
        let mut oracle = Oracle::new(places, protected);
        for step in steps {
            match step {
                Step::Insert(key, sender) => {
                    prop_assert_eq!(slots.insert(key, sender, ()), oracle.insert(key, sender));
                }
                Step::Prove(key) => prop_assert_eq!(slots.prove(&key), oracle.prove(key)),
                Step::Remove(key) => {
                    prop_assert_eq!(slots.remove(&key).is_some(), oracle.remove(key));
                }
            }
            let mut listed: Vec<_> =
                oracle.entries.iter().map(|(key, .., s)| (*key, *s == Standing::Protected)).collect();
            listed.sort_unstable();
            let kept: Vec<_> =
                slots.iter().map(|(key, ())| (*key, slots.is_protected(key))).collect();
            prop_assert_eq!(kept, listed);
        }
    }

    #[test]
    fn newcomer_gets_a_place_unless_all_are_protected_and_displaces_no_protected_entry(
        places in 1..9usize,
        protected in 0..10usize,
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut slots = Slots::new(places, protected);
        for step in steps {
            let protected: BTreeSet<Key> =
                slots.iter().map(|(key, ())| *key).filter(|key| slots.is_protected(key)).collect();
            match step {
                Step::Insert(key, _) if slots.get(&key).is_some() => {}
                Step::Insert(key, sender) => match slots.insert(key, sender, ()) {
                    SlotAdmission::Free => prop_assert!(slots.get(&key).is_some()),
                    SlotAdmission::Displaced(loser, ()) => {
                        prop_assert!(slots.get(&key).is_some() && slots.get(&loser).is_none());
                        prop_assert!(!protected.contains(&loser));
                    }
                    SlotAdmission::Refused(()) => prop_assert_eq!(protected.len(), places),
                },
                Step::Prove(key) => {
                    slots.prove(&key);
                }
                Step::Remove(key) => {
                    slots.remove(&key);
                }
            }
            prop_assert!(slots.len() <= places);
            prop_assert_eq!(slots.unproven.len() + slots.protected.len(), slots.len());
        }
    }
}

/// Strangers that prove nothing and return when they lose their place, and one honest client that needs `steps` rounds
/// for its proof. Returns the number of its `tries` that succeeded.
fn tries_served(
    strangers: &[SlotOrigin<IpAddr>],
    honest: SlotOrigin<IpAddr>,
    (steps, tries): (u32, u32),
) -> u32 {
    const HONEST: usize = usize::MAX;
    let mut slots = Slots::new(32, 24);
    let mut outside: Vec<usize> = (0..strangers.len()).collect();
    let mut served = 0;
    for _ in 0..tries {
        let mut left = steps;
        let mut is_inside = false;
        for _ in 0..=steps {
            for stranger in std::mem::take(&mut outside) {
                match slots.insert(stranger, strangers[stranger], ()) {
                    SlotAdmission::Free => {}
                    SlotAdmission::Displaced(HONEST, ()) => is_inside = false,
                    SlotAdmission::Displaced(loser, ()) => outside.push(loser),
                    SlotAdmission::Refused(()) => outside.push(stranger),
                }
            }
            if is_inside {
                left -= 1;
            } else if left == steps
                && let SlotAdmission::Displaced(loser, ()) = slots.insert(HONEST, honest, ())
            {
                is_inside = true;
                outside.push(loser);
            }
        }
        if is_inside && left == 0 {
            slots.prove(&HONEST);
            served += 1;
        }
        slots.remove(&HONEST);
    }
    served
}

fn sender(address: [u8; 4]) -> SlotOrigin<IpAddr> {
    IpAddr::from(address).into()
}

#[test]
fn returning_strangers_do_not_keep_an_honest_client_out() {
    let one_network: Vec<_> = (100..=250).map(|n| sender([192, 0, 2, n])).collect();
    let one_each: Vec<_> = (0..150).map(|n| sender([10, n, 0, 1])).collect();
    let elsewhere = sender([198, 51, 100, 7]);
    for strangers in [&one_network[..34], &one_network] {
        assert_eq!(tries_served(strangers, sender([192, 0, 2, 1]), (60, 8)), 8, "its network");
        assert_eq!(tries_served(strangers, elsewhere, (60, 8)), 8, "another network");
    }
    for strangers in [&one_each[..34], &one_each] {
        assert_eq!(tries_served(strangers, elsewhere, (60, 8)), 8, "a network each");
    }
    // Nothing tells them from one of the same address: it has the time in which they fill the table once.
    let own = vec![elsewhere; 80];
    assert_eq!(tries_served(&own[..33], elsewhere, (15, 8)), 8);
}

#[test]
fn crowd_loses_its_oldest_and_the_newcomer_counts_as_one_of_it() {
    let mut slots = Slots::new(4, 4);
    let (crowd, other) = (SlotOrigin { network: 1, host: 1 }, SlotOrigin { network: 2, host: 1 });
    for key in [1, 2] {
        assert_eq!(slots.insert(key, crowd, key), SlotAdmission::Free);
    }
    for key in [3, 4] {
        assert_eq!(slots.insert(key, other, key), SlotAdmission::Free);
    }
    assert_eq!(slots.insert(5, other, 5), SlotAdmission::Displaced(3, 3), "its own crowd has more");
    assert_eq!(slots.insert(5, crowd, 50), SlotAdmission::Refused(50), "a key that is there");
    assert!(slots.prove(&4) && slots.prove(&5) && !slots.prove(&3));
    assert_eq!(slots.insert(6, other, 6), SlotAdmission::Displaced(1, 1));
    assert!(slots.prove(&2) && slots.prove(&6));
    assert_eq!(slots.insert(7, crowd, 7), SlotAdmission::Refused(7), "all are protected");
    assert_eq!(slots.remove(&2), Some(2));
    assert_eq!(slots.insert(7, crowd, 7), SlotAdmission::Free);
}

#[test]
fn cheap_proofs_of_one_crowd_do_not_hold_the_table() {
    let mut slots = Slots::new(8, 4);
    let (crowd, honest) = (SlotOrigin { network: 1, host: 1 }, SlotOrigin { network: 2, host: 1 });
    slots.insert(0, honest, ());
    assert!(slots.prove(&0));
    for key in 1..1000 {
        assert_ne!(slots.insert(key, crowd, ()), SlotAdmission::Refused(()));
        assert!(slots.prove(&key));
    }
    assert!(slots.is_protected(&0), "kept");
    assert_eq!(slots.iter().filter(|(key, ())| slots.is_protected(key)).count(), 4);
    // Proofs that go on keep an entry beside any number of newer ones.
    for key in 1000..2000 {
        slots.prove(&999);
        slots.insert(key, crowd, ());
        slots.prove(&key);
    }
    assert!(slots.is_protected(&999));
    assert!(matches!(slots.insert(5000, honest, ()), SlotAdmission::Displaced(..)));
}

#[test]
fn memory_is_bounded_by_the_number_of_places() {
    let mut slots = Slots::new(16, 8);
    for n in 0..20_000u32 {
        slots.insert(n, SlotOrigin { network: n / 3, host: n }, ());
        if n % 5 == 0 {
            slots.prove(&n);
        }
    }
    assert_eq!(slots.len(), 16);
    for ranked in [&slots.unproven, &slots.protected] {
        assert!(ranked.groups.len() <= 16 && ranked.ranks.len() == ranked.groups.len());
        assert_eq!(ranked.oldest.len(), ranked.groups.len());
    }
    let remembered = 16 * REMEMBERED_PER_PLACE;
    assert_eq!(slots.host_strikes.senders.len(), remembered);
    assert_eq!(slots.host_strikes.by_time.len(), remembered);
    assert_eq!(slots.network_strikes.by_time.len(), remembered);
}

#[test]
fn addresses_are_grouped_by_host_and_network() {
    let same = |a: &str, b: &str| {
        let [a, b] =
            [a, b].map(|text| SlotOrigin::from(text.parse::<IpAddr>().expect("an address")));
        (a.network == b.network, a.host == b.host)
    };
    assert_eq!(same("192.0.2.1", "192.0.2.254"), (true, false));
    assert_eq!(same("192.0.2.1", "192.0.3.1"), (false, false));
    assert_eq!(same("192.0.2.1", "::ffff:192.0.2.1"), (true, true));
    assert_eq!(same("2001:db8:1:2::1", "2001:db8:1:2:ffff::1"), (true, true));
    assert_eq!(same("2001:db8:1:2::1", "2001:db8:1:3::1"), (true, false));
    assert_eq!(same("2001:db8:1:2::1", "2001:db8:2:2::1"), (false, false));
}
