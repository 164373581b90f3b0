//! One figure of the service's own, as written on the command line.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use model::Better;
use regex::bytes::Regex;

use super::error::MetricSyntaxError;
use super::prometheus::{Selector, Url};

/// Statistic that is taken of a source between two readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Statistic {
    /// Share below it, above 0 and below 1.
    Quantile(f64),
    Mean,
    /// Increase a second.
    Rate,
    /// Mean of the values at the readings.
    Value,
}

/// Place of a figure.
#[derive(Debug, Clone)]
pub enum MetricSource {
    /// Prometheus text over HTTP.
    Prometheus { url: Url, selector: Selector },
    /// Lines that are added to a file; the expression's one group is the number.
    Log { path: PathBuf, regex: Regex },
    /// Run by `sh -c` at each reading; its output is the number.
    Command { command: String },
}

/// A figure of the service's own: its source, statistic and direction.
///
/// ```text
/// [NAME=]prom:URL#METRIC[{label="value",…}]:p99|mean|rate|value lower|higher
/// [NAME=]log:FILE#REGEX[:p99|mean|rate] lower|higher
/// [NAME=]command:COMMAND lower|higher
/// ```
#[derive(Debug, Clone)]
pub struct MetricSpec {
    pub name: String,
    pub better: Better,
    pub source: MetricSource,
    pub statistic: Statistic,
}

impl MetricSpec {
    /// Unit of the figure, by the name of the metric; empty if it states none.
    pub fn unit(&self) -> String {
        match &self.source {
            MetricSource::Prometheus { selector, .. } => {
                let base = match selector.metric.strip_suffix("_seconds") {
                    Some(_) => "s".into(),
                    None => stated_unit(&selector.metric),
                };
                if self.statistic == Statistic::Rate { "per_s".into() } else { base }
            }
            _ if self.statistic == Statistic::Rate => "per_s".into(),
            _ => stated_unit(&self.name),
        }
    }
}

/// Unit that a name states; empty if it states none.
fn stated_unit(name: &str) -> String {
    model::stated_unit(name).map_or("", |(unit, _)| unit).to_owned()
}

const NAME_BYTES_MAX: usize = 64;
const FORMS: &str = "use prom:URL#METRIC:p99 lower, log:FILE#REGEX lower or command:COMMAND lower";

impl FromStr for MetricSpec {
    type Err = MetricSyntaxError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text.trim()).map_err(|(part, remedy)| MetricSyntaxError {
            text: text.into(),
            part,
            remedy: remedy.into(),
        })
    }
}

/// A part that is not valid, and the remedy.
type Fault = (String, &'static str);

fn parse(text: &str) -> Result<MetricSpec, Fault> {
    let (name, text) = match text.split_once('=').filter(|(name, _)| is_plain_name(name)) {
        Some((name, rest)) => (Some(name.to_owned()), rest),
        None => (None, text),
    };
    let (source, direction) = text
        .rsplit_once(char::is_whitespace)
        .ok_or_else(|| ("it has no direction".to_owned(), "add lower or higher at the end"))?;
    let better = match direction {
        "lower" => Better::Lower,
        "higher" => Better::Higher,
        other => {
            return Err((format!("{other:?} is not a direction"), "end with lower or higher"));
        }
    };
    let (kind, place) = source
        .trim()
        .split_once(':')
        .ok_or_else(|| (format!("{source:?} is not a source"), FORMS))?;
    let (default, source, statistic) = match kind {
        "prom" => prometheus(place)?,
        "log" => log(place)?,
        "command" if !place.trim().is_empty() => {
            let command = place.trim().to_owned();
            ("command".into(), MetricSource::Command { command }, Statistic::Value)
        }
        "command" => return Err(("command: has no command".into(), FORMS)),
        _ => return Err((format!("{kind:?} is not a kind of source"), FORMS)),
    };
    Ok(MetricSpec { name: name.unwrap_or(default), better, source, statistic })
}

fn prometheus(place: &str) -> Result<(String, MetricSource, Statistic), Fault> {
    let (url, rest) = place.split_once('#').ok_or_else(|| {
        (
            "it has no # between address and metric".to_owned(),
            "use prom:http://HOST:PORT/metrics#METRIC:p99 lower",
        )
    })?;
    let (selector, statistic) = rest.rsplit_once(':').ok_or_else(|| {
        (
            format!("{rest:?} has no statistic"),
            "end the metric with :p50, :p99, :mean, :rate or :value",
        )
    })?;
    let statistic = parse_statistic(statistic).ok_or_else(|| {
        (format!("{statistic:?} is not a statistic"), "use p50, p99, p99.9, mean, rate or value")
    })?;
    let url = Url::parse(url)?;
    let selector = Selector::parse(selector)?;
    let name = format!("{}_{}", selector.metric, statistic);
    Ok((name, MetricSource::Prometheus { url, selector }, statistic))
}

fn log(place: &str) -> Result<(String, MetricSource, Statistic), Fault> {
    let (path, rest) = place.split_once('#').ok_or_else(|| {
        ("it has no # between file and expression".to_owned(), "use log:FILE#REGEX lower")
    })?;
    if path.is_empty() {
        return Err(("log: has no file".into(), "use log:FILE#REGEX lower"));
    }
    // A colon may belong to the expression: only a word that is a statistic ends it.
    let end = rest.rsplit_once(':').and_then(|(regex, word)| Some((regex, parse_statistic(word)?)));
    let (regex, statistic) = end.unwrap_or((rest, Statistic::Mean));
    if statistic == Statistic::Value {
        return Err(("a log has no value at one time".into(), "use p99, mean or rate"));
    }
    let regex = Regex::new(regex).map_err(|why| {
        let why = why.to_string();
        let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        (
            format!("{regex:?} is not a regular expression: {why}"),
            "see https://docs.rs/regex for its syntax",
        )
    })?;
    if regex.captures_len() != 2 {
        let count = regex.captures_len() - 1;
        return Err((
            format!("the expression has {count} capture groups"),
            "put one pair of parentheses around the number, and write other groups (?:…)",
        ));
    }
    let name = format!("log_{statistic}");
    Ok((name, MetricSource::Log { path: path.into(), regex }, statistic))
}

fn parse_statistic(text: &str) -> Option<Statistic> {
    match text {
        "mean" => Some(Statistic::Mean),
        "rate" => Some(Statistic::Rate),
        "value" => Some(Statistic::Value),
        _ => {
            let digits = text.strip_prefix('p')?;
            let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            let percent: f64 = digits.parse().ok().filter(|_| is_plain)?;
            (percent > 0.0 && percent < 100.0).then_some(Statistic::Quantile(percent / 100.0))
        }
    }
}

fn is_plain_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.len() <= NAME_BYTES_MAX
        && name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'))
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Rounded: 0.999 * 100 is not 99.9.
            Statistic::Quantile(share) => write!(f, "p{}", (share * 1e9).round() / 1e7),
            Statistic::Mean => f.write_str("mean"),
            Statistic::Rate => f.write_str("rate"),
            Statistic::Value => f.write_str("value"),
        }
    }
}

