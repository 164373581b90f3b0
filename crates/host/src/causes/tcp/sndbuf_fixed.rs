//! Send buffers that limit a connection's rate.

use super::connections::{
    Connection, connections, host_numbers, listed, name, numbers, size_text, window,
};
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    id: "sndbuf-fixed",
    title: "The send buffer limits a connection: SO_SNDBUF was set by the program, or tcp_wmem is too small",
    symptom: "An upload or replication over a long path has the same low rate at any time, one buffer per round \
              trip, while another program is fast on the same path.",
    evidence: "tcp_info: share of time that was limited by the send buffer (sndbuf_limited); SK_MEMINFO_SNDBUF that \
               does not grow, below net.ipv4.tcp_wmem (set by the program) or at it; the round trip.",
    remedy: "Do not set SO_SNDBUF, so that the kernel tunes it; if it has to be set, to the product of rate and \
             round trip; a higher third number of net.ipv4.tcp_wmem.",
    undo: "Set it again; the old net.ipv4.tcp_wmem.",
    counters: &[],
    reasons: &[],
    references: &["tcp(7), tcp_wmem", "socket(7), SO_SNDBUF", "neutrinolabs/xrdp#2910"],
    is_of_forwarding: false,
    check,
};

/// Shortest round trip: below it, a buffer that limits is refilled soon.
const RTT_US_MIN: u32 = 2_000;

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = window(evidence, notes) else { return };
    let Some(&[_, _, most]) = numbers(evidence, "net/ipv4/tcp_wmem").as_deref() else {
        return notes.unseen("net.ipv4.tcp_wmem");
    };
    let open = connections(window);
    let mut limited: Vec<&Connection<'_>> =
        open.iter().filter(|one| is_limited(one, window)).collect();
    limited.sort_by_key(|one| std::cmp::Reverse(one.growth(|info| info.sndbuf_limited)));
    let Some(one) = limited.first() else { return };
    let (socket, info) = (one.after, &one.after.info);
    let buffer = u64::from(socket.memory.send_buffer_bytes);
    let rate = one.acked_bytes() as f64 / window.time().as_secs_f64().max(1e-3);
    let share =
        one.growth(|info| info.sndbuf_limited) as f64 / window.time().as_micros().max(1) as f64;
    let wmem_max =
        host_numbers(evidence, "net/core/wmem_max").and_then(|list| list.first().copied());
    let set =
        |most: u64| format!("{}sysctl -w net.ipv4.tcp_wmem='4096 16384 {most}'", evidence.prefix());
    let (limit, change, undo) = if buffer >= most {
        ("net.ipv4.tcp_wmem".to_owned(), set(most.saturating_mul(4)), set(most))
    } else if wmem_max.is_some_and(|most| buffer == most * 2) {
        (
            "net.core.wmem_max, which cuts what the program asks for".to_owned(),
            "do not set SO_SNDBUF in the program: the kernel then tunes it up to tcp_wmem"
                .to_owned(),
            "the program's previous setting".to_owned(),
        )
    } else {
        (
            format!("SO_SNDBUF of {} that the program has set", size_text(buffer / 2)),
            "do not set SO_SNDBUF in the program: the kernel then tunes it up to tcp_wmem"
                .to_owned(),
            "the program's previous setting".to_owned(),
        )
    };
    let found = finding(
        Severity::Medium,
        format!(
            "{} sends {:.1} Mbit/s, limited by its send buffer for {:.0} % of the time: {limit}",
            name(evidence, socket),
            rate * 8.0 / 1e6,
            share * 100.0
        ),
    )
    .seen(Confidence::Now)
    .costs(format!("{:.0} % of the time waits for the buffer", share * 100.0))
    .read("/proc/sys/net/ipv4/tcp_wmem, third number", most.to_string())
    .read("sock_diag: tcp_info rtt", format!("{:.1} ms", f64::from(info.rtt) / 1e3));
    notes.find(
        listed(found, evidence, limited.iter().map(|one| one.after), "SK_MEMINFO_SNDBUF", |one| {
            format!("{} bytes, {} segments in flight, window {}", one.memory.send_buffer_bytes, one.info.unacked, one.info.snd_cwnd)
        })
        .because(
            "a connection sends at most a buffer in each round trip, and SO_SNDBUF ends the kernel's tuning of it \
             (tcp(7), socket(7))",
        )
        .effect("the rate follows the path")
        .risk("up to tcp_wmem of memory for each connection, and data that is longer on its way at a cancel")
        .change(change, undo),
    );
}

/// The buffer limits for a third of the window and has not grown, although the congestion window has room.
fn is_limited(one: &Connection<'_>, window: &Window) -> bool {
    let info = &one.after.info;
    let limited_us = u128::from(one.growth(|info| info.sndbuf_limited));
    limited_us * 3 > window.time().as_micros()
        && one.before.memory.send_buffer_bytes == one.after.memory.send_buffer_bytes
        && info.rtt >= RTT_US_MIN
        && one.acked_bytes() > 0
}
