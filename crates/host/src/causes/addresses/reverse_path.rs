//! Packets that the host would answer through another interface.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "Packets that the host would answer through another interface are dropped",
    symptom: "a capture shows packets (multicast, a second uplink, a VPN) and no program gets them; replies of a ping arrive at the card \
              and are lost",
    evidence: "TcpExtIPReversePathFilter grows; rp_filter of the interface or of all is 1 (strict) or 2 (any route back)",
    remedy: "a route to the sources through the interface that receives them, or net.ipv4.conf.IF.rp_filter=2",
    undo: "the old rp_filter",
    counters: &["TcpExtIPReversePathFilter"],
    reasons: &["IP_RPFILTER"],
    references: &[
        "https://docs.kernel.org/networking/ip-sysctl.html",
        "https://www.rfc-editor.org/rfc/rfc3704",
    ],
    is_of_forwarding: true,
    ..Cause::new("reverse-path", check)
};

/// Packets whose source the host would answer through another interface.
fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(counters) = notes.window(view) else { return };
    let dropped = counters.sum(&["TcpExtIPReversePathFilter"]);
    if dropped.total == 0 {
        return;
    }
    let setting = |name: &str| view.sysctl(&format!("net/ipv4/conf/{name}/rp_filter"));
    let all = setting("all").and_then(|text| text.parse().ok()).unwrap_or(0);
    // The larger one of both applies; 1 is strict, 2 accepts any route back.
    let filtering: Vec<(&str, u32)> = view
        .interfaces()
        .filter_map(|link| Some((link.name.as_str(), setting(&link.name)?.parse::<u32>().ok()?)))
        .filter(|(_, own)| all.max(*own) > 0)
        .collect();
    let mut found = finding(
        dropped.severity(),
        dropped.sentence("packets with another way back to their source were dropped by rp_filter"),
    )
    .counted(dropped, "packets")
    .read("/proc/net/netstat: TcpExt IPReversePathFilter", dropped.evidence())
    .read("/proc/sys/net/ipv4/conf/all/rp_filter", all.to_string())
    .because(
        "a capture shows such packets and no program gets them: the route to their source leads to another \
         interface (Documentation/networking/ip-sysctl.rst, rp_filter)",
    )
    .effect("the packets are received")
    .risk("packets with forged sources are accepted from more interfaces");
    for (name, own) in &filtering {
        found = found.read(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), own.to_string());
    }
    let strict: Vec<&(&str, u32)> =
        filtering.iter().filter(|(_, own)| all.max(*own) == 1).collect();
    let set = |value: &dyn Fn(u32) -> u32| {
        let settings = strict.iter().map(|(name, own)| {
            format!("net.ipv4.conf.{}.rp_filter={}", name.replace('.', "/"), value(*own))
        });
        format!("{}sysctl -w {}", view.prefix(), settings.collect::<Vec<_>>().join(" "))
    };
    let (change, undo) = if strict.is_empty() {
        ("add a route to the sources (`ip route add`)".to_owned(), "`ip route del` it".to_owned())
    } else {
        (
            format!(
                "add a route to the sources through the interface that receives them, or: {}",
                set(&|_| 2)
            ),
            set(&|own| own),
        )
    };
    notes.find(found.change(change, undo));
}
