//! Back-to-back echoes: the next when the last was answered.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use model::latency_histogram;
use sys::rusage::ThreadUsage;

use super::echo::{Echo, EchoKind};
use super::error::GuestError;
use super::link::{ANSWER_TIMEOUT, Endpoint, FRAME_BYTES_MAX, GuestLink};

/// Consecutive echoes without an answer after which the guest counts as dead.
const LOST_MAX: u32 = 3;

/// End of a series of echoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    Count(u32),
    Time(Duration),
}

/// Result of a series of echoes.
#[derive(Debug, Clone)]
pub struct Pinged {
    pub sent_count: u64,
    /// Valid answers in time.
    pub answered_count: u64,
    /// Late or duplicate answers.
    pub late_count: u64,
    /// Round trips in nanoseconds.
    pub rtt: Histogram<u64>,
    /// Time from the first echo to the last answer.
    pub wall_ns: u64,
    pub usage: ThreadUsage,
}

/// Sends echoes of one kind to a peer.
///
/// An echo without an answer within two seconds counts as lost; three in a row are an error.
pub fn run(
    link: &GuestLink,
    peer: &Endpoint,
    kind: EchoKind,
    payload_bytes: usize,
    until: Until,
) -> Result<Pinged, GuestError> {
    let mut echo = Echo::new(kind, *peer, payload_bytes)?;
    let mut answer = [0; FRAME_BYTES_MAX];
    let mut rtt = latency_histogram();
    let (mut sent_count, mut late_count, mut lost_in_a_row) = (0_u32, 0, 0);
    let usage = ThreadUsage::now();
    let begun = Instant::now();
    let mut last = begun;
    loop {
        let over = match until {
            Until::Count(count) => sent_count == count,
            Until::Time(time) => last - begun >= time,
        };
        if over {
            break;
        }
        echo.set_number(sent_count)?;
        let start = Instant::now();
        link.send(echo.frame())?;
        loop {
            let came = link.receive(&mut answer)?;
            last = Instant::now();
            let Some(len) = came else {
                lost_in_a_row += 1;
                break;
            };
            if echo.is_answered_by(&answer[..len], sent_count) {
                rtt.saturating_record((last - start).as_nanos() as u64);
                lost_in_a_row = 0;
                break;
            }
            if !link.answer_arp(&answer[..len])? {
                late_count += 1;
            }
            if last - start > ANSWER_TIMEOUT {
                lost_in_a_row += 1;
                break;
            }
        }
        sent_count += 1;
        if lost_in_a_row == LOST_MAX {
            return Err(GuestError::Silent {
                what: format!("{LOST_MAX} echoes in a row, after {} answers", rtt.len()),
            });
        }
    }
    Ok(Pinged {
        sent_count: sent_count.into(),
        answered_count: rtt.len(),
        late_count,
        rtt,
        wall_ns: (last - begun).as_nanos() as u64,
        usage: ThreadUsage::now().since(&usage),
    })
}
