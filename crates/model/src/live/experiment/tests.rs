use super::*;
use crate::live::{LiveFigure, LiveScale};
use crate::{Better, Random};

const SECOND_NS: u64 = 1_000_000_000;

/// A service whose p50 is 1 ms, with a noise of 5 %.
struct Service {
    random: Random,
    now_ns: u64,
}

impl Service {
    fn period(&mut self, arm: LiveArm, period_ns: u64, act_ns: u64, effect: f64) -> LivePeriod {
        let start_ns = self.now_ns;
        self.now_ns += period_ns + act_ns;
        let effect = if arm == LiveArm::On { effect } else { 1.0 };
        let [first, second] = [0, 1].map(|_| effect * (0.05 * self.random.normal()).exp());
        LivePeriod {
            arm,
            values: vec![Some((first + second) / 2.0)],
            halves: [vec![Some(first)], vec![Some(second)]],
            request_count: 100,
            trip: None,
            start_ns,
            act_ns,
            end_ns: self.now_ns,
        }
    }
}

fn plan(minutes: u64, confirm: bool) -> LivePlan {
    LivePlan {
        figures: vec![LiveFigure {
            name: "p50".into(),
            unit: "ms".into(),
            better: Better::Lower,
            scale: LiveScale::Ratio,
        }],
        resolve: 1.05,
        time_ns: minutes * 60 * SECOND_NS,
        seed: 5,
        washout_ns: SECOND_NS / 2,
        act_ns: SECOND_NS / 10,
        confirm,
        rules: Vec::new(),
    }
}

fn forecast() -> LiveForecast {
    LiveForecast { period_ns: 5 * SECOND_NS, pairs: 18, time_ns: 0, figures: vec![None] }
}

/// Runs to the end; `change` may change each period, given its number and stage.
fn run(
    plan: LivePlan,
    effect: f64,
    mut change: impl FnMut(u32, LiveStage, &mut LivePeriod),
) -> (LiveOutcome, u64) {
    let mut service = Service { random: Random::new(9, 0), now_ns: 0 };
    let act_ns = plan.act_ns;
    let mut experiment = LiveExperiment::new(plan, forecast());
    let mut number = 0;
    while let LiveStep::Period { arm, period_ns, stage, .. } = experiment.next(service.now_ns) {
        let mut period = service.period(arm, period_ns, act_ns, effect);
        change(number, stage, &mut period);
        number += 1;
        experiment.record(period);
    }
    (experiment.outcome(), service.now_ns)
}

fn orders(seed: u64) -> Vec<LiveArm> {
    (0..1_000).map(|pair| first_arm(seed, pair)).collect()
}

#[test]
fn order_is_a_coin_that_the_seed_fixes() {
    assert_eq!(orders(1), orders(1));
    assert_ne!(orders(1), orders(2));
    let first = orders(3);
    let on = first.iter().filter(|arm| **arm == LiveArm::On).count();
    assert!((430..570).contains(&on), "{on}");
    let same = first.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert!((430..570).contains(&same), "{same}");
}

#[test]
fn same_period_is_asked_for_until_it_is_recorded() {
    let mut experiment = LiveExperiment::new(plan(30, false), forecast());
    let first = experiment.next(0);
    assert_eq!(experiment.next(1), first);
    let LiveStep::Period { arm, pair: 0, .. } = first else { panic!("{first:?}") };
    let mut service = Service { random: Random::new(9, 0), now_ns: 0 };
    experiment.record(service.period(arm, 1, 0, 1.0));
    experiment.record(service.period(arm, 1, 0, 1.0));
    let LiveStep::Period { arm: second, pair: 0, .. } = experiment.next(2) else { panic!() };
    assert_eq!(second, arm.other());
}

