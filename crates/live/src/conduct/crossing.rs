//! Two periods of one host of a fleet, whose arms the fleet selects.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use model::live::{GuardRule, LiveArm, LiveForecast, LiveOutcome, LivePeriodRecord, LiveStage};

use super::baseline::washout_ns;
use super::guard::Guard;
use super::period::{PeriodEnd, Stage, Wanted};
use super::{Clock, ConductError, Figures, Observer, Switch, p99_ns};

/// Two periods of a service.
#[derive(Debug, Clone)]
pub struct CrossingOptions {
    pub arms: [LiveArm; 2],
    /// Length of a period from the end of the act, wash-out included.
    pub period: Duration,
    pub rules: Vec<GuardRule>,
    /// p99 of a request without the setting: the measure of the guard and of the wash-out.
    pub p99_ns: Option<f64>,
}

/// Runs both periods. The setting is off when this returns, unless it could not be switched: the caller restores all settings
/// from the journal in either case.
///
/// Returns the periods, and the p99 of a request in the last one without the setting.
///
/// Errors: a signal came; the figures or the settings failed.
pub fn cross<F: Figures>(
    clock: &mut dyn Clock,
    figures: &mut F,
    switch: &mut dyn Switch,
    options: &CrossingOptions,
    stop: &AtomicBool,
) -> Result<(Vec<LivePeriodRecord>, Option<f64>), ConductError> {
    let judged = figures.figures().to_vec();
    super::check_rules(&options.rules, &judged)?;
    let zero_ns = clock.now_ns();
    let mut stage = Stage {
        guard: Guard::new(&options.rules, options.p99_ns),
        clock,
        figures,
        switch,
        observer: &mut Unobserved,
        stop,
        zero_ns,
        failed_readings: 0,
    };
    let (mut periods, mut off_p99_ns) = (Vec::new(), None);
    for arm in options.arms {
        let wanted = Wanted {
            arm,
            pair: 0,
            stage: LiveStage::Short,
            period_ns: options.period.as_nanos() as u64,
            washout_ns: washout_ns(options.p99_ns, None),
        };
        match stage.period(&wanted) {
            PeriodEnd::Done(done) => {
                let (_, record) = *done;
                if arm == LiveArm::Off && record.trip.is_none() {
                    off_p99_ns = p99_ns(&judged, &record.values).or(off_p99_ns);
                }
                periods.push(record);
            }
            PeriodEnd::Interrupted => return Err(ConductError::Interrupted),
            PeriodEnd::Failed(why) => return Err(ConductError::Period(why)),
        }
    }
    stage.switch.turn(false).map_err(ConductError::Switch)?;
    Ok((periods, off_p99_ns))
}

/// Of a host that shows nothing.
struct Unobserved;

impl Observer for Unobserved {
    fn baseline(&mut self, _: u64, _: u64) {}

    fn forecast(&mut self, _: &LiveForecast, _: u64) {}

    fn progress(&mut self, _: u64, _: u32) {}

    fn tripped(&mut self, _: &LivePeriodRecord) {}

    fn period(&mut self, _: &LivePeriodRecord, _: &dyn Fn() -> LiveOutcome) {}
}
