//! Sentences about a result: one sentence for each judged metric, in the user's words.
//!
//! Every form of a result prints these sentences. They rest on verdicts and on the answers of a gate: no sentence says
//! "slower" because an interval looks like it.

mod change;
mod functions;
mod gate;
mod live;
mod many;
mod several;
#[cfg(test)]
mod tests;
mod words;

use model::{
    ArmKind, ArmOutcome, Decision, Ended, Gate, GateAnswer, MetricOutcome, Outcome, Support,
    Verdict,
};

use crate::screen::Tone;
use crate::{units, wording};

use change::Change;
pub(crate) use functions::{differing, place as place_of_function, samples as samples_of_arm};
pub use gate::summary;
pub(crate) use gate::{has_several_figures, sentence as decision_sentence};
pub(crate) use live::{label as live_label, time as live_time};
pub use live::{live_end, live_sentences, live_trust};
pub(crate) use many::{compared, pooled};
use words::about;
pub(crate) use words::{Words, end as change_in_words, percent};

/// A statement about a run, ending with a full stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentence {
    /// Judged metric that it is about; `None` for failed trials, for a function's CPU time, and for a run without any figure.
    pub metric: Option<String>,
    pub text: String,
    pub tone: Tone,
}

impl Sentence {
    fn new(metric: Option<&str>, text: String, tone: Tone) -> Self {
        Sentence { metric: metric.map(str::to_owned), text, tone }
    }
}

/// Returns what a result says: arms that fail more often first, then a sentence for each judged metric, then the function whose
/// CPU time goes with a verdict. Never empty.
pub fn sentences(outcome: &Outcome) -> Vec<Sentence> {
    let mut said = failing(outcome);
    let Some(base) = baseline(outcome) else {
        said.push(Sentence::new(None, "No figure: no arm ran.".to_owned(), Tone::Doubt));
        return said;
    };
    if base.trials == 0 && base.metrics.values().all(|metric| metric.median.is_none()) {
        said.push(Sentence::new(None, no_baseline(outcome, base), Tone::Bad));
        return said;
    }
    said.extend(outcome.judged.iter().map(|metric| metric_sentence(outcome, base, metric)));
    said.extend(functions::sentence(outcome));
    said
}

/// The sentence for a list: what a gate was asked, else the first one.
pub fn headline(outcome: &Outcome) -> String {
    match &outcome.gate {
        Some(gate) => summary(gate),
        None => sentences(outcome).into_iter().next().map_or(String::new(), |said| said.text),
    }
}

fn baseline(outcome: &Outcome) -> Option<&ArmOutcome> {
    outcome.arms.iter().find(|arm| arm.kind == ArmKind::Baseline)
}

fn no_baseline(outcome: &Outcome, base: &ArmOutcome) -> String {
    match (base.failures.last(), outcome.ended) {
        (Some(why), _) => format!("No figure: every trial of {} failed: {}", base.name, ended(why)),
        (None, Ended::Interrupted) => {
            "No figure: interrupted before the first trial that counts.".to_owned()
        }
        (None, Ended::Unfinished) => "So far: no trial that counts.".to_owned(),
        (None, _) => {
            format!("No figure: the time was up before a trial of {} that counts.", base.name)
        }
    }
}

/// Arms that fail more often than the baseline, or of which that is not decided.
fn failing(outcome: &Outcome) -> Vec<Sentence> {
    if let Some(gate) = &outcome.gate {
        let of_trials = gate.decisions.iter().filter(|decision: &&Decision| {
            decision.metric.is_none() && decision.answer != GateAnswer::NoWorse
        });
        return of_trials
            .map(|decision| {
                let text = gate::sentence(gate, decision, false);
                Sentence::new(None, text, gate_tone(decision.answer))
            })
            .collect();
    }
    let base = baseline(outcome).map_or("the baseline", |base| base.name.as_str());
    let failing = outcome.arms.iter().filter_map(|arm| {
        let seen = arm.reliability.as_ref().filter(|seen| seen.fails_more)?;
        let text = format!("{} fails more often than {base}: {}.", arm.name, gate::counts(seen));
        Some(Sentence::new(None, text, Tone::Bad))
    });
    failing.collect()
}

pub(crate) fn gate_tone(answer: GateAnswer) -> Tone {
    match answer {
        GateAnswer::NoWorse => Tone::Good,
        GateAnswer::Worse => Tone::Bad,
        GateAnswer::NotDecided => Tone::Doubt,
    }
}

/// Sentence about one metric.
struct Subject<'a> {
    outcome: &'a Outcome,
    base: &'a ArmOutcome,
    metric: &'a str,
    /// True if other metrics are judged, too.
    is_one_of_several: bool,
}

impl<'a> Subject<'a> {
    /// True for the most important metric.
    fn is_first(&self) -> bool {
        self.outcome.judged.first().is_some_and(|first| first == self.metric)
    }

