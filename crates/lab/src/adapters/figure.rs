//! One figure: its text on the command line, and its value in an output.

use std::fmt;
use std::str::FromStr;

use model::{Better, Measurement, Shape, stated_unit};
use regex::bytes::{Regex, RegexBuilder};

use super::error::{FigureError, FigureSyntaxError, Reason};
use super::json::{self, Scalar};
use super::origin::Origin;
use super::unit::FigureUnit;
use super::{OUTPUT_BYTES_MAX, csv, hdr, pattern};

const NAME_BYTES_MAX: usize = 64;
const SOURCES: &str = "use json:/pointer, re:REGEX, csv:COLUMN or hdr:TAG@QUANTILE";
/// Words that look like a direction and are none.
const NO_DIRECTIONS: [&str; 10] =
    ["low", "high", "less", "more", "smaller", "larger", "bigger", "greater", "up", "down"];

/// A value to take from the output of a program.
#[derive(Debug, Clone)]
pub struct Figure {
    /// Ends in its unit, or states it before a qualifier: `p99_us`, `latency_us_p99`.
    pub name: String,
    pub better: Better,
    pub origin: Origin,
    pub from: Source,
}

/// Place of a value in an output. [`super`] documents the rules of each.
#[derive(Debug, Clone)]
pub enum Source {
    /// Pointer into a JSON document (RFC 6901).
    Json(String),
    /// Expression with one capture group.
    Regex(Regex),
    /// Column of a table of comma-separated values.
    Csv(String),
    /// Quantile of an HdrHistogram log.
    Hdr {
        /// Tag of the intervals; `None` for those without one.
        tag: Option<String>,
        /// Above 0, at most 100.
        percent: f64,
    },
}

impl Figure {
    /// Enters its value into a measurement, with its unit and direction.
    pub fn enter(&self, value: f64, measurement: &mut Measurement) {
        let shape = Shape { unit: self.unit().into(), better: self.better };
        measurement.shapes.insert(self.name.clone(), shape);
        measurement.figures.insert(self.name.clone(), value);
    }

    /// Returns a figure of a program that this program knows.
    ///
    /// # Panics
    /// If the text is not one. Only for texts that a test parses.
    pub(crate) fn fixed(text: &'static str) -> Figure {
        text.parse().unwrap_or_else(|why| panic!("{why}"))
    }

    /// Returns the unit that the name states; empty if it states none.
    pub fn unit(&self) -> &'static str {
        stated_unit(&self.name).map_or("", |(unit, _)| unit)
    }

    /// Returns the value in an output, in the unit of the name. It is finite.
    ///
    /// Errors: the output does not have the figure, or it is not that of a measurement.
    pub fn take(&self, output: &[u8]) -> Result<f64, FigureError> {
        self.take_beside(output, &mut None)
    }

    /// As [`take`](Self::take), for one output of several.
    ///
    /// - `unit_beside`: unit that followed the number in an earlier output, if the figure's name has none.
    ///
    /// Errors: as [`take`](Self::take), or another unit follows the number in this output.
    pub fn take_beside(
        &self,
        output: &[u8],
        unit_beside: &mut Option<String>,
    ) -> Result<f64, FigureError> {
        self.read(output, unit_beside).map_err(|reason| FigureError {
            figure: self.name.clone(),
            from: format!("{}{}", self.origin, self.from),
            reason,
        })
    }

    fn read(&self, output: &[u8], unit_beside: &mut Option<String>) -> Result<f64, Reason> {
        if output.len() > OUTPUT_BYTES_MAX {
            return Err(Reason::TooLong { len_bytes: output.len() });
        }
        if output.trim_ascii().is_empty() {
            return Err(Reason::Empty);
        }
        let unit = FigureUnit::stated_in(&self.name);
        let value = match &self.from {
            Source::Json(pointer) => match json::scalar(output, pointer)? {
                Scalar::Number(number) => number,
                Scalar::Text(text) => unit.parse(&text)?,
            },
            Source::Regex(regex) => {
                let found = pattern::last(output, regex)?;
                let value = unit.parse(&String::from_utf8_lossy(found.as_bytes()))?;
                let beside = unit.beside(output, found.range())?;
                match (beside, unit_beside.as_deref()) {
                    (Some(now), Some(before)) if now != before => {
                        return Err(Reason::UnitChanged { now, before: before.to_owned() });
                    }
                    (Some(now), None) => *unit_beside = Some(now),
                    _ => {}
                }
                value
            }
            Source::Csv(column) => {
                unit.parse(&String::from_utf8_lossy(&csv::last(output, column)?))?
            }
            Source::Hdr { tag, percent } => hdr::quantile(output, tag.as_deref(), percent / 100.0)?,
        };
        unit.checked(value)
    }
}

