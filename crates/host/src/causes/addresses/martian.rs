//! Packets whose source or destination cannot be, as this host sees it.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses};
use crate::causes::finding::{Notes, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "Packets with an impossible source are dropped",
    symptom: "a capture shows packets and no program gets them; the kernel logs \"martian source\"; traffic between two addresses of one \
              host over a wire, or from 127.0.0.0/8, never arrives",
    evidence: "in_martian_src or in_martian_dst of /proc/net/stat/rt_cache grows without IPReversePathFilter, and received packets are \
               neither delivered nor counted as dropped",
    remedy: "net.ipv4.conf.IF.accept_local=1 for own addresses, route_localnet=1 for 127.0.0.0/8; else the sender's address",
    undo: "0",
    counters: &["rt_cache in_martian_src", "rt_cache in_martian_dst"],
    reasons: &["IP_INVALID_SOURCE", "IP_INVALID_DEST", "IP_LOCAL_SOURCE", "IP_LOCALNET"],
    references: &[
        "https://docs.kernel.org/networking/ip-sysctl.html",
        "https://www.rfc-editor.org/rfc/rfc1812",
    ],
    is_of_forwarding: true,
    ..Cause::new("martian", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let filtered = window.sum(&["TcpExtIPReversePathFilter"]);
    let martians =
        window.sum(&["rt_cache in_martian_src", "rt_cache in_martian_dst"]).without(filtered);
    let vanished = window.vanished_received();
    // The first are counted for all namespaces together.
    let lost = Losses { now: martians.now.min(vanished.now), ..vanished };
    if lost.now == 0 {
        return;
    }
    let off: Vec<&str> = evidence
        .interfaces()
        .filter(|link| {
            evidence.number(&format!("net/ipv4/conf/{}/accept_local", link.name)) == Some(0)
        })
        .map(|link| link.name.as_str())
        .collect();
    let sysctl = format!(
        "{}sysctl -w net.ipv4.conf.{}.accept_local",
        evidence.prefix(),
        off.first().unwrap_or(&"all")
    );
    notes.find(
        finding(
            lost.severity(),
            lost.sentence("packets were dropped for an impossible source or destination: an own address, 127.0.0.0/8, 0.0.0.0 or a group"),
        )
        .counted(lost, "packets")
        .read("/proc/net/stat/rt_cache: in_martian_src and in_martian_dst, of all namespaces", martians.evidence())
        .read("/proc/net/snmp: Ip InReceives that no counter accounts for", vanished.evidence())
        .read("/proc/sys/net/ipv4/conf/*/accept_local: 0 of", off.join(" "))
        .because(
            "a packet from outside with an address of this host or of loopback as its source is taken for a forgery \
             (RFC 1812, section 5.3.7; Documentation/networking/ip-sysctl.rst, accept_local and log_martians)",
        )
        .effect("packets that this host sent to itself over a wire are received")
        .risk("forged packets with this host's addresses are accepted, too; a loop in the network shows in the same way")
        .change(
            format!("net.ipv4.conf.all.log_martians=1 names them in the kernel log; for own addresses, {sysctl}=1"),
            format!("{sysctl}=0, and net.ipv4.conf.all.log_martians=0"),
        ),
    );
}
