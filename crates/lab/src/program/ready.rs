//! Conditions under which a server is ready.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use regex::bytes::Regex;
use thiserror::Error;

/// Sign that a server is ready for its first client.
///
/// As text: `tcp:PORT`, `udp:PORT`, `line:REGEX`, `file:PATH`, `sleep:MS`.
#[derive(Debug, Clone)]
pub enum Ready {
    /// One of the server's own processes listens on the port. No connection is made: a server for one
    /// connection would take it for its client.
    Tcp(u16),
    /// One of the server's own processes has bound a UDP socket to the port.
    Udp(u16),
    /// A line of standard output or standard error matches.
    Line(Regex),
    /// The file exists, and was made or changed since the server was started; relative to its folder.
    File(PathBuf),
    /// The time has passed, and the server is alive.
    Sleep(Duration),
}

#[derive(Debug, Error)]
pub enum ReadyError {
    #[error(
        "{text:?} is not a valid sign of readiness; use tcp:PORT, udp:PORT, line:REGEX, file:PATH or sleep:MS"
    )]
    Unknown { text: String },
    #[error("{text:?}: the port must be a number from 1 to 65535")]
    Port { text: String },
    #[error("{text:?}: the time must be a whole number of milliseconds")]
    Time { text: String },
    #[error("{text:?}: no path after file:")]
    Path { text: String },
    #[error("{text:?}: not a regular expression")]
    Regex {
        text: String,
        #[source]
        source: Box<regex::Error>,
    },
}

impl FromStr for Ready {
    type Err = ReadyError;

    fn from_str(text: &str) -> Result<Self, ReadyError> {
        let whole = || text.to_owned();
        let port = |port: &str| match port.parse() {
            Ok(port @ 1..) => Ok(port),
            _ => Err(ReadyError::Port { text: whole() }),
        };
        match text.split_once(':') {
            Some(("tcp", number)) => Ok(Ready::Tcp(port(number)?)),
            Some(("udp", number)) => Ok(Ready::Udp(port(number)?)),
            Some(("line", pattern)) => Regex::new(pattern)
                .map(Ready::Line)
                .map_err(|source| ReadyError::Regex { text: whole(), source: Box::new(source) }),
            Some(("file", "")) => Err(ReadyError::Path { text: whole() }),
            Some(("file", path)) => Ok(Ready::File(path.into())),
            Some(("sleep", time)) => match time.parse() {
                Ok(time_ms) => Ok(Ready::Sleep(Duration::from_millis(time_ms))),
                Err(_) => Err(ReadyError::Time { text: whole() }),
            },
            _ => Err(ReadyError::Unknown { text: whole() }),
        }
    }
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ready::Tcp(port) => write!(f, "tcp:{port}"),
            Ready::Udp(port) => write!(f, "udp:{port}"),
            Ready::Line(pattern) => write!(f, "line:{pattern}"),
            Ready::File(path) => write!(f, "file:{}", path.display()),
            Ready::Sleep(time) => write!(f, "sleep:{}", time.as_millis()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_read_and_written_alike() {
        for text in ["tcp:4433", "udp:53", r"line:^listening on \d+:", "file:/run/a:b", "sleep:0"] {
            assert_eq!(text.parse::<Ready>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn others_are_refused_with_the_remedy() {
        for text in ["", "4433", "TCP:1", "exec:true"] {
            let error = text.parse::<Ready>().unwrap_err().to_string();
            assert!(error.contains("tcp:PORT") && error.contains("sleep:MS"), "{error}");
        }
        for text in ["tcp:0", "tcp:65536", "udp:x", "line:(", "file:", "sleep:1s", "sleep:-1"] {
            let error = text.parse::<Ready>().unwrap_err().to_string();
            assert!(error.contains(text) && !error.contains("use tcp:PORT"), "{error}");
        }
    }
}
