//! One of both IP versions has a default route that leads nowhere, and is tried first.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::{NeighbourState, TableRoute, TcpSocket, TcpState};

/// Connects in vain to different hosts from which the family is blamed although its router answers.
const HOSTS: usize = 2;

pub(super) const CAUSE: Cause = Cause {
    title: "One IP version has a default route that leads nowhere and is tried first",
    symptom: "each connect takes 3 s for every address of a name, or downloads pause at their start, and then all works; `curl -4` \
              (or -6) is fast",
    evidence: "the gateway of that version's default route is INCOMPLETE or FAILED in `ip neigh`, or sockets are in SYN-SENT to \
               several of its hosts and none is established, while the other version works",
    remedy: "repair or remove the default route; or prefer the other version in /etc/gai.conf",
    undo: "the route again",
    counters: &["TcpExtTCPSynRetrans", "TcpAttemptFails"],
    reasons: &["NEIGH_FAILED"],
    references: &[
        "https://www.rfc-editor.org/rfc/rfc6724",
        "https://man7.org/linux/man-pages/man5/gai.conf.5.html",
        "https://github.com/racket/racket/issues/3941",
    ],
    ..Cause::new("bad-v6", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    if evidence.window().is_err() || evidence.routes().is_err() {
        return notes.unseen("counters or routes cannot be read");
    }
    for is_ipv6 in [true, false] {
        family(evidence, is_ipv6, notes);
    }
}

fn family(evidence: &Evidence, is_ipv6: bool, notes: &mut Notes<'_>) {
    let (Ok(window), Some(route)) = (evidence.window(), default(evidence, is_ipv6)) else { return };
    let silent = silent_gateway(evidence, route);
    let of_family = |one: &&TcpSocket| {
        one.remote.ip().is_ipv6() == is_ipv6 && is_beyond(evidence, one.remote.ip())
    };
    let waiting: Vec<&TcpSocket> = [&window.before, &window.after]
        .iter()
        .flat_map(|sample| &sample.tcp)
        .filter(of_family)
        .filter(|one| one.state == TcpState::SynSent && (one.retry_count > 0 || silent.is_some()))
        .collect();
    let hosts: BTreeSet<IpAddr> = waiting.iter().map(|one| one.remote.ip()).collect();
    let has_connection =
        window.after.tcp.iter().filter(of_family).any(|one| one.state == TcpState::Established);
    let is_dead = silent.is_some() || (hosts.len() >= HOSTS && !has_connection);
    if !is_dead || !has_other(evidence, is_ipv6) {
        return;
    }
    let version = if is_ipv6 { "IPv6" } else { "IPv4" };
    let other = if is_ipv6 { "IPv4" } else { "IPv6" };
    let name = route.interface.map_or("an interface".to_owned(), |index| evidence.name_of(index));
    let via = route.gateway.map_or_else(String::new, |gateway| format!(" via {gateway}"));
    let why = match silent {
        Some(_) => "its router does not answer",
        None => "no host behind it answers",
    };
    let who = waiting.first().map_or_else(String::new, |one| {
        format!("; {} waits for {}", evidence.owner(one.inode), one.remote)
    });
    let is_now = !waiting.is_empty() || silent == Some(NeighbourState::Incomplete);
    let severity = match (is_now, silent.is_some()) {
        (true, true) => Severity::High,
        (true, false) => Severity::Medium,
        (false, _) => Severity::Low,
    };
    let prefix = evidence.prefix();
    let words = format!(
        "default{via} dev {name}{}",
        if route.metric > 0 { format!(" metric {}", route.metric) } else { String::new() }
    );
    let ip = if is_ipv6 { "ip -6" } else { "ip" };
    notes.find(
        finding(
            severity,
            format!(
                "the default route of {version}{via} on {name} leads nowhere ({why}): connects to names with addresses of both \
                 versions wait seconds before {other} is tried{who}"
            ),
        )
        .seen(if is_now { Confidence::Now } else { Confidence::Before })
        .costs("3 s for each address that is tried")
        .read(format!("RTM_GETROUTE: default route of {version}"), &words)
        .read(
            "RTM_GETNEIGH: state of its router",
            silent.map_or("it answers".to_owned(), |state| format!("{state:?}").to_uppercase()),
        )
        .read(format!("sock_diag: {version} sockets in SYN-SENT to hosts beyond it"), waiting.len().to_string())
        .because(
            "addresses of a version that has a route are tried in the order of RFC 6724, IPv6 first, and each waits until the \
             neighbour or the connect fails (gai.conf(5))",
        )
        .effect("programs connect at once by the version that works")
        .risk("hosts that have only the other version are unreachable, as they are now")
        .change(
            format!("{prefix}{ip} route del {words}, or repair the router"),
            format!("{prefix}{ip} route add {words}"),
        ),
    );
}

/// The preferred default route of a version.
fn default(evidence: &Evidence, is_ipv6: bool) -> Option<&TableRoute> {
    let routes = evidence.routes().ok()?.iter();
    routes
        .filter(|route| route.is_default() && route.is_ipv6 == is_ipv6)
        .min_by_key(|route| route.metric)
}

/// State of a route's router that does not answer; `None` if it does or is not known.
fn silent_gateway(evidence: &Evidence, route: &TableRoute) -> Option<NeighbourState> {
    let window = evidence.window().ok()?;
    let found = window.after.neighbours.iter().find(|one| Some(one.ip) == route.gateway)?;
    found.is_silent().then_some(found.state)
}

/// The other version has a default route whose router is not known to be silent.
pub(super) fn has_other(evidence: &Evidence, is_ipv6: bool) -> bool {
    default(evidence, !is_ipv6).is_some_and(|route| silent_gateway(evidence, route).is_none())
}

/// An address beyond a router.
fn is_beyond(evidence: &Evidence, ip: IpAddr) -> bool {
    let is_of_link = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    if ip.is_loopback() || ip.is_unspecified() || is_of_link {
        return false;
    }
    let own = evidence.addresses().unwrap_or_default();
    !own.iter().any(|own| super::is_in_network(ip, own.ip, own.prefix))
}
