//! Processing of a datagram: decoding, arbitration, order books, latency.

use std::net::{IpAddr, Ipv4Addr};

use host::slots::{SlotAdmission, Slots};
use market::twse::Telegrams;
use market::{itch, mold};

use super::content::{Content, Present};
use super::interval::{Counts, GapList, LineStats, ListenInterval, TopRow};
use super::line::LineTrack;
use crate::arbiter::{Arbiter, ArbiterDelivery, ArbiterLimits, FeedLine, OpenGap, SequenceDomain};
use crate::books::{BooksCapacity, BooksReport, BooksShown, FeedBooks, LOCATES};
use crate::late::Now;
use crate::messages::{self, Digest};
use crate::protocol::{Protocol, ProtocolEvidence, evidence};
use crate::quality::Quality;
use crate::relative_latency::Base;
use crate::symbols::Update;

/// Number of message types counted separately: formats of telegrams, letters of ITCH.
const KINDS: usize = 256;

/// Settings of a core.
#[derive(Debug, Clone, Copy)]
pub(super) struct CorePlan {
    /// `None`: that of the first datagram that proves one.
    pub(super) protocol: Option<Protocol>,
    pub(super) limits: ArbiterLimits,
    pub(super) line_count: usize,
    pub(super) books: BooksCapacity,
    /// Books of the last interval.
    pub(super) shown: Option<BooksShown>,
    pub(super) digests: bool,
    /// Missing messages are requested.
    pub(super) recovers: bool,
    pub(super) measures_quality: bool,
    pub(super) late: Option<std::time::Duration>,
}

/// State of a line outside the arbiter.
#[derive(Debug)]
pub(super) struct LineState {
    pub(super) track: LineTrack,
    pub(super) book: LineStats,
    /// Time of its last datagram, CLOCK_MONOTONIC.
    pub(super) heard_ns: Option<u64>,
}

/// Consumer of delivered messages.
#[derive(Debug)]
pub(super) struct Sink {
    protocol: Protocol,
    pub(super) books: FeedBooks,
    pub(super) kinds: Box<[u64; KINDS]>,
    pub(super) undecoded: u64,
    pub(super) digests: Option<Vec<(SequenceDomain, Digest)>>,
    pub(super) has_ended: bool,
    gaps: GapList,
    /// CLOCK_REALTIME of the delivery in progress.
    real_ns: u64,
    base: Base,
}

/// A session of MoldUDP64.
#[derive(Debug)]
pub(super) struct SessionState {
    pub(super) session: mold::MoldSession,
    pub(super) domain: SequenceDomain,
    /// One past the last message sent by the server, from any packet header.
    pub(super) next_sequence: u64,
    pub(super) has_ended: bool,
}

#[derive(Debug)]
pub(super) struct Core {
    /// `None` until it is known.
    pub(super) protocol: Option<Protocol>,
    pub(super) arbiter: Arbiter,
    /// The arbiter's domains, by sender: each invented session of MoldUDP64 is one, and so is each format of telegrams.
    domains: Slots<SequenceDomain, IpAddr, ()>,
    pub(super) sink: Sink,
    pub(super) lines: Vec<LineState>,
    pub(super) interval: Box<ListenInterval>,
    pub(super) sessions: Vec<SessionState>,
    /// Sequences received on lines while recovery is active.
    pub(super) brought: Vec<u64>,
    pub(super) wants_brought: bool,
    /// Counted only for a report.
    pub(super) quality: Option<Box<Quality>>,
    /// Packets of MoldUDP64 with messages and the sequence 0, which numbers nothing.
    unnumbered: u64,
    /// Time from which a datagram is late; `u64::MAX` if none is.
    late_ns: u64,
    /// CLOCK_REALTIME of the last datagram.
    read_ns: u64,
    shown: Option<BooksShown>,
    has_noted_books: bool,
    has_noted_orders: bool,
}

