//! Send buffers that limit a connection's rate.

use super::connections::{Connection, connections, listed, name, size_text};
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "The send buffer limits a connection: SO_SNDBUF was set by the program, or tcp_wmem is too small",
    symptom: "An upload or replication over a long path has the same low rate at any time, one buffer per round \
              trip, while another program is fast on the same path.",
    evidence: "SK_MEMINFO_SNDBUF that does not grow, below net.ipv4.tcp_wmem (set by the program) or at it, and a \
               rate of about one such buffer in each round trip (tcp_info), while neither window is full; \
               sndbuf_limited counts a part of that time.",
    remedy: "Do not set SO_SNDBUF, so that the kernel tunes it; if it has to be set, to the product of rate and \
             round trip; a higher third number of net.ipv4.tcp_wmem.",
    undo: "Set it again; the old net.ipv4.tcp_wmem.",
    references: &["tcp(7), tcp_wmem", "socket(7), SO_SNDBUF", "neutrinolabs/xrdp#2910"],
    ..Cause::new("sndbuf-fixed", check)
};

/// Shortest round trip: below it, a buffer that limits is refilled soon.
const RTT_US_MIN: u32 = 2_000;

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let Some(&[low, usual, most]) = evidence.numbers("net/ipv4/tcp_wmem").as_deref() else {
        return notes.unseen("net.ipv4.tcp_wmem");
    };
    let open = connections(window);
    let mut limited: Vec<&Connection<'_>> =
        open.iter().filter(|one| is_limited(one, window)).collect();
    limited.sort_by_key(|one| std::cmp::Reverse(one.acked_bytes()));
    let Some(one) = limited.first() else { return };
    let (socket, info) = (one.after, &one.after.info);
    let buffer = u64::from(socket.memory.send_buffer_bytes);
    let mbit_per_s = one.bytes_per_s(window) * 8.0 / 1e6;
    let wmem_max =
        evidence.host_numbers("net/core/wmem_max").and_then(|list| list.first().copied());
    let set = |most: u64| {
        format!("{}sysctl -w net.ipv4.tcp_wmem='{low} {usual} {most}'", evidence.prefix())
    };
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
            "{} sends {mbit_per_s:.1} Mbit/s, one send buffer in each round trip of {:.0} ms: {limit}",
            name(evidence, socket),
            f64::from(info.rtt) / 1e3
        ),
    )
    .seen(Confidence::Now)
    .costs(format!("{mbit_per_s:.1} Mbit/s at most"))
    .read("/proc/sys/net/ipv4/tcp_wmem, third number", most.to_string())
    .read(
        "sock_diag: tcp_info sndbuf_limited",
        format!("{} ms more", one.growth(|info| info.sndbuf_limited) / 1000),
    );
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

/// About a buffer is sent in each round trip, all the time, and neither window limits. A buffer that the kernel tunes
/// is more than three times what is in flight.
fn is_limited(one: &Connection<'_>, window: &Window) -> bool {
    let info = &one.after.info;
    let buffer = f64::from(one.after.memory.send_buffer_bytes);
    let in_flight = one.bytes_per_s(window) * f64::from(info.rtt) / 1e6;
    let busy_us = u128::from(one.growth(|info| info.busy_time));
    one.before.memory.send_buffer_bytes == one.after.memory.send_buffer_bytes
        && info.rtt >= RTT_US_MIN
        && busy_us * 5 > window.time().as_micros() * 4
        && [one.before, one.after].iter().all(|one| one.info.unacked < one.info.snd_cwnd)
        && f64::from(info.snd_wnd) > 2.0 * in_flight
        && (0.45..4.0).contains(&(in_flight / buffer.max(1.0)))
}
