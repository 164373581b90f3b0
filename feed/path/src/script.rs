//! Datagrams of a trial and their due times, prepared so that the publisher only sends.

use std::sync::Arc;

use market::twse::{MatchTime, Telegrams};
use serde::{Deserialize, Serialize};

use super::FeedLoad;
use super::recording::Recording;

use marketdata::schedule::SendSchedule;
use marketdata::synthetic::{Mix, SyntheticSession, SyntheticSpec, TELEGRAM_BYTES_MAX};

/// Range of a telegram's match time: packed digits of HHMMSS, milliseconds, microseconds.
const TIME: std::ops::Range<usize> = 16..22;
/// Checksum, carriage return and line feed.
const TRAILER_BYTES: usize = 3;
/// Taipei's offset from UTC.
const TAIPEI_NS: u64 = 8 * 3600 * 1_000_000_000;

/// Synthetic quotes of one trial. Both ends make the same script of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Quotes {
    pub(super) seed: u64,
    pub(super) kind: FeedLoad,
    pub(super) rate_pps: u64,
    pub(super) count: usize,
}

impl Quotes {
    pub(super) fn script(&self) -> Script {
        Script::new(self.seed, Timing::new(self.kind, self.rate_pps), self.count)
    }
}

/// Due times of the datagrams of a load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    /// Bursts and their mean rate.
    pub(super) schedule: SendSchedule,
    /// Gap between datagrams of a burst.
    pub(super) gap_ns: u64,
}

impl Timing {
    pub(super) fn new(kind: FeedLoad, rate_pps: u64) -> Self {
        let (burst, gap_ns) = match kind {
            FeedLoad::Burst => (100, 5_000),
            FeedLoad::Surge => (1000, 0),
            FeedLoad::Paced => (1, 0),
        };
        Timing { schedule: SendSchedule::burst(burst, rate_pps), gap_ns }
    }

    /// Due time of datagram `n`, nanoseconds from the start: whole microseconds, as match times.
    pub(super) fn due_ns(&self, n: u64) -> u64 {
        let due_ns = self.schedule.due_ns(n) + n % self.schedule.burst_messages() * self.gap_ns;
        due_ns - due_ns % 1000
    }
}

/// Sequence domain of telegrams: business, format, first sequence number, indexes in the script.
type TelegramDomain = (u8, u8, u32, Vec<u32>);

/// Datagrams of one trial.
#[derive(Debug)]
pub(super) enum Script {
    /// One telegram each.
    Telegrams { bytes: Vec<u8>, ends: Vec<usize>, timing: Timing, domains: Vec<TelegramDomain> },
    /// Those of a capture.
    Recorded(Arc<Recording>),
}

impl Script {
    /// `count` quotes, warrants and odd lots of a synthetic session.
    pub(super) fn new(seed: u64, timing: Timing, count: usize) -> Self {
        let mix = Mix { instrument: 0, ..Mix::default() };
        let mut session = SyntheticSession::new(&SyntheticSpec { mix, ..SyntheticSpec::new(seed) });
        let (mut bytes, mut ends, mut domains) = (Vec::new(), Vec::new(), Vec::new());
        let mut buffer = [0; TELEGRAM_BYTES_MAX];
        while ends.len() < count {
            // The buffer always holds one.
            let Some(len) = session.telegram(&mut buffer) else { break };
            number(&mut domains, &buffer[..len], ends.len() as u32);
            bytes.extend_from_slice(&buffer[..len]);
            ends.push(bytes.len());
        }
        Script::Telegrams { bytes, ends, timing, domains }
    }

    /// Payloads and their ends.
    fn payloads(&self) -> (&[u8], &[usize]) {
        match self {
            Script::Telegrams { bytes, ends, .. } => (bytes, ends),
            Script::Recorded(recording) => (&recording.bytes, &recording.ends),
        }
    }

    /// Datagrams.
    pub(super) fn len(&self) -> usize {
        self.payloads().1.len()
    }

    /// Longest payload, bytes.
    pub(super) fn payload_bytes_max(&self) -> usize {
        match self {
            Script::Telegrams { .. } => TELEGRAM_BYTES_MAX,
            Script::Recorded(recording) => recording.payload_bytes_max,
        }
    }

    /// True if datagrams carry the time of a match.
    pub(super) fn has_match_times(&self) -> bool {
        matches!(self, Script::Telegrams { .. })
    }

    /// Due time of datagram `n`, nanoseconds from the start.
    pub(super) fn due_ns(&self, n: usize) -> u64 {
        match self {
            Script::Telegrams { timing, .. } => timing.due_ns(n as u64),
            Script::Recorded(recording) => recording.due_ns[n],
        }
    }

