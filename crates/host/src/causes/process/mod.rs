//! The program itself: looked for if there is one in the evidence.

mod affinity;
mod batches;
mod blocking;
mod default_rcvbuf;
mod delay;
mod faults;
mod packets_cpu;
mod slow_reader;
mod writes;

use super::Cause;
use crate::program::Program;

pub(super) const CAUSES: &[Cause] = &[
    affinity::CAUSE,
    batches::CAUSE,
    blocking::CAUSE,
    default_rcvbuf::CAUSE,
    delay::CAUSE,
    faults::CAUSE,
    packets_cpu::CAUSE,
    slow_reader::CAUSE,
    writes::CAUSE,
];

/// Datagrams in the window from which a program is judged by what each of them costs.
const FEW: u64 = 20;

/// True if the program received datagrams in the window, or may have where system calls are not counted.
fn receives(program: &Program) -> bool {
    let grown = program.main_thread().2;
    match &program.calls {
        Ok(calls) => calls.datagram_count >= FEW,
        Err(_) => !program.seen.sockets.is_empty() && grown.voluntary_switches >= FEW,
    }
}

/// CPUs as the kernel lists them: `0-2,5`.
fn list(cpus: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let texts = ranges.iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(",")
}

/// A share of the window, in per cent.
fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed_in_ranges() {
        assert_eq!(list(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(list(&[]), "");
    }
}
