//! Links that were negotiated below what both sides can do.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::net::ethtool::{self, LinkModes};

pub(super) const CAUSE: Cause = Cause {
    title: "The link was negotiated at the wrong speed or duplex",
    symptom: "throughput is a tenth of what is expected, or differs by direction; small transfers are fine and \
              large ones crawl",
    evidence: "`/sys/class/net/IF/speed` and duplex; modes of both sides (`ethtool IF`); collisions, \
               rx_crc_errors",
    remedy: "negotiation on at both ends, or the same fixed mode at both; another cable: two of its pairs carry \
             100 Mbit/s, and Gigabit needs four",
    undo: "the old setting",
    counters: &["collisions", "rx_crc_errors", "tx_aborted_errors"],
    references: &[
        "Documentation/networking/ethtool-netlink.rst (LINKMODES_GET)",
        "https://github.com/openwrt/openwrt/issues/14504",
    ],
    is_of_forwarding: true,
    ..Cause::new("link-mode", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    for link in super::cards(view).filter(|link| link.has_carrier) {
        let read = |file: &str| view.system.read_net(&format!("{}/{file}", link.name)).ok();
        let speed = read("speed").and_then(|text| text.parse::<u32>().ok());
        // A virtual card has no modes.
        let (Some(mbit_per_s), Some(duplex)) = (speed, read("duplex")) else { continue };
        let modes = view.system.within(|| ethtool::link_modes(link.index)).unwrap_or_default();
        let Some(window) = notes.window(view) else { return };
        let collisions = window.link(&link.name, "collisions");
        let judged = judge(&link.name, (mbit_per_s, &duplex), &modes, collisions, &view.prefix());
        judged.into_iter().for_each(|found| notes.find(found));
    }
}

/// Speed of a mode such as `1000baseT/Full`, Mbit/s.
fn speed_of(mode: &str) -> Option<u32> {
    mode.split_once("base")?.0.parse().ok()
}

fn fastest(modes: &[String]) -> Option<u32> {
    modes.iter().filter_map(|mode| speed_of(mode)).max()
}

fn judge(
    name: &str,
    (mbit_per_s, duplex): (u32, &str),
    modes: &LinkModes,
    collisions: Losses,
    prefix: &str,
) -> Option<Finding> {
    let own = fastest(&modes.supported);
    // A side that does not say may be as slow as the link.
    let both = fastest(&modes.peer).and_then(|peer| Some(peer.min(fastest(&modes.advertised)?)));
    let is_half = duplex == "half";
    let what = if is_half {
        format!(
            "{name} runs at {mbit_per_s} Mbit/s in half duplex: it cannot send while it receives"
        )
    } else if both.is_some_and(|both| both > mbit_per_s) {
        let both = both.unwrap_or_default();
        format!(
            "{name} runs at {mbit_per_s} Mbit/s although both sides offer {both}: suspect the cable"
        )
    } else if modes.is_negotiated == Some(false) && own.is_some_and(|own| own > mbit_per_s) {
        format!(
            "{name} is fixed at {mbit_per_s} Mbit/s, and its card can do {}",
            own.unwrap_or_default()
        )
    } else {
        return None;
    };
    let (severity, confidence) = match (is_half, collisions.now > 0, collisions.total > 0) {
        (true, true, _) => (Severity::High, Confidence::Now),
        (true, _, true) => (Severity::Medium, Confidence::Before),
        (true, ..) => (Severity::Low, Confidence::SetUp),
        _ if modes.is_negotiated == Some(false) => (Severity::Low, Confidence::SetUp),
        _ => (Severity::Medium, Confidence::SetUp),
    };
    let command = format!("{prefix}ethtool -s {name}");
    let negotiated = modes.is_negotiated.map_or("unknown", super::on_off);
    Some(
        finding(severity, what)
            .seen(confidence)
            .costs(format!("at most {mbit_per_s} Mbit/s"))
            .read(format!("/sys/class/net/{name}/speed and duplex"), format!("{mbit_per_s}, {duplex}"))
            .read(format!("ethtool {name}: negotiation"), negotiated)
            .read(format!("ethtool {name}: modes of the other side"), modes.peer.join(" "))
            .read(format!("/sys/class/net/{name}/statistics/collisions"), collisions.evidence())
            .because(
                "a side that does not negotiate leaves the other one with half duplex, and a damaged pair \
                 of wires leaves a slower mode (IEEE 802.3 clause 28)",
            )
            .effect("the link has its full rate in both directions")
            .risk("the link goes down for some seconds")
            .change(
                format!("{command} autoneg on, the same at the other end, and another cable"),
                match modes.is_negotiated {
                    Some(false) => format!("{command} autoneg off speed {mbit_per_s} duplex {duplex}"),
                    _ => "the old cable".to_owned(),
                },
            ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_mode_is_named_only_if_both_sides_offer_more() {
        let modes = |own: &[&str], peer: &[&str], negotiated| LinkModes {
            is_negotiated: Some(negotiated),
            supported: own.iter().map(|mode| (*mode).to_owned()).collect(),
            advertised: own.iter().map(|mode| (*mode).to_owned()).collect(),
            peer: peer.iter().map(|mode| (*mode).to_owned()).collect(),
        };
        let window = std::time::Duration::from_secs(1);
        let lost = |now| Losses { now, total: now, window };
        let judged = |mode, modes: &LinkModes, now| judge("eth0", mode, modes, lost(now), "");
        let gigabit = ["100baseT/Full", "1000baseT/Full"];
        let found = judged((100, "full"), &modes(&gigabit, &gigabit, true), 0).unwrap();
        assert!(found.what.contains("although both sides offer 1000"), "{}", found.what);
        assert_eq!(judged((100, "full"), &modes(&gigabit, &["100baseT/Full"], true), 0), None);
        assert_eq!(judged((100, "full"), &modes(&gigabit, &[], true), 0), None, "not known");
        assert_eq!(judged((1000, "full"), &modes(&gigabit, &gigabit, true), 0), None);
        let half = judged((100, "half"), &modes(&gigabit, &[], true), 5).unwrap();
        assert_eq!(half.severity, Severity::High);
        let fixed = judged((100, "full"), &modes(&gigabit, &[], false), 0).unwrap();
        assert!(fixed.what.contains("fixed at 100"), "{}", fixed.what);
        assert_eq!(fixed.severity, Severity::Low);
    }
}
