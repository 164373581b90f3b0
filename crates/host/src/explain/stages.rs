//! Names and statistics of stages and drops.

use sys::bpf::explain::{Point, Seen, Stage, StagePlace, WAKE_UP, bucket_ns};

use super::drops::{Spaces, process_name, protocol_name};

/// Time from one point to the next.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StageRow {
    /// Activity between the two points.
    pub name: &'static str,
    pub from: &'static str,
    pub to: &'static str,
    /// Packets.
    pub count: u64,
    /// Timed packets, to which all times below refer.
    pub timed_count: u64,
    /// Sum of their times, nanoseconds.
    pub sum_ns: u64,
    /// Timed packets by time: nanoseconds, and the number of packets that took less.
    pub at_most: Vec<(u64, u64)>,
    /// Mean, nanoseconds.
    pub mean_ns: f64,
    /// Median, nanoseconds. All quantiles are middles of buckets, accurate to 6 %.
    pub p50_ns: f64,
    /// 90th percentile, nanoseconds.
    pub p90_ns: f64,
    /// 99th percentile, nanoseconds.
    pub p99_ns: f64,
    /// Longest, nanoseconds, exact.
    pub max_ns: u64,
    /// Place and flow of the packet that took longest; `None` if it was not seen, and in the middle of an observation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest: Option<LongestPlace>,
    #[serde(skip)]
    pub(super) longest_seen: StagePlace,
}

/// Where a packet was at the end of a stage, and its flow.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LongestPlace {
    /// Network namespace: name of `ip netns`, or a process in it; `None` for the one of this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Queueing discipline of the interface: `tbf, 10 Mbit/s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discipline: Option<String>,
    /// `TCP`, `UDP`, or the number of another IP protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Destination port, or the local one of a socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Source port, or the other end's of a socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_port: Option<u16>,
    /// Program and process that read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

pub(super) fn point_name(point: Point) -> &'static str {
    match point {
        Point::Nowhere => "",
        Point::Queued => "net_dev_queue",
        Point::ToDriver | Point::ToTunnel => "net_dev_start_xmit",
        Point::InBacklog => "netif_rx",
        Point::InGro => "napi_gro_receive_entry",
        Point::Received | Point::FromTunnel => "netif_receive_skb",
        Point::InTcp => "tcp_probe",
        Point::Ready => "sk_data_ready",
        Point::Read => "sock_recv_length",
        Point::Consumed => "consume_skb",
        Point::Dropped => "kfree_skb",
    }
}

pub(super) fn stage_name(from: Point, to: Point) -> &'static str {
    use Point::{
        Consumed, Dropped, FromTunnel, InBacklog, InGro, InTcp, Queued, Read, Ready, Received,
        ToDriver, ToTunnel,
    };
    match (from, to) {
        (Queued, ToDriver) => "queueing discipline",
        (ToTunnel, Queued) => "tunnel: encapsulation",
        (ToDriver, Queued) => "stacked interface, sending",
        (ToDriver, InBacklog | InGro) => "driver of a virtual wire",
        (ToDriver, Received) => "driver, looped back",
        (ToDriver, Consumed) => "driver and device, until sent",
        (InBacklog, Received) => "backlog, until the softirq runs",
        (InGro, Received) => "GRO",
        (Received, Received | InBacklog | InGro) => "stacked interface, receiving",
        (FromTunnel, InBacklog | InGro) => "tunnel: decapsulation",
        (Received, Queued) => "forwarding",
        (Received, Ready) => "IP, UDP or TCP, into the socket",
        (Received, InTcp) => "IP and TCP, of an acknowledgement",
        (Queued, Consumed) => "cut into segments",
        (Received, Consumed) => "protocols, done with there",
        (Ready, Read) => "in the socket, until it is read",
        WAKE_UP => "of that: waking a reader that slept",
        (_, Dropped) => "until dropped",
        (_, Consumed) => "until done with",
        _ => "other",
    }
}

/// Ends of the classes of [`StageRow::at_most`]: each is four times the one before, and begins a bucket.
const ENDS_NS: [u64; 12] = [
    1 << 8,
    1 << 10,
    1 << 12,
    1 << 14,
    1 << 16,
    1 << 18,
    1 << 20,
    1 << 22,
    1 << 24,
    1 << 26,
    1 << 28,
    1 << 30,
];

