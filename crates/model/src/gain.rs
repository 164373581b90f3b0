//! Worth of each arm of a ladder on top of the arm below it.

use serde::Serialize;

use crate::{ArmKind, ArmOutcome, Outcome, Verdict};

/// One arm over the one below it, in one metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gain {
    /// The arm.
    pub arm: String,
    /// Id of the switch that it adds.
    pub switch: String,
    /// The arm below it.
    pub over: String,
    /// The metric.
    pub metric: String,
    /// Median ratio of the two.
    pub ratio: f64,
    /// Lower end of the 95 % interval of `ratio`.
    pub low: Option<f64>,
    /// Upper end of the 95 % interval of `ratio`.
    pub high: Option<f64>,
    /// p-value of `ratio` against 1.
    pub p: f64,
    /// Verdict on the difference.
    pub verdict: Verdict,
}

impl Outcome {
    /// Each arm of a ladder over the one below it, by the statistics used against the baseline.
    ///
    /// - `whole`: name of the arm with all switches, which is named by its last switch, too.
    pub fn gains(&self, whole: &str) -> Vec<Gain> {
        let rungs: Vec<&ArmOutcome> =
            self.arms.iter().filter(|arm| arm.kind != ArmKind::Control).collect();
        let mut gains = Vec::new();
        for metric in &self.judged {
            for pair in rungs.windows(2) {
                let Some((found, verdict)) = self.step(pair[0], pair[1], metric) else { continue };
                let arm = match pair[1].switches.last() {
                    Some(last) if pair[1].name == whole => format!("+{last} ({whole})"),
                    _ => pair[1].name.clone(),
                };
                gains.push(Gain {
                    arm,
                    switch: pair[1].switches.last().cloned().unwrap_or_default(),
                    over: pair[0].name.clone(),
                    metric: metric.clone(),
                    ratio: found.ratio,
                    low: found.interval.map(|interval| interval.low),
                    high: found.interval.map(|interval| interval.high),
                    p: found.p,
                    verdict,
                });
            }
        }
        gains
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Support;

    #[test]
    fn a_setting_is_compared_with_those_below_it_block_by_block() {
        let unjudged = |trials| crate::MetricOutcome::unjudged("ns", crate::Better::Lower, trials);
        let arm = |name: &str, kind, switches: &[&str], values: [f64; 8]| ArmOutcome {
            name: name.to_owned(),
            kind,
            switches: switches.iter().map(|&id| id.to_owned()).collect(),
            support: Support::Yes,
            trials: 8,
            metrics: BTreeMap::from([(
                "rtt_ns_p50".to_owned(),
                crate::MetricOutcome {
                    median: Some(values[0]),
                    ..unjudged(values.map(Some).to_vec())
                },
            )]),
            latency: BTreeMap::new(),
            mode: BTreeMap::new(),
            counters: BTreeMap::new(),
            samples: None,
            reliability: None,
            failures: Vec::new(),
        };
        // Blocks differ by far more than settings do.
        let blocks = [1_013.0, 9_029.0, 2_003.0, 8_011.0, 3_037.0, 7_019.0, 4_057.0, 6_043.0];
        let outcome = Outcome {
            schema: crate::SCHEMA,
            id: String::new(),
            started: String::new(),
            version: String::new(),
            machine: crate::Machine::default(),
            path: "probe".into(),
            load: BTreeMap::new(),
            seed: 1,
            name: None,
            note: None,
            phrases: Default::default(),
            blocks: 8,
            wall_ms: 1,
            ended: crate::Ended::TimeUp,
            looks: 0,
            resolve: crate::RESOLVE,
            judged: vec!["rtt_ns_p50".into()],
            arms: vec![
                arm("baseline", crate::ArmKind::Baseline, &[], blocks),
                arm("baseline again", crate::ArmKind::Control, &[], blocks),
                arm("+gro", crate::ArmKind::Variant, &["gro"], blocks.map(|b| b * 0.5)),
                arm("plan", crate::ArmKind::Variant, &["gro", "lro"], blocks.map(|b| b * 0.5)),
            ],
            floor: BTreeMap::from([("rtt_ns_p50".into(), crate::Floor { low: 0.98, high: 1.02 })]),
            warnings: Vec::new(),
            trust: Default::default(),
            looked: Vec::new(),
            forecast: None,
            schedule: Default::default(),
            gate: None,
            search: None,
            best: Vec::new(),
        };
        let gains = outcome.gains("plan");
        assert_eq!(gains.len(), 2);
        assert_eq!((gains[0].arm.as_str(), gains[0].over.as_str()), ("+gro", "baseline"));
        assert_eq!(
            (gains[0].verdict, gains[1].verdict),
            (Verdict::Better, Verdict::NoDifferenceShown)
        );
        assert!((gains[0].ratio - 0.5).abs() < 1e-9 && (gains[1].ratio - 1.0).abs() < 1e-9);
        assert_eq!((gains[1].arm.as_str(), gains[1].over.as_str()), ("+lro (plan)", "+gro"));

        // A figure that was refused in every trial is not compared, neither with a number nor with another.
        for refused in [2, 3] {
            let mut outcome = outcome.clone();
            for arm in &mut outcome.arms[refused..] {
                let metric = arm.metrics.get_mut("rtt_ns_p50").unwrap();
                *metric = unjudged(vec![None; 8]);
            }
            assert_eq!(outcome.gains("plan").len(), refused - 2);
        }
    }
}
