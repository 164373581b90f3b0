//! Back-to-back echoes: the next when the answer to the last has come.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use io::rusage::ThreadUsage;
use model::latency_histogram;

use super::echo::{Echo, Kind};
use super::error::GuestError;
use super::link::{ANSWER_MAX, FRAME_BYTES_MAX, Link, Station};

/// Echoes in a row without an answer after which the guest counts as dead.
const LOST_MAX: u32 = 3;

/// How long echoes are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// So many.
    Count(u32),
    /// So long.
    Time(Duration),
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Pinged {
    /// Echoes sent.
    pub sent_count: u64,
    /// Answers that came in time, each checked.
    pub answered_count: u64,
    /// Answers to earlier echoes than the last, or second ones.
    pub late_count: u64,
    /// Round trips, nanoseconds.
    pub rtt: Histogram<u64>,
    /// From the first echo to the last answer, nanoseconds.
    pub wall_ns: u64,
    /// What our own thread used.
    pub usage: ThreadUsage,
}

/// Sends echoes of one kind to a station.
///
/// Each is waited for two seconds, and then counts as lost; three in a row are an error.
pub fn run(
    link: &Link,
    station: &Station,
    kind: Kind,
    payload_bytes: usize,
    until: Until,
) -> Result<Pinged, GuestError> {
    let mut echo = Echo::new(kind, *station, payload_bytes)?;
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
            if last - start > ANSWER_MAX {
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
