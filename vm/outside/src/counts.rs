use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use sys::bpf::kvm::{KvmEvent, KvmEvents};

use super::kvm::{self, EventSum};
use super::qemu::{Book, CardCounts, LogCounts, Stages};
use super::threads::ThreadCounts;
use super::timeline::{self, Mark};

/// Bits of a character on a serial line: start, eight, stop.
const CHARACTER_BITS: u64 = 10;

/// Counts of QEMU's log.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogPart {
    pub(crate) cards: Vec<CardCounts>,
    pub(crate) counts: LogCounts,
    pub(crate) stages: Option<Stages>,
    pub(crate) marks: Vec<Mark>,
}

/// Counts of KVM's tracepoints.
#[derive(Debug, Clone, Default)]
pub(crate) struct KvmPart {
    pub(crate) events: KvmEvents,
    /// Tracepoints that the kernel lacks.
    pub(crate) absent: Vec<&'static str>,
}

impl KvmPart {
    fn has(&self, tracepoint: &str) -> bool {
        self.absent.iter().all(|absent| *absent != tracepoint)
    }
}

/// Counts of a machine between [`OutsideWatch::begin`](crate::OutsideWatch::begin) and its end.
#[derive(Debug, Clone, Default)]
pub struct OutsideCounts {
    /// Time between begin and end.
    pub wall_ns: u64,
    pub threads: Vec<ThreadCounts>,
    /// Counts that are not available, each with its reason. They are in no figure.
    pub missing: Vec<String>,
    pub(crate) log: Option<LogPart>,
    pub(crate) kvm: Option<KvmPart>,
    pub(crate) baud: u32,
    pub(crate) realtime_ahead_ns: u64,
}

impl OutsideCounts {
    /// Virtio cards in the order in which QEMU made them; `None` without its log.
    pub fn cards(&self) -> Option<&[CardCounts]> {
        Some(&self.log.as_ref()?.cards)
    }

    /// Counts of QEMU's log that belong to no virtio card; `None` without its log.
    pub fn log_counts(&self) -> Option<&LogCounts> {
        Some(&self.log.as_ref()?.counts)
    }

    /// Counts of KVM by thread; `None` without it.
    pub fn kvm_events(&self) -> Option<&KvmEvents> {
        Some(&self.kvm.as_ref()?.events)
    }

    /// Counts and times of one kind of KVM's events by port, address, reason or vector; empty without them.
    pub fn kvm_sums(&self, event: KvmEvent) -> BTreeMap<u64, EventSum> {
        self.kvm_events().map(|events| kvm::by_detail(events, event)).unwrap_or_default()
    }

    /// Frames in both directions over all virtio cards; `None` without a card in QEMU's log.
    pub fn frame_count(&self) -> Option<u64> {
        let cards = self.cards().filter(|cards| !cards.is_empty())?;
        Some(model::total(
            cards
                .iter()
                .flat_map(|card| [card.frames_to_guest_count, card.frames_from_guest_count]),
        ))
    }

    /// All counts and sums by name; the name has the unit. Figures of the second and later cards and virtual CPUs have
    /// their number in the name.
    pub fn figures(&self) -> BTreeMap<String, f64> {
        let mut figures = BTreeMap::new();
        for thread in &self.threads {
            let role = thread.role.name();
            for (what, ns) in [("cpu", thread.cpu_ns), ("wait", thread.wait_ns)] {
                // Threads of one role together.
                *figures.entry(format!("outside_{role}_{what}_ns")).or_insert(0.0) += ns as f64;
            }
        }
        if let Some(log) = &self.log {
            for (at, card) in log.cards.iter().enumerate() {
                add_card(&mut figures, at, card);
            }
            self.add_log_counts(&mut figures, log);
        }
        if let Some(part) = &self.kvm {
            kvm::add_to(&mut figures, &part.events, |tracepoint| part.has(tracepoint));
        }
        figures
    }

