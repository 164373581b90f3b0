//! The function whose CPU time goes with a verdict.

use model::{
    Better, CodeKind, CpuSamples, CpuTimeChange, CpuTimePer, Decision, FunctionChange, GateAnswer,
    Outcome, Verdict,
};

use super::{Sentence, Subject, baseline, distrust, words};
use crate::screen::Tone;

/// Longest name of a function in a sentence, characters.
const NAME_LEN_MAX: usize = 60;
/// Shares between which a function is the whole difference, as far as samples show.
const WHOLE: std::ops::Range<f64> = 0.95..1.25;

/// An arm that differs from the baseline in CPU time or wall time, as a sentence says.
pub(crate) struct Differing<'a> {
    pub(crate) arm: &'a str,
    /// [`Better::Lower`] for an arm that is better, and so takes less.
    verdict: Better,
}

/// `CPU time: `handle_request` (server) takes 3.4 µs a packet in place of 1.2 µs; that is 80 % of the difference.`
/// `None` if no arm differs, or no function is shown to be a large part of that.
pub(super) fn sentence(outcome: &Outcome) -> Option<Sentence> {
    let differing = differing(outcome)?;
    let (old, new) = samples(outcome, differing.arm)?;
    let change = CpuTimeChange::new(&old, new)?;
    let of = change.main(differing.verdict)?;
    let arms = outcome.arms.iter().filter(|arm| arm.kind == model::ArmKind::Variant);
    let with = if arms.count() > 1 { format!(" of {}", differing.arm) } else { String::new() };
    let times = in_place(of, change.per);
    let part = match differing.verdict {
        _ if of.share < WHOLE.start => {
            format!("{:.0} % of the difference", of.share * 100.0)
        }
        _ if WHOLE.contains(&of.share) => "the whole difference".to_owned(),
        Better::Higher => "more than the whole difference: other functions take less".to_owned(),
        Better::Lower => "more than the whole difference: other functions take more".to_owned(),
    };
    let function = subject(&old, new, of);
    let text = format!("CPU time{with}: {function} takes {times}; that is {part}.");
    Some(Sentence::new(None, text, Tone::Plain))
}

/// The first judged figure by which an arm is said to differ, of those that CPU time explains.
pub(crate) fn differing(outcome: &Outcome) -> Option<Differing<'_>> {
    let base = baseline(outcome)?;
    if !outcome.ended.is_complete() {
        return None;
    }
    let is_one_of_several = outcome.judged.len() > 1;
    outcome.judged.iter().find_map(|metric| {
        let subject = Subject { outcome, base, metric, is_one_of_several };
        if distrust(&subject).is_some() {
            return None;
        }
        let said = subject.variants().into_iter().filter_map(|arm| {
            let figures = subject.figures(arm).filter(|of| is_time(metric, &of.unit))?;
            let is_worse = match (subject.decision(&arm.name), figures.verdict?) {
                (None | Some(Decision { answer: GateAnswer::Worse, .. }), Verdict::Worse) => true,
                (None | Some(Decision { answer: GateAnswer::NoWorse, .. }), Verdict::Better) => {
                    false
                }
                _ => return None,
            };
            let verdict = if is_worse { Better::Higher } else { Better::Lower };
            Some((Differing { arm: &arm.name, verdict }, is_worse))
        });
        let mut said: Vec<_> = said.collect();
        // As the sentences do: the best of several arms is what they begin with, unless a gate asks for worse ones.
        let best = outcome.simplest_best_arm(metric).filter(|_| outcome.gate.is_none());
        said.sort_by_key(|(of, is_worse)| match &best {
            Some(best) => best.arm != of.arm,
            None => !is_worse,
        });
        said.into_iter().next().map(|(differing, _)| differing)
    })
}

/// True of times, CPU times and rates.
fn is_time(metric: &str, unit: &str) -> bool {
    metric.contains("cpu")
        || matches!(unit, "ns" | "us" | "ms" | "s" | "rps" | "qps" | "tps" | "pps" | "bps")
}

/// Samples of both runs of the baseline, and of an arm.
pub(crate) fn samples<'a>(outcome: &'a Outcome, arm: &str) -> Option<(CpuSamples, &'a CpuSamples)> {
    let arm = outcome.arms.iter().find(|of| of.name == arm)?;
    Some((outcome.baseline_samples()?, arm.samples.as_ref()?))
}

/// `handle_request (server)`, of a function of the kernel with its place.
fn subject(old: &CpuSamples, new: &CpuSamples, of: &FunctionChange<'_>) -> String {
    let name: String = match of.function.char_indices().nth(NAME_LEN_MAX) {
        Some((end, _)) => format!("{}…", &of.function[..end]),
        None => of.function.to_owned(),
    };
    match place(old, new, of) {
        Some(place) => format!("`{name}` ({place})"),
        None => format!("`{name}`"),
    }
}

/// The program where there are several, and the kernel.
pub(crate) fn place(old: &CpuSamples, new: &CpuSamples, of: &FunctionChange<'_>) -> Option<String> {
    let mut all = old.functions.iter().chain(&new.functions);
    let is_one_of_several = all.any(|other| other.program != of.program);
    let program = is_one_of_several.then(|| of.program.to_owned());
    let kind = match of.kind {
        CodeKind::Function => None,
        CodeKind::Kernel => Some("kernel".to_owned()),
        CodeKind::File => Some("no function names".to_owned()),
    };
    match (program, kind) {
        (Some(program), Some(kind)) => Some(format!("{program}, {kind}")),
        (program, kind) => program.or(kind),
    }
}

fn in_place(of: &FunctionChange<'_>, per: CpuTimePer) -> String {
    let thing = match per {
        CpuTimePer::Packet => "packet",
        CpuTimePer::Trial => "trial",
    };
    let [new, old] = [of.time.new_ns, of.time.old_ns]
        .map(|ns| if ns > 0.0 { words::value(two_digits(ns), "ns") } else { "none".to_owned() });
    if of.time.new_ns > 0.0 {
        format!("{new} a {thing} in place of {old}")
    } else {
        format!("none in place of {old} a {thing}")
    }
}

/// As many digits as a few hundred samples give.
fn two_digits(value: f64) -> f64 {
    let scale = 10_f64.powf(value.log10().floor() - 1.0);
    (value / scale).round() * scale
}
