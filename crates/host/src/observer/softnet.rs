//! Work of the CPUs with received frames.

use std::fs;

use serde::Serialize;
use sys::bpf::observer::SoftirqCounts;

/// A CPU of the machine in the window, for all namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ObservedCpu {
    pub cpu: usize,
    /// Runs of the softirq NET_RX.
    pub softirqs_count: u64,
    /// Time in them, nanoseconds.
    pub softirqs_ns: u64,
    /// Frames that it processed.
    pub processed_count: u64,
    /// Calls by which other CPUs handed frames to it (RPS).
    pub handed_count: u64,
    /// Frames that found its backlog full.
    pub dropped_count: u64,
    /// Softirqs that ended before their work was done.
    pub squeezed_count: u64,
}

/// Counters of one CPU since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Row {
    cpu: usize,
    processed: u64,
    dropped: u64,
    squeezed: u64,
    handed: u64,
}

pub(super) fn read() -> Vec<Row> {
    // The table is the machine's, in whatever namespace it is read.
    let table = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
    table.lines().enumerate().filter_map(|(at, line)| row(at, line)).collect()
}

/// Source: softnet_seq_show of net/core/net-procfs.c: the CPU's number is the 13th column since Linux 5.10.
fn row(at: usize, line: &str) -> Option<Row> {
    let numbers: Vec<u64> =
        line.split_whitespace().map_while(|word| u64::from_str_radix(word, 16).ok()).collect();
    let [processed, dropped, squeezed, ..] = numbers[..] else { return None };
    let cpu = numbers.get(12).map_or(at, |cpu| *cpu as usize);
    Some(Row { cpu, processed, dropped, squeezed, handed: *numbers.get(9)? })
}

pub(super) fn rows(before: &[Row], after: &[Row], softirqs: &[SoftirqCounts]) -> Vec<ObservedCpu> {
    after
        .iter()
        .map(|after| {
            let before =
                before.iter().find(|row| row.cpu == after.cpu).copied().unwrap_or_default();
            let softirqs = softirqs.get(after.cpu).copied().unwrap_or_default();
            ObservedCpu {
                cpu: after.cpu,
                softirqs_count: softirqs.runs,
                softirqs_ns: softirqs.ns,
                processed_count: after.processed.saturating_sub(before.processed),
                handed_count: after.handed.saturating_sub(before.handed),
                dropped_count: after.dropped.saturating_sub(before.dropped),
                squeezed_count: after.squeezed.saturating_sub(before.squeezed),
            }
        })
        .filter(|cpu| cpu.processed_count > 0 || cpu.softirqs_count > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_and_differences_are_by_cpu() {
        let line = "000000ff 00000001 00000002 0 0 0 0 0 0 00000003 0 0 00000001 0 0";
        let after = row(0, line).unwrap();
        assert_eq!(after, Row { cpu: 1, processed: 255, dropped: 1, squeezed: 2, handed: 3 });
        let before = Row { processed: 250, ..after };
        let idle = Row { cpu: 0, ..Row::default() };
        let found = rows(&[idle, before], &[idle, after], &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].cpu, found[0].processed_count, found[0].handed_count), (1, 5, 0));
        assert_eq!(row(0, "12 x"), None);
    }
}
