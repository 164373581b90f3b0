//! Threads of a scope that may not be had: with no process left to start, or no memory.

use std::any::Any;
use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// A thread of a scope, or why there is none; either is told at its [`end`](Started::end).
pub struct Started<'scope, T>(Result<ScopedJoinHandle<'scope, Result<T, String>>, String>);

/// Starts a thread that hands back a result.
///
/// - `name`: as tools show it, at most 15 bytes.
pub fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> Result<T, String> + Send + 'scope,
) -> Started<'scope, T> {
    let builder = Builder::new().name(name.to_owned());
    Started(builder.spawn_scoped(scope, body).map_err(|error| why_not(&error)))
}

/// Starts a thread that outlives its caller.
///
/// - `name`: as for [`start`].
pub fn start_free<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, String> {
    Builder::new().name(name.to_owned()).spawn(body).map_err(|error| why_not(&error))
}

fn why_not(error: &io::Error) -> String {
    format!(
        "no thread could be started: {error}; see `ulimit -u` and pids.max of the control group"
    )
}

impl<T> Started<'_, T> {
    /// Why there is none.
    pub fn refused(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }

    /// Whether it has come to its end, or was never there.
    pub fn is_finished(&self) -> bool {
        self.0.as_ref().map_or(true, ScopedJoinHandle::is_finished)
    }

    /// Waits for its result. A panic is an error that says so.
    pub fn end(self) -> Result<T, String> {
        self.0?.join().unwrap_or_else(|panic| Err(panicked(&*panic)))
    }
}

fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    match text.or_else(|| panic.downcast_ref::<&str>().copied()) {
        Some(text) => format!("panicked: {text}"),
        None => "panicked".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_it_says_comes_back_and_so_does_a_panic() {
        thread::scope(|scope| {
            assert_eq!(start(scope, "seven", || Ok(7)).end(), Ok(7));
            let failed = start(scope, "fails", || Err::<(), _>("no".to_owned()));
            assert_eq!(failed.end(), Err("no".into()));
            let panics = start(scope, "panics", || -> Result<(), String> { panic!("at {}", 5) });
            assert_eq!(panics.end(), Err("panicked: at 5".into()));
        });
    }
}
