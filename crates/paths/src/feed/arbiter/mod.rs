//! Arbitration of redundant lines: the union of them, each message once, in order.
//!
//! Exchanges send the same telegrams on two lines. A **domain** is what counts its own
//! sequence; per domain the [`Arbiter`] delivers what any line brought, exactly once and in
//! order. A message that comes too early is **held** for a bounded time; then what is missing
//! before it is a **gap**, skipped for good: what of it still comes is counted as late.
//!
//! # When a sequence begins again
//!
//! Domains begin again at 1, daily or every cycle. A message on line A or B begins a new
//! **epoch** of its domain, and is neither duplicate nor late, when one of three rules holds.
//! All look at the highest sequence of *that line* in the domain, never at the other line's:
//!
//! 1. *start*: the sequence is at most [`Limits::restart_first_max`], at least
//!    [`Limits::restart_back`] below the line's highest, and the epoch has lasted longer than
//!    [`Limits::hold_ns`], so that it is no straggler of the epoch's own beginning;
//! 2. *quiet*: the line was silent in the domain for [`Limits::restart_quiet_ns`], and the
//!    sequence is below its highest;
//! 3. *far*: the sequence is further below the line's highest than [`Limits::memory`].
//!
//! By rule 1 the epoch begins at 1, so a lost beginning is a gap; by the others it begins where
//! the domain did: see [`Limits::from_one`]. A line that is still in the epoch before keeps
//! delivering into that one. A cycle that is shorter than `restart_back` and follows without a
//! pause is told from duplicates by nothing, and counts as them.

mod counts;
mod domain;
mod hold;
mod track;

pub use counts::{DomainBook, LineCounts, Totals};

use domain::{DomainState, Index};
use hold::Hold;
use track::{Class, Out};

/// What counts its own sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Domain(pub u64);

impl Domain {
    /// Domain of a TWSE or TPEx telegram: it counts per business and format.
    pub const fn twse(business: u8, format: u8) -> Self {
        Domain((business as u64) << 8 | format as u64)
    }

    /// Domain of a MoldUDP64 session: FNV-1a of its 10 bytes, the same everywhere and for ever.
    pub const fn mold(session: &[u8; 10]) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut at = 0;
        while at < session.len() {
            hash = (hash ^ session[at] as u64).wrapping_mul(0x0100_0000_01b3);
            at += 1;
        }
        Domain(hash)
    }
}

/// Largest sequence that is believed: a million messages a second reach it in nine years.
pub const SEQUENCE_MAX: u64 = 1 << 48;

/// Where a message came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Line {
    /// The first line, or the only one.
    A = 0,
    /// The second line.
    B = 1,
    /// Answers to requests for what is missing; never begins an epoch.
    Recovery = 2,
}

impl Line {
    /// Every line.
    pub const ALL: [Line; 3] = [Line::A, Line::B, Line::Recovery];

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// How much an [`Arbiter`] holds, remembers and waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest that a message waits for what is missing before it.
    pub hold_ns: u64,
    /// Messages held at once, all domains together.
    pub held_messages: u32,
    /// Longest message that can be held; a longer one is delivered at once, and what is missing
    /// before it is a gap.
    pub message_bytes: u32,
    /// How far ahead of the first missing one a message can be held; rounded up to a power of
    /// two.
    pub reach: u32,
    /// Sequences of a domain that are remembered below its highest, so that duplicates are told
    /// from late ones; at least `reach`, rounded up to a power of two.
    pub memory: u32,
    /// Domains; messages of any further one are refused and counted.
    pub domains: u32,
    /// Whether a domain begins at 1. If not, it begins at the lowest sequence heard within
    /// `hold_ns` of the first, as when joining under way.
    pub from_one: bool,
    /// Highest sequence that can begin an epoch by rule 1.
    pub restart_first_max: u64,
    /// How far below the line's highest it must be.
    pub restart_back: u64,
    /// Silence of rule 2.
    pub restart_quiet_ns: u64,
}

