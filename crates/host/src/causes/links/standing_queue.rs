//! Queues that do not drain: each packet waits behind them.

use std::collections::BTreeSet;

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::net::{Link, QdiscState, TcpSocket, TcpState};

pub(super) const CAUSE: Cause = Cause {
    title: "A queue that never drains delays every packet behind it",
    symptom: "ping and small requests take tenths of a second or seconds while something else sends or \
              receives much, and are quick when the line is idle; nothing is lost",
    evidence: "backlog of the root queueing discipline in both samples (RTM_GETQDISC, `tc -s qdisc`), \
               divided by the bytes that left it in between; or round-trip times of TCP (TCP_INFO, \
               `ss -ti`) far above their minimum while this host has no queue",
    remedy: "fq_codel or cake at the queue, or a shaper just below the rate of the slow line; removal of a \
             shaper that is not wanted",
    undo: "the old discipline",
    references: &[
        "tc-fq_codel(8)",
        "tc-cake(8)",
        "RFC 7567",
        "https://github.com/openwrt/openwrt/issues/14204",
    ],
    is_of_forwarding: true,
    ..Cause::new("standing-queue", check)
};

/// Delays from which a finding is made, and is high, milliseconds.
const SLOW_MS: f64 = 20.0;
const VERY_SLOW_MS: f64 = 200.0;
/// Disciplines that keep the packets of flows apart, so that one with a long queue delays itself alone.
const FAIR: [&str; 6] = ["fq", "fq_codel", "fq_pie", "cake", "sfq", "netem"];

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let before = notes.report.findings.len();
    for (earlier, now) in window.qdiscs().filter(|(_, now)| now.is_root() && now.queued_bytes > 0) {
        let (Some(earlier), Some(link)) = (earlier, view.on_path(now.interface)) else { continue };
        let mut own = window.after.qdiscs.iter().filter(|one| one.interface == now.interface);
        if own.any(|one| FAIR.contains(&one.kind.as_str())) {
            continue;
        }
        let judged = judge(earlier, now, window.time().as_secs_f64(), link, &view.prefix());
        judged.into_iter().for_each(|found| notes.find(found));
    }
    if notes.report.findings.len() == before
        && let Some(found) = beyond(window)
    {
        notes.find(found);
    }
}

/// - `seconds`: time between the two states.
fn judge(
    earlier: &QdiscState,
    now: &QdiscState,
    seconds: f64,
    link: &Link,
    prefix: &str,
) -> Option<Finding> {
    let standing_bytes = earlier.queued_bytes.min(now.queued_bytes);
    let sent_bytes = now.sent_bytes.saturating_sub(earlier.sent_bytes) as f64;
    if standing_bytes == 0 || sent_bytes == 0.0 {
        return None;
    }
    let bytes_per_s = sent_bytes / seconds.max(1e-3);
    let delay_ms = f64::from(standing_bytes) / bytes_per_s * 1e3;
    let severity = match delay_ms {
        delay if delay < SLOW_MS => return None,
        delay if delay < VERY_SLOW_MS => Severity::Medium,
        _ => Severity::High,
    };
    let (name, kind) = (&link.name, &now.kind);
    let rate = crate::net::rate_text((bytes_per_s * 8.0) as u64);
    let tc = format!("{prefix}tc qdisc");
    let (change, undo) = match now.limits {
        // A bucket has one class, in which a discipline may be put.
        Some(_) if kind == "tbf" => (
            format!("{tc} add dev {name} parent {}1 fq_codel   (or remove the shaper)", now.name()),
            format!("{tc} del dev {name} parent {}1", now.name()),
        ),
        Some(_) => (
            format!(
                "{tc} add dev {name} parent CLASS fq_codel for each class (`tc class show dev {name}`)"
            ),
            format!("{tc} del dev {name} parent CLASS"),
        ),
        None => (
            format!("{tc} replace dev {name} root fq_codel"),
            format!("{tc} replace dev {name} root {kind}"),
        ),
    };
    Some(
        finding(
            severity,
            format!(
                "each packet that {name} sends waits about {delay_ms:.0} ms: {} KB stand in its queue \
                 ({kind}), which drains at {rate}",
                standing_bytes / 1000
            ),
        )
        .seen(Confidence::Now)
        .costs(format!("{delay_ms:.0} ms for each packet"))
        .read(
            format!("RTM_GETQDISC of {name}: backlog of the {kind}, at both moments"),
            format!("{} and {} bytes", earlier.queued_bytes, now.queued_bytes),
        )
        .read(format!("bytes that left the {kind} of {name}"), format!("{rate} within {seconds:.1} s"))
        .because(
            "senders fill any queue that does not drop; all packets behind it wait for its bytes at the \
             rate of the line (RFC 7567)",
        )
        .effect("packets of other flows wait for a few milliseconds at most")
        .risk("flows that fill the queue lose packets, by which they learn the rate")
        .change(change, undo),
    )
}

