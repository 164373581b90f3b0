//! Bridges and containers whose packets are larger than the way out takes.

use super::frag_fails::refused;
use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::causes::tunnels::is_tunnel;
use crate::net::{self, Link};

pub(super) const CAUSE: Cause = Cause {
    title: "a bridge or container has a larger MTU than the way out",
    symptom: "in containers or virtual machines TLS and downloads hang, on the host all works; ping works in both",
    evidence: "MTU of bridges and of the default route's interface; packets refused as too large (IpFragFails); \
               forwarding",
    remedy: "the MTU of the way out for the bridge and its ports, in the engine's settings too (dockerd --mtu, CNI mtu); \
             or a clamp: `nft add rule inet filter forward tcp flags syn tcp option maxseg size set rt mtu`",
    undo: "`ip link set BR mtu 1500`; `nft delete rule`",
    counters: &["IpFragFails", "Ip6FragFails"],
    references: &[
        "moby/moby#20178",
        "moby/moby#22297",
        "osism/testbed#912",
        "linuxkit/linuxkit#2496",
    ],
    is_of_forwarding: true,
    ..Cause::new("inner-mtu", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    // The default route, as for an address of the documentation (RFC 5737).
    let Ok(route) = view.system.within(|| net::route_to(std::net::Ipv4Addr::new(192, 0, 2, 1)))
    else {
        return;
    };
    let Some(out) = view.links.get(&route.ifindex).filter(|out| !is_tunnel(out)) else { return };
    let failed = refused(window);
    let is_wider = |link: &&Link| {
        let is_bridge = link.kind.as_deref() == Some("bridge")
            && view.details.values().any(|detail| detail.master == Some(link.index));
        let is_port = view.details.get(&link.index).is_some_and(|detail| detail.master.is_some());
        let is_container = link.kind.as_deref() == Some("veth") && !is_port;
        (is_bridge || is_container)
            && link.index != out.index
            && link.is_up
            && link.mtu_bytes > out.mtu_bytes
    };
    for inner in view.links.values().filter(is_wider).take(4) {
        let Some((source, value)) = view.forwards(inner) else { continue };
        let (name, mtu) = (&inner.name, inner.mtu_bytes);
        let what = format!(
            "packets of {name} (MTU {mtu}) do not fit {} (MTU {}), by which they leave",
            out.name, out.mtu_bytes
        );
        let found = match failed.now {
            // A sender that obeys the answer causes one for each far end.
            0..=4 => finding(Severity::Low, what).seen(if failed.total > 0 {
                Confidence::Before
            } else {
                Confidence::SetUp
            }),
            _ => finding(
                failed.severity(),
                format!("{}: {what}", failed.sentence("packets were refused as too large")),
            )
            .counted(failed, "packets"),
        };
        let command = format!("{}ip link set {name} mtu", view.prefix());
        notes.find(
            found
                .read(format!("IFLA_MTU of {name}"), mtu.to_string())
                .read(format!("IFLA_MTU of {}, the default route's", out.name), out.mtu_bytes.to_string())
                .read("/proc/net/snmp and snmp6: FragFails", failed.evidence())
                .read(source, value)
                .because(
                    "each connection has to learn the smaller size by ICMP (fragmentation needed), which filters and \
                     load balancers often drop; then it hangs (RFC 2923)",
                )
                .effect("segments fit from the start")
                .risk("interfaces in the containers keep theirs until they are made again: the engine has a setting of its own")
                .change(
                    format!("{command} {}, and the same in the engine's settings and for interfaces in containers", out.mtu_bytes),
                    format!("{command} {mtu}"),
                ),
        );
    }
}
