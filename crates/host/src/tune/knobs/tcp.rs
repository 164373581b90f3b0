//! Settings of TCP and of listening sockets in `/proc/sys`.
//!
//! The connections that a setting reaches are those of Linux 6.18; the function that reads it is named beside each.

use super::sysctl::{Sysctl, of_netns};
use crate::net::{TcpSocket, TcpState, tcp_sockets};
use crate::tune::error::KnobError;
use crate::tune::knob::Knob;
use crate::tune::knob::Reaches::{AtOnce, NewConnections, NewListeners};
use crate::tune::system::{self, System};
use crate::tune::target::Target;
use crate::tune::value::{Value, ValueFormat};

const COUNT: ValueFormat = to(i32::MAX as i64);
/// Values are printed as they are read, and 0 seconds would mean no wait at all.
const SECONDS: ValueFormat = ValueFormat::Number { min: 1, max: 32_767 };

const fn to(max: i64) -> ValueFormat {
    ValueFormat::Number { min: 0, max }
}

/// Source: Documentation/networking/ip-sysctl.rst, and the functions of net/ipv4 named below.
pub(super) static SYSCTLS: &[Sysctl] = &[
    // tcp_assign_congestion_control, by tcp_init_sock and tcp_ca_openreq_child: accepted ones too.
    of_netns(
        "tcp-congestion-control",
        "net/ipv4/tcp_congestion_control",
        ValueFormat::Name,
        "congestion control of sockets that name none",
    )
    .reaching(NewConnections)
    .accepting(accepts_congestion_control),
    // __sys_listen_socket
    of_netns(
        "somaxconn",
        "net/core/somaxconn",
        COUNT,
        "limit of the backlog that a program passes to listen()",
    )
    .reaching(NewListeners)
    .noting(listeners_at_limit),
    // tcp_conn_request, at each SYN
    of_netns(
        "tcp-max-syn-backlog",
        "net/ipv4/tcp_max_syn_backlog",
        COUNT,
        "half-open connections of a listener without SYN cookies; a quarter is for known hosts",
    )
    .reaching(NewConnections),
    // tcp_conn_request
    of_netns(
        "tcp-syncookies",
        "net/ipv4/tcp_syncookies",
        to(2),
        "cookies in place of half-open connections: never (0), if their queue is full (1), always (2)",
    )
    .reaching(NewConnections),
    // tcp_try_fastopen at each SYN, tcp_fastopen_defer_connect
    of_netns(
        "tcp-fastopen",
        "net/ipv4/tcp_fastopen",
        to(0xfff),
        "data in the SYN: of clients (1), of servers (2), and the other bits of ip-sysctl",
    )
    .reaching(NewConnections),
    // tcp_syn_options, tcp_parse_options
    of_netns(
        "tcp-timestamps",
        "net/ipv4/tcp_timestamps",
        to(2),
        "timestamps: none (0), with a random offset for each connection (1), without (2)",
    )
    .reaching(NewConnections),
    of_netns("tcp-sack", "net/ipv4/tcp_sack", to(1), "selective acknowledgements")
        .reaching(NewConnections),
    // tcp_notsent_lowat of net/tcp.h
    of_netns(
        "tcp-notsent-lowat",
        "net/ipv4/tcp_notsent_lowat",
        to(u32::MAX as i64),
        "unsent bytes of a socket above which it is not writable",
    )
    .reaching(AtOnce),
    // tcp_slow_start_after_idle_check of net/tcp.h
    of_netns(
        "tcp-slow-start-after-idle",
        "net/ipv4/tcp_slow_start_after_idle",
        to(1),
        "congestion window shrinks while a connection is idle; not with bbr",
    )
    .reaching(AtOnce),
    // tcp_should_autocork
    of_netns(
        "tcp-autocorking",
        "net/ipv4/tcp_autocorking",
        to(1),
        "small writes wait for those that are in the device's queue",
    )
    .reaching(AtOnce),
    // tcp_win_from_space of net/tcp.h, before Linux 6.6
    of_netns(
        "tcp-adv-win-scale",
        "net/ipv4/tcp_adv_win_scale",
        ValueFormat::Number { min: -31, max: 31 },
        "part of the receive buffer that is offered as window; ignored since Linux 6.6",
    )
    .reaching(AtOnce),
    // tcp_update_pacing_rate
    of_netns(
        "tcp-pacing-ss-ratio",
        "net/ipv4/tcp_pacing_ss_ratio",
        to(1000),
        "pacing rate in slow start, percent of window over round trip; not with bbr",
    )
    .reaching(AtOnce),
    of_netns(
        "tcp-pacing-ca-ratio",
        "net/ipv4/tcp_pacing_ca_ratio",
        to(1000),
        "the same in congestion avoidance",
    )
    .reaching(AtOnce),
    // tcp_twsk_unique, by connect()
    of_netns(
        "tcp-tw-reuse",
        "net/ipv4/tcp_tw_reuse",
        to(2),
        "connect() uses ports in TIME-WAIT again: never (0), always (1), on loopback (2)",
    )
    .reaching(NewConnections),
    // tcp_time_wait, at each close
    of_netns(
        "tcp-max-tw-buckets",
        "net/ipv4/tcp_max_tw_buckets",
        COUNT,
        "sockets in TIME-WAIT; those above it end at once",
    )
    .reaching(AtOnce),
    // inet_sk_get_local_port_range
    of_netns(
        "ip-local-port-range",
        "net/ipv4/ip_local_port_range",
        ValueFormat::Range { min: 1, max: 65_535 },
        "local ports of connect(), and of bind() to port 0",
    )
    .reaching(NewConnections),
    // keepalive_time_when: a timer that runs keeps its end.
    of_netns(
        "tcp-keepalive-time",
        "net/ipv4/tcp_keepalive_time",
        SECONDS,
        "idle seconds before the first keep-alive of sockets with SO_KEEPALIVE",
    )
    .reaching(NewConnections),
    // tcp_keepalive_timer, each time
    of_netns(
        "tcp-keepalive-intvl",
        "net/ipv4/tcp_keepalive_intvl",
        SECONDS,
        "seconds between keep-alives without an answer",
    )
    .reaching(AtOnce),
    of_netns(
        "tcp-keepalive-probes",
        "net/ipv4/tcp_keepalive_probes",
        ValueFormat::Number { min: 1, max: 127 },
        "keep-alives without an answer before the connection is reset",
    )
    .reaching(AtOnce),
    // tcp_check_oom
    of_netns(
        "tcp-max-orphans",
        "net/ipv4/tcp_max_orphans",
        COUNT,
        "closed sockets with unsent data, of all namespaces; those above it are reset",
    )
    .reaching(AtOnce),
    // tcp_orphan_retries
    of_netns(
        "tcp-orphan-retries",
        "net/ipv4/tcp_orphan_retries",
        to(255),
        "retransmissions of a closed socket without an answer; 0 stands for 8",
    )
    .reaching(AtOnce),
    // tcp_update_metrics, at the end of a connection
    of_netns(
        "tcp-no-metrics-save",
        "net/ipv4/tcp_no_metrics_save",
        to(1),
        "a connection that ends leaves no round trip and threshold to the next one",
    )
    .reaching(AtOnce),
];

