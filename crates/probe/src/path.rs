//! The path: its loads, and the sessions that it opens.

use std::time::Duration;

use host::net::Mac;
use lab::{Pair, peers};
use model::{
    Arm, ArmKind, Load, LoadWords, PathError, PathLoad, Session, Support, SwitchId, TypedPath,
};

use crate::tcp::{MESSAGE_BYTES, TcpTraffic};
use crate::{Switch, remote, role, session, support, switches, verbs};

model::loads! {
    /// Traffic between the two ends.
    pub enum ProbeLoad {
        Ping {
            what: "one datagram at a time, the next when its echo has arrived (closed loop)",
            judged: &["rtt_ns_p50", "rtt_ns_p99", "cpu_ns_per_packet"],
            size_bytes: 64,
            rate_pps: 0,
            // A p99 needs 1,000 samples, and a round trip between CPUs that sleep deeply takes 200 µs.
            trial: Duration::from_millis(300),
            peers: &["sockperf"],
        },
        Paced {
            what: "echoed datagrams on a fixed schedule, timed from their due time (open loop)",
            judged: &["rtt_ns_p50", "rtt_ns_p99", "cpu_ns_per_packet"],
            size_bytes: 64,
            rate_pps: 10_000,
            trial: Duration::from_millis(200),
            peers: &["sockperf", "irtt"],
        },
        Flood {
            what: "as many datagrams as the sending engine can send, one way",
            judged: &["received_pps", "cpu_ns_per_packet"],
            size_bytes: 64,
            rate_pps: 0,
            trial: Duration::from_millis(100),
            peers: &["iperf3", "qperf"],
        },
        EchoFlood {
            what: "echoed datagrams as fast as they go, 192 in flight, both directions at once",
            judged: &["received_pps", "rtt_ns_p99", "cpu_ns_per_packet"],
            size_bytes: 64,
            rate_pps: 0,
            trial: Duration::from_millis(200),
            peers: &["iperf3"],
        },
        Storm {
            what: "more datagrams than any receiver can take, from the kernel's live-frame generator",
            judged: &["received_pps", "cpu_ns_per_packet"],
            size_bytes: 64,
            rate_pps: 0,
            trial: Duration::from_millis(200),
            peers: verbs::NAMES,
        },
        TcpPing {
            what: "requests on one TCP connection, each written as header and body, the next when the answer is read",
            judged: &["rtt_ns_p50", "cpu_ns_per_packet"],
            size_bytes: 64,
            rate_pps: 0,
            // A delayed acknowledgement takes 40 ms, and a median needs 20 samples.
            trial: Duration::from_secs(1),
            peers: &[],
        },
        TcpConnect {
            what: "one TCP connection after the other, each with one byte and its answer",
            judged: &["connect_ns_p50", "connect_ns_p99", "cpu_ns_per_packet"],
            size_bytes: 0,
            rate_pps: 0,
            trial: Duration::from_millis(200),
            peers: &[],
        },
        TcpFlood {
            what: "bytes over one TCP connection, one way, as fast as they go",
            judged: &["goodput_bps", "cpu_ns_per_packet"],
            size_bytes: 65_536,
            rate_pps: 0,
            trial: Duration::from_millis(200),
            peers: &["iperf3", "qperf"],
        },
    }
}

/// The path.
#[derive(Debug, Default, Clone, Copy)]
pub struct Probe;

/// Trials between two existing ends, in place of a lab's.
///
/// - `router`: MAC address of the router between the ends; `None` if one wire joins them. Nothing
///   returns through a router, so it needs a one-way load.
/// - `nic`: description of the wire, for the record.
///
/// Errors: [`PathError::Invalid`] for a load that needs a lab.
pub fn between(
    pair: Pair,
    router: Option<Mac>,
    nic: String,
    load: &Load,
) -> Result<Box<dyn Session>, PathError> {
    let kind = ProbeLoad::parse(load)?;
    let remedy = match (kind, router) {
        _ if load.ipv6 => "leave out --ip 6: they are addressed by IPv4",
        _ if load.vlan_tag.is_some() => "leave out --vlan: they are addressed without tags",
        _ if load.wire.is_some() => "leave out --wire: it joins the ends of a lab",
        _ if kind.tcp().is_some() => "use a UDP load, such as ping",
        (ProbeLoad::Storm, _) => "use another load: storm needs the veth of a lab",
        (kind, Some(_)) if kind != ProbeLoad::Flood => {
            "use flood: a router returns nothing to the near end"
        }
        _ => {
            check_size(load, kind)?;
            return Ok(Box::new(session::LabSession::between(pair, router, nic, load, kind)?));
        }
    };
    let what = format!("load {kind} between existing ends");
    Err(PathError::Invalid { what, remedy: remedy.to_owned() })
}

