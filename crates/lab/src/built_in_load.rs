//! Loads that this program sends itself, as words of the command line: `udp:1400@20000`.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use std::time::Duration;

/// Smallest payload of a datagram: that of the probe's header.
pub const LOAD_DATAGRAM_BYTES_MIN: usize = 24;
/// Largest payload of a UDP datagram over IPv6 and IPv4.
const DATAGRAM_BYTES_MAX: usize = 65_507;
/// Most flows: the number of one has a byte in the header.
const FLOWS_MAX: u16 = 256;
const RATE_MAX: u64 = 10_000_000;
/// Payload of a ping unless another is given.
const PING_BYTES: usize = 64;

/// Traffic of a load between ordinary sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadTraffic {
    /// Datagrams one way.
    Udp {
        /// UDP payload.
        size_bytes: usize,
        /// Datagrams a second; `None` for as many as the sender can send.
        rate_pps: Option<u64>,
        /// Source ports.
        flows: u16,
    },
    /// Bytes one way, as fast as they go.
    Tcp {
        /// Connections.
        flows: u16,
    },
    /// Datagrams that are echoed, the next one after the answer.
    Ping {
        /// UDP payload.
        size_bytes: usize,
    },
}

/// A load that two commands of this program make: a server at the far end and a client at the near end.
///
/// Both call the program of variable `WIREPATH`, at the address `WIREPATH_FAR` and the port `WIREPATH_PORT`. The client
/// prints a document with its own counts and the server's (`wirepath schema load run`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltInLoad {
    pub traffic: LoadTraffic,
}

/// A text that is not a load.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a valid load: {why}; use udp:SIZE@RATE (RATE: datagrams a second, or max), udp:SIZE@RATE/FLOWS, \
     tcp, tcp:FLOWS, ping or ping:SIZE"
)]
pub struct BuiltInLoadError {
    text: String,
    why: String,
}

impl FromStr for BuiltInLoad {
    type Err = BuiltInLoadError;

    fn from_str(text: &str) -> Result<Self, BuiltInLoadError> {
        let traffic = parse_traffic(text)
            .map_err(|why| BuiltInLoadError { text: text.chars().take(80).collect(), why })?;
        Ok(BuiltInLoad { traffic })
    }
}

fn parse_traffic(text: &str) -> Result<LoadTraffic, String> {
    let (kind, rest) = match text.split_once(':') {
        Some((kind, rest)) => (kind, Some(rest)),
        None => (text, None),
    };
    match (kind, rest) {
        ("udp", Some(rest)) => parse_udp(rest),
        ("udp", None) => Err("it has no size".into()),
        ("tcp", rest) => Ok(LoadTraffic::Tcp { flows: rest.map_or(Ok(1), parse_flows)? }),
        ("ping", rest) => {
            Ok(LoadTraffic::Ping { size_bytes: rest.map_or(Ok(PING_BYTES), parse_size)? })
        }
        _ => Err("its first word is none of udp, tcp and ping".into()),
    }
}

fn parse_udp(text: &str) -> Result<LoadTraffic, String> {
    let (text, flows) = match text.split_once('/') {
        Some((text, flows)) => (text, parse_flows(flows)?),
        None => (text, 1),
    };
    let (size, rate) = text.split_once('@').unwrap_or((text, "max"));
    let rate_pps = match rate {
        "max" => None,
        rate => Some(parse_number("the rate", rate, 1, RATE_MAX)?),
    };
    Ok(LoadTraffic::Udp { size_bytes: parse_size(size)?, rate_pps, flows })
}

fn parse_size(text: &str) -> Result<usize, String> {
    let (low, high) = (LOAD_DATAGRAM_BYTES_MIN as u64, DATAGRAM_BYTES_MAX as u64);
    parse_number("the size in bytes", text, low, high).map(|size| size as usize)
}

fn parse_flows(text: &str) -> Result<u16, String> {
    parse_number("the number of flows", text, 1, FLOWS_MAX.into()).map(|flows| flows as u16)
}

fn parse_number(what: &str, text: &str, low: u64, high: u64) -> Result<u64, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| is_plain && (low..=high).contains(number));
    number.ok_or_else(|| format!("{what} must be a number from {low} to {high}"))
}