    fn add_log_counts(&self, figures: &mut BTreeMap<String, f64>, log: &LogPart) {
        let counts = &log.counts;
        for (name, count) in [
            ("outside_interrupts_count", self.interrupt_count()),
            ("outside_console_characters_count", counts.console_character_count),
            ("outside_pin_rises_count", counts.pin_rise_count),
        ] {
            if let Some(count) = count {
                figures.insert(name.into(), count as f64);
            }
        }
        if let (Some(count), 1..) = (counts.console_character_count, self.baud) {
            let seconds = count.saturating_mul(CHARACTER_BITS) as f64 / f64::from(self.baud);
            figures.insert("outside_console_ns".into(), seconds * 1e9);
        }
    }

    /// Interrupts of the cards as their guest takes them: risings of a line, or messages. `None` if QEMU's log has no card.
    pub fn interrupt_count(&self) -> Option<u64> {
        let log = self.log.as_ref()?;
        match log.cards.len() {
            0 => log.counts.card_interrupt_count,
            // Lines of several cards on the MMIO bus are not told apart.
            1 => log.counts.mmio_interrupt_count.or(Some(log.cards[0].notification_count)),
            _ => Some(model::total(log.cards.iter().map(|card| card.notification_count))),
        }
    }

    /// Stages of frames, nanoseconds, by name; those without a frame are left out.
    pub fn segments(&self) -> BTreeMap<String, Histogram<u64>> {
        let Some(stages) = self.log.as_ref().and_then(|log| log.stages.as_ref()) else {
            return BTreeMap::new();
        };
        [
            ("given_to_doorbell", &stages.given_to_doorbell),
            ("doorbell_to_taken", &stages.doorbell_to_taken),
            ("taken_to_completed", &stages.taken_to_completed),
            ("doorbell_to_completed", &stages.doorbell_to_completed),
            ("taken_to_given", &stages.taken_to_given),
        ]
        .into_iter()
        .filter(|(_, histogram)| !histogram.is_empty())
        .map(|(name, histogram)| (name.to_owned(), histogram.clone()))
        .collect()
    }

    /// The trial as a trace in JSON for <https://ui.perfetto.dev>: its first 20,000 events of QEMU, and 26,000 exits.
    pub fn timeline(&self) -> String {
        let marks = self.log.as_ref().map_or(&[][..], |log| &log.marks);
        let spans = self.kvm_events().map_or(&[][..], |events| &events.spans);
        timeline::trace(marks, spans, self.realtime_ahead_ns)
    }

    /// Enters the log's book, and what it does not have.
    pub(crate) fn take_log(&mut self, book: Book, unread_bytes: u64) {
        let cards = book.cards();
        if cards.is_empty() && book.counts.card_interrupt_count.is_none() {
            self.lacks(
                "doorbells, frames, interrupts, stages: the log has no virtio card; without any event, QEMU was built \
                 without the back end `log` (`-trace help`)",
            );
        } else if cards.is_empty() {
            self.lacks("doorbells, frames, stages: the log has no virtio card");
        } else if !book.has_times {
            self.lacks("stages, timeline: the log has no times; add `-msg timestamp=on`");
        }
        if book.counts.console_character_count.is_none() {
            self.lacks(
                "console characters: the guest wrote to no serial console with trace events",
            );
        }
        if cards.len() > 1 && book.counts.mmio_interrupt_count.is_some() {
            self.lacks(
                "interrupt lines: QEMU's event does not name the card; notifications are counted",
            );
        }
        if unread_bytes > 0 {
            self.lacks(&format!("events in {unread_bytes} bytes of the log after the first 1 GiB"));
        }
        if book.counts.left_out_count > 0 {
            let count = book.counts.left_out_count;
            self.lacks(&format!("{count} events of more queues or buffers than are followed"));
        }
        let stages = book.has_times.then_some(book.stages);
        self.log = Some(LogPart { cards, counts: book.counts, stages, marks: book.marks });
    }

    fn lacks(&mut self, what: &str) {
        self.missing.push(what.to_owned());
    }
}

