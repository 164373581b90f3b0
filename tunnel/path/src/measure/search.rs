//! Search for the highest rate of a forwarder, without a clock or a wire.
//!
//! Source: RFC 2544 section 26.1 for what is sought; the idea of MLRsearch
//! (draft-ietf-bmwg-mlrsearch) that trials of one goal serve the next, that a few lossy trials
//! decide nothing, and that what disturbed a trial is told from what the forwarder did.

/// Result of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateTrial {
    /// Rate that was asked for, frames a second.
    pub asked_pps: f64,
    /// Rate that the source reached.
    pub offered_pps: f64,
    /// Frames that the wire took.
    pub sent_count: u64,
    /// Of those, frames that did not arrive.
    pub lost_count: u64,
    /// Share of the machine's CPU time that was stolen or used by other processes, 0.0 to 1.0.
    pub disturbed_share: f64,
}

impl RateTrial {
    /// Lost share of what was sent, 0.0 to 1.0; all of it when nothing was.
    pub fn loss(&self) -> f64 {
        match self.sent_count {
            0 => 1.0,
            sent => self.lost_count as f64 / sent as f64,
        }
    }

    /// True if the source reached the rate.
    pub fn is_offered(&self) -> bool {
        self.offered_pps >= self.asked_pps * OFFERED_SHARE_MIN
    }
}

/// Below this share of the asked rate a trial says nothing about that rate.
const OFFERED_SHARE_MIN: f64 = 0.98;

/// Parameters of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchSpec {
    /// Lowest rate that is tried, frames a second.
    pub rate_pps_min: f64,
    /// The search ends when the bounds are within this share of each other, 0.0 to 1.0.
    pub resolution: f64,
    /// Trials that decide on a rate, by majority; odd.
    pub trials: usize,
    /// How often a trial that was not valid is repeated at one rate.
    pub repeats: usize,
    /// A trial is disturbed above this share of CPU time that was not ours.
    pub disturbed_share_max: f64,
}

impl Default for SearchSpec {
    fn default() -> Self {
        SearchSpec {
            rate_pps_min: 1000.0,
            resolution: 0.02,
            trials: 3,
            repeats: 3,
            disturbed_share_max: 0.1,
        }
    }
}

/// Result of a search for one goal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// Highest rate that met the goal; `None` when the lowest did not.
    pub rate_pps: Option<f64>,
    /// Lowest rate that did not; `None` when the source could not offer more. Neither is known
    /// when the source did not even keep to the lowest rate.
    pub beyond_pps: Option<f64>,
}

/// The books of a search, over all goals.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SearchBooks {
    /// Trials run, repetitions included.
    pub trial_count: usize,
    /// Trials that did not count because something else had the CPU.
    pub disturbed_count: usize,
    /// Trials that counted although they were disturbed: no repetition was any better.
    pub accepted_disturbed_count: usize,
    /// Trials in which the source did not keep to its rate.
    pub unoffered_count: usize,
}

/// Verdict of the trials at one rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Meets,
    Misses,
    /// The source does not come to this rate.
    Unoffered,
}

/// A search at one frame size; `bench` runs a trial at a rate.
pub struct RateSearch<F> {
    spec: SearchSpec,
    bench: F,
    seen: Vec<(f64, Vec<RateTrial>)>,
    /// Counters so far.
    pub books: SearchBooks,
}

impl<F> std::fmt::Debug for RateSearch<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Search").field("spec", &self.spec).field("books", &self.books).finish()
    }
}

impl<E, F: FnMut(f64) -> Result<RateTrial, E>> RateSearch<F> {
    /// A search that has seen nothing yet.
    pub fn new(spec: SearchSpec, bench: F) -> Self {
        RateSearch { spec, bench, seen: Vec::new(), books: SearchBooks::default() }
    }

