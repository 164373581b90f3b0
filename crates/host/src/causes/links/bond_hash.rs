//! Bonds whose packets leave through one port.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "A bond sends everything through one port",
    symptom: "a bond of two or more ports is as fast as one of them; one port is busy and the others idle",
    evidence: "`/proc/net/bonding/BOND`: mode, hash policy, MAC address of the LACP partner; growth of \
               tx_packets of each port",
    remedy: "xmit_hash_policy layer2+3 or layer3+4; LACP with the same rate at both ends",
    undo: "the old policy",
    counters: &["tx_packets"],
    references: &[
        "Documentation/networking/bonding.rst (xmit_hash_policy)",
        "https://github.com/openmediavault/openmediavault/issues/1542",
    ],
    is_of_forwarding: true,
    ..Cause::new("bond-hash", check)
};

pub(super) const MONITOR: Cause = Cause {
    title: "A bond does not watch its links, or a port of it is down",
    symptom: "every second connection hangs, or all do until a cable is plugged in, although the bond has another \
              port",
    evidence: "`/proc/net/bonding/BOND`: MII Polling Interval (ms): 0 without ARP polling; MII Status of ports; \
               Link Failure Count",
    remedy: "ip link set BOND type bond miimon 100; the cable or switch of the port that is down",
    undo: "ip link set BOND type bond miimon 0",
    references: &["Documentation/networking/bonding.rst (miimon)"],
    is_of_forwarding: true,
    ..Cause::new("bond-monitor", monitor)
};

/// `/proc/net/bonding/BOND`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Bond {
    mode: String,
    policy: String,
    /// MAC address of the switch that speaks LACP.
    partner: Option<String>,
    /// Ports that have a link, and those that have none.
    ports: Vec<String>,
    down: Vec<String>,
    /// It looks at its links, or asks a host behind them.
    is_watched: bool,
}

fn parse(text: &str) -> Bond {
    let mut bond = Bond::default();
    let mut port = None;
    for (key, value) in text.lines().filter_map(|line| line.trim().split_once(": ")) {
        match key {
            "Bonding Mode" => bond.mode = value.to_owned(),
            "Transmit Hash Policy" => {
                bond.policy = value.split(' ').next().unwrap_or_default().to_owned();
            }
            "Partner Mac Address" => bond.partner = Some(value.to_owned()),
            "Slave Interface" => port = Some(value.to_owned()),
            "MII Status" if value == "up" => bond.ports.extend(port.take()),
            "MII Status" => bond.down.extend(port.take()),
            "MII Polling Interval (ms)" | "ARP Polling Interval (ms)" => {
                bond.is_watched |= value != "0"
            }
            _ => {}
        }
    }
    bond
}

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    for link in view.interfaces().filter(|link| link.kind.as_deref() == Some("bond")) {
        let Some(text) = notes.ask(view.proc_net(&format!("bonding/{}", link.name))) else {
            continue;
        };
        let Some(window) = notes.window(view) else { return };
        let bond = parse(&text);
        let sent = |port: &String| window.link(port, "tx_packets");
        let sent: Vec<Losses> = bond.ports.iter().map(sent).collect();
        let judged = judge(&link.name, &bond, &sent, &view.prefix());
        judged.into_iter().for_each(|found| notes.find(found));
    }
}

fn monitor(view: &Evidence, notes: &mut Notes<'_>) {
    for link in view.interfaces().filter(|link| link.kind.as_deref() == Some("bond") && link.is_up)
    {
        let Some(text) = notes.ask(view.proc_net(&format!("bonding/{}", link.name))) else {
            continue;
        };
        let judged = judge_monitor(&link.name, &parse(&text), &view.prefix());
        judged.into_iter().for_each(|found| notes.find(found));
    }
}

fn judge_monitor(name: &str, bond: &Bond, prefix: &str) -> Option<Finding> {
    let set = |ms: u32| format!("{prefix}ip link set {name} type bond miimon {ms}");
    let (what, change, undo) = match bond.down.first() {
        Some(port) => (
            format!(
                "{name} runs without its port {port}, which has no link: it has {} left",
                bond.ports.len()
            ),
            format!("the cable, transceiver or switch port of {port}"),
            "nothing to undo".to_owned(),
        ),
        None if !bond.is_watched => (
            format!(
                "{name} does not watch its links (miimon 0): a dead port keeps getting its packets"
            ),
            set(100),
            set(0),
        ),
        None => return None,
    };
    Some(
        finding(Severity::Low, what)
            .read(format!("/proc/net/bonding/{name}"), format!("up {:?}, down {:?}", bond.ports, bond.down))
            .read(format!("/proc/net/bonding/{name}: polling"), if bond.is_watched { "on" } else { "off" })
            .because(
                "without polling a bond learns nothing of a link that fails, and without a port it has less \
                 rate and no spare (Documentation/networking/bonding.rst)",
            )
            .effect("a failed port is left at once")
            .risk("none known")
            .change(change, undo),
    )
}

/// Packets a second, and in all, from which the share of a port is judged.
const BUSY_PER_S: f64 = 1000.0;
const MANY: u64 = 100_000;

