//! A wire with distance, as a text: `delay=20ms,rate=100mbit,buffer=1bdp,loss=0.1%`.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Shortest delay that a process can keep.
pub const WIRE_DELAY_MIN: Duration = Duration::from_millis(1);
const DELAY_MAX: Duration = Duration::from_secs(5);
/// Highest rate that a process can carry.
pub const WIRE_RATE_BPS_MAX: u64 = 1_000_000_000;
const RATE_BPS_MIN: u64 = 10_000;
/// Bytes in flight and in the queue of one direction.
const STORE_BYTES_MAX: u64 = 64 << 20;
/// Smallest buffer: one large segment.
const BUFFER_BYTES_MIN: u64 = 1_600;
/// Parts in which a share of losses is counted: one in a thousand million.
const PARTS: f64 = 1e9;
/// Largest share of losses.
const LOSS_MAX: f64 = 0.5;
const BURST_MAX: u32 = 1_000;
const FORMS: &str = "write delay=20ms,rate=100mbit and, if wanted, buffer=1bdp (or 500kb), loss=0.1%, burst=4, \
                     jitter=2ms, reorder, mark=0.2bdp";

/// Amount of bytes, or of products of rate and round-trip time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireBytes {
    Bytes(u64),
    /// Thousandths of rate × 2 × delay.
    BdpMilli(u32),
}

/// A wire of one rate and delay in both directions.
///
/// Sizes are those on an Ethernet wire: a frame has 24 bytes more than its headers and payload, the checksum, the
/// preamble and the gap. Source: IEEE 802.3, 7 + 1 + 4 + 12 bytes; a frame has at least 84 in all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WireSpec {
    /// One way, of each segment after it has left the queue.
    pub delay: Duration,
    /// Bits per second on the wire.
    pub rate_bps: u64,
    /// Queue in front of the wire; a segment that does not fit is dropped.
    pub buffer: WireBytes,
    /// Lost segments in a thousand million.
    pub loss_ppb: u32,
    /// Mean number of segments that are lost in a row; 1 for independent losses.
    pub burst: u32,
    /// Each segment is delayed by up to this much more or less, uniformly.
    pub jitter: Duration,
    /// Jitter may change the order; otherwise a segment waits for those before it.
    pub reorders: bool,
    /// Queue above which segments of connections with ECN are marked.
    pub mark: Option<WireBytes>,
}

/// A text that is not a wire, or a wire that cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid wire: {why}")]
pub struct WireSpecError {
    text: String,
    why: String,
}

impl FromStr for WireSpec {
    type Err = WireSpecError;

    fn from_str(text: &str) -> Result<Self, WireSpecError> {
        parse(text).map_err(|why| WireSpecError { text: text.chars().take(120).collect(), why })
    }
}

impl TryFrom<String> for WireSpec {
    type Error = WireSpecError;

    fn try_from(text: String) -> Result<Self, WireSpecError> {
        text.parse()
    }
}

impl From<WireSpec> for String {
    fn from(wire: WireSpec) -> String {
        wire.to_string()
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for WireSpec {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "WireSpec".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::json_schema(generator)
    }
}

fn parse(text: &str) -> Result<WireSpec, String> {
    let mut delay = None;
    let mut rate_bps = None;
    let (mut buffer, mut loss, mut burst) = (None, None, None);
    let (mut jitter, mut reorders, mut mark) = (None, None, None);
    for part in text.split(',').map(str::trim) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        match key {
            "delay" => once(key, &mut delay, parse_time(key, value)?)?,
            "rate" => once(key, &mut rate_bps, parse_rate(value)?)?,
            "buffer" => once(key, &mut buffer, parse_bytes(key, value)?)?,
            "loss" => once(key, &mut loss, parse_loss(value)?)?,
            "burst" => once(key, &mut burst, parse_burst(value)?)?,
            "jitter" => once(key, &mut jitter, parse_time(key, value)?)?,
            "reorder" if value.is_empty() => once(key, &mut reorders, true)?,
            "mark" => once(key, &mut mark, parse_bytes(key, value)?)?,
            _ => return Err(format!("{part:?} is none of its parts; {FORMS}")),
        }
    }
    let wire = WireSpec {
        delay: delay.ok_or_else(|| format!("it has no delay; {FORMS}"))?,
        rate_bps: rate_bps.ok_or_else(|| format!("it has no rate; {FORMS}"))?,
        buffer: buffer.unwrap_or(WireBytes::BdpMilli(1_000)),
        loss_ppb: loss.unwrap_or(0),
        burst: burst.unwrap_or(1),
        jitter: jitter.unwrap_or(Duration::ZERO),
        reorders: reorders.unwrap_or(false),
        mark,
    };
    wire.check()?;
    Ok(wire)
}

fn once<T>(key: &str, place: &mut Option<T>, value: T) -> Result<(), String> {
    if place.replace(value).is_some() { Err(format!("{key} is given twice")) } else { Ok(()) }
}

