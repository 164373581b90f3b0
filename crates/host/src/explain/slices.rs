//! Times of single packets, and rows on which those of one packet follow each other.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use sys::bpf::explain::{Explain, Point, WAKE_UP};
use sys::bpf::slices::TimedStage;

use super::stages::stage_name;

/// Most slices that are kept; each takes 32 bytes.
pub const SLICES_MAX: usize = 1_000_000;

/// Times of single packets in single stages.
#[derive(Debug, Default)]
pub struct Slices {
    kept: Vec<TimedStage>,
    /// Slices that are missing: more than [`SLICES_MAX`], or more at once than were read.
    pub lost_count: u64,
}

/// The time of one packet in one stage, with its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// As [`super::StageRow::name`].
    pub name: &'static str,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub begin_ns: u64,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub end_ns: u64,
    /// CPU on which it ended.
    pub cpu: u32,
    /// True for the wake-up of a reader, which is a part of its packets' last stage.
    pub is_wake_up: bool,
    /// Row of this packet among those of its kind: no two slices of a row overlap.
    pub row: usize,
}

impl Slices {
    /// Reads what the programs reported since the last call.
    pub(super) fn take_from(&mut self, explain: &mut Explain) {
        explain.drain(&mut self.kept);
        let over = self.kept.len().saturating_sub(SLICES_MAX);
        self.lost_count += over as u64;
        self.kept.truncate(SLICES_MAX);
    }

    /// All of them, in the order in which they begin.
    pub fn in_rows(&self) -> Vec<Slice> {
        let (mut packets, mut wake_ups) = (Rows::default(), Rows::default());
        let mut sorted = self.kept.clone();
        sorted.sort_by_key(|slice| (slice.begin_ns, slice.end_ns));
        let placed = sorted.iter().map(|slice| {
            let is_wake_up = (slice.from, slice.to) == WAKE_UP;
            let rows = if is_wake_up { &mut wake_ups } else { &mut packets };
            Slice {
                name: stage_name(slice.from, slice.to),
                begin_ns: slice.begin_ns,
                end_ns: slice.end_ns,
                cpu: slice.cpu,
                is_wake_up,
                row: rows.place(slice),
            }
        });
        placed.collect()
    }
}

/// Rows, each with one packet at a time.
#[derive(Debug, Default)]
struct Rows {
    /// Where the last slice of each packet ended, with its row; several packets may have one end.
    open: HashMap<(Point, u64), Vec<usize>>,
    /// Ends of the slices so far, soonest first, with their rows.
    ends: BinaryHeap<Reverse<(u64, usize, Point)>>,
    free: BTreeSet<usize>,
    count: usize,
}

impl Rows {
    /// Row of the packet of which this is the next slice, else the first free one. Slices come in the
    /// order in which they begin.
    fn place(&mut self, slice: &TimedStage) -> usize {
        self.release_before(slice.begin_ns);
        let row = match self.take((slice.from, slice.begin_ns)) {
            Some(row) => row,
            None => self.free.pop_first().unwrap_or_else(|| {
                self.count += 1;
                self.count - 1
            }),
        };
        self.open.entry((slice.to, slice.end_ns)).or_default().push(row);
        self.ends.push(Reverse((slice.end_ns, row, slice.to)));
        row
    }

    /// The first packet whose last slice ended there.
    fn take(&mut self, end: (Point, u64)) -> Option<usize> {
        let rows = self.open.get_mut(&end)?;
        let row = (!rows.is_empty()).then(|| rows.remove(0));
        if rows.is_empty() {
            self.open.remove(&end);
        }
        row
    }

    /// Frees the rows of packets that ended before: no slice continues them.
    fn release_before(&mut self, now_ns: u64) {
        while let Some(Reverse((end_ns, row, at))) = self.ends.peek().copied()
            && end_ns < now_ns
        {
            self.ends.pop();
            let Some(rows) = self.open.get_mut(&(at, end_ns)) else { continue };
            let Some(place) = rows.iter().position(|open| *open == row) else { continue };
            rows.remove(place);
            if rows.is_empty() {
                self.open.remove(&(at, end_ns));
            }
            self.free.insert(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept_slices(slices: &[(u64, u64, Point, Point)]) -> Slices {
        let kept = slices.iter().map(|(begin_ns, end_ns, from, to)| TimedStage {
            begin_ns: *begin_ns,
            end_ns: *end_ns,
            from: *from,
            to: *to,
            cpu: 0,
        });
        Slices { kept: kept.collect(), lost_count: 0 }
    }

    fn rows(slices: &Slices) -> Vec<(u64, usize)> {
        slices.in_rows().iter().map(|slice| (slice.begin_ns, slice.row)).collect()
    }

    #[test]
    fn slices_of_a_packet_share_a_row_and_packets_at_the_same_time_do_not() {
        use Point::{InBacklog, Read, Ready, Received};
        // Out of order, as two CPUs report them.
        let slices = kept_slices(&[
            (10, 20, InBacklog, Received),
            (20, 30, Received, Ready),
            (15, 20, InBacklog, Received),
            (30, 90, Ready, Read),
            (20, 25, Received, Ready),
            // Begins where another ended, at another point: another packet.
            (25, 40, InBacklog, Received),
            (91, 95, InBacklog, Received),
        ]);
        assert_eq!(rows(&slices), [(10, 0), (15, 1), (20, 0), (20, 1), (25, 2), (30, 1), (91, 0)]);
    }

    #[test]
    fn no_two_slices_of_a_row_overlap() {
        use Point::{InGro, Read, Ready, Received};
        let mut all = Vec::new();
        for packet in 0..500_u64 {
            let begin = packet * 7;
            let (into, ready) = (begin + packet % 13, begin + packet % 13 + packet % 5);
            all.push((begin, into, InGro, Received));
            all.push((into, ready, Received, Ready));
            all.push((ready, ready + packet % 400, Ready, Read));
        }
        let mut ends = HashMap::new();
        for slice in kept_slices(&all).in_rows() {
            let end = ends.insert(slice.row, slice.end_ns).unwrap_or(0);
            assert!(end <= slice.begin_ns, "{slice:?} begins before {end}");
        }
        assert!(ends.len() < 100, "rows are used again: {}", ends.len());
    }

    #[test]
    fn wake_ups_have_rows_of_their_own() {
        let (from, to) = WAKE_UP;
        let slices =
            kept_slices(&[(10, 50, Point::Ready, Point::Read), (10, 40, from, to)]).in_rows();
        assert_eq!((slices[0].is_wake_up, slices[0].row), (true, 0));
        assert_eq!((slices[1].is_wake_up, slices[1].row), (false, 0));
    }
}
