//! Sentences of a gate: every form of a result prints the same ones.

use model::{Better, By, Decision, Gate, GateAnswer, Reliability, Undecided};

use crate::{units, wording};

/// Sentences in one message; the rest are counted.
const SENTENCES_MAX: usize = 6;

/// Ratio, or its inverse, from which on a change is spoken as a multiple.
const MULTIPLE: f64 = 2.0;

/// Returns the answer of a gate in one line: what is worse, else what is not decided, else all figures.
pub fn summary(gate: &Gate) -> String {
    let of: Vec<&Decision> =
        gate.decisions.iter().filter(|decision| decision.answer == gate.answer).collect();
    if of.is_empty() {
        return "not decided: there is no arm to compare with the baseline".into();
    }
    let mut said: Vec<String> =
        of.iter().take(SENTENCES_MAX).map(|decision| sentence(gate, decision)).collect();
    if of.len() > SENTENCES_MAX {
        said.push(format!("and {} more", of.len() - SENTENCES_MAX));
    }
    said.join("; ")
}

/// Returns one decision as a sentence without a full stop.
pub fn sentence(gate: &Gate, decision: &Decision) -> String {
    let Some(name) = &decision.metric else {
        return match &decision.failures {
            Some(failures) => failures_sentence(decision, failures),
            None => format!("{}: not decided: {}", decision.arm, reason(gate, decision)),
        };
    };
    let Decision { unit, better, difference, .. } = decision;
    let words = Words::new(name, unit, *better, difference.is_some());
    let text = match decision.answer {
        GateAnswer::Worse => worse(gate, decision, &words),
        GateAnswer::NoWorse => no_worse(gate, decision, &words),
        GateAnswer::NotDecided => format!("not decided: {}", open(gate, decision, &words)),
    };
    format!("{}: {text}", wording::metric(name))
}

/// How people speak of a figure.
pub(crate) struct Words {
    verb: &'static str,
    worse: &'static str,
    better: &'static str,
}

impl Words {
    /// - `is_count`: judged by differences.
    pub(crate) fn new(name: &str, unit: &str, better: Better, is_count: bool) -> Self {
        let is_time = matches!(unit, "ns" | "us" | "ms" | "s");
        let is_rate = matches!(unit, "bps" | "pps" | "rps" | "qps" | "tps");
        let (verb, worse, better) = match better {
            Better::Lower if is_count => ("has", "more", "fewer"),
            Better::Higher if is_count => ("has", "fewer", "more"),
            Better::Lower if name.contains("cpu") || unit == "bytes" => ("takes", "more", "less"),
            Better::Lower if is_time => ("is", "slower", "faster"),
            Better::Lower => ("is", "higher", "lower"),
            Better::Higher if is_rate => ("is", "slower", "faster"),
            Better::Higher => ("is", "lower", "higher"),
        };
        Words { verb, worse, better }
    }
}

/// `20 %`, `1.4 %`: three digits without zeros at the end.
pub(crate) fn percent(share: f64) -> String {
    let digits = units::digits(share * 100.0);
    if digits.contains('.') {
        format!("{} %", digits.trim_end_matches('0').trim_end_matches('.'))
    } else {
        format!("{digits} %")
    }
}

fn resolution(gate: &Gate) -> String {
    format!("resolution {}", percent(gate.threshold - 1.0))
}

/// `20 %`, or `5.3 times` of a large change.
fn share(ratio: f64) -> String {
    let ratio = ratio.max(1.0 / ratio);
    if ratio >= MULTIPLE { format!("{} times", units::digits(ratio)) } else { percent(ratio - 1.0) }
}

/// Change for the worse as people say it, of a ratio on the bad side: 0.8 of a rate is 20 % less.
pub(crate) fn spoken(ratio: f64, better: Better) -> String {
    match (better, ratio < 1.0) {
        (Better::Lower, false) => share(ratio),
        _ if !(1.0 / MULTIPLE..MULTIPLE).contains(&ratio) => share(ratio),
        _ => percent((1.0 - ratio).abs()),
    }
}

/// An end of an interval of ratios with its word: `9 % slower`, `equal`.
pub(crate) fn side(ratio: f64, better: Better, words: &Words) -> String {
    let is_worse = (ratio > 1.0) == (better == Better::Lower);
    if ratio == 1.0 {
        return "equal".into();
    }
    let word = if is_worse { words.worse } else { words.better };
    format!("{} {word}", spoken(ratio, better))
}

