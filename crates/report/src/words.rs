//! What text and HTML both say in words, so that they cannot disagree.

use std::collections::BTreeMap;

use model::{ArmKind, ArmOutcome, Better, Ended, MetricOutcome, Outcome, Verdict};

use crate::units;

/// A metric's name for people: `rtt_ns_p999` → `rtt p99.9`. The unit goes: it
/// stands with every figure.
pub(crate) fn metric(name: &str) -> String {
    name.split('_')
        .filter(|word| !matches!(*word, "ns" | "pps" | "bps" | "count" | "bytes"))
        .map(|word| match word {
            "p999" => "p99.9",
            "cpu" => "CPU",
            other => other,
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// A verdict in words.
pub(crate) fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NoDifferenceShown => "no difference shown",
        Verdict::Inconclusive => "inconclusive",
        Verdict::NotEffective => "not effective",
        Verdict::Unsupported => "unsupported",
        Verdict::Refused => "refused",
    }
}

/// An arm's part in words.
pub(crate) fn kind(kind: ArmKind) -> &'static str {
    match kind {
        ArmKind::Baseline => "baseline",
        ArmKind::Control => "control",
        ArmKind::Variant => "variant",
        ArmKind::Peer => "peer",
    }
}

/// Which way is better, in words.
pub(crate) fn better(better: Better) -> &'static str {
    match better {
        Better::Lower => "lower is better",
        Better::Higher => "higher is better",
    }
}

/// Why it ended, in words.
pub(crate) fn ended(ended: Ended) -> &'static str {
    match ended {
        Ended::Settled => "every verdict was settled",
        Ended::TimeUp => "the time was up",
        Ended::BlockLimit => "the block limit was reached",
        Ended::Interrupted => "it was interrupted",
        Ended::Unfinished => "it has not finished",
    }
}

/// `[0.0361, 0.0378]`, when there is an interval.
pub(crate) fn interval(metric: &MetricOutcome) -> Option<String> {
    let (low, high) = (metric.low?, metric.high?);
    Some(format!("[{}, {}]", units::digits(low), units::digits(high)))
}

/// The metric's direction and unit, from the first arm that has it.
pub(crate) fn shape<'a>(outcome: &'a Outcome, name: &str) -> Option<&'a MetricOutcome> {
    outcome.arms.iter().find_map(|arm| arm.metrics.get(name))
}

/// The variant with the best ratio among those judged better.
pub(crate) fn best<'a>(
    outcome: &'a Outcome,
    name: &str,
) -> Option<(&'a ArmOutcome, &'a MetricOutcome)> {
    let mut best: Option<(&ArmOutcome, &MetricOutcome)> = None;
    for arm in outcome.arms.iter().filter(|arm| arm.kind == ArmKind::Variant) {
        let Some(metric) = arm.metrics.get(name) else { continue };
        let Some(ratio) = metric.ratio else { continue };
        if metric.verdict != Some(Verdict::Better) {
            continue;
        }
        let beaten = |(_, other): (&ArmOutcome, &MetricOutcome)| {
            other.ratio.is_none_or(|other| match metric.better {
                Better::Lower => ratio < other,
                Better::Higher => ratio > other,
            })
        };
        if best.is_none_or(beaten) {
            best = Some((arm, metric));
        }
    }
    best
}

/// One line per judged metric.
pub(crate) fn headlines(outcome: &Outcome) -> Vec<String> {
    outcome.judged.iter().map(|name| headline(outcome, name)).collect()
}

