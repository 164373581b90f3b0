//! The line on starts of the programs.

use model::StartSpread;

use crate::wording;

/// Share of the spread below which it is not worth a number.
const SHARE_MIN: f64 = 0.05;

/// Returns how often the programs of a run were started, and how much of the spread is between starts, of the metric in
/// which it is the most; `None` if starts are not known.
pub fn starts(spreads: &[StartSpread], blocks: u32) -> Option<String> {
    let first = spreads.first()?;
    let count = match first.starts {
        1 => return Some("starts: 1 of each arm".into()),
        starts if starts >= blocks => {
            return Some(format!("starts: {starts} of each arm, new in every block"));
        }
        starts => format!("starts: {starts} of each arm"),
    };
    let most =
        spreads.iter().max_by(|a, b| a.share.unwrap_or(-1.0).total_cmp(&b.share.unwrap_or(-1.0)));
    Some(match most.and_then(|spread| Some((&spread.metric, spread.share?))) {
        None => count,
        Some((_, share)) if share < SHARE_MIN => {
            format!("{count}; hardly any of the spread is between starts")
        }
        Some((metric, share)) => {
            let metric = wording::metric(metric);
            format!("{count}; {:.0} % of the spread of {metric} is between starts", share * 100.0)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_metrics(starts: u32, p50: Option<f64>, p99: Option<f64>) -> [StartSpread; 2] {
        [("rtt_ns_p50", p50), ("rtt_ns_p99", p99)].map(|(metric, share)| StartSpread {
            metric: metric.into(),
            starts,
            share,
        })
    }

    #[test]
    fn line_names_the_metric_whose_spread_is_the_most_between_starts() {
        assert_eq!(starts(&[], 24), None);
        assert_eq!(
            starts(&two_metrics(6, Some(0.1), Some(0.334)), 24).unwrap(),
            "starts: 6 of each arm; 33 % of the spread of rtt p99 is between starts"
        );
        assert_eq!(
            starts(&two_metrics(6, Some(0.0), None), 24).unwrap(),
            "starts: 6 of each arm; hardly any of the spread is between starts"
        );
        assert_eq!(
            starts(&two_metrics(24, None, None), 24).unwrap(),
            "starts: 24 of each arm, new in every block"
        );
        assert_eq!(starts(&two_metrics(1, None, None), 24).unwrap(), "starts: 1 of each arm");
    }
}
