//! Intervals that hold however often they are looked at.
//!
//! An ordinary 95 % interval holds for a number of blocks that was fixed beforehand. If the run
//! ends because of the figures seen so far, it holds less often: with 36 verdicts and noisy arms, 48 % of
//! simulated runs that were stopped at the first verdict were fooled.

/// Interval of the median of independent values that contains it at **every** length of `values`, with
/// probability at least `1 - alpha` over the whole run.
///
/// For each candidate median the number of values above it is binomial with probability one half. Its
/// likelihood ratio against a Beta(1/2, 1/2) mixture is a martingale, which exceeds `1 / alpha` at any
/// time with probability at most `alpha` (Ville 1939); the interval holds the candidates for which it
/// does not. Sources: Robbins 1970, Annals of Mathematical Statistics 41, 1397-1409; Howard and Ramdas
/// 2022, Bernoulli 28, 1704-1728.
///
/// Returns `None` if even the range of the values holds too rarely: below 7 values for 0.05.
pub fn interval(values: &[f64], alpha: f64) -> Option<(f64, f64)> {
    let n = values.len();
    let rank =
        (0..=n / 2).find(|&above| ln_ratio(n, above) < -alpha.ln()).filter(|&rank| rank > 0)?;
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some((sorted[rank - 1], sorted[n - rank]))
}

/// Gamma(k + 1/2) / Gamma(1/2) is the product of (i - 1/2) for i up to k.
fn ln_product(count: usize, less: f64) -> f64 {
    (1..=count).map(|i| (i as f64 - less).ln()).sum()
}

/// Logarithm of the mixture's likelihood over that of one half, for `above` of `n`:
/// B(above + 1/2, n - above + 1/2) / B(1/2, 1/2) * 2^n.
fn ln_ratio(n: usize, above: usize) -> f64 {
    ln_product(above, 0.5) + ln_product(n - above, 0.5) - ln_product(n, 0.0)
        + n as f64 * std::f64::consts::LN_2
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Random;

    #[test]
    fn ratio_is_that_of_the_closed_form() {
        // n = 2: B(1/2, 5/2) / pi * 4 = (3/8 pi) / pi * 4 = 1.5.
        assert!((ln_ratio(2, 0) - 1.5f64.ln()).abs() < 1e-12);
        assert!((ln_ratio(2, 1) - 0.5f64.ln()).abs() < 1e-12);
        // It is a martingale: the mean over the next value is the present ratio.
        let (now, up, down) = (ln_ratio(9, 2), ln_ratio(10, 3), ln_ratio(10, 2));
        assert!((now.exp() - (up.exp() + down.exp()) / 2.0).abs() < 1e-12);
    }

    #[test]
    fn too_few_values_have_no_interval() {
        let values: Vec<f64> = (0..20).map(f64::from).collect();
        assert_eq!(interval(&values[..6], 0.05), None);
        assert_eq!(interval(&values[..7], 0.05), Some((0.0, 6.0)));
        assert_eq!(interval(&[], 0.05), None);
    }

    #[test]
    fn median_is_outside_at_any_time_in_at_most_one_run_in_twenty() {
        let runs = 2_000;
        let fooled = (0..runs).filter(|&seed| {
            let mut random = Random::new(seed, 0);
            let values: Vec<f64> = (0..100).map(|_| random.normal()).collect();
            (1..=100).any(|n| {
                interval(&values[..n], 0.05).is_some_and(|(low, high)| low > 0.0 || high < 0.0)
            })
        });
        let share = fooled.count() as f64 / runs as f64;
        assert!(share <= 0.05, "{share}");
        assert!(share > 0.005, "{share}: so wide that it shows nothing");
    }
}
