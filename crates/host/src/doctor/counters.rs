//! Counters of the kernel that grow when packets are lost, read twice.

use std::time::Duration;

use super::finding::Severity;
use super::host_view::HostView;
use crate::net::{self, ShaperQdisc, snmp_counter};
use crate::text::chain;
use crate::tune::KnobError;

/// Time between the two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Two samples of a namespace's counters.
#[derive(Debug)]
pub(super) struct Counters {
    before: Sample,
    after: Sample,
}

#[derive(Debug)]
struct Sample {
    /// `/proc/net/snmp` and `netstat`, whose protocols differ.
    tables: String,
    /// `/proc/net/snmp6`: a name and a number in each line; empty without IPv6.
    table6: String,
    shapers: Vec<ShaperQdisc>,
}

impl Sample {
    fn take(view: &HostView) -> Result<Self, KnobError> {
        Ok(Sample {
            tables: view.proc_net("snmp")? + &view.proc_net("netstat")?,
            table6: view.proc_net("snmp6").unwrap_or_default(),
            shapers: view.system.within(net::shapers)?,
        })
    }

    /// Value of `Udp InErrors`, or of IPv6's `Udp6InErrors`; 0 if this kernel does not count it.
    fn count(&self, name: &str) -> u64 {
        let found = match name.split_once(' ') {
            Some((protocol, name)) => snmp_counter(&self.tables, protocol, name),
            None => self.table6.lines().find_map(|line| {
                let (found, number) = line.split_once(char::is_whitespace)?;
                if found == name { number.trim().parse().ok() } else { None }
            }),
        };
        found.unwrap_or(0)
    }
}

impl Counters {
    /// Waits for [`SAMPLE_INTERVAL`]. Errors: the reason why counters cannot be read.
    pub(super) fn sample(view: &HostView) -> Result<Self, String> {
        let take = || Sample::take(view).map_err(|error| chain(&error));
        let before = take()?;
        std::thread::sleep(SAMPLE_INTERVAL);
        Ok(Counters { before, after: take()? })
    }

    /// Sum of some counters, by the names of [`Sample::count`].
    pub(super) fn sum(&self, names: &[&str]) -> Losses {
        let sum = |sample: &Sample| names.iter().map(|name| sample.count(name)).sum();
        Losses::between(sum(&self.before), sum(&self.after))
    }

    /// Shapers at the second sample, each with its drops.
    pub(super) fn shapers(&self) -> impl Iterator<Item = (&ShaperQdisc, Losses)> {
        self.after.shapers.iter().map(|shaper| {
            let before = self
                .before
                .shapers
                .iter()
                .find(|other| other.interface == shaper.interface && other.limits == shaper.limits)
                .map_or(0, |one| one.drop_count);
            (shaper, Losses::between(before.into(), shaper.drop_count.into()))
        })
    }
}

/// Counted losses: while they were watched, and in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Losses {
    /// Within [`SAMPLE_INTERVAL`].
    pub(super) now: u64,
    /// Since the namespace or the object was created.
    pub(super) total: u64,
}

impl Losses {
    fn between(before: u64, after: u64) -> Self {
        Losses { now: after.saturating_sub(before), total: after }
    }

    /// Those of `self` that are not among `others`.
    pub(super) fn without(self, others: Losses) -> Losses {
        Losses {
            now: self.now.saturating_sub(others.now),
            total: self.total.saturating_sub(others.total),
        }
    }

    /// High while packets are lost; low for those of the past.
    pub(super) fn severity(self) -> Severity {
        if self.now > 0 { Severity::High } else { Severity::Low }
    }

    pub(super) fn evidence(self) -> String {
        format!("{} more within {} s, {} in all", self.now, SAMPLE_INTERVAL.as_secs(), self.total)
    }

    /// `9 packets were dropped within a second` while there are any, else `20 packets were dropped in all`.
    pub(super) fn sentence(self, what: &str) -> String {
        if self.now > 0 {
            format!("{} {what} within a second", self.now)
        } else {
            format!("{} {what} in all", self.total)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(errors: u64, errors6: u64) -> Sample {
        Sample {
            tables: format!("Udp: InDatagrams InErrors\nUdp: 5 {errors}\nTcpExt: A\nTcpExt: 3\n"),
            table6: format!("Udp6InDatagrams \t9\nUdp6InErrors   \t{errors6}\n"),
            shapers: Vec::new(),
        }
    }

    #[test]
    fn growth_and_totals_are_of_both_versions_of_ip() {
        let counters = Counters { before: sample(7, 0), after: sample(9, 4) };
        let both = counters.sum(&["Udp InErrors", "Udp6InErrors"]);
        assert_eq!(both, Losses { now: 6, total: 13 });
        assert_eq!(both.severity(), Severity::High);
        let steady = counters.sum(&["TcpExt A", "no such one"]);
        assert_eq!((steady, steady.severity()), (Losses { now: 0, total: 3 }, Severity::Low));
        assert_eq!(both.without(steady), Losses { now: 6, total: 10 });
    }
}