    fn gate(&self) -> Option<&'a Gate> {
        self.outcome.gate.as_ref()
    }

    fn decision(&self, arm: &str) -> Option<&'a Decision> {
        self.gate()?.decision(arm, self.metric)
    }

    fn change(&self, arm: &'a ArmOutcome, figures: &'a MetricOutcome) -> Change<'a> {
        Change::from_arm(arm, self.base, self.metric, figures)
    }

    fn figures(&self, arm: &'a ArmOutcome) -> Option<&'a MetricOutcome> {
        arm.metrics.get(self.metric)
    }

    /// True of an arm whose switches a path has words for: it is spoken of like the best of several.
    fn is_of_switches(&self, arm: &ArmOutcome) -> bool {
        let is_worded = !self.outcome.phrases.noun.is_empty() && !arm.switches.is_empty();
        is_worded && self.gate().is_none()
    }

    /// Variants that could run here.
    fn variants(&self) -> Vec<&'a ArmOutcome> {
        let arms = self.outcome.arms.iter();
        arms.filter(|arm| arm.kind == ArmKind::Variant && arm.support.is_yes()).collect()
    }
}

fn metric_sentence(outcome: &Outcome, base: &ArmOutcome, metric: &str) -> Sentence {
    let is_one_of_several = outcome.judged.len() > 1;
    let subject = Subject { outcome, base, metric, is_one_of_several };
    let (text, tone) = match (distrust(&subject), subject.variants().as_slice()) {
        (Some(text), _) => (text, Tone::Bad),
        (None, []) => without_variant(&subject),
        (None, [arm]) if !subject.is_of_switches(arm) => pair(&subject, arm),
        (None, arms) => several::sentence(&subject, arms),
    };
    let peers = several::peers(&subject);
    // A good answer of a run that was broken off may change.
    let is_early_praise = tone == Tone::Good && !outcome.ended.is_complete();
    let tone = if is_early_praise { Tone::Doubt } else { tone };
    Sentence::new(Some(metric), format!("{}{peers}", so_far(outcome, text)), tone)
}

/// Says of a run that did not reach its end that it did not.
fn so_far(outcome: &Outcome, text: String) -> String {
    if outcome.ended.is_complete() { text } else { format!("So far: {}", within(&text)) }
}

/// Reason not to trust a metric, unless a gate has decided it.
fn distrust(subject: &Subject<'_>) -> Option<String> {
    let Subject { outcome, base, metric, .. } = subject;
    let is_decided = subject.gate().is_some_and(|gate| {
        let mut of_metric = gate.decisions.iter().filter(|d| d.metric.as_deref() == Some(*metric));
        of_metric.any(|decision| decision.answer == GateAnswer::Worse)
    });
    if is_decided {
        return None;
    }
    let label = wording::metric(metric);
    if outcome.differing().contains(metric) {
        return Some(format!(
            "Not trusted: {} differs from itself in {label}: something else moved the figures. Run again on a quiet \
             machine.",
            base.name
        ));
    }
    outcome
        .trust
        .carried_over()
        .contains(metric)
        .then(|| format!("Not trusted: the trial before moves {label}. Run again with --settle."))
}

fn without_variant(subject: &Subject<'_>) -> (String, Tone) {
    let variant = subject.outcome.arms.iter().find(|arm| arm.kind == ArmKind::Variant);
    if let Some((arm, why)) = variant.and_then(|arm| Some((arm, arm.support.reason()?))) {
        let word = match arm.support {
            Support::Refused { .. } => "was not run",
            _ => "cannot run here",
        };
        return (format!("Not decided: {} {word}: {}", arm.name, ended(&why)), Tone::Doubt);
    }
    let value = subject.figures(subject.base).and_then(|of| Some((of.median?, &of.unit)));
    match value {
        Some((median, unit)) => {
            let label = wording::metric(subject.metric);
            let text = format!("{label} of {}: {}.", subject.base.name, words::value(median, unit));
            (text, Tone::Plain)
        }
        None => (no_figure(subject), Tone::Doubt),
    }
}

fn no_figure(subject: &Subject<'_>) -> String {
    let label = wording::metric(subject.metric);
    let reasons =
        subject.outcome.arms.iter().filter_map(|arm| subject.figures(arm)?.why.as_deref());
    let why = reasons.into_iter().next().unwrap_or("no trial gave one");
    format!("No figure for {label}: {}", ended(why))
}

