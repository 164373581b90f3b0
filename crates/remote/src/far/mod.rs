//! Start of far ends: in a namespace of this host (`netns:`), and on another host (`ssh:`).
//!
//! A started program ends when its standard input does, so it ends with the near end for any reason, SIGKILL included.

pub(crate) mod netns;
pub(crate) mod ssh;

use std::io::{self, PipeWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use host::text::printable;
use lab::FarEnd;
use sys::child::{Child, ChildPlace, Finished};

pub use self::netns::address_between;
use crate::RemoteError;

/// Time limit of each step of a far end's start.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Time that a far end has to end by itself, unless it gets more.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// Time between the end of a program's output and its own, as a limit.
const END_TIMEOUT: Duration = Duration::from_millis(500);
const END_INTERVAL: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy, Default)]
pub struct FarOptions<'a> {
    /// Its address for the load; `None` for that of the route.
    pub address: Option<IpAddr>,
    /// IP version of the addresses that are looked for, where none is given.
    pub ipv6: bool,
    /// Interface of the near end; `None` for any.
    pub ifname: Option<&'a str>,
    /// Secret of a peer that runs already.
    pub secret: Option<&'a str>,
    /// Options of the ssh client, each as for its `-o`.
    pub ssh_options: &'a [String],
}

/// A far end that near ends can connect to. One that was started for this ends with it.
#[derive(Debug)]
pub struct FarHost {
    peer: String,
    secret: Option<String>,
    program: Option<Started>,
}

impl FarHost {
    /// Starts the far end if it does not run already.
    ///
    /// Its program is killed when the calling thread ends (see [`Child::spawn`]).
    pub fn open(end: &FarEnd, options: &FarOptions<'_>) -> Result<Self, RemoteError> {
        match end {
            FarEnd::Peer(host) => Ok(FarHost {
                peer: host.clone(),
                secret: options.secret.map(str::to_owned),
                program: None,
            }),
            FarEnd::Netns(name) => netns::start(name, options),
            FarEnd::Ssh(host) => ssh::start(host, options),
        }
    }

    /// `HOST` or `HOST:PORT` of its `wirepath peer`.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    pub fn secret(&self) -> Option<&str> {
        self.secret.as_deref()
    }

    /// Error of a far end that was started here and ends within a time; `None` if it runs.
    pub fn ended(&mut self, within: Duration) -> Option<RemoteError> {
        self.program.as_mut()?.ended(within)
    }
}

/// Program of a far end, and the pipe whose end it ends with.
#[derive(Debug)]
pub(crate) struct Started {
    /// As the user named it.
    pub(crate) name: String,
    child: Child,
    pub(crate) stdin: Option<PipeWriter>,
    /// Time to end by itself once standard input has ended.
    pub(crate) grace: Duration,
}

impl Started {
    /// Starts `command` at `place`.
    pub(crate) fn spawn(
        name: String,
        command: Command,
        place: &ChildPlace<'_>,
    ) -> Result<Self, RemoteError> {
        let piped = io::pipe();
        let (stdin, writer) =
            piped.map_err(|source| RemoteError::Start { what: "a pipe", source })?;
        let child = Child::spawn_on(command, place, stdin.into())?;
        Ok(Started { name, child, stdin: Some(writer), grace: STOP_GRACE })
    }

    /// Its name in errors.
    pub(crate) fn description(&self) -> String {
        format!("the far end {}", self.name)
    }

