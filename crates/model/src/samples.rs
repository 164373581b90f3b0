//! CPU time by function, from samples, and the functions whose time differs between two arms.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Better;

/// Most functions of a measurement and of an arm that are named; the samples of the others are one count.
pub const FUNCTIONS_MAX: usize = 200;
/// Most functions of an arm that are kept apart while its trials are added up.
const POOLED_MAX: usize = 10 * FUNCTIONS_MAX;
/// Most samples of a count: sums of all trials of a run stay below 2^64.
const COUNT_MAX: u64 = 1 << 40;

/// Standard deviations between two counts from which on they differ: with 200 functions, chance alone gives one such pair in 80
/// comparisons.
pub const DEVIATIONS_MIN: f64 = 4.0;
/// The same for the samples of all functions, whose difference the share of one refers to.
const WHOLE_DEVIATIONS_MIN: f64 = 2.0;
/// Smallest share of the difference of all CPU time for which a function is named.
pub const SHARE_MIN: f64 = 0.2;

/// Samples of the CPUs while they ran the programs of a trial, or of all trials of an arm.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuSamples {
    /// CPU time that one sample stands for, nanoseconds.
    pub interval_ns: u64,
    /// Trials with samples.
    pub trial_count: u64,
    /// Packets of these trials, if they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_count: Option<u64>,
    /// Samples and mappings that were lost.
    #[serde(default)]
    pub lost_count: u64,
    /// Functions with the most samples, those first.
    pub functions: Vec<FunctionSamples>,
    /// Samples in all other functions.
    #[serde(default)]
    pub other_count: u64,
}

/// Samples in one function, without those in functions that it called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FunctionSamples {
    /// Part of the trial that the program had, such as `server`.
    pub program: String,
    /// Name of the function, or of its file if that names none.
    pub function: String,
    /// Kind of `function`.
    #[serde(default, skip_serializing_if = "CodeKind::is_default")]
    pub kind: CodeKind,
    /// Samples.
    pub sample_count: u64,
}

/// Code that a sample was in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CodeKind {
    /// A function of a program or a library.
    #[default]
    Function,
    /// A function of the kernel.
    Kernel,
    /// Any code of a file that names no function there.
    File,
}

impl CodeKind {
    fn is_default(&self) -> bool {
        *self == CodeKind::default()
    }
}

type Key<'a> = (&'a str, &'a str, CodeKind);

impl FunctionSamples {
    fn key(&self) -> Key<'_> {
        (&self.program, &self.function, self.kind)
    }
}

impl CpuSamples {
    /// Samples of one trial.
    pub fn of_trial(
        interval_ns: u64,
        packet_count: Option<u64>,
        lost_count: u64,
        functions: Vec<FunctionSamples>,
    ) -> CpuSamples {
        let mut samples = CpuSamples {
            interval_ns,
            trial_count: 1,
            packet_count,
            lost_count: lost_count.min(COUNT_MAX),
            functions,
            other_count: 0,
        };
        samples.limit(FUNCTIONS_MAX);
        samples
    }

    /// Adds the samples of another program of the same trial.
    pub fn add_program(&mut self, other: CpuSamples) {
        if self.interval_ns == other.interval_ns {
            // Programs of one host share the rings.
            self.lost_count = self.lost_count.max(other.lost_count);
            self.functions.extend(other.functions);
            self.other_count = self.other_count.saturating_add(other.other_count);
            self.limit(FUNCTIONS_MAX);
        }
    }

    /// Adds the samples of another trial. Those of another interval, which no trial of the same run has, are left out.
    pub(crate) fn add(&mut self, other: &CpuSamples) {
        if self.trial_count == 0 {
            self.clone_from(other);
            return;
        }
        if self.interval_ns != other.interval_ns {
            return;
        }
        self.trial_count = self.trial_count.saturating_add(other.trial_count);
        let packets = self.packet_count.zip(other.packet_count);
        self.packet_count = packets.map(|(one, more)| one.saturating_add(more));
        self.lost_count = self.lost_count.saturating_add(other.lost_count);
        self.other_count = self.other_count.saturating_add(other.other_count);
        self.functions.extend(other.functions.iter().cloned());
        self.limit(POOLED_MAX);
    }

    /// As an outcome has it.
    pub(crate) fn limited(&self) -> CpuSamples {
        let mut limited = self.clone();
        limited.limit(FUNCTIONS_MAX);
        limited
    }

