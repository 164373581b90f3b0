//! Arbitration of redundant lines: their union, each message once, in order.
//!
//! Exchanges send the same telegrams on two lines. A **domain** is a stream with its own sequence
//! numbers. Per domain the [`Arbiter`] delivers the messages of all lines exactly once and in
//! order. A message that arrives early is **held** for a bounded time. Then the messages missing
//! before it are a **gap**, which is skipped; any of them that still arrive count as late.
//!
//! # Sequence restarts
//!
//! Domains restart at 1, daily or every cycle. A message on line A or B starts a new **epoch** of
//! its domain, and is neither duplicate nor late, if one of three rules holds. All compare with
//! the highest sequence of *that line* in the domain, never with the other line's:
//!
//! 1. *start*: the sequence is at most [`ArbiterLimits::restart_first_max`], at least
//!    [`ArbiterLimits::restart_back`] below the line's highest, and the epoch has lasted longer than
//!    [`ArbiterLimits::hold_ns`], so that it is not a straggler from the start of this epoch;
//! 2. *quiet*: the line was silent in the domain for [`ArbiterLimits::restart_quiet_ns`], and the
//!    sequence is below its highest;
//! 3. *far*: the sequence is further below the line's highest than [`ArbiterLimits::memory`].
//!
//! By rule 1 the epoch starts at 1, so a lost start is a gap; by the others it starts as the
//! domain did: see [`ArbiterLimits::from_one`]. A line that is still in the previous epoch keeps
//! delivering into it. A cycle shorter than `restart_back` that follows without a pause cannot be
//! distinguished from duplicates, and counts as duplicates.

mod counts;
mod domain;
mod reorder_buffer;
mod track;

pub use counts::{DomainStats, LineCounts, Totals};

use domain::{DomainState, Index};
use reorder_buffer::ReorderBuffer;
use track::{Class, Out};

/// A stream with its own sequence numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceDomain(pub u64);

impl SequenceDomain {
    /// Domain of a TWSE or TPEx telegram: one per business and format.
    pub const fn twse(business: u8, format: u8) -> Self {
        SequenceDomain((business as u64) << 8 | format as u64)
    }

    /// Domain of a MoldUDP64 session: FNV-1a of its 10 bytes, stable across hosts and versions.
    pub const fn mold(session: &[u8; 10]) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut at = 0;
        while at < session.len() {
            hash = (hash ^ session[at] as u64).wrapping_mul(0x0100_0000_01b3);
            at += 1;
        }
        SequenceDomain(hash)
    }
}

/// Largest valid sequence: a million messages a second reach it in nine years.
pub const SEQUENCE_MAX: u64 = 1 << 48;

/// Source of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FeedLine {
    /// The first line, or the only one.
    A = 0,
    /// The second line.
    B = 1,
    /// Retransmissions; never start an epoch.
    Recovery = 2,
}

