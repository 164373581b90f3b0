//! Names and short phrases that every form of a result uses.

use std::collections::BTreeMap;

use model::{ArmKind, Better, Ended, Verdict, stated_unit};

use crate::screen::Tone;

/// Returns a metric's name for people: `rtt_ns_p999` → `rtt p99.9`. The unit is left out, because
/// every figure carries it, unless it is the whole name: `rps`.
pub(crate) fn metric(name: &str) -> String {
    if name == "client_wall_ns" {
        return "wall time".to_owned();
    }
    let unit = stated_unit(name).map(|(unit, _)| unit);
    let unit = unit.filter(|unit| *unit != name && *unit != "share");
    name.split('_')
        .filter(|word| Some(*word) != unit)
        .map(|word| match word {
            "p999" => "p99.9",
            "cpu" => "CPU",
            other => other,
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Verdict in words.
pub fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NoDifferenceShown => "no difference shown",
        Verdict::Inconclusive => "inconclusive",
        Verdict::Exploratory => "exploratory",
        Verdict::NotEffective => "not effective",
        Verdict::Unsupported => "unsupported",
        Verdict::Refused => "refused",
    }
}

pub(crate) fn tone(verdict: Option<Verdict>) -> Tone {
    match verdict {
        None => Tone::Plain,
        Some(Verdict::Better) => Tone::Good,
        Some(Verdict::Worse) => Tone::Bad,
        Some(
            Verdict::Inconclusive | Verdict::Exploratory | Verdict::NotEffective | Verdict::Refused,
        ) => Tone::Doubt,
        Some(Verdict::NoDifferenceShown | Verdict::Unsupported) => Tone::Dim,
    }
}

pub(crate) fn kind(kind: ArmKind) -> &'static str {
    match kind {
        ArmKind::Baseline => "baseline",
        ArmKind::Control => "control",
        ArmKind::Variant => "variant",
        ArmKind::Peer => "peer",
    }
}

pub(crate) fn better(better: Better) -> &'static str {
    match better {
        Better::Lower => "lower is better",
        Better::Higher => "higher is better",
    }
}

pub(crate) fn ended(ended: Ended) -> &'static str {
    match ended {
        Ended::Settled => "every verdict was settled",
        Ended::TimeUp => "the time was up",
        Ended::BlockLimit => "the block limit was reached",
        Ended::Interrupted => "it was interrupted",
        Ended::Unfinished => "it has not finished",
    }
}

/// The same for a column of a list.
pub(crate) fn ended_briefly(ended: Ended) -> (&'static str, Tone) {
    match ended {
        Ended::Settled => ("settled", Tone::Good),
        Ended::TimeUp => ("time up", Tone::Plain),
        Ended::BlockLimit => ("block limit", Tone::Plain),
        Ended::Interrupted => ("interrupted", Tone::Doubt),
        Ended::Unfinished => ("unfinished", Tone::Doubt),
    }
}

/// `spin`, `spin and batch`, `spin, batch and gso`.
pub(crate) fn listed(words: &[String]) -> String {
    match words {
        [] => "nothing".into(),
        [word] => word.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

/// Returns `text` with its first letter in upper case.
pub(crate) fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Path and load in one line: `probe, ping, 64 bytes`.
pub(crate) fn subject(path: &str, of: &BTreeMap<String, String>) -> String {
    let load = load(of);
    if load.is_empty() { path.to_owned() } else { format!("{path}, {load}") }
}

/// A load in one line: `ping, 64 bytes`; empty without parameters that are part of the question.
pub(crate) fn load(load: &BTreeMap<String, String>) -> String {
    let mut parts: Vec<String> = load.get("kind").cloned().into_iter().collect();
    let left_out = [
        "kind",
        "arms",
        "args",
        "digest",
        "experiment",
        "judged",
        "resolve",
        "trial_ms",
        "time_ms",
        "plan_digest",
    ];
    for (name, value) in load.iter().filter(|(name, _)| !left_out.contains(&name.as_str())) {
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

/// `2026-11-21T08:30:00.123456789Z` → `2026-11-21 08:30:00 UTC`.
pub(crate) fn time(started: &str) -> String {
    match started.strip_suffix('Z') {
        Some(time) => {
            let whole = time.split_once('.').map_or(time, |(whole, _)| whole);
            format!("{} UTC", whole.replace('T', " "))
        }
        None => started.into(),
    }
}

/// `2026-11-21T08:30:00Z` → `2026-11-21 08:30`.
pub(crate) fn minute(started: &str) -> String {
    let whole = time(started);
    whole.get(..16).unwrap_or(&whole).to_owned()
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
        assert_eq!(metric("p99_us"), "p99");
        assert_eq!(metric("rps"), "rps");
        assert_eq!(metric("client_wall_ns"), "wall time");
        assert_eq!(metric("guest_share_idle"), "guest share idle");
    }
}