    /// Finds the highest rate at which no more than `loss_max` (0.0 to 1.0) is lost.
    ///
    /// - `rate_pps_max`: what the source can offer at most.
    /// - `guess_pps`: where the answer may be; a good guess saves trials.
    pub fn find(&mut self, loss_max: f64, rate_pps_max: f64, guess_pps: f64) -> Result<Found, E> {
        let min = self.spec.rate_pps_min.min(rate_pps_max);
        let (mut low, mut high) = (None, None);
        let mut is_offered = true;
        let mut next = guess_pps.clamp(min, rate_pps_max);
        let mut step = 1.0 + 2.0 * self.spec.resolution;
        loop {
            match self.verdict(next, loss_max)? {
                Verdict::Meets => low = Some(next),
                verdict => {
                    high = Some(next);
                    is_offered = verdict == Verdict::Misses;
                }
            }
            next = match (low, high) {
                (Some(low), Some(high)) if high / low <= 1.0 + self.spec.resolution => break,
                // Rates are far apart: the middle is that of their ratio.
                (Some(low), Some(high)) => f64::sqrt(low * high),
                (Some(low), None) if low >= rate_pps_max => break,
                (None, Some(high)) if high <= min => break,
                // Away from the guess in steps that grow, until the answer is in between.
                (Some(low), None) => (low * step).min(rate_pps_max),
                (None, Some(high)) => (high / step).max(min),
                (None, None) => break,
            };
            step *= step;
        }
        Ok(Found { rate_pps: low, beyond_pps: high.filter(|_| is_offered) })
    }