impl Sink {
    pub(super) fn new(protocol: Protocol, books: FeedBooks, has_digests: bool) -> Self {
        Sink {
            protocol,
            books,
            kinds: Box::new([0; KINDS]),
            undecoded: 0,
            digests: has_digests.then(Vec::new),
            has_ended: false,
            gaps: GapList::default(),
            real_ns: 0,
            base: Base::default(),
        }
    }

    /// Takes a delivered message. The one in hand is decoded already; one that was held is a copy, and is
    /// decoded here.
    fn deliver(
        &mut self,
        delivery: ArbiterDelivery<'_>,
        interval: &mut ListenInterval,
        quality: Option<&mut Quality>,
        present: Option<&Present<'_>>,
    ) {
        let (domain, epoch, sequence, message) = match delivery {
            ArbiterDelivery::Message { domain, epoch, sequence, message, .. } => {
                (domain, epoch, sequence, message)
            }
            ArbiterDelivery::Gap { domain, first, count, .. } => {
                return self.gaps.add(OpenGap { domain, first, count });
            }
        };
        self.digest(domain, sequence, message);
        let content = match present {
            Some(present) if std::ptr::eq(present.bytes, message) => present.content,
            _ => Content::decode(self.protocol, message),
        };
        let Some(content) = content else {
            self.undecoded += 1;
            return;
        };
        let instrument = self.keep(domain, epoch, &content);
        if let Some(matched_ns) = content.matched_ns() {
            let difference = self.base.difference_ns(self.real_ns, matched_ns);
            interval.match_to_app[2].record(difference);
            if let (Some(quality), Some(number)) = (quality, instrument) {
                quality.instruments.add(number, difference);
                if let Content::Itch(itch::Message {
                    body: itch::Body::StockDirectory(stock),
                    ..
                }) = content
                {
                    quality.instruments.name(number, stock.stock.to_bytes());
                }
            }
        }
    }

    /// Counts a message and updates its book; returns the number of its instrument.
    #[inline]
    fn keep(&mut self, domain: SequenceDomain, epoch: u32, content: &Content<'_>) -> Option<u32> {
        match content {
            Content::Twse(telegram) => {
                self.kinds[usize::from(telegram.format())] += 1;
                match self.books.telegram(telegram) {
                    Update::Applied(book) => return Some(book),
                    Update::EndOfFeed => self.has_ended = true,
                    Update::Ignored | Update::Full => {}
                }
                None
            }
            Content::Itch(message) => {
                self.kinds[usize::from(message.kind().to_wire())] += 1;
                self.books.message(domain, epoch, message);
                // 0 is a message about no instrument.
                (message.locate > 0).then_some(message.locate.into())
            }
        }
    }

    fn digest(&mut self, domain: SequenceDomain, sequence: u64, message: &[u8]) {
        let Some(digests) = &mut self.digests else { return };
        let at = digests.iter().position(|(known, _)| *known == domain).unwrap_or_else(|| {
            digests.push((domain, Digest::default()));
            digests.len() - 1
        });
        digests[at].1.add(sequence, message);
    }
}

/// Splits the borrow of the core between the arbiter and its consumer.
macro_rules! delivering {
    ($core:ident, $present:expr, |$arbiter:ident, $deliver:ident| $body:expr) => {{
        let Core { arbiter: $arbiter, sink, interval, quality, .. } = &mut *$core;
        let present: Option<&Present<'_>> = $present;
        let $deliver = &mut |delivery: ArbiterDelivery<'_>| {
            sink.deliver(delivery, interval, quality.as_deref_mut(), present);
        };
        $body
    }};
}

