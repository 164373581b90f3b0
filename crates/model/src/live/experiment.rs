//! The on/off experiment as a state machine: it selects the next period, records its figures, and decides when to stop.

use super::checks::{LONG_PAIRS_MAX, LONG_PAIRS_MIN, half_p, is_fired, long_answer, predecessor_p};
use super::judge::FigureJudge;
use super::outcome::{
    LiveCarryOver, LiveDoubt, LiveEnd, LiveOutcome, LiveSecondScale, SecondScale, TripCount,
};
use super::pair::{LivePeriod, Pair};
use super::{GuardRule, LiveArm, LiveForecast, LivePlan, LiveStage, first_arm};
use crate::Verdict;

/// On-periods that the guard ends before the run ends, if it ended no off-period: 1 in 32 by chance.
const TRIPS_MAX: u32 = 5;

/// Factor of the soft guard unless a rule gives another.
const GUARD_FACTOR: f64 = 2.0;

/// Shortest long period, and the least number of short periods in it.
const LONG_NS_MIN: u64 = 80_000_000_000;
const LONG_PERIODS: u64 = 16;

/// Wash-out of a long period: a quarter of it, as effects are looked for that last long.
const LONG_WASHOUTS: u64 = 4;

/// Next action of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveStep {
    /// Switch to this arm, wait, and [`LiveExperiment::record`] the figures.
    Period {
        /// Side to switch to.
        arm: LiveArm,
        /// Length from the end of the act of switching, wash-out included.
        period_ns: u64,
        /// Start of it that the figures leave out.
        washout_ns: u64,
        /// Number of its pair, from 0, over both stages.
        pair: u32,
        /// Short periods decide; long ones confirm.
        stage: LiveStage,
    },
    /// Switch back, and report.
    Ended(LiveEnd),
}

/// An on/off experiment in progress.
#[derive(Debug, Clone)]
pub struct LiveExperiment {
    plan: LivePlan,
    forecast: LiveForecast,
    judges: Vec<FigureJudge>,
    short: Vec<Pair>,
    long: Vec<Pair>,
    stage: LiveStage,
    /// Long pairs to run.
    long_pairs: u32,
    /// First period of the pair that runs.
    first: Option<LivePeriod>,
    is_pending: bool,
    /// Begin of the first period, on the caller's clock.
    began_ns: Option<u64>,
    trips: TripCount,
    silent: TripCount,
    ended: Option<LiveEnd>,
}

impl LiveExperiment {
    /// An experiment before its first switch.
    pub fn new(plan: LivePlan, forecast: LiveForecast) -> Self {
        let judges = (0..plan.figures.len())
            .map(|index| {
                let factor = guard_factor(&plan.rules, &plan.figures[index].name);
                FigureJudge::new(&plan.figures, index, plan.resolve, factor)
            })
            .collect();
        LiveExperiment {
            plan,
            forecast,
            judges,
            short: Vec::new(),
            long: Vec::new(),
            stage: LiveStage::Short,
            long_pairs: 0,
            first: None,
            is_pending: false,
            began_ns: None,
            trips: TripCount::default(),
            silent: TripCount::default(),
            ended: None,
        }
    }

    /// Returns the next action; the same period again until it is recorded.
    ///
    /// - `elapsed_ns`: nanoseconds since the first switch.
    pub fn next(&mut self, elapsed_ns: u64) -> LiveStep {
        if self.ended.is_none() && self.first.is_none() && !self.is_pending {
            self.begin_pair(elapsed_ns);
        }
        if let Some(end) = &self.ended {
            return LiveStep::Ended(end.clone());
        }
        self.is_pending = true;
        let pair = (self.short.len() + self.long.len()) as u32;
        let arm = match &self.first {
            Some(first) => first.arm.other(),
            None => first_arm(self.plan.seed, pair),
        };
        let (period_ns, washout_ns) = match self.stage {
            LiveStage::Short => (self.forecast.period_ns, self.plan.washout_ns),
            LiveStage::Long => (self.long_period_ns(), self.long_period_ns() / LONG_WASHOUTS),
        };
        LiveStep::Period { arm, period_ns, washout_ns, pair, stage: self.stage }
    }

    /// Records the period that [`next`](Self::next) returned; ignored if there is none.
    pub fn record(&mut self, period: LivePeriod) {
        if !std::mem::take(&mut self.is_pending) {
            return;
        }
        let began_ns = *self.began_ns.get_or_insert(period.start_ns);
        if period.trip.is_some() {
            self.trips.add(period.arm);
        }
        let Some(first) = self.first.take() else {
            self.first = Some(period);
            self.end_if_tripped();
            return;
        };
        let pair = Pair::new(first, period);
        for silent in pair.silent_arms() {
            self.silent.add(silent);
        }
        match self.stage {
            LiveStage::Short => {
                let now_ns = pair.end_ns().saturating_sub(began_ns);
                self.judges.iter_mut().for_each(|judge| judge.add(&pair, now_ns));
                self.short.push(pair);
            }
            LiveStage::Long => self.long.push(pair),
        }
        self.end_if_tripped();
        if self.ended.is_none()
            && let Some(judge) = self.judges.iter().find(|judge| judge.is_guarded())
        {
            self.ended = Some(LiveEnd::SoftGuard { figure: judge.figure().name.clone() });
        }
    }

    /// Ends the run at once; a pair that is not complete does not count.
    pub fn interrupt(&mut self) {
        self.ended.get_or_insert(LiveEnd::Interrupted);
    }

