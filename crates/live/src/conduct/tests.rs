//! Runs in a world without clock, service and setting.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::live::{
    GuardSample, LiveArm, LiveEnd, LiveFigure, LiveForecast, LiveOutcome, LivePeriodRecord,
    LiveScale, LiveStage, first_arm,
};
use model::{Better, Random, Verdict};

use super::{Clock, ConductError, Figures, LiveRun, Observer, RunOptions, Switch, conduct};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
/// Step of the world.
const TICK_NS: u64 = 10 * MS;

/// A service under load.
struct World {
    now_ns: u64,
    is_on: bool,
    switched_ns: u64,
    /// Cumulative: requests, their cost, and those that failed.
    seen: Seen,
    sampled: Seen,
    random: Random,
    /// Cost with the setting over that without it.
    effect: f64,
    /// Factor on the cost while the setting is switched, and for a time after it.
    act_cost: f64,
    after_cost: f64,
    after_ns: u64,
    act_ns: u64,
    /// Requests are not answered: with the setting, and without it.
    hangs: [bool; 2],
    hung_ns: Option<u64>,
    turns: Vec<(u64, bool)>,
    stop_at_ns: u64,
    /// Number of the turn that another process interferes with.
    foreign_at: usize,
    failing_readings: std::ops::Range<u64>,
    stop: Rc<AtomicBool>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    requests: f64,
    cost: f64,
}

impl World {
    fn new() -> Self {
        World {
            now_ns: 77 * S,
            is_on: false,
            switched_ns: 0,
            seen: Seen::default(),
            sampled: Seen::default(),
            random: Random::new(5, 0),
            effect: 1.0,
            act_cost: 1.0,
            after_cost: 1.0,
            after_ns: 0,
            act_ns: 5 * MS,
            hangs: [false; 2],
            hung_ns: None,
            turns: Vec::new(),
            stop_at_ns: u64::MAX,
            foreign_at: usize::MAX,
            failing_readings: 0..0,
            stop: Rc::new(AtomicBool::new(false)),
        }
    }

    fn hangs(&self) -> bool {
        self.hangs[usize::from(!self.is_on)]
    }