impl Core {
    pub(super) fn new(plan: &CorePlan) -> Self {
        let instruments_max = match plan.protocol {
            Some(Protocol::Twse) => plan.books.books_max,
            Some(Protocol::Mold) => LOCATES,
            None => plan.books.books_max.max(LOCATES),
        };
        let books = FeedBooks::new(plan.books);
        let arbiter = Arbiter::new(plan.limits);
        let domain_count = arbiter.limits().domains as usize;
        Core {
            protocol: plan.protocol,
            arbiter,
            // A quarter is left to newcomers.
            domains: Slots::new(domain_count, domain_count - domain_count / 4),
            sink: Sink::new(plan.protocol.unwrap_or(Protocol::Twse), books, plan.digests),
            lines: (0..plan.line_count)
                .map(|_| LineState {
                    track: LineTrack::with_room(plan.limits.domains),
                    book: LineStats::default(),
                    heard_ns: None,
                })
                .collect(),
            interval: Box::default(),
            sessions: Vec::new(),
            brought: Vec::with_capacity(1024),
            wants_brought: plan.recovers,
            quality: plan.measures_quality.then(|| Box::new(Quality::new(instruments_max))),
            unnumbered: 0,
            late_ns: plan.late.map_or(u64::MAX, |late| late.as_nanos() as u64),
            read_ns: 0,
            shown: plan.shown,
            has_noted_books: false,
            has_noted_orders: false,
        }
    }

    /// Counts since the start.
    ///
    /// - `of_line`: completes the figures of a line with those of its receiver.
    pub(super) fn counts(
        &self,
        of_line: impl Fn(usize, LineStats) -> LineStats,
        recovery: Option<crate::recovery::Counts>,
    ) -> Counts {
        let lines = self.lines.iter().zip([FeedLine::A, FeedLine::B]).enumerate();
        let lines = lines.map(|(at, (state, line))| {
            let (expected, brought) = state.track.sums();
            let counts = *self.arbiter.line(line);
            of_line(at, LineStats { expected, brought, counts, ..state.book })
        });
        Counts {
            lines: lines.collect(),
            totals: *self.arbiter.totals(),
            recovery_line: *self.arbiter.line(FeedLine::Recovery),
            domains: self.arbiter.books().collect(),
            sessions: (self.sessions.iter())
                .map(|state| (state.domain, state.session.to_string()))
                .collect(),
            is_balanced: self.arbiter.balances(),
            kinds: self.kinds(),
            books: self.sink.books.book_count(),
            books_refused: self.sink.books.refused_count(),
            undecoded: self.sink.undecoded,
            recovery,
            missing_at_end: self.missing_at_end(),
            sessions_ended: self.sessions.iter().filter(|state| state.has_ended).count() as u64,
            digests: (self.sink.digests.iter().flatten())
                .map(|(domain, digest)| (*domain, digest.to_string()))
                .collect(),
            has_ended: self.sink.has_ended,
            gaps: self.sink.gaps.clone(),
        }
    }

    /// Ends the run: delivers what is held and passes the quality on with the last interval.
    pub(super) fn close(&mut self, now: Now) {
        self.finish(now);
        if self.unnumbered > 0 {
            self.interval.notes.push(format!(
                "{} packets have the sequence 0, as in historical files: their messages are not numbered, so \
                 losses, copies and repeats are not known",
                self.unnumbered
            ));
        }
        self.interval.books = self.shown.map(|shown| {
            Box::new(BooksReport::new(&self.sink.books, shown, |domain| self.session_name(domain)))
        });
        let Some(mut quality) = self.quality.take() else { return };
        quality.finish();
        for (number, book) in (0..).zip(self.sink.books.symbols.books()) {
            let mut name = [b' '; 8];
            name[..6].copy_from_slice(&book.symbol.to_bytes());
            quality.instruments.name(number, name);
        }
        self.interval.quality = Some(quality);
    }

    fn session_name(&self, domain: SequenceDomain) -> String {
        let session = self.sessions.iter().find(|state| state.domain == domain);
        session.map_or_else(|| messages::domain_name(domain), |state| state.session.to_string())
    }