impl Display for BuiltInLoad {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.traffic {
            LoadTraffic::Udp { size_bytes, rate_pps, flows } => {
                write!(f, "udp:{size_bytes}@")?;
                match rate_pps {
                    Some(rate) => write!(f, "{rate}")?,
                    None => f.write_str("max")?,
                }
                if flows > 1 { write!(f, "/{flows}") } else { Ok(()) }
            }
            LoadTraffic::Tcp { flows: 1 } => f.write_str("tcp"),
            LoadTraffic::Tcp { flows } => write!(f, "tcp:{flows}"),
            LoadTraffic::Ping { size_bytes } => write!(f, "ping:{size_bytes}"),
        }
    }
}

impl BuiltInLoad {
    /// Command of the far end, which runs until SIGTERM.
    pub fn server(&self) -> String {
        format!("exec \"$WIREPATH\" load serve {self} \"$WIREPATH_FAR\" --port \"$WIREPATH_PORT\"")
    }

    /// Command of the near end.
    ///
    /// - `trial`: time of the load.
    pub fn client(&self, trial: Duration) -> String {
        format!(
            "exec \"$WIREPATH\" load run {self} \"$WIREPATH_FAR\" --port \"$WIREPATH_PORT\" --time {}ms --json",
            trial.as_millis().max(1)
        )
    }

    /// Sign that the server is ready, as [`Ready`](crate::program::Ready) without a port.
    pub fn ready(&self) -> &'static str {
        "tcp"
    }

    /// Figures of the client's output, in the notation of `--metric`, the most important first.
    ///
    /// Losses are a count, not a share: a share that is 0 in one arm has no ratio to another.
    pub fn figures(&self) -> &'static [&'static str] {
        const LOST: &str = "lost_count=json:/lost_count lower";
        const RECEIVED: &str = "received_pps=json:/received_pps higher";
        match self.traffic {
            LoadTraffic::Udp { rate_pps: None, .. } => {
                &[RECEIVED, "goodput_bps=json:/goodput_bps higher"]
            }
            LoadTraffic::Udp { .. } => &[LOST, RECEIVED],
            LoadTraffic::Tcp { .. } => &["goodput_bps=json:/goodput_bps higher"],
            LoadTraffic::Ping { .. } => {
                &["rtt_ns_p50=json:/rtt_ns/p50 lower", "rtt_ns_p99=json:/rtt_ns/p99 lower", LOST]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::Figure;

    #[test]
    fn words_of_loads_are_read_and_shown_in_their_whole_form() {
        for (text, whole) in [
            ("udp:1400@20000", "udp:1400@20000"),
            ("udp:64", "udp:64@max"),
            ("udp:24@max/256", "udp:24@max/256"),
            ("udp:65507@1/1", "udp:65507@1"),
            ("tcp", "tcp"),
            ("tcp:1", "tcp"),
            ("tcp:8", "tcp:8"),
            ("ping", "ping:64"),
            ("ping:1472", "ping:1472"),
        ] {
            let load: BuiltInLoad = text.parse().unwrap();
            assert_eq!(load.to_string(), whole);
            assert_eq!(whole.parse(), Ok(load));
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_reason_and_the_forms() {
        for (text, why) in [
            ("", "first word"),
            ("flood", "first word"),
            ("udp", "no size"),
            ("udp:23@1", "from 24 to 65507"),
            ("udp:65508", "from 24 to 65507"),
            ("udp:64@0", "the rate must"),
            ("udp:64@10000001", "the rate must"),
            ("udp:64@+5", "the rate must"),
            ("udp:64@max/257", "from 1 to 256"),
            ("udp:64@max/", "from 1 to 256"),
            ("tcp:0", "from 1 to 256"),
            ("tcp:$(id)", "from 1 to 256"),
            ("ping:", "the size"),
            ("ping:64@5", "the size"),
        ] {
            let error = text.parse::<BuiltInLoad>().unwrap_err().to_string();
            assert!(
                error.contains(why) && error.contains("udp:SIZE@RATE/FLOWS"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn figures_of_every_load_are_valid_metrics() {
        for text in ["udp:64", "udp:64@5", "tcp", "ping"] {
            let load: BuiltInLoad = text.parse().unwrap();
            for figure in load.figures() {
                assert!(figure.parse::<Figure>().is_ok(), "{figure}");
            }
        }
    }

    #[test]
    fn commands_take_their_place_from_variables_alone() {
        let load: BuiltInLoad = "udp:1400@20000/16".parse().unwrap();
        assert_eq!(
            load.client(Duration::from_millis(500)),
            "exec \"$WIREPATH\" load run udp:1400@20000/16 \"$WIREPATH_FAR\" --port \"$WIREPATH_PORT\" \
             --time 500ms --json"
        );
        assert!(load.server().contains("load serve udp:1400@20000/16 \"$WIREPATH_FAR\""));
    }
}