    /// Runs trials at a rate until most of them are one way.
    fn verdict(&mut self, rate_pps: f64, loss_max: f64) -> Result<Verdict, E> {
        let majority = self.spec.trials / 2 + 1;
        let mut repeats = 0;
        loop {
            let at = self.seen.iter().position(|(rate, _)| *rate == rate_pps);
            let trials = at.map_or(&[][..], |at| &self.seen[at].1);
            let meets = trials.iter().filter(|trial| trial.loss() <= loss_max).count();
            if meets >= majority {
                return Ok(Verdict::Meets);
            }
            if trials.len() - meets >= majority {
                return Ok(Verdict::Misses);
            }
            let trial = (self.bench)(rate_pps)?;
            self.books.trial_count += 1;
            let is_disturbed = trial.disturbed_share > self.spec.disturbed_share_max;
            // One that lost nothing in spite of a disturbance is as good as any.
            let may_count = !is_disturbed || trial.loss() <= loss_max;
            if trial.is_offered() && (may_count || repeats >= self.spec.repeats) {
                self.books.accepted_disturbed_count += usize::from(is_disturbed);
                match at {
                    Some(at) => self.seen[at].1.push(trial),
                    None => self.seen.push((rate_pps, vec![trial])),
                }
                continue;
            }
            if trial.is_offered() {
                self.books.disturbed_count += 1;
            } else {
                self.books.unoffered_count += 1;
            }
            if !trial.is_offered() && repeats >= self.spec.repeats {
                return Ok(Verdict::Unoffered);
            }
            repeats += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A forwarder that takes so much and drops the rest, and a source that offers so much.
    fn bench(capacity: f64, source: f64) -> impl FnMut(f64) -> Result<RateTrial, ()> {
        move |asked_pps| {
            let offered_pps = asked_pps.min(source);
            let sent_count = offered_pps as u64;
            let lost_count = sent_count.saturating_sub(capacity as u64);
            Ok(RateTrial { asked_pps, offered_pps, sent_count, lost_count, disturbed_share: 0.0 })
        }
    }

    #[track_caller]
    fn within(found: Found, expected: f64, resolution: f64) {
        let rate = found.rate_pps.expect("there is one");
        let beyond = found.beyond_pps.expect("there is one");
        assert!(rate <= expected && expected <= beyond, "{found:?} {expected}");
        assert!(beyond / rate <= 1.0 + resolution + 1e-9, "{found:?}");
    }

    #[test]
    fn capacity_is_found_from_any_guess() {
        let spec = SearchSpec::default();
        for capacity in [1_500.0, 77_000.0, 312_345.0, 1_900_000.0] {
            for guess in [0.0, 1_000.0, capacity * 0.9, capacity * 1.3, 9e9] {
                let mut search = RateSearch::new(spec, bench(capacity, 2_500_000.0));
                let found = search.find(0.0, 2_000_000.0, guess).unwrap();
                within(found, capacity, spec.resolution);
                assert!(search.books.trial_count < 60, "{:?}", search.books);
            }
        }
    }

    #[test]
    fn some_loss_allows_a_higher_rate_and_its_search_reuses_trials() {
        let spec = SearchSpec::default();
        let mut search = RateSearch::new(spec, bench(100_000.0, 1e7));
        let none = search.find(0.0, 1e6, 100_000.0).unwrap();
        let before = search.books.trial_count;
        // At 5 % loss 105,263 a second pass 100,000.
        let some = search.find(0.05, 1e6, none.rate_pps.unwrap()).unwrap();
        within(none, 100_000.0, spec.resolution);
        within(some, 100_000.0 / 0.95, spec.resolution);
        assert!(some.rate_pps > none.rate_pps && search.books.trial_count < 2 * before + 12);
    }

    #[test]
    fn forwarder_faster_than_the_source_is_told_from_one_that_loses() {
        let mut search = RateSearch::new(SearchSpec::default(), bench(1e9, 1e6));
        let found = search.find(0.0, 1e6, 5e5).unwrap();
        assert_eq!((found.rate_pps, found.beyond_pps), (Some(1e6), None));
        // A source that promised more than it keeps.
        let mut search = RateSearch::new(SearchSpec::default(), bench(1e9, 1e6));
        let found = search.find(0.0, 2e6, 5e5).unwrap();
        assert!(found.beyond_pps.is_none() && search.books.unoffered_count > 0);
        assert!((0.95e6..=1.03e6).contains(&found.rate_pps.unwrap()), "{found:?}");
    }

    #[test]
    fn forwarder_that_always_loses_has_no_rate_and_the_search_ends() {
        let mut search = RateSearch::new(SearchSpec::default(), |asked_pps| {
            let (offered_pps, sent_count, lost_count) = (asked_pps, 100, 1);
            let disturbed_share = 0.0;
            Ok::<_, ()>(RateTrial {
                asked_pps,
                offered_pps,
                sent_count,
                lost_count,
                disturbed_share,
            })
        });
        let found = search.find(0.0, 1e6, 1e6).unwrap();
        assert_eq!((found.rate_pps, found.beyond_pps), (None, Some(1000.0)));
    }

    #[test]
    fn one_bad_trial_in_three_decides_nothing_and_disturbed_ones_are_repeated() {
        let mut nth = 0;
        let mut good = bench(100_000.0, 1e7);
        let mut search = RateSearch::new(SearchSpec::default(), |rate| {
            nth += 1;
            let mut trial = good(rate)?;
            match nth % 4 {
                // Lost for no reason of the rate's: once in plain sight, once with one.
                0 => trial.lost_count = trial.lost_count.max(1),
                2 => {
                    trial.lost_count = trial.sent_count;
                    trial.disturbed_share = 0.9;
                }
                _ => {}
            }
            Ok::<_, ()>(trial)
        });
        let found = search.find(0.0, 1e6, 9e5).unwrap();
        within(found, 100_000.0, 0.02);
        assert!(search.books.disturbed_count > 0);
        assert_eq!(search.books.accepted_disturbed_count, 0);
    }

    #[test]
    fn busy_machine_is_measured_and_the_counters_show_it() {
        let mut steady = bench(100_000.0, 1e7);
        let mut search = RateSearch::new(SearchSpec::default(), |rate| {
            let trial = steady(rate)?;
            Ok::<_, ()>(RateTrial { disturbed_share: 0.5, ..trial })
        });
        within(search.find(0.0, 1e6, 9e5).unwrap(), 100_000.0, 0.02);
        assert!(search.books.accepted_disturbed_count > 0, "{:?}", search.books);
    }

    #[test]
    fn source_that_keeps_to_no_rate_says_nothing_of_the_forwarder() {
        let mut search = RateSearch::new(SearchSpec::default(), bench(1e9, 100.0));
        let found = search.find(0.0, 1e6, 9e5).unwrap();
        assert_eq!((found.rate_pps, found.beyond_pps), (None, None));
        assert!(search.books.unoffered_count > 0);
    }

    #[test]
    fn trial_of_nothing_is_all_loss() {
        let trial = RateTrial {
            asked_pps: 1.0,
            offered_pps: 0.0,
            sent_count: 0,
            lost_count: 0,
            disturbed_share: 0.0,
        };
        assert_eq!(trial.loss(), 1.0);
        assert!(!trial.is_offered());
    }
}
