//! Accept queues of servers that are full.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, finding};
use crate::net::TcpSocket;
use crate::tune::Target;

pub(super) const CAUSE: Cause = Cause {
    title: "The accept queue of a server is full, and further connections are dropped",
    symptom: "Some connections take 1, 3 or 7 s to open, or fail, while the server has time to spare; connections \
              that look open get no answer.",
    evidence: "TcpExtListenOverflows, and ListenDrops, which has them too; a listener whose Recv-Q is above its \
               Send-Q in `ss -ltn`; net.core.somaxconn.",
    remedy: "A larger backlog of listen() in the program's settings and, if it is cut by it, net.core.somaxconn; \
             more threads that accept.",
    undo: "The old backlog and net.core.somaxconn.",
    counters: &["TcpExtListenOverflows", "TcpExtListenDrops"],
    reasons: &["TCP_OVERFLOW"],
    references: &["listen(2)", "Documentation/networking/ip-sysctl.rst, somaxconn"],
    ..Cause::new("listen-queue", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(counters) = notes.window(view) else { return };
    let refused = counters.sum(&["TcpExtListenOverflows"]);
    if refused.total == 0 {
        return;
    }
    let mut full: Vec<&TcpSocket> = counters.after.tcp.iter().filter(|one| one.is_full()).collect();
    full.sort_by_key(|one| one.send_queue);
    let aborts = view.sysctl("net/ipv4/tcp_abort_on_overflow").is_some_and(|value| value == "1");
    let somaxconn = view.sysctl("net/core/somaxconn").unwrap_or_default();
    let named = match full.first() {
        Some(one) => format!(
            "the accept queue of TCP port {} of {} is full",
            one.local.port(),
            view.owner(one.inode)
        ),
        None => "an accept queue was full".to_owned(),
    };
    let mut found = finding(
        refused.severity(),
        format!("{}: {named}", refused.sentence("attempts to connect were refused")),
    )
    .counted(refused, "refused connections")
    .read("/proc/net/netstat: TcpExt ListenOverflows", refused.evidence())
    .read(
        "/proc/net/netstat: TcpExt ListenDrops, which has them too",
        counters.sum(&["TcpExtListenDrops"]).evidence(),
    )
    .read("/proc/sys/net/core/somaxconn", &somaxconn)
    .read(
        "/proc/sys/net/ipv4/tcp_abort_on_overflow",
        if aborts { "1: clients get RST and do not try again" } else { "0" },
    )
    .because(
        "the kernel drops a connection that finds the queue full, and the client tries again after 1, 3 \
         and 7 seconds (listen(2), tcp(7))",
    )
    .effect("clients connect at once")
    .risk("a program that does not keep up has longer queues, and answers later");
    for one in &full {
        found = found.read(
            format!("sock_diag: TCP port {} of {}", one.local.port(), view.owner(one.inode)),
            format!("{} connections wait, and {} may", one.receive_queue, one.send_queue),
        );
    }
    // The kernel's limit cuts what the program asks for.
    let limit: u32 = somaxconn.parse().unwrap_or(u32::MAX);
    let is_limited_by_host = full.first().is_some_and(|one| one.send_queue >= limit);
    let (change, undo) = if is_limited_by_host {
        let sysctl = format!("{}sysctl -w net.core.somaxconn", view.prefix());
        (
            format!("{sysctl}=4096, a backlog of as many in the program, and its restart"),
            format!("{sysctl}={somaxconn}, and its restart"),
        )
    } else {
        (
            format!(
                "a larger backlog in the program's own settings (listen(2)), at most \
                 net.core.somaxconn ({somaxconn}); more threads that accept"
            ),
            "the program's previous setting".to_owned(),
        )
    };
    let found = found.change(change, undo);
    notes.find(if is_limited_by_host {
        found.setting("somaxconn", &Target::Netns, "4096")
    } else {
        found
    });
}
