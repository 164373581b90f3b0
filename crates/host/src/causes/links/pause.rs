//! Ethernet flow control, by which one slow side stops the other.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::net::ethtool;

pub(super) const CAUSE: Cause = Cause {
    title: "Ethernet pause frames slow the sender",
    symptom: "throughput ends below the rate of the link and all counters of drops are 0",
    evidence: "`ethtool -I -a IF`: tx_pause_frames (this host stops the switch), rx_pause_frames (the switch \
               stops this host); `ethtool -S`: pause and xoff counters, and the pause's duration",
    remedy: "a longer ring or a faster reader at the side that sends pause frames; ethtool -A IF rx off tx off",
    undo: "ethtool -A IF rx on tx on",
    counters: &["rx_pause_frames", "tx_pause_frames"],
    references: &[
        "ethtool(8), -A and --include-statistics",
        "https://github.com/NVIDIA/daqiri/issues/250",
    ],
    is_of_forwarding: true,
    ..Cause::new("pause", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    for link in super::cards(view) {
        let Some(window) = notes.window(view) else { return };
        let Some(found) = judge(window, &link.name, &view.prefix()) else { continue };
        let setting = view.system.within(|| ethtool::pause(link.index)).ok();
        notes.find(match setting {
            None => found,
            Some(now) => found.read(
                format!("ethtool -a {}", link.name),
                format!("rx {}, tx {}", super::on_off(now.is_on_rx), super::on_off(now.is_on_tx)),
            ),
        });
    }
}

/// Largest growth of the counters of pause frames of a direction, `rx` or `tx`, with the counter's name.
fn frames<'a>(window: &'a Window, prefix: &'a str, direction: &str) -> Option<(&'a str, Losses)> {
    let is_pause = |name: &str| {
        let lower = name.to_lowercase();
        let is_frames =
            lower.contains("pause") || lower.contains("xoff") || lower.contains("flow_control");
        is_frames && lower.contains(direction) && !is_duration(&lower) && !lower.contains("storm")
    };
    window.of_prefix(prefix).filter(|(name, _)| is_pause(name)).max_by_key(|(_, sent)| sent.now)
}

fn is_duration(name: &str) -> bool {
    name.contains("pause")
        && (name.contains("duration") || name.contains("usec") || name.contains("_us"))
}

/// Pause frames a second from which a finding is made.
const MANY_PER_S: f64 = 10.0;
/// Share of the time from which it is high.
const LARGE_SHARE: f64 = 0.1;

fn judge(window: &Window, name: &str, prefix: &str) -> Option<Finding> {
    let counters = format!("ethtool {name} ");
    let [sent, received] = ["tx", "rx"].map(|direction| frames(window, &counters, direction));
    let worst = [(true, sent), (false, received)]
        .into_iter()
        .filter_map(|(is_own, found)| found.map(|(counter, count)| (is_own, counter, count)))
        .max_by_key(|(_, _, count)| count.now)?;
    let (is_own, counter, count) = worst;
    if count.per_second() < MANY_PER_S {
        return None;
    }
    // Microseconds of pause within the window.
    let paused = window
        .of_prefix(&counters)
        .filter(|(name, _)| is_duration(name))
        .max_by_key(|(_, us)| us.now);
    let share = paused.map(|(_, us)| us.now as f64 / 1e6 / us.window.as_secs_f64().max(1e-3));
    let (what, side) = if is_own {
        ("this host is too slow and stops the switch", "receive rings and CPUs of this host")
    } else {
        (
            "the switch or the far end is too slow and stops this host",
            "the other side's rings and reader",
        )
    };
    let severity = match share {
        Some(share) if share >= LARGE_SHARE => Severity::High,
        _ => Severity::Medium,
    };
    let command = format!("{prefix}ethtool -A {name}");
    let mut found = finding(
        severity,
        format!("{name}: {what} with {:.0} pause frames a second", count.per_second()),
    )
    .seen(Confidence::Now)
    .costs(match share {
        Some(share) => format!("{:.1} % of the time of the link", share * 100.0),
        None => format!("{:.0} pauses a second", count.per_second()),
    })
    .read(format!("ethtool {name}: {counter}"), count.evidence());
    if let Some((counter, us)) = paused {
        found = found.read(format!("ethtool -S {name}: {counter}, microseconds"), us.evidence());
    }
    Some(
        found
            .because(
                "a receiver whose buffer fills asks the other side to stop, so that its losses show as time \
                 at the sender and never as drops (IEEE 802.3 annex 31B)",
            )
            .effect("the sender keeps its rate")
            .risk("without flow control a slow receiver drops frames instead")
            .change(
                format!("speed up {side}; or {command} rx off tx off"),
                format!("{command} rx on tx on"),
            ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_that_is_slow_follows_from_the_direction_of_pause_frames() {
        let judged =
            |counters: &[(&str, u64, u64)]| judge(&Window::with_counters(counters), "eth0", "");
        let own = judged(&[("ethtool eth0 pause tx_frames", 0, 900)]).unwrap();
        assert!(own.what.contains("this host is too slow"), "{}", own.what);
        assert_eq!(own.severity, Severity::Medium);
        let other = judged(&[
            ("ethtool eth0 rx_pause_ctrl_phy", 5, 9_000),
            ("ethtool eth0 rx_global_pause_duration", 0, 217_000),
        ]);
        let other = other.unwrap();
        assert!(other.what.contains("the far end is too slow"), "{}", other.what);
        assert_eq!(
            (other.severity, other.cost.as_deref()),
            (Severity::High, Some("21.7 % of the time of the link"))
        );
        assert_eq!(judged(&[("ethtool eth0 pause tx_frames", 900, 901)]), None);
        assert_eq!(judged(&[("ethtool eth0 rx_packets", 0, 900)]), None);
    }
}
