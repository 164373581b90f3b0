//! Interrupts since the host's start.

use std::collections::BTreeMap;

/// Parses `/proc/interrupts`: the counts of each numbered interrupt, indexed by CPU.
pub(crate) fn irq_counts(table: &str) -> BTreeMap<u32, Vec<u64>> {
    let mut lines = table.lines();
    // Columns are the online CPUs alone.
    let cpus: Vec<usize> = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("CPU")?.parse().ok())
        .filter(|cpu| *cpu < 1 << 16)
        .collect();
    let width = cpus.iter().max().map_or(0, |last| last + 1);
    lines
        .filter_map(|line| {
            let (irq, rest) = line.split_once(':')?;
            let mut row = vec![0; width];
            for (cpu, count) in cpus.iter().zip(rest.split_whitespace()) {
                row[*cpu] = count.parse().ok()?;
            }
            Some((irq.trim().parse().ok()?, row))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupt_counts_are_indexed_by_cpu_number() {
        let table = "           CPU0       CPU3\n 24:          1          7  PCI-MSI 5-edge  eth0\n\
                     NMI:          0          0   Non-maskable interrupts\n 25: x y\n";
        let counts = irq_counts(table);
        assert_eq!(counts.len(), 1);
        assert_eq!(counts[&24], [1, 0, 0, 7]);
        assert!(irq_counts("").is_empty());
    }
}
