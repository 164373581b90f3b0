//! One run of a receiver and a sender: ready, send, drain, stop.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use model::PathError;
use sys::thread::start;

/// Error of one end of a run, of any type.
pub type RunCause = Box<dyn Error + Send + Sync>;

/// The ends of a run, and the silence that ends it.
#[derive(Debug)]
pub struct Run<'a> {
    /// Name of the receiver in errors and of its thread; at most 15 bytes.
    pub receiver: &'static str,
    /// Name of the sender in errors and of its thread; at most 15 bytes.
    pub sender: &'static str,
    /// Count of arrivals, updated by the receiver.
    pub received_count: &'a AtomicU64,
    /// The run is over when the count has not changed for this long after the last datagram.
    pub grace: Duration,
    /// Maximum time between the end of the sender and the stop of the receiver.
    pub grace_max: Duration,
}

/// The receiver's side of a run.
#[derive(Debug)]
pub struct Signals<'a> {
    ready: SyncSender<()>,
    /// Set when the receiver has to return.
    pub stop: &'a AtomicBool,
}

impl Signals<'_> {
    /// Starts the sender. The receiver calls this once its socket is open: from then on, no
    /// datagram is missed.
    pub fn ready(&self) {
        let _receiver_of_the_signal_is_gone = self.ready.try_send(());
    }

    /// True if the receiver has to return.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Runs `receiver` and `sender`, each on a thread of its own, so that each can enter a namespace.
///
/// 1. `receiver` starts, opens its socket, and calls [`Signals::ready`].
/// 2. `sender` starts. It returns its result and the number of datagrams sent; `u64::MAX` if the
///    number of arrivals to expect is unknown.
/// 3. When the sender has succeeded, the receiver is drained; see [`drain`].
/// 4. The stop flag is set, and `receiver` returns its result.
///
/// Returns both results, the sender's first.
///
/// Errors: the receiver's, else the sender's, as [`PathError::End`] with the name of the end; an
/// error that is a [`PathError`] already is returned unchanged.
pub fn run<S: Send, R: Send>(
    run: &Run<'_>,
    receiver: impl FnOnce(&Signals<'_>) -> Result<R, RunCause> + Send,
    sender: impl FnOnce() -> Result<(S, u64), RunCause> + Send,
) -> Result<(S, R), PathError> {
    let stop = &AtomicBool::new(false);
    let (ready, is_ready) = sync_channel(1);
    let (sent, received) = thread::scope(|scope| {
        let signals = Signals { ready, stop };
        let receiving = start(scope, run.receiver, move || receiver(&signals));
        // An error here means that the receiver has returned without being ready.
        let sent = is_ready.recv().ok().map(|()| start(scope, run.sender, sender).end());
        if let Some(Ok((_, sent_count))) = &sent {
            drain(run.received_count, *sent_count, run.grace, run.grace_max);
        }
        stop.store(true, Ordering::Release);
        (sent, receiving.end())
    });
    let received = received.map_err(|cause| PathError::at(run.receiver, cause))?;
    let sent = sent
        .unwrap_or_else(|| Err(format!("the receiver ({}) was not ready", run.receiver).into()));
    let (sent, _) = sent.map_err(|cause| PathError::at(run.sender, cause))?;
    Ok((sent, received))
}

/// Waits until `received_count` reaches `whole`, has not changed for `grace`, or `most` is over.
pub fn drain(received_count: &AtomicU64, whole: u64, grace: Duration, most: Duration) {
    let begun = Instant::now();
    let mut last = (received_count.load(Ordering::Relaxed), begun);
    while begun.elapsed() < most && last.0 < whole && last.1.elapsed() < grace {
        thread::sleep(Duration::from_millis(1));
        let now = received_count.load(Ordering::Relaxed);
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(received_count: &AtomicU64) -> Run<'_> {
        let (grace, grace_max) = (Duration::from_millis(20), Duration::from_secs(1));
        Run { receiver: "sink", sender: "source", received_count, grace, grace_max }
    }

    #[test]
    fn sender_starts_when_the_receiver_is_ready_and_the_last_datagram_is_received() {
        let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
        let is_ready = AtomicBool::new(false);
        let ran = run(
            &spec(&received),
            |signals| {
                is_ready.store(true, Ordering::SeqCst);
                signals.ready();
                while !signals.is_stopped() {
                    received.store(sent.load(Ordering::SeqCst), Ordering::SeqCst);
                }
                Ok(received.load(Ordering::SeqCst))
            },
            || {
                assert!(is_ready.load(Ordering::SeqCst));
                sent.store(5, Ordering::SeqCst);
                Ok(("sent", 5))
            },
        );
        assert_eq!(ran.unwrap(), ("sent", 5));
    }

    fn receive(signals: &Signals<'_>) -> Result<(), RunCause> {
        signals.ready();
        while !signals.is_stopped() {
            std::hint::spin_loop();
        }
        Ok(())
    }

    #[test]
    fn error_of_either_end_stops_the_run_and_names_the_end() {
        let count = AtomicU64::new(0);
        let failed = run(&spec(&count), |_| Err::<(), _>("no socket".into()), || Ok(((), 0)));
        assert_eq!(failed.unwrap_err().to_string(), "sink: no socket");
        let never_ready = run(&spec(&count), |_| Ok(()), || Ok(((), 0)));
        assert_eq!(
            never_ready.unwrap_err().to_string(),
            "source: the receiver (sink) was not ready"
        );
        let failed = run(&spec(&count), receive, || Err::<((), u64), _>("no route".into()));
        assert_eq!(failed.unwrap_err().to_string(), "source: no route");
    }
}
