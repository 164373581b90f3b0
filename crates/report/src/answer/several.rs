//! Several arms: the one to take and why, the arms that are worse, and peer programs.

use model::{ArmKind, ArmOutcome, Better, GateAnswer, MetricOutcome, Outcome, Verdict};

use super::change::Change;
use super::words::{amount, percent};
use super::{Subject, by_verdict, capital, ended, gate, gate_tone, no_figure, remedy};
use crate::page::helpful_switches;
use crate::screen::Tone;
use crate::{units, wording};

/// Switches up to which the sentence names each; an arm with more has its own name there.
const NAMED_MAX: usize = 4;

/// Arms that are worse up to which each is named.
const WORSE_NAMED_MAX: usize = 3;

/// An arm with its figures.
struct Judged<'a> {
    arm: &'a ArmOutcome,
    figures: &'a MetricOutcome,
    change: Change<'a>,
}

impl Judged<'_> {
    fn is(&self, verdict: Verdict) -> bool {
        self.figures.verdict == Some(verdict)
    }
}

/// Returns the sentence of a metric by which several variants are compared, and its tone.
pub(super) fn sentence<'a>(subject: &Subject<'a>, arms: &[&'a ArmOutcome]) -> (String, Tone) {
    let judged: Vec<Judged<'a>> = arms
        .iter()
        .filter_map(|&arm| {
            let figures = subject.figures(arm)?;
            Some(Judged { arm, figures, change: subject.change(arm, figures) })
        })
        .collect();
    if let Some(open_or_worse) = by_gate(subject) {
        return open_or_worse;
    }
    if let Some(best) = best(subject) {
        return (format!("{best}{}", worse(subject, &judged)), Tone::Good);
    }
    let (text, tone) = none_better(subject, &judged);
    let worse = worse(subject, &judged);
    (format!("{text}{worse}"), if worse.is_empty() { tone } else { Tone::Bad })
}

/// The answer of a gate that does not pass: the worse arms, else the first that is open.
fn by_gate(subject: &Subject<'_>) -> Option<(String, Tone)> {
    let gate = subject.gate()?;
    let of_metric: Vec<_> = (gate.decisions.iter())
        .filter(|decision| decision.metric.as_deref() == Some(subject.metric))
        .collect();
    for answer in [GateAnswer::Worse, GateAnswer::NotDecided] {
        let found: Vec<_> = of_metric.iter().filter(|decision| decision.answer == answer).collect();
        let Some(first) = found.first() else { continue };
        let mut text = gate::sentence(gate, first, subject.is_one_of_several);
        if found.len() > 1 {
            let names: Vec<String> =
                found[1..].iter().map(|decision| decision.arm.clone()).collect();
            text.push_str(&format!(" The same of {}.", named(&names)));
        }
        return Some((text, gate_tone(answer)));
    }
    None
}

/// Up to three names; more are counted.
fn named(names: &[String]) -> String {
    if names.len() <= WORSE_NAMED_MAX {
        return wording::listed(names);
    }
    let more = names.len() - WORSE_NAMED_MAX;
    format!("{} and {more} more", names[..WORSE_NAMED_MAX].join(", "))
}

/// `A ping takes 1.9 µs in place of 10.4: 5.3 times faster (95 %: 4.9 to 5.6 times), by polling (spin).`
fn best(subject: &Subject<'_>) -> Option<String> {
    let best = subject.outcome.simplest_best_arm(subject.metric)?;
    let arm = subject.outcome.arms.iter().find(|arm| arm.name == best.arm)?;
    let change = subject.change(arm, subject.figures(arm)?);
    let values = change.in_place();
    let lead = match (noun(subject, &change), values) {
        (Some(noun), Some(values)) => format!("{} takes {values}: ", with_article(noun, true)),
        (_, Some(values)) => format!("{}: {values}: ", change.label()),
        (_, None) => format!("{}: ", change.label()),
    };
    let gain = change.gain((best.low, best.high)).unwrap_or_else(|| "better".to_owned());
    let means =
        if subject.is_first() { means(subject.outcome, arm, subject.metric) } else { with(arm) };
    Some(format!("{lead}{gain}{means}."))
}