/// Timed packets that took less than `end_ns`.
fn below(stage: &Stage, end_ns: u64) -> u64 {
    let buckets = stage.buckets.iter().enumerate();
    buckets.take_while(|(bucket, _)| bucket_ns(*bucket) < end_ns).map(|(_, count)| count).sum()
}

fn row(name: &'static str, from: &'static str, to: &'static str, stage: &Stage) -> StageRow {
    let quantile = |share: f64| {
        let wanted = (stage.timed_count as f64 * share).ceil().max(1.0) as u64;
        let mut so_far = 0;
        let bucket = stage.buckets.iter().position(|count| {
            so_far += count;
            so_far >= wanted
        });
        let bucket = bucket.unwrap_or(0);
        // Times are whole nanoseconds: a bucket ends before the next begins.
        let last = bucket_ns(bucket + 1).max(1) - 1;
        ((bucket_ns(bucket) + last) as f64 / 2.0).min(stage.max_ns as f64)
    };
    StageRow {
        name,
        from,
        to,
        count: stage.count,
        timed_count: stage.timed_count,
        sum_ns: stage.sum_ns,
        at_most: ENDS_NS.map(|end| (end, below(stage, end))).into(),
        mean_ns: stage.sum_ns as f64 / stage.timed_count.max(1) as f64,
        p50_ns: quantile(0.5),
        p90_ns: quantile(0.9),
        p99_ns: quantile(0.99),
        max_ns: stage.max_ns,
        longest: None,
        longest_seen: stage.longest,
    }
}

/// Stages in the order in which a packet passes them; the wake-up, which is part of one, comes last.
pub(super) fn rows(seen: &Seen) -> Vec<StageRow> {
    let traced = seen.stages.iter().filter(|((from, _), _)| *from != Point::Nowhere);
    let mut rows: Vec<StageRow> = traced
        .map(|((from, to), stage)| {
            row(stage_name(*from, *to), point_name(*from), point_name(*to), stage)
        })
        .collect();
    let wake_up = seen.wake_up.as_ref();
    rows.extend(wake_up.map(|stage| {
        row(stage_name(WAKE_UP.0, WAKE_UP.1), "sk_data_ready", "sched_switch", stage)
    }));
    rows
}

/// Names the places of the longest times.
pub(super) fn locate(rows: &mut [StageRow], spaces: &mut Spaces) {
    for row in rows {
        let seen = row.longest_seen;
        if seen == StagePlace::default() {
            continue;
        }
        spaces.open(seen.netns);
        let Some(space) = spaces.opened(seen.netns) else { continue };
        let is_queue = row.from == point_name(Point::Queued);
        row.longest = Some(LongestPlace {
            netns: space.name.clone(),
            interface: space.interface(seen.ifindex).map(str::to_owned),
            discipline: if is_queue { space.discipline(seen.ifindex) } else { None },
            protocol: (seen.protocol != 0).then(|| protocol_name(seen.protocol)),
            port: Some(seen.to_port).filter(|port| *port != 0),
            from_port: Some(seen.from_port).filter(|port| *port != 0),
            program: (seen.pid != 0).then(|| process_name(seen.pid)),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_in_the_bucket_of_their_rank_and_at_most_the_maximum() {
        let mut buckets = vec![0; sys::bpf::explain::BUCKETS];
        buckets[16] = 90; // 16 and 17 ns
        buckets[64] = 10; // 1024 ns and more
        let stage = Stage {
            count: 800,
            timed_count: 100,
            sum_ns: 90 * 16 + 10 * 1030,
            max_ns: 1030,
            longest: StagePlace::default(),
            buckets,
        };
        let row = row("a", "b", "c", &stage);
        assert_eq!((row.p50_ns, row.p90_ns), (16.5, 16.5));
        assert_eq!(row.p99_ns, 1030.0);
        assert!((row.mean_ns - 117.4).abs() < 1e-9);
        assert_eq!(row.at_most[..3], [(256, 90), (1024, 90), (4096, 100)]);
        assert!(row.at_most.iter().all(|(end, _)| (0..256).any(|at| bucket_ns(at) == *end)));
    }
}
