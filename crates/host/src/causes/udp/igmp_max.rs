//! Sockets that have joined as many groups as they may.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "a socket has joined as many groups as it may",
    symptom: "a program gets the first 20 of its groups and no other; or it fails at its start with errno 105, \
              `No buffer space available`",
    evidence: "memberships of sockets in /proc/net/igmp against net.ipv4.igmp_max_memberships (20, for each socket)",
    remedy: "`sysctl -w net.ipv4.igmp_max_memberships=1024`, and restart the program; or more sockets in it",
    undo: "`sysctl -w net.ipv4.igmp_max_memberships=20`",
    references: &[
        "ip(7)",
        "pali/igmpproxy#30",
        "troglobit/smcroute#46",
        "python-zeroconf/python-zeroconf#1510",
    ],
    ..Cause::new("igmp-max", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(max) = view.number("net/ipv4/igmp_max_memberships").filter(|max| *max > 0) else {
        return;
    };
    // The kernel itself is a member of 224.0.0.1 everywhere.
    let is_all_hosts = |group: std::net::IpAddr| group == std::net::Ipv4Addr::new(224, 0, 0, 1);
    let joined = view.groups().iter().filter(|one| one.group.is_ipv4() && !is_all_hosts(one.group));
    let total: u64 = joined.clone().map(|one| u64::from(one.user_count)).sum();
    if total < max {
        return;
    }
    // A full multiple is the fingerprint of sockets that went to their limit.
    let is_exact = total.is_multiple_of(max) && total / max <= 8;
    let groups: std::collections::BTreeSet<_> = joined.map(|one| one.group).collect();
    let what = match total / max {
        1 if is_exact => format!(
            "sockets have joined {max} groups, as many as one of them may: the next to join fails (ENOBUFS)"
        ),
        many if is_exact => format!(
            "sockets have joined {total} groups, {many} times the {max} that one of them may: the next to join may \
             fail (ENOBUFS)"
        ),
        _ => format!(
            "sockets have joined {total} groups together, and one of them may join {max} (ENOBUFS above)"
        ),
    };
    let sysctl = format!("{}sysctl -w net.ipv4.igmp_max_memberships", view.prefix());
    notes.find(
        finding(if is_exact { Severity::Medium } else { Severity::Low }, what)
            .seen(if is_exact { Confidence::SetUp } else { Confidence::Possible })
            .read("/proc/net/igmp: users of all groups but 224.0.0.1", format!("{total}, of {} groups", groups.len()))
            .read("/proc/sys/net/ipv4/igmp_max_memberships", max.to_string())
            .because(
                "setsockopt(IP_ADD_MEMBERSHIP) fails with ENOBUFS above it, and many programs go on without the \
                 group (ip(7))",
            )
            .effect("the program gets all its groups")
            .risk("a card with a short list of addresses may pass all multicast to the host")
            .change(format!("{sysctl}=1024, and restart the program"), format!("{sysctl}={max}")),
    );
}