/// The best arm by one metric, in one line.
pub(crate) fn headline(outcome: &Outcome, name: &str) -> String {
    let label = metric(name);
    if let Some((arm, figure)) = best(outcome, name) {
        let mut text = format!("{label}: best arm {}", arm.name);
        if let Some(median) = figure.median {
            text.push_str(&format!(", {}", units::value(median, &figure.unit)));
        }
        text.push_str(&format!(", {} of baseline", units::ratio(figure.ratio.unwrap_or(1.0))));
        if let Some(interval) = interval(figure) {
            text.push_str(&format!(" {interval}"));
        }
        return text;
    }
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for arm in outcome.arms.iter().filter(|arm| arm.kind == ArmKind::Variant) {
        if let Some(found) = arm.metrics.get(name).and_then(|metric| metric.verdict) {
            *counts.entry(verdict(found)).or_default() += 1;
        }
    }
    let counts: Vec<_> = counts.iter().map(|(word, n)| format!("{n} {word}")).collect();
    match counts.is_empty() {
        true => format!("{label}: no arm was judged"),
        false => {
            format!("{label}: no arm shown to be better than baseline ({})", counts.join(", "))
        }
    }
}

/// Whether the control arm's verdict says that the method cannot be trusted here.
pub(crate) fn control_fault(outcome: &Outcome) -> Option<String> {
    let control = outcome.arms.iter().find(|arm| arm.kind == ArmKind::Control)?;
    let differing: Vec<_> = outcome
        .judged
        .iter()
        .filter(|name| {
            control.metrics.get(*name).is_some_and(|metric| {
                matches!(metric.verdict, Some(Verdict::Better | Verdict::Worse))
            })
        })
        .map(|name| metric(name))
        .collect();
    (!differing.is_empty()).then(|| {
        format!(
            "the baseline differs from itself in {}: something else moved the figures",
            differing.join(", ")
        )
    })
}

/// What is missing in the books of one arm, all trials together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Books {
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    pub(crate) reordered: u64,
}

impl Books {
    /// From the counters where they have the books (`lost_count`, or with a
    /// direction, `forward_lost_count`), else from the metric of that name.
    pub(crate) fn of(arm: &ArmOutcome) -> Self {
        let total = |name: &str| {
            let suffix = format!("_{name}");
            let counted: Vec<u64> = arm
                .counters
                .iter()
                .filter(|(key, _)| *key == name || key.ends_with(&suffix))
                .map(|(_, count)| *count)
                .collect();
            if let Some(whole) = arm.counters.get(name) {
                return *whole;
            }
            if !counted.is_empty() {
                return counted.iter().sum();
            }
            let trials = arm.metrics.get(name).map(|metric| &metric.trials);
            trials.map_or(0, |t| t.iter().flatten().sum::<f64>().round() as u64)
        };
        Books {
            sent: total("sent_count"),
            lost: total("lost_count"),
            duplicated: total("duplicated_count"),
            reordered: total("reordered_count"),
        }
    }

    /// In words; `None` when nothing is amiss.
    pub(crate) fn words(&self) -> Option<String> {
        let mut parts = Vec::new();
        for (count, word) in
            [(self.lost, "lost"), (self.duplicated, "duplicated"), (self.reordered, "reordered")]
        {
            if count > 0 {
                parts.push(format!("{} {word}", units::grouped(count as i64)));
            }
        }
        if parts.is_empty() {
            return None;
        }
        let mut text = parts.join(", ");
        if self.sent > 0 {
            text.push_str(&format!(" of {} sent", units::grouped(self.sent as i64)));
            if self.lost > 0 {
                let share = units::percent(self.lost as f64 / self.sent as f64);
                text.push_str(&format!(" ({share} lost)"));
            }
        }
        Some(text)
    }
}

/// The modes really in use: (name, mode, arms), left out where all arms agree.
pub(crate) fn modes(outcome: &Outcome) -> Vec<(String, String, Vec<String>)> {
    let ran: Vec<_> = outcome.arms.iter().filter(|arm| !arm.mode.is_empty()).collect();
    let mut groups: Vec<(String, String, Vec<String>)> = Vec::new();
    for arm in &ran {
        for (name, mode) in &arm.mode {
            match groups.iter_mut().find(|(n, m, _)| n == name && m == mode) {
                Some((_, _, arms)) => arms.push(arm.name.clone()),
                None => groups.push((name.clone(), mode.clone(), vec![arm.name.clone()])),
            }
        }
    }
    groups.retain(|(_, _, arms)| arms.len() < ran.len());
    groups.sort_by(|a, b| a.0.cmp(&b.0));
    groups
}

