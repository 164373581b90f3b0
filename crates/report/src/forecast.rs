//! Sentences about the time of a run: that which a resolution needs, and how far the run is.

use std::time::Duration;

use model::{ArmKind, Forecast, Outcome, RunProgress, TimeNeeded, Verdict};

use crate::answer::{Words, change_in_words, percent};
use crate::units;

/// Time that the resolution needs, and the difference that the given time is enough for.
///
/// - `resolve`: ratio above 1.
/// - `time`: the given time.
pub fn plan(forecast: &Forecast, resolve: f64, time: Duration) -> String {
    let wanted = percent(resolve - 1.0);
    let needed = units::duration(Duration::from_millis(forecast.whole_ms));
    let given = units::duration(time);
    let reaches = percent(forecast.reaches - 1.0);
    let blocks = units::grouped(i64::from(forecast.blocks));
    if Duration::from_millis(forecast.whole_ms) <= time {
        return format!(
            "to find {wanted} in 19 of 20 runs takes about {blocks} blocks, {needed}; {given} find {reaches}"
        );
    }
    format!(
        "to find {wanted} in 19 of 20 runs takes about {blocks} blocks, {needed}; the {given} given find {reaches}: \
         give --time {}s for {wanted}",
        forecast.whole_s()
    )
}

/// Time that a verdict takes, of a run that is given less.
pub fn lacks(needed: &TimeNeeded) -> String {
    let TimeNeeded { blocks, block_ns, whole_ns } = *needed;
    let block = units::duration(Duration::from_nanos(block_ns));
    let whole = units::duration(Duration::from_nanos(whole_ns));
    format!(
        "a verdict takes {blocks} blocks of {block}, with the warm-up {whole}: give --time {}s; this run ends before",
        needed.whole_s()
    )
}

/// How far a run is, in few words, as a terminal of 60 columns has room for little: `12 of 60 s, block 3 of ~14`.
pub fn progress(progress: &RunProgress) -> String {
    let time =
        elapsed(Duration::from_nanos(progress.elapsed_ns), Duration::from_nanos(progress.end_ns));
    match (progress.block, progress.blocks) {
        (0, _) => format!("{time}, warm-up"),
        (block, None) => format!("{time}, block {block}"),
        (block, Some(blocks)) => format!("{time}, block {block} of ~{blocks}"),
    }
}

/// `12 of 60 s`.
pub fn elapsed(elapsed: Duration, end: Duration) -> String {
    format!("{} of {} s", elapsed.as_secs(), end.as_secs_f64().ceil())
}

/// Arms that are named in an answer so far.
const NAMED_MAX: usize = 2;

/// The answer so far in few words: arms that the first judged metric shows to be better or worse. These verdicts hold at
/// every look.
pub fn so_far(outcome: &Outcome) -> String {
    let Some(metric) = outcome.judged.first() else { return "not decided".to_owned() };
    let arms =
        outcome.arms.iter().filter(|arm| arm.kind.is_compared() && arm.kind != ArmKind::Control);
    let mut decided: Vec<(f64, String)> = arms
        .filter_map(|arm| {
            let judged = arm.metrics.get(metric)?;
            let ratio = judged.ratio.filter(|_| judged.verdict.is_some_and(Verdict::differs))?;
            let words = Words::new(metric, &judged.unit, judged.better, false);
            let change = change_in_words(ratio, judged.better, &words);
            Some((ratio.ln().abs(), format!("{} {change}", arm.name)))
        })
        .collect();
    if decided.is_empty() {
        return "not decided".to_owned();
    }
    decided.sort_by(|one, other| other.0.total_cmp(&one.0));
    let named: Vec<&str> = decided.iter().take(NAMED_MAX).map(|(_, text)| text.as_str()).collect();
    named.join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::{
        ArmOutcome, Better, Experiment, ExperimentPlan, MetricOutcome, OutcomeHeader, Support,
    };

    use super::*;

    #[test]
    fn progress_names_the_block_and_the_end_as_far_as_they_are_known() {
        let (elapsed_ns, end_ns) = (12_900_000_000, 59_100_000_000);
        for (block, blocks, text) in
            [(0, None, "12 of 60 s, warm-up"), (3, Some(14), "12 of 60 s, block 3 of ~14")]
        {
            assert_eq!(progress(&RunProgress { block, blocks, elapsed_ns, end_ns }), text);
        }
    }

    fn arm(name: &str, kind: ArmKind, ratio: f64, verdict: Verdict) -> ArmOutcome {
        let unjudged = MetricOutcome::unjudged("ns", Better::Lower, vec![Some(ratio)]);
        let (ratio, verdict) = (Some(ratio), Some(verdict));
        let metric = MetricOutcome { ratio, verdict, ..unjudged };
        ArmOutcome {
            name: name.to_owned(),
            kind,
            switches: Vec::new(),
            support: Support::Yes,
            trials: 8,
            metrics: BTreeMap::from([("wall_ns".to_owned(), metric)]),
            latency: BTreeMap::new(),
            mode: BTreeMap::new(),
            counters: BTreeMap::new(),
            samples: None,
            reliability: None,
            failures: Vec::new(),
        }
    }

    #[test]
    fn answer_so_far_names_the_arms_that_are_decided_the_largest_effect_first() {
        let control = arm("old again", ArmKind::Control, 1.3, Verdict::Worse);
        let open = arm("open", ArmKind::Variant, 0.5, Verdict::Exploratory);
        let plan = ExperimentPlan::new(1, Vec::new(), vec!["wall_ns".to_owned()], 1, 1);
        let mut outcome = Experiment::new(plan).outcome(OutcomeHeader::default());
        outcome.arms = vec![control, open];
        assert_eq!(so_far(&outcome), "not decided");
        outcome.arms.push(arm("new", ArmKind::Variant, 1.18, Verdict::Worse));
        assert_eq!(so_far(&outcome), "new 18 % slower");
        outcome.arms.push(arm("best", ArmKind::Variant, 0.4, Verdict::Better));
        assert_eq!(so_far(&outcome), "best 2.5 times faster, new 18 % slower");
    }

    #[test]
    fn run_without_the_time_for_a_verdict_says_how_long_one_takes() {
        let (block_ns, whole_ns) = (9_200_000_000, 82_800_000_000);
        assert_eq!(
            lacks(&TimeNeeded { blocks: 8, block_ns, whole_ns }),
            "a verdict takes 8 blocks of 9.20 s, with the warm-up 82.8 s: give --time 92s; this run ends before"
        );
    }

    #[test]
    fn plan_says_what_the_resolution_needs_and_what_the_time_finds() {
        let mut forecast = Forecast { blocks: 240, whole_ms: 300_000, reaches: 1.093 };
        let minute = Duration::from_secs(60);
        assert_eq!(
            plan(&forecast, 1.05, minute),
            "to find 5 % in 19 of 20 runs takes about 240 blocks, 5 min 0 s; the 60.0 s given find 9.3 %: give --time \
             330s for 5 %"
        );
        forecast = Forecast { blocks: 24, whole_ms: 31_000, reaches: 1.029 };
        assert_eq!(
            plan(&forecast, 1.05, minute),
            "to find 5 % in 19 of 20 runs takes about 24 blocks, 31.0 s; 60.0 s find 2.9 %"
        );
    }
}
