//! A run from its baseline to its outcome.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use model::live::{
    GuardRule, LiveBaseline, LiveExperiment, LiveOutcome, LivePeriodRecord, LivePlan, LiveStep,
    forecast,
};

use super::baseline::measure;
use super::guard::Guard;
use super::period::{PeriodEnd, Stage, Wanted};
use super::{Clock, ConductError, Figures, Observer, Switch};

/// Everything that is fixed before a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Time before the first switch.
    pub baseline: Duration,
    /// Time from the first switch on.
    pub time: Duration,
    /// Smallest ratio to decide, above 1.
    pub resolve: f64,
    pub seed: u64,
    /// Wash-out after each switch; `None` for four measured lags.
    pub washout: Option<Duration>,
    /// Confirm each "better" in long periods.
    pub confirm: bool,
    pub rules: Vec<GuardRule>,
}

/// A run that came to its first switch.
#[derive(Debug, Clone)]
pub struct LiveRun {
    pub baseline: LiveBaseline,
    pub outcome: LiveOutcome,
    pub periods: Vec<LivePeriodRecord>,
    /// Reason why it could not go on, such as a setting that another process changed.
    pub stopped: Option<String>,
    /// A signal ended it.
    pub is_interrupted: bool,
}

/// Runs the whole experiment. The setting is off when this returns, unless it could not be switched: the caller restores
/// all settings from the journal in either case.
///
/// Errors: the run did not come to its first switch.
pub fn conduct<F: Figures>(
    clock: &mut dyn Clock,
    figures: &mut F,
    switch: &mut dyn Switch,
    observer: &mut dyn Observer,
    options: &RunOptions,
    stop: &AtomicBool,
) -> Result<LiveRun, ConductError> {
    let judged = figures.figures().to_vec();
    super::check_rules(&options.rules, &judged)?;
    let times = (options.baseline, options.washout);
    let baseline = measure(clock, figures, switch, observer, times, stop)?;
    for rule in &options.rules {
        rule.check(&judged, baseline.error_share)?;
    }
    let plan = LivePlan {
        figures: judged,
        resolve: options.resolve,
        time_ns: options.time.as_nanos() as u64,
        seed: options.seed,
        washout_ns: baseline.washout_ns,
        act_ns: baseline.record.act_ns,
        confirm: options.confirm,
        rules: options.rules.clone(),
    };
    let forecast = forecast(&plan, &baseline.points, baseline.requests_per_s)?;
    observer.forecast(&forecast, plan.time_ns);
    let mut experiment = LiveExperiment::new(plan, forecast);
    let zero_ns = clock.now_ns();
    let mut stage = Stage {
        guard: Guard::new(&options.rules, baseline.p99_ns),
        clock,
        figures,
        switch,
        observer,
        stop,
        zero_ns,
        failed_readings: 0,
    };
    let (mut periods, mut stopped, mut is_interrupted) = (Vec::new(), None, false);
    loop {
        let step = experiment.next(stage.clock.now_ns() - zero_ns);
        let LiveStep::Period { arm, period_ns, washout_ns, pair, stage: of } = step else { break };
        let wanted = Wanted { arm, pair, stage: of, period_ns, washout_ns };
        match stage.period(&wanted) {
            PeriodEnd::Done(done) => {
                let (period, record) = *done;
                experiment.record(period);
                stage.observer.period(&record, &|| experiment.outcome());
                periods.push(record);
            }
            PeriodEnd::Interrupted => {
                is_interrupted = true;
                experiment.interrupt();
            }
            PeriodEnd::Failed(why) => {
                stopped = Some(why);
                experiment.interrupt();
            }
        }
    }
    if stopped.is_none() {
        stopped = stage.switch.turn(false).err();
    }
    let outcome = experiment.outcome();
    Ok(LiveRun { baseline: baseline.record, outcome, periods, stopped, is_interrupted })
}