    /// Bytes of datagram `n`.
    pub(super) fn datagram(&self, n: usize) -> &[u8] {
        let (bytes, ends) = self.payloads();
        &bytes[range(ends, n)]
    }

    /// Index of the datagram with a telegram.
    #[inline]
    pub(super) fn place(&self, business: u8, format: u8, sequence: u32) -> Option<usize> {
        let Script::Telegrams { domains, .. } = self else { return None };
        let domain = domains.iter().find(|d| (d.0, d.1) == (business, format))?;
        let at = sequence.checked_sub(domain.2)?;
        domain.3.get(at as usize).map(|&place| place as usize)
    }

    /// Match time of datagram `n` of a script that starts at `begin_ns` (CLOCK_REALTIME): its due
    /// time in microseconds of the day.
    pub(super) fn match_micros(&self, n: usize, begin_ns: u64) -> u64 {
        (begin_ns + self.due_ns(n) + TAIPEI_NS) / 1000 % MatchTime::DAY_MICROS
    }

    /// Writes the match times of a script that starts at `begin_ns`.
    pub(super) fn stamp(&mut self, begin_ns: u64) {
        for n in 0..self.len() {
            let micros = self.match_micros(n, begin_ns);
            if let Script::Telegrams { bytes, ends, .. } = self {
                restamp(&mut bytes[range(ends, n)], micros);
            }
        }
    }
}

fn range(ends: &[usize], n: usize) -> std::ops::Range<usize> {
    n.checked_sub(1).map_or(0, |before| ends[before])..ends[n]
}

/// Enters the sequence of a telegram at `place`.
fn number(domains: &mut Vec<TelegramDomain>, telegram: &[u8], place: u32) {
    for telegram in Telegrams::new(telegram).flatten() {
        let (business, format) = (telegram.business().to_wire(), telegram.format());
        match domains.iter_mut().find(|d| (d.0, d.1) == (business, format)) {
            Some(domain) => domain.3.push(place),
            None => domains.push((business, format, telegram.sequence(), vec![place])),
        }
    }
}

/// Replaces a telegram's match time and updates its checksum.
fn restamp(telegram: &mut [u8], micros: u64) {
    let seconds = micros / 1_000_000;
    let digits = (seconds / 3600 * 100 + seconds / 60 % 60) * 100 + seconds % 60;
    let mut digits = digits * 1_000_000 + micros % 1_000_000;
    let checksum = telegram.len() - TRAILER_BYTES;
    for at in TIME.rev() {
        let packed = (digits % 10 + digits / 10 % 10 * 16) as u8;
        digits /= 100;
        telegram[checksum] ^= telegram[at] ^ packed;
        telegram[at] = packed;
    }
}

#[cfg(test)]
mod tests {
    use market::twse::Body;

    use super::*;

    fn timing() -> Timing {
        Timing { schedule: SendSchedule::burst(10, 1000), gap_ns: 5_000 }
    }

    #[test]
    fn every_datagram_is_one_valid_telegram_found_by_its_sequence() {
        let mut script = Script::new(7, timing(), 500);
        script.stamp(1_700_000_000_123_456_789);
        assert_eq!(script.len(), 500);
        for n in 0..script.len() {
            let telegrams: Vec<_> = Telegrams::new(script.datagram(n)).collect();
            assert_eq!(telegrams.len(), 1);
            let telegram = telegrams[0].as_ref().expect("valid");
            let place =
                script.place(telegram.business().to_wire(), telegram.format(), telegram.sequence());
            assert_eq!(place, Some(n));
        }
        assert_eq!(script.place(1, 6, 1_000_000), None);
    }

    #[test]
    fn match_times_are_due_times() {
        let mut script = Script::new(7, timing(), 30);
        // 22:13:20 UTC is 06:13:20 of the next day in Taipei.
        script.stamp(1_700_000_000_000_001_999);
        let times: Vec<String> = (0..30)
            .map(|n| {
                let telegram = Telegrams::new(script.datagram(n)).next().unwrap().unwrap();
                let time = match telegram.body() {
                    Body::Quote(quote) => quote.time(),
                    Body::OddLot(odd) => odd.time(),
                    other => panic!("{other:?}"),
                };
                time.expect("has one").to_string()
            })
            .collect();
        assert_eq!(times[0], "06:13:20.000001");
        assert_eq!(times[9], "06:13:20.000046");
        assert_eq!(times[10], "06:13:20.010001");
    }
}
