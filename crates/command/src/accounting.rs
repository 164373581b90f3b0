//! Counters of the kernel around a client, and the measurement made of them.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use host::explain::StageLatencies;
use host::net::{snmp_counter, snmp_table, snmp6_counter};
use host::netns::Netns;
use host::sysfs::Sysfs;
use lab::adapters::Figure;
use lab::program::Usage;
use model::{Measurement, PathError, Shape, Trap};
use serde::{Deserialize, Serialize};

use crate::side::Side;

/// Counters of a namespace's sockets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SocketCounts {
    /// Datagrams dropped because a socket's buffer was full; `None` if the kernel does not say.
    udp_buffer_errors: Option<u64>,
    /// TCP segments sent again; `None` if the kernel does not say.
    tcp_retransmits: Option<u64>,
}

impl SocketCounts {
    /// Counters of the near end; those of a place that both ends share are the far end's.
    pub(crate) fn read_near(side: &Side) -> Result<Self, PathError> {
        if side.is_shared {
            return Ok(SocketCounts { udp_buffer_errors: Some(0), tcp_retransmits: Some(0) });
        }
        SocketCounts::read(&side.netns)
    }

    pub(crate) fn read(netns: &Netns) -> Result<Self, PathError> {
        let (text, of_ipv6) = snmp(netns)?;
        let udp = snmp_counter(&text, "Udp", "RcvbufErrors");
        Ok(SocketCounts {
            udp_buffer_errors: udp.map(|count| count.saturating_add(of_ipv6)),
            tcp_retransmits: snmp_counter(&text, "Tcp", "RetransSegs"),
        })
    }

    fn each(&self, other: &Self, of: impl Fn(u64, u64) -> u64) -> Self {
        let [udp_buffer_errors, tcp_retransmits] = [
            (self.udp_buffer_errors, other.udp_buffer_errors),
            (self.tcp_retransmits, other.tcp_retransmits),
        ]
        .map(|(one, other)| one.zip(other).map(|(one, other)| of(one, other)));
        SocketCounts { udp_buffer_errors, tcp_retransmits }
    }

    pub(crate) fn since(&self, earlier: &Self) -> Self {
        self.each(earlier, u64::saturating_sub)
    }

    /// Sum of both ends.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        self.each(other, u64::saturating_add)
    }
}

/// Counters of the far end at one moment, or their differences.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FarCounters {
    /// Packets of the interface, both directions.
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Packets that the interface dropped.
    pub(crate) drops: u64,
    pub(crate) sockets: SocketCounts,
}

impl FarCounters {
    /// `None` for this host itself.
    pub(crate) fn now(side: &Side) -> Result<Option<Self>, PathError> {
        let Some(sysfs) = &side.sysfs else { return Ok(None) };
        let mut counters = FarCounters {
            packets: statistic(sysfs, &side.ifname, "rx_packets")?,
            bytes: statistic(sysfs, &side.ifname, "rx_bytes")?,
            drops: statistic(sysfs, &side.ifname, "rx_dropped")?,
            sockets: SocketCounts::read(&side.netns)?,
        };
        // A loopback counts each packet twice, as sent and as received.
        if !side.is_shared {
            counters.packets += statistic(sysfs, &side.ifname, "tx_packets")?;
            counters.bytes += statistic(sysfs, &side.ifname, "tx_bytes")?;
            counters.drops += statistic(sysfs, &side.ifname, "tx_dropped")?;
        }
        Ok(Some(counters))
    }

    /// With the sockets of the near end as well.
    pub(crate) fn with_near_sockets(self, near: &SocketCounts) -> Self {
        FarCounters { sockets: near.plus(&self.sockets), ..self }
    }

    pub(crate) fn since(&self, earlier: &Self) -> Self {
        FarCounters {
            packets: self.packets.saturating_sub(earlier.packets),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            drops: self.drops.saturating_sub(earlier.drops),
            sockets: self.sockets.since(&earlier.sockets),
        }
    }
}

/// Stage latencies of the server's packets, as one end reports them to the other.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Stages {
    /// Value in nanoseconds and count of each filled bucket, by stage.
    segments: BTreeMap<String, Vec<(u64, u64)>>,
    packets_count: u64,
    dropped_count: u64,
    cost_ns_per_packet: Option<f64>,
    missing: Vec<String>,
}

impl From<StageLatencies> for Stages {
    fn from(seen: StageLatencies) -> Self {
        Stages {
            segments: seen.segments.iter().map(|(&n, h)| (n.to_owned(), buckets(h))).collect(),
            packets_count: seen.packets_count,
            dropped_count: seen.dropped_count,
            cost_ns_per_packet: seen.cost_ns_per_packet,
            missing: seen.missing,
        }
    }
}

/// (nanoseconds, count) of each value.
fn buckets(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    histogram.iter_recorded().map(|at| (at.value_iterated_to(), at.count_at_value())).collect()
}