/// Least inflation of a round trip that is reported: this long and this many times the shortest one.
const INFLATED_US: u32 = 100_000;
const INFLATED_TIMES: u32 = 4;

/// True for a connection that sends, and whose packets wait somewhere.
fn is_inflated(socket: &TcpSocket) -> bool {
    let info = &socket.info;
    socket.state == TcpState::Established
        && !socket.remote.ip().is_loopback()
        && info.unacked > 10
        && info.min_rtt > 0
        && info.min_rtt != u32::MAX
        && info.rtt >= info.min_rtt.saturating_add(INFLATED_US)
        && info.rtt / INFLATED_TIMES >= info.min_rtt
}

/// A queue that is not in this host, as round-trip times show it.
fn beyond(window: &Window) -> Option<Finding> {
    let earlier = window.before.tcp.iter().filter(|one| is_inflated(one));
    let earlier: BTreeSet<u32> = earlier.map(|one| one.inode).collect();
    let waiting = window.after.tcp.iter().filter(|one| is_inflated(one));
    let worst =
        waiting.filter(|one| earlier.contains(&one.inode)).max_by_key(|one| one.info.rtt)?;
    let (rtt_ms, least_ms) = (worst.info.rtt / 1000, f64::from(worst.info.min_rtt) / 1e3);
    let to = worst.remote;
    Some(
        finding(
            Severity::Medium,
            format!(
                "packets to {to} wait in a queue beyond this host: a round trip takes {rtt_ms} ms, and \
                 {least_ms:.1} ms when the line is idle"
            ),
        )
        .seen(Confidence::Now)
        .costs(format!("{:.0} ms for each packet of that way", f64::from(rtt_ms) - least_ms))
        .read(format!("TCP_INFO of the connection to {to}: rtt, min_rtt"), format!("{rtt_ms} and {least_ms:.1} ms"))
        .read("TCP_INFO: segments without acknowledgement", worst.info.unacked.to_string())
        .read("RTM_GETQDISC: backlog here", "no queue of 20 ms")
        .because(
            "a sender fills the queue before the slowest line, and packets of all flows wait in it \
             (RFC 7567); it is at a router or modem, where this host cannot see it",
        )
        .effect("round trips take little more than on an idle line")
        .risk("the shaper takes some percent of the rate, and is wrong when the line's rate changes")
        .change(
            "at the host or router before the slow line: tc qdisc replace dev INTERFACE root cake bandwidth \
             RATE, with a rate a little below the line's",
            "tc qdisc del dev INTERFACE root",
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay_of(before: u32, after: u32, sent_bytes: u64) -> Option<(Severity, String)> {
        let state = |queued_bytes, sent_bytes| QdiscState {
            kind: "pfifo_fast".into(),
            parent: u32::MAX,
            queued_bytes,
            sent_bytes,
            ..QdiscState::default()
        };
        let found = judge(
            &state(before, 0),
            &state(after, sent_bytes),
            1.0,
            &Link::of_kind("eth0", None),
            "",
        );
        found.map(|found| (found.severity, found.what))
    }

    #[test]
    fn delay_is_what_stands_at_both_moments_by_the_rate() {
        let (severity, what) = delay_of(125_000, 300_000, 1_250_000).unwrap();
        assert_eq!(severity, Severity::Medium);
        assert!(what.contains("about 100 ms") && what.contains("10 Mbit/s"), "{what}");
        assert_eq!(delay_of(900_000, 900_000, 1_250_000).unwrap().0, Severity::High);
        // A burst that drains is not a standing queue; nor is a short one at a high rate.
        assert_eq!(delay_of(0, 300_000, 1_250_000), None);
        assert_eq!(delay_of(125_000, 125_000, 125_000_000), None);
    }
}
