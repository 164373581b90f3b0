//! Datagrams whose fragments do not all arrive.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Notes, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "fragmented datagrams cannot be put together",
    symptom: "large datagrams are lost and small ones arrive; after a burst of loss all large ones for up to 30 s",
    evidence: "IpReasmFails, IpReasmTimeout, IpReasmReqds and those of IPv6; datagrams that wait and their memory \
               (FRAG in /proc/net/sockstat) against net.ipv4.ipfrag_high_thresh",
    remedy: "datagrams that fit into the MTU; let fragments pass the filters on the way; `sysctl -w \
             net.ipv4.ipfrag_high_thresh=134217728 net.ipv4.ipfrag_time=3` if the memory is full",
    undo: "`sysctl -w net.ipv4.ipfrag_high_thresh=4194304 net.ipv4.ipfrag_time=30`",
    counters: &["IpReasmFails", "IpReasmTimeout", "Ip6ReasmFails", "Ip6ReasmTimeout"],
    reasons: &["FRAG_REASM_TIMEOUT", "FRAG_TOO_FAR", "DUP_FRAG"],
    references: &[
        "Documentation/networking/ip-sysctl.rst",
        "ros2/ros2_documentation#700",
        "autowarefoundation/autoware_universe#1427",
    ],
    ..Cause::new("reasm", check)
};

/// Fragmented datagrams that were lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Torn {
    /// Given up, and now also those that wait for a fragment.
    pub(super) lost: Losses,
    fails: Losses,
    timeouts: Losses,
    waiting: u64,
}

impl Torn {
    /// `None` if there is none.
    pub(super) fn of(window: &Window) -> Option<Self> {
        let fails = window.sum(&["IpReasmFails", "Ip6ReasmFails"]);
        let timeouts = window.sum(&["IpReasmTimeout", "Ip6ReasmTimeout"]);
        let whole = window.sum(&["IpReasmOKs", "Ip6ReasmOKs"]);
        let fragments = window.sum(&["IpReasmReqds", "Ip6ReasmReqds"]);
        const WAITING: [&str; 2] = ["sockstat FRAG inuse", "sockstat6 FRAG6 inuse"];
        let waiting = window.sum(&WAITING);
        // Fragments of a whole datagram arrive within microseconds: those of both samples miss one.
        let waiting = waiting.total.min(waiting.total - waiting.now);
        let is_torn_now = waiting >= 2 && waiting * 10 > whole.now && fragments.now > 0;
        let mut lost = fails;
        if is_torn_now {
            lost.now = lost.now.max(fragments.now.saturating_sub(whole.now).min(waiting));
            lost.total = lost.total.max(waiting);
        }
        (lost.total > 0).then_some(Torn { lost, fails, timeouts, waiting })
    }
}

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let Some(torn) = Torn::of(window) else { return };
    let used = window.latest("sockstat FRAG memory").unwrap_or(0);
    let limit = view.number("net/ipv4/ipfrag_high_thresh").unwrap_or(u64::MAX);
    let time = view.number("net/ipv4/ipfrag_time").unwrap_or(30);
    let is_memory_full = used.saturating_mul(4) >= limit.saturating_mul(3)
        || torn.fails.now > torn.timeouts.now && torn.timeouts.total * 2 < torn.fails.total;
    let binds = if is_memory_full {
        format!("their memory is full ({used} of {limit} bytes), so that new ones are dropped")
    } else {
        format!("a fragment of each is missing, and the others wait {time} s for it")
    };
    let sysctl = format!("{}sysctl -w", view.prefix());
    let settings = format!("net.ipv4.ipfrag_high_thresh={limit} net.ipv4.ipfrag_time={time}");
    let (change, risk) = if is_memory_full {
        (
            format!("{sysctl} net.ipv4.ipfrag_high_thresh=134217728 net.ipv4.ipfrag_time=3"),
            "memory, which senders of forged fragments can fill",
        )
    } else {
        (
            format!(
                "datagrams that fit into the MTU, at the sender; let fragments pass the rules and devices on the \
                 way; {sysctl} net.ipv4.ipfrag_time=3 frees the memory earlier"
            ),
            "fragments that are later than 3 s are lost",
        )
    };
    notes.find(
        finding(
            torn.lost.severity(),
            format!(
                "{}: {binds}",
                torn.lost.sentence("fragmented datagrams could not be put together")
            ),
        )
        .counted(torn.lost, "datagrams")
        .read("/proc/net/snmp and snmp6: ReasmFails", torn.fails.evidence())
        .read("/proc/net/snmp and snmp6: ReasmTimeout", torn.timeouts.evidence())
        .read(
            "/proc/net/sockstat: FRAG, at both samples",
            format!("{} wait, {used} bytes", torn.waiting),
        )
        .read("/proc/sys/net/ipv4/ipfrag_high_thresh", limit.to_string())
        .because(
            "a datagram above the MTU travels in fragments, and is lost with any of them \
             (Documentation/networking/ip-sysctl.rst, ipfrag_high_thresh and ipfrag_time)",
        )
        .effect("large datagrams arrive")
        .risk(risk)
        .change(change, format!("{sysctl} {settings}")),
    );
}
