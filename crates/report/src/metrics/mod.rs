//! Metrics for Prometheus: the one writer of its text format 0.0.4 and of OpenMetrics 1.0.

mod negotiation;

use std::fmt::Write;

pub use negotiation::Exposition;

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
numbers!(i32, i64, u8, u16, u32, u64, usize);

impl sealed::Sealed for f64 {}
impl Number for f64 {
    /// Infinities have the spelling that both formats know.
    fn text(&self) -> String {
        if self.is_infinite() {
            return if *self > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
        }
        self.to_string()
    }
}

/// Base units; a family whose name ends in one has it as its unit in OpenMetrics.
///
/// Source: OpenMetrics 1.0, "Units and Base Units", and its rates.
const UNITS: [&str; 5] = ["packets_per_second", "bytes_per_second", "seconds", "bytes", "ratio"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MetricType {
    Counter,
    Gauge,
    Info,
    Summary,
    Histogram,
}

impl MetricType {
    /// Word behind `# TYPE`. The text format has no type for facts.
    fn word(self, exposition: Exposition) -> &'static str {
        match (self, exposition) {
            (MetricType::Counter, _) => "counter",
            (MetricType::Info, Exposition::OpenMetrics) => "info",
            (MetricType::Gauge | MetricType::Info, _) => "gauge",
            (MetricType::Summary, _) => "summary",
            (MetricType::Histogram, _) => "histogram",
        }
    }

    /// End of the samples' names that OpenMetrics does not count to the name of the family.
    fn suffix(self) -> &'static str {
        match self {
            MetricType::Counter => "_total",
            MetricType::Info => "_info",
            MetricType::Gauge | MetricType::Summary | MetricType::Histogram => "",
        }
    }
}

/// Several metric families; every name begins with the same prefix.
///
/// Text from outside gets into it only as the value of a label, which is escaped: names and help are literals, and the
/// value of a sample is a [`Number`].
///
/// ```
/// use wirepath_report::metrics::{Exposition, Metrics};
/// let mut metrics = Metrics::new("wirepath_feed");
/// let mut gaps = metrics.counter("gaps_total", "Gaps that were given up.");
/// gaps.sample(&[("line", "a")], 3).sample(&[("line", "b")], 0);
/// assert!(metrics.text().ends_with("\nwirepath_feed_gaps_total{line=\"b\"} 0\n"));
/// let open = metrics.write(Exposition::OpenMetrics);
/// assert!(open.contains("# TYPE wirepath_feed_gaps counter\n") && open.ends_with("\n# EOF\n"));
/// ```
#[derive(Debug, Clone)]
pub struct Metrics {
    prefix: &'static str,
    families: Vec<Described>,
}

/// A family: its description, and its samples as lines.
#[derive(Debug, Clone)]
struct Described {
    /// Of the samples.
    name: String,
    kind: MetricType,
    help: &'static str,
    samples: String,
}

impl Metrics {
    pub fn new(prefix: &'static str) -> Self {
        Metrics { prefix, families: Vec::new() }
    }

    /// A value that only grows; its name ends in `_total`.
    pub fn counter(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        self.family(name, MetricType::Counter, help)
    }

    /// A value that grows and shrinks.
    pub fn gauge(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        self.family(name, MetricType::Gauge, help)
    }

    /// Facts in the labels of one sample of value 1; its name ends in `_info`, or is `info`.
    pub fn info(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        self.family(name, MetricType::Info, help)
    }

    /// Quantiles and the number of samples; see [`Family::quantiles`].
    pub fn summary(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        self.family(name, MetricType::Summary, help)
    }

    /// Samples by size, which can be added up over hosts; see [`Family::buckets`].
    pub fn histogram(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        self.family(name, MetricType::Histogram, help)
    }

    /// Returns the text format 0.0.4, which the textfile collector of node_exporter reads too.
    pub fn text(&self) -> String {
        self.write(Exposition::Text)
    }