#[test]
fn run_without_a_difference_ends_when_that_is_shown() {
    let (outcome, _) = run(plan(60, true), 1.0, |_, _, _| {});
    assert_eq!(outcome.end, LiveEnd::Decided);
    assert_eq!(outcome.verdicts[0].verdict, Verdict::NoDifferenceShown);
    assert!(outcome.trusted, "{:?}", outcome.doubts);
}

#[test]
fn run_keeps_to_its_time() {
    let mut plan = plan(7, true);
    plan.resolve = 1.0001;
    let (outcome, now_ns) = run(plan.clone(), 1.0, |_, _, _| {});
    assert_eq!(outcome.end, LiveEnd::TimeUp);
    assert!(now_ns <= plan.time_ns && now_ns + 11 * SECOND_NS > plan.time_ns, "{now_ns}");
    assert_eq!(outcome.verdicts[0].verdict, Verdict::Inconclusive);
}

#[test]
fn better_is_confirmed_by_longer_periods_if_there_is_time() {
    let (outcome, now_ns) = run(plan(60, true), 0.8, |_, _, _| {});
    let verdict = &outcome.verdicts[0];
    assert_eq!((verdict.verdict, verdict.within_ns), (Verdict::Better, 80 * SECOND_NS));
    let scale = outcome.carry_over[0].second_scale.as_ref().expect("long periods");
    assert_eq!((scale.pairs, scale.answer), (12, SecondScale::Confirmed));
    assert!(now_ns < 40 * 60 * SECOND_NS);
    // Five long pairs do not fit.
    let (outcome, _) = run(plan(12, true), 0.8, |_, _, _| {});
    let verdict = &outcome.verdicts[0];
    assert_eq!((verdict.verdict, verdict.within_ns), (Verdict::Better, 5 * SECOND_NS));
    assert_eq!(outcome.carry_over[0].second_scale, None);
}

#[test]
fn better_that_longer_periods_lack_is_not_trusted() {
    let (outcome, _) = run(plan(60, true), 0.8, |_, stage, period| {
        if stage == LiveStage::Long && period.arm == LiveArm::On {
            period.values[0] = period.values[0].map(|value| value / 0.8);
        }
    });
    assert_eq!(outcome.doubts, [LiveDoubt::SecondScale { figure: "p50".into() }]);
    assert!(!outcome.trusted);
    assert_eq!(outcome.verdicts[0].within_ns, 5 * SECOND_NS);
}

#[test]
fn worse_needs_no_confirmation() {
    let (outcome, now_ns) = run(plan(60, true), 1.3, |_, _, _| {});
    assert_eq!(outcome.verdicts[0].verdict, Verdict::Worse);
    assert!(now_ns < 10 * 60 * SECOND_NS);
}

#[test]
fn five_tripped_on_periods_end_the_run_unless_an_off_period_tripped() {
    let mut trips = 0;
    let (outcome, _) = run(plan(60, false), 1.0, |number, _, period| {
        if number % 8 < 2 && period.arm == LiveArm::On {
            period.trip = Some("a request waited".into());
            trips += 1;
        }
    });
    assert_eq!((outcome.end, outcome.trips), (LiveEnd::Tripped, TripCount { on: 5, off: 0 }));
    assert_eq!(trips, 5);
    let (outcome, _) = run(plan(60, false), 1.0, |number, _, period| {
        if number < 2 || number % 8 < 2 && period.arm == LiveArm::On {
            period.trip = Some("a request waited".into());
        }
    });
    assert_ne!(outcome.end, LiveEnd::Tripped);
    assert_eq!(outcome.trips.off, 1);
}

