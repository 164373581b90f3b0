//! One domain: its current and previous epoch, and the position of each line.

use super::track::{Out, Track};
use super::{ArbiterDelivery, ArbiterLimits, DomainStats, FeedLine, SequenceDomain};

/// Position of a line in a domain.
#[derive(Debug, Clone, Copy, Default)]
struct At {
    heard: bool,
    epoch: u32,
    highest: u64,
    last_ns: u64,
}

/// Messages in sequence that prove a domain.
const PROOF_MESSAGES: u32 = 4;
/// Messages in sequence between proofs.
const PROOF_AGAIN_MESSAGES: u32 = 1024;

/// Epoch of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Current,
    Previous,
    /// Starts a new epoch.
    New {
        at_one: bool,
    },
}

#[derive(Debug)]
pub(super) struct DomainState {
    domain: SequenceDomain,
    /// The current epoch is at `epoch & 1`, the previous at the other index.
    pub(super) tracks: [Track; 2],
    epoch: u32,
    /// Start time of the current epoch.
    began_ns: Option<u64>,
    hold_ns: u64,
    lines: [At; 3],
    /// Sums over earlier epochs: span, delivered, missing.
    closed: (u64, u64, u64),
    /// Messages of one line that followed each other without a gap.
    streak: u32,
    /// The domain was removed; its memory waits for another.
    pub(super) is_free: bool,
}

impl DomainState {
    pub(super) fn new(domain: SequenceDomain, at: u32, limits: &ArbiterLimits) -> Self {
        DomainState {
            domain,
            tracks: [Track::new(domain, (at, 0), limits), Track::new(domain, (at, 1), limits)],
            epoch: 0,
            began_ns: None,
            hold_ns: limits.hold_ns,
            lines: Default::default(),
            closed: (0, 0, 0),
            streak: 0,
            is_free: false,
        }
    }

    /// Makes it another domain in the same memory; no message may be held.
    pub(super) fn begin_again(&mut self, domain: SequenceDomain) {
        for track in &mut self.tracks {
            track.reset(0);
            track.rename(domain);
        }
        (self.domain, self.epoch, self.began_ns) = (domain, 0, None);
        (self.lines, self.closed) = Default::default();
        (self.streak, self.is_free) = (0, false);
    }

    pub(super) fn domain(&self) -> SequenceDomain {
        self.domain
    }

    /// True for a message that goes on in sequence, at the number that proves a domain and at multiples of many more:
    /// an active domain proves itself again and again.
    #[inline]
    pub(super) fn proves(&self) -> bool {
        self.streak == PROOF_MESSAGES || self.streak % PROOF_AGAIN_MESSAGES == PROOF_MESSAGES
    }

    #[inline]
    fn side(&self) -> usize {
        (self.epoch & 1) as usize
    }

    pub(super) fn current(&self) -> &Track {
        &self.tracks[self.side()]
    }

    fn previous(&self) -> &Track {
        &self.tracks[1 - self.side()]
    }

    /// Determines the epoch of a message.
    #[inline]
    pub(super) fn which(
        &self,
        line: FeedLine,
        sequence: u64,
        now_ns: u64,
        limits: &ArbiterLimits,
    ) -> Which {
        let at = &self.lines[line as usize];
        if at.heard && at.epoch == self.epoch && sequence > at.highest && self.epoch == 0 {
            return Which::Current;
        }
        self.which_else(line, sequence, now_ns, limits)
    }

    fn which_else(
        &self,
        line: FeedLine,
        sequence: u64,
        now_ns: u64,
        limits: &ArbiterLimits,
    ) -> Which {
        let at = &self.lines[line as usize];
        let current = self.current().highest;
        let is_young =
            self.began_ns.is_none_or(|began| now_ns.saturating_sub(began) < self.hold_ns);
        if line == FeedLine::Recovery {
            return Which::Current;
        }
        if !at.heard || at.epoch != self.epoch {
            // The line has not started the current epoch: choose the epoch that is nearer.
            let known = at.heard && at.epoch + 1 == self.epoch;
            let own = if known { at.highest } else { self.previous().highest };
            let old = self.epoch > 0 && sequence.abs_diff(own) < sequence.abs_diff(current);
            return if old { Which::Previous } else { Which::Current };
        }
        if sequence > at.highest {
            // The tail of the previous epoch, overtaken by the start of this one.
            let previous = self.previous().highest;
            let overtaken = self.epoch > 0
                && is_young
                && sequence.abs_diff(previous) < sequence.abs_diff(current);
            return if overtaken { Which::Previous } else { Which::Current };
        }
        let back = at.highest - sequence;
        let near_one = sequence <= limits.restart_first_max;
        let start = near_one && back >= limits.restart_back && !is_young;
        let quiet = back > 0 && now_ns.saturating_sub(at.last_ns) >= limits.restart_quiet_ns;
        let far = back >= u64::from(limits.memory);
        if start || quiet || far {
            return Which::New { at_one: near_one };
        }
        Which::Current
    }

