//! Document of a proof on a running service.

use model::live::{LiveBaseline, LiveOutcome, LivePeriodRecord};
use serde::{Deserialize, Serialize};

/// A setting that was switched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveSetting {
    pub knob: String,
    pub target: String,
    /// Value without the plan.
    pub off: String,
    /// Value with the plan.
    pub on: String,
}

/// A figure that this host could not give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveAbsent {
    pub figure: String,
    pub why: String,
}

/// Document of `tune prove --live`: the outcome, and each period as it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveProof {
    /// Version of this document.
    pub document: u32,
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Start, by RFC 3339.
    pub started: String,
    /// Version of the program.
    pub version: String,
    /// File of the plan.
    pub plan: String,
    /// Digest of the plan.
    pub plan_digest: String,
    pub settings: Vec<LiveSetting>,
    /// The service, such as `port 443`.
    pub service: String,
    pub baseline: LiveBaseline,
    pub outcome: LiveOutcome,
    pub periods: Vec<LivePeriodRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<LiveAbsent>,
    /// Reason why it could not go on, such as a setting that another process changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

impl LiveProof {
    /// Part of an id that tells it from those of other experiments.
    pub const MARK: &str = "-live-";

    /// Reads a stored document. Errors: it is not one of this version.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Length of the run from the first switch on.
    pub fn time_ns(&self) -> u64 {
        self.periods.last().map_or(0, |period| period.end_ns)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use model::live::{
        LiveArm, LiveCarryOver, LiveEnd, LiveFigure, LiveForecast, LivePlacebo, LiveRatio,
        LiveScale, LiveSecondScale, LiveStage, LiveTrip, LiveVerdict, SecondScale, TripCount,
        first_arm,
    };
    use model::{Better, CountDifference, Verdict};

    use super::*;

    const S: u64 = 1_000_000_000;

    fn figure(name: &str, unit: &str, scale: LiveScale) -> LiveFigure {
        LiveFigure { name: name.into(), unit: unit.into(), better: Better::Lower, scale }
    }

    fn verdict(figure: &str, verdict: Verdict) -> LiveVerdict {
        LiveVerdict {
            figure: figure.into(),
            verdict,
            pairs: 40,
            ratio: Some(LiveRatio { median: 0.949, low: Some(0.93), high: Some(0.968) }),
            difference: None,
            evidence: 912.0,
            evidence_needed: 80.0,
            decided_ns: (verdict != Verdict::Inconclusive).then_some(212 * S),
            within_ns: 80 * S,
        }
    }

    fn period(number: u32) -> LivePeriodRecord {
        let first = first_arm(7, number / 2);
        let arm = if number.is_multiple_of(2) { first } else { first.other() };
        let start_ns = u64::from(number) * (5 * S + S / 50);
        let noise = f64::from(number * 7919 % 13) / 13.0;
        let is_on = arm == LiveArm::On;
        let cpu = if is_on { 95.0 } else { 100.0 } + noise * 12.0;
        let trip = LiveTrip {
            reason: "a request waited for 0.52 s, and the limit is 0.50 s".into(),
            at_ns: start_ns + S,
            undone_after_ns: Some(1_400_000),
        };
        LivePeriodRecord {
            arm,
            pair: number / 2,
            stage: LiveStage::Short,
            start_ns,
            switched_ns: start_ns + S / 50,
            counted_ns: start_ns + S / 50 + S / 2,
            end_ns: start_ns + 5 * S + S / 50,
            request_count: 1500,
            values: vec![
                Some(cpu),
                Some(210.0 + noise * 90.0),
                Some(900.0 + noise * 700.0),
                Some(0.0),
            ],
            trip: (is_on && (22..24).contains(&number)).then_some(trip),
        }
    }

    /// A run with each kind of verdict.
    pub(crate) fn sample() -> LiveProof {
        let figures = vec![
            figure("cpu_per_request", "us", LiveScale::Ratio),
            figure("p50", "us", LiveScale::Ratio),
            figure("p99", "us", LiveScale::Ratio),
            figure("errors", "per request", LiveScale::Count),
        ];
        let difference = CountDifference { mean: 0.0012, low: Some(0.0008), high: Some(0.0016) };
        let carry_over = |name: &str| LiveCarryOver {
            figure: name.into(),
            half_p: Some(0.4),
            predecessor_p: Some(0.7),
            second_scale: (name == "cpu_per_request").then_some(LiveSecondScale {
                period_ns: 80 * S,
                pairs: 4,
                ratio: Some(0.95),
                answer: SecondScale::Confirmed,
            }),
        };
        let outcome = LiveOutcome {
            carry_over: figures.iter().map(|figure| carry_over(&figure.name)).collect(),
            verdicts: vec![
                verdict("cpu_per_request", Verdict::Better),
                LiveVerdict { within_ns: 5 * S, ..verdict("p50", Verdict::NoDifferenceShown) },
                verdict("p99", Verdict::Inconclusive),
                LiveVerdict {
                    ratio: None,
                    difference: Some(difference),
                    ..verdict("errors", Verdict::Worse)
                },
            ],
            figures,
            resolve: 1.05,
            seed: 7,
            pairs: 40,
            silent: TripCount::default(),
            period_ns: 5 * S,
            washout_ns: S / 2,
            forecast: LiveForecast {
                period_ns: 5 * S,
                pairs: 24,
                time_ns: 360 * S,
                figures: vec![None; 4],
            },
            trusted: true,
            doubts: Vec::new(),
            trips: TripCount { on: 1, off: 0 },
            end: LiveEnd::TimeUp,
        };
        LiveProof {
            document: 1,
            id: "20261201-024100-live-1f2e".into(),
            name: None,
            note: None,
            started: "2026-12-01T02:41:00Z".into(),
            version: "0.1.0".into(),
            plan: "plan.toml".into(),
            plan_digest: "0123456789abcdef".into(),
            settings: vec![LiveSetting {
                knob: "rps-cpus".into(),
                target: "queue <eth1> rx-0".into(),
                off: "3".into(),
                on: "0".into(),
            }],
            service: "port 443".into(),
            baseline: LiveBaseline {
                time_ns: 180 * S,
                request_count: 54_000,
                values: vec![Some(101.0), Some(230.0), Some(1100.0), Some(0.0)],
                placebo: vec![LivePlacebo { period_ns: 5 * S, spread: vec![Some(0.04); 4] }],
                act_ns: 2_300_000,
                lag_ns: Some(1_100_000),
            },
            outcome,
            periods: (0..80).map(period).collect(),
            absent: Vec::new(),
            stopped: None,
        }
    }

    #[test]
    fn document_reads_back_as_it_was() {
        let proof = sample();
        let text = serde_json::to_string(&proof).unwrap();
        assert_eq!(LiveProof::from_json(&text).unwrap(), proof);
        assert!(LiveProof::from_json(&text[1..]).is_err());
    }
}