/// Why a metric has no figure or no verdict, and which figures that holds for.
pub(crate) fn reasons(arm: &ArmOutcome, judged: &[String]) -> Vec<(String, Vec<String>)> {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for name in judged {
        let Some(why) = arm.metrics.get(name).and_then(|metric| metric.why.clone()) else {
            continue;
        };
        match reasons.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, names)) => names.push(metric(name)),
            None => reasons.push((why, vec![metric(name)])),
        }
    }
    reasons
}

/// The machine in one line.
pub(crate) fn machine(outcome: &Outcome) -> String {
    let m = &outcome.machine;
    let mut parts = vec![
        format!("kernel {}", m.kernel),
        m.cpu.clone(),
        format!("{} CPU{}", m.cpus, if m.cpus == 1 { "" } else { "s" }),
        units::memory(m.memory_bytes),
        m.nic.clone(),
    ];
    parts.push(m.hypervisor.clone().map_or("no hypervisor seen".into(), |h| format!("under {h}")));
    if let Some(governor) = &m.governor {
        parts.push(format!("governor {governor}"));
    }
    parts.push(format!("load {}.{:02}", m.load_x100 / 100, m.load_x100 % 100));
    parts.extend(m.notes.iter().map(|(name, value)| format!("{name} {value}")));
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

/// `spin`, `spin and batch`, `spin, batch and gso`.
pub(crate) fn listed(words: &[String]) -> String {
    match words {
        [] => "nothing".into(),
        [word] => word.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

/// `1 block`, `2 blocks`.
pub(crate) fn counted(count: u32, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// How it was measured, in one line.
pub(crate) fn method(outcome: &Outcome) -> String {
    let trials: u32 = outcome.arms.iter().map(|arm| arm.trials).sum();
    let arms = outcome.arms.iter().filter(|arm| arm.trials > 0).count();
    format!(
        "{} of {}, interleaved with seed {}; {} in {}; ended as {}",
        counted(outcome.blocks, "block"),
        counted(arms as u32, "arm"),
        outcome.seed,
        counted(trials, "trial"),
        units::duration_ms(outcome.wall_ms),
        ended(outcome.ended),
    )
}

/// `probe, ping, 64 B`: the path and its load.
pub(crate) fn subject(path: &str, load: &BTreeMap<String, String>) -> String {
    let mut parts = vec![path.to_string()];
    parts.extend(load.get("kind").cloned());
    let aside = ["kind", "arms", "trial_ms", "time_ms", "plan_digest"];
    for (name, value) in load.iter().filter(|(name, _)| !aside.contains(&name.as_str())) {
        parts.push(match name.rsplit_once('_') {
            Some(("size", "bytes")) => format!("{value} bytes"),
            Some((what, unit @ ("bytes" | "ms" | "ns" | "pps" | "bps"))) => {
                format!("{what} {value} {unit}")
            }
            _ => format!("{name} {value}"),
        });
    }
    parts.join(", ")
}

/// The command that repeats the experiment, as far as the outcome tells.
pub(crate) fn command(outcome: &Outcome) -> String {
    let mut words = vec!["wirepath".to_string()];
    match outcome.load.get("plan") {
        // Arms of settings, under the path's load.
        Some(plan) => words.extend(["tune prove".into(), shell(plan), "--path".into()]),
        None => words.push("prove".into()),
    }
    words.push(shell(&outcome.path));
    for (name, value) in &outcome.load {
        words.push(match name.as_str() {
            "from" => format!("--from {}", shell(value)),
            "forward" => "--forward".into(),
            "kind" => format!("--load {}", shell(value)),
            "size_bytes" => format!("--size {}", shell(value)),
            "rate_pps" => format!("--rate {}", shell(value)),
            "trial_ms" => format!("--trial {}", shell(&format!("{value}ms"))),
            "time_ms" => format!("--time {}", shell(&format!("{value}ms"))),
            "peer" | "far" => format!("--peer {}", shell(value)),
            _ => continue,
        });
    }
    let variants: Vec<_> = outcome
        .arms
        .iter()
        .filter(|arm| arm.kind == ArmKind::Variant && !arm.switches.is_empty())
        .map(|arm| arm.switches.as_slice())
        .collect();
    // What cannot run is in no later rung.
    let ran: Vec<_> = outcome
        .arms
        .iter()
        .filter(|arm| arm.kind == ArmKind::Variant && arm.support.is_yes())
        .map(|arm| arm.switches.as_slice())
        .collect();
    if let Some(asked) = outcome.load.get("arms") {
        words.push(format!("--arms {}", shell(asked)));
    } else if is_ladder(&ran) {
        words.push("--arms ladder".into());
    } else if !variants.is_empty() {
        let arms: Vec<_> = variants.iter().map(|switches| switches.join("+")).collect();
        words.push(format!("--arms {}", shell(&arms.join(","))));
    }
    let peers: Vec<_> = outcome
        .arms
        .iter()
        .filter(|arm| arm.kind == ArmKind::Peer)
        .map(|arm| arm.name.as_str())
        .collect();
    if !peers.is_empty() {
        words.push(format!("--peers {}", shell(&peers.join(","))));
    }
    if !outcome.load.contains_key("time_ms") {
        words.push(format!("--time {}s", outcome.wall_ms.div_ceil(1000)));
    }
    words.push(format!("--seed {}", outcome.seed));
    words.join(" ")
}

/// Each rung is the one before and one switch more.
fn is_ladder(variants: &[&[String]]) -> bool {
    variants.len() > 1
        && variants[0].len() == 1
        && variants.windows(2).all(|pair| {
            pair[1].len() == pair[0].len() + 1 && pair[0].iter().all(|s| pair[1].contains(s))
        })
}

/// Quoted for a POSIX shell where it must be.
pub(crate) fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "+-_.,:/@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_names_become_words_without_the_unit() {
        assert_eq!(metric("rtt_ns_p50"), "rtt p50");
        assert_eq!(metric("rtt_ns_p999"), "rtt p99.9");
        assert_eq!(metric("cpu_ns_per_packet"), "CPU per packet");
        assert_eq!(metric("received_pps"), "received");
        assert_eq!(metric("lost_count"), "lost");
    }

    #[test]
    fn a_hostile_word_cannot_leave_its_quotes_in_the_command() {
        assert_eq!(shell("ping"), "ping");
        assert_eq!(shell("a; rm -rf '/'"), r"'a; rm -rf '\''/'\'''");
    }

    #[test]
    fn a_ladder_is_told_from_other_sets_of_arms() {
        let own = |arms: &[&str]| -> Vec<Vec<String>> {
            arms.iter().map(|arm| arm.split('+').map(str::to_string).collect()).collect()
        };
        let ladder = |arms: &[&str]| {
            let owned = own(arms);
            is_ladder(&owned.iter().map(Vec::as_slice).collect::<Vec<_>>())
        };
        assert!(ladder(&["spin", "spin+batch", "spin+batch+gso"]));
        assert!(!ladder(&["spin", "batch", "gso"]));
        assert!(!ladder(&["spin", "spin+batch+gso"]));
        assert!(!ladder(&["spin"]));
    }

    #[test]
    fn nothing_amiss_is_no_line() {
        assert_eq!(Books::default().words(), None);
        let books = Books { sent: 1000, lost: 40, duplicated: 0, reordered: 2 };
        assert_eq!(books.words().unwrap(), "40 lost, 2 reordered of 1,000 sent (4.00 % lost)");
    }
}