impl Default for Limits {
    /// 5 ms; 4,096 messages of up to 2,048 bytes; 64 domains of 65,536 remembered sequences.
    fn default() -> Self {
        Limits {
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

/// Why a gap was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GapCause {
    /// What follows it was held for [`Limits::hold_ns`].
    Expired,
    /// There was no room to hold more, or no reach that far ahead.
    Overflow,
    /// The domain had two more restarts, or the arbiter was finished.
    Closed,
}

/// What an [`Arbiter`] has to say, in order per domain and epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery<'a> {
    /// The next message.
    Message {
        /// Line that brought it first.
        line: Line,
        /// Its domain.
        domain: Domain,
        /// Restarts of the domain before it.
        epoch: u32,
        /// Its sequence.
        sequence: u64,
        /// When it was offered; before now if it was held.
        arrived_ns: u64,
        /// The message as it was offered.
        message: &'a [u8],
    },
    /// The next messages are missing and will not be delivered.
    Gap {
        /// Domain that misses them.
        domain: Domain,
        /// Restarts of the domain before them.
        epoch: u32,
        /// Sequence of the first.
        first: u64,
        /// How many.
        count: u64,
        /// Why no longer waited for.
        cause: GapCause,
    },
}

/// What became of an offered message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arrival {
    /// Delivered at once.
    Delivered,
    /// Held until what is missing before it comes or is given up.
    Held,
    /// Another line brought it before.
    Copy,
    /// This line brought it before.
    Repeat,
    /// It was given up before, or is of before the beginning.
    Late,
    /// Too far back to know.
    Forgotten,
    /// Its domain is one more than [`Limits::domains`], or its sequence is above
    /// [`SEQUENCE_MAX`].
    Refused,
}

/// A gap that is still waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenGap {
    /// Domain that misses them.
    pub domain: Domain,
    /// Sequence of the first.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// Delivers the union of redundant lines, each message once, in order per domain.
///
/// Times are nanoseconds of any one clock that never goes back. Nothing is allocated after
/// [`Arbiter::new`] but the memory of a domain, once, when it is first heard or
/// [prepared](Arbiter::prepare).
#[derive(Debug)]
pub struct Arbiter {
    limits: Limits,
    hold: Hold,
    index: Index,
    domains: Vec<DomainState>,
    lines: [LineCounts; 3],
    totals: Totals,
}

impl Arbiter {
    /// An arbiter that has heard nothing.
    pub fn new(limits: Limits) -> Self {
        let reach = limits.reach.clamp(2, 1 << 24).next_power_of_two();
        let memory = limits.memory.clamp(reach, 1 << 26).next_power_of_two();
        let domains = limits.domains.clamp(1, 1 << 16);
        let limits = Limits { reach, memory, domains, ..limits };
        Arbiter {
            hold: Hold::new(limits.held_messages.max(1), limits.message_bytes),
            index: Index::new(domains),
            domains: Vec::with_capacity(domains as usize),
            lines: Default::default(),
            totals: Totals::default(),
            limits,
        }
    }

    /// The limits in force, rounded as their descriptions say.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Makes room for a domain before its first message; false when there are too many.
    pub fn prepare(&mut self, domain: Domain) -> bool {
        self.domain_at(domain).is_some()
    }

    /// One message of one line, at `now_ns`.
    ///
    /// What was held too long by then is given up first; then this message is delivered, held
    /// or counted. `deliver` may be called any number of times.
    pub fn offer(
        &mut self,
        line: Line,
        domain: Domain,
        sequence: u64,
        now_ns: u64,
        message: &[u8],
        deliver: &mut impl FnMut(Delivery<'_>),
    ) -> Arrival {
        self.tick(now_ns, deliver);
        self.lines[line as usize].received += 1;
        let known = if sequence > SEQUENCE_MAX { None } else { self.domain_at(domain) };
        let Some(at) = known else {
            self.lines[line as usize].refused += 1;
            return Arrival::Refused;
        };
        let state = &mut self.domains[at];
        let which = state.which(line, sequence, now_ns, &self.limits);
        let mut out = Out { hold: &mut self.hold, totals: &mut self.totals, deliver };
        let side = state.enter(line, sequence, now_ns, which, &mut out);
        let class = state.tracks[side].classify(line, sequence);
        let reordered = state.note(line, sequence, side, now_ns);
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
            Class::Repeat => Arrival::Repeat,
            Class::Copy => Arrival::Copy,
            Class::Late => Arrival::Late,
            Class::Forgotten => Arrival::Forgotten,
            Class::Fresh => self.place(line, at, side, sequence, now_ns, message, deliver),
        }
    }