/// Number in front of a unit, and the unit in small letters.
fn split_unit(text: &str) -> Option<(f64, String)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    Some((number, unit.to_ascii_lowercase())).filter(|(number, _)| number.is_finite())
}

fn parse_time(key: &str, text: &str) -> Result<Duration, String> {
    let scale = |unit: &str| match unit {
        "us" | "µs" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        _ => None,
    };
    split_unit(text)
        .and_then(|(number, unit)| Duration::try_from_secs_f64(number * scale(&unit)?).ok())
        .filter(|time| *time <= DELAY_MAX)
        .ok_or_else(|| format!("{key} must be a time such as 20ms or 500us, at most 5s"))
}

fn parse_rate(text: &str) -> Result<u64, String> {
    let scale = |unit: &str| match unit {
        "kbit" => Some(1e3),
        "mbit" => Some(1e6),
        "gbit" => Some(1e9),
        _ => None,
    };
    split_unit(text)
        .and_then(|(number, unit)| Some((number * scale(&unit)?).round()))
        .filter(|rate| *rate < 1e15)
        .map(|rate| rate as u64)
        .ok_or_else(|| "rate must be bits a second such as 100mbit or 1gbit".to_owned())
}

fn parse_bytes(key: &str, text: &str) -> Result<WireBytes, String> {
    split_unit(text)
        .filter(|(number, _)| *number < 1e9)
        .and_then(|(number, unit)| match unit.as_str() {
            "b" => Some(WireBytes::Bytes(number as u64)),
            "kb" => Some(WireBytes::Bytes((number * 1e3).round() as u64)),
            "mb" => Some(WireBytes::Bytes((number * 1e6).round() as u64)),
            "bdp" if number <= 1e3 => Some(WireBytes::BdpMilli((number * 1e3).round() as u32)),
            _ => None,
        })
        .ok_or_else(|| {
            format!(
                "{key} must be bytes such as 500kb, or a multiple of rate x 2 x delay such as 1bdp"
            )
        })
}

fn parse_loss(text: &str) -> Result<u32, String> {
    text.strip_suffix('%')
        .and_then(split_unit)
        .filter(|(number, unit)| unit.is_empty() && *number <= LOSS_MAX * 100.0)
        .map(|(number, _)| (number / 100.0 * PARTS).round() as u32)
        .ok_or_else(|| "loss must be a share such as 0.1%, at most 50%".to_owned())
}

fn parse_burst(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|burst| (1..=BURST_MAX).contains(burst))
        .ok_or_else(|| format!("burst must be a number of segments from 1 to {BURST_MAX}"))
}

impl WireSpec {
    fn check(&self) -> Result<(), String> {
        if self.delay < WIRE_DELAY_MIN {
            return Err("a delay below 1ms is not kept well enough; the limit is delay=1ms".into());
        }
        if self.rate_bps > WIRE_RATE_BPS_MAX {
            return Err("a rate above 1gbit is not carried; the limit is rate=1gbit".into());
        }
        if self.rate_bps < RATE_BPS_MIN {
            return Err("the lowest rate is 10kbit".into());
        }
        if self.jitter > self.delay {
            return Err("jitter is larger than the delay; choose at most the delay".into());
        }
        if self.reorders && self.jitter.is_zero() {
            return Err("reorder needs a jitter; add jitter=2ms".into());
        }
        if self.burst > 1 && self.loss_ppb == 0 {
            return Err("burst needs a loss; add loss=0.1%".into());
        }
        if self.buffer_bytes() < BUFFER_BYTES_MIN {
            return Err(format!(
                "the buffer holds no segment; give it {BUFFER_BYTES_MIN}b or more"
            ));
        }
        if self.store_bytes() > STORE_BYTES_MAX {
            return Err(format!(
                "it holds {} MB in flight and in its buffer, and the limit is {} MB a direction; choose a lower rate, \
                 delay or buffer",
                self.store_bytes() / 1_000_000,
                STORE_BYTES_MAX / 1_000_000
            ));
        }
        Ok(())
    }

    /// Bytes of the wire in a time.
    fn bytes_in(&self, time: Duration) -> u64 {
        (time.as_secs_f64() * self.rate_bps as f64 / 8.0) as u64
    }

    fn resolve(&self, bytes: WireBytes) -> u64 {
        match bytes {
            WireBytes::Bytes(bytes) => bytes,
            WireBytes::BdpMilli(milli) => {
                (self.bytes_in(self.delay * 2) as f64 * f64::from(milli) / 1e3) as u64
            }
        }
    }

    /// Room of the queue, bytes on the wire.
    pub fn buffer_bytes(&self) -> u64 {
        self.resolve(self.buffer)
    }

    /// Queue above which segments are marked, bytes on the wire.
    pub fn mark_bytes(&self) -> Option<u64> {
        self.mark.map(|mark| self.resolve(mark))
    }

    /// Bytes of one direction that are in flight and in the queue at most.
    pub fn store_bytes(&self) -> u64 {
        self.buffer_bytes() + self.bytes_in(self.delay + self.jitter)
    }

