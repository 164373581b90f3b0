//! The path: its loads, and the sessions that it opens.

use std::time::Duration;

use host::net::Mac;
use lab::{Pair, peers};
use model::{
    Arm, ArmKind, Load, LoadKind, Path, PathError, PathSwitch, Session, Support, SwitchId,
    SwitchSpec,
};

use crate::tcp::{Kind, MESSAGE_BYTES};
use crate::{Switch, remote, role, session, support, switches, verbs};

static LOADS: [LoadKind; 8] = [
    LoadKind {
        name: "ping",
        what: "one datagram at a time, the next when its echo has arrived (closed loop)",
        judged: &["rtt_ns_p50", "rtt_ns_p99", "cpu_ns_per_packet"],
        size_bytes: 64,
        rate_pps: 0,
        // A p99 needs 1,000 samples, and a round trip between CPUs that sleep deeply takes 200 µs.
        trial: Duration::from_millis(300),
        peers: &["sockperf"],
    },
    LoadKind {
        name: "paced",
        what: "echoed datagrams on a fixed schedule, timed from their due time (open loop)",
        judged: &["rtt_ns_p50", "rtt_ns_p99", "cpu_ns_per_packet"],
        size_bytes: 64,
        rate_pps: 10_000,
        trial: Duration::from_millis(200),
        peers: &["sockperf", "irtt"],
    },
    LoadKind {
        name: "flood",
        what: "as many datagrams as the sending engine can send, one way",
        judged: &["received_pps", "cpu_ns_per_packet"],
        size_bytes: 64,
        rate_pps: 0,
        trial: Duration::from_millis(100),
        peers: &["iperf3", "qperf"],
    },
    LoadKind {
        name: "echo-flood",
        what: "echoed datagrams as fast as they go, 192 in flight, both directions at once",
        judged: &["received_pps", "rtt_ns_p99", "cpu_ns_per_packet"],
        size_bytes: 64,
        rate_pps: 0,
        trial: Duration::from_millis(200),
        peers: &["iperf3"],
    },
    LoadKind {
        name: "storm",
        what: "more datagrams than any receiver can take, from the kernel's live-frame generator",
        judged: &["received_pps", "cpu_ns_per_packet"],
        size_bytes: 64,
        rate_pps: 0,
        trial: Duration::from_millis(200),
        peers: verbs::NAMES,
    },
    LoadKind {
        name: "tcp-ping",
        what: "requests on one TCP connection, each written as header and body, the next when the answer is read",
        judged: &["rtt_ns_p50", "cpu_ns_per_packet"],
        size_bytes: 64,
        rate_pps: 0,
        // A delayed acknowledgement takes 40 ms, and a median needs 20 samples.
        trial: Duration::from_secs(1),
        peers: &[],
    },
    LoadKind {
        name: "tcp-connect",
        what: "one TCP connection after the other, each with one byte and its answer",
        judged: &["connect_ns_p50", "connect_ns_p99", "cpu_ns_per_packet"],
        size_bytes: 0,
        rate_pps: 0,
        trial: Duration::from_millis(200),
        peers: &[],
    },
    LoadKind {
        name: "tcp-flood",
        what: "bytes over one TCP connection, one way, as fast as they go",
        judged: &["goodput_bps", "cpu_ns_per_packet"],
        size_bytes: 65_536,
        rate_pps: 0,
        trial: Duration::from_millis(200),
        peers: &["iperf3", "qperf"],
    },
];

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
    let remedy = match (load.kind.as_str(), router) {
        _ if load.ipv6 => "leave out --ip 6: they are addressed by IPv4",
        _ if load.vlan_tag.is_some() => "leave out --vlan: they are addressed without tags",
        (kind, _) if Kind::of(kind).is_some() => "use a UDP load, such as ping",
        ("storm", _) => "use another load: storm needs the veth of a lab",
        (kind, Some(_)) if kind != "flood" => "use flood: a router returns nothing to the near end",
        _ => {
            check_size(load)?;
            return Ok(Box::new(session::LabSession::of(pair, router, nic, load)?));
        }
    };
    let what = format!("load {} between existing ends", load.kind);
    Err(PathError::Invalid { what, remedy: remedy.to_owned() })
}

pub(super) fn check_size(load: &Load) -> Result<(), PathError> {
    match Kind::of(&load.kind) {
        Some(Kind::Connect) => return Ok(()),
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
fn refused_over_ipv6(arm: &Arm, load: &Load) -> Option<String> {
    match (load.ipv6, load.kind.as_str()) {
        (true, _) if arm.kind == ArmKind::Peer => {
            Some(format!("{} runs over IPv4 here; leave it or --ip 6 out", arm.name))
        }
        (true, "storm") => Some(
            "storm sends without UDP checksums, which IPv6 requires; use flood, or leave out --ip 6"
                .into(),
        ),
        _ => None,
    }
}

impl Path for Probe {
    fn name(&self) -> &'static str {
        "probe"
    }

    fn what(&self) -> &'static str {
        "packet I/O engines: UDP sockets, segmentation offload, AF_XDP in all its modes"
    }

    fn switches(&self) -> &'static [SwitchSpec] {
        Switch::SPECS
    }

    fn loads(&self) -> &'static [LoadKind] {
        &LOADS
    }

    fn ladder(&self, load: &Load) -> Vec<SwitchId> {
        let cpu_count = sys::affinity::allowed_cpus().map_or(1, |cpus| cpus.len());
        let rungs = switches::ladder(&load.kind, load.far.is_none(), cpu_count);
        rungs.into_iter().map(SwitchId::from).collect()
    }

    fn support(&self, arm: &Arm, load: &Load) -> Support {
        if load.far.is_some() {
            return match (remote::support(arm), switches::contradiction(arm, &load.kind)) {
                (Support::Yes, Some(why)) => Support::Refused { why },
                (support, _) => support,
            };
        }
        if let Some(why) = refused_over_ipv6(arm, load) {
            return Support::Refused { why };
        }
        if load.vlan_tag.is_some()
            && let Some(missing) = support::vlan()
        {
            return missing;
        }
        if arm.kind == ArmKind::Peer
            && load.kind == "storm"
            && verbs::NAMES.contains(&arm.name.as_str())
        {
            return verbs::support(&arm.name);
        }
        if arm.kind == ArmKind::Peer {
            return peers::support(&arm.name, &load.kind, &LOADS);
        }
        if let Some(why) = switches::contradiction(arm, &load.kind) {
            return Support::Refused { why };
        }
        support::support(arm)
    }

    fn open(&self, load: &Load) -> Result<Box<dyn Session>, PathError> {
        check_size(load)?;
        if load.kind == "storm" && load.vlan_tag.is_some() {
            let what = "frames of the live-frame generator have no VLAN tags".to_owned();
            let remedy = "use flood, or leave out --vlan".to_owned();
            return Err(PathError::Invalid { what, remedy });
        }
        match &load.far {
            Some(two) => Ok(Box::new(remote::RemoteSession::open(load, two)?)),
            None => Ok(Box::new(session::LabSession::open(load)?)),
        }
    }
}
