//! `prove --arms best`: a search for the best set of switches, and the experiment that measures it.

mod recorded;

use std::time::{Duration, Instant};

use model::{
    Arm, BEST, Clock, Ended, Limits, Outcome, Search, SearchPlan, SearchStep, Session, Support,
    SwitchId, is_event_count,
};
use remote::Failure;

use crate::conduct::{Timing, conduct};
use crate::proof::{Proof, Proven};
use crate::runner::Runner;
pub(crate) use recorded::Record;
use recorded::Recorded;

/// Fewest blocks of the experiment that measures a set: its members may differ little.
const BLOCKS_MIN: u32 = 16;

/// The search's share of the time.
const SEARCH_SHARE: f64 = 0.625;
/// Share of the time left which the experiment that measures a set has: a quarter of all at least.
const RUN_SHARE: f64 = 0.7;

/// Where a search looks.
pub(crate) struct Space<'a> {
    pub(crate) switches: Vec<SwitchId>,
    /// Asked once for each set whether it can run here.
    pub(crate) support: Box<dyn FnMut(&Arm) -> Support + 'a>,
    /// Measured part of one trial; `None` if only a trial shows it.
    pub(crate) trial: Option<Duration>,
}

/// Searches in most of the time, then measures the set and the set without each member, and drops members
/// until each of the rest is shown to matter.
///
/// - `begun`: from here on the time counts.
/// - `proof`: without arms.
/// - `record`: the trials of the search; see [`Record`].
///
/// Returns the last of those experiments. Errors: no judged metric is a figure to search by.
pub(crate) fn find(
    runner: &Runner<'_>,
    limits: &Limits,
    begun: Instant,
    proof: &Proof,
    space: &mut Space<'_>,
    session: &mut dyn Session,
    record: Record,
) -> Result<Proven, Failure> {
    let metric = proof.judged.iter().find(|name| !is_event_count(name));
    let metric = metric.ok_or_else(|| {
        Failure::Usage(format!("{} has no judged figure to search by", proof.path))
    })?;
    let (seed, mut found, mut resumed) = match record {
        Record::Goes(run) if let Some(found) = run.header.search.clone() => {
            (run.seed.wrapping_sub(found.steps.len() as u64), found, Some(*run))
        }
        record => {
            let mut trials = Recorded::open(runner, limits, begun, proof, session, record)?;
            let found = look(runner, limits, metric, space, &mut trials);
            (trials.seed, trials.end(found)?, None)
        }
    };
    loop {
        let arms = model::confirming_arms(&found.set, &space.switches, &mut space.support);
        let questions = arms.len() * proof.judged.len();
        let least = model::blocks_min(questions).max(BLOCKS_MIN);
        let run = Limits {
            // The rest is for the set without an idle member.
            time: time_left(limits, begun).mul_f64(RUN_SHARE).max(Duration::from_millis(1)),
            seed: Some(seed.wrapping_add(found.steps.len() as u64)),
            min_blocks: limits.min_blocks.or(limits.max_blocks).or(Some(least)),
            ..limits.clone()
        };
        let mut proof = Proof { arms, search: Some(found.clone()), ..proof.clone() };
        proof.load.insert("arms".to_owned(), BEST.to_owned());
        proof.load.insert("time_ms".to_owned(), run.time.as_millis().to_string());
        let share = run.time.as_secs_f64() / limits.time.as_secs_f64();
        let timing = Timing { begun: Instant::now(), share };
        let proven = conduct(runner, &run, timing, proof, session, resumed.take())?;
        let is_broken_off = proven.gave_up || proven.outcome.ended == Ended::Interrupted;
        match proven.outcome.idle_member() {
            Some(idle)
                if !is_broken_off
                    && time_left(limits, begun).mul_f64(RUN_SHARE)
                        < least_time(&proven.outcome, least) =>
            {
                runner.console.say(&format!(
                    "{} is not shown to matter, and no time is left to measure the set without it",
                    idle.switch
                ));
                return Ok(proven);
            }
            Some(idle) if !is_broken_off => drop_member(&mut found, idle),
            _ => return Ok(proven),
        }
    }
}

/// Time that the warm-up and the fewest blocks of another such experiment take.
fn least_time(outcome: &Outcome, blocks: u32) -> Duration {
    let block = Duration::from_millis(outcome.wall_ms) / (outcome.blocks + 1);
    block * (blocks + 1)
}

fn time_left(limits: &Limits, begun: Instant) -> Duration {
    limits.time.saturating_sub(begun.elapsed())
}

/// The search, with what it says on the terminal.
fn look(
    runner: &Runner<'_>,
    limits: &Limits,
    metric: &str,
    space: &mut Space<'_>,
    trials: &mut Recorded<'_>,
) -> Search {
    let until = limits.time.mul_f64(SEARCH_SHARE);
    let [clear, most] = model::first_stage_trials(space.switches.len());
    if let Some(trial) = space.trial.filter(|trial| *trial * clear > until) {
        runner.console.say(&format!(
            "the first stage of the search may need {clear} to {most} trials of {} ms, and has {} s: give \
             --time {}s to let it end",
            trial.as_millis(),
            until.as_secs_f64(),
            whole_time(trial, most)
        ));
    }
    let (clock, seed) = (trials.clock.clone(), trials.seed);
    let until_ns = until.as_nanos() as u64;
    let plan = SearchPlan { switches: &space.switches, metric, seed, until_ns };
    let mut next = |arm: &Arm| {
        let elapsed = Duration::from_nanos(clock.elapsed_ns());
        let done = (elapsed.div_duration_f64(limits.time) * 1000.0).min(1000.0) as u64;
        let time = report::forecast::elapsed(elapsed, limits.time);
        runner.console.progress(done, &format!("{time}, search"), &arm.name);
    };
    let (support, clock) = (&mut space.support, clock.as_ref());
    let found = model::search(&plan, support, trials, clock, runner.stop, &mut next);
    runner.console.end_progress();
    if found.out_of_time && found.steps.is_empty() && !runner.is_stopped() {
        let [_, most] = model::first_stage_trials(found.candidates as usize);
        // Of a trial as it was; of none, as it was to be.
        let each = match found.trials {
            0 => space.trial,
            ran => Some(Duration::from_nanos(clock.elapsed_ns()) / ran),
        };
        let each = each.map_or(String::new(), |each| {
            let ms = each.as_millis();
            format!(", at {ms} ms each: give --time {}s to let it end", whole_time(each, most))
        });
        runner.console.say(&format!(
            "the time of the search ended before its first stage: {} of at most {most} trials were run{each}",
            found.trials
        ));
    }
    found
}

/// Whole seconds for the search of which some trials are the share.
fn whole_time(trial: Duration, count: u32) -> u64 {
    (trial.as_secs_f64() * f64::from(count) / SEARCH_SHARE).ceil() as u64
}

fn drop_member(found: &mut Search, idle: model::Member) {
    found.set.retain(|id| *id != idle.switch);
    found.steps.push(SearchStep { switch: idle.switch, added: false, ratio: idle.ratio });
}
