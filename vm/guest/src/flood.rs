//! Sends as many echoes as the card accepts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sys::rusage::ThreadUsage;
use telemetry::{Counter, Snapshot};

use super::echo::{Echo, EchoKind, udp_number};
use super::error::GuestError;
use super::link::{ANSWER_TIMEOUT, Endpoint, FRAME_BYTES_MAX, GuestLink};
use super::ping::Until;

/// Time without answers after the last send, after which the counters are requested. Their answer ends the flood: a
/// firmware that had no CPU meanwhile still answers the frames before that request.
const SILENCE_GRACE: Duration = Duration::from_millis(200);
/// Time without a frame, while some are still sent and after that, until the firmware counts as stalled.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
const AFTER_STALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Tokens of the requests for the counters.
const BEFORE: u16 = 1;
const AFTER: u16 = 2;

/// Result of a flood.
#[derive(Debug, Clone)]
pub struct Flood {
    pub sent_count: u64,
    pub answered_count: u64,
    /// From the first frame to the last answer.
    pub duration: Duration,
    /// From the first to the last answer; zero with fewer than two.
    pub arriving: Duration,
    /// Usage of the sending and the receiving thread.
    pub usage: ThreadUsage,
    pub before: Snapshot,
    pub after: Snapshot,
}

/// Sends UDP echoes without waiting for answers, and counts the answers.
pub fn run(
    link: &GuestLink,
    peer: &Endpoint,
    payload_bytes: usize,
    until: Until,
) -> Result<Flood, GuestError> {
    let before = link.counters(peer, BEFORE)?;
    let mut echo = Echo::new(EchoKind::Udp, *peer, payload_bytes)?;
    let sender = link.try_clone()?;
    link.set_receive_timeout(SILENCE_GRACE)?;
    let own = ThreadUsage::now();
    let start = Instant::now();
    let stopped = AtomicBool::new(false);
    let mut sending = || -> Result<(u32, ThreadUsage), GuestError> {
        let own = ThreadUsage::now();
        let mut number = 0;
        while !stopped.load(Ordering::Relaxed) {
            let is_over = match until {
                Until::Count(count) => number >= count,
                Until::Time(time) => start.elapsed() >= time,
            };
            if is_over {
                break;
            }
            echo.set_number(number)?;
            sender.send(echo.frame())?;
            number += 1;
        }
        Ok((number, ThreadUsage::now().since(&own)))
    };
    let (sent, answered_count, (first, last), after) = thread::scope(|scope| {
        let sending =
            sys::thread::start(scope, "sender", || Ok::<_, sys::thread::ThreadError>(sending()));
        let (mut answered, mut first, mut last, mut heard) = (0_u64, None, start, start);
        let mut frame = [0; FRAME_BYTES_MAX];
        let mut receiving = || {
            let mut is_asked = false;
            loop {
                let came = link.receive(&mut frame)?;
                if let Some(len) = came {
                    heard = Instant::now();
                    if udp_number(&frame[..len]).is_some() {
                        answered += 1;
                        last = heard;
                        first.get_or_insert(last);
                    } else if let Some(after) = GuestLink::counters_in(&frame[..len], AFTER)? {
                        break Ok(after);
                    }
                }
                let is_over = match until {
                    Until::Count(count) if answered >= count.into() => true,
                    _ => came.is_none() && sending.is_finished(),
                };
                if is_over && !is_asked {
                    link.request_counters(peer, AFTER)?;
                    (is_asked, heard) = (true, Instant::now());
                }
                if heard.elapsed() > if is_asked { AFTER_STALL_TIMEOUT } else { STALL_TIMEOUT } {
                    let what = format!("a flood after {answered} answers");
                    break Err(GuestError::Silent { what });
                }
            }
        };
        let received = receiving();
        stopped.store(true, Ordering::Relaxed);
        let sent = sending.end().unwrap_or_else(|why| {
            Err(GuestError::Silent { what: format!("because its sender failed: {why}") })
        });
        received.and_then(|after| Ok((sent?, answered, (first.unwrap_or(last), last), after)))
    })?;
    link.set_receive_timeout(ANSWER_TIMEOUT)?;
    let mut usage = ThreadUsage::now().since(&own);
    usage.user_ns += sent.1.user_ns;
    usage.system_ns += sent.1.system_ns;
    usage.context_switch_count += sent.1.context_switch_count;
    Ok(Flood {
        sent_count: sent.0.into(),
        answered_count,
        duration: last - start,
        arriving: last - first,
        usage,
        before,
        after,
    })
}

impl Flood {
    /// Increase of a counter.
    pub fn grown(&self, counter: Counter) -> u64 {
        self.after.get(counter).wrapping_sub(self.before.get(counter))
    }

    /// Differences between the sender's and the firmware's counts, one sentence each. With `no-counters` those of
    /// packets are unknown, and there are none.
    pub fn discrepancies(&self) -> Vec<String> {
        let mut pairs = Vec::new();
        // The second request for the counters is received before they are read, and the answer
        // to the first is sent after they were.
        let (sent, answered) = (self.sent_count, self.answered_count);
        let received = self.grown(Counter::RxPackets);
        if received > 0 {
            let sent_back = self.grown(Counter::TxPackets);
            pairs.push(("frames received by the firmware", received, sent + 1));
            pairs.push(("frames sent by the firmware", sent_back, answered + 1));
        }
        let handled = answered.saturating_add(self.grown(Counter::TxRefused));
        let (before, after) = (&self.before, &self.after);
        let ring = after.get(Counter::RxRingFrames);
        pairs.extend([
            ("receive errors", self.grown(Counter::RxErrors), 0),
            ("echoes answered by the firmware or refused", handled, sent),
            ("frames not released", after.get(Counter::FramesHeld), 0),
            ("frames in the receive ring", after.get(Counter::FramesReceive), ring),
            ("all frames", frames_total(after), frames_total(before)),
            ("restarts", self.grown(Counter::Restarts), 0),
        ]);
        let differing = pairs.into_iter().filter(|(_, is, should)| is != should);
        differing.map(|(what, is, should)| format!("{what}: {is}, expected {should}")).collect()
    }
}

fn frames_total(snapshot: &Snapshot) -> u64 {
    model::total(
        [Counter::FramesFree, Counter::FramesHeld, Counter::FramesReceive, Counter::FramesTransmit]
            .map(|counter| snapshot.get(counter)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flood(sent: u64, answered: u64, counters: &[(Counter, u64)]) -> Flood {
        let before = Snapshot([0; telemetry::COUNTERS]);
        let mut after = before;
        for (counter, value) in counters {
            after.0[*counter as usize] = *value;
        }
        Flood {
            sent_count: sent,
            answered_count: answered,
            duration: Duration::ZERO,
            arriving: Duration::ZERO,
            usage: ThreadUsage::default(),
            before,
            after,
        }
    }

    #[test]
    fn discrepancies_are_reported_and_equal_counts_are_not() {
        use Counter::{FramesHeld, RxPackets, TxPackets, TxRefused};
        let counted = [(RxPackets, 101), (TxPackets, 98), (TxRefused, 3)];
        assert_eq!(flood(100, 97, &counted).discrepancies(), [""; 0]);
        let found = flood(100, 96, &counted).discrepancies().join("; ");
        assert!(found.contains("answered by the firmware or refused: 99, expected 100"), "{found}");
        let leaking = [counted[0], counted[1], counted[2], (FramesHeld, 2)];
        let found = flood(100, 97, &leaking).discrepancies().join("; ");
        assert!(
            found.contains("frames not released: 2") && found.contains("all frames"),
            "{found}"
        );
    }
}
