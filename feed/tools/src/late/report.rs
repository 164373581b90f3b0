//! Late datagrams by cause.

use host::interruptions::{Cause, CauseKind, Tallies};
use report::page::SummaryTable;
use report::units;
use serde::Serialize;

use super::{LateDatagram, LateList, Note};
use crate::listen::{count, table, time};

/// Late datagrams since the start.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LateReport {
    over_ns: u64,
    by_cause: Tallies,
    beyond_count: u64,
    lost_count: u64,
}

/// Datagrams that were late between the kernel and the application.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct LateDocument {
    over_ns: u64,
    count: u64,
    /// Late ones that were too many to be explained; part of `count`.
    beyond_count: u64,
    /// Kernel events that came too fast to be traced.
    lost_count: u64,
    /// Most frequent first.
    causes: Vec<LateCause>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LateCause {
    cause: CauseKind,
    /// Interrupt, softirq or task; empty if it has none.
    detail: String,
    count: u64,
    max_ns: u64,
}

impl LateReport {
    /// - `over_ns`: time from which a datagram is late.
    pub fn new(over_ns: u64) -> Self {
        LateReport { over_ns, ..LateReport::default() }
    }

    /// Adds the late ones of an interval.
    ///
    /// - `lost_count`: events that the trace has missed since the start.
    pub fn add(
        &mut self,
        late: &LateList,
        lost_count: u64,
        mut cause: impl FnMut(&LateDatagram) -> Cause,
    ) {
        for datagram in &late.datagrams {
            self.by_cause.add(cause(datagram), datagram.delay.end_ns - datagram.delay.begin_ns);
        }
        self.beyond_count += late.beyond_count;
        self.lost_count = lost_count;
    }

    /// Adds a note of a recording.
    pub(crate) fn add_note(&mut self, note: Note) {
        match note {
            Note::Over { over_ns, .. } => self.over_ns = over_ns,
            Note::Late { waited_ns, cause, .. } => self.by_cause.add(cause, waited_ns),
            Note::Counts { beyond_count, lost_count, .. } => {
                self.beyond_count = self.beyond_count.saturating_add(beyond_count);
                self.lost_count = self.lost_count.saturating_add(lost_count);
            }
        }
    }

    /// Note that ends a recording.
    pub(crate) fn counts(&self, at_ns: u64) -> Note {
        let LateReport { beyond_count, lost_count, .. } = *self;
        Note::Counts { at_ns, beyond_count, lost_count }
    }

    fn count(&self) -> u64 {
        self.by_cause.total().count.saturating_add(self.beyond_count)
    }

    pub(crate) fn document(&self) -> LateDocument {
        let rows = self.by_cause.rows().into_iter();
        let causes = rows.map(|(cause, tally)| LateCause {
            cause: cause.kind,
            detail: cause.detail.clone(),
            count: tally.count,
            max_ns: tally.max_ns,
        });
        LateDocument {
            over_ns: self.over_ns,
            count: self.count(),
            beyond_count: self.beyond_count,
            lost_count: self.lost_count,
            causes: causes.collect(),
        }
    }

    /// Causes, the most frequent first; no rows if nothing was late.
    pub(crate) fn page_table(&self) -> SummaryTable {
        let mut rows: Vec<Vec<String>> = Vec::new();
        for (cause, tally) in self.by_cause.rows() {
            rows.push(vec![cause.to_string(), count(tally.count), time(tally.max_ns)]);
        }
        if self.beyond_count > 0 {
            rows.push(vec!["not explained".into(), count(self.beyond_count), "–".into()]);
        }
        let mut caption = format!(
            "Datagrams that waited {} or longer between kernel and application, by cause",
            time(self.over_ns)
        );
        if self.lost_count > 0 {
            caption += &format!("; {} not traced", units::plural(self.lost_count, "kernel event"));
        }
        table("Late datagrams", &caption, &["cause", "datagrams", "longest"], 1, rows)
    }

    /// Datagrams by cause, in a line.
    pub(crate) fn text(&self) -> String {
        let causes: Vec<String> = (self.by_cause.rows().iter())
            .map(|(cause, tally)| format!("{} {cause}", tally.count))
            .collect();
        let colon = if causes.is_empty() { "" } else { ": " };
        let mut text =
            format!("{} over {}{colon}{}", self.count(), time(self.over_ns), causes.join(", "));
        if self.beyond_count > 0 {
            text += &format!("; {} too many to be explained", self.beyond_count);
        }
        if self.lost_count > 0 {
            text += &format!("; {} kernel events were lost", self.lost_count);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use host::interruptions::Delay;

    use super::*;

    #[test]
    fn every_late_datagram_has_a_cause_or_is_counted_as_too_many() {
        let mut report = LateReport::new(50_000);
        let late = |end_ns| {
            let delay = Delay { begin_ns: 0, end_ns, is_behind: false };
            LateDatagram { stamp_ns: 7, delay }
        };
        let late = LateList { datagrams: vec![late(60_000), late(90_000)], beyond_count: 4 };
        report.add(&late, 0, |_| Cause::plain(CauseKind::Softirq));
        let document = serde_json::to_value(report.document()).unwrap();
        assert_eq!(document["count"], 6);
        assert_eq!(document["causes"][0]["max_ns"], 90_000);
        assert_eq!(report.text(), "6 over 50.00 µs: 2 softirq; 4 too many to be explained");
        let rows = report.page_table().rows;
        assert_eq!(rows, [["softirq", "2", "90.00 µs"], ["not explained", "4", "–"]]);
        assert!(LateReport::new(50_000).page_table().rows.is_empty());
    }

    #[test]
    fn a_report_of_notes_is_that_of_the_recording() {
        let cause = |kind| Cause { kind, detail: "hog".into() };
        let (mut recorded, mut read) = (LateReport::new(50_000), LateReport::default());
        let mut notes = vec![Note::Over { at_ns: 0, over_ns: 50_000 }];
        for (waited_ns, kind) in [(60_000, CauseKind::Softirq), (90_000, CauseKind::Preemption)] {
            recorded.by_cause.add(cause(kind), waited_ns);
            notes.push(Note::Late { stamp_ns: 0, waited_ns, cause: cause(kind) });
        }
        (recorded.beyond_count, recorded.lost_count) = (4, 2);
        notes.push(recorded.counts(0));
        for note in notes {
            read.add_note(Note::parse(note.to_string().as_bytes()).expect("a note"));
        }
        assert_eq!(read, recorded);
    }
}