fn values(decision: &Decision) -> Option<String> {
    let unit = &decision.unit;
    let (value, base) = (decision.value?, decision.base_value?);
    Some(format!("{} in place of {}", units::value(value, unit), units::value(base, unit)))
}

fn worse(gate: &Gate, decision: &Decision, words: &Words) -> String {
    let Decision { arm, base, better, .. } = decision;
    let asked = resolution(gate);
    let values = values(decision).map_or(String::new(), |values| format!(", {values}"));
    if let Some(difference) = &decision.difference {
        let interval = match difference.low.zip(difference.high) {
            Some((low, high)) => {
                let (low, high) = (low.abs().min(high.abs()), low.abs().max(high.abs()));
                format!("95 %: {} to {}; ", units::digits(low), units::digits(high))
            }
            None => String::new(),
        };
        let count = units::digits(difference.mean.abs());
        return format!(
            "{arm} has {count} {} a trial than {base}{values} ({interval}{asked})",
            words.worse
        );
    }
    let verb = if gate.by == By::Worth { "is worth" } else { words.verb };
    let word = if gate.by == By::Worth { "less" } else { words.worse };
    let Some(ratio) = decision.ratio else {
        return format!("{arm} {verb} {word} than {base}{values} ({asked})");
    };
    let interval = match (decision.low, decision.high) {
        (Some(low), Some(high)) => {
            let (near, far) = if *better == Better::Lower { (low, high) } else { (high, low) };
            format!("95 %: {} to {}; ", spoken(near, *better), spoken(far, *better))
        }
        _ => String::new(),
    };
    let by = spoken(ratio, *better);
    format!("{arm} {verb} {by} {word} than {base}{values} ({interval}{asked})")
}

fn no_worse(gate: &Gate, decision: &Decision, words: &Words) -> String {
    let Decision { arm, base, better, .. } = decision;
    let asked = resolution(gate);
    if let Some(difference) = &decision.difference {
        let worst = match better {
            Better::Lower => difference.high,
            Better::Higher => difference.low.map(|low| -low),
        };
        let most = match worst {
            Some(worst) if worst > 0.0 => {
                format!("at most {} {} a trial", units::digits(worst), words.worse)
            }
            Some(worst) if worst < 0.0 => {
                format!("at least {} {} a trial", units::digits(-worst), words.better)
            }
            _ => "none in either".to_owned(),
        };
        return format!("{arm} has no {} than {base}: {most} ({asked})", words.worse);
    }
    let worst = match better {
        Better::Lower => decision.high,
        Better::Higher => decision.low,
    };
    let (verb, word) = match gate.by {
        By::Value => (words.verb, words.worse),
        By::Worth => ("is worth", "less"),
    };
    let most = match worst {
        None => String::new(),
        Some(1.0) => ": equal".to_owned(),
        Some(worst) if (worst > 1.0) == (*better == Better::Lower) => {
            format!(": at most {}", spoken(worst, *better))
        }
        Some(worst) => format!(": at least {} {}", spoken(worst, *better), words.better),
    };
    format!("{arm} {verb} no {word} than {base}{most} ({asked})")
}

fn open(gate: &Gate, decision: &Decision, words: &Words) -> String {
    let Decision { arm, base, better, .. } = decision;
    let asked = resolution(gate);
    let is_wide = matches!(
        decision.reason,
        None | Some(Undecided::Wide | Undecided::Corrected { .. } | Undecided::Interrupted)
    );
    let range = match (&decision.difference, decision.low, decision.high) {
        _ if !is_wide => None,
        (Some(difference), ..) => difference.low.zip(difference.high).map(|(low, high)| {
            let (low, high) = if low <= high { (low, high) } else { (high, low) };
            let [low, high] = [low, high].map(|value| {
                let is_worse = (value > 0.0) == (*better == Better::Lower);
                let word = if is_worse { words.worse } else { words.better };
                format!("{} {word}", units::digits(value.abs()))
            });
            format!("{arm} has between {low} and {high} a trial than {base}")
        }),
        (None, Some(low), Some(high)) => {
            let ends = [low, high].map(|end| side(end, *better, words));
            Some(format!("{arm} is between {} and {} against {base}", ends[0], ends[1]))
        }
        _ => None,
    };
    let reason = match (&decision.reason, &range) {
        (None | Some(Undecided::Wide), Some(range)) => format!("{range} ({asked})"),
        (Some(_), Some(range)) => format!("{range} ({asked}); {}", reason(gate, decision)),
        _ => format!("{arm} against {base}: {}", reason(gate, decision)),
    };
    match more(decision) {
        Some(more) => format!("{reason}; {more} would probably decide"),
        None => reason,
    }
}

