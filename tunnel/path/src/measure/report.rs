//! Results of `tunnel measure` as a table and as JSON.

use report::screen::{Cell, Screen};
use serde_json::{Value, json};

use super::search::{Found, SearchBooks};
use super::{MeasureSpec, Observed};

/// Preamble, start of frame and gap between frames on an Ethernet wire, in bytes.
const WIRE_BYTES: usize = 20;

/// Result at one frame size.
#[derive(Debug, Clone, PartialEq)]
pub struct SizeReport {
    /// Frame size, the frame check sequence counted.
    pub size_bytes: usize,
    /// Maximum rate of the source, frames a second.
    pub flood_pps: f64,
    /// Highest rate without loss.
    pub ndr: Found,
    /// Highest rate with the loss that was allowed.
    pub pdr: Found,
    /// Delays below it.
    pub latencies: Vec<LatencyReport>,
    /// Frames that arrived in the trials of the search and of the delays.
    pub received_count: u64,
    /// Of those, reordered (RFC 4737 section 3.3).
    pub reordered_count: u64,
    /// Of those, second ones.
    pub duplicated_count: u64,
    /// How the search went.
    pub books: SearchBooks,
}

/// Delays at one rate, nanoseconds from a frame's making to its arrival at the sink; buckets are a
/// sixteenth wide.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyReport {
    /// Share of the rate without loss, 0.0 to 1.0.
    pub share: f64,
    /// Rate that was offered, frames a second.
    pub offered_pps: f64,
    /// Lost meanwhile, 0.0 to 1.0.
    pub loss: f64,
    /// Half of the frames were no longer on their way.
    pub delay_ns_p50: Option<u64>,
    /// 99 of a hundred.
    pub delay_ns_p99: Option<u64>,
    /// All.
    pub delay_ns_max: Option<u64>,
}

impl LatencyReport {
    pub(super) fn new(share: f64, observed: &Observed) -> Self {
        LatencyReport {
            share,
            offered_pps: observed.trial.offered_pps,
            loss: observed.trial.loss(),
            delay_ns_p50: observed.delays.quantile_ns(0.5),
            delay_ns_p99: observed.delays.quantile_ns(0.99),
            delay_ns_max: observed.delays.quantile_ns(1.0),
        }
    }
}

impl SizeReport {
    /// Reordered share of what arrived, 0.0 to 1.0; `None` when nothing did.
    pub fn reordered_share(&self) -> Option<f64> {
        let received = self.received_count;
        (received > 0).then(|| self.reordered_count as f64 / received as f64)
    }

    /// A rate in bits a second on an Ethernet wire, gaps and preambles counted.
    pub fn wire_bits_per_s(&self, rate_pps: f64) -> f64 {
        rate_pps * ((self.size_bytes + WIRE_BYTES) * 8) as f64
    }
}

fn rate(found: &Found) -> String {
    match (found.rate_pps, found.beyond_pps) {
        (None, Some(_)) => "none".into(),
        // The source kept to none of the rates.
        (None, None) => "unknown".into(),
        (Some(rate), None) => format!("> {rate:.0}"),
        (Some(rate), Some(_)) => format!("{rate:.0}"),
    }
}

fn micros(delay_ns: Option<u64>) -> String {
    delay_ns.map_or_else(|| "-".into(), |ns| format!("{:.1}", ns as f64 / 1e3))
}

/// Two tables: the rates by size, and the delays below them.
pub fn text(spec: &MeasureSpec, sizes: &[SizeReport]) -> String {
    let mut screen = Screen::plain();
    screen.line(format!("forwarder: {}", spec.arm.name));
    let columns = [
        ">bytes",
        ">source pps",
        ">NDR pps",
        ">Mbit/s",
        ">PDR pps",
        ">reordered",
        ">repeated",
        ">trials",
        ">disturbed",
    ];
    screen.table(&columns, sizes.iter().map(rate_row));
    screen.blank();
    let columns = [">bytes", ">% NDR", ">pps", ">loss %", ">p50 us", ">p99 us", ">max us"];
    let delays = sizes
        .iter()
        .flat_map(|size| size.latencies.iter().map(|delays| delay_row(size.size_bytes, delays)));
    screen.table(&columns, delays);
    screen.blank();
    screen.line(format!(
        "NDR: no frame lost; PDR: at most {} % lost; \"> N\": N is met, and the source offers no more; unknown: \
         the source kept to no rate, something else had its CPU. Sizes with the frame check sequence; Mbit/s with \
         preamble and gap. Disturbed: trials that count though something else had more than {:.0} % of the CPU time.",
        spec.partial_loss * 100.0,
        spec.search.disturbed_share_max * 100.0,
    ));
    screen.finish()
}

