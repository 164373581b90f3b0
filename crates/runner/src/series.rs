//! A series of runs, and the earlier ones that it is compared with.

use std::time::{Duration, Instant};

use model::{Arm, ArmKind, By, Ended, Outcome, Request, Series, Support, Unit};
use remote::Failure;

use crate::path::PathPlan;
use crate::proof::Proven;
use crate::runner::Runner;

/// Time between two looks at the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Earlier experiments that the runs of a request are compared with.
pub struct Earlier<'a> {
    /// Ids, unique prefixes or files, separated by commas.
    pub wanted: &'a str,
    /// Question of the gate; `None` without one.
    pub gate: Option<By>,
    /// Unit that gives one figure to the comparison.
    pub unit: Unit,
    /// Also of another machine.
    pub any_machine: bool,
}

impl Runner<'_> {
    /// Runs the request as often as its series asks, until it is interrupted. A run that was interrupted before its
    /// first block ended is left out, unless it is the first one.
    ///
    /// - `run`: runs one request in a process of its own: memory layout moves figures by some per cent, and runs of one
    ///   process would share it.
    pub fn run_series(
        &self,
        request: &Request,
        run: &dyn Fn(&Request) -> Result<Proven, Failure>,
    ) -> Result<Vec<Proven>, Failure> {
        let begun = Instant::now();
        let Series { runs, every } = request.series;
        let mut proven = Vec::new();
        for number in 0..runs {
            let due = every.map_or(Duration::ZERO, |every| every * number);
            while begun.elapsed() < due && !self.is_stopped() {
                std::thread::sleep(POLL_INTERVAL);
            }
            if self.is_stopped() {
                break;
            }
            self.console.say(&format!("run {} of {runs}", number + 1));
            let ended = match run(&request.run_of_series(number)) {
                Err(_) if self.is_stopped() && !proven.is_empty() => break,
                ended => ended?,
            };
            let is_last = ended.outcome.ended == Ended::Interrupted;
            if ended.has_result() || proven.is_empty() {
                proven.push(ended);
            }
            if is_last {
                break;
            }
        }
        if proven.is_empty() {
            return Err(Failure::Interrupted("interrupted before the first run".into()));
        }
        Ok(proven)
    }

    /// Loads the experiments to compare with. Errors: they are not comparable, or the gate has too few units for a
    /// verdict; both are refused before anything is measured.
    pub fn earlier(
        &self,
        request: &Request,
        plan: &PathPlan,
        earlier: &Earlier<'_>,
    ) -> Result<Vec<Outcome>, Failure> {
        let olds = self.database.named(earlier.wanted)?;
        for old in &olds {
            model::comparable(old, "this run", plan.path(), plan.load())
                .map_err(|e| Failure::Usage(e.to_string()))?;
        }
        check_machine(&olds, earlier.any_machine)?;
        if let Some(by) = earlier.gate {
            check_units(request, plan, &olds, by, earlier.unit)?;
        }
        Ok(olds)
    }
}

/// Errors: an earlier run is of another machine.
fn check_machine(earlier: &[Outcome], any_machine: bool) -> Result<(), Failure> {
    let here = lab::describe_machine(String::new()).id;
    match earlier.iter().find(|old| old.machine.id != here) {
        Some(old) if !any_machine => Err(Failure::Usage(format!(
            "{} ran on another machine, or on this one before its kernel, CPUs, memory or governor \
             changed; run the baseline again here, or compare anyway with --any-machine \
             (and --fail-on less-worth)",
            old.id
        ))),
        _ => Ok(()),
    }
}

/// Errors: no verdict is possible with so few units.
fn check_units(
    request: &Request,
    plan: &PathPlan,
    olds: &[Outcome],
    by: By,
    unit: Unit,
) -> Result<(), Failure> {
    let arms = plan.arms().iter().filter(|(arm, can)| *can == Support::Yes && is_judged(arm, by));
    let (arms, judged) = (arms.count(), plan.judged().len());
    let needed = model::runs_needed(arms * judged);
    let (old, new) = (model::sessions(olds, unit).len(), unit_count(request, unit));
    if old.min(new) >= needed {
        return Ok(());
    }
    let remedy = match unit {
        Unit::Run => format!("give --runs {needed}"),
        Unit::Session => format!(
            "the day cannot be told from the change; runs less than an hour apart are one session: give --runs \
             {needed} --every 2h, run both states in one run with --against"
        ),
        Unit::Day => format!(
            "the day cannot be told from the change: give --runs {needed} --every 24h, run both states in one \
             run with --against"
        ),
    };
    Err(Failure::Usage(format!(
        "--fail-on needs at least {needed} {0}s a side for a verdict on {arms} arms by {judged} figures; here are \
         {old} earlier and {new} new {0}s: {remedy}, a baseline of {needed} {0}s (ID,ID,… or 'PREFIX*'), or \
         fewer arms",
        unit.name(),
    )))
}

fn is_judged(arm: &Arm, by: By) -> bool {
    match arm.kind {
        ArmKind::Control => false,
        ArmKind::Baseline => by == By::Value,
        _ => true,
    }
}

/// Fewest units that the runs of a request will be.
fn unit_count(request: &Request, unit: Unit) -> usize {
    const DAY: Duration = Duration::from_secs(86_400);
    const SESSION_GAP: Duration = Duration::from_millis(model::SESSION_GAP_MS as u64);
    let Series { runs, every } = request.series;
    let (every, count) = (every.unwrap_or_default(), runs as usize);
    match unit {
        Unit::Run => count,
        Unit::Session if every >= SESSION_GAP + request.limits.time => count,
        Unit::Session => 1,
        Unit::Day => {
            let span = every * runs.saturating_sub(1);
            count.min((span.as_secs() / DAY.as_secs()) as usize + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{Limits, Subject};

    use super::*;

    #[test]
    fn runs_an_hour_apart_are_sessions_of_their_own() {
        let path = Subject::Path(Box::default());
        let mut request = Request::new(path, Limits::default());
        let mut count = |every_s: u64, unit| {
            request.series = Series { runs: 5, every: Some(Duration::from_secs(every_s)) };
            unit_count(&request, unit)
        };
        assert_eq!((count(7200, Unit::Session), count(3600, Unit::Session)), (5, 1));
        assert_eq!((count(1, Unit::Run), count(43_200, Unit::Day)), (5, 3));
    }
}
