//! Sentences about a proof on a running service: one for each judged figure, and one on how far they can be trusted.

use std::time::Duration;

use model::live::{LiveDoubt, LiveEnd, LiveFigure, LiveOutcome, LiveVerdict, SecondScale};
use model::{CountDifference, Verdict};

use super::Sentence;
use super::words::{Words, end, figure, percent, range};
use crate::live::LiveProof;
use crate::screen::Tone;
use crate::units;

/// Name of a figure for people.
pub(crate) fn label(name: &str) -> String {
    match name {
        "cpu_per_request" => "CPU per request".to_owned(),
        "errors" => "Failed requests".to_owned(),
        name => name.to_owned(),
    }
}

/// A sentence for each judged figure, the primary one first.
pub fn live_sentences(proof: &LiveProof) -> Vec<Sentence> {
    let outcome = &proof.outcome;
    let is_trusted = outcome.trusted;
    outcome
        .figures
        .iter()
        .zip(&outcome.verdicts)
        .map(|(judged, verdict)| {
            let (text, tone) = sentence(judged, verdict, outcome.resolve);
            let is_decided = verdict.verdict != Verdict::Inconclusive;
            let (prefix, tone) = match (is_trusted, is_decided) {
                (false, true) => ("Not trusted: ", Tone::Doubt),
                _ => ("", tone),
            };
            Sentence::new(Some(&judged.name), format!("{prefix}{text}"), tone)
        })
        .collect()
}

fn sentence(judged: &LiveFigure, verdict: &LiveVerdict, resolve: f64) -> (String, Tone) {
    let label = label(&judged.name);
    let scale = format!("for effects that show within {}", time(verdict.within_ns));
    let changed = changed(judged, verdict);
    match verdict.verdict {
        Verdict::Better => (format!("{label}: {changed}, {scale}."), Tone::Good),
        Verdict::Worse => (format!("{label}: {changed}, {scale}."), Tone::Bad),
        Verdict::NoDifferenceShown => (
            format!(
                "{label}: no difference of {} or more with the plan, {scale}.",
                percent(resolve - 1.0)
            ),
            Tone::Plain,
        ),
        _ => {
            let seen =
                if changed.is_empty() { String::new() } else { format!("; so far {changed}") };
            (format!("{label}: not decided{seen}."), Tone::Doubt)
        }
    }
}

/// `5.1 % less with the plan (3.2 to 7 % less)`; empty without a figure.
fn changed(judged: &LiveFigure, verdict: &LiveVerdict) -> String {
    let is_count = verdict.difference.is_some();
    let words = Words::new(&judged.name, &judged.unit, judged.better, is_count);
    if let Some(difference) = &verdict.difference {
        return count_changed(difference);
    }
    let Some(ratio) = verdict.ratio.filter(|ratio| ratio.median > 0.0) else {
        return String::new();
    };
    let within = ratio.low.filter(|low| *low > 0.0).map_or(String::new(), |low| {
        format!(" ({})", range(low, ratio.high, judged.better, &words))
    });
    format!("{} with the plan{within}", end(ratio.median, judged.better, &words))
}

/// Events per request are said per thousand requests.
fn count_changed(difference: &CountDifference) -> String {
    let ends = [Some(difference.mean), difference.low, difference.high];
    if ends.into_iter().flatten().all(|end| end == 0.0) {
        return "none in either arm".to_owned();
    }
    let per_thousand = |value: f64| figure(value.abs() * 1e3);
    let side = |value: f64| if value < 0.0 { "fewer" } else { "more" };
    let within = difference.low.zip(difference.high).map_or(String::new(), |(low, high)| {
        let (low, high) = (
            format!("{} {}", per_thousand(low), side(low)),
            format!("{} {}", per_thousand(high), side(high)),
        );
        format!(" (between {low} and {high})")
    });
    let mean = difference.mean;
    format!("{} {} per 1,000 requests with the plan{within}", per_thousand(mean), side(mean))
}

/// How far the verdicts can be trusted: carry-over, and periods that the guard ended.
pub fn live_trust(outcome: &LiveOutcome) -> (String, Tone) {
    let mut found: Vec<String> = outcome.doubts.iter().map(doubt).collect();
    let confirmed = outcome.carry_over.iter().filter_map(|check| check.second_scale.as_ref());
    let mut confirmed = confirmed.filter(|scale| scale.answer == SecondScale::Confirmed);
    let is_sound = found.is_empty();
    if is_sound {
        let scale = confirmed.next().map_or(String::new(), |scale| {
            format!(", nor at periods of {}", time(scale.period_ns))
        });
        found.push(format!("no effect that outlasts a switch was seen{scale}"));
    }
    let trips = outcome.trips;
    let text = format!("{}; guard trips on : off {} : {}", found.join("; "), trips.on, trips.off);
    let tone = if is_sound && trips.on <= trips.off { Tone::Dim } else { Tone::Doubt };
    (capitalized(&text), tone)
}

