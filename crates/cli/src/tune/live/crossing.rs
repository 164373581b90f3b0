//! Two periods on the running service of a host, for a roll-out.

use std::time::Duration;

use host::tune::{Place, Plan};
use house::place::StateArgs;
use house::signals;
use live::conduct::{CrossingOptions, Figures, ServiceFigures, ServiceSwitch, SystemClock};
use live::sources::Service;
use model::live::{GuardRule, LiveArm};
use remote::Failure;
use remote::work::{Crossed, Crossing};

use super::{check_reach, closed, conduct_failure, figures, metrics, restore, switched};
use crate::guard::Guard;
use crate::tune::apply::RebaseArgs;

/// Runs both periods, and restores all settings.
pub(crate) fn cross(state: &StateArgs, wanted: &Crossing) -> Result<Crossed, Failure> {
    let plan = Plan::parse(&wanted.plan)?;
    let place = Place { netns: plan.netns.clone(), root: state.root.clone() };
    let service = wanted.port.map(Service::Port).or(wanted.unit.clone().map(Service::Unit));
    let metrics = metrics(&wanted.metrics)?;
    let mut figures = figures(&place, service, metrics, wanted.primary.as_deref())?;
    let rules: Result<Vec<GuardRule>, _> = wanted.rules.iter().map(|rule| rule.parse()).collect();
    let options = CrossingOptions {
        arms: wanted.arms,
        period: Duration::from_millis(wanted.period_ms),
        rules: rules.map_err(Failure::usage)?,
        p99_ns: wanted.p99_ns,
    };
    let guard = Guard::start(&state.journal())?;
    let closed = closed(wanted.closes_connections, &mut figures)?;
    let (_, mut switched) = switched(state, &place, &plan, &RebaseArgs::FOR_ANY_HOST, closed)?;
    let crossed = crossed(&mut figures, &mut switched, &options);
    let restored = restore(&mut switched.plan);
    drop(switched);
    drop(guard);
    restored.and(crossed)
}

fn crossed(
    figures: &mut ServiceFigures,
    switched: &mut ServiceSwitch,
    options: &CrossingOptions,
) -> Result<Crossed, Failure> {
    // Once, in the baseline.
    if options.arms == [LiveArm::Off; 2] {
        check_reach(switched, figures, &options.rules)?;
    }
    let (periods, p99_ns) =
        live::conduct::cross(&mut SystemClock, figures, switched, options, signals::stop_flag())
            .map_err(conduct_failure)?;
    Ok(Crossed { figures: figures.figures().to_vec(), periods, p99_ns })
}
