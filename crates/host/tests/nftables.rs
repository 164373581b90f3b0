//! The rule that drops a packet, against rules that `nft` made in a namespace.

use std::process::Command;

use lab::{End, Pair, PairSpec};
use wirepath_host::net::nftables::{HookPoint, Layer, RulePacket, Ruleset, ruleset};

const RULES: &str = r#"
table inet f {
    set spans {
        type inet_service; flags interval
        elements = { 9100-9110, 9200 }
    }
    set pairs {
        type ipv4_addr . inet_service; flags interval
        elements = { 10.0.0.0/24 . 9500-9510 }
    }
    chain own {
        ip saddr 10.0.0.1 reject
    }
    chain in {
        type filter hook input priority 0; policy drop
        iifname "lo" accept
        tcp flags syn tcp dport 22 accept
        udp dport 9001 drop
        udp dport @spans drop
        udp dport vmap { 9300 : drop, 9301 : accept, 9302 : jump own }
        ip saddr . udp dport @pairs drop
        udp dport { 9601, 9603 } counter drop
        ip saddr != 10.0.0.0/8 accept
        udp dport != 9700-9799 accept
        ct state invalid drop
    }
}
"#;

const INPUT: HookPoint = HookPoint { layer: Layer::Ip, hook: "input" };

/// A UDP packet from 10.0.0.1 to 10.0.0.2 that came in at `eth0` and begins a connection.
fn to_port(port: u16) -> RulePacket {
    let mut network = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    network.extend(40_000_u16.to_be_bytes());
    network.extend(port.to_be_bytes());
    RulePacket {
        network,
        ethertype: 0x0800,
        input: Some((2, "eth0".to_owned())),
        output: Some((0, String::new())),
        connection_state: Some(8),
        ..RulePacket::default()
    }
}

fn nft(end: &End, args: &[&str]) -> String {
    let mut command = Command::new("nft");
    command.args(args);
    let output = end.run(move || command.output().expect("nft")).expect("a namespace");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Chain and text of the rule of each suspect, as `nft` itself shows it; the text of a policy is empty.
fn suspects(ruleset: &Ruleset, packet: &RulePacket, listed: &str) -> Vec<(String, String)> {
    let named = ruleset.suspects(packet, &[INPUT]).into_iter().map(|suspect| {
        let text = suspect.rule.map_or(String::new(), |rule| {
            let handle = format!("# handle {}", rule.handle);
            let mut lines = listed.lines().filter(|line| line.trim_end().ends_with(&handle));
            let line = lines.find(|line| !line.contains('{') || line.contains("dport"));
            line.unwrap_or_else(|| panic!("no {handle} in {listed}")).trim().to_owned()
        });
        (suspect.chain.name.clone(), text)
    });
    named.collect()
}

#[test]
fn the_rule_that_drops_is_found_in_sets_maps_and_jumps_as_nft_lists_it() {
    if !testkit::is_installed("nft") {
        return;
    }
    let Pair { near, .. } = &Pair::new(&PairSpec::default()).unwrap();
    nft(near, &[RULES]);
    let listed = nft(near, &["-a", "list", "ruleset"]);
    let read = near.run(ruleset).unwrap().unwrap();
    assert!(!read.is_partial);
    for (port, chain, start) in [
        (9001, "in", "udp dport 9001 drop"),
        (9105, "in", "udp dport @spans drop"),
        (9200, "in", "udp dport @spans drop"),
        (9300, "in", "udp dport vmap"),
        (9302, "own", "ip saddr 10.0.0.1 reject"),
        (9505, "in", "ip saddr . udp dport @pairs drop"),
        (9750, "in", ""),
    ] {
        let found = suspects(&read, &to_port(port), &listed);
        assert_eq!(found.len(), 1, "{port}: {found:?}\n{listed}");
        assert_eq!(found[0].0, chain, "{port}: {found:?}");
        assert!(
            found[0].1.starts_with(start) && found[0].1.is_empty() == start.is_empty(),
            "{port}: {found:?}"
        );
    }
    // Accepted, and one whose rule has counted no packet.
    for port in [9301, 9603, 9111, 9199, 80] {
        assert_eq!(suspects(&read, &to_port(port), &listed), [], "{port}");
    }
    let invalid = RulePacket { connection_state: Some(1), ..to_port(9750) };
    let found = suspects(&read, &invalid, &listed);
    assert!(found.len() == 1 && found[0].1.starts_with("ct state invalid drop"), "{found:?}");
}