/// Refuses a congestion control that the kernel does not have or would not take here, and one that could not be restored.
///
/// A name that is not there would make the kernel load a module. Other namespaces than the first one take only those that
/// every user may use.
///
/// Source: net/ipv4/tcp_cong.c, tcp_set_default_congestion_control.
fn accepts_congestion_control(
    sysctl: &Sysctl,
    system: &System,
    target: &Target,
    value: &Value,
) -> Result<(), KnobError> {
    let wanted = value.as_str().trim();
    check_is_available(sysctl, system, target, wanted)?;
    if *target != Target::Netns || !system.is_child_netns() {
        return Ok(());
    }
    let allowed = names(system, target, "net/ipv4/tcp_allowed_congestion_control");
    let before = sysctl.read_at(system, target)?;
    let must_be_allowed = [(wanted, "set"), (before.as_str(), "restored")];
    for (name, act) in must_be_allowed {
        if !allowed.is_empty() && !allowed.iter().any(|allowed| allowed == name) {
            let why = format!(
                "{name} could not be {act}: a namespace takes only {}; allow it on the host first: `sysctl -w \
                 net.ipv4.tcp_allowed_congestion_control='{} {name}'`, or set route-congestion-control",
                allowed.join(", "),
                allowed.join(" ")
            );
            return Err(refused(sysctl, target, value.as_str(), why));
        }
    }
    Ok(())
}

/// Refuses a congestion control that the kernel does not have at present.
pub(super) fn check_is_available(
    knob: &dyn Knob,
    system: &System,
    target: &Target,
    name: &str,
) -> Result<(), KnobError> {
    let place = if *target == Target::Host { Target::Host } else { Target::Netns };
    let available = names(system, &place, "net/ipv4/tcp_available_congestion_control");
    if available.is_empty() || available.iter().any(|available| available == name) {
        return Ok(());
    }
    let why = format!(
        "the kernel has {} and no {name}: load its module first, such as `modprobe tcp_{name}`",
        available.join(", ")
    );
    Err(refused(knob, target, name, why))
}

/// Names in a file of `/proc/sys`; empty if it cannot be read.
fn names(system: &System, target: &Target, file: &str) -> Vec<String> {
    let text = system.sysctl(target, file, system::read).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Error of a value that is not set.
fn refused(knob: &dyn Knob, target: &Target, value: &str, why: String) -> KnobError {
    KnobError::Refused {
        knob: knob.id().to_owned(),
        target: target.clone(),
        value: value.to_owned(),
        source: why.into(),
    }
}

/// Names the listeners whose backlog is an earlier limit.
fn listeners_at_limit(system: &System, _: &Value) -> Option<String> {
    let listeners = listeners(system);
    (!listeners.is_empty()).then(|| {
        format!(
            "open listeners keep their backlog until their programs call listen() again: {}",
            backlogs(&listeners)
        )
    })
}

/// Listening sockets of TCP, those with the smallest backlog first; empty if they cannot be read.
fn listeners(system: &System) -> Vec<TcpSocket> {
    let mut sockets = system.within(tcp_sockets).unwrap_or_default();
    sockets.retain(|one| one.state == TcpState::Listen);
    sockets.sort_by_key(|one| (one.send_queue, one.local));
    sockets
}

/// Addresses and backlogs, such as `0.0.0.0:80 has 128`.
fn backlogs(listeners: &[TcpSocket]) -> String {
    const LISTED_MAX: usize = 8;
    let listed = listeners.iter().take(LISTED_MAX);
    let mut text = listed
        .map(|one| format!("{} has {}", one.local, one.send_queue))
        .collect::<Vec<_>>()
        .join(", ");
    if listeners.len() > LISTED_MAX {
        text.push_str(&format!(" and {} more", listeners.len() - LISTED_MAX));
    }
    text
}
