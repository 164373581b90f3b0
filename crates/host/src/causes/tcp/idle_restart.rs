//! Congestion windows that shrink after a pause.

use super::connections::{Connection, connections, is_internal, listed, name, size_text};
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::tune::Target;

pub(super) const CAUSE: Cause = Cause {
    title: "After a pause, the congestion window starts again at 10 segments",
    symptom: "On paths with a long round trip, the first page or message after each pause is slow, those that \
              follow at once are fast.",
    evidence: "net.ipv4.tcp_slow_start_after_idle=1; in tcp_info a connection that pauses longer than its \
               retransmission timeout and sends more than 10 segments after each pause, without losses; its round \
               trip.",
    remedy: "net.ipv4.tcp_slow_start_after_idle=0; BBR ignores the setting.",
    undo: "net.ipv4.tcp_slow_start_after_idle=1.",
    references: &[
        "RFC 5681 section 4.1",
        "Documentation/networking/ip-sysctl.rst, tcp_slow_start_after_idle",
        "home-assistant/operating-system#4239",
        "redhat-performance/tuned#809",
    ],
    ..Cause::new("idle-restart", check)
};

/// Window of a new connection, segments.
///
/// Source: RFC 6928, net/tcp.h TCP_INIT_CWND.
const INITIAL_SEGMENTS: u64 = 10;
/// Shortest round trip at which further ones are worth a line, microseconds.
const RTT_US_MIN: u32 = 10_000;
/// Added time from which the cost is not small, microseconds.
const COST_US: u64 = 200_000;

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let file = "net/ipv4/tcp_slow_start_after_idle";
    if evidence.number(file).unwrap_or(0) == 0 {
        return;
    }
    let Some(window) = notes.window(evidence) else { return };
    let open = connections(window);
    let mut slowed: Vec<(u64, Connection<'_>)> =
        open.iter().filter_map(|one| Some((further_round_trips(one, window)?, *one))).collect();
    let added_us =
        |(rounds, one): &(u64, Connection<'_>)| rounds * u64::from(one.after.info.min_rtt);
    slowed.sort_by_key(|one| std::cmp::Reverse(added_us(one)));
    let Some(worst) = slowed.first() else { return };
    let (rounds, one) = *worst;
    let (cost, sent) = (added_us(worst), one.growth(|info| info.bytes_sent));
    let is_costly = cost >= COST_US && is_internal(one.after.remote.ip());
    let severity = if is_costly { Severity::Medium } else { Severity::Low };
    let set = |value: u8| {
        format!("{}sysctl -w net.ipv4.tcp_slow_start_after_idle={value}", evidence.prefix())
    };
    let found = finding(
        severity,
        format!(
            "after each pause, {} begins with {INITIAL_SEGMENTS} segments again: the {} that it sent within a second \
             took up to {rounds} more round trips, {} ms",
            name(evidence, one.after),
            size_text(sent),
            cost / 1000
        ),
    )
    .seen(Confidence::Now)
    .costs(format!("{} ms for each burst after a pause", cost / 1000))
    .read(format!("/proc/sys/{file}"), "1");
    let sockets = slowed.iter().map(|(_, one)| one.after);
    notes.find(
        listed(found, evidence, sockets, "tcp_info", |one| {
            let info = &one.info;
            format!(
                "{}, window {} segments, round trip {:.1} ms, timeout {} ms, last data sent {} ms ago",
                one.congestion,
                info.snd_cwnd,
                f64::from(info.min_rtt) / 1e3,
                info.rto / 1000,
                info.last_data_sent
            )
        })
        .because(
            "a connection that sent nothing for a retransmission timeout halves its window for each further one, down \
             to the initial window (RFC 5681, ip-sysctl.rst tcp_slow_start_after_idle)",
        )
        .effect("a burst after a pause is sent at the rate of the one before")
        .risk("a burst into a path that has become slower meanwhile may be lost")
        .change(set(0), set(1))
        .setting("tcp-slow-start-after-idle", &Target::Netns, "0"),
    );
}

/// Round trips that a burst takes more than with the window before its pause; `None` for a connection that did not
/// pause and send more than the initial window.
fn further_round_trips(one: &Connection<'_>, window: &Window) -> Option<u64> {
    let info = &one.after.info;
    // The samples seldom meet the end of a pause.
    let idle_us = window.time().as_micros() as u64;
    let idle_us = idle_us.saturating_sub(one.growth(|info| info.busy_time));
    let is_paused = idle_us > u64::from(info.rto)
        && [one.before, one.after].iter().any(|one| one.info.last_data_sent > info.rto / 2000);
    let segments = one.growth(|info| info.bytes_sent) / u64::from(info.snd_mss.max(1));
    let is_whole = one.growth(|info| info.total_retrans.into()) == 0;
    if one.after.congestion == "bbr" || !is_paused || !is_whole || info.min_rtt < RTT_US_MIN {
        return None;
    }
    (segments > INITIAL_SEGMENTS).then(|| u64::from((segments / INITIAL_SEGMENTS + 1).ilog2()))
}
