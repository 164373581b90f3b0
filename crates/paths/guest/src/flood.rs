//! Sends as many echoes as the card accepts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sys::rusage::ThreadUsage;
use telemetry::{Counter, Snapshot};

use super::echo::{Echo, Kind, udp_number};
use super::error::GuestError;
use super::link::{ANSWER_MAX, Endpoint, FRAME_BYTES_MAX, Link};
use super::ping::Until;

/// Time without answers after the last send, after which the counters are requested. Their answer ends the flood: a
/// firmware that had no CPU meanwhile still answers the frames before that request.
const SILENCE: Duration = Duration::from_millis(200);
/// Time without a frame, while some are still sent and after that, until the firmware counts as stalled.
const STALLED: Duration = Duration::from_secs(60);
const STALLED_AFTER: Duration = Duration::from_secs(10);
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
    link: &Link,
    peer: &Endpoint,
    payload_bytes: usize,
    until: Until,
) -> Result<Flood, GuestError> {
    let before = link.counters(peer, BEFORE)?;
    let mut echo = Echo::new(Kind::Udp, *peer, payload_bytes)?;
    let sender = link.try_clone()?;
    link.set_receive_timeout(SILENCE)?;
    let own = ThreadUsage::now();
    let start = Instant::now();
    let stopped = AtomicBool::new(false);
    let mut sending = || -> Result<(u32, ThreadUsage), GuestError> {
        let own = ThreadUsage::now();
        let mut number = 0;
        let continues = |number| match until {
            Until::Count(count) => number < count,
            Until::Time(time) => start.elapsed() < time,
        };
        while continues(number) && !stopped.load(Ordering::Relaxed) {
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
                    } else if let Some(after) = Link::counters_in(&frame[..len], AFTER)? {
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
                if heard.elapsed() > if is_asked { STALLED_AFTER } else { STALLED } {
                    let what = format!("a flood after {answered} answers");
                    break Err(GuestError::Silent { what });
                }
            }
        };
        let received = receiving();
        stopped.store(true, Ordering::Relaxed);
        let ended =
            |why| Err(GuestError::Silent { what: format!("because its sender failed: {why}") });
        let sent = sending.end().unwrap_or_else(ended);
        received.and_then(|after| Ok((sent?, answered, (first.unwrap_or(last), last), after)))
    })?;
    link.set_receive_timeout(ANSWER_MAX)?;
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
        let mut found = Vec::new();
        let mut expect = |what: &str, is: u64, should: u64| {
            if is != should {
                found.push(format!("{what}: {is}, expected {should}"));
            }
        };
        // The second request for the counters is received before they are read, and the answer
        // to the first is sent after they were.
        let (sent, answered) = (self.sent_count, self.answered_count);
        let received = self.grown(Counter::RxPackets);
        if received > 0 {
            expect("frames received by the firmware", received, sent + 1);
            expect("frames sent by the firmware", self.grown(Counter::TxPackets), answered + 1);
        }
        expect("receive errors", self.grown(Counter::RxErrors), 0);
        let refused = self.grown(Counter::TxRefused);
        let handled = answered.saturating_add(refused);
        expect("echoes answered by the firmware or refused", handled, sent);
        expect("frames not released", self.after.get(Counter::FramesHeld), 0);
        let ring = self.after.get(Counter::RxRingFrames);
        expect("frames in the receive ring", self.after.get(Counter::FramesReceive), ring);
        expect("all frames", frames_total(&self.after), frames_total(&self.before));
        expect("restarts", self.grown(Counter::Restarts), 0);
        found
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
