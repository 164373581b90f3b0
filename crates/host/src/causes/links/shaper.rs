//! Interfaces that are slowed on purpose, often by something that ended long ago.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses};
use crate::causes::finding::{Finding, Notes, Severity, finding};
use crate::net::{QdiscLimits, QdiscState, rate_text};

pub(super) const CAUSE: Cause = Cause {
    title: "A shaper or an emulator slows the interface on purpose",
    symptom: "throughput ends at a round number, or every packet is late or lost by the same share, after a \
              test, a script or a CNI plug-in once set it",
    evidence: "`tc -s qdisc`: tbf, htb, cake with a rate below half of the link's, netem with its delay and \
               loss; their drops",
    remedy: "tc qdisc del dev IF root, if its author agrees",
    undo: "the command that makes it again, or what `tc -d qdisc show` printed before",
    counters: &["tx_dropped"],
    references: &[
        "tc-tbf(8)",
        "tc-netem(8)",
        "https://github.com/RefugeeHotspot/RefugeeHotspot/issues/67",
    ],
    is_of_forwarding: true,
    ..Cause::new("shaper", check)
};

/// Rate from which a shaper of a link of unknown speed is not reported, bits per second.
const UNKNOWN_LINK: u64 = 100_000_000;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(counters) = notes.window(view) else { return };
    for (shaper, limits, drops) in counters.shapers() {
        let Some(link) = view.on_path(shaper.interface) else { continue };
        let speed = view.system.read_net(&format!("{}/speed", link.name)).ok();
        let link_bits_per_s =
            speed.and_then(|text| text.parse::<u64>().ok()).map(|mbit| mbit * 1_000_000);
        let judged = judge(shaper, limits, drops, link_bits_per_s, &link.name, &view.prefix());
        let length = view.system.read_net(&format!("{}/tx_queue_len", link.name)).ok();
        let has_no_queue = length.as_deref() == Some("0") && shaper.kind != "netem";
        if has_no_queue && drops.now > 0 {
            notes.find(without_queue(shaper, drops, &link.name, &view.prefix()));
        } else {
            judged.into_iter().for_each(|found| notes.find(found));
        }
    }
}

/// The queues of a shaper's classes are as long as the interface's, which was made without one.
fn without_queue(shaper: &QdiscState, drops: Losses, name: &str, prefix: &str) -> Finding {
    let kind = &shaper.kind;
    let set = format!("{prefix}ip link set {name} txqueuelen");
    let what = format!(
        "packets were dropped by the shaper ({kind}) of {name}, whose queues have room for none: its txqueuelen is 0"
    );
    finding(drops.severity(), drops.sentence(&what))
        .counted(drops, "packets")
        .read(format!("drops of the {kind} of {name}"), drops.evidence())
        .read(format!("/sys/class/net/{name}/tx_queue_len"), "0")
        .because(
            "a class gets a FIFO of txqueuelen packets when it is made, and virtual interfaces may have 0 \
             (tc-htb(8), tc-pfifo(8))",
        )
        .effect("packets wait for the rate instead of being dropped")
        .risk("a longer queue adds latency")
        .change(
            format!("{set} 1000, then make the classes of {kind} again, or give each a pfifo of its own"),
            format!("{set} 0"),
        )
}

