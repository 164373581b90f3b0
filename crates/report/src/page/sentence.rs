//! The answer of a metric as a sentence: by how much, and how sure.

use model::MetricOutcome;

use crate::units;

/// Ratio from which a change is spoken as a factor, and below whose inverse too.
const FACTOR_MIN: f64 = 2.0;

/// Returns the change from the baseline in words, with its 95 % interval: `27.4 times lower (95 %: 27.1 to 27.7)`,
/// `12.0 % higher (95 %: 9.10 to 15.0 %)`, `between 3.00 % lower and 9.10 % higher` where the interval holds both; `None` without
/// a ratio.
pub(super) fn change(metric: &MetricOutcome) -> Option<String> {
    let ratio = metric.ratio.filter(|ratio| ratio.is_finite() && *ratio > 0.0)?;
    let interval = metric.low.filter(|low| *low > 0.0).map(|low| (low, metric.high));
    if let Some((low, high)) = interval
        && low < 1.0
        && high.is_none_or(|high| high > 1.0)
    {
        let most = high.map_or("any factor higher".into(), amount_text);
        return Some(format!("between {} and {most}", amount_text(low)));
    }
    let is_factor = is_factor(ratio);
    let unit = if is_factor { "" } else { " %" };
    let bounds = interval.map(|(low, high)| {
        // Of a decrease the smaller ratio is the larger amount.
        let (least, most) = if ratio < 1.0 { (high, Some(low)) } else { (Some(low), high) };
        match (least.map(|r| amount(r, is_factor)), most.map(|r| amount(r, is_factor))) {
            (Some(least), Some(most)) => format!(" (95 %: {least} to {most}{unit})"),
            (Some(least), None) => format!(" (95 %: at least {least}{unit})"),
            (None, _) => String::new(),
        }
    });
    Some(format!("{}{}", amount_text(ratio), bounds.unwrap_or_default()))
}

fn is_factor(ratio: f64) -> bool {
    !(1.0 / FACTOR_MIN..FACTOR_MIN).contains(&ratio)
}

/// `5.26 times lower`, `12.0 % higher`.
fn amount_text(ratio: f64) -> String {
    let direction = if ratio < 1.0 { "lower" } else { "higher" };
    if is_factor(ratio) {
        format!("{} times {direction}", amount(ratio, true))
    } else {
        format!("{} % {direction}", amount(ratio, false))
    }
}

/// The factor or the percentage of a change, in either direction.
fn amount(ratio: f64, is_factor: bool) -> String {
    let size = match (is_factor, ratio < 1.0) {
        (true, true) => 1.0 / ratio,
        (true, false) => ratio,
        (false, true) => (1.0 - ratio) * 100.0,
        (false, false) => (ratio - 1.0) * 100.0,
    };
    units::digits(size)
}

#[cfg(test)]
mod tests {
    use model::Better;

    use super::*;

    fn change_of(ratio: f64, low: f64, high: Option<f64>) -> String {
        let figures = MetricOutcome { ratio: Some(ratio), low: Some(low), high, ..unjudged() };
        change(&figures).unwrap()
    }

    fn unjudged() -> MetricOutcome {
        MetricOutcome::unjudged("ns", Better::Lower, Vec::new())
    }

    #[test]
    fn changes_are_spoken_as_people_do() {
        assert_eq!(
            change_of(0.0365, 0.0361, Some(0.0369)),
            "27.4 times lower (95 %: 27.1 to 27.7)"
        );
        assert_eq!(change_of(0.19, 0.186, Some(0.2)), "5.26 times lower (95 %: 5.00 to 5.38)");
        assert_eq!(change_of(0.88, 0.86, Some(0.91)), "12.0 % lower (95 %: 9.00 to 14.0 %)");
        assert_eq!(change_of(1.12, 1.09, Some(1.15)), "12.0 % higher (95 %: 9.00 to 15.0 %)");
        assert_eq!(change_of(3.02, 2.9, Some(3.1)), "3.02 times higher (95 %: 2.90 to 3.10)");
    }

    #[test]
    fn an_interval_with_both_directions_names_both() {
        assert_eq!(change_of(1.02, 0.97, Some(1.09)), "between 3.00 % lower and 9.00 % higher");
        assert_eq!(
            change_of(1.7, 0.4, Some(3.0)),
            "between 2.50 times lower and 3.00 times higher"
        );
        assert_eq!(change_of(1.7, 0.9, None), "between 10.0 % lower and any factor higher");
    }

    #[test]
    fn missing_bounds_are_left_out() {
        assert_eq!(change_of(3.0, 2.0, None), "3.00 times higher (95 %: at least 2.00)");
        assert_eq!(change(&unjudged()), None);
        let alone = MetricOutcome { ratio: Some(0.5), ..unjudged() };
        assert_eq!(change(&alone).unwrap(), "50.0 % lower");
    }
}
