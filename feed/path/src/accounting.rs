//! Accounting: combines both sides of a trial into one measurement.

use model::{Delivery, Measurement, NotEffective, latency_histogram};

use super::publisher::Sent;
use super::receiver::{Arrivals, ReceivedQuotes};
use super::script::Script;
use marketdata::relative_latency::time_of_day_difference_ns;

/// Zero of calibrated latency, shared by all arms of a run, or by a trial where the ends' clocks drift apart.
///
/// Without a common clock, the latency of the fastest quote is unknown: latencies count from it
/// and are too low by that amount. Both ends of a machine share a clock, so the amount is known there.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Zero {
    /// Receive time minus match time of the fastest quote, nanoseconds.
    pub(super) offset_ns: i64,
    /// Upper bound on the underestimate of latencies, nanoseconds. Meaningless for clocks of two hosts.
    pub(super) error_ns: u64,
}

/// The end of the receiver.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// `near` or `far`: its name in counters, costs and modes.
    pub(super) end: &'static str,
    /// Exchange and receiver read the same clock.
    pub(super) has_one_clock: bool,
}

impl Place {
    /// The far end of a lab.
    pub(super) const LAB: Place = Place { end: "far", has_one_clock: true };
}

impl Zero {
    /// The zero of a calibration; `None` if no quote arrived.
    pub(super) fn calibrated(script: &Script, sent: &Sent, arrivals: &Arrivals) -> Option<Zero> {
        let arrived = (0..script.len()).filter(|&n| arrivals.app_ns[n] > 0);
        let (offset_ns, n) =
            arrived.map(|n| (since_match_ns(script, sent, n, arrivals.app_ns[n]), n)).min()?;
        let app_ns = arrivals.app_ns[n];
        Some(Zero { offset_ns, error_ns: app_ns.saturating_sub(sent.begin_ns + script.due_ns(n)) })
    }
}

/// Receive time minus match time of datagram `n`, nanoseconds: its latency plus the difference of
/// the clocks, modulo whole days.
fn since_match_ns(script: &Script, sent: &Sent, n: usize, app_ns: u64) -> i64 {
    let matched_ns = script.match_micros(n, sent.begin_ns) as i64 * 1000;
    // The receiver's clock is UTC; the time zone is part of the offset.
    app_ns as i64 - matched_ns
}

/// Counters of engines whose datagrams the receiver's queue had no room for.
const DROP_COUNTERS: [&str; 2] = ["socket_overflow_count", "xdp_rx_dropped_count"];

/// Segments, counters and costs of a trial.
///
/// The clocks of two hosts differ by an unknown amount. Then `schedule→app` counts from the fastest quote of
/// the calibration, as `match→app` does, and `send→kernel` is left out.
pub(super) fn measurement(
    script: &Script,
    sent: &Sent,
    received: ReceivedQuotes,
    zero: Zero,
    Place { end, has_one_clock }: Place,
) -> Measurement {
    let ReceivedQuotes { arrivals, engine, cost } = received;
    let names = ["schedule→send", "send→kernel", "kernel→app", "schedule→app", "match→app"];
    let mut histograms = names.map(|_| latency_histogram());
    let [lag, wire, wake, whole, matched] = &mut histograms;
    let mut below_zero_count = 0;
    // Values beyond the range of a histogram are recorded as its maximum.
    for (n, &at_ns) in sent.at_ns.iter().enumerate() {
        let (app_ns, kernel_ns) = (arrivals.app_ns[n], arrivals.kernel_ns[n]);
        let due_ns = sent.begin_ns + script.due_ns(n);
        lag.saturating_record(at_ns.saturating_sub(due_ns));
        if app_ns == 0 {
            continue;
        }
        if kernel_ns > 0 {
            if has_one_clock {
                wire.saturating_record(kernel_ns.saturating_sub(at_ns));
            }
            wake.saturating_record(app_ns.saturating_sub(kernel_ns));
        }
        if has_one_clock {
            whole.saturating_record(app_ns.saturating_sub(due_ns));
        }
        if !script.has_match_times() {
            continue;
        }
        let since_match_ns = since_match_ns(script, sent, n, app_ns);
        let excess_ns = time_of_day_difference_ns(since_match_ns, zero.offset_ns);
        below_zero_count += u64::from(excess_ns < 0);
        matched.saturating_record(excess_ns.max(0) as u64);
    }
    if !has_one_clock {
        // Due times are whole microseconds, as match times are: both count from the same moment.
        *whole = matched.clone();
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
            duplicated_count: Some(arrivals.duplicate_count),
            reordered_count: arrivals.reordered_count,
        },
    );
    for (name, histogram) in names.into_iter().zip(histograms) {
        if !histogram.is_empty() {
            m.segments.insert(name.into(), histogram);
        }
    }
    m.costs.insert(end.into(), cost);
    let drops = engine.counters.iter().filter(|(name, _)| DROP_COUNTERS.contains(&name.as_str()));
    let dropped_count: u64 = drops.map(|(_, count)| count).sum();
    let missing_count = (sent_count - unique_count).saturating_sub(dropped_count);
    m.counters.extend([
        ("sent_count".to_owned(), sent_count),
        ("received_count".to_owned(), unique_count),
        ("dropped_by_socket_count".to_owned(), dropped_count),
        ("missing_count".to_owned(), missing_count),
        ("stray_count".to_owned(), arrivals.stray_count),
        ("before_zero_count".to_owned(), below_zero_count),
    ]);
    m.counters.extend(engine.counters.into_iter().map(|(name, n)| (format!("{end}_{name}"), n)));
    m.mode.extend(engine.mode.into_iter().map(|(name, value)| (format!("{end} {name}"), value)));
    let exchange = if sent.is_undisturbed { "real-time" } else { "normal: it may send late" };
    m.mode.insert("exchange's priority".into(), exchange.into());
    if script.has_match_times() {
        let bound = if has_one_clock {
            format!("; too low by at most {} ns", zero.error_ns)
        } else {
            " before this trial, as schedule→app; the hosts' clocks differ".to_owned()
        };
        let base = "relative to the fastest quote of the calibration";
        m.mode.insert("match→app".into(), format!("{base}{bound}"));
    }
    m.not_effective = engine
        .not_effective
        .into_iter()
        .map(|(switch, why)| NotEffective { switch, why })
        .collect();
    if let Some(ledger) = engine.ledger {
        m.enter_balance(&format!("{end}_ledger"), ledger.balances());
    }
    m
}

