//! Connections whose rate the receiver's window limits.

use super::connections::{Connection, connections, is_internal, listed, name, size_text};
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "The receiver's window limits a connection: one window in each round trip",
    symptom: "A download over a long path has the same low rate at any time, such as 64 KiB in each round trip.",
    evidence: "tcp_info of the sender: share of time limited by the receive window (rwnd_limited), snd_wnd over the \
               round trip equal to the rate; window scaling not negotiated.",
    remedy: "At the receiver: do not set SO_RCVBUF, a higher third number of net.ipv4.tcp_rmem, \
             net.ipv4.tcp_window_scaling=1; a device on the way that removes the option.",
    undo: "The old values.",
    references: &["RFC 7323 section 2", "tcp(7), tcp_rmem"],
    ..Cause::new("rwnd-limited", check)
};

/// Shortest round trip: below it, windows are not what limits.
const RTT_US_MIN: u32 = 2_000;
/// Option of a connection.
///
/// Source: linux/tcp.h, TCPI_OPT_WSCALE.
const WINDOW_SCALING: u8 = 4;

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let open = connections(window);
    receiving(evidence, notes, window, &open);
    let mut limited: Vec<&Connection<'_>> =
        open.iter().filter(|one| is_limited(one, window)).collect();
    limited.sort_by_key(|one| std::cmp::Reverse(one.growth(|info| info.rwnd_limited)));
    let Some(one) = limited.first() else { return };
    let (socket, info) = (one.after, &one.after.info);
    let remote = socket.remote.ip();
    let is_scaled = info.options & WINDOW_SCALING != 0;
    let (limit, change) = if is_scaled {
        (
            "its receive buffer",
            format!(
                "at {remote}: do not set SO_RCVBUF in the program, and net.ipv4.tcp_rmem='4096 131072 33554432'"
            ),
        )
    } else {
        (
            "window scaling was not negotiated, so that it is 64 KiB at most",
            format!(
                "net.ipv4.tcp_window_scaling=1 here and at {remote}; a device on the way may remove the option"
            ),
        )
    };
    // The limit of a stranger's host is seldom a fault.
    let severity = if is_internal(remote) { Severity::Medium } else { Severity::Low };
    let found = finding(
        severity,
        format!(
            "{} sends {:.1} Mbit/s, one window of {} in each round trip of {:.0} ms: {limit}",
            name(evidence, socket),
            one.bytes_per_s(window) * 8.0 / 1e6,
            size_text(info.snd_wnd.into()),
            f64::from(info.rtt) / 1e3
        ),
    )
    .seen(Confidence::Now)
    .costs(format!("{:.0} % of the time waits for the window", share(one, window) * 100.0));
    notes.find(
        listed(found, evidence, limited.iter().map(|one| one.after), "tcp_info", |one| {
            format!("window {} bytes, round trip {} us, {} segments in flight, congestion window {}", one.info.snd_wnd, one.info.rtt, one.info.unacked, one.info.snd_cwnd)
        })
        .because("a sender may have one window of the receiver in flight; SO_RCVBUF ends the kernel's tuning of it (RFC 7323, tcp(7))")
        .effect("the rate follows the path")
        .risk("up to tcp_rmem of memory for each connection there")
        .change(change, "the previous setting there"),
    );
}

/// Connections of this host whose fixed receive buffer limits what comes: about the half that is window arrives in
/// each round trip. A buffer that the kernel tunes is four times that.
fn receiving(evidence: &Evidence, notes: &mut Notes<'_>, window: &Window, open: &[Connection<'_>]) {
    let most = evidence.numbers("net/ipv4/tcp_rmem").and_then(|list| list.get(2).copied());
    let rate = |one: &Connection<'_>| {
        one.growth(|info| info.bytes_received) as f64 / window.time().as_secs_f64().max(1e-3)
    };
    let is_fixed = |one: &&Connection<'_>| {
        let (info, memory) = (&one.after.info, one.after.memory);
        let buffer = f64::from(memory.receive_buffer_bytes.max(1));
        let round_trip_us = if info.rtt > 0 { info.rcv_rtt.min(info.rtt) } else { info.rcv_rtt };
        one.before.memory.receive_buffer_bytes == memory.receive_buffer_bytes
            && u64::from(memory.receive_buffer_bytes) * 2 < most.unwrap_or(0)
            && memory.received_bytes < memory.receive_buffer_bytes / 4
            && round_trip_us >= RTT_US_MIN
            && (0.35..2.0).contains(&(rate(one) * f64::from(round_trip_us) / 1e6 / buffer))
    };
    let Some(one) = open.iter().find(is_fixed) else { return };
    let buffer = one.after.memory.receive_buffer_bytes;
    notes.find(
        finding(
            Severity::Medium,
            format!(
                "{} receives {:.1} Mbit/s, one receive buffer in each round trip: SO_RCVBUF of {} that the program has set",
                name(evidence, one.after),
                rate(one) * 8.0 / 1e6,
                size_text((buffer / 2).into())
            ),
        )
        .seen(Confidence::Now)
        .costs(format!("{:.1} Mbit/s at most", rate(one) * 8.0 / 1e6))
        .read("sock_diag: SK_MEMINFO_RCVBUF", format!("{buffer} bytes, unchanged"))
        .read("/proc/sys/net/ipv4/tcp_rmem, third number", most.unwrap_or(0).to_string())
        .read("sock_diag: tcp_info rcv_rtt", format!("{:.1} ms", f64::from(one.after.info.rcv_rtt) / 1e3))
        .because("about half of the buffer is the window, and a sender may have one window in flight; SO_RCVBUF ends the kernel's tuning (tcp(7))")
        .effect("the rate follows the path")
        .risk("up to tcp_rmem of memory for each connection")
        .change("do not set SO_RCVBUF in the program: the kernel then tunes it up to tcp_rmem", "the program's previous setting"),
    );
}

/// Part of the time in which the receive window was the limit, 0 to 1.
fn share(one: &Connection<'_>, window: &Window) -> f64 {
    one.growth(|info| info.rwnd_limited) as f64 / window.time().as_micros().max(1) as f64
}

/// The window limits for a fifth of the time and more, and makes the rate: a slow reader has a window that would allow far more.
fn is_limited(one: &Connection<'_>, window: &Window) -> bool {
    let info = &one.after.info;
    let allowed = f64::from(info.snd_wnd) * 1e6 / f64::from(info.rtt.max(1));
    let made = one.bytes_per_s(window) / allowed.max(1.0);
    info.rtt >= RTT_US_MIN && share(one, window) >= 0.2 && (0.5..2.0).contains(&made)
}