impl fmt::Display for MetricSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let better = match self.better {
            Better::Lower => "lower",
            Better::Higher => "higher",
        };
        write!(f, "{}=", self.name)?;
        match &self.source {
            MetricSource::Prometheus { url, selector } => {
                write!(f, "prom:{url}#{selector}:{}", self.statistic)?;
            }
            MetricSource::Log { path, regex } => {
                write!(f, "log:{}#{regex}:{}", path.display(), self.statistic)?;
            }
            MetricSource::Command { command } => write!(f, "command:{command}")?,
        }
        write!(f, " {better}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        text.parse::<MetricSpec>().unwrap_err().to_string()
    }

    #[test]
    fn each_kind_of_source_parses_and_is_written_as_it_was() {
        for text in [
            "x=prom:http://127.0.0.1:9100/metrics#http_request_seconds:p99 lower",
            "x=prom:http://[::1]:9100/metrics#requests_total{code=\"200\",path=\"/a b\"}:rate higher",
            "x=log:/var/log/a b.log#took=([0-9.]+)ms:p99.9 lower",
            "x=command:redis-cli info | grep used lower",
        ] {
            let spec: MetricSpec = text.parse().unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(spec.to_string(), text);
        }
        let spec: MetricSpec = "prom:http://a:1/m#lat_seconds:p99 lower".parse().unwrap();
        assert_eq!((spec.name.as_str(), spec.unit().as_str()), ("lat_seconds_p99", "s"));
        let spec: MetricSpec = "log:/x#a: ([0-9]+):b lower".parse().unwrap();
        assert_eq!(spec.statistic, Statistic::Mean, "the colon is the expression's");
    }

    #[test]
    fn each_fault_names_the_part_and_a_remedy() {
        for (text, part) in [
            ("prom:http://a:1/m#x:p99", "no direction"),
            ("prom:http://a:1/m#x:p99 less", "\"less\" is not a direction"),
            ("prom:http://a:1/m:p99 lower", "no #"),
            ("prom:http://a:1/m#x lower", "no statistic"),
            ("prom:http://a:1/m#x:p100 lower", "\"p100\" is not a statistic"),
            ("prom:https://a:1/m#x:p99 lower", "https"),
            ("prom:http://a:1/m#x{a=1}:p99 lower", "label"),
            ("log:/x#[0-9]+ lower", "0 capture groups"),
            ("log:/x#([0-9 lower", "not a regular expression"),
            ("command: lower", "no command"),
            ("file:/x lower", "\"file\" is not a kind"),
        ] {
            let found = fault(text);
            assert!(found.contains(part) && found.contains(';'), "{text}: {found}");
        }
    }
}
