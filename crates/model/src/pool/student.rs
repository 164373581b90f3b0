//! Student's t distribution with a whole number of degrees of freedom.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// Probability that |t| is at most `t`.
///
/// - `degrees`: degrees of freedom, at least 1.
///
/// Source: Abramowitz and Stegun 26.7.3 and 26.7.4, which are finite sums.
fn within(t: f64, degrees: usize) -> f64 {
    let angle = (t.abs() / (degrees as f64).sqrt()).atan();
    let (sin, cos) = angle.sin_cos();
    let is_odd = degrees % 2 == 1;
    let mut term = if is_odd { cos } else { 1.0 };
    let mut sum = if degrees == 1 { 0.0 } else { term };
    let mut at = if is_odd { 2 } else { 1 };
    while at + 2 < degrees {
        term *= cos * cos * at as f64 / (at + 1) as f64;
        sum += term;
        at += 2;
    }
    if is_odd { FRAC_2_PI * (angle + sin * sum) } else { sin * sum }
}

pub(super) fn p_value(t: f64, degrees: usize) -> f64 {
    if t.is_infinite() { 0.0 } else { (1.0 - within(t, degrees)).clamp(0.0, 1.0) }
}

/// The value that |t| exceeds with probability `1 - level`.
pub(super) fn quantile(level: f64, degrees: usize) -> f64 {
    // |t| = tan(angle): the angle is bounded, whatever the level.
    let (mut low, mut high) = (0.0, FRAC_PI_2);
    for _ in 0..100 {
        let middle: f64 = f64::midpoint(low, high);
        if within(middle.tan(), degrees) < level { low = middle } else { high = middle }
    }
    low.tan()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_p_values_are_those_of_scipy() {
        // scipy.stats.t.ppf(0.975, k) and 2 * scipy.stats.t.sf(2.5, k)
        let expected = [
            (1, 12.706204736174698, 0.24223788318168682),
            (2, 4.302652729749462, 0.12961172022151082),
            (3, 3.1824463052837078, 0.08770664700806556),
            (5, 2.5705818356363146, 0.05449009934237626),
            (6, 2.4469118511449786, 0.0465282322841673),
            (19, 2.0930240544083087, 0.02174041116839744),
            (49, 2.009_575_237_129_239, 0.01581578884718008),
            (999, 1.9623414611334493, 0.012578727584509217),
        ];
        for (degrees, t, p) in expected {
            assert!((quantile(0.95, degrees) - t).abs() < 1e-8, "{degrees}");
            assert!((p_value(2.5, degrees) - p).abs() < 1e-8, "{degrees}");
            assert_eq!(p_value(-2.5, degrees), p_value(2.5, degrees));
        }
        assert_eq!(p_value(0.0, 7), 1.0);
    }
}
