//! `--metrics`: `GET /metrics` for Prometheus.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit::Failure;
use crate::http::{Answer, Server};
use crate::privileges;

/// Parses `PORT`, which is on loopback, or `ADDRESS:PORT`.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| format!("{text:?} is neither PORT nor ADDRESS:PORT"))
}

pub(crate) struct Metrics(Server);

impl Metrics {
    pub(crate) fn open(address: SocketAddr) -> Result<Self, Failure> {
        let server = Server::bind(address).map_err(|e| {
            Failure::failed(format!(
                "cannot serve metrics on {address}: {e}; choose another port with --metrics"
            ))
        })?;
        Ok(Metrics(server))
    }

    /// Bound address; its port is the real one even if 0 was requested.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Serves until `done`; `text` makes the page for each request.
    pub(crate) fn serve(
        &self,
        done: &AtomicBool,
        text: impl Fn() -> String + Send + Sync + 'static,
    ) {
        self.0.serve(
            || done.load(Ordering::Relaxed),
            privileges::confine_pages,
            move |request| match request.path.as_str() {
                "/metrics" => Answer::of(report::metrics::CONTENT_TYPE, text().into_bytes()),
                _ => Answer::not_found("only /metrics\n"),
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_port_is_on_loopback() {
        let parsed = |text: &str| parse_address(text).map(|address| address.to_string());
        assert_eq!(parsed("9100").as_deref(), Ok("127.0.0.1:9100"));
        assert_eq!(parsed("192.0.2.1:9100").as_deref(), Ok("192.0.2.1:9100"));
        assert!(parsed("elsewhere").is_err());
    }
}