/// The thing whose time a metric is.
fn noun<'a>(subject: &Subject<'a>, change: &Change<'_>) -> Option<&'a str> {
    let noun = subject.outcome.phrases.noun.as_str();
    (subject.is_first() && !noun.is_empty() && change.is_time()).then_some(noun)
}

fn with_article(noun: &str, is_first: bool) -> String {
    let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    let phrase = format!("{article} {noun}");
    if is_first { capital(&phrase) } else { phrase }
}

/// `, by polling (spin) and by passing the stack (bypass)`, or `, with new2` of an arm that is no set of switches.
fn means(outcome: &Outcome, arm: &ArmOutcome, metric: &str) -> String {
    if arm.switches.is_empty() {
        return with(arm);
    }
    let mut switches = helpful_switches(outcome, arm, metric);
    if switches.is_empty() {
        switches.clone_from(&arm.switches);
    }
    if switches.len() > NAMED_MAX {
        return with(arm);
    }
    let by: Vec<String> = switches
        .iter()
        .map(|switch| match outcome.phrases.by.get(switch) {
            Some(phrase) => format!("by {phrase} ({switch})"),
            None => format!("by {switch}"),
        })
        .collect();
    let with = if switches.len() < arm.switches.len() {
        format!(" with {}", arm.name)
    } else {
        String::new()
    };
    format!("{with}, {}", wording::listed(&by))
}

fn with(arm: &ArmOutcome) -> String {
    format!(", with {}", arm.name)
}

/// ` Slower here: +pin (2.6 times).`; empty if no arm is worse.
fn worse(subject: &Subject<'_>, judged: &[Judged<'_>]) -> String {
    let mut worse: Vec<&Judged<'_>> =
        judged.iter().filter(|judged| judged.is(Verdict::Worse)).collect();
    worse.sort_by(|a, b| a.change.improvement().total_cmp(&b.change.improvement()));
    let Some(first) = worse.first() else { return String::new() };
    let word = match first.change.words().worse {
        word @ ("slower" | "higher" | "lower") => capital(word),
        word => format!("{} {}", capital(word), wording::metric(subject.metric)),
    };
    let names: Vec<String> = worse
        .iter()
        .map(|judged| match judged.change.amount() {
            Some(amount) => format!("{} ({amount})", judged.arm.name),
            None => judged.arm.name.clone(),
        })
        .collect();
    let place = if is_by_switches(judged) { " here" } else { "" };
    format!(" {word}{place}: {}.", named(&names))
}

fn is_by_switches(judged: &[Judged<'_>]) -> bool {
    judged.iter().all(|judged| !judged.arm.switches.is_empty())
}

/// The sentence where no arm is better.
fn none_better(subject: &Subject<'_>, judged: &[Judged<'_>]) -> (String, Tone) {
    let open: Vec<&Judged<'_>> = judged
        .iter()
        .filter(|judged| judged.is(Verdict::Inconclusive) || judged.is(Verdict::Exploratory))
        .collect();
    let most_promising =
        open.iter().max_by(|a, b| a.change.improvement().total_cmp(&b.change.improvement()));
    if let Some(first) = most_promising {
        return (not_decided(subject, first, open.len() - 1), Tone::Doubt);
    }
    let label = wording::metric(subject.metric);
    let idle = judged.iter().filter(|judged| judged.is(Verdict::NotEffective)).count();
    if judged.is_empty() {
        return (no_figure(subject), Tone::Doubt);
    }
    if idle == judged.len() {
        let text = format!("{label}: no {} had an effect here.", thing(judged));
        return (text, Tone::Doubt);
    }
    let equal: Vec<&Judged<'_>> =
        judged.iter().filter(|judged| judged.is(Verdict::NoDifferenceShown)).collect();
    let is_worse = judged.iter().any(|judged| judged.is(Verdict::Worse));
    if equal.is_empty() && !is_worse {
        return (no_figure(subject), Tone::Doubt);
    }
    let first = &judged[0].change;
    let makes = improves(subject, first);
    let resolution = percent(subject.outcome.resolve - 1.0);
    let more = if equal.is_empty() {
        String::new()
    } else {
        format!(" by {resolution} or more{}", at_most(&equal))
    };
    let place = if is_by_switches(judged) { " here" } else { "" };
    (format!("No {} {makes}{place}{more}.", thing(judged)), Tone::Plain)
}

