//! Choice of a format by the `Accept` header of a request.

/// Format in which metrics are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// Prometheus' text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

/// Weights of `Accept` in thousandths, as RFC 9110 has three decimals.
const WEIGHT_MAX: u32 = 1000;

impl Exposition {
    /// Value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Exposition::Text => "text/plain; version=0.0.4; charset=utf-8",
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Chooses the format that a client prefers; the text format unless it names OpenMetrics 1.0 with at least the weight
    /// of the text format.
    ///
    /// - `accept`: value of the header, empty if there is none.
    ///
    /// Source: RFC 9110, section 12.5.1.
    pub fn negotiate(accept: &str) -> Self {
        let ranges: Vec<Range<'_>> = accept.split(',').filter_map(Range::parse).collect();
        let open = ranges.iter().filter(|range| range.is_openmetrics()).map(|range| range.weight);
        let text = ranges.iter().filter(|range| range.is_text()).map(|range| range.weight);
        let text = text.max().unwrap_or(0);
        match open.max() {
            Some(open) if open > 0 && open >= text => Exposition::OpenMetrics,
            _ => Exposition::Text,
        }
    }
}

/// A media range with its weight in thousandths.
struct Range<'a> {
    kind: &'a str,
    version: Option<&'a str>,
    weight: u32,
}

impl<'a> Range<'a> {
    /// `None` of an empty range, or of a weight that is no weight.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let kind = parts.next().filter(|kind| !kind.is_empty())?;
        let mut range = Range { kind, version: None, weight: WEIGHT_MAX };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "version" => range.version = Some(value),
                "q" => {
                    let weight = value.parse::<f64>().ok().filter(|q| (0.0..=1.0).contains(q))?;
                    range.weight = (weight * f64::from(WEIGHT_MAX)).round() as u32;
                }
                _ => {}
            }
        }
        Some(range)
    }

    fn is_openmetrics(&self) -> bool {
        self.kind.eq_ignore_ascii_case("application/openmetrics-text")
            && self.version.is_none_or(|version| version == "1.0.0")
    }

    fn is_text(&self) -> bool {
        self.kind.eq_ignore_ascii_case("text/plain")
            && self.version.is_none_or(|version| version == "0.0.4")
    }
}

#[cfg(test)]
mod tests {
    use super::Exposition::{self, OpenMetrics, Text};

    #[test]
    fn format_is_the_one_that_the_client_prefers() {
        // Prometheus 2.42 and 3.5, curl, a browser, and clients that know one of them.
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                          version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let newer = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                     application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;\
                     escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (accept, expected) in [
            (prometheus, OpenMetrics),
            (newer, OpenMetrics),
            ("*/*", Text),
            ("", Text),
            (browser, Text),
            ("text/plain;version=0.0.4", Text),
            ("Application/OpenMetrics-Text; version=\"1.0.0\"; charset=utf-8", OpenMetrics),
            ("application/openmetrics-text", OpenMetrics),
            ("application/openmetrics-text;version=0.0.1", Text),
            ("application/openmetrics-text;q=0", Text),
            ("application/openmetrics-text;q=0.3, text/plain;q=0.4", Text),
            ("application/openmetrics-text;q=x", Text),
            (";;,=;q,", Text),
        ] {
            assert_eq!(Exposition::negotiate(accept), expected, "{accept}");
        }
        assert_ne!(Text.content_type(), OpenMetrics.content_type());
    }
}