    /// Returns all families in one of the formats.
    pub fn write(&self, exposition: Exposition) -> String {
        let mut out = String::new();
        for family in &self.families {
            let Described { name, kind, help, samples } = family;
            let word = kind.word(exposition);
            match exposition {
                Exposition::Text => {
                    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {word}\n{samples}");
                }
                Exposition::OpenMetrics => {
                    let name = name.strip_suffix(kind.suffix()).unwrap_or(name);
                    let _ = writeln!(out, "# TYPE {name} {word}");
                    if let Some(unit) = unit(name) {
                        let _ = writeln!(out, "# UNIT {name} {unit}");
                    }
                    let _ = write!(out, "# HELP {name} {help}\n{samples}");
                }
            }
        }
        if exposition == Exposition::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }

    fn family(&mut self, name: &'static str, kind: MetricType, help: &'static str) -> Family<'_> {
        let name = format!("{}_{name}", self.prefix);
        debug_assert!(name.ends_with(kind.suffix()), "{name} is of type {kind:?}");
        debug_assert!(!help.contains(['"', '\\', '\n']), "{help}");
        self.families.push(Described { name, kind, help, samples: String::new() });
        let family = self.families.last_mut().expect("it was added");
        Family { name: &family.name, samples: &mut family.samples }
    }
}

/// Unit of a family, by the end of its name.
fn unit(name: &str) -> Option<&'static str> {
    UNITS.into_iter().find(|unit| name.strip_suffix(unit).is_some_and(|stem| stem.ends_with('_')))
}

#[derive(Debug)]
pub struct Family<'a> {
    name: &'a str,
    samples: &'a mut String,
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
        let _ = writeln!(self.samples, "{}{suffix}{labels} {value}", self.name);
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
            metrics.text(),
            "# HELP w_a_total As.\n# TYPE w_a_total counter\nw_a_total 7\n\
             # HELP w_b_seconds Bs.\n# TYPE w_b_seconds summary\n\
             w_b_seconds{line=\"x\",quantile=\"0.5\"} 0.001\n\
             w_b_seconds{line=\"x\",quantile=\"0.99\"} 0.25\n\
             w_b_seconds_count{line=\"x\"} 12\n"
        );
    }

    #[test]
    fn openmetrics_has_units_facts_and_an_end() {
        let mut metrics = Metrics::new("w");
        metrics.info("info", "Facts.").sample(&[("version", "1")], 1);
        metrics.counter("sent_bytes_total", "Bytes.").sample(&[], 7);
        metrics.gauge("share_ratio", "Share.").sample(&[], f64::INFINITY);
        metrics.gauge("workers", "Workers.").sample(&[], 2);
        assert_eq!(
            metrics.write(Exposition::OpenMetrics),
            "# TYPE w info\n# HELP w Facts.\nw_info{version=\"1\"} 1\n\
             # TYPE w_sent_bytes counter\n# UNIT w_sent_bytes bytes\n# HELP w_sent_bytes Bytes.\n\
             w_sent_bytes_total 7\n\
             # TYPE w_share_ratio gauge\n# UNIT w_share_ratio ratio\n# HELP w_share_ratio Share.\n\
             w_share_ratio +Inf\n\
             # TYPE w_workers gauge\n# HELP w_workers Workers.\nw_workers 2\n# EOF\n"
        );
        assert!(metrics.text().starts_with("# HELP w_info Facts.\n# TYPE w_info gauge\n"));
    }

    #[test]
    fn histogram_has_cumulative_buckets_and_one_of_all() {
        let mut metrics = Metrics::new("w");
        let buckets = [(0.001, 3), (0.01, 5)];
        metrics.histogram("t_seconds", "Ts.").buckets(&[("s", "x")], buckets, 0.5, 6);
        assert_eq!(
            metrics.text(),
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
        let text = metrics.text();
        assert_eq!(text.lines().last(), Some(r#"w_up{name="a\"} 1\nb \\"} 1"#));
        let controls = ('\0'..='\x1f').chain('\x7f'..='\u{9f}').collect::<String>();
        let mut metrics = Metrics::new("w");
        metrics.gauge("up", "Up.").sample(&[("name", &controls)], 1);
        let text = metrics.text();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text}");
        assert!(text.contains(r"\\u{1b}") && text.contains(r"\\u{9b}"), "{text}");
    }
}