    /// Sends `text` to its standard input.
    pub(crate) fn send(&mut self, text: &[u8]) -> io::Result<()> {
        self.stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(text))
    }

    /// Takes the next line of its standard output. Errors: it ended, or time is up.
    pub(crate) fn line(&mut self, within: Duration) -> Result<String, RemoteError> {
        match self.child.take_line(within) {
            Some(line) => Ok(String::from_utf8_lossy(&line).into_owned()),
            None => Err(self.failure(within)),
        }
    }

    /// Takes the next line of its standard output; `None` if there is none within a time. Errors: it ended.
    pub(crate) fn next_line(&mut self, within: Duration) -> Result<Option<Vec<u8>>, RemoteError> {
        let until = Instant::now() + within;
        if let Some(line) = self.child.take_line(within) {
            return Ok(Some(line));
        }
        // Output that ended before its time is followed by the end of the program.
        let left = until.saturating_duration_since(Instant::now());
        let limit = left.min(END_TIMEOUT).max(END_INTERVAL);
        let Some(ended) = self.child.wait(limit)? else { return Ok(None) };
        // Its last line may have come in between.
        if let Some(line) = self.child.take_line(Duration::ZERO) {
            return Ok(Some(line));
        }
        Err(self.end_error(&ended))
    }

    /// Error of a program that ends within a time; `None` if it runs.
    fn ended(&mut self, within: Duration) -> Option<RemoteError> {
        match self.child.wait(within) {
            Ok(None) => None,
            Ok(Some(ended)) => Some(self.end_error(&ended)),
            Err(error) => Some(error.into()),
        }
    }

    /// Error of a program that did not say the next line.
    fn failure(&mut self, within: Duration) -> RemoteError {
        // Its output ended just before itself.
        match self.child.wait(END_TIMEOUT) {
            Ok(Some(ended)) => self.end_error(&ended),
            Ok(None) => RemoteError::Silent { end: self.name.clone(), seconds: within.as_secs() },
            Err(error) => error.into(),
        }
    }

    /// Waits for a line with this text.
    fn expect(&mut self, text: &str) -> Result<(), RemoteError> {
        let line = self.line(START_TIMEOUT)?;
        if line == text { Ok(()) } else { Err(self.garbled(line.as_bytes())) }
    }

    fn listening(&mut self) -> Result<SocketAddr, RemoteError> {
        let line = self.line(START_TIMEOUT)?;
        let at = line.strip_prefix("listening on ").and_then(|at| at.parse().ok());
        at.ok_or_else(|| self.garbled(line.as_bytes()))
    }

    /// Error of a line that is not of the exchange.
    pub(crate) fn garbled(&self, line: &[u8]) -> RemoteError {
        RemoteError::garbled(&self.description(), line)
    }

    /// Error of a line that is not a message of the service.
    ///
    /// - `why`: it may have names of the line.
    pub(crate) fn misread(&self, line: &[u8], why: &serde_json::Error) -> RemoteError {
        match self.garbled(line) {
            RemoteError::Garbled { end, line } => {
                let why = printable(&why.to_string(), 200);
                RemoteError::Misread { end, line, why }
            }
            other => other,
        }
    }

    fn end_error(&self, ended: &Finished) -> RemoteError {
        RemoteError::Ended { end: self.name.clone(), said: one_line(&ended.stderr) }
    }

    fn into_host(self, at: SocketAddr, secret: String) -> FarHost {
        FarHost { peer: at.to_string(), secret: Some(secret), program: Some(self) }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Its peer ends with this, and then an ssh client without an error. The child is killed otherwise.
        self.stdin.take();
        let until = Instant::now() + self.grace;
        while Instant::now() < until {
            match self.child.wait(until.saturating_duration_since(Instant::now())) {
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => break,
            }
        }
    }
}

/// Secret of a far end that is started for one run.
fn random_secret() -> Result<String, RemoteError> {
    host::random::random_hex().map_err(|source| RemoteError::Start { what: "a secret", source })
}

/// Text of a program as one line without control characters, at most 400 characters of its end.
fn one_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = clean(&lines.join("; "));
    let count = line.chars().count();
    if line.is_empty() {
        "no message".into()
    } else {
        line.chars().skip(count.saturating_sub(400)).collect()
    }
}

fn clean(text: &str) -> String {
    printable(text, 4000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_programs_become_one_plain_line() {
        assert_eq!(one_line(b"one\r\n\n \x1b[31mtwo\x07\n"), "one; [31mtwo");
        assert_eq!(one_line(b" \n"), "no message");
        assert_eq!(one_line(&[b'x'; 5000]).len(), 400);
    }

    #[test]
    fn secrets_differ() {
        let (one, two) = (random_secret().unwrap(), random_secret().unwrap());
        assert!(one.len() == 64 && one != two);
    }
}
