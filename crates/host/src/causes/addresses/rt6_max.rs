//! No room for another route of IPv6.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};

/// Share of the limit from which it is called nearly reached, percent.
const NEARLY_FULL: u64 = 90;

pub(super) const CAUSE: Cause = Cause {
    title: "The limit of IPv6 routes is reached",
    symptom: "IPv6 stops for all programs at once: ENETUNREACH although the route is listed; the kernel logs \"Route cache is full: \
              consider increasing sysctl net.ipv6.route.max_size\"",
    evidence: "entries of /proc/net/rt6_stats close to net.ipv6.route.max_size, 4096 before Linux 6.3",
    remedy: "net.ipv6.route.max_size above the number of routes and of active destinations",
    undo: "4096",
    reasons: &["IP_OUTNOROUTES"],
    references: &[
        "https://docs.kernel.org/networking/ip-sysctl.html",
        "https://github.com/alibaba/hybridnet/issues/326",
        "https://github.com/vyos/vyatta-cfg-system/pull/107",
    ],
    is_of_forwarding: true,
    ..Cause::new("rt6-max", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let limit = evidence.number("net/ipv6/route/max_size").unwrap_or(0);
    let Ok(stats) = evidence.proc_net("rt6_stats") else { return };
    if let Some(found) = judge(&stats, limit, &evidence.prefix()) {
        notes.find(found);
    }
}

/// - `stats`: text of `/proc/net/rt6_stats`.
/// - `limit`: 0 for none.
fn judge(stats: &str, limit: u64, prefix: &str) -> Option<Finding> {
    /// Source: net/ipv6/route.c, rt6_stats_seq_show: the sixth number counts entries against the limit.
    const ENTRIES: usize = 5;
    let entries = stats.split_whitespace().nth(ENTRIES)?;
    let entries = u64::from_str_radix(entries, 16).ok()?;
    if limit == 0 || entries * 100 < limit * NEARLY_FULL {
        return None;
    }
    let is_full = entries >= limit;
    let severity = if is_full { Severity::High } else { Severity::Medium };
    let end = if is_full {
        "new destinations are unreachable"
    } else {
        "soon, new destinations are unreachable"
    };
    let sysctl = format!("{prefix}sysctl -w net.ipv6.route.max_size");
    Some(
        finding(severity, format!("IPv6 has {entries} of at most {limit} routes in use: {end}"))
            .seen(if is_full { Confidence::Now } else { Confidence::SetUp })
            .read("/proc/net/rt6_stats: entries", entries.to_string())
            .read("/proc/sys/net/ipv6/route/max_size", limit.to_string())
            .because(
                "before Linux 6.3, routes and active destinations share a limit, above which a lookup fails with ENETUNREACH \
                 (Documentation/networking/ip-sysctl.rst, route/max_size)",
            )
            .effect("all routes are used")
            .risk("some memory for each route")
            .change(format!("{sysctl}={}", (entries * 4).max(16_384)), format!("{sysctl}={limit}")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_compared_with_the_limit_of_the_kernel() {
        let judged = |entries: &str, limit| {
            let stats = format!("0010 0008 0100 0020 0001 {entries} 0003\n");
            judge(&stats, limit, "").map(|found| found.severity)
        };
        assert_eq!(judged("1000", 4096), Some(Severity::High));
        assert_eq!(judged("0f00", 4096), Some(Severity::Medium));
        assert_eq!(judged("0100", 4096), None);
        assert_eq!(judged("1000", 2_147_483_647), None, "Linux 6.3 and newer");
        assert_eq!(judge("", 4096, "").map(|found| found.severity), None);
    }
}