    /// Notes once each that there is no space for more books or orders.
    pub(super) fn note_capacity(&mut self) {
        let books = &self.sink.books;
        if !self.has_noted_books && books.refused_count() > 0 {
            self.has_noted_books = true;
            self.interval.notes.push(format!(
                "no space for a book more than {}: messages of further instruments are not kept (raise --symbols)",
                books.book_count()
            ));
        }
        let orders = books.orders.as_ref().map(|orders| orders.counts()).unwrap_or_default();
        if !self.has_noted_orders && orders.orders_refused > 0 {
            self.has_noted_orders = true;
            self.interval.notes.push(format!(
                "no space for an order more than {}: further ones are not kept, and their books are wrong (raise \
                 --orders)",
                orders.live
            ));
        }
    }

    /// Counts datagrams of a line that were not recognised as of the protocol.
    pub(super) fn skip(&mut self, line: FeedLine, count: u64) {
        let book = &mut self.lines[line as usize].book;
        book.datagrams += count;
        book.malformed += count;
    }

    /// Processes a datagram of a line.
    ///
    /// - `from`: its sender.
    pub(super) fn datagram(
        &mut self,
        line: FeedLine,
        from: Ipv4Addr,
        payload: &[u8],
        stamp_ns: Option<u64>,
        now: Now,
    ) {
        let Now { monotonic_ns: now_ns, real_ns } = now;
        self.sink.real_ns = real_ns;
        let arrived_ns = stamp_ns.unwrap_or(real_ns);
        let at = line as usize;
        let state = &mut self.lines[at];
        state.heard_ns = Some(now_ns);
        state.book.datagrams += 1;
        state.book.payload_bytes += payload.len() as u64;
        match stamp_ns {
            Some(stamp_ns) => {
                let waited_ns = real_ns.saturating_sub(stamp_ns);
                self.interval.kernel_to_app[at].saturating_record(waited_ns);
                self.interval.late.note(self.late_ns, stamp_ns, now, self.read_ns > stamp_ns);
            }
            None => state.book.unstamped += 1,
        }
        self.read_ns = real_ns;
        let (mut count, mut malformed) = (0, 0);
        match self.protocol.or_else(|| self.detect(payload)) {
            None => malformed += 1,
            Some(Protocol::Twse) => {
                self.sink.books.symbols.prefetch(payload);
                for telegram in Telegrams::new(payload) {
                    let Ok(telegram) = telegram else {
                        malformed += 1;
                        continue;
                    };
                    count += 1;
                    let domain = messages::telegram_domain(&telegram);
                    let sequence = telegram.sequence().into();
                    let content = Some(Content::Twse(telegram));
                    let present = Present { bytes: telegram.bytes(), content, arrived_ns };
                    self.admit(domain, from);
                    self.offer(line, domain, sequence, now_ns, &present);
                }
            }
            Some(Protocol::Mold) => match mold::MoldPacket::parse(payload) {
                Ok(packet) => {
                    let header = packet.header();
                    self.unnumbered +=
                        u64::from(header.sequence == 0 && header.message_count() > 0);
                    let domain = self.session(&header, from);
                    if let Some(orders) = &self.sink.books.orders {
                        orders.prefetch(domain, packet.messages().flatten().map(|m| m.bytes));
                    }
                    for message in packet.messages() {
                        let Ok(mold::Message { sequence, bytes, .. }) = message else {
                            malformed += 1;
                            continue;
                        };
                        count += 1;
                        let content = Content::decode(Protocol::Mold, bytes);
                        let present = Present { bytes, content, arrived_ns };
                        self.offer(line, domain, sequence, now_ns, &present);
                    }
                }
                Err(_) => malformed += 1,
            },
        }
        let book = &mut self.lines[at].book;
        book.malformed += malformed;
        if count > 0 {
            let (low, high) = book.messages_per_datagram.unwrap_or((count, count));
            book.messages_per_datagram = Some((low.min(count), high.max(count)));
        }
    }

    /// The protocol that a datagram proves.
    #[cold]
    fn detect(&mut self, payload: &[u8]) -> Option<Protocol> {
        let ProtocolEvidence::Proof(protocol) = evidence(payload) else { return None };
        self.protocol = Some(protocol);
        self.sink.protocol = protocol;
        Some(protocol)
    }