impl FromStr for Figure {
    type Err = FigureSyntaxError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |(part, remedy): (String, String)| {
            Err(FigureSyntaxError { text: text.into(), part, remedy })
        };
        let Some((name, rest)) = text.split_once('=') else {
            let form = "write NAME=SOURCE DIRECTION, such as p99_us=json:/latency/p99 lower";
            return wrong(("it has no =".into(), form.into()));
        };
        let name = name.trim();
        if let Err(why) = check_name(name) {
            return wrong(why);
        }
        let (source, better) = match direction(rest.trim()) {
            Ok(parts) => parts,
            Err(why) => return wrong(why),
        };
        let (origin, source) = match Origin::split(source) {
            Ok(parts) => parts,
            Err(why) => return wrong(why),
        };
        let from = match Source::parse(source) {
            Ok(from) => from,
            Err(why) => return wrong(why),
        };
        let implied = stated_unit(name).and_then(|(_, better)| better);
        let Some(better) = better.or(implied) else {
            let part = format!("the name {name:?} implies no direction");
            return wrong((part, "add lower or higher at the end".into()));
        };
        Ok(Figure { name: name.into(), better, origin, from })
    }
}

/// A part that is wrong and why, and its remedy.
pub(super) type FigureFault = (String, String);

fn check_name(name: &str) -> Result<(), FigureFault> {
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase());
    let is_plain = name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'));
    if starts_well && is_plain && name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    let remedy = format!(
        "use a letter, then letters, digits and _, all in lower case, at most {NAME_BYTES_MAX}, and end \
         in the unit: p99_us"
    );
    Err((format!("{name:?} is not a name"), remedy))
}

/// Splits a direction off the end of a source.
fn direction(text: &str) -> Result<(&str, Option<Better>), FigureFault> {
    let Some((source, last)) = text.rsplit_once(char::is_whitespace) else {
        return Ok((text, None));
    };
    match last {
        "lower" => Ok((source.trim_end(), Some(Better::Lower))),
        "higher" => Ok((source.trim_end(), Some(Better::Higher))),
        _ if NO_DIRECTIONS.contains(&last) => {
            let remedy =
                "write lower or higher; if the word belongs to the source, add a direction";
            Err((format!("{last:?} is not a direction"), remedy.into()))
        }
        _ => Ok((text, None)),
    }
}

pub(super) fn fault<T>(part: String, remedy: &str) -> Result<T, FigureFault> {
    Err((part, remedy.to_owned()))
}

