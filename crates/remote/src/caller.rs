//! The calling end.

use std::io::PipeWriter;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lab::SshHost;
use sys::child::{ChildPlace, this_program};

use crate::far::{FarOptions, START_TIMEOUT, Started, netns, ssh};
use crate::heartbeat::Heartbeat;
use crate::lines::{message_line, write_line};
use crate::{Greeting, RemoteError, Service};

/// A started end that answers calls of one service.
///
/// It ends, with all that it runs, when this is dropped, when this process ends, and when the connection breaks.
/// **It is killed when the thread that started it ends** (see [`sys::child::Child::spawn`]).
#[derive(Debug)]
pub struct Caller<S: Service> {
    started: Started,
    /// `None` once it was closed.
    input: Option<Input>,
    address: Option<IpAddr>,
    greeting: Greeting,
    /// The whole of it.
    greeting_line: String,
    service: PhantomData<fn(S)>,
}

/// Standard input of the far end, and its heartbeat.
#[derive(Debug)]
struct Input {
    pipe: Arc<Mutex<PipeWriter>>,
    _heartbeat: Heartbeat,
}

impl<S: Service> Caller<S> {
    /// Starts a child.
    ///
    /// - `command`: a build of this program, with options that every command takes; `answer NAME` follows.
    pub fn command(mut command: Command, place: &ChildPlace<'_>) -> Result<Self, RemoteError> {
        let program = command.get_program().to_string_lossy();
        let program = if program == "/proc/self/exe" { "wirepath".into() } else { program };
        let name = format!("`{program} answer {}`", S::NAME);
        command.args(["answer", S::NAME]);
        Self::greet(Started::spawn(name, command, place)?, None)
    }

    /// Starts this program in the namespace `name` of this host, which stays as it is.
    pub fn netns(name: &str, options: &FarOptions<'_>) -> Result<Self, RemoteError> {
        let (started, address) = netns::open(name, options, |_| {
            let mut command = this_program();
            command.args(["answer", S::NAME]);
            command
        })?;
        Self::greet(started, Some(address))
    }

    /// Connects to `host` by ssh and starts this program there, a copy of it if need be.
    pub fn ssh(host: &SshHost, options: &FarOptions<'_>) -> Result<Self, RemoteError> {
        let opened = ssh::open(host, options, S::NAME)?;
        let greeted = Self::greet(opened.started, Some(opened.address));
        greeted.map_err(|error| if opened.is_copied { ssh::not_copied(error, host) } else { error })
    }

    pub(crate) fn greet(
        mut started: Started,
        address: Option<IpAddr>,
    ) -> Result<Self, RemoteError> {
        let line = started.line(START_TIMEOUT)?;
        let Ok(greeting) = serde_json::from_str::<Greeting>(&line) else {
            return Err(started.garbled(line.as_bytes()));
        };
        let own = message_line(&Greeting::own::<S>());
        let own = own.map_err(|source| RemoteError::Start { what: "a greeting", source })?;
        // Of another version, too: it says the same. One that has ended is reported by its answer.
        let _ = started.send(&own);
        greeting.check::<S>(&started.description())?;
        let input = started.stdin.take().map(Input::start).transpose()?;
        let greeting_line = line;
        Ok(Caller { started, input, address, greeting, greeting_line, service: PhantomData })
    }

    /// Time that it has to end its programs and to restore settings once this is dropped; 2 s by default.
    pub fn set_grace(&mut self, grace: Duration) {
        self.started.grace = grace;
    }

    /// Its address for a load; `None` of a child.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// As the user named it, for errors.
    pub fn name(&self) -> &str {
        &self.started.name
    }

    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// The greeting as it came, with what a service adds to it.
    pub(crate) fn greeting_line(&self) -> &str {
        &self.greeting_line
    }

    /// Error of an end that broke a rule of its service.
    pub fn broke_rule(&self, why: impl Into<String>) -> RemoteError {
        RemoteError::Rule { end: self.started.name.clone(), why: why.into() }
    }

    /// Sends a call. An end that is gone is reported by [`answer`](Self::answer).
    ///
    /// Errors: the call is too long.
    pub fn call(&mut self, call: &S::Call) -> Result<(), RemoteError> {
        let line = message_line(call)
            .map_err(|source| RemoteError::Unsendable { end: self.started.name.clone(), source })?;
        let written =
            self.input.as_ref().map(|input| write_line(&*lock(&input.pipe), &line, || false));
        if written.is_some_and(|written| written.is_err()) {
            // After a part of a line no other can follow.
            self.input = None;
        }
        Ok(())
    }

    /// Waits at most `within` for the next answer; `None` if there is none yet.
    ///
    /// Errors: it has ended, or sent something else.
    pub fn answer(&mut self, within: Duration) -> Result<Option<S::Answer>, RemoteError> {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Some(line) = self.started.next_line(left)? else { return Ok(None) };
            if !line.trim_ascii().is_empty() {
                let parsed = serde_json::from_slice(&line);
                return parsed.map(Some).map_err(|why| self.started.misread(&line, &why));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    /// Waits for the next answer. Errors: as [`answer`](Self::answer), and there is none within `limit`.
    pub fn expect_answer(&mut self, limit: Duration) -> Result<S::Answer, RemoteError> {
        self.answer(limit)?.ok_or_else(|| self.silent(limit))
    }

    /// Error of an end that did not answer in time.
    pub fn silent(&self, limit: Duration) -> RemoteError {
        RemoteError::Silent { end: self.started.name.clone(), seconds: limit.as_secs() }
    }

    /// Error of an answer that does not belong to the call.
    pub fn unexpected(&self, answer: &S::Answer) -> RemoteError {
        let line = serde_json::to_vec(answer).unwrap_or_default();
        self.started.garbled(&line)
    }
}

impl<S: Service> Drop for Caller<S> {
    fn drop(&mut self) {
        // Its end is that of the far end's standard input, on which `started` waits for the far end.
        self.input = None;
    }
}

impl Input {
    fn start(pipe: PipeWriter) -> Result<Self, RemoteError> {
        let pipe = Arc::new(Mutex::new(pipe));
        let beating = Arc::clone(&pipe);
        let heartbeat =
            Heartbeat::start(move |is_over| write_line(&*lock(&beating), b"\n", is_over));
        Ok(Input { pipe, _heartbeat: heartbeat.map_err(RemoteError::thread)? })
    }
}

fn lock(pipe: &Mutex<PipeWriter>) -> MutexGuard<'_, PipeWriter> {
    pipe.lock().unwrap_or_else(PoisonError::into_inner)
}
