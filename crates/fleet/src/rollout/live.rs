//! Proof of a stage on the running services of its hosts: half of them have the plan while the other half has not, and then
//! the other way round.

use model::Verdict;
use model::live::{LivePooled, TripCount};
use serde::{Deserialize, Serialize};

use super::{RolloutGate, Wants};

/// Hosts that were crossed over again and again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveCrossings {
    /// Groups of two hosts of the stage; the last one of an odd number is alone.
    pub groups: Vec<Vec<String>>,
    /// Times that each group was crossed over.
    pub rounds: u32,
    /// Seed of the coins: group `g` of round `r` has number `r * groups + g`.
    pub seed: u64,
    /// Length of a period, milliseconds.
    pub period_ms: u64,
    /// By judged figure, the deciding one first; the units are groups and rounds.
    pub figures: Vec<LivePooled>,
    /// Periods that the guard ended.
    pub trips: TripCount,
    /// Crossings without a request in a period, which do not count.
    pub silent_count: u32,
}

impl LiveCrossings {
    /// True if more rounds cannot change the judgement.
    pub fn is_decided(&self) -> bool {
        self.trips.ends_the_run()
            || self.figures.iter().any(|of| of.verdict.verdict == Verdict::Worse)
            || (!self.figures.is_empty()
                && self.figures.iter().all(|of| of.verdict.verdict != Verdict::Inconclusive))
    }
}

/// Judges a live proof: harm in any figure shuts the gate, and the deciding figure opens it.
pub fn live_gate(proof: &LiveCrossings, wants: Wants) -> RolloutGate {
    if proof.trips.ends_the_run() {
        return RolloutGate::Shut(format!(
            "the guard undid the plan {} times, and ended no period without it",
            proof.trips.on
        ));
    }
    let worse = proof.figures.iter().find(|of| of.verdict.verdict == Verdict::Worse);
    if let Some(worse) = worse {
        let figure = words(&worse.verdict.figure);
        return RolloutGate::Shut(format!("{figure} is worse{}", times(worse)));
    }
    let Some(first) = proof.figures.first() else {
        return RolloutGate::Shut("no host has a figure".into());
    };
    if first.verdict.pairs == 0 {
        return RolloutGate::Shut("no crossing counts: each had a period without a request".into());
    }
    let name = words(&first.verdict.figure);
    let has_gain = proof.figures.iter().any(|of| of.verdict.verdict == Verdict::Better);
    match first.verdict.verdict {
        Verdict::Better => RolloutGate::Open(format!("{name} is better{}", times(first))),
        Verdict::NoDifferenceShown if wants.gain && !has_gain => {
            RolloutGate::Shut(format!("no gain is shown{}", times(first)))
        }
        Verdict::NoDifferenceShown => {
            RolloutGate::Open(format!("{name} shows no difference{}", times(first)))
        }
        _ => {
            let pairs = first.verdict.pairs;
            let why = format!("{name} is not decided after {pairs} crossings{}", times(first));
            if wants.accepts_inconclusive {
                RolloutGate::Open(format!("{why}, which the user accepts"))
            } else {
                RolloutGate::Unclear(why)
            }
        }
    }
}

/// A figure's name as words.
fn words(name: &str) -> String {
    name.replace('_', " ")
}

fn times(of: &LivePooled) -> String {
    of.verdict.ratio.map_or(String::new(), |ratio| format!(", ×{:.3}", ratio.median))
}

#[cfg(test)]
mod tests {
    use model::live::LiveVerdict;

    use super::*;

    fn proof(verdicts: &[Verdict]) -> LiveCrossings {
        let figures = verdicts.iter().enumerate().map(|(at, verdict)| LivePooled {
            verdict: LiveVerdict {
                figure: format!("figure {at}"),
                verdict: *verdict,
                pairs: 20,
                ratio: None,
                difference: None,
                evidence: 0.0,
                evidence_needed: 20.0,
                decided_ns: None,
                within_ns: 1,
            },
            groups_needed: 18,
            left_out: Vec::new(),
        });
        LiveCrossings {
            groups: vec![vec!["a".into(), "b".into()]],
            rounds: 20,
            seed: 1,
            period_ms: 5000,
            figures: figures.collect(),
            trips: TripCount::default(),
            silent_count: 0,
        }
    }

    fn gate(verdicts: &[Verdict], wants: Wants) -> &'static str {
        match live_gate(&proof(verdicts), wants) {
            RolloutGate::Open(_) => "open",
            RolloutGate::Unclear(_) => "unclear",
            RolloutGate::Shut(_) => "shut",
            RolloutGate::Suspect(_) | RolloutGate::Void(_) => "other",
        }
    }

    #[test]
    fn harm_in_any_figure_shuts_and_the_first_figure_opens() {
        use Verdict::{Better, Inconclusive, NoDifferenceShown, Worse};
        let gain = Wants { gain: true, ..Wants::default() };
        let accepts = Wants { accepts_inconclusive: true, ..Wants::default() };
        for (verdicts, default, wants_gain, accepting) in [
            (&[Better, Inconclusive], "open", "open", "open"),
            (&[Better, Worse], "shut", "shut", "shut"),
            (&[NoDifferenceShown, Inconclusive], "open", "shut", "open"),
            (&[NoDifferenceShown, Better], "open", "open", "open"),
            (&[Inconclusive, Better], "unclear", "unclear", "open"),
        ] {
            let gates = [Wants::default(), gain, accepts].map(|wants| gate(verdicts, wants));
            assert_eq!(gates, [default, wants_gain, accepting], "{verdicts:?}");
        }
        assert_eq!(gate(&[], accepts), "shut");
        let mut silent = proof(&[Inconclusive]);
        silent.figures[0].verdict.pairs = 0;
        assert!(matches!(live_gate(&silent, accepts), RolloutGate::Shut(_)));
    }

    #[test]
    fn guard_that_trips_with_the_plan_alone_ends_the_stage() {
        let mut tripped = proof(&[Verdict::Inconclusive]);
        tripped.trips = TripCount { on: 5, off: 0 };
        assert!(tripped.is_decided());
        assert!(matches!(live_gate(&tripped, Wants::default()), RolloutGate::Shut(_)));
        tripped.trips.off = 1;
        assert!(!tripped.is_decided());
    }

    #[test]
    fn rounds_go_on_until_every_figure_is_decided_or_one_is_worse() {
        use Verdict::{Better, Inconclusive, NoDifferenceShown, Worse};
        assert!(!proof(&[]).is_decided());
        assert!(!proof(&[Better, Inconclusive]).is_decided());
        assert!(proof(&[Better, NoDifferenceShown]).is_decided());
        assert!(proof(&[Inconclusive, Worse]).is_decided());
    }
}