    /// Gives a domain its place. A new one takes that of another which has proved nothing, if all are taken.
    #[inline]
    fn admit(&mut self, domain: SequenceDomain, from: Ipv4Addr) {
        if !self.arbiter.has(domain) {
            self.admit_new(domain, from);
        }
    }

    #[cold]
    fn admit_new(&mut self, domain: SequenceDomain, from: Ipv4Addr) {
        match self.domains.insert(domain, IpAddr::V4(from).into(), ()) {
            SlotAdmission::Free => {}
            SlotAdmission::Displaced(other, ()) => self.remove(other),
            // The arbiter refuses its messages, and counts them.
            SlotAdmission::Refused(()) => return,
        }
        self.arbiter.prepare(domain);
    }

    /// Removes a domain and all that is kept of it.
    fn remove(&mut self, domain: SequenceDomain) {
        delivering!(self, None, |arbiter, deliver| arbiter.remove(domain, deliver));
        for line in &mut self.lines {
            line.track.remove(domain);
        }
        self.sessions.retain(|state| state.domain != domain);
        self.sink.books.remove(domain);
        if let Some(digests) = &mut self.sink.digests {
            digests.retain(|(known, _)| *known != domain);
        }
        if let Some(quality) = &mut self.quality {
            quality.remove(domain);
        }
    }

    /// The session that recovery asks for: the latest of those that have proved themselves, or the latest of all.
    pub(super) fn recovering_session(&self) -> Option<&SessionState> {
        let mut proved = self.sessions.iter().rev();
        proved.find(|state| self.domains.is_protected(&state.domain)).or(self.sessions.last())
    }

    #[inline]
    fn offer(
        &mut self,
        line: FeedLine,
        domain: SequenceDomain,
        sequence: u64,
        now_ns: u64,
        present: &Present<'_>,
    ) {
        use crate::arbiter::MessageArrival::{Delivered, Held, Late};
        if let Some(matched_ns) = present.content.and_then(|content| content.matched_ns()) {
            // Before arbitration, which may deliver others first; repeats are too rare to matter.
            let difference = self.sink.base.difference_ns(self.sink.real_ns, matched_ns);
            self.interval.match_to_app[line as usize].record(difference);
        }
        let arrival = delivering!(self, Some(present), |arbiter, deliver| {
            arbiter.offer(line, domain, sequence, now_ns, present.bytes, deliver)
        });
        if let Some(proved) = self.arbiter.take_proved() {
            self.domains.prove(&proved);
        }
        let track = &mut self.lines[line as usize].track;
        track.note(domain, sequence, arrival, self.arbiter.limits());
        if let Some(quality) = &mut self.quality {
            quality.arrived(line, domain, sequence, arrival, present.arrived_ns);
        }
        if self.wants_brought && matches!(arrival, Delivered | Held | Late) {
            self.brought.push(sequence);
        }
    }

    /// Processes a retransmission; `None` if it is truncated.
    pub(super) fn answer(&mut self, payload: &[u8]) -> Option<mold::MoldHeader> {
        let packet = mold::MoldPacket::parse(payload).ok()?;
        let header = packet.header();
        if packet.messages().any(|message| message.is_err()) {
            return None;
        }
        let Now { monotonic_ns: now_ns, real_ns } = Now::read();
        self.sink.real_ns = real_ns;
        let domain = SequenceDomain::mold(&header.session.0);
        // A session that no line has carried was never requested.
        if self.sessions.iter().any(|known| known.domain == domain) {
            for message in packet.messages().flatten() {
                delivering!(self, None, |arbiter, deliver| arbiter.offer(
                    FeedLine::Recovery,
                    domain,
                    message.sequence,
                    now_ns,
                    message.bytes,
                    deliver
                ));
            }
        }
        Some(header)
    }