    /// Share of lost segments, 0.0 to 1.0.
    pub fn loss(&self) -> f64 {
        f64::from(self.loss_ppb) / PARTS
    }
}

impl Display for WireBytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            WireBytes::Bytes(bytes) if bytes.is_multiple_of(1_000) => {
                write!(f, "{}kb", bytes / 1_000)
            }
            WireBytes::Bytes(bytes) => write!(f, "{bytes}b"),
            WireBytes::BdpMilli(milli) => write!(f, "{}bdp", f64::from(*milli) / 1e3),
        }
    }
}

fn text_of_time(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    if us >= 1e3 { format!("{}ms", us / 1e3) } else { format!("{us}us") }
}

fn text_of_rate(rate_bps: u64) -> String {
    match rate_bps as f64 {
        rate if rate >= 1e9 => format!("{}gbit", rate / 1e9),
        rate if rate >= 1e6 => format!("{}mbit", rate / 1e6),
        rate => format!("{}kbit", rate / 1e3),
    }
}

impl Display for WireSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "delay={},rate={},buffer={}",
            text_of_time(self.delay),
            text_of_rate(self.rate_bps),
            self.buffer
        )?;
        if self.loss_ppb > 0 {
            write!(f, ",loss={}%", f64::from(self.loss_ppb) / (PARTS / 100.0))?;
        }
        if self.burst > 1 {
            write!(f, ",burst={}", self.burst)?;
        }
        if !self.jitter.is_zero() {
            write!(f, ",jitter={}", text_of_time(self.jitter))?;
        }
        if self.reorders {
            f.write_str(",reorder")?;
        }
        self.mark.map_or(Ok(()), |mark| write!(f, ",mark={mark}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wires_are_read_and_shown_in_their_whole_form() {
        for (text, whole) in [
            ("delay=20ms,rate=100mbit", "delay=20ms,rate=100mbit,buffer=1bdp"),
            ("rate=1Gbit,delay=1ms,buffer=500kb", "delay=1ms,rate=1gbit,buffer=500kb"),
            (
                "delay=1.5ms, rate=2.5mbit, buffer=1601b, loss=0.1%, burst=4",
                "delay=1.5ms,rate=2.5mbit,buffer=1601b,loss=0.1%,burst=4",
            ),
            (
                "delay=20ms,rate=100mbit,jitter=500us,reorder,mark=0.2bdp,buffer=2bdp",
                "delay=20ms,rate=100mbit,buffer=2bdp,jitter=500us,reorder,mark=0.2bdp",
            ),
            ("delay=2s,rate=10kbit", "delay=2000ms,rate=10kbit,buffer=1bdp"),
        ] {
            let wire: WireSpec = text.parse().unwrap();
            assert_eq!(wire.to_string(), whole);
            assert_eq!(whole.parse(), Ok(wire));
        }
    }

    #[test]
    fn sizes_follow_rate_and_delay() {
        let wire: WireSpec = "delay=20ms,rate=100mbit,loss=0.1%,mark=0.5bdp".parse().unwrap();
        assert_eq!((wire.buffer_bytes(), wire.mark_bytes()), (500_000, Some(250_000)));
        assert_eq!(wire.store_bytes(), 750_000);
        assert!((wire.loss() - 0.001).abs() < 1e-12);
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        for (text, why) in [
            ("", "none of its parts; write delay=20ms,rate=100mbit"),
            ("delay=20ms", "no rate; write"),
            ("rate=1gbit", "no delay; write"),
            ("delay=20ms,rate=100mbit,speed=3", "\"speed=3\" is none"),
            ("delay=20ms,delay=20ms,rate=1mbit", "delay is given twice"),
            ("delay=999us,rate=1mbit", "the limit is delay=1ms"),
            ("delay=6s,rate=1mbit", "at most 5s"),
            ("delay=20,rate=1mbit", "a time such as"),
            ("delay=-1ms,rate=1mbit", "a time such as"),
            ("delay=20ms,rate=1001mbit", "the limit is rate=1gbit"),
            ("delay=20ms,rate=9kbit", "lowest rate"),
            ("delay=20ms,rate=100", "bits a second"),
            ("delay=20ms,rate=1e9gbit", "bits a second"),
            ("delay=20ms,rate=1mbit,loss=0.1", "a share such as"),
            ("delay=20ms,rate=1mbit,loss=51%", "at most 50%"),
            ("delay=20ms,rate=1mbit,burst=2", "burst needs a loss"),
            ("delay=20ms,rate=1mbit,loss=1%,burst=0", "from 1 to 1000"),
            ("delay=20ms,rate=1mbit,jitter=21ms", "larger than the delay"),
            ("delay=20ms,rate=1mbit,reorder", "needs a jitter"),
            ("delay=20ms,rate=1mbit,buffer=1500b", "holds no segment"),
            ("delay=1s,rate=1gbit", "375 MB in flight"),
            ("delay=20ms,rate=1mbit,buffer=1packet", "bytes such as"),
        ] {
            let error = text.parse::<WireSpec>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("not a valid wire"), "{text}: {error}");
        }
    }
}
