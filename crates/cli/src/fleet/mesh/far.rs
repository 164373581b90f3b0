//! A host of a mesh that is reached by ssh: its echo and its pings are those of a `wirepath fleet host` there.
//!
//! Its first line is [`Join`]. It says [`READY`] once its echo answers; then it answers each [`Ping`] by a
//! [`Cell`]. All of it ends with its standard input.

use std::io::{BufRead, Read, stdin};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use fleet::mesh::Cell;
use lab::SshHost;
use remote::Failure;
use remote::{FarJob, FarOptions};
use serde::{Deserialize, Serialize};
use sys::netns::Netns;
use sys::thread::start_free;

use super::local::{self, LOOK, Local, PATIENCE};
use crate::{console, signals};

const READY: &str = "ready";
/// Length of a request, in bytes.
const LINE_MAX: u64 = 4096;

/// Request to take part in a mesh.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::fleet) struct Join {
    /// True if the echo answers IPv6 too.
    mesh_over_ipv6: bool,
    /// Number of the run: the echo answers no other.
    session: u32,
}

/// Request to measure round trips.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ping {
    address: IpAddr,
    count: u32,
}

/// The near end of a host.
pub(super) struct Far {
    job: FarJob,
}

impl Far {
    /// Connects to the host, and starts its echo.
    ///
    /// - `address`: at which others ping it; `None` for that at which ssh has reached it.
    /// - `session`: number of the run.
    pub(super) fn open(
        host: &SshHost,
        ssh_options: &[String],
        address: Option<IpAddr>,
        session: u32,
    ) -> Result<Self, Failure> {
        let options = FarOptions { ssh_options, address, ..FarOptions::default() };
        let mut far = Far { job: FarJob::open(host, &options)? };
        far.send(&Join { mesh_over_ipv6: far.address().is_ipv6(), session })?;
        match far.line()? {
            Ok(line) if line == READY => Ok(far),
            Ok(line) => Err(Failure::failed(format!("unexpected line {line:?}"))),
            Err(why) => Err(Failure::failed(why)),
        }
    }

    /// Address at which others ping it.
    pub(super) fn address(&self) -> IpAddr {
        self.job.address()
    }

    fn send(&mut self, request: &impl Serialize) -> Result<(), Failure> {
        self.job.send(&serde_json::to_string(request)?);
        Ok(())
    }

    /// Lets it measure round trips to an address; [`answer`](Self::answer) returns them.
    pub(super) fn ask(&mut self, address: IpAddr, count: u32) -> Result<(), Failure> {
        self.send(&Ping { address, count })
    }

    /// Waits for the answer. Returns the reason if the host is lost. Errors: interrupted.
    pub(super) fn answer(&mut self) -> Result<Result<Cell, String>, Failure> {
        let unreadable = |error| format!("its answer cannot be read: {error}");
        let line = self.line()?;
        Ok(line.and_then(|line| serde_json::from_str(&line).map_err(unreadable)))
    }

    fn line(&mut self) -> Result<Result<String, String>, Failure> {
        // The host itself gives a ping up after `PATIENCE`.
        let limit = PATIENCE + Duration::from_secs(20);
        let until = Instant::now() + limit;
        while Instant::now() < until {
            match self.job.next_line(LOOK) {
                Ok(None) => {}
                Ok(Some(line)) => return Ok(Ok(line)),
                Err(error) => return Ok(Err(host::text::chain(&error))),
            }
            if signals::stop_requested() {
                return Err(Failure::Interrupted("interrupted".into()));
            }
        }
        Ok(Err(format!("no answer within {} s", limit.as_secs())))
    }

    /// Reason for its end; `None` if it runs.
    pub(super) fn ended(&mut self) -> Option<String> {
        self.job.ended().map(|error| host::text::chain(&error))
    }
}

/// The far end: an echo, and pings on request, until standard input ends.
pub(in crate::fleet) fn serve(join: &Join) -> Result<(), Failure> {
    let (requests, has_gone) = read_requests()?;
    let is_over = || has_gone.load(Ordering::Relaxed) || signals::stop_requested();
    let gone = || Failure::failed("the near end has ended");
    let mut local = Local::start(Netns::current()?, join.mesh_over_ipv6, join.session)?;
    local.await_echo(is_over)?;
    console::bytes(format!("{READY}\n").as_bytes())?;
    while !is_over() {
        let line = match requests.recv_timeout(LOOK) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => match local.ended() {
                Some(why) => return Err(Failure::failed(why)),
                None => continue,
            },
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let request: Ping = serde_json::from_str(&line)
            .map_err(|error| Failure::Usage(format!("cannot read the request: {error}")))?;
        let give_up = || is_over().then(String::new);
        let (address, count) = (request.address, request.count);
        let cell = local::ping(&local.netns, address, count, join.session, LOOK, give_up)?;
        console::bytes(format!("{}\n", serde_json::to_string(&cell)?).as_bytes())?;
    }
    Err(gone())
}

/// Lines of standard input, and a flag that is set when it ends.
fn read_requests() -> Result<(Receiver<String>, Arc<AtomicBool>), Failure> {
    let (sender, requests) = sync_channel(1);
    let has_gone = Arc::new(AtomicBool::new(false));
    let flag = has_gone.clone();
    start_free("wp-near-end", move || {
        loop {
            let mut line = String::new();
            let read = stdin().lock().take(LINE_MAX).read_line(&mut line);
            if !matches!(read, Ok(1..)) || sender.send(line).is_err() {
                break;
            }
        }
        flag.store(true, Ordering::Relaxed);
    })?;
    Ok((requests, has_gone))
}
