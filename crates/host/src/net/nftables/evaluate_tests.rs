use super::super::{BaseChain, Layer, SetElement};
use super::*;

const INPUT: HookPoint = HookPoint { layer: Layer::Ip, hook: "input" };

/// A UDP packet from 10.0.0.1 port 40000 to 10.0.0.2 port 9000 that came in at `eth0`.
fn packet() -> RulePacket {
    let mut network = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    network.extend(40_000_u16.to_be_bytes());
    network.extend(9_000_u16.to_be_bytes());
    RulePacket {
        network,
        ethertype: 0x0800,
        input: Some((2, "eth0".to_owned())),
        output: Some((0, String::new())),
        connection_state: Some(8),
        ..RulePacket::default()
    }
}

fn rule(handle: u64, expressions: Vec<Expression>) -> NftRule {
    NftRule { handle, expressions }
}

fn chain(name: &str, base: Option<(i32, bool)>, rules: Vec<NftRule>) -> NftChain {
    let base = base.map(|(priority, drops_by_policy)| BaseChain {
        hook: "input",
        priority,
        kind: "filter".to_owned(),
        drops_by_policy,
        devices: Vec::new(),
    });
    NftChain { family: "inet", table: "f".to_owned(), name: name.to_owned(), base, rules }
}

fn of_chains(chains: Vec<NftChain>) -> Ruleset {
    Ruleset { chains, ..Ruleset::default() }
}

/// Handles of the suspects, 0 for a policy.
fn handles(ruleset: &Ruleset, packet: &RulePacket) -> Vec<(u64, bool)> {
    let suspects = ruleset.suspects(packet, &[INPUT]);
    suspects.iter().map(|one| (one.rule.map_or(0, |rule| rule.handle), one.is_certain)).collect()
}

fn port_to(register: u32) -> Expression {
    Expression::Payload { to: register, header: NftHeader::Transport, offset: 2, length: 2 }
}

fn equal(from: u32, with: &[u8]) -> Expression {
    Expression::Compare { from, comparison: NftComparison::Equal, with: with.to_vec() }
}

fn to_port(port: u16, then: Expression) -> Vec<Expression> {
    let protocol = Expression::Meta { to: 1, key: 16 };
    vec![protocol, equal(1, &[17]), port_to(1), equal(1, &port.to_be_bytes()), then]
}

const DROP: Expression = Expression::Decide(Verdict::Drop);
const ACCEPT: Expression = Expression::Decide(Verdict::Accept);

fn unread() -> Expression {
    Expression::Unread { name: "limit".to_owned() }
}

#[test]
fn the_rule_of_the_port_is_named_and_not_that_of_another() {
    let rules =
        vec![rule(3, to_port(9001, DROP)), rule(4, to_port(9000, DROP)), rule(5, vec![DROP])];
    let ruleset = of_chains(vec![chain("in", Some((0, false)), rules)]);
    assert_eq!(handles(&ruleset, &packet()), [(4, true)]);
}

#[test]
fn a_policy_drops_what_no_rule_accepts() {
    let rules = vec![rule(3, to_port(22, ACCEPT))];
    let ruleset = of_chains(vec![chain("in", Some((0, true)), rules)]);
    assert_eq!(handles(&ruleset, &packet()), [(0, true)]);
    let rules = vec![rule(3, to_port(9000, ACCEPT))];
    let ruleset = of_chains(vec![chain("in", Some((0, true)), rules)]);
    assert_eq!(handles(&ruleset, &packet()), []);
}

#[test]
fn what_is_unknown_is_possible_and_the_next_one_too() {
    let rules = vec![rule(3, vec![unread(), DROP]), rule(4, vec![DROP]), rule(5, vec![DROP])];
    let ruleset = of_chains(vec![chain("in", Some((0, false)), rules)]);
    assert_eq!(handles(&ruleset, &packet()), [(3, false), (4, false)]);
    let suspects = ruleset.suspects(&packet(), &[INPUT]);
    assert_eq!((&suspects[0].unread[..], suspects[1].unread.len()), (&["limit"][..], 0));
}

#[test]
fn an_unknown_acceptance_leaves_one_suspect() {
    let rules = vec![rule(3, vec![unread(), ACCEPT]), rule(4, vec![Expression::Reject])];
    let ruleset = of_chains(vec![chain("in", Some((0, true)), rules)]);
    assert_eq!(handles(&ruleset, &packet()), [(4, false)]);
}

#[test]
fn a_rule_whose_counter_is_zero_has_dropped_nothing() {
    let counted = |packets_count| vec![Expression::Counter { packets_count }, unread(), DROP];
    let rules = vec![rule(3, counted(0)), rule(4, counted(7))];
    let ruleset = of_chains(vec![chain("in", Some((0, false)), rules)]);
    assert_eq!(handles(&ruleset, &packet()), [(4, false)]);
    assert_eq!(ruleset.chains[0].rules[1].packets_count(), Some(7));
}

#[test]
fn the_state_of_the_connection_decides() {
    let state = |bit: u32| {
        let mask = bit.to_ne_bytes().to_vec();
        let not_zero =
            Expression::Compare { from: 1, comparison: NftComparison::NotEqual, with: vec![0; 4] };
        let load = Expression::ConnectionState { to: 1 };
        vec![load, Expression::Mask { from: 1, to: 1, mask, xor: vec![0; 4] }, not_zero, DROP]
    };
    let ruleset =
        of_chains(vec![chain("in", Some((0, false)), vec![rule(3, state(1)), rule(4, state(8))])]);
    assert_eq!(handles(&ruleset, &packet()), [(4, true)]);
    let unknown = RulePacket { connection_state: None, ..packet() };
    assert_eq!(handles(&ruleset, &unknown), [(3, false), (4, false)]);
}