#[cfg(test)]
mod tests {
    use io::EngineReport;
    use marketdata::schedule::SendSchedule;
    use model::Cost;

    use super::super::publisher::begin_after;
    use super::super::script::Timing;
    use super::*;

    const NOW_NS: u64 = 1_700_000_000_000_000_000;

    /// Quotes at `rate` a second that arrive 2,000 ns after they were due, and 10 ns later each.
    fn trial(rate: u64, now_ns: u64) -> (Script, Sent, ReceivedQuotes) {
        let timing = Timing { schedule: SendSchedule::paced(rate), gap_ns: 0 };
        let script = Script::new(7, timing, 300);
        let begin_ns = begin_after(now_ns);
        let due_ns = (0..script.len()).map(|n| begin_ns + script.due_ns(n));
        let mut arrivals = Arrivals::new(script.len());
        for (n, due_ns) in due_ns.clone().enumerate() {
            arrivals.enter(n, None, due_ns + 2_000 + 10 * n as u64);
        }
        let sent = Sent { begin_ns, at_ns: due_ns.collect(), is_undisturbed: true };
        let received =
            ReceivedQuotes { arrivals, engine: EngineReport::default(), cost: Cost::default() };
        (script, sent, received)
    }

    #[test]
    fn share_within_a_microsecond_does_not_depend_on_the_time_at_which_a_trial_starts() {
        for calibrated_ns in [0, 300, 900] {
            let (script, sent, received) = trial(10_000, NOW_NS + calibrated_ns);
            let zero =
                Zero::calibrated(&script, &sent, &received.arrivals).expect("quotes arrived");
            assert_eq!(zero.error_ns, 2_000);
            // 3,000 a second: the gap is not a whole number of microseconds.
            for (rate, phase_ns) in [(2_000, 0), (2_000, 300), (2_000, 900), (3_000, 500)] {
                let (script, sent, received) = trial(rate, NOW_NS + 1_000_000_000 + phase_ns);
                let metrics = measurement(&script, &sent, received, zero, Place::LAB).metrics();
                let share = metrics.iter().find(|m| m.name == "match_to_app_share_within_1us");
                let share = share.expect("judged").value.clone().expect("no loss");
                // 100 of 300 arrive within 1,000 ns of the fastest, the last at 990.
                assert!((share - 1.0 / 3.0).abs() < 0.01, "{calibrated_ns} {phase_ns}: {share}");
            }
        }
    }

    /// Arrivals by a clock that is 3 s ahead.
    fn ahead(mut arrivals: Arrivals) -> Arrivals {
        arrivals.app_ns.iter_mut().for_each(|at_ns| *at_ns += 3_000_000_000);
        arrivals.kernel_ns = arrivals.app_ns.iter().map(|at_ns| at_ns - 100).collect();
        arrivals
    }

    #[test]
    fn clocks_of_two_hosts_cancel_out_and_no_segment_spans_both() {
        let (script, sent, received) = trial(10_000, NOW_NS);
        let zero =
            Zero::calibrated(&script, &sent, &ahead(received.arrivals)).expect("quotes arrived");
        let (script, sent, received) = trial(2_000, NOW_NS + 1_000_000_000);
        let received = ReceivedQuotes { arrivals: ahead(received.arrivals), ..received };
        let place = Place { end: "near", has_one_clock: false };
        let m = measurement(&script, &sent, received, zero, place);
        assert!(!m.segments.contains_key("send→kernel"));
        assert_eq!(m.segments["kernel→app"].max(), 100);
        for segment in ["schedule→app", "match→app"] {
            // 10 ns later each than the fastest.
            assert!((2_980..3_000).contains(&m.segments[segment].max()), "{segment}");
        }
        assert!(m.costs.contains_key("near") && m.mode["match→app"].contains("clocks differ"));
    }
}
