//! Signs of life of the calling end.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use sys::thread::{ThreadError, start_free};

use crate::HEARTBEAT_INTERVAL;

/// Thread that sends an empty line every [`HEARTBEAT_INTERVAL`] until this is dropped.
///
/// The kernel shows that a host is gone; only this shows that its program still works.
#[derive(Debug)]
pub struct Heartbeat {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// - `send`: sends an empty line. It ends a wait early once its argument returns true.
    pub(crate) fn start(
        mut send: impl FnMut(&dyn Fn() -> bool) -> io::Result<()> + Send + 'static,
    ) -> Result<Self, ThreadError> {
        let (end, ended) = channel::<()>();
        let thread = start_free("wp-heartbeat", move || {
            // It writes to one descriptor; a failure is reported by the thread that waits for answers.
            let _ = sys::capability::keep(&[]);
            while ended.recv_timeout(HEARTBEAT_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                // A broken connection is reported by the next answer.
                if send(&|| is_over(&ended)).is_err() {
                    break;
                }
            }
        })?;
        Ok(Heartbeat { end: Some(end), thread: Some(thread) })
    }
}

fn is_over(ended: &Receiver<()>) -> bool {
    ended.try_recv() == Err(TryRecvError::Disconnected)
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