    fn advance(&mut self, until_ns: u64, factor: f64) {
        while self.now_ns < until_ns {
            let step_ns = TICK_NS.min(until_ns - self.now_ns);
            self.now_ns += step_ns;
            let is_fresh = self.now_ns - self.switched_ns < self.after_ns;
            let after = if is_fresh { self.after_cost } else { 1.0 };
            let effect = if self.is_on { self.effect } else { 1.0 };
            let noise = 0.9 + self.random.below(2000) as f64 / 10_000.0;
            let requests = if self.hangs() { 0.0 } else { 500.0 * step_ns as f64 / 1e9 };
            self.seen.requests += requests;
            self.seen.cost += requests * 100_000.0 * noise * effect * after * factor;
            self.hung_ns = self.hangs().then(|| self.hung_ns.unwrap_or(self.now_ns));
        }
        if self.now_ns >= self.stop_at_ns {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

#[derive(Clone)]
struct Shared(Rc<RefCell<World>>);

impl Clock for Shared {
    fn now_ns(&self) -> u64 {
        self.0.borrow().now_ns
    }

    fn sleep_until(&mut self, at_ns: u64) {
        self.0.borrow_mut().advance(at_ns, 1.0);
    }
}

struct FakeFigures(Shared, Vec<LiveFigure>);

impl Figures for FakeFigures {
    type Reading = Seen;

    fn figures(&self) -> &[LiveFigure] {
        &self.1
    }

    fn read(&mut self) -> Result<Seen, String> {
        let world = self.0.0.borrow();
        if world.failing_readings.contains(&world.now_ns) {
            return Err("the source does not answer".into());
        }
        Ok(world.seen)
    }

    fn guard_sample(&mut self, _: Option<u64>) -> Result<GuardSample, String> {
        let mut world = self.0.0.borrow_mut();
        let request_count = (world.seen.requests - world.sampled.requests) as u64;
        world.sampled = world.seen;
        Ok(GuardSample {
            now_ns: world.now_ns,
            request_count,
            error_count: 0,
            slow_count: 0,
            waiting_ns: world.hung_ns.map(|hung_ns| world.now_ns - hung_ns),
        })
    }

    fn value(&self, from: &Seen, to: &Seen, figure: usize) -> Option<f64> {
        let requests = to.requests - from.requests;
        (requests > 0.0).then(|| match figure {
            0 => (to.cost - from.cost) / requests,
            _ => 0.0,
        })
    }

    fn request_count(&self, from: &Seen, to: &Seen) -> u64 {
        (to.requests - from.requests) as u64
    }
}

struct FakeSwitch(Shared);

impl Switch for FakeSwitch {
    fn turn(&mut self, on: bool) -> Result<(), String> {
        let mut world = self.0.0.borrow_mut();
        if world.turns.len() == world.foreign_at {
            return Err("rps-cpus was changed by another process".into());
        }
        if world.is_on != on {
            let (act_ns, act_cost) = (world.act_ns, world.act_cost);
            let end_ns = world.now_ns + act_ns;
            world.advance(end_ns, act_cost);
            world.is_on = on;
            world.switched_ns = end_ns;
            // Requests that hung are answered.
            world.hung_ns = None;
            let now_ns = world.now_ns;
            world.turns.push((now_ns, on));
        }
        Ok(())
    }
}

#[derive(Default)]
struct Noted {
    forecast: Option<LiveForecast>,
    trips: usize,
}

impl Observer for Noted {
    fn baseline(&mut self, _: u64, _: u64) {}

    fn forecast(&mut self, forecast: &LiveForecast, _: u64) {
        self.forecast = Some(forecast.clone());
    }

    fn progress(&mut self, _: u64, _: u32) {}

    fn tripped(&mut self, _: &LivePeriodRecord) {
        self.trips += 1;
    }

    fn period(&mut self, period: &LivePeriodRecord, outcome: &dyn Fn() -> LiveOutcome) {
        assert!(outcome().pairs <= period.pair + 1);
    }
}

fn options() -> RunOptions {
    RunOptions {
        baseline: Duration::from_secs(60),
        time: Duration::from_secs(900),
        resolve: 1.05,
        seed: 11,
        washout: None,
        confirm: false,
        rules: Vec::new(),
    }
}

fn run_with(world: World, options: &RunOptions) -> (Result<LiveRun, ConductError>, Shared, Noted) {
    let stop = world.stop.clone();
    let shared = Shared(Rc::new(RefCell::new(world)));
    let cpu = LiveFigure {
        name: "cpu".into(),
        unit: "ns".into(),
        better: Better::Lower,
        scale: LiveScale::Ratio,
    };
    let mut figures = FakeFigures(shared.clone(), vec![cpu]);
    let mut noted = Noted::default();
    let (mut clock, mut switch) = (shared.clone(), FakeSwitch(shared.clone()));
    let run = conduct(&mut clock, &mut figures, &mut switch, &mut noted, options, &stop);
    (run, shared, noted)
}

fn run(world: World) -> (LiveRun, Shared, Noted) {
    let (run, world, noted) = run_with(world, &options());
    (run.unwrap(), world, noted)
}

fn verdict(run: &LiveRun) -> Verdict {
    run.outcome.verdicts[0].verdict
}

#[test]
fn order_of_each_pair_is_the_coin_s_and_both_arms_are_as_long() {
    let (run, world, noted) = run(World::new());
    assert!(noted.forecast.is_some() && run.periods.len() >= 36, "{}", run.periods.len());
    for (number, pair) in run.periods.chunks(2).enumerate() {
        let [first, second] = pair else { panic!("half a pair") };
        assert_eq!(first.arm, first_arm(11, number as u32));
        assert_eq!(second.arm, first.arm.other());
        assert_eq!((first.pair, second.pair), (number as u32, number as u32));
        for period in pair {
            assert_eq!(period.stage, LiveStage::Short);
            assert_eq!(period.end_ns - period.switched_ns, run.outcome.period_ns);
            assert_eq!(period.counted_ns - period.switched_ns, run.outcome.washout_ns);
        }
    }
    let world = world.0.borrow();
    // The setting was switched as often as the arms changed, once before to time the act, and is off at the end.
    let changes = run.periods.windows(2).filter(|pair| pair[0].arm != pair[1].arm).count();
    assert!(world.turns.len() >= changes + 2 && !world.is_on);
    assert_eq!(run.baseline.act_ns, 5 * MS);
}

#[test]
fn setting_without_effect_shows_no_difference_although_each_act_costs() {
    let (run, ..) = run(World { act_cost: 100.0, act_ns: 300 * MS, ..World::new() });
    assert_eq!(verdict(&run), Verdict::NoDifferenceShown, "{:?}", run.outcome.verdicts);
    assert!(run.outcome.trusted, "{:?}", run.outcome.doubts);
}

#[test]
fn effect_right_after_a_switch_is_washed_out() {
    let world = World { after_cost: 30.0, after_ns: 400 * MS, ..World::new() };
    let (run, ..) = run(world);
    assert_eq!(verdict(&run), Verdict::NoDifferenceShown, "{:?}", run.outcome.verdicts);
}

#[test]
fn effects_are_found_in_both_directions() {
    for (effect, expected) in [(0.9, Verdict::Better), (1.1, Verdict::Worse)] {
        let (run, ..) = run(World { effect, ..World::new() });
        assert_eq!(verdict(&run), expected, "{:?}", run.outcome.verdicts);
        let ratio = run.outcome.verdicts[0].ratio.unwrap().median;
        assert!((ratio / effect - 1.0).abs() < 0.03, "{ratio}");
    }
}

#[test]
fn harm_is_undone_within_a_second_and_five_trips_end_the_run() {
    let (run, world, noted) = run(World { hangs: [true, false], ..World::new() });
    assert_eq!(run.outcome.end, LiveEnd::Tripped);
    assert_eq!((run.outcome.trips.on, run.outcome.trips.off), (5, 0));
    assert_eq!((noted.trips, world.0.borrow().is_on), (5, false));
    for period in run.periods.iter().filter(|period| period.arm == LiveArm::On) {
        let trip = period.trip.as_ref().unwrap();
        assert!(trip.at_ns - period.switched_ns <= 700 * MS, "{trip:?}");
        assert!(trip.undone_after_ns.unwrap() < 100 * MS, "{trip:?}");
        assert!(period.end_ns - trip.at_ns < 100 * MS);
        assert!(trip.reason.contains("waited"), "{trip:?}");
    }
    assert_ne!(verdict(&run), Verdict::Better);
}

#[test]
fn same_rule_trips_off_periods_and_then_the_trips_end_nothing() {
    let options = RunOptions { time: Duration::from_secs(300), ..options() };
    // The service hangs from the first switch on, whatever the arm is.
    let world = World { hangs: [true, false], ..World::new() };
    let stop = world.stop.clone();
    let shared = Shared(Rc::new(RefCell::new(world)));
    let figures = vec![LiveFigure {
        name: "cpu".into(),
        unit: "ns".into(),
        better: Better::Lower,
        scale: LiveScale::Ratio,
    }];
    let mut figures = FakeFigures(shared.clone(), figures);
    struct HangsBoth(FakeSwitch);
    impl Switch for HangsBoth {
        fn turn(&mut self, on: bool) -> Result<(), String> {
            self.0.turn(on)?;
            let mut world = self.0.0.0.borrow_mut();
            (world.hangs, world.hung_ns) = ([true, true], None);
            Ok(())
        }
    }
    let mut switch = HangsBoth(FakeSwitch(shared.clone()));
    let mut clock = shared.clone();
    let mut noted = Noted::default();
    let run = conduct(&mut clock, &mut figures, &mut switch, &mut noted, &options, &stop).unwrap();
    assert!(run.outcome.trips.on >= 5 && run.outcome.trips.off > 0, "{:?}", run.outcome.trips);
    assert_ne!(run.outcome.end, LiveEnd::Tripped);
    let off = run.periods.iter().filter(|p| p.arm == LiveArm::Off);
    assert!(off.filter_map(|p| p.trip.as_ref()).all(|trip| trip.undone_after_ns.is_none()));
}

#[test]
fn signal_ends_the_run_with_the_result_so_far_and_the_setting_off() {
    let (run, world, _) = run(World { stop_at_ns: (77 + 60 + 123) * S, ..World::new() });
    assert!(run.is_interrupted && run.stopped.is_none());
    assert_eq!(run.outcome.end, LiveEnd::Interrupted);
    assert!(run.outcome.pairs > 5 && !world.0.borrow().is_on);
    let early = World { stop_at_ns: 80 * S, ..World::new() };
    let (run, world, _) = run_with(early, &options());
    assert!(matches!(run, Err(ConductError::Interrupted)));
    assert!(world.0.borrow().turns.is_empty(), "nothing was switched in the baseline");
}

#[test]
fn change_by_another_process_ends_the_run_with_its_reason() {
    let (run, ..) = run(World { foreign_at: 9, ..World::new() });
    assert!(run.stopped.unwrap().contains("another process"));
    assert_eq!(run.outcome.end, LiveEnd::Interrupted);
    assert!(!run.is_interrupted);
}

#[test]
fn time_that_cannot_decide_is_refused_with_the_time_that_can() {
    let short = RunOptions { time: Duration::from_secs(20), ..options() };
    let (run, world, _) = run_with(World::new(), &short);
    let error = run.unwrap_err();
    assert!(matches!(error, ConductError::Refused(_)), "{error}");
    assert!(error.to_string().contains("--for"), "{error}");
    assert!(!world.0.borrow().is_on);
}

#[test]
fn source_that_fails_once_costs_a_period_and_one_that_stays_away_ends_the_run() {
    let begin = (77 + 60 + 20) * S;
    let (once, ..) = run(World { failing_readings: begin..begin + S, ..World::new() });
    assert!(once.stopped.is_none() && once.periods.iter().any(|p| p.values[0].is_none()));
    let (gone, ..) = run(World { failing_readings: begin..u64::MAX, ..World::new() });
    assert!(gone.stopped.unwrap().contains("does not answer"));
}
