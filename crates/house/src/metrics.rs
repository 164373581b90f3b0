//! `--listen`: `GET /metrics` for Prometheus.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use remote::Failure;
use report::metrics::{Exposition, Metrics};
use sys::thread::{Started, start};

use crate::http::{HttpAnswer, Server};
use crate::{console, privileges};

/// Parses `PORT`, which is on loopback, or `ADDRESS:PORT`.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| format!("{text:?} is neither PORT nor ADDRESS:PORT"))
}

pub struct MetricsServer(Server);

impl MetricsServer {
    pub fn open(address: SocketAddr) -> Result<Self, Failure> {
        let server = Server::bind(address).map_err(|e| {
            Failure::failed(format!(
                "cannot serve metrics on {address}: {e}; choose another port with --listen"
            ))
        })?;
        Ok(MetricsServer(server))
    }

    /// Bound address; its port is the real one even if 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Serves until `done`, in the format that each client prefers; `read` returns the metrics for each request.
    pub fn serve(&self, done: &AtomicBool, read: impl Fn() -> Metrics + Send + Sync + 'static) {
        self.0.serve(
            || done.load(Ordering::Relaxed),
            privileges::confine_pages,
            move |request| match request.path.as_str() {
                "/metrics" => {
                    let exposition = Exposition::negotiate(&request.accept);
                    HttpAnswer::new(exposition.content_type(), read().write(exposition))
                }
                _ => HttpAnswer::not_found("only /metrics\n"),
            },
        );
    }
}

/// The metrics that are served, replaced whenever there is news.
#[derive(Clone)]
pub struct Shown(Arc<Mutex<Metrics>>);

impl Default for Shown {
    fn default() -> Self {
        Shown(Arc::new(Mutex::new(Metrics::new("wirepath"))))
    }
}

impl Shown {
    pub fn replace(&self, metrics: Metrics) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = metrics;
    }

    fn read(&self) -> Metrics {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Opens the server, and reports its address. `None` without an address.
pub fn open(address: Option<SocketAddr>) -> Result<Option<MetricsServer>, Failure> {
    let metrics = address.map(MetricsServer::open).transpose()?;
    if let Some(metrics) = &metrics {
        console::say(&format!("metrics at http://{}/metrics", metrics.address()));
    }
    Ok(metrics)
}

/// Runs `observe` while a thread without privileges serves what is shown.
pub fn serving<T>(
    metrics: Option<&MetricsServer>,
    shown: &Shown,
    observe: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let serve = metrics.map(|metrics| {
            let (done, shown) = (&done, shown.clone());
            start(scope, "metrics", move || {
                privileges::drop_all().map(|()| metrics.serve(done, move || shown.read()))
            })
        });
        if let Some(why) = serve.as_ref().and_then(Started::refused) {
            return Err(Failure::failed(why.to_string()));
        }
        let observed = observe();
        done.store(true, Ordering::Relaxed);
        observed
    })
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