    /// Gives up what was held for too long by `now_ns`. To be called when nothing arrives, at
    /// [`Arbiter::deadline_ns`].
    #[inline]
    pub fn tick(&mut self, now_ns: u64, deliver: &mut impl FnMut(Delivery<'_>)) {
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

    /// When [`Arbiter::tick`] has something to give up; `None` while nothing is held.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.hold.oldest().map(|oldest| oldest.arrived_ns.saturating_add(self.limits.hold_ns))
    }

    /// Delivers all that is held; what is missing before it is given up. The arbiter can be
    /// used on.
    pub fn finish(&mut self, deliver: &mut impl FnMut(Delivery<'_>)) {
        let mut out = Out { hold: &mut self.hold, totals: &mut self.totals, deliver };
        for state in &mut self.domains {
            state.flush(&mut out);
        }
    }

    /// Gaps that are waited for, by domain and sequence: what a recovery asks for.
    pub fn open_gaps(&self, mut each: impl FnMut(OpenGap)) {
        if self.hold.is_empty() {
            return;
        }
        for state in &self.domains {
            state.current().open_gaps(&mut each);
        }
    }

    /// What a line brought.
    pub fn line(&self, line: Line) -> &LineCounts {
        &self.lines[line as usize]
    }

    /// Messages that were delivered and that `line` has not brought: the others filled in.
    pub fn filled_by_others(&self, line: Line) -> u64 {
        let first: u64 = self.lines.iter().map(|counts| counts.first).sum();
        let own = self.line(line);
        first - own.first - own.copies
    }

    /// What became of all lines together.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Messages that are held now.
    pub fn held(&self) -> u64 {
        self.hold.len()
    }

    /// The book of every domain, in the order in which they were first heard.
    pub fn books(&self) -> impl Iterator<Item = DomainBook> + '_ {
        self.domains.iter().map(DomainState::book)
    }

    /// Whether all counts add up: what every line brought, and every domain's span.
    pub fn balances(&self) -> bool {
        let first: u64 = self.lines.iter().map(|counts| counts.first).sum();
        self.lines.iter().all(LineCounts::balances)
            && self.books().all(|book| book.balances())
            && first == self.totals.delivered + self.held()
            && self.books().map(|book| book.delivered).sum::<u64>() == self.totals.delivered
            && self.books().map(|book| book.missing).sum::<u64>() == self.totals.missing
    }

    #[inline]
    fn domain_at(&mut self, domain: Domain) -> Option<usize> {
        if let Some(at) = self.index.get(domain) {
            return Some(at);
        }
        let at = self.domains.len();
        if at == self.limits.domains as usize {
            return None;
        }
        self.index.insert(domain, at);
        self.domains.push(DomainState::new(domain, at as u32, &self.limits));
        Some(at)
    }

    /// Delivers or holds a message that no line brought before.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "one call, its arguments are the message's")]
    fn place(
        &mut self,
        line: Line,
        at: usize,
        side: usize,
        sequence: u64,
        now_ns: u64,
        message: &[u8],
        deliver: &mut impl FnMut(Delivery<'_>),
    ) -> Arrival {
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
            return Arrival::Delivered;
        }
        track.hold(line, sequence, now_ns, message, out.hold);
        self.totals.held += 1;
        self.totals.held_max = self.totals.held_max.max(self.hold.len());
        Arrival::Held
    }

    /// The hold is full: the oldest gap is given up, but not past the message that has come.
    #[cold]
    fn make_room(
        &mut self,
        at: usize,
        side: usize,
        sequence: u64,
        deliver: &mut impl FnMut(Delivery<'_>),
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
