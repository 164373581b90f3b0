//! Names and statistics of stages and drops.

use sys::bpf::explain::{Point, Seen, Stage, WAKE_UP, bucket_ns, drop_reasons};

use super::drop_sentences;
use super::symbols::Symbols;

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
}

/// Packets dropped for one reason in one place.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DropRow {
    /// The kernel's name of the reason (`enum skb_drop_reason`), or its number.
    pub reason: String,
    /// The reason in plain English; `None` for a rare one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentence: Option<&'static str>,
    /// The function that dropped, or its address.
    pub function: String,
    /// Packets.
    pub count: u64,
}

fn point_name(point: Point) -> &'static str {
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

/// Drops, most frequent first.
pub(super) fn drops_of(seen: &Seen, symbols: &Symbols) -> Vec<DropRow> {
    let reasons = drop_reasons();
    let mut rows: Vec<DropRow> = Vec::new();
    for ((reason, location), count) in &seen.drops {
        let reason = reasons.get(reason).cloned().unwrap_or_else(|| format!("reason {reason}"));
        let function = symbols.name(*location);
        // Several locations in one function are reported as one.
        match rows.iter_mut().find(|row| row.reason == reason && row.function == function) {
            Some(row) => row.count += count,
            None => {
                let sentence = drop_sentences::sentence(&reason);
                rows.push(DropRow { reason, sentence, function, count: *count });
            }
        }
    }
    rows.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
    rows
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
