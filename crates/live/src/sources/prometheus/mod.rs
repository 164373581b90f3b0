//! Figures of Prometheus text over HTTP.

mod http;
mod selector;
mod text;

use std::time::{Duration, Instant};

pub use http::Url;
pub(super) use http::fetch;
pub use selector::Selector;
pub(super) use text::Scrape;

use super::bins;
use super::metric::Statistic;

/// Limit of one request with its answer.
pub(super) const TIME_MAX: Duration = Duration::from_secs(2);

/// Cumulative state of one metric at a reading.
#[derive(Debug, Clone, Default)]
pub(super) struct PrometheusReading {
    at: Option<Instant>,
    scrape: Scrape,
    /// Of the values at all readings so far.
    value_sum: f64,
    value_count: u64,
}

impl PrometheusReading {
    /// Adds the state at one more reading.
    pub(super) fn advance(&mut self, scrape: Scrape) {
        if let Some(value) = scrape.value() {
            self.value_sum += value;
            self.value_count += 1;
        }
        self.at = Some(Instant::now());
        self.scrape = scrape;
    }

    /// Figure between an earlier reading and this one; `None` without samples between, or if the service restarted.
    pub(super) fn since(&self, earlier: &PrometheusReading, statistic: Statistic) -> Option<f64> {
        let (now, before) = (&self.scrape, &earlier.scrape);
        match statistic {
            Statistic::Quantile(share) if !now.buckets.is_empty() => {
                let bins = now.bins_since(before)?;
                bins::quantile(bins.iter().copied(), share)
            }
            Statistic::Quantile(_) | Statistic::Value => {
                let count = self.value_count.checked_sub(earlier.value_count)?;
                (count > 0).then(|| (self.value_sum - earlier.value_sum) / count as f64)
            }
            Statistic::Mean => {
                let count = grown(now.count, before.count).filter(|count| *count > 0.0)?;
                Some(grown(now.sum, before.sum)? / count)
            }
            Statistic::Rate => {
                let window = self.at?.checked_duration_since(earlier.at?)?.as_secs_f64();
                let grown = grown(now.counter(), before.counter())?;
                (window > 0.0).then(|| grown / window)
            }
        }
    }

    /// Samples between two readings, by the metric's own count.
    pub(super) fn count_since(&self, earlier: &PrometheusReading) -> Option<u64> {
        grown(self.scrape.counter(), earlier.scrape.counter()).map(|count| count as u64)
    }

    /// Ratio of the edges of the bucket that holds a value; `None` without buckets, or at the ends.
    pub(super) fn bucket_ratio(&self, value: f64) -> Option<f64> {
        let edges: Vec<f64> = self.scrape.buckets.iter().map(|bucket| bucket.upper).collect();
        let at = edges.iter().position(|upper| value <= *upper)?;
        let low = edges[at.checked_sub(1)?];
        (low > 0.0 && edges[at].is_finite()).then(|| edges[at] / low)
    }
}

/// `None` if it fell: the service restarted.
fn grown(now: Option<f64>, before: Option<f64>) -> Option<f64> {
    Some(now? - before?).filter(|grown| *grown >= 0.0)
}

#[doc(hidden)]
pub mod fuzzing {
    //! Properties that the fuzz target checks.

    use super::{PrometheusReading, Scrape, Selector, Statistic, http};

    /// An answer has a body or an error, and the body has figures that are finite or none.
    pub fn prometheus(bytes: &[u8]) {
        let body = http::body(bytes);
        let text = body.as_deref().unwrap_or(bytes);
        let selector = Selector::parse("x_seconds{a=\"b\"}").expect("a selector");
        let all = Selector::parse("x_seconds").expect("a selector");
        for (selector, share) in [(&selector, 0.5), (&all, 0.99)] {
            let Ok(scrape) = Scrape::parse(text, selector, Some(share)) else { continue };
            let (mut earlier, mut later) =
                (PrometheusReading::default(), PrometheusReading::default());
            earlier.advance(Scrape::default());
            later.advance(scrape.clone());
            let statistics =
                [Statistic::Quantile(share), Statistic::Mean, Statistic::Rate, Statistic::Value];
            for statistic in statistics {
                for before in [&earlier, &later] {
                    let value = later.since(before, statistic);
                    assert!(value.is_none_or(f64::is_finite), "{statistic}: {value:?}");
                }
            }
        }
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn corpus_of_answers_passes() {
            testkit::corpus::replay("prometheus", super::prometheus);
        }
    }
}