impl FeedLine {
    /// Every line.
    pub const ALL: [FeedLine; 3] = [FeedLine::A, FeedLine::B, FeedLine::Recovery];

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Memory and time limits of an [`Arbiter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArbiterLimits {
    /// Longest time that a message waits for the messages missing before it.
    pub hold_ns: u64,
    /// Messages held at once, over all domains.
    pub held_messages: u32,
    /// Longest message that can be held. A longer one is delivered at once, after a gap.
    pub message_bytes: u32,
    /// Distance from the first missing sequence up to which messages are held; rounded up to a
    /// power of two.
    pub reach: u32,
    /// Sequences remembered below a domain's highest, to distinguish duplicates from late
    /// messages; at least `reach`, rounded up to a power of two.
    pub memory: u32,
    /// Number of domains; messages of further ones are refused and counted, unless others are
    /// [removed](Arbiter::remove).
    pub domains: u32,
    /// Domains start at 1. If false, a domain starts at the lowest sequence received within
    /// `hold_ns` of the first, for joining a running feed.
    pub from_one: bool,
    /// Highest sequence that can start an epoch by rule 1.
    pub restart_first_max: u64,
    /// Distance below the line's highest that rule 1 requires.
    pub restart_back: u64,
    /// Silence of rule 2.
    pub restart_quiet_ns: u64,
}

impl Default for ArbiterLimits {
    /// 5 ms; 4,096 messages of up to 2,048 bytes; 64 domains of 65,536 remembered sequences.
    fn default() -> Self {
        ArbiterLimits {
            hold_ns: 5_000_000,
            held_messages: 4096,
            message_bytes: 2048,
            reach: 8192,
            memory: 1 << 16,
            domains: 64,
            from_one: false,
            restart_first_max: 32,
            restart_back: 64,
            restart_quiet_ns: 1_000_000_000,
        }
    }
}

/// Reason that a gap was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GapCause {
    /// The message after it was held for [`ArbiterLimits::hold_ns`].
    Expired,
    /// The reorder buffer was full, or the next message beyond its reach.
    Overflow,
    /// The domain had two more restarts, or the arbiter was finished.
    Closed,
}

/// Output of an [`Arbiter`], in order per domain and epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArbiterDelivery<'a> {
    /// The next message.
    Message {
        /// Line that carried it first.
        line: FeedLine,
        domain: SequenceDomain,
        /// Earlier restarts of the domain.
        epoch: u32,
        sequence: u64,
        /// Time at which it was offered; in the past if it was held.
        arrived_ns: u64,
        message: &'a [u8],
    },
    /// The next messages are missing and will not be delivered.
    Gap {
        /// Domain of the messages.
        domain: SequenceDomain,
        /// Earlier restarts of the domain.
        epoch: u32,
        /// First missing sequence.
        first: u64,
        count: u64,
        cause: GapCause,
    },
}

/// Outcome of an offered message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageArrival {
    /// Delivered at once.
    Delivered,
    /// Held until the messages before it arrive or time out.
    Held,
    /// Duplicate of another line.
    Copy,
    /// Duplicate of this line.
    Repeat,
    /// After its gap timed out, or below the first sequence.
    Late,
    /// Too far back to classify.
    Forgotten,
    /// More domains than [`ArbiterLimits::domains`], or a sequence above [`SEQUENCE_MAX`].
    Refused,
}

/// Missing messages of a domain that follow one another: a gap that is open, or a closed one in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenGap {
    /// Domain that misses them.
    pub domain: SequenceDomain,
    /// First missing sequence.
    pub first: u64,
    pub count: u64,
}

/// Delivers the union of redundant lines, each message once, in order per domain.
///
/// Times are nanoseconds of one monotonic clock. After [`Arbiter::new`] the only allocation is the
/// memory of a domain, when it is first received or [prepared](Arbiter::prepare).
#[derive(Debug)]
pub struct Arbiter {
    limits: ArbiterLimits,
    hold: ReorderBuffer,
    index: Index,
    domains: Vec<DomainState>,
    lines: [LineCounts; 3],
    totals: Totals,
    proved: Option<SequenceDomain>,
}

impl Arbiter {
    /// An arbiter before its first message.
    pub fn new(limits: ArbiterLimits) -> Self {
        let reach = limits.reach.clamp(2, 1 << 24).next_power_of_two();
        let memory = limits.memory.clamp(reach, 1 << 26).next_power_of_two();
        let domains = limits.domains.clamp(1, 1 << 16);
        let limits = ArbiterLimits { reach, memory, domains, ..limits };
        Arbiter {
            hold: ReorderBuffer::new(limits.held_messages.max(1), limits.message_bytes),
            index: Index::new(domains),
            domains: Vec::with_capacity(domains as usize),
            lines: Default::default(),
            totals: Totals::default(),
            proved: None,
            limits,
        }
    }

    /// Effective limits, after rounding.
    pub fn limits(&self) -> &ArbiterLimits {
        &self.limits
    }

    /// Allocates a domain before its first message; returns false at the limit of domains.
    pub fn prepare(&mut self, domain: SequenceDomain) -> bool {
        self.domain_at(domain).is_some()
    }

    /// True if the domain has its memory.
    #[inline]
    pub fn has(&self, domain: SequenceDomain) -> bool {
        self.index.get(domain).is_some()
    }

    /// Removes a domain after delivering what is held of it, so that another has its memory.
    pub fn remove(
        &mut self,
        domain: SequenceDomain,
        deliver: &mut impl FnMut(ArbiterDelivery<'_>),
    ) {
        let Some(at) = self.index.get(domain) else { return };
        let mut out = Out { hold: &mut self.hold, totals: &mut self.totals, deliver };
        let state = &mut self.domains[at];
        state.flush(&mut out);
        let book = state.book();
        state.is_free = true;
        self.totals.removed_domains += 1;
        let (span, delivered, missing) = self.totals.removed;
        self.totals.removed = (
            span.saturating_add(book.span),
            delivered + book.delivered,
            missing.saturating_add(book.missing),
        );
        let known = self.domains.iter().enumerate().filter(|(_, state)| !state.is_free);
        self.index.rebuild(known.map(|(at, state)| (state.domain(), at)));
    }

    /// The domain that has proved itself since the last call, by messages in sequence.
    #[inline]
    pub fn take_proved(&mut self) -> Option<SequenceDomain> {
        self.proved.take()
    }

    /// Offers one message of one line, at `now_ns`.
    ///
    /// Gaps that have timed out are closed first; then this message is delivered, held or counted.
    /// `deliver` may be called any number of times.
    pub fn offer(
        &mut self,
        line: FeedLine,
        domain: SequenceDomain,
        sequence: u64,
        now_ns: u64,
        message: &[u8],
        deliver: &mut impl FnMut(ArbiterDelivery<'_>),
    ) -> MessageArrival {
        self.tick(now_ns, deliver);
        self.lines[line as usize].received += 1;
        let known = if sequence > SEQUENCE_MAX { None } else { self.domain_at(domain) };
        let Some(at) = known else {
            self.lines[line as usize].refused += 1;
            return MessageArrival::Refused;
        };
        let state = &mut self.domains[at];
        let which = state.which(line, sequence, now_ns, &self.limits);
        let mut out = Out { hold: &mut self.hold, totals: &mut self.totals, deliver };
        let side = state.enter(line, sequence, now_ns, which, &mut out);
        let class = state.tracks[side].classify(line, sequence);
        let reordered = state.note(line, sequence, side, now_ns);
        if class == Class::Fresh && line != FeedLine::Recovery && state.proves() {
            self.proved = Some(domain);
        }
        let counts = &mut self.lines[line as usize];
        if reordered && matches!(class, Class::Fresh | Class::Copy | Class::Late) {
            counts.reordered += 1;
        }
        match class {
            Class::Repeat => counts.repeats += 1,
            Class::Copy => counts.copies += 1,
            Class::Late => counts.late += 1,
            Class::Forgotten => counts.forgotten += 1,
            Class::Fresh => counts.first += 1,
        }
        match class {
            Class::Repeat => MessageArrival::Repeat,
            Class::Copy => MessageArrival::Copy,
            Class::Late => MessageArrival::Late,
            Class::Forgotten => MessageArrival::Forgotten,
            Class::Fresh => self.place(line, at, side, sequence, now_ns, message, deliver),
        }
    }

    /// Closes gaps that have timed out by `now_ns`. Call it at [`Arbiter::deadline_ns`] if nothing
    /// arrives.
    #[inline]
    pub fn tick(&mut self, now_ns: u64, deliver: &mut impl FnMut(ArbiterDelivery<'_>)) {
        while let Some(&oldest) = self.hold.oldest() {
            if now_ns.saturating_sub(oldest.arrived_ns) < self.limits.hold_ns {
                break;
            }
            let mut out = Out { hold: &mut self.hold, totals: &mut self.totals, deliver };
            self.domains[oldest.domain as usize].tracks[usize::from(oldest.side)].release_through(
                oldest.sequence,
                GapCause::Expired,
                &mut out,
            );
        }
    }

    /// Time at which [`Arbiter::tick`] closes the next gap; `None` while nothing is held.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.hold.oldest().map(|oldest| oldest.arrived_ns.saturating_add(self.limits.hold_ns))
    }

    /// Closes all gaps and delivers all held messages. The arbiter remains usable.
    pub fn finish(&mut self, deliver: &mut impl FnMut(ArbiterDelivery<'_>)) {
        let mut out = Out { hold: &mut self.hold, totals: &mut self.totals, deliver };
        for state in &mut self.domains {
            state.flush(&mut out);
        }
    }

    /// Open gaps by domain and sequence, for retransmission requests.
    pub fn open_gaps(&self, mut each: impl FnMut(OpenGap)) {
        if self.hold.is_empty() {
            return;
        }
        for state in &self.domains {
            state.current().open_gaps(&mut each);
        }
    }

    /// Counters of a line.
    pub fn line(&self, line: FeedLine) -> &LineCounts {
        &self.lines[line as usize]
    }

    /// Delivered messages that `line` did not carry.
    pub fn filled_by_others(&self, line: FeedLine) -> u64 {
        let first: u64 = self.lines.iter().map(|counts| counts.first).sum();
        let own = self.line(line);
        first - own.first - own.copies
    }

    /// Counters of all lines together.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Messages held now.
    pub fn held(&self) -> u64 {
        self.hold.len()
    }

    /// Accounting of every domain, in order of first arrival.
    pub fn books(&self) -> impl Iterator<Item = DomainStats> + '_ {
        self.domains.iter().filter(|state| !state.is_free).map(DomainState::book)
    }

    /// True if all counts add up: messages of every line, and the span of every domain.
    pub fn balances(&self) -> bool {
        let first: u64 = self.lines.iter().map(|counts| counts.first).sum();
        let (span, delivered, missing) = self.totals.removed;
        let sum = |of: fn(&DomainStats) -> u64| {
            self.books().map(|book| of(&book)).fold(0, u64::saturating_add)
        };
        self.lines.iter().all(LineCounts::balances)
            && self.books().all(|book| book.balances())
            && delivered.saturating_add(missing) == span
            && first == self.totals.delivered + self.held()
            && sum(|book| book.delivered) + delivered == self.totals.delivered
            && sum(|book| book.missing).saturating_add(missing) == self.totals.missing
    }

    #[inline]
    fn domain_at(&mut self, domain: SequenceDomain) -> Option<usize> {
        if let Some(at) = self.index.get(domain) {
            return Some(at);
        }
        self.begin_domain(domain)
    }

    #[cold]
    fn begin_domain(&mut self, domain: SequenceDomain) -> Option<usize> {
        let free = self.domains.iter().position(|state| state.is_free);
        let at = free.unwrap_or(self.domains.len());
        if at == self.limits.domains as usize {
            return None;
        }
        self.index.insert(domain, at);
        match free {
            Some(at) => self.domains[at].begin_again(domain),
            None => self.domains.push(DomainState::new(domain, at as u32, &self.limits)),
        }
        Some(at)
    }

    /// Delivers or holds a message that is not a duplicate.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "one call, its arguments are the message's")]
    fn place(
        &mut self,
        line: FeedLine,
        at: usize,
        side: usize,
        sequence: u64,
        now_ns: u64,
        message: &[u8],
        deliver: &mut impl FnMut(ArbiterDelivery<'_>),
    ) -> MessageArrival {
        let mut out = Out { hold: &mut self.hold, totals: &mut self.totals, deliver };
        let track = &mut self.domains[at].tracks[side];
        if !track.is_next(sequence) {
            track.settle_if_one(sequence);
            track.bring_into_reach(sequence, &mut out);
            if !track.is_next(sequence) && message.len() > self.limits.message_bytes as usize {
                track.bring_to(sequence, &mut out);
            }
            if !track.is_next(sequence) && out.hold.is_full() {
                self.make_room(at, side, sequence, deliver);
            }
        }
        let mut out = Out { hold: &mut self.hold, totals: &mut self.totals, deliver };
        let track = &mut self.domains[at].tracks[side];
        if track.is_next(sequence) {
            track.deliver_next(line, now_ns, message, &mut out);
            return MessageArrival::Delivered;
        }
        track.hold(line, sequence, now_ns, message, out.hold);
        self.totals.held += 1;
        self.totals.held_max = self.totals.held_max.max(self.hold.len());
        MessageArrival::Held
    }

    /// Makes space in a full reorder buffer: closes the oldest gap, up to the arriving message.
    #[cold]
    fn make_room(
        &mut self,
        at: usize,
        side: usize,
        sequence: u64,
        deliver: &mut impl FnMut(ArbiterDelivery<'_>),
    ) {
        let Some(&oldest) = self.hold.oldest() else { return };
        self.totals.overflows += 1;
        let (its, its_side) = (oldest.domain as usize, usize::from(oldest.side));
        let mut out = Out { hold: &mut self.hold, totals: &mut self.totals, deliver };
        let track = &mut self.domains[its].tracks[its_side];
        let limit = if (its, its_side) == (at, side) { sequence } else { u64::MAX };
        track.release_gap(limit, GapCause::Overflow, &mut out);
    }
}
