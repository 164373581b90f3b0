//! `GET /metrics` for Prometheus, and nothing else.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tiny_http::{Header, Method, Request, Response, Server};

use crate::end::Failure;

/// How often it looks whether to end.
const NAP: Duration = Duration::from_millis(50);

/// `PORT` is on loopback, `ADDRESS:PORT` where it says.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| format!("{text:?} is neither PORT nor ADDRESS:PORT"))
}

/// A server that listens already.
pub(crate) struct Metrics(Server);

impl Metrics {
    pub(crate) fn open(address: SocketAddr) -> Result<Self, Failure> {
        let server = Server::http(address).map_err(|e| {
            Failure::failed(format!(
                "cannot serve metrics on {address}: {e}; choose another port with --metrics"
            ))
        })?;
        Ok(Metrics(server))
    }

    /// Where it listens; the port is a real one even if 0 was asked for.
    pub(crate) fn address(&self) -> String {
        self.0.server_addr().to_string()
    }

    /// Answers until `done`.
    pub(crate) fn serve(&self, done: &AtomicBool, text: impl Fn() -> String) {
        while !done.load(Ordering::Relaxed) {
            if let Ok(Some(request)) = self.0.recv_timeout(NAP) {
                // Whoever asked has gone: nothing to do about it.
                let _ = answer(request, &text);
            }
        }
    }
}

fn answer(request: Request, text: &impl Fn() -> String) -> std::io::Result<()> {
    let path = request.url().split('?').next().unwrap_or_default();
    if path != "/metrics" {
        return request.respond(Response::from_string("only /metrics\n").with_status_code(404));
    }
    if *request.method() != Method::Get {
        let allow = header("Allow", "GET");
        let refused = Response::from_string("only GET\n").with_status_code(405);
        return request.respond(refused.with_header(allow));
    }
    let kind = header("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
    request.respond(Response::from_string(text()).with_header(kind))
}

fn header(name: &str, value: &str) -> Header {
    Header::from_bytes(name, value).unwrap_or_else(|()| unreachable!("plain ASCII"))
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
