//! Does the trial before move the figures of a trial?
//!
//! A trial may leave the machine changed: hot, with other caches, with full connection tables. Which arm runs after which
//! differs between arms, so the effect becomes a difference between them, and both baselines get the same share of it:
//! the control cannot show it. The baselines themselves can. In many blocks exactly one of the two ran directly after
//! another arm, and the other one after a baseline; without such an effect, the first is as likely to be the larger. The same
//! is asked of each other arm by itself.

use crate::judge::Table;
use crate::pairs::Scale;
use crate::statistics::{self, STRICT_LEVEL, STRICT_PAIRS_MIN};
use crate::{ArmKind, CarryOver, Experiment, Trial};

/// Most arms that run, baselines included, of which a verdict waits for this check. With more, each is the predecessor of
/// few others, and few blocks can tell.
const WAITING_ARMS_MAX: usize = 4;

/// Block in which exactly one of the two baselines ran directly after another arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TellingBlock {
    /// From 0, without the warm-up.
    block: usize,
    /// True if that is the control.
    is_control: bool,
}

/// Trials before a baseline that are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Of any arm but a baseline.
    AnyOther,
    /// Of this arm.
    Arm(usize),
}

impl Cause {
    fn includes(self, arm: usize, kind: ArmKind) -> bool {
        match self {
            Cause::AnyOther => !is_baseline(kind),
            Cause::Arm(cause) => arm == cause,
        }
    }

    /// Any other arm, and each of them where there are several.
    fn all(kinds: &[ArmKind]) -> Vec<Cause> {
        let others = (0..kinds.len()).filter(|&arm| !is_baseline(kinds[arm]));
        let each: Vec<Cause> = others.map(Cause::Arm).collect();
        let each = if each.len() > 1 { each } else { Vec::new() };
        [Cause::AnyOther].into_iter().chain(each).collect()
    }
}

fn is_baseline(kind: ArmKind) -> bool {
    matches!(kind, ArmKind::Baseline | ArmKind::Control)
}

/// Blocks that tell an effect of the trial before, in order.
///
/// - `trials`: in order of execution. Warm-up, settling and failed trials are predecessors, too.
/// - `kinds`: of the arms.
fn telling_blocks(trials: &[Trial], kinds: &[ArmKind], cause: Cause) -> Vec<TellingBlock> {
    let counted =
        trials.windows(2).filter(|pair| is_baseline(kinds[pair[1].arm]) && !pair[1].warmup);
    let mut telling = Vec::new();
    // Of a block: whether its baseline, and its control, ran after the cause.
    let mut seen: (u32, [Option<bool>; 2]) = (0, [None, None]);
    for pair in counted {
        let (before, trial) = (&pair[0], &pair[1]);
        if seen.0 != trial.block {
            seen = (trial.block, [None, None]);
        }
        let is_control = kinds[trial.arm] == ArmKind::Control;
        seen.1[usize::from(is_control)] = Some(cause.includes(before.arm, kinds[before.arm]));
        if let [Some(base), Some(control)] = seen.1
            && base != control
        {
            telling.push(TellingBlock { block: trial.block as usize - 1, is_control: control });
        }
    }
    telling
}

/// True if a verdict of this experiment must wait, because too few blocks tell an effect of the trial before.
pub(crate) fn lacks_blocks(experiment: &Experiment, running: usize) -> bool {
    let is_possible =
        running > 2 && running <= WAITING_ARMS_MAX && !experiment.plan.schedule.settle;
    is_possible
        && telling_blocks(&experiment.trials, &kinds(experiment), Cause::AnyOther).len()
            < STRICT_PAIRS_MIN
}

fn kinds(experiment: &Experiment) -> Vec<ArmKind> {
    experiment.plan.arms.iter().map(|(arm, _)| arm.kind).collect()
}