fn rate_row(size: &SizeReport) -> Vec<Cell> {
    let mbit = size.ndr.rate_pps.map(|pps| size.wire_bits_per_s(pps) / 1e6);
    [
        size.size_bytes.to_string(),
        format!("{:.0}", size.flood_pps),
        rate(&size.ndr),
        mbit.map_or_else(|| "-".into(), |mbit| format!("{mbit:.1}")),
        rate(&size.pdr),
        size.reordered_count.to_string(),
        size.duplicated_count.to_string(),
        size.books.trial_count.to_string(),
        size.books.accepted_disturbed_count.to_string(),
    ]
    .map(Cell::plain)
    .into()
}

fn delay_row(size_bytes: usize, delays: &LatencyReport) -> Vec<Cell> {
    [
        size_bytes.to_string(),
        format!("{:.0}", delays.share * 100.0),
        format!("{:.0}", delays.offered_pps),
        format!("{:.3}", delays.loss * 100.0),
        micros(delays.delay_ns_p50),
        micros(delays.delay_ns_p99),
        micros(delays.delay_ns_max),
    ]
    .map(Cell::plain)
    .into()
}

/// One JSON object.
pub fn json(spec: &MeasureSpec, sizes: &[SizeReport]) -> Value {
    json!({
        "forwarder": spec.arm.name,
        "trial_s": spec.trial.as_secs_f64(),
        "pdr_loss": spec.partial_loss,
        "resolution": spec.search.resolution,
        "disturbed_share_max": spec.search.disturbed_share_max,
        "sizes": sizes.iter().map(size_json).collect::<Vec<_>>(),
    })
}

fn size_json(size: &SizeReport) -> Value {
    json!({
        "size_bytes": size.size_bytes,
        "source_pps": size.flood_pps,
        "ndr": found_json(&size.ndr),
        "pdr": found_json(&size.pdr),
        "latency": size.latencies.iter().map(latency_json).collect::<Vec<_>>(),
        "received_count": size.received_count,
        "reordered_count": size.reordered_count,
        "reordered_share": size.reordered_share(),
        "duplicated_count": size.duplicated_count,
        "trials": {
            "count": size.books.trial_count,
            "repeated_for_disturbance": size.books.disturbed_count,
            "accepted_disturbed": size.books.accepted_disturbed_count,
            "rate_not_offered": size.books.unoffered_count,
        },
    })
}

fn found_json(found: &Found) -> Value {
    json!({
        "pps": found.rate_pps,
        "beyond_pps": found.beyond_pps,
        "source_limited": found.rate_pps.is_some() && found.beyond_pps.is_none(),
    })
}

fn latency_json(delays: &LatencyReport) -> Value {
    json!({
        "share_of_ndr": delays.share,
        "offered_pps": delays.offered_pps,
        "loss": delays.loss,
        "delay_ns_p50": delays.delay_ns_p50,
        "delay_ns_p99": delays.delay_ns_p99,
        "delay_ns_max": delays.delay_ns_max,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::Arm;

    use crate::Switch;

    use super::*;

    fn report() -> (MeasureSpec, SizeReport) {
        let spec = MeasureSpec {
            arm: Arm::with([Switch::Bypass]),
            sizes_bytes: vec![64],
            trial: Duration::from_millis(100),
            partial_loss: 0.005,
            latency_shares: vec![0.5],
            search: Default::default(),
        };
        let size = SizeReport {
            size_bytes: 64,
            flood_pps: 2e6,
            ndr: Found { rate_pps: Some(1e6), beyond_pps: Some(1.01e6) },
            pdr: Found { rate_pps: Some(1.9e6), beyond_pps: None },
            latencies: vec![LatencyReport {
                share: 0.5,
                offered_pps: 5e5,
                loss: 0.0,
                delay_ns_p50: Some(12_345),
                delay_ns_p99: None,
                delay_ns_max: None,
            }],
            received_count: 1000,
            reordered_count: 10,
            duplicated_count: 0,
            books: SearchBooks::default(),
        };
        (spec, size)
    }

    #[test]
    fn rates_are_of_the_wire_and_bounds_of_the_source_are_marked() {
        let (spec, size) = report();
        let text = text(&spec, std::slice::from_ref(&size));
        // 84 bytes of a wire each: 672 Mbit/s at a million a second.
        assert!(text.contains("672.0") && text.contains("> 1900000"), "{text}");
        assert!(text.contains("12.3") && text.contains("0.5 % lost"), "{text}");
        let json = json(&spec, &[size]);
        assert_eq!(json["sizes"][0]["ndr"]["source_limited"], false);
        assert_eq!(json["sizes"][0]["pdr"]["source_limited"], true);
        assert_eq!(json["sizes"][0]["reordered_share"], 0.01);
    }

    #[test]
    fn size_without_a_rate_has_no_bits_either() {
        let (spec, size) = report();
        for (beyond_pps, rate) in [(Some(1000.0), "none"), (None, "unknown")] {
            let size = SizeReport { ndr: Found { rate_pps: None, beyond_pps }, ..size.clone() };
            let text = text(&spec, &[size]);
            let row = text.lines().nth(2).expect("a row");
            let cells: Vec<_> = row.split_whitespace().collect();
            assert_eq!(cells[2..4], [rate, "-"], "{row}");
        }
    }
}
