//! Transmit queues that stop until the watchdog resets the card.

use std::time::Duration;

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Message};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "The card's transmit unit hangs and the watchdog resets it",
    symptom: "all connections stop for some seconds, at times several times a day, and the link goes down \
              and up; the kernel's log has NETDEV WATCHDOG or Hardware Unit Hang",
    evidence: "the kernel's log: `NETDEV WATCHDOG: IF (driver): transmit queue N timed out`, `Detected \
               Hardware Unit Hang`; `/sys/class/net/IF/queues/tx-*/tx_timeout`",
    remedy: "segmentation offload off (`ethtool -K IF tso off gso off`, the known cure for e1000e), a newer \
             driver or firmware, no power saving of the PCIe link",
    undo: "ethtool -K IF tso on gso on",
    counters: &["tx_timeout"],
    references: &[
        "net/sched/sch_generic.c, dev_watchdog",
        "https://github.com/Ysurac/openmptcprouter/issues/3114",
    ],
    is_of_forwarding: true,
    ..Cause::new("tx-hang", check)
};

/// Age up to which a hang is of now.
const RECENT: Duration = Duration::from_secs(600);

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let cards: Vec<&str> = super::cards(view).map(|link| link.name.as_str()).collect();
    if cards.is_empty() {
        return;
    }
    let log = match view.kernel_log() {
        Ok(log) => log,
        Err(why) => {
            // The counters of the queues are there without it.
            notes.unseen(why);
            &[]
        }
    };
    for name in cards {
        let driver = view.system.driver(name);
        let judged = judge(name, &driver, timeouts(view, name), log, view.uptime(), &view.prefix());
        judged.into_iter().for_each(|found| notes.find(found));
    }
}

/// Times that transmit queues of an interface timed out.
pub(super) fn timeouts(view: &Evidence, name: &str) -> u64 {
    let queues = view.system.queues(name, "tx").unwrap_or_default();
    let counts = queues.iter().filter_map(|queue| {
        let file = format!("{name}/queues/tx-{queue}/tx_timeout");
        view.system.read_net(&file).ok()?.parse::<u64>().ok()
    });
    counts.sum()
}

/// Words of the log of the kernel and of drivers, in any case.
const WORDS: [&str; 5] =
    ["netdev watchdog", "unit hang", "transmit queue", "tx timeout", "adapter reset"];

fn judge(
    name: &str,
    driver: &str,
    timeout_count: u64,
    log: &[Message],
    uptime: Option<Duration>,
    prefix: &str,
) -> Option<Finding> {
    let of_card = |text: &str| text.split([' ', ':', '(', ',']).any(|word| word == name);
    let hangs: Vec<&Message> = log
        .iter()
        .filter(|message| of_card(&message.text))
        .filter(|message| {
            let text = message.text.to_lowercase();
            WORDS.iter().any(|word| text.contains(word))
        })
        .collect();
    if timeout_count == 0 && hangs.is_empty() {
        return None;
    }
    let age = hangs.last().and_then(|last| Some(uptime?.saturating_sub(last.at)));
    let is_recent = age.is_some_and(|age| age <= RECENT);
    let when = age.map_or(String::new(), |age| match age.as_secs() {
        seconds if seconds < 120 => format!(", {seconds} s ago the last time"),
        seconds => format!(", {} min ago the last time", seconds / 60),
    });
    let times = timeout_count.max(hangs.len() as u64);
    let (severity, confidence) = if is_recent {
        (Severity::High, Confidence::Now)
    } else {
        (Severity::Low, Confidence::Before)
    };
    let mut found = finding(
        severity,
        format!(
            "the card of {name} ({driver}) stopped sending and was reset {times} times{when}: \
             connections pause for seconds each time"
        ),
    )
    .seen(confidence)
    .read(format!("/sys/class/net/{name}/queues/tx-*/tx_timeout"), timeout_count.to_string());
    if let Some(last) = hangs.last() {
        let text = crate::text::printable(&last.text, 160);
        found = found.read(format!("/dev/kmsg, {} messages, the last one", hangs.len()), text);
    }
    let command = format!("{prefix}ethtool -K {name} tso");
    Some(
        found
            .because(
                "a queue with packets that sent none for five seconds is reset by the watchdog, with the \
                 card (net/sched/sch_generic.c); cards hang on descriptors of large segments, power saving \
                 of their link, or old firmware",
            )
            .effect("the card keeps sending")
            .risk("more CPU time for each byte sent; a fault of hardware stays")
            .change(format!("{command} off gso off"), format!("{command} on gso on")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(count: u64, texts: &[&str], uptime_s: u64) -> Option<Finding> {
        let log: Vec<Message> = texts
            .iter()
            .map(|text| Message { at: Duration::from_secs(100), text: (*text).to_owned() })
            .collect();
        judge("eno1", "e1000e", count, &log, Some(Duration::from_secs(uptime_s)), "")
    }

    #[test]
    fn hang_is_named_by_log_or_counter_and_other_messages_are_not_one() {
        let hang = "NETDEV WATCHDOG: eno1 (e1000e): transmit queue 0 timed out 5003 ms";
        let found =
            judged(0, &[hang, "e1000e 0000:00:1f.6 eno1: Detected Hardware Unit Hang:"], 130);
        let found = found.unwrap();
        assert_eq!(found.severity, Severity::High);
        assert!(found.what.contains("reset 2 times, 30 s ago"), "{}", found.what);
        assert_eq!(judged(0, &[hang], 90_000).unwrap().severity, Severity::Low);
        assert_eq!(judged(3, &[], 90_000).unwrap().severity, Severity::Low);
        assert_eq!(
            judged(0, &["NETDEV WATCHDOG: eno12 (e1000e): transmit queue 0 timed out"], 130),
            None
        );
        assert_eq!(judged(0, &["e1000e: eno1 NIC Link is Up 1000 Mbps Full Duplex"], 130), None);
    }
}