    /// One entry a function, the largest first; those behind `functions_max` are other samples.
    fn limit(&mut self, functions_max: usize) {
        self.functions.sort_unstable();
        self.functions.dedup_by(|later, first| {
            let is_same = later.key() == first.key();
            if is_same {
                first.sample_count = first.sample_count.saturating_add(later.sample_count);
            }
            is_same
        });
        for function in &mut self.functions {
            function.sample_count = function.sample_count.min(COUNT_MAX);
        }
        self.functions.sort_unstable_by(|one, other| {
            other.sample_count.cmp(&one.sample_count).then_with(|| one.key().cmp(&other.key()))
        });
        let rest = self.functions.drain(functions_max.min(self.functions.len())..);
        self.other_count = rest
            .fold(self.other_count.min(COUNT_MAX), |sum, of| sum.saturating_add(of.sample_count));
    }

    /// Samples of all functions.
    pub fn sample_count(&self) -> u64 {
        let named = self.functions.iter().map(|of| of.sample_count);
        named.fold(self.other_count, u64::saturating_add)
    }

    /// Samples of the functions, and those that one which is not named may have at the most.
    fn counts(&self) -> (BTreeMap<Key<'_>, u64>, u64) {
        let counts = self.functions.iter().map(|of| (of.key(), of.sample_count)).collect();
        let least = self.functions.last().map_or(0, |of| of.sample_count);
        (counts, least.min(self.other_count))
    }
}

/// Thing by which CPU time is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuTimePer {
    Packet,
    Trial,
}

/// CPU time of two arms by function.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuTimeChange<'a> {
    pub per: CpuTimePer,
    /// Of all functions.
    pub whole: TimeChange,
    /// Those with the largest difference first.
    pub functions: Vec<FunctionChange<'a>>,
}

/// Change of a time from the reference to an arm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeChange {
    /// Of the reference, nanoseconds a packet or a trial.
    pub old_ns: f64,
    /// Of the arm.
    pub new_ns: f64,
    /// Difference of both, in its standard deviations if chance alone made it.
    pub deviations: f64,
}

impl TimeChange {
    /// The arm's time less that of the reference.
    pub fn difference_ns(&self) -> f64 {
        self.new_ns - self.old_ns
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FunctionChange<'a> {
    pub program: &'a str,
    pub function: &'a str,
    pub kind: CodeKind,
    pub time: TimeChange,
    /// Share of the difference of all functions: above 1 if others went the other way, below 0 if this one did.
    pub share: f64,
}

impl<'a> CpuTimeChange<'a> {
    /// Returns `None` if one of the two has no samples.
    ///
    /// Counts are compared as those of two Poisson processes, one unit of time of which is a packet, or a trial where packets
    /// are not known.
    ///
    /// - `old`: of both runs of the baseline.
    pub fn new(old: &'a CpuSamples, new: &'a CpuSamples) -> Option<CpuTimeChange<'a>> {
        let interval_ns = old.interval_ns as f64;
        if old.interval_ns == 0 || old.interval_ns != new.interval_ns {
            return None;
        }
        let packets = old.packet_count.zip(new.packet_count);
        let (per, units) = match packets.filter(|(old, new)| *old > 0 && *new > 0) {
            Some(packets) => (CpuTimePer::Packet, packets),
            None => (CpuTimePer::Trial, (old.trial_count, new.trial_count)),
        };
        let units = (units.0 as f64, units.1 as f64);
        if units.0 <= 0.0 || units.1 <= 0.0 {
            return None;
        }
        let change = |old: u64, new: u64| {
            let (old_rate, new_rate) = (old as f64 / units.0, new as f64 / units.1);
            let common = (old + new) as f64 / (units.0 + units.1);
            let deviation = (common * (1.0 / units.0 + 1.0 / units.1)).sqrt();
            let deviations = if deviation > 0.0 { (new_rate - old_rate) / deviation } else { 0.0 };
            TimeChange {
                old_ns: old_rate * interval_ns,
                new_ns: new_rate * interval_ns,
                deviations,
            }
        };
        let whole = change(old.sample_count(), new.sample_count());
        let ((of_old, old_hidden), (of_new, new_hidden)) = (old.counts(), new.counts());
        let mut keys: Vec<Key<'a>> = of_old.keys().chain(of_new.keys()).copied().collect();
        keys.sort_unstable();
        keys.dedup();
        let functions = keys.into_iter().map(|key| {
            let old = of_old.get(&key).copied();
            let new = of_new.get(&key).copied();
            // One that is among the others of an arm has at most as many as the least that is named there.
            let time = change(
                old.unwrap_or(old_hidden.min(new.unwrap_or(0))),
                new.unwrap_or(new_hidden.min(old.unwrap_or(0))),
            );
            let (program, function, kind) = key;
            let share = time.difference_ns() / whole.difference_ns();
            FunctionChange { program, function, kind, time, share }
        });
        let mut functions: Vec<FunctionChange<'a>> = functions.collect();
        functions.sort_by(|one, other| {
            let [one, other] = [one, other].map(|of| of.time.difference_ns().abs());
            other.total_cmp(&one)
        });
        Some(CpuTimeChange { per, whole, functions })
    }

