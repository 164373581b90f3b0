//! Are failed trials more frequent in one arm than in the baseline?

/// Two-sided p-value of "both fail equally often" by Fisher's exact test.
///
/// Sums the probabilities of all tables with the same margins that are at most as likely as the one
/// seen. Source: Fisher 1935, Journal of the Royal Statistical Society 98, 39-82.
pub(crate) fn fisher(failed: u32, trials: u32, base_failed: u32, base_trials: u32) -> f64 {
    let all_failed = failed + base_failed;
    let ln_choose = |n: u32, k: u32| -> f64 {
        (1..=k).map(|i| (f64::from(n - k + i) / f64::from(i)).ln()).sum()
    };
    let whole = ln_choose(trials + base_trials, all_failed);
    let share =
        |of: u32| (ln_choose(trials, of) + ln_choose(base_trials, all_failed - of) - whole).exp();
    let seen = share(failed);
    let possible = all_failed.saturating_sub(base_trials)..=all_failed.min(trials);
    // The factor absorbs rounding, so that equally likely tables count.
    possible.map(share).filter(|share| *share <= seen * (1.0 + 1e-9)).sum::<f64>().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_is_that_of_the_lady_tasting_tea_and_of_r() {
        assert!((fisher(3, 4, 1, 4) - 34.0 / 70.0).abs() < 1e-12);
        // R 4.2: fisher.test(matrix(c(6, 6, 0, 24), 2))$p.value
        assert!((fisher(6, 12, 0, 24) - 0.000_474_4).abs() < 1e-6, "{}", fisher(6, 12, 0, 24));
        assert_eq!(fisher(0, 12, 0, 24), 1.0);
        assert!((fisher(12, 12, 24, 24) - 1.0).abs() < 1e-12);
    }
}