/// `about 40 blocks (4 min) more`.
fn more(decision: &Decision) -> Option<String> {
    let blocks = decision.more_blocks?;
    let time = decision.more_ms.filter(|ms| *ms > 0).map(|ms| match ms {
        ..100_000 => format!("{} s", ms.div_ceil(1000)),
        100_000..10_000_000 => format!("{} min", ms.div_ceil(60_000)),
        _ => format!("{} h", ms.div_ceil(3_600_000)),
    });
    let time = time.map_or(String::new(), |time| format!(" ({time})"));
    Some(format!("about {}{time} more", units::plural(blocks, "block")))
}

fn failures_sentence(decision: &Decision, failures: &Reliability) -> String {
    let counts = format!(
        "{} of {} trials against {} of {} of {}",
        failures.failed,
        failures.trials,
        failures.baseline_failed,
        failures.baseline_trials,
        decision.base
    );
    let arm = &decision.arm;
    match decision.answer {
        GateAnswer::Worse => format!("{arm} fails more often than {}: {counts}", decision.base),
        GateAnswer::NoWorse => format!("{arm} fails in no more trials: {counts}"),
        GateAnswer::NotDecided => format!("failed trials: not decided: {arm} failed in {counts}"),
    }
}

/// Reason for no decision, and its remedy.
fn reason(gate: &Gate, decision: &Decision) -> String {
    let base = &decision.base;
    match &decision.reason {
        None => "no reason is given".into(),
        Some(Undecided::Wide) => match (decision.more_blocks, gate.by) {
            (None, _) => "the interval reaches beyond the resolution".into(),
            (Some(_), _) => "the interval is too wide".into(),
        },
        Some(Undecided::FewBlocks { blocks, needed }) => {
            format!("{} with the figure, {needed} are needed", units::plural(*blocks, "block"))
        }
        Some(Undecided::FewRuns { needed }) => {
            format!("a verdict needs a figure in at least {needed} runs a side")
        }
        Some(Undecided::FewSessions { unit, old, new, needed }) => {
            let sides = [(old, "before"), (new, "now")];
            let missing = sides.iter().filter(|(count, _)| *count < needed).map(|(count, when)| {
                format!("{} more {when}", units::plural(needed - *count, unit.name()))
            });
            format!(
                "the day cannot be told from the change; {} can decide it, or both states in one run (--against)",
                missing.collect::<Vec<_>>().join(" and ")
            )
        }
        Some(Undecided::FewPoints { unit, sessions, needed }) => format!(
            "{} of {needed} without which no change can be found; {} more",
            units::plural(*sessions, unit.name()),
            needed.saturating_sub(*sessions)
        ),
        Some(Undecided::Corrected { figures }) => format!(
            "that is beyond the resolution, but not after the correction for {figures} figures"
        ),
        Some(Undecided::Resolution { step }) => format!(
            "the figures come in steps of {}, too coarse to resolve {}; let the program print \
             smaller units, or give a higher --resolve",
            units::value(*step, &decision.unit),
            percent(gate.threshold - 1.0)
        ),
        Some(Undecided::Tail) => {
            "no worse in the typical trial, but in all trials taken together".into()
        }
        Some(Undecided::Failures) => "it failed in more trials".into(),
        Some(Undecided::Unread { why }) => format!("there is no figure: {why}"),
        Some(Undecided::Missing { why }) => format!("the arm did not run: {why}"),
        Some(Undecided::Distrusted) => format!(
            "{base} differs from itself, so the machine cannot be trusted; run again on a quiet \
             machine"
        ),
        Some(Undecided::OneStart) => {
            "each program was started once, and two starts of one program differ, too; give more --time, or leave \
             out --keep"
                .into()
        }
        Some(Undecided::CarryOver) => {
            "the trial before moves its figures, so they cannot be trusted; run again with --settle"
                .into()
        }
        Some(Undecided::NoControl) => format!(
            "the second run of {base} gave no figure, so nothing shows the noise; see why its \
             trials failed"
        ),
        Some(Undecided::Interrupted) => "the run did not reach its planned end; let it end".into(),
        Some(Undecided::BaselineMoved) => {
            "the baseline itself changed, so either the machine did or something that all arms \
             share; compare both states in one run (--against), or ask for --fail-on less-worth"
                .into()
        }
        Some(Undecided::Runs { undecided, of }) => format!("in {undecided} of {of} runs"),
    }
}

