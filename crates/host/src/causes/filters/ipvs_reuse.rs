//! IPVS: entries of connections that stand in the way of new ones.

use std::collections::BTreeSet;

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "IPVS drops the first SYN of a re-used port, or keeps a dead server",
    symptom: "connects through a service of IPVS take 1 s now and then (a client with many short connections), or go to a server \
              that was removed until the client changes its port",
    evidence: "/proc/net/ip_vs_conn has entries of servers that /proc/net/ip_vs does not list, with \
               net.ipv4.vs.expire_nodest_conn=0; or entries in TIME_WAIT with conn_reuse_mode=1 and conntrack=1 before Linux 5.9",
    remedy: "net.ipv4.vs.expire_nodest_conn=1; before Linux 5.9, net.ipv4.vs.conn_reuse_mode=0",
    undo: "0; 1",
    counters: &["TcpExtTCPSynRetrans"],
    references: &[
        "https://docs.kernel.org/networking/ipvs-sysctl.html",
        "https://github.com/kubernetes/kubernetes/issues/81775",
        "https://github.com/moby/moby/issues/35082",
    ],
    is_of_forwarding: true,
    ..Cause::new("ipvs-reuse", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let (Ok(services), Ok(entries)) = (evidence.proc_net("ip_vs"), evidence.proc_net("ip_vs_conn"))
    else {
        return;
    };
    let set = |name: &str| evidence.number(&format!("net/ipv4/vs/{name}"));
    let release = evidence.system.read_host("proc/sys/kernel/osrelease").unwrap_or_default();
    let settings = Settings {
        keeps_dead: set("expire_nodest_conn") == Some(0),
        drops_first_syn: set("conn_reuse_mode") == Some(1)
            && set("conntrack") == Some(1)
            && is_before_5_9(&release),
    };
    for found in judge(&services, &entries, settings, &evidence.prefix()) {
        notes.find(found);
    }
}

/// - `release`: as `uname -r` prints it.
fn is_before_5_9(release: &str) -> bool {
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map_while(|text| text.parse::<u32>().ok());
    numbers.next().zip(numbers.next()).is_some_and(|version| version < (5, 9))
}

#[derive(Debug, Clone, Copy)]
struct Settings {
    keeps_dead: bool,
    drops_first_syn: bool,
}

/// Findings from the texts of `/proc/net/ip_vs` and `ip_vs_conn`.
fn judge(services: &str, entries: &str, settings: Settings, prefix: &str) -> Vec<Finding> {
    let servers: BTreeSet<&str> = services
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("-> ")?.split_whitespace().next())
        .collect();
    // Protocol, client and port, service and port, server and port, state.
    let rows = entries.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rows: Vec<Vec<&str>> = rows.filter(|row| row.len() > 7).collect();
    let is_over =
        |row: &[&str]| matches!(row[7], "TIME_WAIT" | "CLOSE" | "CLOSE_WAIT" | "LAST_ACK");
    let server = |row: &[&str]| format!("{}:{}", row[5], row[6]);
    let dead: Vec<String> = rows
        .iter()
        .filter(|row| !is_over(row) && !servers.contains(server(row).as_str()))
        .map(|row| readable(&server(row)))
        .collect();
    let mut found = Vec::new();
    if let Some(first) = dead.first().filter(|_| settings.keeps_dead) {
        let sysctl = format!("{prefix}sysctl -w net.ipv4.vs.expire_nodest_conn");
        found.push(
            finding(
                Severity::Medium,
                format!(
                    "IPVS drops the packets of {} connections to servers that were removed, such as {first}",
                    dead.len()
                ),
            )
            .seen(Confidence::Now)
            .read("/proc/net/ip_vs_conn: entries whose server is not in /proc/net/ip_vs", dead.len().to_string())
            .read("/proc/sys/net/ipv4/vs/expire_nodest_conn", "0")
            .because(
                "without expire_nodest_conn, packets of such an entry are dropped in silence until it times out \
                 (Documentation/networking/ipvs-sysctl.rst)",
            )
            .effect("the client is told at once and connects to another server")
            .risk("a server that is removed for a moment loses its connections")
            .change(format!("{sysctl}=1"), format!("{sysctl}=0")),
        );
    }
    let waiting = rows.iter().filter(|row| row[7] == "TIME_WAIT").count();
    if settings.drops_first_syn && waiting > 0 {
        let sysctl = format!("{prefix}sysctl -w net.ipv4.vs.conn_reuse_mode");
        found.push(
            finding(
                Severity::Medium,
                format!(
                    "a client that uses a port again within 2 minutes waits 1 s to connect through IPVS: {waiting} entries are \
                     in TIME_WAIT"
                ),
            )
            .read("/proc/net/ip_vs_conn: TIME_WAIT", waiting.to_string())
            .read("/proc/sys/net/ipv4/vs/conn_reuse_mode", "1, with conntrack 1 and Linux before 5.9")
            .because(
                "the first SYN is dropped to make a new entry, and the client sends it again after a second \
                 (Documentation/networking/ipvs-sysctl.rst, conn_reuse_mode)",
            )
            .effect("connections with a port that was used before open at once")
            .risk("they go to the same server as before, even if it was removed: set expire_nodest_conn=1, too")
            .change(format!("{sysctl}=0"), format!("{sysctl}=1")),
        );
    }
    found
}

/// An address of IPv4 in hexadecimal digits, as others print it.
fn readable(address: &str) -> String {
    let parts = address.split_once(':').and_then(|(ip, port)| {
        let ip = std::net::Ipv4Addr::from(u32::from_str_radix(ip, 16).ok()?);
        Some(format!("{ip}:{}", u16::from_str_radix(port, 16).ok()?))
    });
    parts.unwrap_or_else(|| address.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICES: &str = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  \
                            -> RemoteAddress:Port Forward Weight ActiveConn InActConn\nTCP  0A600001:01BB rr\n  \
                            -> 0A010002:1F90      Masq    1      1          0\n";
    const HEAD: &str =
        "Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData\n";

    fn judged(entries: &str, keeps_dead: bool, drops_first_syn: bool) -> Vec<String> {
        let settings = Settings { keeps_dead, drops_first_syn };
        let found = judge(SERVICES, &format!("{HEAD}{entries}"), settings, "");
        found.into_iter().map(|found| found.what).collect()
    }

    #[test]
    fn connection_of_a_removed_server_is_named_and_that_of_a_listed_one_is_not() {
        let listed = "TCP 0A010001 9C40 0A600001 01BB 0A010002 1F90 ESTABLISHED     899\n";
        let removed = "TCP 0A010001 9C41 0A600001 01BB 0A010003 1F90 ESTABLISHED     899\n";
        assert!(judged(listed, true, false).is_empty());
        assert!(judged(removed, false, false).is_empty(), "they expire at once");
        let found = judged(&format!("{listed}{removed}"), true, false);
        assert!(
            found[0].contains("1 connections") && found[0].contains("10.1.0.3:8080"),
            "{found:?}"
        );
    }

    #[test]
    fn time_wait_delays_on_old_kernels_only() {
        let waiting = "TCP 0A010001 9C40 0A600001 01BB 0A010002 1F90 TIME_WAIT       118\n";
        assert_eq!(judged(waiting, true, true).len(), 1);
        assert!(judged(waiting, true, false).is_empty());
        assert!(is_before_5_9("5.4.0-100-generic") && is_before_5_9("4.19.2"));
        assert!(
            !is_before_5_9("5.10.0-28-amd64") && !is_before_5_9("6.12.3") && !is_before_5_9("x")
        );
    }
}
