//! Back-to-back echoes.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use net::Identity;

use crate::link::{FRAME_BYTES_MAX, Link, echo_frame, echo_number, ping_frame, pong_sequence};

/// Round-trip times, ascending.
#[derive(Debug, Clone)]
pub struct Rtts(Vec<Duration>);

impl Rtts {
    /// The time that this share (0.0 to 1.0) of the round trips did not exceed.
    pub fn percentile(&self, share: f64) -> Duration {
        let last = self.0.len() - 1;
        self.0[((last as f64 * share).round() as usize).min(last)]
    }
}

fn measure(
    link: &Link,
    count: u32,
    make: impl Fn(u32) -> Result<Vec<u8>>,
    is_answer: impl Fn(&[u8], u32) -> bool,
) -> Result<Rtts> {
    let mut rtts = Vec::with_capacity(count as usize);
    let mut answer = [0; FRAME_BYTES_MAX];
    for number in 0..count {
        let frame = make(number)?;
        let start = Instant::now();
        link.send(&frame)?;
        loop {
            let Some(len) = link.receive(&mut answer)? else {
                bail!("no answer to echo {number} of {count}");
            };
            let end = Instant::now();
            if is_answer(&answer[..len], number) {
                rtts.push(end - start);
                break;
            }
        }
    }
    if rtts.is_empty() {
        bail!("no echo was asked for");
    }
    rtts.sort_unstable();
    Ok(Rtts(rtts))
}

/// ICMP echoes, one after the other; every answer is checked.
pub fn icmp(link: &Link, station: &Identity, count: u32, payload_bytes: usize) -> Result<Rtts> {
    measure(
        link,
        count,
        |number| ping_frame(station, number as u16, payload_bytes),
        |answer, number| pong_sequence(answer) == Some(number as u16),
    )
}

/// UDP echoes, one after the other; every answer is checked.
pub fn udp(link: &Link, station: &Identity, count: u32, payload_bytes: usize) -> Result<Rtts> {
    measure(
        link,
        count,
        |number| echo_frame(station, number, payload_bytes),
        |answer, number| echo_number(answer) == Some(number),
    )
}
