//! Softirq runs that end before their work is done.

use std::time::Duration;

use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, Severity, finding};

/// Observation time of counters.
const WINDOW: Duration = Duration::from_millis(200);

/// Drops and squeezes of each CPU since boot.
///
/// Source: softnet_seq_show of net/core/net-procfs.c: the second and third columns.
fn parse(table: &str) -> Vec<[u64; 2]> {
    table
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let mut number = |skip| u64::from_str_radix(words.nth(skip)?, 16).ok();
            Some([number(1)?, number(0)?])
        })
        .collect()
}

pub(super) fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let read = || view.proc_net("softnet_stat").map(|table| parse(&table));
    let Some(before) = notes.ask(read()) else { return };
    std::thread::sleep(WINDOW);
    let after = read().unwrap_or_default();
    let grown = |column: usize| -> u64 {
        let pairs = before.iter().zip(&after);
        pairs.map(|(before, after)| after[column].saturating_sub(before[column])).sum()
    };
    for (column, severity, what, change, undo) in [
        (
            0,
            Severity::High,
            "packets are dropped before they reach the stack",
            "sysctl -w net.core.netdev_max_backlog=10000   (host-only)",
            "sysctl -w net.core.netdev_max_backlog=1000",
        ),
        (
            1,
            Severity::Low,
            "softirq runs end before their work is done",
            "sysctl -w net.core.netdev_budget=600   (host-only)",
            "sysctl -w net.core.netdev_budget=300",
        ),
    ] {
        let count = grown(column);
        // An occasional squeeze is normal.
        if count <= 10 * column as u64 {
            continue;
        }
        notes.find(
            finding(severity, what)
                .read(
                    "/proc/net/softnet_stat",
                    format!("{count} more within {} ms", WINDOW.as_millis()),
                )
                .because(
                    "the CPU's backlog or budget is too small for the packet rate (softnet_data)",
                )
                .effect("more packets a run")
                .risk("other work of that CPU waits longer")
                .change(change, undo),
        );
    }
    let totals = |column: usize| after.iter().map(|row| row[column]).sum::<u64>();
    notes.fact(format!(
        "softirqs since boot: {} drops, {} runs cut short, over all CPUs of the machine",
        totals(0),
        totals(1)
    ));
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn drops_and_squeezes_are_read_in_hexadecimal() {
        assert_eq!(parse("00000010 0000000a 00000003 0\nbad\n"), [[10, 3]]);
        assert!(parse("").is_empty());
    }
}