/// `makes a ping faster`, `lowers CPU per packet`.
fn improves(subject: &Subject<'_>, change: &Change<'_>) -> String {
    let what = match noun(subject, change) {
        Some(noun) => with_article(noun, false),
        None => wording::metric(subject.metric),
    };
    match (change.words().better, change.better()) {
        ("faster", _) => format!("makes {what} faster"),
        (_, Better::Lower) => format!("lowers {what}"),
        (_, Better::Higher) => format!("raises {what}"),
    }
}

/// `: at most 3.1 % (+spin)`, of the arm whose interval reaches farthest.
fn at_most(equal: &[&Judged<'_>]) -> String {
    let gains = equal.iter().filter_map(|judged| Some((judged, judged.change.gain_at_most()?)));
    let most = gains.max_by(|(_, a), (_, b)| a.ln().abs().total_cmp(&b.ln().abs()));
    most.map_or(String::new(), |(judged, ratio)| {
        format!(": at most {} ({})", amount(ratio), judged.arm.name)
    })
}

fn thing(judged: &[Judged<'_>]) -> &'static str {
    if is_by_switches(judged) { "switch" } else { "arm" }
}

/// - `others`: further arms that are open.
fn not_decided(subject: &Subject<'_>, first: &Judged<'_>, others: usize) -> String {
    let (text, _) = by_verdict(subject, &first.change, first.figures);
    let text = super::with_label(&first.change, subject.is_one_of_several, text);
    match others {
        0 => text,
        others => {
            let remedy = remedy(subject);
            let head = text.strip_suffix(&remedy).unwrap_or(&text).trim_end_matches('.');
            let arms = units::plural(others as u32, "other arm");
            let verb = if others == 1 { "is" } else { "are" };
            format!("{head}; {arms} {verb} open, too.{remedy}")
        }
    }
}

/// ` sockperf takes 2.3 times as long as our plain socket (baseline).` for each peer with an answer by the first judged metric; empty without
/// one.
pub(super) fn peers(subject: &Subject<'_>) -> String {
    if !subject.is_first() {
        return String::new();
    }
    let peers = subject.outcome.arms.iter().filter(|arm| arm.kind == ArmKind::Peer);
    let said = peers.filter_map(|arm| Some(format!(" {}", peer(subject, arm)?)));
    said.collect()
}

fn peer(subject: &Subject<'_>, arm: &ArmOutcome) -> Option<String> {
    let figures = subject.figures(arm)?;
    let change = subject.change(arm, figures);
    let base = &subject.base.name;
    let baseline = subject.outcome.phrases.baseline.as_str();
    let our = if baseline.is_empty() {
        format!("our {base}")
    } else {
        format!("our {baseline} ({base})")
    };
    let name = &arm.name;
    let text = match figures.verdict? {
        verdict @ (Verdict::Worse | Verdict::Better) => {
            let is_slower = verdict == Verdict::Worse;
            let ratio = change.ratio()?;
            let words = change.words();
            match (change.is_time(), is_slower) {
                (true, true) if ratio >= 2.0 => {
                    format!("{name} takes {} as long as {our}", amount(ratio))
                }
                (true, true) => format!("{name} takes {} longer than {our}", amount(ratio)),
                _ if words.names_figure && ratio >= 2.0 => {
                    format!("{name} takes {} as much {} as {our}", amount(ratio), change.label())
                }
                _ => {
                    let word = if is_slower { words.worse } else { words.better };
                    let noun = if words.names_figure {
                        format!(" {}", change.label())
                    } else {
                        String::new()
                    };
                    format!("{name} {} {} {word}{noun} than {our}", words.verb, amount(ratio))
                }
            }
        }
        Verdict::NoDifferenceShown => format!("{name} is equal to {our}"),
        _ => return None,
    };
    Some(ended(&text))
}