/// Adds the counts of a card.
///
/// - `at`: its number, in the names of all but the first.
fn add_card(figures: &mut BTreeMap<String, f64>, at: usize, card: &CardCounts) {
    let (prefix, suffix) = match at {
        0 => ("outside".to_owned(), String::new()),
        _ => (format!("outside_card{at}"), format!("_card{at}")),
    };
    for (queue, count) in &card.doorbell_counts {
        figures.insert(format!("{prefix}_doorbells_queue{queue}_count"), *count as f64);
    }
    for (name, count) in [
        ("doorbells", model::total(card.doorbell_counts.values().copied())),
        ("frames_to_guest", card.frames_to_guest_count),
        ("frames_from_guest", card.frames_from_guest_count),
        ("notifications", card.notification_count),
    ] {
        figures.insert(format!("{prefix}_{name}_count"), count as f64);
    }
    // Odd queues send. Source: virtio 1.2, 5.1.2.
    let sending = card.doorbell_counts.iter().filter(|(queue, _)| *queue % 2 == 1);
    let sending = model::total(sending.map(|(_, count)| *count));
    if sending > 0 {
        let frames = card.frames_from_guest_count as f64 / sending as f64;
        figures.insert(format!("frames_per_doorbell{suffix}"), frames);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qemu::LogReader;

    /// Counts of an input of the fuzz target.
    fn counts(input: &[u8]) -> OutsideCounts {
        let mut reader = LogReader::default();
        reader.push(input);
        let mut counts = OutsideCounts { baud: 9600, ..OutsideCounts::default() };
        counts.take_log(reader.book, 0);
        counts
    }

    #[test]
    fn two_cards_are_told_apart_and_a_frame_of_two_buffers_is_one() {
        let counts = counts(include_bytes!("../../fuzz/corpus/qemu_log/two_cards"));
        let [near, far] = counts.cards().unwrap() else { panic!("{counts:?}") };
        assert_eq!((near.frames_to_guest_count, near.buffers_to_guest_count), (1, 2));
        assert_eq!((near.frames_from_guest_count, near.notification_count), (0, 1));
        assert_eq!((far.frames_to_guest_count, far.frames_from_guest_count), (0, 2));
        assert_eq!(far.doorbell_counts, BTreeMap::from([(1, 1)]));
        let figures = counts.figures();
        assert_eq!(figures["outside_frames_to_guest_count"], 1.0);
        assert_eq!(figures["outside_card1_frames_from_guest_count"], 2.0);
        assert_eq!(figures["frames_per_doorbell_card1"], 2.0);
        assert_eq!(figures["outside_interrupts_count"], 2.0);
        let segments = counts.segments();
        assert_eq!(segments["doorbell_to_taken"].max() / 1000, 10);
        assert_eq!(segments["doorbell_to_completed"].max() / 1000, 13);
        // The doorbell is the other card's.
        assert!(!segments.contains_key("given_to_doorbell"));
    }

    #[test]
    fn console_and_cards_of_a_pc_are_counted() {
        let counts = counts(include_bytes!("../../fuzz/corpus/qemu_log/pc"));
        // A write of the divisor is no character.
        assert_eq!(counts.figures()["outside_console_characters_count"], 1.0);
        // One line that rises of an e1000e, a message of it, and a line of a PCnet.
        assert_eq!(counts.interrupt_count(), Some(3));
        assert!(counts.missing.iter().any(|what| what.contains("no virtio card")), "{counts:?}");
        assert_eq!(counts.frame_count(), None);
    }

    #[test]
    fn log_without_times_has_counts_and_no_stages() {
        let counts = counts(include_bytes!("../../fuzz/corpus/qemu_log/without_times"));
        assert!(counts.frame_count() > Some(0) && counts.segments().is_empty(), "{counts:?}");
        assert!(counts.missing.iter().any(|what| what.contains("timestamp=on")), "{counts:?}");
    }
}
