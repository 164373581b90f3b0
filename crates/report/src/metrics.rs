//! Metrics for Prometheus, in its text format 0.0.4.

use std::fmt::Write;

/// Value of `Content-Type` for a response that holds [`Metrics`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

mod sealed {
    pub trait Sealed {}
}

/// Value of a sample.
pub trait Number: sealed::Sealed {
    fn text(&self) -> String;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl sealed::Sealed for $number {}
        impl Number for $number {
            fn text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
numbers!(f64, i32, i64, u8, u16, u32, u64, usize);

/// Text of several metric families; every name begins with the same prefix.
///
/// Text from outside gets into it only as the value of a label, which is escaped: names and help are literals, and the
/// value of a sample is a [`Number`].
///
/// ```
/// use wirepath_report::metrics::Metrics;
/// let mut metrics = Metrics::new("wirepath_feed");
/// let mut gaps = metrics.counter("gaps_total", "Gaps that were given up.");
/// gaps.sample(&[("line", "a")], 3).sample(&[("line", "b")], 0);
/// assert!(metrics.finish().ends_with("\nwirepath_feed_gaps_total{line=\"b\"} 0\n"));
/// ```
#[derive(Debug)]
pub struct Metrics {
    prefix: &'static str,
    text: String,
}

impl Metrics {
    pub fn new(prefix: &'static str) -> Self {
        Metrics { prefix, text: String::new() }
    }

    /// A value that only grows; by convention its name ends in `_total`.
    pub fn counter(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        self.family(name, "counter", help)
    }

    /// A value that grows and shrinks.
    pub fn gauge(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        self.family(name, "gauge", help)
    }

    /// Quantiles and the number of samples; see [`Family::quantiles`].
    pub fn summary(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        self.family(name, "summary", help)
    }

    /// Samples by size, which can be added up over hosts; see [`Family::buckets`].
    pub fn histogram(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        self.family(name, "histogram", help)
    }

    pub fn finish(self) -> String {
        self.text
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &'static str) -> Family<'_> {
        let name = format!("{}_{name}", self.prefix);
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Family { name, text: &mut self.text }
    }
}

#[derive(Debug)]
pub struct Family<'a> {
    name: String,
    text: &'a mut String,
}

impl Family<'_> {
    pub fn sample(&mut self, labels: &[(&'static str, &str)], value: impl Number) -> &mut Self {
        self.line("", labels, value)
    }

    /// Adds the samples of a summary: one per (quantile, value), and the count.
    pub fn quantiles(
        &mut self,
        labels: &[(&'static str, &str)],
        values: impl IntoIterator<Item = (f64, f64)>,
        count: u64,
    ) -> &mut Self {
        for (quantile, value) in values {
            let quantile = quantile.to_string();
            self.sample(&[labels, &[("quantile", &quantile)]].concat(), value);
        }
        self.line("_count", labels, count)
    }

    /// Adds the samples of a histogram: one per bucket, a bucket of all, their sum and count.
    ///
    /// - `buckets`: upper end, ascending, and the number of samples at or below it.
    pub fn buckets(
        &mut self,
        labels: &[(&'static str, &str)],
        buckets: impl IntoIterator<Item = (f64, u64)>,
        sum: f64,
        count: u64,
    ) -> &mut Self {
        let buckets = buckets.into_iter().map(|(end, count)| (end.to_string(), count));
        for (end, count) in buckets.chain([("+Inf".to_owned(), count)]) {
            self.line("_bucket", &[labels, &[("le", &end)]].concat(), count);
        }
        self.line("_sum", labels, sum).line("_count", labels, count)
    }

    fn line(
        &mut self,
        suffix: &str,
        labels: &[(&'static str, &str)],
        value: impl Number,
    ) -> &mut Self {
        let labels: Vec<String> =
            labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escape(v))).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let value = value.text();
        let _ = writeln!(self.text, "{}{suffix}{labels} {value}", self.name);
        self
    }
}

/// A label's value may hold anything, but three characters need a backslash. Other control characters,
/// which would drive a terminal that shows the document, are replaced by their code.
fn escape(value: &str) -> String {
    let shown = crate::text::visible(value).replace('\\', r"\\").replace('"', "\\\"");
    shown.replace('\n', r"\n").replace('\t', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_follow_the_head_of_their_family() {
        let mut metrics = Metrics::new("w");
        metrics.counter("a_total", "As.").sample(&[], 7);
        let latency = [(0.5, 0.001), (0.99, 0.25)];
        metrics.summary("b_seconds", "Bs.").quantiles(&[("line", "x")], latency, 12);
        assert_eq!(
            metrics.finish(),
            "# HELP w_a_total As.\n# TYPE w_a_total counter\nw_a_total 7\n\
             # HELP w_b_seconds Bs.\n# TYPE w_b_seconds summary\n\
             w_b_seconds{line=\"x\",quantile=\"0.5\"} 0.001\n\
             w_b_seconds{line=\"x\",quantile=\"0.99\"} 0.25\n\
             w_b_seconds_count{line=\"x\"} 12\n"
        );
    }

    #[test]
    fn histogram_has_cumulative_buckets_and_one_of_all() {
        let mut metrics = Metrics::new("w");
        let buckets = [(0.001, 3), (0.01, 5)];
        metrics.histogram("t_seconds", "Ts.").buckets(&[("s", "x")], buckets, 0.5, 6);
        assert_eq!(
            metrics.finish(),
            "# HELP w_t_seconds Ts.\n# TYPE w_t_seconds histogram\n\
             w_t_seconds_bucket{s=\"x\",le=\"0.001\"} 3\n\
             w_t_seconds_bucket{s=\"x\",le=\"0.01\"} 5\n\
             w_t_seconds_bucket{s=\"x\",le=\"+Inf\"} 6\n\
             w_t_seconds_sum{s=\"x\"} 0.5\nw_t_seconds_count{s=\"x\"} 6\n"
        );
    }

    #[test]
    fn label_value_cannot_end_its_line() {
        let mut metrics = Metrics::new("w");
        metrics.gauge("up", "Up.").sample(&[("name", "a\"} 1\nb \\")], 1);
        let text = metrics.finish();
        assert_eq!(text.lines().last(), Some(r#"w_up{name="a\"} 1\nb \\"} 1"#));
        let controls = ('\0'..='\x1f').chain('\x7f'..='\u{9f}').collect::<String>();
        let mut metrics = Metrics::new("w");
        metrics.gauge("up", "Up.").sample(&[("name", &controls)], 1);
        let text = metrics.finish();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text}");
        assert!(text.contains(r"\\u{1b}") && text.contains(r"\\u{9b}"), "{text}");
    }
}