pub(crate) fn statistic(sysfs: &Sysfs, ifname: &str, name: &str) -> Result<u64, PathError> {
    let path = format!("class/net/{ifname}/statistics/{name}");
    let text = sysfs.read(&path).map_err(PathError::part)?;
    text.trim()
        .parse()
        .map_err(|_| PathError::Part(format!("{path} is not a number: {text:?}").into()))
}

/// The table of the namespace's counters, and the datagrams of IPv6 that full buffers lost, which it lacks.
fn snmp(netns: &Netns) -> Result<(String, u64), PathError> {
    let read = netns.run(|| Ok((snmp_table()?, snmp6_counter("Udp6RcvbufErrors").unwrap_or(0))));
    read.map_err(PathError::part)?.map_err(|error: std::io::Error| PathError::part(error))
}

/// Longest time of a stage that is kept apart, nanoseconds: another host's figure bounds no memory here.
const NS_MAX: u64 = 1 << 40;

/// Names of the near end's program in figures, and of the far end's.
pub(crate) const CLIENT: &str = "client";
pub(crate) const FEED: &str = "feed";
pub(crate) const SERVER: &str = "server";

/// Raw material of a measurement.
pub(crate) struct ObservedTrial<'a> {
    /// Name of the near end's program: client or feed.
    pub(crate) near: &'static str,
    pub(crate) client: &'a Usage,
    /// Of the client; with a feed, from its start to the end of the server.
    pub(crate) wall_ns: u64,
    /// During that time; `None` without a server.
    pub(crate) server: Option<&'a Usage>,
    /// `None` if it ran already.
    pub(crate) ready_ns: Option<u64>,
    /// With the sockets of both ends; `None` for this host itself.
    pub(crate) counters: Option<FarCounters>,
    /// Figures of the client's output.
    pub(crate) figures: Vec<(&'a Figure, f64)>,
}

/// The measurement of a trial, without the machine's CPU time.
pub(crate) fn measurement(seen: &ObservedTrial<'_>) -> Measurement {
    let mut m = Measurement { wall_ns: seen.wall_ns.max(1), ..Measurement::default() };
    m.packet_count = seen.counters.map(|counters| counters.packets);
    m.costs.insert(seen.near.into(), seen.client.cost());
    m.costs.extend(seen.server.map(|server| (SERVER.to_owned(), server.cost())));
    let (counters, sockets) = (seen.counters, seen.counters.map(|counters| counters.sockets));
    let server_memory = seen.server.and_then(|server| server.memory_bytes_max);
    if seen.near == CLIENT {
        m.figures.insert("client_wall_ns".into(), seen.wall_ns as f64);
    }
    let near_memory = seen.client.memory_bytes_max.map(|bytes| bytes as f64);
    let of_near =
        [("cpu_ns", Some(seen.client.cpu_ns() as f64)), ("memory_bytes_max", near_memory)];
    let of_near = of_near.into_iter().filter_map(|(name, value)| Some((name, value?)));
    m.figures.extend(of_near.map(|(name, value)| (format!("{}_{name}", seen.near), value)));
    let figures = [
        ("server_cpu_ns", seen.server.map(|server| server.cpu_ns() as f64)),
        ("server_memory_bytes_max", server_memory.map(|bytes| bytes as f64)),
        ("server_ready_ns", seen.ready_ns.map(|ns| ns as f64)),
        ("interface_bytes", counters.map(|seen| seen.bytes as f64)),
        ("interface_packet_count", counters.map(|seen| seen.packets as f64)),
        ("interface_drop_count", counters.map(|seen| seen.drops as f64)),
        (
            "udp_buffer_error_count",
            sockets.and_then(|seen| seen.udp_buffer_errors).map(|count| count as f64),
        ),
        (
            "tcp_retransmit_count",
            sockets.and_then(|seen| seen.tcp_retransmits).map(|count| count as f64),
        ),
    ];
    let measured = figures.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    m.figures.extend(measured);
    for name in ["client", "feed", "server"] {
        let shape = Shape { unit: "bytes".into(), better: model::Better::Lower };
        m.shapes.insert(format!("{name}_memory_bytes_max"), shape.clone());
        m.shapes.insert("interface_bytes".to_owned(), shape);
    }
    for (figure, value) in &seen.figures {
        figure.enter(*value, &mut m);
    }
    m
}

/// Adds the stages of the server's packets, and their cost.
pub(crate) fn add_stages(stages: Stages, m: &mut Measurement) {
    for (name, buckets) in stages.segments {
        let mut histogram =
            Histogram::new_with_bounds(1, NS_MAX, 3).expect("constant bounds are valid");
        for (value, count) in buckets {
            histogram.saturating_record_n(value.min(NS_MAX), count);
        }
        m.segments.insert(name, histogram);
    }
    let cost = stages.cost_ns_per_packet;
    m.figures.extend(cost.map(|ns| ("stage_trace_ns_per_packet".to_owned(), ns)));
    m.counters.insert("stage_packet_count".into(), stages.packets_count);
    m.counters.insert("stage_dropped_count".into(), stages.dropped_count);
    m.traps.extend(
        stages
            .missing
            .into_iter()
            .map(|what| Trap { what, advice: "read the stages of packets as incomplete".into() }),
    );
}