/// One variant beside the baseline.
fn pair<'a>(subject: &Subject<'a>, arm: &'a ArmOutcome) -> (String, Tone) {
    let decision = subject.decision(&arm.name);
    let Some(figures) = subject.figures(arm) else {
        return match (decision, arm.failures.last()) {
            (_, Some(why)) => {
                let text =
                    format!("Not decided: every trial of {} failed: {}", arm.name, ended(why));
                (text, Tone::Doubt)
            }
            (Some(decision), None) => gate_sentence(subject, decision),
            (None, None) => (no_figure(subject), Tone::Doubt),
        };
    };
    let change = subject.change(arm, figures);
    let (text, tone) = match decision {
        // A gate that passes is told with the better news.
        Some(Decision { answer: GateAnswer::NoWorse, .. })
            if figures.verdict == Some(Verdict::Better) =>
        {
            (format!("{}.", change.differs(false)), Tone::Good)
        }
        Some(decision) => return gate_sentence(subject, decision),
        None => by_verdict(subject, &change, figures),
    };
    (with_label(&change, subject.is_one_of_several, text), tone)
}

fn gate_sentence(subject: &Subject<'_>, decision: &Decision) -> (String, Tone) {
    let Some(gate) = subject.gate() else { return (no_figure(subject), Tone::Doubt) };
    let text = gate::sentence(gate, decision, subject.is_one_of_several);
    (text, gate_tone(decision.answer))
}

/// The statement of a verdict, without the metric's name.
fn by_verdict(
    subject: &Subject<'_>,
    change: &Change<'_>,
    figures: &MetricOutcome,
) -> (String, Tone) {
    let tone = wording::tone(figures.verdict);
    let why = figures.why.as_deref();
    let text = match figures.verdict {
        Some(Verdict::Better) => format!("{}.", change.differs(false)),
        Some(Verdict::Worse) => format!("{}.", change.differs(true)),
        Some(Verdict::NoDifferenceShown) => {
            return (format!("{}.", change.equal(subject.outcome.resolve)), Tone::Plain);
        }
        Some(Verdict::NotEffective) => {
            let why = why.unwrap_or("its switches did nothing");
            format!("{} had no effect: {}", change.arm, ended(why))
        }
        Some(Verdict::Refused | Verdict::Unsupported) => {
            let why = why.unwrap_or("it was refused");
            format!("No figure for {} of {}: {}", change.label(), change.arm, ended(why))
        }
        Some(Verdict::Inconclusive | Verdict::Exploratory) | None => {
            let open = undecided(change, figures);
            format!("Not decided{}: {open}{}", after(subject.outcome), remedy(subject))
        }
    };
    (text, tone)
}

/// ` after 7 blocks` of a run that did not reach its end.
fn after(outcome: &Outcome) -> String {
    if outcome.ended.is_complete() {
        return String::new();
    }
    format!(" after {}", units::plural(outcome.blocks, "block"))
}

/// The range of a figure that is not decided, and the reason where the width is not all of it.
fn undecided(change: &Change<'_>, figures: &MetricOutcome) -> String {
    // That a run was interrupted is said before the sentence.
    let is_early = figures.verdict == Some(Verdict::Exploratory);
    let why = figures.why.as_deref().filter(|_| !is_early);
    match (change.between(), why) {
        (Some(between), None) => format!("{between}."),
        (Some(between), Some(why)) => format!("{between}. {}", capital(&ended(why))),
        (None, Some(why)) => format!("{} against {}: {}", change.arm, change.base, ended(why)),
        (None, None) => format!("{} against {}: too few blocks.", change.arm, change.base),
    }
}

/// ` About 4 minutes more would decide 5 %.`; empty if that is not known.
fn remedy(subject: &Subject<'_>) -> String {
    let Outcome { forecast, wall_ms, resolve, ended, .. } = subject.outcome;
    let more = forecast.as_ref().and_then(|forecast| forecast.whole_ms.checked_sub(*wall_ms));
    match more.filter(|more| *more > 0 && ended.is_complete()) {
        Some(more) => {
            format!(" About {} more would decide {}.", about(more), percent(resolve - 1.0))
        }
        None => String::new(),
    }
}

/// Text behind the name of its figure, where the sentence does not name it: `p99: new is …`.
fn with_label(change: &Change<'_>, is_one_of_several: bool, text: String) -> String {
    if !change.needs_label(is_one_of_several) {
        return text;
    }
    format!("{}: {}", change.label(), within(&text))
}

/// A sentence behind a colon.
fn within(text: &str) -> String {
    let ours = ["Not decided", "No figure", "No switch", "No arm", "Not trusted"];
    if ours.iter().any(|lead| text.starts_with(lead)) {
        format!("n{}", &text[1..])
    } else {
        text.to_owned()
    }
}

/// With a full stop at its end.
fn ended(text: &str) -> String {
    let text = text.trim_end();
    if text.ends_with(['.', '!', '?', '…']) { text.to_owned() } else { format!("{text}.") }
}

/// With an upper-case first letter.
fn capital(text: &str) -> String {
    wording::capitalised(text)
}
