//! As many frames as the card takes, and the firmware's books afterwards.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use net::Identity;
use observe::{Counter, Snapshot};

use crate::link::{ANSWER_MAX, FRAME_BYTES_MAX, Link, echo_frame, echo_number};

/// What came of a flood.
#[derive(Debug, Clone)]
pub struct Flood {
    /// Frames sent.
    pub sent: u32,
    /// Answers received.
    pub answered: u32,
    /// From the first frame to the last answer.
    pub duration: Duration,
    /// The firmware's counters before.
    pub before: Snapshot,
    /// And after.
    pub after: Snapshot,
}

/// Silence after which the flood counts as over.
const SILENCE: Duration = Duration::from_millis(500);

/// Sends UDP echoes without waiting for answers, and counts those.
pub fn run(link: &Link, station: &Identity, frames: u32, payload_bytes: usize) -> Result<Flood> {
    let before = link.counters(station, 1)?;
    let start = Instant::now();
    link.set_patience(SILENCE)?;
    let (answered, last) = thread::scope(|scope| -> Result<(u32, Instant)> {
        let sender = link.try_clone()?;
        let sending = scope.spawn(move || -> Result<()> {
            for number in 0..frames {
                sender.send(&echo_frame(station, number, payload_bytes)?)?;
            }
            Ok(())
        });
        let (mut answered, mut last) = (0, Instant::now());
        let mut frame = [0; FRAME_BYTES_MAX];
        while answered < frames {
            match link.receive(&mut frame)? {
                Some(len) if echo_number(&frame[..len]).is_some() => {
                    answered += 1;
                    last = Instant::now();
                }
                Some(_) => {}
                None if sending.is_finished() => break,
                // A firmware that takes frames and answers none is stalled, or very slow.
                None if last.elapsed() > Duration::from_secs(60) => bail!("the flood stalls"),
                None => {}
            }
        }
        sending.join().ok().context("the sender panicked")??;
        Ok((answered, last))
    })?;
    link.set_patience(ANSWER_MAX)?;
    let after = link.counters(station, 2)?;
    Ok(Flood { sent: frames, answered, duration: last - start, before, after })
}

impl Flood {
    /// How much a counter has grown.
    pub fn grown(&self, counter: Counter) -> u64 {
        self.after.get(counter) - self.before.get(counter)
    }

    /// What does not add up, each as a sentence.
    pub fn discrepancies(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut expect = |what: &str, is: u64, should: u64| {
            if is != should {
                found.push(format!("{what}: {is}, expected {should}"));
            }
        };
        // The second question for the counters is received before they are read, and the answer
        // to the first is sent after they were.
        let (sent, answered) = (u64::from(self.sent), u64::from(self.answered));
        expect("frames received by the firmware", self.grown(Counter::RxPackets), sent + 1);
        expect("receive errors", self.grown(Counter::RxErrors), 0);
        expect("frames sent by the firmware", self.grown(Counter::TxPackets), answered + 1);
        let refused = self.grown(Counter::TxRefused);
        expect("echoes answered by the firmware or refused", answered + refused, sent);
        expect("frames that nobody gave back", self.after.get(Counter::FramesHeld), 0);
        let ring = self.after.get(Counter::RxRingFrames);
        expect("frames in the receive ring", self.after.get(Counter::FramesReceive), ring);
        expect("all frames", self.frames_total(&self.after), self.frames_total(&self.before));
        expect("restarts", self.grown(Counter::Restarts), 0);
        found
    }

    fn frames_total(&self, snapshot: &Snapshot) -> u64 {
        [Counter::FramesFree, Counter::FramesHeld, Counter::FramesReceive, Counter::FramesTransmit]
            .iter()
            .map(|counter| snapshot.get(*counter))
            .sum()
    }
}