    /// Updates the session from a packet header of a line.
    fn session(&mut self, header: &mold::MoldHeader, from: Ipv4Addr) -> SequenceDomain {
        let domain = SequenceDomain::mold(&header.session.0);
        self.admit(domain, from);
        if !self.arbiter.has(domain) {
            return domain;
        }
        let at = self.sessions.iter().position(|known| known.domain == domain);
        let at = at.unwrap_or_else(|| {
            self.sessions.push(SessionState {
                session: header.session,
                domain,
                next_sequence: 0,
                has_ended: false,
            });
            self.sessions.len() - 1
        });
        let state = &mut self.sessions[at];
        state.next_sequence = state.next_sequence.max(header.next_sequence());
        state.has_ended |= header.is_end_of_session();
        domain
    }

    /// Closes gaps that timed out.
    pub(super) fn tick(&mut self, now: Now) {
        if self.arbiter.held() > 0 {
            self.sink.real_ns = now.real_ns;
            delivering!(self, None, |arbiter, deliver| arbiter.tick(now.monotonic_ns, deliver));
        }
    }

    /// Delivers all held messages.
    fn finish(&mut self, now: Now) {
        self.sink.real_ns = now.real_ns;
        delivering!(self, None, |arbiter, deliver| arbiter.finish(deliver));
    }

    /// Messages announced by packet headers above the highest of each session.
    pub(super) fn missing_at_end(&self) -> u64 {
        self.sessions
            .iter()
            .map(|state: &SessionState| {
                let book = self.arbiter.books().find(|book| book.domain == state.domain);
                let highest = book.and_then(|book| book.highest);
                highest.map_or(0, |highest| state.next_sequence.saturating_sub(highest + 1))
            })
            .sum()
    }

    /// Names and counts of delivered message types.
    pub(super) fn kinds(&self) -> Vec<(String, u64)> {
        let counts = self.sink.kinds.iter().enumerate().filter(|(_, count)| **count > 0);
        let named = counts.map(|(at, count)| match self.sink.protocol {
            Protocol::Twse => (format!("{at:02}"), *count),
            Protocol::Mold => (char::from(at as u8).to_string(), *count),
        });
        named.collect()
    }

    pub(super) fn top(&self, count: usize) -> Vec<TopRow> {
        if count == 0 {
            return Vec::new();
        }
        let FeedBooks { symbols, orders } = &self.sink.books;
        match orders {
            Some(orders) if symbols.books().is_empty() => {
                orders.busiest(count).into_iter().map(TopRow::from).collect()
            }
            _ => symbols.busiest(count).into_iter().map(TopRow::from).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use market::twse::{Business, OtherRepr};

    use super::*;

    #[test]
    fn a_telegram_that_is_delivered_at_once_is_decoded_once() {
        let mut buffer = [0; 64];
        let other =
            OtherRepr { business: Business::Twse, format: 20, version: 1, sequence: 9, body: b"x" };
        let len = other.write(&mut buffer).expect("it fits");
        let content = Content::decode(Protocol::Twse, &buffer[..len]);
        assert!(content.is_some());
        let books = FeedBooks::new(BooksCapacity { books_max: 1, orders_max: None });
        let mut sink = Sink::new(Protocol::Twse, books, false);
        let mut interval = ListenInterval::default();
        // Bytes that cannot be decoded: only a second decoding would find out.
        let bytes = &[0_u8; 8][..];
        let mut deliver = |message: &[u8], sink: &mut Sink| {
            let (line, domain, epoch) = (FeedLine::A, SequenceDomain::twse(1, 20), 0);
            let (sequence, arrived_ns) = (9, 0);
            let delivery =
                ArbiterDelivery::Message { line, domain, epoch, sequence, arrived_ns, message };
            let present = Present { bytes, content, arrived_ns };
            sink.deliver(delivery, &mut interval, None, Some(&present));
        };
        deliver(bytes, &mut sink);
        assert_eq!((sink.kinds[20], sink.undecoded), (1, 0));
        // A copy of it, such as one that was held, is another message.
        let copy = bytes.to_vec();
        deliver(&copy, &mut sink);
        assert_eq!((sink.kinds[20], sink.undecoded), (1, 1));
    }
}