impl Source {
    fn parse(text: &str) -> Result<Source, FigureFault> {
        let Some((kind, place)) = text.split_once(':') else {
            return fault(format!("{text:?} is not a source"), SOURCES);
        };
        match kind {
            "json" if json::tokens(place).is_some() => Ok(Source::Json(place.into())),
            "json" => fault(
                format!("{place:?} is not a JSON pointer"),
                "use /member/0/member, with ~1 for / and ~0 for ~ in a name (RFC 6901)",
            ),
            "re" => {
                let regex = RegexBuilder::new(place).multi_line(true).build();
                let regex = match regex {
                    Ok(regex) => regex,
                    Err(why) => {
                        let why = why.to_string();
                        let why =
                            why.lines().last().unwrap_or_default().trim_start_matches("error: ");
                        return fault(
                            format!("{place:?} is not a regular expression: {why}"),
                            "see https://docs.rs/regex for its syntax",
                        );
                    }
                };
                match regex.captures_len() - 1 {
                    1 => Ok(Source::Regex(regex)),
                    count => fault(
                        format!("{place:?} has {count} capture groups"),
                        "put one pair of parentheses around the number, and write other groups (?:…)",
                    ),
                }
            }
            "csv" if !place.trim().is_empty() => Ok(Source::Csv(place.trim().into())),
            "csv" => fault("csv: has no column".into(), "use csv:COLUMN, a field of the header"),
            "hdr" => {
                let parts = place.rsplit_once('@');
                let parts =
                    parts.and_then(|(tag, percent)| Some((tag, percent.parse::<f64>().ok()?)));
                match parts.filter(|(_, percent)| *percent > 0.0 && *percent <= 100.0) {
                    Some((tag, percent)) => {
                        let tag = Some(tag.to_owned()).filter(|tag| !tag.is_empty());
                        Ok(Source::Hdr { tag, percent })
                    }
                    None => fault(
                        format!("{place:?} has no quantile"),
                        "use hdr:@99.9 or hdr:TAG@99.9, in percent, above 0 and at most 100",
                    ),
                }
            }
            _ => fault(format!("{kind:?} is not a kind of source"), SOURCES),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Json(pointer) => write!(f, "json:{pointer}"),
            Source::Regex(regex) => write!(f, "re:{regex}"),
            Source::Csv(column) => write!(f, "csv:{column}"),
            Source::Hdr { tag, percent } => {
                write!(f, "hdr:{}@{percent}", tag.as_deref().unwrap_or_default())
            }
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let better = match self.better {
            Better::Lower => "lower",
            Better::Higher => "higher",
        };
        write!(f, "{}={}{} {better}", self.name, self.origin, self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(text: &str) -> Figure {
        text.parse().unwrap_or_else(|why| panic!("{why}"))
    }

    #[test]
    fn a_figure_is_name_source_and_direction() {
        for (text, same) in [
            ("p99_us=json:/latency/p99 lower", None),
            ("p99_us=json:/ALL STATS/p99", Some("p99_us=json:/ALL STATS/p99 lower")),
            ("rps=re:([0-9.]+) requests higher", None),
            (" rps = re:a=([0-9.]+) ", Some("rps=re:a=([0-9.]+) higher")),
            ("score=csv:Total Score higher", None),
            ("a_score=re:([0-9]+) is higher lower", None),
            ("p999_us=hdr:@99.9 lower", None),
            ("p50_ns=hdr:a@b@50", Some("p50_ns=hdr:a@b@50 lower")),
            ("memory_bytes=json:/m higher", None),
            ("p99_us=server:json:/p99 lower", None),
            ("p99_us=beside:re:p99 (.+)", Some("p99_us=beside:re:p99 (.+) lower")),
            ("p99_us=file:a:b.json:json:/p99 lower", None),
        ] {
            assert_eq!(figure(text).to_string(), same.unwrap_or(text));
        }
        assert_eq!(figure("rps=csv:rps").unit(), "rps");
        assert_eq!(figure("score=csv:rps lower").unit(), "");
    }

    fn both(text: &str) -> (Result<f64, Reason>, Result<f64, Reason>) {
        let (us, ms) = (b"99% 980.00us\n", b"99% 1.02ms\n");
        let (figure, mut beside) = (figure(text), None);
        let first = figure.take_beside(us, &mut beside).map_err(|error| error.reason);
        let second = figure.take_beside(ms, &mut beside).map_err(|error| error.reason);
        (first, second)
    }

    #[test]
    fn a_unit_that_changes_between_outputs_is_refused_unless_it_is_captured() {
        assert_eq!(both(r"p99_us=re:99% +(\S+)"), (Ok(980.0), Ok(1020.0)));
        let (first, second) = both("p99_us=re:99% +([0-9.]+)");
        assert!(first == Ok(980.0) && matches!(second, Err(Reason::OtherUnitBeside { .. })));
        let (first, second) = both("p99=re:99% +([0-9.]+) lower");
        assert!(first == Ok(980.0) && matches!(second, Err(Reason::UnitChanged { .. })));
    }

    #[test]
    fn a_wrong_part_is_named_with_its_remedy() {
        for (text, part, remedy) in [
            ("p99_us", "no =", "NAME=SOURCE"),
            ("=json:/a lower", "\"\" is not a name", "p99_us"),
            ("P99=json:/a lower", "\"P99\" is not a name", "lower case"),
            ("p99 us=json:/a lower", "\"p99 us\"", "letters"),
            ("p99_us=", "\"\" is not a source", "json:/pointer"),
            ("p99_us=/latency lower", "\"/latency\" is not a source", "json:/pointer"),
            ("p99_us=xml:/a lower", "\"xml\" is not a kind", "json:/pointer"),
            ("p99_us=json:a lower", "\"a\" is not a JSON pointer", "~1 for /"),
            ("p99_us=json: lower", "\"\" is not a JSON pointer", "/member"),
            ("p99_us=json:/a~x lower", "JSON pointer", "~0 for ~"),
            ("p99_us=re:( lower", "regular expression: unclosed group", "docs.rs/regex"),
            ("p99_us=re:[0-9]+ lower", "0 capture groups", "one pair"),
            ("p99_us=re:(a)(b) lower", "2 capture groups", "(?:"),
            ("p99_us=csv: lower", "no column", "csv:COLUMN"),
            ("p99_us=hdr:99 lower", "\"99\" has no quantile", "hdr:@99.9"),
            ("p99_us=hdr:@0 lower", "no quantile", "above 0"),
            ("p99_us=hdr:@NaN lower", "no quantile", "above 0"),
            ("p99_us=hdr:@101 lower", "no quantile", "at most 100"),
            ("p99_us=server:/a lower", "\"/a\" is not a source", "json:/pointer"),
            ("p99_us=file:json:/a lower", "no path", "file:PATH:json:/pointer"),
            ("p99_us=file:a.json lower", "no source", "file:PATH:json:/pointer"),
            ("p99_us=json:/a low", "\"low\" is not a direction", "lower or higher"),
            ("score=json:/a", "\"score\" implies no direction", "lower or higher"),
            ("memory_bytes=json:/a", "implies no direction", "lower or higher"),
        ] {
            let error = text.parse::<Figure>().unwrap_err();
            assert!(error.part.contains(part), "{text}: {error}");
            assert!(error.remedy.contains(remedy), "{text}: {error}");
            assert!(error.to_string().contains(text), "{error}");
        }
        assert!("x=re:(a{1000}{1000}{1000}) lower".parse::<Figure>().is_err());
    }

    #[test]
    fn values_are_taken_in_the_unit_of_the_name() {
        for (text, output, value) in [
            ("p99_us=json:/p99", "{\"p99\": 12.5}", 12.5),
            ("p99_us=json:/p99", "{\"p99\": \"1.5ms\"}", 1500.0),
            (
                "rps=re:^Requests/sec: +(\\S+)$",
                "Requests/sec: 1\r\nRequests/sec:  12.5k\nx",
                12_500.0,
            ),
            ("rps=re:([0-9]+) \\[m", "7 [m\n8 [m\n", 8.0),
            ("p99_us=csv:p99", "test,p99\nGET,\"1.5 ms\"\n", 1500.0),
            ("lost_count=re:lost (\\d+)", "lost 0", 0.0),
        ] {
            assert_eq!(figure(text).take(output.as_bytes()).unwrap(), value, "{text}");
        }
        let invalid = b"\xff\xfe p99 = \xc0 12us \xff";
        assert_eq!(figure("p99_us=re:p99 = (?-u:.) (\\S+)").take(invalid).unwrap(), 12.0);
    }

    fn reason(text: &str, output: &[u8]) -> Reason {
        figure(text).take(output).unwrap_err().reason
    }

    #[test]
    fn an_output_without_the_figure_is_an_error_and_never_zero() {
        for text in ["p99_us=json:/a", "p99_us=re:(a)", "p99_us=csv:a", "p99_us=hdr:@99"] {
            assert_eq!(reason(text, b" \n\t\n"), Reason::Empty, "{text}");
            let long = vec![b'{'; OUTPUT_BYTES_MAX + 1];
            assert!(matches!(reason(text, &long), Reason::TooLong { .. }), "{text}");
            assert!(figure(text).take(b"\xff\xff\xff\n\0").is_err(), "{text}");
        }
        let zero = b"{\"a\": 0}\na,0\n";
        assert_eq!(reason("rps=re:a,(.)", zero), Reason::OutOfRange { value: 0.0 });
        assert!(
            matches!(reason("p99_us=re:b(.)", zero), Reason::NoMatch { tail } if tail == "a,0")
        );
        assert!(matches!(reason("p99_us=re:(a),", zero), Reason::NotANumber { .. }));
        assert!(matches!(reason("p99_us=json:/a", b"{\"a\": \"nan\"}"), Reason::NotANumber { .. }));
        let error = figure("p99_us=re:p99 (.)").take(b"x").unwrap_err().to_string();
        assert_eq!(error, "figure p99_us (re:p99 (.)): no match; the output ends with \"x\"");
    }
}