/// Errors: the load does not go over a wire with distance.
fn check_wire(load: &Load, kind: ProbeLoad) -> Result<(), PathError> {
    if load.wire.is_none() {
        return Ok(());
    }
    let remedy = match kind {
        _ if load.far.is_some() => "leave out --wire or --far: a wire joins the ends of a lab",
        ProbeLoad::Storm | ProbeLoad::Flood | ProbeLoad::EchoFlood => {
            "use tcp-flood, tcp-ping, tcp-connect, ping or paced: a flood of datagrams overruns a wire of any rate"
        }
        _ => return Ok(()),
    };
    let what = format!("load {kind} over a wire with distance");
    Err(PathError::Invalid { what, remedy: remedy.to_owned() })
}

pub(super) fn check_size(load: &Load, kind: ProbeLoad) -> Result<(), PathError> {
    match kind.tcp() {
        Some(TcpTraffic::Connect) => return Ok(()),
        Some(_) if MESSAGE_BYTES.contains(&load.size_bytes) => return Ok(()),
        Some(_) => {
            return Err(PathError::Invalid {
                what: format!("a message of {} bytes", load.size_bytes),
                remedy: format!(
                    "use --size between {} (a header, and a body) and {}",
                    MESSAGE_BYTES.start(),
                    MESSAGE_BYTES.end()
                ),
            });
        }
        None => {}
    }
    // In a packet of 9000 bytes, behind the headers of IP and UDP.
    let most = if load.ipv6 { 8952 } else { 8972 };
    if (role::PAYLOAD_BYTES_MIN..=most).contains(&load.size_bytes) {
        return Ok(());
    }
    Err(PathError::Invalid {
        what: format!("a payload of {} bytes", load.size_bytes),
        remedy: format!(
            "use --size between {} (the probe's header) and {most} (MTU 9000)",
            role::PAYLOAD_BYTES_MIN
        ),
    })
}

/// Reason why a lab does not run an arm over IPv6.
fn refused_over_ipv6(arm: &Arm, kind: ProbeLoad) -> Option<String> {
    if arm.kind == ArmKind::Peer {
        return Some(format!("{} runs over IPv4 here; leave it or --ip 6 out", arm.name));
    }
    (kind == ProbeLoad::Storm).then(|| {
        "storm sends without UDP checksums, which IPv6 requires; use flood, or leave out --ip 6"
            .to_owned()
    })
}

impl TypedPath for Probe {
    type Switch = Switch;
    type Kind = ProbeLoad;

    const NAME: &'static str = "probe";
    const WHAT: &'static str =
        "packet I/O engines: UDP sockets, segmentation offload, AF_XDP in all its modes";

    fn ladder(&self, load: &Load, kind: ProbeLoad) -> Vec<SwitchId> {
        let cpu_count = sys::affinity::allowed_cpus().map_or(1, |cpus| cpus.len());
        let rungs = switches::ladder(kind, load.far.is_none(), cpu_count);
        rungs.into_iter().map(SwitchId::from).collect()
    }

    fn load_words(&self, kind: ProbeLoad) -> LoadWords {
        let noun = match kind {
            ProbeLoad::Ping | ProbeLoad::Paced => "ping",
            ProbeLoad::TcpPing => "request",
            ProbeLoad::TcpConnect => "connection",
            _ => "",
        };
        LoadWords { noun, baseline: "plain socket" }
    }

    fn support(&self, arm: &Arm, load: &Load, kind: ProbeLoad) -> Support {
        if let Some(two) = &load.far {
            return match (remote::support(arm, kind, two), switches::contradiction(arm, kind)) {
                (Support::Yes, Some(why)) => Support::Refused { why },
                (support, _) => support,
            };
        }
        if load.ipv6
            && let Some(why) = refused_over_ipv6(arm, kind)
        {
            return Support::Refused { why };
        }
        if load.vlan_tag.is_some()
            && let Some(missing) = support::vlan()
        {
            return missing;
        }
        if arm.kind == ArmKind::Peer {
            let is_verb = kind == ProbeLoad::Storm && verbs::NAMES.contains(&arm.name.as_str());
            return if is_verb {
                verbs::support(&arm.name)
            } else {
                peers::support(&arm.name, kind.kind())
            };
        }
        if let Some(why) = switches::contradiction(arm, kind) {
            return Support::Refused { why };
        }
        let support = support::support(arm);
        if support.is_yes() && kind == ProbeLoad::Storm {
            return support::no_generator().unwrap_or(support);
        }
        support
    }

    fn open(&self, load: &Load, kind: ProbeLoad) -> Result<Box<dyn Session>, PathError> {
        check_size(load, kind)?;
        if kind == ProbeLoad::Storm && load.vlan_tag.is_some() {
            let what = "frames of the live-frame generator have no VLAN tags".to_owned();
            let remedy = "use flood, or leave out --vlan".to_owned();
            return Err(PathError::Invalid { what, remedy });
        }
        check_wire(load, kind)?;
        match &load.far {
            Some(two) => Ok(Box::new(remote::RemoteSession::open(load, kind, two)?)),
            None => Ok(Box::new(session::LabSession::open(load, kind)?)),
        }
    }
}
