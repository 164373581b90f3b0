//! Counted drops by which no program loses anything.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Finding, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "rx_dropped counts frames that no program wants",
    symptom: "a monitor alarms about dropped packets, slowly and evenly, and nothing is missing",
    evidence: "rx_dropped grows, while the backlog of CPUs (softnet_stat), the ring and the driver drop \
               nothing; drop reason UNHANDLED_PROTO; `/proc/net/ptype` has the protocols with a handler; \
               rx_nohandler of a bond's passive port",
    remedy: "none is needed; `tcpdump -e` shows the sender of such frames, such as a switch's loop protection",
    undo: "nothing to undo",
    counters: &["rx_dropped", "rx_nohandler"],
    reasons: &["UNHANDLED_PROTO"],
    references: &[
        "include/uapi/linux/if_link.h (rx_dropped, rx_nohandler)",
        "https://github.com/netdata/netdata/issues/5158",
    ],
    is_of_forwarding: true,
    ..Cause::new("rx-dropped-benign", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    for link in view.interfaces() {
        let grown = |counter| window.link(&link.name, counter).now > 0;
        if !["rx_dropped", "rx_nohandler"].into_iter().any(grown) {
            continue;
        }
        // Frames that are too long for this end of a veth have a finding of their own.
        if super::oversize::other_end(view, link)
            .is_some_and(|peer| peer.mtu_bytes > link.mtu_bytes)
        {
            continue;
        }
        let handled = view.proc_net("ptype").unwrap_or_default();
        let judged = judge(window, &link.name, &protocols(&handled), &view.prefix());
        judged.into_iter().for_each(|found| notes.find(found));
    }
}

/// Ethertypes that a handler takes, as `/proc/net/ptype` has them.
fn protocols(table: &str) -> String {
    let first = table.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let mut types: Vec<&str> = first.filter(|word| u16::from_str_radix(word, 16).is_ok()).collect();
    types.sort_unstable();
    types.dedup();
    types.join(" ")
}

/// Most frames a second that are taken for those of a protocol without a handler.
const SLOW_PER_S: f64 = 1000.0;

fn judge(window: &Window, name: &str, handled: &str, prefix: &str) -> Option<Finding> {
    let (dropped, passive) = (window.link(name, "rx_dropped"), window.link(name, "rx_nohandler"));
    let lost = if dropped.now > 0 { dropped } else { passive };
    let backlog = window.sum(&["softnet dropped", "softnet flow_limit"]);
    let missed = ["rx_missed_errors", "rx_fifo_errors", "rx_errors"]
        .map(|counter| window.link(name, counter));
    let by_driver = window.of_prefix(&format!("ethtool {name} ")).any(|(counter, lost)| {
        lost.now > 0 && ["drop", "OOB", "discard"].iter().any(|w| counter.contains(w))
    });
    let is_lost = backlog.now > 0 || by_driver || missed.iter().any(|missed| missed.now > 0);
    if lost.now == 0 || is_lost || lost.per_second() > SLOW_PER_S {
        return None;
    }
    let (what, why) = if dropped.now > 0 {
        ("has no protocol here that takes them (UNHANDLED_PROTO)", "rx_dropped")
    } else {
        ("is a passive port of a bond or team, which takes none", "rx_nohandler")
    };
    Some(
        finding(
            Severity::Info,
            format!(
                "{name} counts {:.0} dropped frames a second that no program wants: it {what}",
                lost.per_second()
            ),
        )
        .seen(lost.confidence())
        .costs("nothing that a program wants")
        .read(format!("/sys/class/net/{name}/statistics/{why}"), lost.evidence())
        .read("/proc/net/softnet_stat: dropped", backlog.evidence())
        .read("/proc/net/ptype: protocols with a handler", handled)
        .because(
            "a frame whose ethertype has no handler is counted as dropped, such as loop protection of a \
             switch (0x8899), LLDP without a daemon, or another VLAN (include/uapi/linux/if_link.h)",
        )
        .effect("the counter stands still; nothing gets faster")
        .risk("none known")
        .change(
            format!("nothing; `{prefix}tcpdump -e -n -c 20 -i {name} not ip and not ip6 and not arp` shows them"),
            "nothing to undo",
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_drops_are_benign_unless_something_else_drops() {
        let judged = |counters: &[(&str, u64, u64)]| {
            judge(&Window::with_counters(counters), "eth0", "0800 0806", "")
        };
        let few = ("link eth0 rx_dropped", 100, 140);
        let found = judged(&[few]).unwrap();
        assert_eq!(found.severity, Severity::Info);
        assert!(found.what.contains("40 dropped frames a second"), "{}", found.what);
        assert!(judged(&[("link eth0 rx_nohandler", 0, 9)]).unwrap().what.contains("passive port"));
        assert_eq!(judged(&[few, ("softnet dropped", 0, 40)]), None);
        assert_eq!(judged(&[few, ("ethtool eth0 rx_drops", 0, 40)]), None);
        assert_eq!(judged(&[("link eth0 rx_dropped", 0, 50_000)]), None);
        assert_eq!(judged(&[("link eth0 rx_dropped", 500, 500)]), None);
    }

    #[test]
    fn protocols_of_all_interfaces_and_of_one_are_listed_once() {
        let table = "Type Device      Function\n0800          ip_rcv\n0004          llc_rcv\nALL  eth0     \
                     packet_rcv\n0800 eth1     x\n";
        assert_eq!(protocols(table), "0004 0800");
    }
}