    /// The function whose time went most in the direction of a verdict; `None` if all functions together did not go there, or
    /// if it is not shown to be a large part of that.
    ///
    /// - `verdict`: [`Better::Lower`] for an arm that is better, and so takes less.
    pub fn main(&self, verdict: Better) -> Option<&FunctionChange<'a>> {
        let sign = if verdict == Better::Lower { -1.0 } else { 1.0 };
        if self.whole.deviations * sign < WHOLE_DEVIATIONS_MIN {
            return None;
        }
        let mut there = self.functions.iter().filter(|of| of.time.difference_ns() * sign > 0.0);
        // The program of an arm may have a name of its own, which says nothing without those of its functions.
        there
            .next()
            .filter(|of| of.kind != CodeKind::File || of.time.old_ns.min(of.time.new_ns) > 0.0)
            .filter(|of| of.time.deviations * sign >= DEVIATIONS_MIN && of.share >= SHARE_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL_NS: u64 = 10_000_000;

    fn function(name: &str, sample_count: u64) -> FunctionSamples {
        let (program, function) = ("server".to_owned(), name.to_owned());
        FunctionSamples { program, function, kind: CodeKind::Function, sample_count }
    }

    /// Samples of an arm of `trials` trials.
    fn samples(trials: u64, counts: &[(&str, u64)]) -> CpuSamples {
        let functions = counts.iter().map(|(name, count)| function(name, *count)).collect();
        let one = CpuSamples::of_trial(INTERVAL_NS, None, 0, functions);
        CpuSamples { trial_count: trials, ..one }
    }

    fn named(old: &CpuSamples, new: &CpuSamples, verdict: Better) -> Option<String> {
        let change = CpuTimeChange::new(old, new)?;
        change.main(verdict).map(|of| of.function.to_owned())
    }

    #[test]
    fn the_function_that_grew_beyond_chance_is_named_and_with_the_verdict_alone() {
        let old = samples(20, &[("burn", 200), ("parse", 400)]);
        let new = samples(10, &[("burn", 200), ("parse", 205)]);
        assert_eq!(named(&old, &new, Better::Higher).as_deref(), Some("burn"));
        assert_eq!(named(&old, &new, Better::Lower), None, "a faster arm that takes more CPU time");
        assert_eq!(named(&new, &old, Better::Lower).as_deref(), Some("burn"));
        let change = CpuTimeChange::new(&old, &new).unwrap();
        let burn = change.main(Better::Higher).unwrap();
        assert_eq!((burn.time.old_ns, burn.time.new_ns), (100e6, 200e6));
        assert_eq!(change.per, CpuTimePer::Trial);
        assert!((burn.share - 100.0 / 105.0).abs() < 1e-9, "{burn:?}");
    }

    #[test]
    fn nothing_is_named_within_chance_or_for_a_small_part() {
        let old = samples(10, &[("burn", 100), ("parse", 100)]);
        // 3.9 deviations, and 4.1.
        for (count, is_named) in [(163, false), (168, true)] {
            let new = samples(10, &[("burn", count), ("parse", 140)]);
            assert_eq!(named(&old, &new, Better::Higher).is_some(), is_named, "{count}");
        }
        assert_eq!(named(&old, &old, Better::Higher), None);
        let many = |each: u64| {
            let names = ["a", "b", "c", "d", "e", "f", "g"];
            samples(10, &names.map(|name| (name, each)))
        };
        assert_eq!(named(&many(1000), &many(2000), Better::Higher), None, "a seventh each");
        // A large difference of the whole, of which the largest part is within chance.
        let spread: Vec<String> = (0..100).map(|n| format!("f{n}")).collect();
        let spread = |each: u64| {
            let counts: Vec<(&str, u64)> = spread.iter().map(|name| (&**name, each)).collect();
            samples(10, &counts)
        };
        assert_eq!(named(&spread(2), &spread(6), Better::Higher), None);
    }

    #[test]
    fn a_function_that_takes_the_place_of_another_is_more_than_the_difference() {
        let old = samples(10, &[("parse_v1", 300), ("other", 50)]);
        let new = samples(10, &[("parse_v2", 600), ("other", 50)]);
        let change = CpuTimeChange::new(&old, &new).unwrap();
        let grown = change.main(Better::Higher).unwrap();
        assert_eq!((grown.function, grown.time.old_ns, grown.share), ("parse_v2", 0.0, 2.0));
        assert_eq!(change.functions[1].share, -1.0);
    }

    fn file_samples(counts: &[(&str, u64)]) -> CpuSamples {
        let mut samples = samples(10, counts);
        samples.functions.iter_mut().for_each(|of| of.kind = CodeKind::File);
        samples
    }

    #[test]
    fn a_file_without_names_is_named_if_both_arms_have_it() {
        let old = file_samples(&[("server-old", 300), ("libx.so", 100)]);
        let new = file_samples(&[("server-new", 600), ("libx.so", 100)]);
        assert_eq!(named(&old, &new, Better::Higher), None);
        let new = file_samples(&[("server-old", 300), ("libx.so", 300)]);
        assert_eq!(named(&old, &new, Better::Higher).as_deref(), Some("libx.so"));
    }

    #[test]
    fn packets_are_the_unit_where_both_arms_have_them() {
        let old = CpuSamples { packet_count: Some(1000), ..samples(10, &[("burn", 100)]) };
        let new = CpuSamples { packet_count: Some(2000), ..samples(10, &[("burn", 200)]) };
        let change = CpuTimeChange::new(&old, &new).unwrap();
        assert_eq!((change.per, change.whole.deviations), (CpuTimePer::Packet, 0.0));
        let unknown = CpuSamples { packet_count: None, ..new.clone() };
        assert_eq!(CpuTimeChange::new(&old, &unknown).unwrap().per, CpuTimePer::Trial);
        let other_interval = CpuSamples { interval_ns: 1, ..new };
        assert_eq!(CpuTimeChange::new(&old, &other_interval), None);
        assert_eq!(CpuTimeChange::new(&CpuSamples::default(), &old), None);
    }

    #[test]
    fn trials_add_up_and_the_smallest_functions_are_one_count() {
        let names: Vec<String> = (0..300).map(|n| format!("f{n:03}")).collect();
        let functions = names.iter().zip(1..).map(|(name, count)| function(name, count)).collect();
        let one = CpuSamples::of_trial(INTERVAL_NS, Some(5), 1, functions);
        assert_eq!((one.functions.len(), one.functions[0].sample_count), (FUNCTIONS_MAX, 300));
        assert_eq!((one.other_count, one.sample_count()), (5050, 300 * 301 / 2));
        let mut arm = CpuSamples::default();
        (0..3).for_each(|_| arm.add(&one));
        let limited = arm.limited();
        assert_eq!(
            (limited.trial_count, limited.packet_count, limited.lost_count),
            (3, Some(15), 3)
        );
        assert_eq!((limited.functions[0].sample_count, limited.other_count), (900, 15150));
        arm.add(&CpuSamples { packet_count: None, ..one.clone() });
        assert_eq!(arm.packet_count, None);
        // The function is among the others of one side.
        let many =
            CpuSamples { functions: vec![function("f000", 90)], other_count: 0, ..one.clone() };
        let change = CpuTimeChange::new(&one, &many).unwrap();
        let hidden = change.functions.iter().find(|of| of.function == "f000").unwrap();
        assert!(hidden.time.difference_ns() == 0.0, "{hidden:?}");
    }

    /// Samples of 50 functions that take the same time.
    fn even_samples(random: &mut crate::Random) -> CpuSamples {
        let functions =
            (0..50).map(|n| function(&format!("f{n}"), poisson(20.0, random))).collect();
        CpuSamples::of_trial(INTERVAL_NS, None, 0, functions)
    }

    fn poisson(mean: f64, random: &mut crate::Random) -> u64 {
        let (limit, mut product, mut count) = ((-mean).exp(), 1.0, 0);
        loop {
            product *= random.unit();
            if product <= limit {
                return count;
            }
            count += 1;
        }
    }

    #[test]
    fn chance_names_a_function_in_few_runs() {
        let mut random = crate::Random::new(7, 0);
        let mut named_count = 0;
        for _ in 0..500 {
            let (old, new) = (even_samples(&mut random), even_samples(&mut random));
            let is_named =
                [Better::Lower, Better::Higher].map(|verdict| named(&old, &new, verdict));
            named_count += usize::from(is_named.iter().any(Option::is_some));
        }
        assert!(named_count <= 2, "{named_count} of 500");
    }
}
