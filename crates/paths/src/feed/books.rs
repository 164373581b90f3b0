//! Both sides of a trial as one measurement.

use model::{Delivery, Measurement, NotEffective, latency_histogram};

use super::excess::time_of_day_difference_ns;
use super::publisher::Sent;
use super::receiver::Received;
use super::script::Script;
use super::session::Zero;

/// Receive time less match time of datagram `n`, nanoseconds: a latency but for what the clocks
/// differ by, and for whole days.
pub(super) fn since_match_ns(script: &Script, sent: &Sent, n: usize, app_ns: u64) -> i64 {
    let matched_ns = script.match_micros(n, sent.begin_ns) as i64 * 1000;
    // The receiver's clock shows UTC; what it is ahead or behind is part of the offset.
    app_ns as i64 - matched_ns
}

/// Segments, books and costs.
pub(super) fn measurement_of(
    script: &Script,
    sent: &Sent,
    received: Received,
    zero: Zero,
) -> Measurement {
    let Received { arrivals, engine, cost } = received;
    let names = ["schedule→send", "send→kernel", "kernel→app", "schedule→app", "match→app"];
    let mut histograms = names.map(|_| latency_histogram());
    let [lag, wire, wake, whole, matched] = &mut histograms;
    let mut below_zero_count = 0;
    // Longer than the range of a histogram is recorded as its end.
    for (n, &at_ns) in sent.at_ns.iter().enumerate() {
        let (app_ns, kernel_ns) = (arrivals.app_ns[n], arrivals.kernel_ns[n]);
        let due_ns = sent.begin_ns + script.due_ns(n);
        lag.saturating_record(at_ns.saturating_sub(due_ns));
        if app_ns == 0 {
            continue;
        }
        if kernel_ns > 0 {
            wire.saturating_record(kernel_ns.saturating_sub(at_ns));
            wake.saturating_record(app_ns.saturating_sub(kernel_ns));
        }
        whole.saturating_record(app_ns.saturating_sub(due_ns));
        let since_match_ns = since_match_ns(script, sent, n, app_ns);
        let excess_ns = time_of_day_difference_ns(since_match_ns, zero.offset_ns);
        below_zero_count += u64::from(excess_ns < 0);
        matched.saturating_record(excess_ns.max(0) as u64);
    }
    let sent_count = sent.at_ns.len() as u64;
    let unique_count = arrivals.unique_count();
    let wall_ns = sent.at_ns.last().map_or(1, |last| last - sent.begin_ns.min(*last)).max(1);
    let mut m = Measurement { wall_ns, ..Measurement::default() };
    m.deliveries.insert(
        "forward".into(),
        Delivery {
            sent_count,
            received_count: unique_count + arrivals.duplicate_count,
            duplicated_count: arrivals.duplicate_count,
            reordered_count: arrivals.reordered_count,
        },
    );
    for (name, histogram) in names.into_iter().zip(histograms) {
        if !histogram.is_empty() {
            m.segments.insert(name.into(), histogram);
        }
    }
    m.costs.insert("far".into(), cost);
    let dropped = |(name, count): &(String, u64)| match name.as_str() {
        "socket_overflow_count" | "xdp_rx_dropped_count" => Some(*count),
        _ => None,
    };
    let dropped_count: u64 = engine.counters.iter().filter_map(dropped).sum();
    let missing_count = (sent_count - unique_count).saturating_sub(dropped_count);
    m.counters.extend([
        ("sent_count".to_owned(), sent_count),
        ("received_count".to_owned(), unique_count),
        ("dropped_by_socket_count".to_owned(), dropped_count),
        ("missing_count".to_owned(), missing_count),
        ("stray_count".to_owned(), arrivals.stray_count),
        ("before_zero_count".to_owned(), below_zero_count),
    ]);
    m.counters.extend(engine.counters.into_iter().map(|(name, n)| (format!("far_{name}"), n)));
    m.mode.extend(engine.mode.into_iter().map(|(name, value)| (format!("far {name}"), value)));
    let exchange = if sent.is_undisturbed { "real-time" } else { "as any thread: it may be late" };
    m.mode.insert("exchange's priority".into(), exchange.into());
    m.mode.insert(
        "match→app".into(),
        format!(
            "counts from the fastest quote of the calibration, too low by at most {} ns",
            zero.error_ns
        ),
    );
    m.not_effective = engine
        .not_effective
        .into_iter()
        .map(|(switch, why)| NotEffective { switch, why })
        .collect();
    if let Some(ledger) = engine.ledger {
        let unbalanced = u64::from(!ledger.balances());
        m.counters.insert("far_ledger_unbalanced_count".into(), unbalanced);
    }
    m
}