#[test]
fn tripped_periods_count_as_the_worst_and_silent_pairs_not_at_all() {
    let (outcome, _) = run(plan(60, false), 0.8, |number, _, period| {
        // A quarter of the on-periods.
        if number % 8 < 2 && period.arm == LiveArm::On && number > 8 || number < 2 {
            period.trip = Some("slow".into());
        }
    });
    // 20 % faster, and often the worst: neither is decided at once.
    assert!(outcome.pairs > 18 || outcome.verdicts[0].verdict != Verdict::Better, "{outcome:?}");
    let (outcome, _) = run(plan(60, false), 1.0, |number, _, period| {
        if number % 4 == 1 {
            period.request_count = 0;
            period.values = vec![None];
        }
    });
    assert_eq!(outcome.verdicts[0].pairs + outcome.silent.on + outcome.silent.off, outcome.pairs);
    assert!(outcome.silent.on > 0 && outcome.silent.off > 0);
}

/// With a figure that is never there, no run is decided.
fn undecided(mut plan: LivePlan) -> LivePlan {
    let absent = LiveFigure { name: "cpu".into(), ..plan.figures[0].clone() };
    plan.figures.push(absent);
    plan
}

#[test]
fn soft_guard_ends_a_run_whose_figure_is_worse_by_more_than_its_factor() {
    let (outcome, _) = run(plan(60, false), 3.0, |_, _, _| {});
    assert_eq!(outcome.end, LiveEnd::SoftGuard { figure: "p50".into() });
    assert_eq!(outcome.verdicts[0].verdict, Verdict::Worse);
    assert!(outcome.pairs < 18, "{}", outcome.pairs);
    let mut strict = undecided(plan(60, false));
    assert_eq!(run(strict.clone(), 1.3, |_, _, _| {}).0.end, LiveEnd::TimeUp);
    strict.rules = vec!["p50 > 1.2x".parse().expect("a rule")];
    let (outcome, _) = run(strict, 1.3, |_, _, _| {});
    assert_eq!(outcome.end, LiveEnd::SoftGuard { figure: "p50".into() });
}

#[test]
fn effect_of_the_first_half_and_of_the_arm_before_are_seen() {
    let plan = undecided(plan(30, false));
    let (outcome, _) = run(plan.clone(), 1.0, |_, _, period| {
        if period.arm == LiveArm::On {
            period.halves[0][0] = period.halves[0][0].map(|value| value * 1.2);
        }
    });
    assert!(outcome.doubts.contains(&LiveDoubt::Halves { figure: "p50".into() }));
    let mut before = LiveArm::Off;
    let (outcome, _) = run(plan, 1.0, |_, _, period| {
        if period.arm == LiveArm::On && before == LiveArm::Off {
            period.values[0] = period.values[0].map(|value| value * 1.2);
        }
        before = period.arm;
    });
    assert!(outcome.doubts.contains(&LiveDoubt::Predecessor { figure: "p50".into() }));
    assert!(!outcome.trusted);
}

#[test]
fn interrupted_run_says_so_and_keeps_what_was_decided() {
    let mut experiment = LiveExperiment::new(plan(30, false), forecast());
    assert_eq!(experiment.outcome().end, LiveEnd::Unfinished);
    experiment.next(0);
    experiment.interrupt();
    assert_eq!(experiment.next(1), LiveStep::Ended(LiveEnd::Interrupted));
    let outcome = experiment.outcome();
    assert_eq!((outcome.end, outcome.pairs), (LiveEnd::Interrupted, 0));
}

#[test]
fn outcome_is_the_same_after_json() {
    for effect in [0.8, 1.0] {
        let (outcome, _) = run(plan(60, true), effect, |number, _, period| {
            if number == 3 {
                period.trip = Some("slow".into());
            }
        });
        let text = serde_json::to_string(&outcome).expect("JSON");
        let read: LiveOutcome = serde_json::from_str(&text).expect("an outcome");
        assert_eq!((read.figures, read.end), (outcome.figures, outcome.end));
        assert_eq!((read.trips, read.doubts), (outcome.trips, outcome.doubts));
        let [read, written] = [&read.verdicts[0], &outcome.verdicts[0]];
        assert_eq!((read.verdict, read.decided_ns), (written.verdict, written.decided_ns));
        assert_eq!(read.ratio.is_some(), written.ratio.is_some());
    }
}
