//! Threads whose start may fail: RLIMIT_NPROC, pids.max, memory.

use std::any::Any;
use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// Number of the calling thread, in its process namespace.
pub fn id() -> u32 {
    // SAFETY: no pointer is passed, and the call cannot fail.
    (unsafe { libc::gettid() }) as u32
}

#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    #[error("no thread could be started: {0}; see `ulimit -u` and pids.max of the control group")]
    Start(io::Error),
    #[error("panicked: {0}")]
    Panicked(String),
}

/// For bodies whose error is text.
impl From<ThreadError> for String {
    fn from(error: ThreadError) -> String {
        error.to_string()
    }
}

/// A scoped thread, or the error of its start, which [`end`](Started::end) returns too.
pub struct Started<'scope, T, E = String>(
    Result<ScopedJoinHandle<'scope, Result<T, E>>, ThreadError>,
);

/// Starts a scoped thread that returns a result.
///
/// - `name`: as tools show it, at most 15 bytes.
pub fn start<'scope, T: Send + 'scope, E: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> Result<T, E> + Send + 'scope,
) -> Started<'scope, T, E> {
    let builder = Builder::new().name(name.to_owned());
    Started(builder.spawn_scoped(scope, body).map_err(ThreadError::Start))
}

/// Starts a thread that outlives its caller.
///
/// - `name`: as for [`start`].
pub fn start_free<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, ThreadError> {
    Builder::new().name(name.to_owned()).spawn(body).map_err(ThreadError::Start)
}

impl<T, E> Started<'_, T, E> {
    /// Error of the start; `None` if the thread runs or has ended.
    pub fn refused(&self) -> Option<&ThreadError> {
        self.0.as_ref().err()
    }

    /// True if the thread has ended or was never started.
    pub fn is_finished(&self) -> bool {
        self.0.as_ref().map_or(true, ScopedJoinHandle::is_finished)
    }

    /// Waits for the result. A panic is an error.
    pub fn end(self) -> Result<T, E>
    where
        E: From<ThreadError>,
    {
        self.0?.join().unwrap_or_else(|panic| Err(ThreadError::Panicked(text_of(&*panic)).into()))
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn results_errors_and_panics_are_returned() {
        thread::scope(|scope| {
            assert_eq!(start(scope, "seven", || Ok::<_, String>(7)).end(), Ok(7));
            let failed = start(scope, "fails", || Err::<(), _>("no".to_owned()));
            assert_eq!(failed.end(), Err("no".into()));
            let panics = start(scope, "panics", || -> Result<(), String> { panic!("at {}", 5) });
            assert_eq!(panics.end(), Err("panicked: at 5".into()));
        });
    }
}
