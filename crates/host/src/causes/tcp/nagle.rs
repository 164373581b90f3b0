//! Small writes that wait for a delayed acknowledgement.

use super::connections::{Connection, connections, listed, name};
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::{TcpSocket, TcpState};

pub(super) const CAUSE: Cause = Cause {
    title: "A small write waits until the one before it is acknowledged, and the acknowledgement is delayed by 40 ms",
    symptom: "Most requests take less than a millisecond and some, or all of a kind, take 40 ms (200 ms at some far \
              ends), on a fast network, without loss. It often begins when a request or a response becomes longer \
              or shorter than a segment.",
    evidence: "Of a connection in sock_diag: unsent data shorter than a segment while less than the congestion \
               window is in flight; a few segments a second, each in flight for 40 ms. At the far end, \
               TcpExtDelayedACKs rises with each of them.",
    remedy: "TCP_NODELAY in the program that sends, or one write (writev, sendmsg) for each request or response. \
             TCP_QUICKACK at the far end helps too, but has to be set again after each receive.",
    undo: "Unset the option.",
    counters: &["TcpExtDelayedACKs"],
    references: &[
        "RFC 896",
        "RFC 1122 section 4.2.3.2",
        "tcp(7), TCP_NODELAY",
        "scylladb/scylladb#9619",
        "steffengy/tiberius#46",
    ],
    ..Cause::new("nagle", check)
};

/// Shortest wait that is reported, above the round trip, microseconds. A delayed acknowledgement takes 40 ms.
const WAIT_US_MIN: u64 = 30_000;
/// Longest: other systems delay by up to 200 ms, and RFC 1122 allows 500 ms.
const WAIT_US_MAX: u64 = 510_000;

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let open = connections(window);
    let mut held: Vec<(u64, Connection<'_>)> =
        open.iter().filter_map(|one| Some((wait_us(one)?, *one))).collect();
    held.sort_by_key(|(_, one)| std::cmp::Reverse(one.growth(|info| info.data_segs_out.into())));
    let Some((wait_us, first)) = held.first() else {
        return behind(evidence, notes, window, &open);
    };
    let rate = first.growth(|info| info.data_segs_out.into()) as f64
        / 2.0
        / window.time().as_secs_f64().max(1e-3);
    let others = match held.len() {
        1 => String::new(),
        count => format!(", and so do {} others", count - 1),
    };
    let wait_ms = wait_us / 1000;
    let found = finding(
        Severity::Medium,
        format!(
            "small writes of {} wait {wait_ms} ms for a delayed acknowledgement{others}",
            name(evidence, first.after)
        ),
    )
    .costs(format!("{wait_ms} ms for each of {rate:.0} exchanges a second"))
    .seen(Confidence::Now)
    .read("sock_diag: tcp_info rtt_min", format!("{} us", first.after.info.min_rtt))
    .read("/proc/net/netstat: TcpExt DelayedACKs, of this host's own", delayed(window).evidence());
    let sockets =
        held.iter().map(|(_, one)| if is_held(one.after) { one.after } else { one.before });
    notes.find(
        listed(found, evidence, sockets, "tcp_info", |one| {
            format!("{} bytes unsent, {} segment in flight", one.info.notsent_bytes, one.info.unacked)
        })
        .because(
            "Nagle's algorithm holds a write that is shorter than a segment while another one is not acknowledged, \
             and the far end, which waits for the rest, delays its acknowledgement by 40 ms and more (RFC 896, \
             tcp(7))",
        )
        .effect("a request is sent whole at once: the wait ends")
        .risk("a program that writes single bytes sends more packets: collect what belongs together")
        .change(
            "TCP_NODELAY on the program's sockets (often a setting of its client library), or one write for each \
             request (writev, sendmsg)",
            "unset TCP_NODELAY",
        ),
    );
}

fn delayed(window: &Window) -> Losses {
    window.sum(&["TcpExtDelayedACKs"])
}

/// A small write waits although the congestion window has room.
fn is_held(socket: &TcpSocket) -> bool {
    let info = &socket.info;
    socket.state == TcpState::Established
        && (1..info.snd_cwnd).contains(&info.unacked)
        && (1..info.snd_mss).contains(&info.notsent_bytes)
}

/// Time that an exchange of two segments waits, if small writes are held; microseconds.
fn wait_us(one: &Connection<'_>) -> Option<u64> {
    let segments = one.growth(|info| info.data_segs_out.into());
    if segments < 2 || !(is_held(one.before) || is_held(one.after)) {
        return None;
    }
    let wait = 2 * one.growth(|info| info.busy_time) / segments;
    let round_trip = u64::from(one.after.info.min_rtt);
    (WAIT_US_MIN..WAIT_US_MAX).contains(&wait.saturating_sub(round_trip)).then_some(wait)
}

/// Connections on which the far end seems to wait: two small segments come for each answer, one of them after a
/// delayed acknowledgement, about 25 times a second.
fn behind(evidence: &Evidence, notes: &mut Notes<'_>, window: &Window, open: &[Connection<'_>]) {
    let delayed = delayed(window);
    let seconds = window.time().as_secs_f64().max(1e-3);
    let Some(one) = open.iter().find(|one| is_waited_for(one, delayed, seconds)) else { return };
    notes.find(
        finding(
            Severity::Low,
            format!(
                "requests reach {} in two parts, the second one after a delayed acknowledgement of 40 ms: the far \
                 end may hold small writes",
                name(evidence, one.after)
            ),
        )
        .seen(Confidence::Possible)
        .read("/proc/net/netstat: TcpExt DelayedACKs", delayed.evidence())
        .read("sock_diag: tcp_info segs_in with data", one.after.info.data_segs_in.to_string())
        .because(
            "a sender with Nagle's algorithm holds the rest of a request until the first part is acknowledged \
             (RFC 896); a slow answer looks alike from here",
        )
        .effect("requests arrive at once")
        .change("TCP_NODELAY in the program at the far end", "unset TCP_NODELAY there"),
    );
}

/// Each answer follows two small segments and a delayed acknowledgement.
///
/// - `delayed`: acknowledgements that this host delayed.
fn is_waited_for(one: &Connection<'_>, delayed: Losses, seconds: f64) -> bool {
    let answers = one.growth(|info| info.data_segs_out.into());
    let parts = one.growth(|info| info.data_segs_in.into());
    let bare = one.growth(|info| info.segs_out.into()).saturating_sub(answers);
    (18.0..26.0).contains(&(answers as f64 / seconds))
        && parts.abs_diff(2 * answers) * 10 <= 2 * answers
        && bare * 10 >= answers * 9
        && delayed.now * 10 >= answers * 9
        && one.growth(|info| info.bytes_received) / parts.max(1) < 1000
}