    /// Moves the line to the epoch of its message, starting one if needed; returns the track's index.
    #[inline]
    pub(super) fn enter<F: FnMut(ArbiterDelivery<'_>)>(
        &mut self,
        line: FeedLine,
        sequence: u64,
        now_ns: u64,
        which: Which,
        out: &mut Out<'_, F>,
    ) -> usize {
        match which {
            Which::Current => {
                let (epoch, side) = (self.epoch, self.side());
                let at = &mut self.lines[line as usize];
                if !at.heard || at.epoch != epoch {
                    self.began_ns.get_or_insert(now_ns);
                    *at = At { heard: true, epoch, highest: sequence, last_ns: now_ns };
                }
                side
            }
            Which::Previous => {
                let epoch = self.epoch - 1;
                let at = &mut self.lines[line as usize];
                if !at.heard || at.epoch < epoch {
                    *at = At { heard: true, epoch, highest: sequence, last_ns: now_ns };
                }
                1 - self.side()
            }
            Which::New { at_one } => {
                self.restart(now_ns, at_one, out);
                let (epoch, side) = (self.epoch, self.side());
                self.lines[line as usize] =
                    At { heard: true, epoch, highest: sequence, last_ns: now_ns };
                side
            }
        }
    }

    #[cold]
    fn restart<F: FnMut(ArbiterDelivery<'_>)>(
        &mut self,
        now_ns: u64,
        at_one: bool,
        out: &mut Out<'_, F>,
    ) {
        self.epoch += 1;
        self.began_ns = Some(now_ns);
        out.totals.restarts += 1;
        let side = self.side();
        let track = &mut self.tracks[side];
        track.flush(out);
        self.closed.0 = self.closed.0.saturating_add(track.span());
        self.closed.1 += track.delivered();
        self.closed.2 = self.closed.2.saturating_add(track.missing());
        track.reset(self.epoch);
        if at_one {
            track.begin_at_one();
        }
    }

    /// Updates the position of the line; returns true if the message was below its highest.
    #[inline]
    pub(super) fn note(&mut self, line: FeedLine, sequence: u64, side: usize, now_ns: u64) -> bool {
        let epoch = self.tracks[side].epoch;
        let at = &mut self.lines[line as usize];
        at.last_ns = now_ns;
        if at.epoch != epoch {
            // From the previous epoch, although the line has started this one.
            return true;
        }
        let below = sequence < at.highest;
        if sequence > at.highest {
            let goes_on = sequence == at.highest + 1;
            self.streak = if goes_on { self.streak.wrapping_add(1) } else { 0 };
        }
        at.highest = at.highest.max(sequence);
        below
    }

    pub(super) fn flush<F: FnMut(ArbiterDelivery<'_>)>(&mut self, out: &mut Out<'_, F>) {
        let side = self.side();
        self.tracks[1 - side].flush(out);
        self.tracks[side].flush(out);
    }

    pub(super) fn book(&self) -> DomainStats {
        let (first, highest) = self.current().bounds();
        let [a, b] = &self.tracks;
        DomainStats {
            domain: self.domain,
            restarts: self.epoch,
            first,
            highest,
            span: self.closed.0.saturating_add(a.span() + b.span()),
            delivered: self.closed.1 + a.delivered() + b.delivered(),
            missing: self.closed.2.saturating_add(a.missing() + b.missing()),
            held: a.held() + b.held(),
            open: a.open() + b.open(),
        }
    }
}

/// Index of domains: open addressing, at most half full.
#[derive(Debug)]
pub(super) struct Index {
    places: Box<[Option<(SequenceDomain, u32)>]>,
    shift: u32,
}

impl Index {
    pub(super) fn new(domains: u32) -> Self {
        let places = (domains as usize * 2).next_power_of_two();
        Index { places: vec![None; places].into_boxed_slice(), shift: 64 - places.trailing_zeros() }
    }

    #[inline]
    fn start(&self, domain: SequenceDomain) -> usize {
        // Fibonacci hashing: domains differ in their low bits.
        (domain.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    #[inline]
    pub(super) fn get(&self, domain: SequenceDomain) -> Option<usize> {
        let mask = self.places.len() - 1;
        let mut at = self.start(domain);
        while let Some((there, place)) = self.places[at] {
            if there == domain {
                return Some(place as usize);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Leaves only these domains and their places.
    #[cold]
    pub(super) fn rebuild(&mut self, domains: impl Iterator<Item = (SequenceDomain, usize)>) {
        self.places.fill(None);
        for (domain, place) in domains {
            self.insert(domain, place);
        }
    }

    /// Inserts a domain that is not in the table; there must be space.
    pub(super) fn insert(&mut self, domain: SequenceDomain, place: usize) {
        let mask = self.places.len() - 1;
        let mut at = self.start(domain);
        while self.places[at].is_some() {
            at = (at + 1) & mask;
        }
        self.places[at] = Some((domain, place as u32));
    }
}