#[test]
fn jumps_come_back_and_gotos_do_not() {
    let jump = |verdict: fn(String) -> Verdict| {
        let rules =
            vec![rule(3, vec![Expression::Decide(verdict("own".to_owned()))]), rule(4, vec![DROP])];
        let own =
            vec![rule(5, to_port(22, ACCEPT)), rule(6, vec![Expression::Decide(Verdict::Return)])];
        of_chains(vec![chain("in", Some((0, true)), rules), chain("own", None, own)])
    };
    assert_eq!(handles(&jump(Verdict::Jump), &packet()), [(4, true)]);
    assert_eq!(handles(&jump(Verdict::Goto), &packet()), [(0, true)]);
}

#[test]
fn a_circle_of_jumps_ends() {
    let around = || vec![rule(3, vec![Expression::Decide(Verdict::Jump("in".to_owned()))])];
    let rules = [around(), around(), around()].concat();
    let ruleset = of_chains(vec![chain("in", Some((0, true)), rules)]);
    assert_eq!(handles(&ruleset, &packet()).len(), 1);
}

#[test]
fn chains_of_lower_priority_come_first_and_acceptance_ends_one_chain_only() {
    let first = chain("first", Some((-10, false)), vec![rule(3, vec![ACCEPT])]);
    let second = chain("second", Some((0, false)), vec![rule(4, vec![DROP])]);
    let ruleset = of_chains(vec![second, first]);
    assert_eq!(handles(&ruleset, &packet()), [(4, true)]);
}

#[test]
fn chains_of_another_family_or_hook_are_not_met() {
    let mut other = chain("six", Some((0, true)), Vec::new());
    other.family = "ip6";
    let mut forward = chain("forward", Some((0, true)), Vec::new());
    forward.base.as_mut().expect("it has one").hook = "forward";
    let ruleset = of_chains(vec![other, forward]);
    assert_eq!(handles(&ruleset, &packet()), []);
    let six = RulePacket { ethertype: 0x86dd, ..packet() };
    assert_eq!(handles(&ruleset, &six), [(0, true)]);
}

#[test]
fn a_map_of_verdicts_is_looked_up_and_all_of_it_is_possible_without_the_key() {
    let element = |port: u16, verdict: Verdict| SetElement {
        key: port.to_be_bytes().to_vec(),
        verdict: Some(verdict),
        ..SetElement::default()
    };
    let mut map = NftSet {
        family: "inet",
        table: "f".to_owned(),
        name: "__map0".to_owned(),
        key_bytes: 2,
        is_interval: false,
        is_unknown: false,
        elements: vec![element(9000, Verdict::Drop), element(22, Verdict::Accept)],
    };
    map.sort();
    let lookup =
        Expression::Lookup { from: 1, set: "__map0".to_owned(), to: Some(0), is_negated: false };
    let rules = vec![rule(3, vec![port_to(1), lookup])];
    let mut ruleset = of_chains(vec![chain("in", Some((0, false)), rules)]);
    ruleset.sets.push(map);
    assert_eq!(handles(&ruleset, &packet()), [(3, true)]);
    let mut other = packet();
    other.network.truncate(20);
    assert_eq!(handles(&ruleset, &other), [(3, false)]);
    other = packet();
    other.network[22..24].copy_from_slice(&22_u16.to_be_bytes());
    assert_eq!(handles(&ruleset, &other), []);
}

#[test]
fn later_fragments_have_no_ports() {
    let ruleset =
        of_chains(vec![chain("in", Some((0, false)), vec![rule(3, to_port(9000, DROP))])]);
    let mut fragment = packet();
    fragment.network[6..8].copy_from_slice(&[0, 100]);
    assert_eq!(handles(&ruleset, &fragment), []);
}

#[test]
fn names_of_interfaces_match_whole_or_by_their_start() {
    let named = |with: &[u8]| vec![Expression::Meta { to: 1, key: 6 }, equal(1, with), DROP];
    let whole = [&b"eth0"[..], &[0; 12]].concat();
    for (with, is_met) in [(&whole[..], true), (b"eth", true), (b"ens", false)] {
        let ruleset = of_chains(vec![chain("in", Some((0, false)), vec![rule(3, named(with))])]);
        assert_eq!(!handles(&ruleset, &packet()).is_empty(), is_met, "{with:?}");
    }
}

#[test]
fn ports_of_iptables_are_known_and_other_matches_are_named() {
    let ports = |low, high, inverted| Expression::XtPorts {
        protocol: 17,
        source: (0, 0xffff),
        destination: (low, high),
        inverted,
    };
    let rules = vec![
        rule(3, vec![ports(1, 100, 0), DROP]),
        rule(4, vec![ports(9000, 9000, 2), DROP]),
        rule(5, vec![ports(8000, 9999, 0), DROP]),
    ];
    let ruleset = of_chains(vec![chain("in", Some((0, false)), rules)]);
    assert_eq!(handles(&ruleset, &packet()), [(5, true)]);
}