fn judge(name: &str, bond: &Bond, sent: &[Losses], prefix: &str) -> Option<Finding> {
    let hashes = ["802.3ad", "load balancing (xor)", "transmit load balancing"];
    if bond.ports.len() < 2 || !hashes.iter().any(|mode| bond.mode.contains(mode)) {
        return None;
    }
    let lacks_partner = bond.partner.as_deref() == Some("00:00:00:00:00:00");
    let per_s: f64 = sent.iter().map(|port| port.per_second()).sum();
    let is_now = per_s >= BUSY_PER_S;
    let counts: Vec<u64> =
        sent.iter().map(|port| if is_now { port.now } else { port.total }).collect();
    let all: u64 = counts.iter().sum();
    let busiest = (0..counts.len()).max_by_key(|port| counts[*port])?;
    let is_lopsided = counts[busiest] * 100 >= all * 95 && (is_now || all >= MANY);
    if !is_lopsided && !lacks_partner {
        return None;
    }
    let (port, share) = (&bond.ports[busiest], counts[busiest] * 100 / all.max(1));
    let reason = match lacks_partner {
        true => "no switch speaks LACP at its ports".to_owned(),
        false => format!("its hash is {}", bond.policy),
    };
    let command = format!("{prefix}ip link set {name} type bond xmit_hash_policy");
    let (change, undo) = match (lacks_partner, bond.policy.as_str()) {
        (true, _) => (
            "configure the ports of the switch as one LACP group".to_owned(),
            "as before".to_owned(),
        ),
        (_, "layer3+4" | "encap3+4") => (
            "more flows, or more of them with other ports: one flow always uses one port"
                .to_owned(),
            "fewer flows".to_owned(),
        ),
        _ => (format!("{command} layer3+4"), format!("{command} {}", bond.policy)),
    };
    let severity = if is_now { Severity::Medium } else { Severity::Low };
    Some(
        finding(
            severity,
            format!("{name} sends {share} % of its packets through {port} of {} ports: {reason}", bond.ports.len()),
        )
        .seen(if is_now { Confidence::Now } else { Confidence::Before })
        .read(
            format!("/proc/net/bonding/{name}"),
            format!("{}, {}, partner {}", bond.mode, bond.policy, bond.partner.as_deref().unwrap_or("none")),
        )
        .read(
            format!("tx_packets of {}", bond.ports.join(", ")),
            counts.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
        )
        .because(
            "the port is chosen by a hash of each packet's addresses: behind one router all frames have \
             the same two MAC addresses, so layer2 gives one port (Documentation/networking/bonding.rst)",
        )
        .effect("flows use all ports; a single flow still uses one")
        .risk("layer3+4 may send fragments of a flow through another port, out of order")
        .change(change, undo),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Ethernet Channel Bonding Driver: v6.1\n\nBonding Mode: IEEE 802.3ad Dynamic link \
                        aggregation\nTransmit Hash Policy: layer2 (0)\nMII Status: up\n\n802.3ad info\nLACP \
                        rate: slow\nActive Aggregator Info:\n\tPartner Mac Address: 02:00:00:00:00:01\n\nSlave \
                        Interface: eth0\nMII Status: up\n\nSlave Interface: eth1\nMII Status: up\n\nSlave \
                        Interface: eth2\nMII Status: down\n";

    fn judged(text: &str, now: [u64; 2]) -> Option<Finding> {
        let window = std::time::Duration::from_secs(1);
        judge("bond0", &parse(text), &now.map(|now| Losses { now, total: now, window }), "")
    }

    #[test]
    fn bond_with_one_busy_port_is_named_with_its_hash() {
        let found = judged(TEXT, [90_000, 12]).unwrap();
        assert!(
            found.what.contains("99 % of its packets through eth0 of 2 ports: its hash is layer2")
        );
        assert!(found.change.ends_with("xmit_hash_policy layer3+4"), "{}", found.change);
        assert!(found.undo.ends_with("xmit_hash_policy layer2"), "{}", found.undo);
        assert_eq!(judged(TEXT, [50_000, 40_000]), None);
        assert_eq!(judged(TEXT, [20, 0]), None, "too few packets");
        let backup = TEXT
            .replace("IEEE 802.3ad Dynamic link aggregation", "fault-tolerance (active-backup)");
        assert_eq!(judged(&backup, [90_000, 0]), None, "one port is what it is for");
        let monitored =
            |text: &str| judge_monitor("bond0", &parse(text), "").map(|found| found.what);
        assert!(monitored(TEXT).unwrap().contains("without its port eth2"));
        let whole = TEXT.replace("MII Status: down", "MII Status: up");
        assert!(monitored(&whole).unwrap().contains("does not watch its links"));
        assert_eq!(
            monitored(
                &whole.replace("MII Status: up\n\n802", "MII Polling Interval (ms): 100\n\n802")
            ),
            None
        );
        let alone = TEXT.replace("02:00:00:00:00:01", "00:00:00:00:00:00");
        assert!(judged(&alone, [50_000, 40_000]).unwrap().what.contains("no switch speaks LACP"));
    }
}
