//! The answering end.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use sys::thread::start_free;

use crate::lines::{
    GREETING_BYTES_MAX, LINE_BYTES_MAX, LineBuffer, SILENCE_LIMIT, json_line, message_line,
    write_line,
};
use crate::{Greeting, RemoteError, Service};

/// Bytes read at a time.
const READ_BYTES: usize = 64 << 10;
/// Calls that may wait for their answers.
const WAITING_CALLS_MAX: usize = 64;
/// The other end in errors.
const NEAR_END: &str = "the near end";

/// The near end has ended, fell silent, or broke a rule of the exchange; see [`Calls::finish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NearEndGone;

/// Calls of one near end, and the way for the answers.
///
/// A thread reads the calls. It sets the stop flag once the near end is gone, is silent for [`SILENCE_LIMIT`], breaks a
/// rule of the exchange, or interrupts the work under way.
#[derive(Debug)]
pub struct Calls<S: Service> {
    calls: Receiver<S::Call>,
    output: Mutex<File>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    is_gone: AtomicBool,
    /// Reason for the end; `None` if the near end closed the exchange.
    why: Mutex<Option<RemoteError>>,
}

impl<S: Service> Calls<S> {
    /// Greets the near end over standard input and output.
    ///
    /// Errors: it does not greet in time, or has another version or service.
    pub fn start(stop: &'static AtomicBool) -> Result<Self, RemoteError> {
        Self::start_with(&Greeting::own::<S>(), stop)
    }

    /// As [`start`](Self::start), with a greeting of this end that has more fields.
    pub(crate) fn start_with(
        greeting: &impl Serialize,
        stop: &'static AtomicBool,
    ) -> Result<Self, RemoteError> {
        let input = io::stdin().as_fd().try_clone_to_owned();
        let both = input.and_then(|input| Ok((input, io::stdout().as_fd().try_clone_to_owned()?)));
        let (input, output) = both
            .map_err(|source| RemoteError::Start { what: "standard input and output", source })?;
        Self::greet(greeting, input, output, stop)
    }

    /// As [`start`](Self::start), over other descriptors.
    pub fn over(
        input: OwnedFd,
        output: OwnedFd,
        stop: &'static AtomicBool,
    ) -> Result<Self, RemoteError> {
        Self::greet(&Greeting::own::<S>(), input, output, stop)
    }

    fn greet(
        greeting: &impl Serialize,
        input: OwnedFd,
        output: OwnedFd,
        stop: &'static AtomicBool,
    ) -> Result<Self, RemoteError> {
        let output = File::from(output);
        let greeting = message_line(greeting);
        greeting.and_then(|line| write_line(&output, &line, || false)).map_err(broken)?;
        let mut input = Input { file: input.into(), lines: LineBuffer::new(GREETING_BYTES_MAX) };
        let line = input.next_line()?.ok_or_else(|| {
            let why = "it closed the exchange before it greeted";
            broken(io::Error::new(ErrorKind::UnexpectedEof, why))
        })?;
        let near: Greeting = serde_json::from_slice(&line).map_err(|_| garbled(&line))?;
        near.check::<S>(NEAR_END)?;
        input.lines.set_line_bytes_max(LINE_BYTES_MAX);
        let (sender, calls) = sync_channel(WAITING_CALLS_MAX);
        let state = Arc::new(State::default());
        let shared = state.clone();
        let reading = start_free("wp-calls", move || {
            let why = pass_calls::<S>(input, &sender, stop).err();
            *shared.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
            shared.is_gone.store(true, Ordering::Release);
            // Work for a near end that is gone ends now.
            stop.store(true, Ordering::Relaxed);
        });
        reading.map_err(RemoteError::thread)?;
        Ok(Calls { calls, output: Mutex::new(output), state })
    }

    /// Waits for the next call; `None` if the near end is gone.
    pub fn next_call(&mut self) -> Option<S::Call> {
        self.calls.recv().ok()
    }

    /// Waits at most `limit` for the next call; `None` if there is none yet.
    pub fn within(&mut self, limit: Duration) -> Result<Option<S::Call>, NearEndGone> {
        match self.calls.recv_timeout(limit) {
            Ok(call) => Ok(Some(call)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(NearEndGone),
        }
    }

    /// Sends an answer.
    ///
    /// Errors: the near end is gone or does not read.
    pub fn answer(&self, answer: &S::Answer) -> Result<(), RemoteError> {
        let line = json_line(answer).map_err(|error| broken(error.into()))?;
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        write_line(&*output, &line, || self.state.is_gone.load(Ordering::Acquire)).map_err(broken)
    }

    /// Ends the exchange.
    ///
    /// Errors: the near end fell silent, or broke a rule of the exchange.
    pub fn finish(self) -> Result<(), RemoteError> {
        let why = self.state.why.lock().unwrap_or_else(PoisonError::into_inner).take();
        why.map_or(Ok(()), Err)
    }
}

/// Passes calls on until the near end closes its end.
fn pass_calls<S: Service>(
    mut input: Input,
    sender: &SyncSender<S::Call>,
    stop: &AtomicBool,
) -> Result<(), RemoteError> {
    while let Some(line) = input.next_line()? {
        let call: S::Call = serde_json::from_slice(&line).map_err(|_| garbled(&line))?;
        if S::is_interrupt(&call) {
            stop.store(true, Ordering::Relaxed);
            continue;
        }
        match sender.try_send(call) {
            Ok(()) => {}
            Err(TrySendError::Disconnected(_)) => return Ok(()),
            Err(TrySendError::Full(_)) => {
                return Err(RemoteError::Flood { count_max: WAITING_CALLS_MAX });
            }
        }
    }
    Ok(())
}

fn broken(source: io::Error) -> RemoteError {
    RemoteError::Broken { end: NEAR_END.into(), source }
}

fn garbled(line: &[u8]) -> RemoteError {
    RemoteError::garbled(NEAR_END, line)
}

/// Lines of the near end.
struct Input {
    file: File,
    lines: LineBuffer,
}

impl Input {
    /// Next line that is not empty; `None` once the near end has closed its end.
    ///
    /// Errors: silence, or a line that is too long.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, RemoteError> {
        let mut piece = [0; READ_BYTES];
        let mut until = Instant::now() + SILENCE_LIMIT;
        loop {
            let taken = self.lines.take_line();
            let taken =
                taken.map_err(|error| RemoteError::TooLong { end: NEAR_END.into(), error })?;
            if let Some(line) = taken {
                if !line.trim_ascii().is_empty() {
                    return Ok(Some(line));
                }
                until = Instant::now() + SILENCE_LIMIT;
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seconds = SILENCE_LIMIT.as_secs();
                return Err(RemoteError::NearSilent { seconds });
            }
            match sys::poll::readable(&[self.file.as_fd()], left) {
                Ok(0) => continue,
                Ok(_) => {}
                Err(_) => return Ok(None),
            }
            let room = self.lines.room().min(READ_BYTES);
            match self.file.read(&mut piece[..room]) {
                Ok(len @ 1..) => self.lines.received().extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return Ok(None),
            }
        }
    }
}
