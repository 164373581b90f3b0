//! Prometheus text: the samples of one metric.
//!
//! Source: Prometheus, exposition formats, text format 0.0.4; OpenMetrics 1.0 for exemplars and `# EOF`.

use super::super::error::{SourceFault, fault};
use super::selector::{Selector, quoted};

/// Longest line, bytes.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Most labels of a series.
const LABELS_MAX: usize = 64;
/// Most buckets of a histogram.
const BUCKETS_MAX: usize = 1000;

/// A bucket of a histogram, summed over the selected series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) struct Bucket {
    /// Highest value in it; infinite for the last.
    pub(super) upper: f64,
    /// Samples up to `upper`.
    pub(super) count: f64,
    series_count: u32,
}

/// Samples of the selected series of one metric, added up.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in super::super) struct Scrape {
    /// In ascending order.
    pub(super) buckets: Vec<Bucket>,
    pub(super) sum: Option<f64>,
    pub(super) count: Option<f64>,
    /// Of the series with the metric's own name.
    plain: Option<f64>,
    /// Quantile of a summary over its own window, and the number of its series.
    summary: Option<(f64, u32)>,
}

impl Scrape {
    /// Samples of a metric.
    ///
    /// - `share`: quantile that is taken of a summary, 0 to 1.
    ///
    /// Errors: no sample is selected, or they do not fit together.
    pub(in super::super) fn parse(
        text: &[u8],
        selector: &Selector,
        share: Option<f64>,
    ) -> Result<Scrape, SourceFault> {
        let mut scrape = Scrape::default();
        for line in text.split(|byte| *byte == b'\n') {
            if line.len() > LINE_BYTES_MAX {
                return fault(format!(
                    "a line has {} bytes, at most {LINE_BYTES_MAX} are read",
                    line.len()
                ));
            }
            // Other metrics may hold any bytes.
            if !line.trim_ascii_start().starts_with(selector.metric.as_bytes()) {
                continue;
            }
            let line = std::str::from_utf8(line)
                .map_err(|_| format!("a line of {} is not UTF-8", selector.metric))?;
            scrape.add_line(line.trim(), selector, share)?;
        }
        scrape.finish(selector)
    }

    fn add_line(
        &mut self,
        line: &str,
        selector: &Selector,
        share: Option<f64>,
    ) -> Result<(), SourceFault> {
        let end = line.find(|c: char| c == '{' || c.is_ascii_whitespace()).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        let suffix = &name[selector.metric.len()..];
        if !matches!(suffix, "" | "_bucket" | "_sum" | "_count" | "_total") {
            return Ok(());
        }
        let (labels, rest) = labels(rest).ok_or_else(|| not_a_sample(line))?;
        if !selector.accepts(&labels) {
            return Ok(());
        }
        let word = rest.split_ascii_whitespace().next().ok_or_else(|| not_a_sample(line))?;
        let value: f64 = word.parse().map_err(|_| not_a_sample(line))?;
        if !value.is_finite() {
            // A summary without samples is NaN.
            return Ok(());
        }
        match suffix {
            "_bucket" => {
                let upper = find_label(&labels, "le").ok_or_else(|| not_a_sample(line))?;
                let upper: f64 = upper.parse().map_err(|_| not_a_sample(line))?;
                self.add_bucket(upper, value)?;
            }
            "_sum" => *self.sum.get_or_insert(0.0) += value,
            "_count" => *self.count.get_or_insert(0.0) += value,
            _ => match find_label(&labels, "quantile") {
                Some(quantile) => {
                    let quantile: f64 = quantile.parse().map_err(|_| not_a_sample(line))?;
                    if share.is_some_and(|share| (share - quantile).abs() < 1e-9) {
                        let (sum, count) = self.summary.get_or_insert((0.0, 0));
                        *sum += value;
                        *count = count.saturating_add(1);
                    }
                }
                None => *self.plain.get_or_insert(0.0) += value,
            },
        }
        Ok(())
    }

    fn add_bucket(&mut self, upper: f64, count: f64) -> Result<(), SourceFault> {
        if upper.is_nan() || count < 0.0 {
            return fault(format!("a bucket up to {upper} has {count} samples"));
        }
        let at = self.buckets.partition_point(|bucket| bucket.upper < upper);
        if let Some(bucket) = self.buckets.get_mut(at).filter(|bucket| bucket.upper == upper) {
            bucket.count += count;
            bucket.series_count = bucket.series_count.saturating_add(1);
            return Ok(());
        }
        if self.buckets.len() >= BUCKETS_MAX {
            return fault(format!("it has more than {BUCKETS_MAX} buckets"));
        }
        self.buckets.insert(at, Bucket { upper, count, series_count: 1 });
        Ok(())
    }

    fn finish(self, selector: &Selector) -> Result<Scrape, SourceFault> {
        if self == Scrape::default() {
            return fault(format!(
                "the page has no series {selector}; compare its name and labels"
            ));
        }
        let first = self.buckets.first().map_or(0, |bucket| bucket.series_count);
        if self.buckets.iter().any(|bucket| bucket.series_count != first) {
            return fault("its series have different buckets; select some of them by label");
        }
        if self.buckets.windows(2).any(|pair| pair[1].count < pair[0].count) {
            return fault("its buckets are not cumulative");
        }
        let sums = [self.sum, self.count, self.plain, self.summary.map(|(sum, _)| sum)];
        let counts = self.buckets.iter().map(|bucket| bucket.count);
        if sums.into_iter().flatten().chain(counts).any(|number| !number.is_finite()) {
            return fault("its numbers are too large to add");
        }
        Ok(self)
    }

    /// Value of a gauge, or quantile of a summary: the mean over its series.
    pub(super) fn value(&self) -> Option<f64> {
        self.summary.map(|(sum, count)| sum / f64::from(count)).or(self.plain)
    }

