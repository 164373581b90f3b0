//! Router advertisements that a host which forwards ignores.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::Link;

pub(super) const CAUSE: Cause = Cause {
    title: "IPv6 forwarding was switched on, so that router advertisements are ignored and the default route is gone",
    symptom: "IPv6 of the host ends (`Network is unreachable`) some time after a container engine, a VPN or a script \
              was started, and comes back after a reboot",
    evidence: "net.ipv6.conf.IF.forwarding=1 beside accept_ra=1 and no default route, while Icmp6InRouterAdvertisements \
               grows",
    remedy: "`sysctl -w net.ipv6.conf.IF.accept_ra=2`, or a default route by hand",
    undo: "`sysctl -w net.ipv6.conf.IF.accept_ra=1`",
    counters: &["Icmp6InRouterAdvertisements", "Ip6OutNoRoutes"],
    reasons: &["IP_OUTNOROUTES"],
    references: &["Documentation/networking/ip-sysctl.rst (accept_ra)", "RFC 4861 section 6.3.4"],
    ..Cause::new("ra-ignored", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let seen = window.sum(&["Icmp6InRouterAdvertisements"]);
    if seen.total == 0 {
        return;
    }
    let Ok(routes) = view.routes() else { return };
    if routes.iter().any(|route| route.is_default() && route.is_ipv6) {
        return;
    }
    let setting = |link: &str, name: &str| {
        view.sysctl(&format!("net/ipv6/conf/{link}/{name}")).unwrap_or_default()
    };
    let ignores = |link: &&Link| {
        link.is_up
            && setting(&link.name, "forwarding") == "1"
            && setting(&link.name, "accept_ra") == "1"
    };
    // Advertisements are counted for all; those to a bridge and its ports are rare.
    let outer = view.interfaces().filter(ignores).find(|link| {
        let has_master = view.details.get(&link.index).is_some_and(|one| one.master.is_some());
        !has_master && link.kind.as_deref() != Some("bridge")
    });
    if let Some(link) = outer.or_else(|| view.interfaces().find(ignores)) {
        let name = &link.name;
        let failed = window.sum(&["Ip6OutNoRoutes"]);
        let confidence = if failed.now > 0 { Confidence::Now } else { Confidence::SetUp };
        let severity = if failed.now > 0 { Severity::High } else { Severity::Medium };
        let set = format!("{}sysctl -w net.ipv6.conf.{name}.accept_ra", view.prefix());
        notes.find(
            finding(
                severity,
                format!(
                    "{name} ignores router advertisements, as it forwards (forwarding 1, accept_ra 1), and IPv6 has no \
                     default route"
                ),
            )
            .seen(confidence)
            .read(format!("/proc/sys/net/ipv6/conf/{name}/forwarding"), "1")
            .read(format!("/proc/sys/net/ipv6/conf/{name}/accept_ra"), "1")
            .read("/proc/net/snmp6: Icmp6InRouterAdvertisements", seen.evidence())
            .read("/proc/net/snmp6: Ip6OutNoRoutes", failed.evidence())
            .because(
                "with forwarding on, accept_ra=1 means no, and the routes that were learnt are removed; 2 accepts them \
                 (Documentation/networking/ip-sysctl.rst)",
            )
            .effect("the default route comes back with the next advertisement")
            .risk("a router that learns its default route from others can be misled by a forged advertisement")
            .change(format!("{set}=2"), format!("{set}=1")),
        );
    }
}