    fn end_if_tripped(&mut self) {
        if self.trips.ends_the_run() {
            self.ended = Some(LiveEnd::Tripped);
        }
    }

    /// Selects the stage of the next pair, or ends the run.
    fn begin_pair(&mut self, elapsed_ns: u64) {
        let left_ns = self.plan.time_ns.saturating_sub(elapsed_ns);
        let is_decided = self.judges.iter().all(|judge| judge.decided().is_some());
        if self.stage == LiveStage::Short {
            let is_due = is_decided || elapsed_ns >= self.plan.time_ns / 3 * 2;
            let fitting = left_ns / self.pair_ns(self.long_period_ns());
            if is_due && self.needs_confirming() && fitting >= u64::from(LONG_PAIRS_MIN) {
                self.stage = LiveStage::Long;
                self.long_pairs = LONG_PAIRS_MAX.min(fitting as u32);
            } else if is_decided {
                self.ended = Some(LiveEnd::Decided);
            } else if left_ns < self.pair_ns(self.forecast.period_ns) {
                self.ended = Some(LiveEnd::TimeUp);
            }
        }
        if self.stage == LiveStage::Long
            && (self.long.len() as u32 >= self.long_pairs
                || left_ns < self.pair_ns(self.long_period_ns()))
        {
            self.ended = Some(if is_decided { LiveEnd::Decided } else { LiveEnd::TimeUp });
        }
    }

    fn needs_confirming(&self) -> bool {
        self.plan.confirm
            && self.judges.iter().any(|judge| judge.decided() == Some(Verdict::Better))
    }

    fn pair_ns(&self, period_ns: u64) -> u64 {
        2 * (period_ns + self.plan.act_ns).max(1)
    }

    fn long_period_ns(&self) -> u64 {
        LONG_NS_MIN.max(LONG_PERIODS * self.forecast.period_ns)
    }

    /// Outcome so far, valid at every look.
    pub fn outcome(&self) -> LiveOutcome {
        let carry_over: Vec<LiveCarryOver> =
            (0..self.judges.len()).map(|index| self.carry_over(index)).collect();
        let doubts: Vec<LiveDoubt> = carry_over.iter().flat_map(doubts).collect();
        let verdicts = self
            .judges
            .iter()
            .zip(&carry_over)
            .map(|(judge, carry_over)| judge.verdict(self.within_ns(carry_over)))
            .collect();
        LiveOutcome {
            figures: self.plan.figures.clone(),
            verdicts,
            resolve: self.plan.resolve,
            seed: self.plan.seed,
            pairs: self.short.len() as u32,
            silent: self.silent,
            period_ns: self.forecast.period_ns,
            washout_ns: self.plan.washout_ns,
            forecast: self.forecast.clone(),
            carry_over,
            trusted: doubts.is_empty(),
            doubts,
            trips: self.trips,
            end: self.ended.clone().unwrap_or(LiveEnd::Unfinished),
        }
    }

    fn carry_over(&self, index: usize) -> LiveCarryOver {
        let judge = &self.judges[index];
        let figure = judge.figure();
        let is_better = judge.decided() == Some(Verdict::Better);
        let second_scale = (is_better && !self.long.is_empty()).then(|| {
            let answer = long_answer(judge.differences(), &self.long, index, figure);
            LiveSecondScale {
                period_ns: self.long_period_ns(),
                pairs: answer.pairs,
                ratio: answer.ratio,
                answer: answer.answer,
            }
        });
        LiveCarryOver {
            figure: figure.name.clone(),
            half_p: half_p(&self.short, index, figure).map(|p| self.corrected(p)),
            predecessor_p: predecessor_p(&self.short, index, figure).map(|p| self.corrected(p)),
            second_scale,
        }
    }

    /// A check's p-value, corrected for the number of figures.
    fn corrected(&self, p: f64) -> f64 {
        (p * self.judges.len() as f64).min(1.0)
    }

    fn within_ns(&self, carry_over: &LiveCarryOver) -> u64 {
        match &carry_over.second_scale {
            Some(scale) if scale.answer == SecondScale::Confirmed => scale.period_ns,
            _ => self.forecast.period_ns,
        }
    }
}

impl TripCount {
    /// Counts one more period of an arm.
    pub fn add(&mut self, arm: LiveArm) {
        match arm {
            LiveArm::On => self.on += 1,
            LiveArm::Off => self.off += 1,
        }
    }

    /// True after five on-periods and no off-period: 1 in 32 by chance.
    pub fn ends_the_run(&self) -> bool {
        self.on >= TRIPS_MAX && self.off == 0
    }
}

/// Factor of the soft guard for a figure.
fn guard_factor(rules: &[GuardRule], name: &str) -> f64 {
    let factors = rules.iter().filter_map(|rule| match rule {
        GuardRule::Ratio { figure, factor } if figure == name => Some(*factor),
        _ => None,
    });
    factors.reduce(f64::min).unwrap_or(GUARD_FACTOR)
}

fn doubts(check: &LiveCarryOver) -> Vec<LiveDoubt> {
    let figure = &check.figure;
    let is_contradicted =
        check.second_scale.as_ref().is_some_and(|scale| scale.answer == SecondScale::Contradicted);
    let found = [
        is_fired(check.half_p).then(|| LiveDoubt::Halves { figure: figure.clone() }),
        is_fired(check.predecessor_p).then(|| LiveDoubt::Predecessor { figure: figure.clone() }),
        is_contradicted.then(|| LiveDoubt::SecondScale { figure: figure.clone() }),
    ];
    found.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