    /// Cumulative count: of the metric itself if it is a counter, otherwise of its samples.
    pub(super) fn counter(&self) -> Option<f64> {
        self.plain.or(self.count).or_else(|| Some(self.buckets.last()?.count))
    }

    /// Samples of each bucket since an earlier scrape: lower edge, upper edge, count. `None` if the buckets changed or
    /// the service restarted.
    pub(super) fn bins_since(&self, earlier: &Scrape) -> Option<Vec<(f64, f64, f64)>> {
        if self.buckets.len() != earlier.buckets.len() {
            return None;
        }
        let (mut bins, mut low, mut below) = (Vec::with_capacity(self.buckets.len()), None, 0.0);
        for (now, before) in self.buckets.iter().zip(&earlier.buckets) {
            let up_to = now.count - before.count;
            if now.upper != before.upper || up_to < below {
                return None;
            }
            let low_edge = low.unwrap_or(if now.upper > 0.0 { 0.0 } else { now.upper });
            // Samples beyond the last finite edge count there, as in Prometheus.
            let high = if now.upper.is_finite() { now.upper } else { low_edge };
            bins.push((low_edge, high, up_to - below));
            (low, below) = (Some(high), up_to);
        }
        Some(bins)
    }
}

/// Labels of a series, and the text behind them. None of a series without.
fn labels(text: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut labels = Vec::new();
    let Some(mut rest) = text.strip_prefix('{') else { return Some((labels, text)) };
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once('=')?;
        let (value, after) = quoted(after.trim_start())?;
        if labels.len() >= LABELS_MAX {
            return None;
        }
        labels.push((name.trim(), value));
        let after = after.trim_start();
        rest = after.strip_prefix(',').unwrap_or(after);
        if rest.len() == after.len() && !rest.starts_with('}') {
            return None;
        }
    }
}

fn find_label<'a>(labels: &'a [(&str, String)], wanted: &str) -> Option<&'a str> {
    labels.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_str())
}

fn not_a_sample(line: &str) -> SourceFault {
    SourceFault(format!("the line {:?} is not a sample", shortened(line)))
}

fn shortened(line: &str) -> String {
    line.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# HELP x_seconds Time of a request, with \\n and \"quotes\".
# TYPE x_seconds histogram
x_seconds_bucket{code=\"200\",le=\"0.01\"} 10
x_seconds_bucket{code=\"200\",le=\"0.1\"} 90 # {trace=\"a\"} 0.05
x_seconds_bucket{code=\"200\",le=\"+Inf\"} 100
x_seconds_sum{code=\"200\"} 7.5
x_seconds_count{code=\"200\"} 100 1700000000000
x_seconds_bucket{code=\"500\",le=\"0.01\"} 0
x_seconds_bucket{code=\"500\",le=\"0.1\"} 0
x_seconds_bucket{code=\"500\",le=\"+Inf\"} 5
x_seconds_more 3
busy 0.25
s{quantile=\"0.5\"} 2
s{quantile=\"0.99\"} 9
s_sum 50
s_count 20
# EOF
";

    fn scrape(selector: &str, share: Option<f64>) -> Result<Scrape, SourceFault> {
        Scrape::parse(PAGE.as_bytes(), &Selector::parse(selector).unwrap(), share)
    }

    #[test]
    fn series_of_a_histogram_are_added_up_by_bucket() {
        let all = scrape("x_seconds", None).unwrap();
        let counts: Vec<f64> = all.buckets.iter().map(|bucket| bucket.count).collect();
        assert_eq!(counts, [10.0, 90.0, 105.0]);
        let one = scrape("x_seconds{code=\"200\"}", None).unwrap();
        assert_eq!((one.sum, one.count, one.counter()), (Some(7.5), Some(100.0), Some(100.0)));
        let mut none = one.clone();
        none.buckets.iter_mut().for_each(|bucket| bucket.count = 0.0);
        let bins = one.bins_since(&none).unwrap();
        assert_eq!(bins, [(0.0, 0.01, 10.0), (0.01, 0.1, 80.0), (0.1, 0.1, 10.0)]);
        assert_eq!(none.bins_since(&one), None, "the service restarted");
    }

    #[test]
    fn gauges_and_summaries_have_values() {
        assert_eq!(scrape("busy", None).unwrap().value(), Some(0.25));
        assert_eq!(scrape("s", Some(0.99)).unwrap().value(), Some(9.0));
        assert!(scrape("s{a=\"b\"}", None).unwrap_err().0.contains("no series s{a=\"b\"}"));
    }

    #[test]
    fn text_that_does_not_fit_is_refused_with_its_line() {
        let parse = |text: &str| {
            Scrape::parse(text.as_bytes(), &Selector::parse("x").unwrap(), None).unwrap_err().0
        };
        assert!(parse("x{a=\"b} 1").contains("not a sample"));
        assert!(parse("x one").contains("\"x one\""));
        assert!(parse("x_bucket 1").contains("not a sample"));
        assert!(parse(&format!("y {}", "1".repeat(LINE_BYTES_MAX))).contains("65536"));
        assert!(parse("x_bucket{le=\"1\"} 5\nx_bucket{le=\"2\"} 3").contains("not cumulative"));
        let twice = "x_bucket{le=\"1\",a=\"1\"} 5\nx_bucket{le=\"2\",a=\"1\"} 5\nx_bucket{le=\"2\",a=\"2\"} 3";
        assert!(parse(twice).contains("different buckets"));
        let many: String = (0..2000).map(|n| format!("x_bucket{{le=\"{n}\"}} 1\n")).collect();
        assert!(parse(&many).contains("more than 1000"));
        assert!(parse("x 1e308\nx 1e308").contains("too large"));
    }
}
