//! The answer of a metric as a sentence: by how much, and how sure.

use model::{Better, MetricOutcome};

use crate::decision::{Words, percent, side, spoken};
use crate::units;

/// Returns the change from the baseline in words, with a 95 % interval: `27.4 times faster (95 %: 27.1 times to 27.7 times)`,
/// `12 % slower (95 %: 9 % to 15 %)`, `between 3 % faster and 9 % slower` where the interval holds both; `None` without a
/// ratio.
///
/// - `low`, `high`: ends of the interval.
/// - `name`: of the metric.
pub(super) fn change(
    metric: &MetricOutcome,
    (low, high): (Option<f64>, Option<f64>),
    name: &str,
) -> Option<String> {
    let ratio = metric.ratio.filter(|ratio| ratio.is_finite() && *ratio > 0.0)?;
    let better = metric.better;
    let words = Words::new(name, &metric.unit, better, false);
    let whole = side(ratio, better, &words);
    let Some(low) = low.filter(|low| *low > 0.0) else { return Some(whole) };
    Some(match high {
        Some(high) if low < 1.0 && high > 1.0 => {
            format!("between {} and {}", side(low, better, &words), side(high, better, &words))
        }
        Some(high) => {
            // Of a decrease the smaller ratio is the larger amount.
            let (near, far) = if ratio < 1.0 { (high, low) } else { (low, high) };
            format!(
                "{whole} (95 %: {} to {})",
                bound(near, ratio, better),
                bound(far, ratio, better)
            )
        }
        None if low < 1.0 => format!("{whole}, and perhaps {}", side(low, better, &words)),
        None => format!("{whole} (95 %: at least {})", bound(low, ratio, better)),
    })
}

/// An end of the interval, as a multiple or as a share like the change itself.
fn bound(end: f64, ratio: f64, better: Better) -> String {
    if spoken(ratio, better).ends_with("times") {
        format!("{} times", units::digits(end.max(1.0 / end)))
    } else {
        percent((1.0 - end).abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change_text(ratio: f64, low: f64, high: Option<f64>) -> String {
        let figures = MetricOutcome { ratio: Some(ratio), ..unjudged() };
        change(&figures, (Some(low), high), "rtt_ns_p50").unwrap()
    }

    fn unjudged() -> MetricOutcome {
        MetricOutcome::unjudged("ns", Better::Lower, Vec::new())
    }

    #[test]
    fn changes_are_spoken_as_people_do() {
        let faster = "27.4 times faster (95 %: 27.1 times to 27.7 times)";
        assert_eq!(change_text(0.0365, 0.0361, Some(0.0369)), faster);
        let mixed = "2.17 times faster (95 %: 1.88 times to 2.45 times)";
        assert_eq!(change_text(0.461, 0.408, Some(0.532)), mixed);
        assert_eq!(change_text(0.88, 0.86, Some(0.91)), "12 % faster (95 %: 9 % to 14 %)");
        assert_eq!(change_text(1.12, 1.09, Some(1.15)), "12 % slower (95 %: 9 % to 15 %)");
        let rate = MetricOutcome {
            ratio: Some(3.02),
            ..MetricOutcome::unjudged("pps", Better::Higher, Vec::new())
        };
        let faster = "3.02 times faster (95 %: 2.90 times to 3.10 times)";
        assert_eq!(change(&rate, (Some(2.9), Some(3.1)), "received_pps").unwrap(), faster);
    }

    #[test]
    fn an_interval_with_both_directions_names_both() {
        assert_eq!(change_text(1.02, 0.97, Some(1.09)), "between 3 % faster and 9 % slower");
        let wide = "between 2.50 times faster and 3.00 times slower";
        assert_eq!(change_text(1.7, 0.4, Some(3.0)), wide);
        assert_eq!(change_text(1.7, 0.9, None), "70 % slower, and perhaps 10 % faster");
    }

    #[test]
    fn missing_bounds_are_left_out() {
        assert_eq!(change_text(3.0, 2.0, None), "3.00 times slower (95 %: at least 2.00 times)");
        assert_eq!(change(&unjudged(), (None, None), "rtt_ns_p50"), None);
        let alone = MetricOutcome { ratio: Some(0.25), ..unjudged() };
        assert_eq!(change(&alone, (None, None), "rtt_ns_p50").unwrap(), "4.00 times faster");
    }
}