#[cfg(test)]
mod tests {
    use model::CountDifference;

    use super::*;

    fn decision(answer: GateAnswer, better: Better, unit: &str, ratios: [f64; 3]) -> Decision {
        let [low, ratio, high] = ratios.map(Some);
        Decision {
            arm: "new".into(),
            base: "old".into(),
            metric: Some(if unit == "rps" { "rps".into() } else { format!("p99_{unit}") }),
            unit: unit.into(),
            better,
            value: Some(12.0),
            base_value: Some(10.0),
            ratio,
            low,
            high,
            difference: None,
            failures: None,
            p: None,
            answer,
            reason: None,
            more_blocks: None,
            more_ms: None,
        }
    }

    fn said(decision: Decision) -> String {
        let answer = decision.answer;
        let gate = Gate { threshold: 1.05, by: By::Value, answer, decisions: vec![decision] };
        summary(&gate)
    }

    #[test]
    fn worse_says_by_how_much_in_the_words_of_the_figure() {
        use GateAnswer::Worse;
        assert_eq!(
            said(decision(Worse, Better::Lower, "ms", [1.17, 1.2, 1.23])),
            "p99: new is 20 % slower than old, 12.0 ms in place of 10.0 ms (95 %: 17 % to 23 %; \
             resolution 5 %)"
        );
        let slower = said(decision(Worse, Better::Higher, "rps", [0.77, 0.8, 0.83]));
        assert!(slower.starts_with("rps: new is 20 % slower than old"), "{slower}");
        assert!(slower.contains("95 %: 17 % to 23 %"), "{slower}");
        let times = said(decision(Worse, Better::Lower, "ms", [5.0, 5.3, 5.5]));
        assert!(times.contains("5.30 times slower"), "{times}");
        let mut lost = decision(Worse, Better::Lower, "count", [1.0; 3]);
        (lost.ratio, lost.low, lost.high) = (None, None, None);
        lost.metric = Some("lost_count".into());
        (lost.value, lost.base_value) = (Some(45.0), Some(0.0));
        lost.difference = Some(CountDifference { mean: 44.5, low: Some(42.0), high: Some(47.0) });
        assert_eq!(
            said(lost),
            "lost: new has 44.5 more a trial than old, 45 in place of 0 (95 %: 42.0 to 47.0; resolution \
             5 %)"
        );
    }

    #[test]
    fn no_worse_says_at_most_by_how_much() {
        use GateAnswer::NoWorse;
        assert_eq!(
            said(decision(NoWorse, Better::Lower, "ms", [0.99, 1.0, 1.014])),
            "p99: new is no slower than old: at most 1.4 % (resolution 5 %)"
        );
        let faster = said(decision(NoWorse, Better::Lower, "ms", [0.7, 0.75, 0.8]));
        assert!(faster.contains("no slower than old: at least 20 % faster"), "{faster}");
    }

    #[test]
    fn undecided_says_the_range_the_reason_and_what_would_decide() {
        let mut open = decision(GateAnswer::NotDecided, Better::Lower, "ms", [0.88, 1.0, 1.09]);
        open.reason = Some(Undecided::Wide);
        (open.more_blocks, open.more_ms) = (Some(40), Some(240_000));
        assert_eq!(
            said(open.clone()),
            "p99: not decided: new is between 12 % faster and 9 % slower against old (resolution \
             5 %); about 40 blocks (4 min) more would probably decide"
        );
        (open.more_blocks, open.more_ms) = (None, None);
        open.reason = Some(Undecided::Resolution { step: 1.0 });
        assert!(said(open.clone()).contains("steps of 1.00 ms"), "{}", said(open.clone()));
        open.reason = Some(Undecided::Unread { why: "no trial gave it".into() });
        assert!(said(open).contains("there is no figure: no trial gave it"));
        let none = Gate {
            threshold: 1.05,
            by: By::Value,
            answer: GateAnswer::NotDecided,
            decisions: vec![],
        };
        assert!(summary(&none).contains("no arm"));
    }
}