impl Table<'_> {
    /// Effect of the trial before on the judged metrics; none for those that the baselines did not give.
    pub(crate) fn carry_over(&self) -> Vec<CarryOver> {
        let kinds = kinds(self.experiment);
        let causes: Vec<_> = Cause::all(&kinds)
            .into_iter()
            .map(|cause| (cause, telling_blocks(&self.experiment.trials, &kinds, cause)))
            .collect();
        let judged = self.experiment.plan.judged.iter();
        judged.filter_map(|name| self.carry_over_of(name, &causes)).collect()
    }

    /// The cause with the smallest p-value, corrected for the number of causes that can have one.
    fn carry_over_of(
        &self,
        name: &str,
        causes: &[(Cause, Vec<TellingBlock>)],
    ) -> Option<CarryOver> {
        let scale = self.scale(name)?;
        let differences = |telling: &[TellingBlock]| self.differences(name, scale, telling);
        let any = differences(&causes.first()?.1)?;
        let mut least = (Cause::AnyOther, statistics::p_value(&any), any);
        let mut judged = 1;
        for (cause, telling) in &causes[1..] {
            let found = differences(telling)?;
            if found.len() < STRICT_PAIRS_MIN {
                continue;
            }
            judged += 1;
            let p = statistics::p_value(&found);
            if p < least.1 {
                least = (*cause, p, found);
            }
        }
        let (cause, p, differences) = least;
        let p = (p * f64::from(judged)).min(1.0);
        let median = statistics::median(&differences).filter(|_| scale == Scale::Ratio);
        Some(CarryOver {
            metric: name.to_owned(),
            after: match cause {
                Cause::AnyOther => None,
                Cause::Arm(arm) => Some(self.experiment.plan.arms[arm].0.name.clone()),
            },
            blocks: differences.len() as u32,
            ratio: median.map(f64::exp).filter(|ratio| ratio.is_finite()),
            p,
            flagged: p < 1.0 - STRICT_LEVEL,
        })
    }

    /// The baseline that ran after the cause less the other one, by block; `None` if a baseline never gave the metric.
    fn differences(&self, name: &str, scale: Scale, telling: &[TellingBlock]) -> Option<Vec<f64>> {
        let base = self.arms[self.baseline?].get(name)?;
        let control = self.arms[self.control?].get(name)?;
        let value_of = |values: &[Option<f64>], block: usize| {
            let value = values.get(block).copied().flatten()?;
            Some(scale.of(value)).filter(|value| value.is_finite())
        };
        let difference = |telling: &TellingBlock| {
            let base = value_of(&base.values, telling.block)?;
            let control = value_of(&control.values, telling.block)?;
            Some(if telling.is_control { control - base } else { base - control })
        };
        Some(telling.iter().filter_map(difference).collect())
    }

    /// Judged metrics that the trial before is shown to move.
    pub(crate) fn carried_over(&self) -> Vec<String> {
        let flagged = self.carry_over().into_iter().filter(|check| check.flagged);
        flagged.map(|check| check.metric).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const KINDS: [ArmKind; 4] =
        [ArmKind::Baseline, ArmKind::Control, ArmKind::Variant, ArmKind::Variant];

    fn trial(block: u32, arm: usize, warmup: bool) -> Trial {
        Trial {
            block,
            arm,
            warmup,
            start: None,
            started_ns: 0,
            noise: 0.0,
            noisy: false,
            not_effective: Vec::new(),
            traps: Vec::new(),
            samples: BTreeMap::new(),
            result: Ok(Vec::new()),
        }
    }

    /// Blocks that tell, of blocks given as their arms; the first one is the warm-up.
    fn telling(blocks: &[&[usize]]) -> Vec<(usize, bool)> {
        let trials: Vec<Trial> = blocks
            .iter()
            .enumerate()
            .flat_map(|(block, arms)| {
                arms.iter().map(move |&arm| trial(block as u32, arm, block == 0))
            })
            .collect();
        let telling = telling_blocks(&trials, &KINDS, Cause::AnyOther);
        telling.iter().map(|telling| (telling.block, telling.is_control)).collect()
    }

    #[test]
    fn block_tells_if_exactly_one_baseline_ran_after_another_arm() {
        // The predecessor may be in the block before, the warm-up included.
        assert_eq!(telling(&[&[0, 1, 2], &[0, 1, 2], &[2, 1, 0]]), [(0, false), (1, true)]);
        // Both after an arm; none after one.
        assert_eq!(telling(&[&[0, 2, 1], &[2, 0, 3, 1], &[0, 1, 2, 3]]), []);
        assert_eq!(telling(&[&[2, 1, 0], &[0, 1, 2]]), []);
    }

    #[test]
    fn settling_trial_is_the_predecessor() {
        let trials: Vec<Trial> = [(0, 2, true), (1, 0, true), (1, 0, false), (1, 2, true)]
            .into_iter()
            .chain([(1, 2, false), (1, 1, true), (1, 1, false)])
            .map(|(block, arm, warmup)| trial(block, arm, warmup))
            .collect();
        assert!(telling_blocks(&trials, &KINDS, Cause::AnyOther).is_empty());
    }

    #[test]
    fn each_of_several_arms_is_a_cause() {
        assert_eq!(Cause::all(&KINDS), [Cause::AnyOther, Cause::Arm(2), Cause::Arm(3)]);
        assert_eq!(Cause::all(&KINDS[..3]), [Cause::AnyOther]);
        let arms = [(0, 2), (1, 2), (1, 0), (1, 3), (1, 1)];
        let trials = arms.map(|(block, arm)| trial(block, arm, block == 0));
        assert_eq!(
            [Cause::AnyOther, Cause::Arm(2), Cause::Arm(3)]
                .map(|cause| telling_blocks(&trials, &KINDS, cause).len()),
            [0, 1, 1]
        );
    }

    #[test]
    fn unfinished_block_tells_nothing() {
        assert_eq!(telling(&[&[2, 1, 0], &[2, 0]]), []);
        assert_eq!(telling(&[]), []);
    }
}