/// A finding, unless the shaper leaves half of the link.
///
/// - `link_bits_per_s`: speed of the interface, if it has one.
fn judge(
    shaper: &QdiscState,
    limits: QdiscLimits,
    drops: Losses,
    link_bits_per_s: Option<u64>,
    name: &str,
    prefix: &str,
) -> Option<Finding> {
    let kind = &shaper.kind;
    let (severity, what, value) = match limits {
        QdiscLimits::Bucket { bits_per_s, .. } | QdiscLimits::Rate { bits_per_s } => {
            let most = link_bits_per_s.map_or(UNKNOWN_LINK, |speed| speed / 2);
            if bits_per_s >= most {
                return None;
            }
            let is_far_below = bits_per_s < most / 5;
            let severity = if is_far_below { Severity::Medium } else { Severity::Low };
            let rate = rate_text(bits_per_s);
            (severity, format!("{name} sends at most {rate}: it has a shaper ({kind})"), rate)
        }
        QdiscLimits::Impaired { delay_ns, loss_ppm } => {
            let value =
                format!("delay {:.1} ms, loss {} %", delay_ns as f64 / 1e6, loss_ppm as f64 / 1e4);
            (Severity::Medium, format!("{name} delays or loses what it sends ({kind})"), value)
        }
    };
    let place = if shaper.is_root() { "root" } else { "of a class" };
    let (change, undo) = if shaper.is_root() {
        let change = format!("{prefix}tc qdisc del dev {name} root");
        let undo = match limits {
            QdiscLimits::Bucket { bits_per_s, burst_bytes, queue_bytes } => format!(
                "{prefix}tc qdisc add dev {name} root {kind} rate {bits_per_s}bit burst {burst_bytes} \
                 limit {queue_bytes}"
            ),
            _ => format!(
                "make it again: `{prefix}tc -d qdisc show dev {name}` and `tc -d class show dev {name}`, \
                 printed before, say how"
            ),
        };
        (change, undo)
    } else {
        (
            format!(
                "remove the class that has it: `{prefix}tc -d qdisc show dev {name}` shows the tree"
            ),
            "make the class again as that showed it".to_owned(),
        )
    };
    let severity = if drops.now > 0 { Severity::High } else { severity };
    let speed = link_bits_per_s.map_or("unknown".to_owned(), rate_text);
    Some(
        finding(severity, what)
            .read(format!("RTM_GETQDISC of {name}: {kind}, {place}"), value)
            .read(format!("drops of the {kind} of {name}"), drops.evidence())
            .read(format!("/sys/class/net/{name}/speed"), speed)
            .because(
                "packets wait in its queue and are dropped when that is full; tests, scripts and CNI \
                 plug-ins leave shapers behind (tc(8))",
            )
            .effect("the interface sends as fast as its link")
            .risk("a shaper that is wanted protects a slower link behind it: ask its author")
            .change(change, undo),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Losses = Losses { now: 0, total: 0, window: std::time::Duration::ZERO };

    fn judged(limits: QdiscLimits, drops: Losses, link: Option<u64>) -> Option<(Severity, String)> {
        let shaper = QdiscState { kind: "tbf".into(), parent: u32::MAX, ..Default::default() };
        judge(&shaper, limits, drops, link, "eth0", "").map(|found| (found.severity, found.what))
    }

    #[test]
    fn a_rate_is_judged_by_the_link_and_by_its_drops() {
        let rate = |bits_per_s| QdiscLimits::Rate { bits_per_s };
        let (mbit, link) = (1_000_000, Some(1_000_000_000));
        assert_eq!(judged(rate(500 * mbit), NONE, link), None, "half of the link is left");
        let (severity, what) = judged(rate(mbit), NONE, link).unwrap();
        assert_eq!(severity, Severity::Medium);
        assert!(what.contains("1 Mbit/s"), "{what}");
        assert_eq!(judged(rate(400 * mbit), NONE, link).unwrap().0, Severity::Low);
        let dropping = Losses { now: 1, total: 9, ..NONE };
        assert_eq!(judged(rate(400 * mbit), dropping, link).unwrap().0, Severity::High);
        assert_eq!(judged(rate(200 * mbit), NONE, None), None, "an unknown link");
        assert!(judged(rate(99 * mbit), NONE, None).is_some());
    }

    #[test]
    fn delay_and_loss_are_named_at_any_rate() {
        let limits = QdiscLimits::Impaired { delay_ns: 20_000_000, loss_ppm: 10_000 };
        let shaper = QdiscState { kind: "netem".into(), parent: u32::MAX, ..Default::default() };
        let found = judge(&shaper, limits, NONE, None, "eth0", "").unwrap();
        assert_eq!(found.evidence[0].value, "delay 20.0 ms, loss 1 %");
        assert_eq!(found.change, "tc qdisc del dev eth0 root");
    }
}
