//! The memory that all UDP sockets share.

use super::named;
use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "the memory of all UDP sockets is used up",
    symptom: "many programs miss datagrams at once, also those whose own buffers are empty",
    evidence: "UdpMemErrors; pages in /proc/net/sockstat (UDP mem) against net.ipv4.udp_mem; sockets that hold most",
    remedy: "the program that leaves datagrams unread; or larger numbers in `sysctl -w net.ipv4.udp_mem`",
    undo: "`sysctl -w net.ipv4.udp_mem` with the previous numbers",
    counters: &["UdpMemErrors", "Udp6MemErrors"],
    reasons: &["PROTO_MEM"],
    references: &["udp(7)", "Documentation/networking/ip-sysctl.rst"],
    ..Cause::new("udp-mem", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let lost = window.sum(&["UdpMemErrors", "Udp6MemErrors"]);
    if lost.total == 0 {
        return;
    }
    let limits = view.sysctl("net/ipv4/udp_mem").unwrap_or_default();
    let used = window.latest("sockstat UDP mem").unwrap_or(0);
    let mut found = finding(
        lost.severity(),
        lost.sentence("datagrams were dropped because the memory of all UDP sockets was used up"),
    )
    .counted(lost, "datagrams")
    .read("/proc/net/snmp and snmp6: MemErrors", lost.evidence())
    .read("/proc/net/sockstat: UDP mem, now", format!("{used} pages"))
    .read("/proc/sys/net/ipv4/udp_mem", limits.clone());
    let holder = window.after.udp.iter().max_by_key(|one| one.memory.received_bytes);
    if let Some(holder) = holder.filter(|one| one.memory.received_bytes > 0) {
        let bytes = holder.memory.received_bytes;
        found = found.read(
            format!("sock_diag: most is held by {}", named(view, holder)),
            format!("{bytes} bytes"),
        );
    }
    let twice = view
        .numbers("net/ipv4/udp_mem")
        .and_then(|limits| limits.last().copied())
        .unwrap_or(1 << 20)
        * 2;
    let sysctl = "sysctl -w net.ipv4.udp_mem";
    notes.find(
        found
            .because("all UDP sockets of the host share a limit, in pages (udp(7), udp_mem)")
            .effect("bursts are kept until the programs read them")
            .risk("memory of the host")
            .change(
                format!("find the program that does not read; or on the host: {sysctl}=\"{twice} {twice} {twice}\""),
                format!("{sysctl}=\"{limits}\""),
            ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::{DoctorReport, Severity, Window};

    fn report(before: u64, after: u64) -> DoctorReport {
        let window = Window::with_counters(&[
            ("UdpMemErrors", before, after),
            ("sockstat UDP mem", 900, 900),
        ]);
        super::super::report(&CAUSE, window)
    }

    #[test]
    fn memory_that_runs_out_is_high_now_low_later_and_silent_without() {
        let now = report(1, 9);
        assert_eq!(now.findings[0].severity, Severity::High, "{now:?}");
        assert!(now.findings[0].what.contains("8 datagrams"), "{now:?}");
        assert!(now.findings[0].evidence.iter().any(|one| one.value == "900 pages"), "{now:?}");
        assert_eq!(report(9, 9).findings[0].severity, Severity::Low);
        assert_eq!(report(0, 0).passed, ["udp-mem"]);
    }
}
