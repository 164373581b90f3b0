//! A `wirepath serve` of a test's own, and requests written by hand.
#![allow(dead_code, reason = "every test program uses its own part of this")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Output;
use std::time::Duration;

use super::common::{Data, LONG, Running, until};

pub(crate) struct Served {
    running: Running,
    address: String,
}

/// An answer, taken apart.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Served {
    pub(crate) fn start(data: &Data) -> Self {
        let mut running = Running::start(data.wirepath(&["serve", "--port", "0"]));
        let mut address = None;
        until(LONG, || {
            let said = running.stdout();
            let line = said.lines().next().filter(|_| said.contains('\n'));
            address = line
                .and_then(|l| l.strip_prefix("http://"))
                .map(|l| l.trim_end_matches('/').to_owned());
            address.is_some() || running.has_ended()
        });
        let address = address.unwrap_or_else(|| panic!("it does not serve: {}", running.stderr()));
        Served { running, address }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(LONG)).expect("a time-out");
        stream
    }

    /// Sends these bytes; everything that comes back until the connection ends.
    pub(crate) fn raw(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        // It may refuse before all is read.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.get_with(path, &self.address, "")
    }

    pub(crate) fn get_with(&self, path: &str, host: &str, more: &str) -> Answer {
        let text =
            self.raw(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n").as_bytes());
        let (head, body) =
            text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{path}: {text:?}"));
        let status =
            head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Answer { status, head: head.into(), body: body.into() }
    }

    pub(crate) fn end_by(self, signal: &str) -> Output {
        self.running.end_by(signal, Duration::from_secs(20))
    }
}