fn doubt(doubt: &LiveDoubt) -> String {
    match doubt {
        LiveDoubt::Halves { figure } => {
            format!(
                "carry-over in {}: it changes within the periods; give a longer --washout",
                label(figure)
            )
        }
        LiveDoubt::Predecessor { figure } => {
            format!(
                "carry-over in {}: it depends on the period before; give a longer --washout",
                label(figure)
            )
        }
        LiveDoubt::SecondScale { figure } => {
            format!("carry-over in {}: long periods contradict the short ones", label(figure))
        }
    }
}

/// Reason for the end, as a sentence.
pub fn live_end(proof: &LiveProof) -> (String, Tone) {
    if let Some(why) = &proof.stopped {
        return (format!("Ended early: {why}. The other settings are restored."), Tone::Bad);
    }
    let (text, tone) = match &proof.outcome.end {
        LiveEnd::Decided => ("every figure was decided".to_owned(), Tone::Dim),
        LiveEnd::TimeUp => ("the time was up".to_owned(), Tone::Dim),
        LiveEnd::Tripped => (
            "the guard undid the plan in five on-periods, and no off-period tripped it".to_owned(),
            Tone::Bad,
        ),
        LiveEnd::SoftGuard { figure } => {
            (format!("{} is worse by more than its guard allows", label(figure)), Tone::Bad)
        }
        LiveEnd::Interrupted => ("it was interrupted".to_owned(), Tone::Doubt),
        LiveEnd::Unfinished => ("it has not finished".to_owned(), Tone::Doubt),
    };
    (format!("Ended: {text}."), tone)
}

/// A length of time without zeros at its end: `80 s`, `2 min`, `12.5 ms`.
pub(crate) fn time(time_ns: u64) -> String {
    match time_ns / 1_000_000_000 {
        ..120 => {
            let (step, unit) = units::step(time_ns as f64, "ns");
            format!("{} {unit}", figure(time_ns as f64 / step))
        }
        seconds if seconds % 60 == 0 => format!("{} min", seconds / 60),
        _ => units::duration(Duration::from_nanos(time_ns)),
    }
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use model::live::{LiveDoubt, LiveEnd};

    use super::*;
    use crate::live::tests::sample;

    #[test]
    fn each_verdict_is_a_sentence_with_its_scale() {
        let said: Vec<String> =
            live_sentences(&sample()).into_iter().map(|sentence| sentence.text).collect();
        assert_eq!(
            said,
            [
                "CPU per request: 5.1 % less with the plan (3.2 to 7 % less), for effects that show within 80 s.",
                "p50: no difference of 5 % or more with the plan, for effects that show within 5 s.",
                "p99: not decided; so far 5.1 % faster with the plan (3.2 to 7 % faster).",
                "Failed requests: 1.2 more per 1,000 requests with the plan (between 0.8 more and 1.6 more), for effects \
                 that show within 80 s.",
            ]
        );
    }

    #[test]
    fn doubts_and_trips_are_in_the_line_of_trust() {
        let mut proof = sample();
        let (text, tone) = live_trust(&proof.outcome);
        assert_eq!(
            text,
            "No effect that outlasts a switch was seen, nor at periods of 80 s; guard trips on : off 1 : 0"
        );
        assert_eq!(tone, Tone::Doubt, "only on-periods tripped");
        proof.outcome.trusted = false;
        proof.outcome.doubts = vec![LiveDoubt::Halves { figure: "p99".into() }];
        assert!(
            live_trust(&proof.outcome).0.contains(
                "Carry-over in p99: it changes within the periods; give a longer --washout"
            )
        );
        let said = live_sentences(&proof);
        assert!(said[0].text.starts_with("Not trusted: CPU") && said[0].tone == Tone::Doubt);
    }

    #[test]
    fn end_says_who_ended_it() {
        let mut proof = sample();
        proof.outcome.end = LiveEnd::Tripped;
        assert!(live_end(&proof).0.contains("five on-periods"));
        proof.stopped =
            Some("rps-cpus of queue eth1 rx-0 was changed by another process to 7, from 0".into());
        assert!(live_end(&proof).0.contains("another process to 7"));
    }
}
