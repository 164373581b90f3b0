//! Sentences of a table of outcomes.

use std::collections::BTreeMap;

use model::{
    ArmKind, ArmOutcome, Better, By, CodeKind, CountDifference, CpuSamples, Decision, Ended, Floor,
    Forecast, FunctionSamples, Gate, GateAnswer, Machine, MetricOutcome, Outcome, Phrases,
    Reliability, SCHEMA, Support, Undecided, Verdict,
};

use super::*;

const BLOCKS: usize = 24;

fn figures(unit: &str, better: Better, value: f64) -> MetricOutcome {
    // Each arm has noise of its own.
    let wobbles = (0..BLOCKS).map(|block| 0.01 * ((block * 7 + value as usize) % 5) as f64);
    let trials = wobbles.map(|wobble| Some(value * (1.0 + wobble))).collect();
    MetricOutcome { median: Some(value), ..MetricOutcome::unjudged(unit, better, trials) }
}

fn judged(figures: MetricOutcome, verdict: Verdict, [low, ratio, high]: [f64; 3]) -> MetricOutcome {
    MetricOutcome {
        ratio: Some(ratio),
        low: Some(low),
        high: Some(high),
        p: Some(0.001),
        verdict: Some(verdict),
        ..figures
    }
}

fn arm(kind: ArmKind, name: &str, metrics: &[(&str, MetricOutcome)]) -> ArmOutcome {
    ArmOutcome {
        name: name.into(),
        kind,
        switches: Vec::new(),
        support: Support::Yes,
        trials: BLOCKS as u32,
        metrics: metrics.iter().map(|(name, of)| (name.to_string(), of.clone())).collect(),
        latency: BTreeMap::new(),
        mode: BTreeMap::new(),
        counters: BTreeMap::new(),
        samples: None,
        reliability: None,
        failures: Vec::new(),
    }
}

fn outcome(judged: &[&str], arms: Vec<ArmOutcome>) -> Outcome {
    Outcome {
        schema: SCHEMA,
        id: "id".into(),
        name: None,
        note: None,
        started: "2026-11-21T08:30:00Z".into(),
        version: "0.1.0".into(),
        machine: Machine::default(),
        path: "command".into(),
        load: BTreeMap::new(),
        phrases: Phrases::default(),
        seed: 1,
        schedule: Default::default(),
        blocks: BLOCKS as u32,
        wall_ms: 60_000,
        ended: Ended::TimeUp,
        looks: 1,
        looked: Vec::new(),
        forecast: None,
        resolve: 1.05,
        judged: judged.iter().map(|name| name.to_string()).collect(),
        arms,
        best: Vec::new(),
        floor: judged.iter().map(|n| (n.to_string(), Floor { low: 0.99, high: 1.01 })).collect(),
        warnings: Vec::new(),
        trust: Default::default(),
        gate: None,
        search: None,
    }
}

/// Two servers by requests per second: `old` has 1,550.
fn rates(value: f64, verdict: Verdict, ratios: [f64; 3]) -> Outcome {
    let old = figures("rps", Better::Higher, 1550.0);
    let new = judged(figures("rps", Better::Higher, value), verdict, ratios);
    let arms = vec![
        arm(ArmKind::Baseline, "old", &[("rps", old.clone())]),
        arm(
            ArmKind::Control,
            "old again",
            &[("rps", judged(old, Verdict::NoDifferenceShown, [0.99, 1.0, 1.01]))],
        ),
        arm(ArmKind::Variant, "new", &[("rps", new)]),
    ];
    outcome(&["rps"], arms)
}

fn decision(answer: GateAnswer, [low, ratio, high]: [f64; 3]) -> Decision {
    Decision {
        arm: "new".into(),
        base: "old".into(),
        metric: Some("rps".into()),
        unit: "rps".into(),
        better: Better::Higher,
        value: Some(1240.0),
        base_value: Some(1550.0),
        ratio: Some(ratio),
        low: Some(low),
        high: Some(high),
        difference: None,
        failures: None,
        p: None,
        answer,
        reason: None,
        more_blocks: None,
        more_ms: None,
    }
}

fn gate(threshold: f64, decision: Decision) -> Option<Gate> {
    let answer = decision.answer;
    Some(Gate { threshold, by: By::Value, answer, decisions: vec![decision] })
}

fn said(outcome: &Outcome) -> String {
    sentences(outcome).into_iter().map(|said| said.text).collect::<Vec<_>>().join("\n")
}

#[test]
fn two_programs_are_compared_in_the_words_of_their_users() {
    use Verdict::{Better, Exploratory, Inconclusive, NoDifferenceShown, NotEffective, Worse};
    for (value, verdict, ratios, text) in [
        (
            1240.0,
            Worse,
            [0.77, 0.8, 0.83],
            "new is 20 % slower than old: 1,240 requests/s in place of 1,550 (95 %: 17 to 23 % slower).",
        ),
        (
            1876.0,
            Better,
            [1.18, 1.21, 1.24],
            "new is 21 % faster than old: 1,876 requests/s in place of 1,550 (95 %: 18 to 24 % faster).",
        ),
        (
            8215.0,
            Better,
            [5.1, 5.3, 5.5],
            "new is 5.3 times faster than old: 8,215 requests/s in place of 1,550 (95 %: 5.1 to 5.5 times faster).",
        ),
        (
            1550.0,
            NoDifferenceShown,
            [0.986, 1.0, 1.009],
            "new is no slower and no faster than old: between 0.9 % faster and 1.4 % slower (asked: 5 %).",
        ),
        (
            1550.0,
            Inconclusive,
            [0.91, 1.0, 1.12],
            "Not decided: new is between 12 % faster and 9 % slower.",
        ),
        // An interval on one side is no verdict.
        (1240.0, Inconclusive, [0.77, 0.8, 0.83], "Not decided: new is 17 to 23 % slower."),
        (1240.0, Exploratory, [0.77, 0.8, 0.83], "Not decided: new is 17 to 23 % slower."),
        (1550.0, NotEffective, [0.99, 1.0, 1.01], "new had no effect: its switches did nothing."),
    ] {
        assert_eq!(said(&rates(value, verdict, ratios)), text);
    }
}

#[test]
fn medians_that_contradict_the_pairs_are_left_out() {
    // In pairs 20 % less, and more in the median of all trials.
    let moved = rates(1700.0, Verdict::Worse, [0.77, 0.8, 0.83]);
    assert_eq!(said(&moved), "new is 20 % slower than old (95 %: 17 to 23 % slower).");
}

#[test]
fn what_would_decide_is_said() {
    let mut open = rates(1550.0, Verdict::Inconclusive, [0.91, 1.0, 1.12]);
    open.forecast = Some(Forecast { blocks: 100, whole_ms: 300_000, reaches: 1.1 });
    assert_eq!(
        said(&open),
        "Not decided: new is between 12 % faster and 9 % slower. About 4 minutes more would decide 5 %."
    );
    open.arms[2].metrics.get_mut("rps").unwrap().why =
        Some("the interval is clear of 1, but not after the correction for 3 figures".into());
    assert!(said(&open).contains("9 % slower. The interval is clear of 1, but"), "{}", said(&open));
}

#[test]
fn the_answer_of_a_gate_comes_before_the_verdict() {
    let mut run = rates(1240.0, Verdict::Worse, [0.77, 0.8, 0.83]);
    run.gate = gate(1.05, decision(GateAnswer::Worse, [0.77, 0.8, 0.83]));
    let slower = "new is 20 % slower than old: 1,240 requests/s in place of 1,550 (95 %: 17 to 23 % slower).";
    assert_eq!(said(&run), slower);
    assert_eq!(headline(&run), slower);
    run.gate = gate(1.02, decision(GateAnswer::NoWorse, [0.986, 1.0, 1.01]));
    assert_eq!(said(&run), "new is no slower than old: at most 1.4 % (asked: 2 %).");
    assert_eq!(sentences(&run)[0].tone, Tone::Good);
    // Better news is told, and agrees with the gate.
    run = rates(1876.0, Verdict::Better, [1.18, 1.21, 1.24]);
    run.gate = gate(1.02, decision(GateAnswer::NoWorse, [1.18, 1.21, 1.24]));
    assert!(said(&run).starts_with("new is 21 % faster than old"), "{}", said(&run));
    let wide = Decision {
        reason: Some(Undecided::Wide),
        more_blocks: Some(40),
        more_ms: Some(240_000),
        ..decision(GateAnswer::NotDecided, [0.91, 1.0, 1.12])
    };
    run.gate = gate(1.05, wide.clone());
    assert_eq!(
        said(&run),
        "Not decided: new is between 12 % faster and 9 % slower. About 4 minutes more would decide 5 %."
    );
    run.gate = gate(1.05, Decision { reason: Some(Undecided::Tail), ..wide.clone() });
    assert!(
        said(&run).starts_with("Not decided: new against old: no worse in the typical"),
        "{}",
        said(&run)
    );
    let steps = Some(Undecided::Resolution { step: 1.0 });
    run.gate = gate(1.05, Decision { reason: steps, more_blocks: None, ..wide });
    assert!(said(&run).contains("come in steps of 1 requests/s, too coarse"), "{}", said(&run));
    run.gate = Some(Gate {
        threshold: 1.05,
        by: By::Value,
        answer: GateAnswer::NotDecided,
        decisions: vec![],
    });
    assert_eq!(headline(&run), "Not decided: there is no arm to compare with the baseline.");
}

#[test]
fn figures_that_are_no_speed_have_words_of_their_own() {
    use Better::{Higher, Lower};
    for (name, unit, better, verdict, ratios, text) in [
        (
            "cpu_ns_per_packet",
            "ns",
            Lower,
            Verdict::Better,
            [0.86, 0.88, 0.9],
            "new takes 12 % less CPU per packet than old: 880 ns in place of 1 µs (95 %: 10 to 14 % less).",
        ),
        (
            "cpu_ns_per_packet",
            "ns",
            Lower,
            Verdict::Worse,
            [3.1, 3.2, 3.3],
            "new takes 3.2 times the CPU per packet of old: 3.2 µs in place of 1 (95 %: 3.1 to 3.3 times more).",
        ),
        (
            "peak_memory_bytes",
            "bytes",
            Lower,
            Verdict::Worse,
            [1.1, 1.2, 1.3],
            "new takes 20 % more peak memory than old: 1.17 KiB in place of 1,000 B (95 %: 10 to 30 % more).",
        ),
        (
            "p99_ms",
            "ms",
            Lower,
            Verdict::Worse,
            [1.1, 1.2, 1.3],
            "new is 20 % slower than old: 1.2 s in place of 1 (95 %: 10 to 30 % slower).",
        ),
        (
            "score",
            "points",
            Higher,
            Verdict::Worse,
            [0.7, 0.8, 0.9],
            "score: new is 20 % lower than old: 800 points in place of 1000 (95 %: 10 to 30 % lower).",
        ),
    ] {
        let old = figures(unit, better, 1000.0);
        let new = judged(figures(unit, better, 1000.0 * ratios[1]), verdict, ratios);
        let arms = vec![
            arm(ArmKind::Baseline, "old", &[(name, old)]),
            arm(ArmKind::Variant, "new", &[(name, new)]),
        ];
        let text = text.replace("1,000 B", "1000 B");
        assert_eq!(said(&outcome(&[name], arms)), text);
    }
}

#[test]
fn counts_are_judged_by_their_difference() {
    let old = figures("count", Better::Lower, 0.0);
    let mut new = figures("count", Better::Lower, 45.0);
    new.verdict = Some(Verdict::Worse);
    new.difference = Some(CountDifference { mean: 44.5, low: Some(42.0), high: Some(47.0) });
    let arms = vec![
        arm(ArmKind::Baseline, "old", &[("lost_count", old)]),
        arm(ArmKind::Variant, "new", &[("lost_count", new)]),
    ];
    let text = "new has 44.5 more a trial than old: 45 in place of 0 (95 %: 42 to 47).";
    assert_eq!(said(&outcome(&["lost_count"], arms.clone())), format!("lost: {text}"));
    let several = said(&outcome(&["lost_count", "p99_ms"], arms));
    assert!(several.starts_with(&format!("lost: {text}\n")), "{several}");
}

#[test]
fn several_judged_metrics_are_named_unless_the_sentence_does() {
    let base_us = figures("us", Better::Lower, 1000.0);
    let base_ns = figures("ns", Better::Lower, 1000.0);
    let new_us = judged(base_us.clone(), Verdict::Inconclusive, [0.88, 1.0, 1.09]);
    let new_ns = figures("ns", Better::Lower, 750.0);
    let new_ns = judged(new_ns, Verdict::Better, [0.7, 0.75, 0.8]);
    let arms = vec![
        arm(ArmKind::Baseline, "old", &[("p99_us", base_us), ("cpu_ns", base_ns)]),
        arm(ArmKind::Variant, "new", &[("p99_us", new_us), ("cpu_ns", new_ns)]),
    ];
    assert_eq!(
        said(&outcome(&["p99_us", "cpu_ns"], arms)),
        "p99: not decided: new is between 12 % faster and 9 % slower.\n\
         new takes 25 % less CPU than old: 750 ns in place of 1 µs (95 %: 20 to 30 % less)."
    );
}

/// A ladder of pings of which each rung adds a switch.
fn ladder(rungs: &[(&str, Verdict, [f64; 3])]) -> Outcome {
    let base = figures("ns", Better::Lower, 10_400.0);
    let mut arms = vec![arm(ArmKind::Baseline, "baseline", &[("rtt_ns_p50", base)])];
    let mut on: Vec<String> = Vec::new();
    for (switch, verdict, ratios) in rungs {
        on.push(switch.to_string());
        let figures = figures("ns", Better::Lower, 10_400.0 * ratios[1]);
        let mut rung = arm(
            ArmKind::Variant,
            &format!("+{switch}"),
            &[("rtt_ns_p50", judged(figures, *verdict, *ratios))],
        );
        rung.switches.clone_from(&on);
        arms.push(rung);
    }
    let mut outcome = outcome(&["rtt_ns_p50"], arms);
    outcome.path = "probe".into();
    let by = [("spin", "polling"), ("bypass", "passing the stack")];
    outcome.phrases = Phrases {
        noun: "ping".into(),
        baseline: "plain socket".into(),
        by: by.map(|(id, by)| (id.to_owned(), by.to_owned())).into(),
    };
    outcome
}

#[test]
fn a_ladder_names_the_value_the_factor_the_means_and_the_worse_arms() {
    use Verdict::{Better, Worse};
    let run = ladder(&[
        ("spin", Better, [0.39, 0.4, 0.41]),
        ("bypass", Better, [0.182, 0.1875, 0.193]),
        ("pin", Worse, [2.5, 2.6, 2.7]),
    ]);
    let text = said(&run);
    assert!(
        text.starts_with("A ping takes 1.95 µs in place of 10.4: 5.33 times faster (95 %: "),
        "{text}"
    );
    assert!(
        text.ends_with(
            " times), by polling (spin) and by passing the stack (bypass). Slower here: +pin (2.6 times)."
        ),
        "{text}"
    );
}

#[test]
fn among_alike_arms_the_one_with_the_fewest_switches_is_named() {
    use Verdict::Better;
    let run =
        ladder(&[("spin", Better, [0.19, 0.2, 0.21]), ("gro", Better, [0.189, 0.1995, 0.209])]);
    let text = said(&run);
    assert!(text.contains("by polling (spin)."), "{text}");
    // Its interval is apart from that of the best.
    let run =
        ladder(&[("spin", Better, [0.29, 0.3, 0.31]), ("gro", Better, [0.189, 0.1995, 0.209])]);
    assert!(said(&run).contains("(spin) and by gro."), "{}", said(&run));
}

#[test]
fn without_a_better_arm_the_sentence_says_how_much_is_excluded_or_what_is_open() {
    use Verdict::{Inconclusive, NoDifferenceShown, NotEffective, Worse};
    let run = ladder(&[
        ("spin", NoDifferenceShown, [0.969, 0.99, 1.01]),
        ("gro", Worse, [1.2, 1.31, 1.4]),
    ]);
    assert_eq!(
        said(&run),
        "No switch makes a ping faster here by 5 % or more: at most 3.1 % (+spin). Slower here: +gro (31 %)."
    );
    assert_eq!(sentences(&run)[0].tone, Tone::Bad);
    let run = ladder(&[
        ("spin", Inconclusive, [0.9, 0.95, 1.02]),
        ("gro", Inconclusive, [0.91, 1.0, 1.1]),
    ]);
    assert_eq!(
        said(&run),
        "Not decided: +spin is between 10 % faster and 2 % slower; 1 other arm is open, too."
    );
    let run = ladder(&[("spin", Worse, [1.1, 1.2, 1.3]), ("gro", Worse, [1.2, 1.31, 1.4])]);
    assert_eq!(
        said(&run),
        "No switch makes a ping faster here. Slower here: +gro (31 %) and +spin (20 %)."
    );
    let run =
        ladder(&[("spin", NotEffective, [0.99, 1.0, 1.1]), ("gro", NotEffective, [0.9, 1.0, 1.1])]);
    assert_eq!(said(&run), "rtt p50: no switch had an effect here.");
}

#[test]
fn a_peer_is_measured_by_our_baseline() {
    let mut run = ladder(&[("spin", Verdict::NoDifferenceShown, [0.99, 1.0, 1.01])]);
    let figures = figures("ns", Better::Lower, 23_900.0);
    let slow = judged(figures.clone(), Verdict::Worse, [2.2, 2.3, 2.4]);
    run.arms.push(arm(ArmKind::Peer, "sockperf", &[("rtt_ns_p50", slow)]));
    let text = said(&run);
    assert!(
        text.ends_with(" sockperf takes 2.3 times as long as our plain socket (baseline)."),
        "{text}"
    );
    let near = judged(figures, Verdict::Better, [0.87, 0.88, 0.89]);
    run.arms[2].metrics.insert("rtt_ns_p50".into(), near);
    let text = said(&run);
    assert!(text.ends_with(" sockperf is 12 % faster than our plain socket (baseline)."), "{text}");
}

fn ping_decision(arm: &str, answer: GateAnswer, ratios: [f64; 3]) -> Decision {
    Decision {
        arm: arm.into(),
        base: "baseline".into(),
        metric: Some("rtt_ns_p50".into()),
        unit: "ns".into(),
        better: Better::Lower,
        value: Some(13_600.0),
        base_value: Some(10_400.0),
        ..decision(answer, ratios)
    }
}

#[test]
fn a_gate_on_several_arms_names_the_worse_ones_first() {
    let mut run = ladder(&[
        ("spin", Verdict::Better, [0.39, 0.4, 0.41]),
        ("gro", Verdict::Worse, [1.2, 1.31, 1.4]),
    ]);
    let passed = ping_decision("+spin", GateAnswer::NoWorse, [0.39, 0.4, 0.41]);
    let worse = ping_decision("+gro", GateAnswer::Worse, [1.2, 1.31, 1.4]);
    run.gate = Some(Gate {
        threshold: 1.05,
        by: By::Value,
        answer: GateAnswer::Worse,
        decisions: vec![passed.clone(), worse],
    });
    assert!(said(&run).starts_with("+gro is 31 % slower than baseline: 13.6 µs"), "{}", said(&run));
    run.gate = Some(Gate {
        threshold: 1.05,
        by: By::Value,
        answer: GateAnswer::NoWorse,
        decisions: vec![passed],
    });
    assert!(said(&run).starts_with("A ping takes"), "{}", said(&run));
}

#[test]
fn failures_and_interruptions_and_distrust_are_sentences() {
    let mut run = rates(1876.0, Verdict::Better, [1.18, 1.21, 1.24]);
    run.arms[2].reliability = Some(Reliability {
        failed: 5,
        trials: 20,
        baseline_failed: 0,
        baseline_trials: 40,
        p: 0.001,
        p_adjusted: 0.002,
        fails_more: true,
    });
    let all = sentences(&run);
    assert_eq!(all[0].text, "new fails more often than old: 5 of 20 trials against 0 of 40.");
    assert_eq!((all[0].tone, all[0].metric.as_deref()), (Tone::Bad, None));
    assert!(all[1].text.starts_with("new is 21 % faster"));

    let mut run = rates(1550.0, Verdict::Exploratory, [0.91, 1.0, 1.12]);
    run.ended = Ended::Interrupted;
    run.forecast = Some(Forecast { blocks: 100, whole_ms: 300_000, reaches: 1.1 });
    let so_far = "So far: not decided after 24 blocks: new is between 12 % faster and 9 % slower.";
    assert_eq!(said(&run), so_far);

    let mut run = rates(1876.0, Verdict::Better, [1.18, 1.21, 1.24]);
    run.arms[1].metrics.get_mut("rps").unwrap().verdict = Some(Verdict::Worse);
    let text = said(&run);
    assert!(text.starts_with("Not trusted: old differs from itself in rps"), "{text}");

    let mut run = rates(1240.0, Verdict::Worse, [0.77, 0.8, 0.83]);
    (run.arms[0].trials, run.arms[0].metrics) = (0, BTreeMap::new());
    run.arms[0].failures = vec!["no such file".into()];
    assert_eq!(said(&run), "No figure: every trial of old failed: no such file.");
    run.arms.clear();
    assert_eq!(said(&run), "No figure: no arm ran.");
}

#[test]
fn an_arm_that_did_not_run_has_its_reason() {
    let mut run = rates(1240.0, Verdict::Worse, [0.77, 0.8, 0.83]);
    run.arms[2].support = Support::unsupported("AF_XDP", "root");
    (run.arms[2].trials, run.arms[2].metrics) = (0, BTreeMap::new());
    assert_eq!(said(&run), "Not decided: new cannot run here: AF_XDP; needs root.");
    run.arms[2].support = Support::Yes;
    run.arms[2].failures = vec!["it exited with 1".into()];
    assert_eq!(said(&run), "Not decided: every trial of new failed: it exited with 1.");
    run.arms.truncate(2);
    assert_eq!(said(&run), "rps of old: 1,550 requests/s.");
}

/// Samples of a server's and a client's functions in 20 trials of 1,000 packets.
fn sampled(functions: &[(&str, &str, u64)]) -> Option<CpuSamples> {
    let functions = functions.iter().map(|(program, function, sample_count)| FunctionSamples {
        program: (*program).into(),
        function: (*function).into(),
        kind: if function.starts_with("tcp_") { CodeKind::Kernel } else { CodeKind::Function },
        sample_count: *sample_count,
    });
    let samples = CpuSamples::of_trial(10_000_000, Some(20_000), 0, functions.collect());
    Some(CpuSamples { trial_count: 20, ..samples })
}

/// A run whose arms have these samples; those of the baseline are half of the reference's.
fn explained(mut run: Outcome, old: Option<CpuSamples>, new: Option<CpuSamples>) -> Outcome {
    run.arms[0].samples.clone_from(&old);
    run.arms[1].samples = old;
    run.arms[2].samples = new;
    run
}

fn second_line(run: &Outcome) -> Option<String> {
    said(run).lines().nth(1).map(str::to_owned)
}

#[test]
fn the_function_whose_cpu_time_goes_with_the_verdict_is_named_after_it() {
    let worse = rates(1240.0, Verdict::Worse, [0.77, 0.8, 0.83]);
    let better = rates(1876.0, Verdict::Better, [1.18, 1.21, 1.24]);
    let slow = || sampled(&[("server", "handle_request", 2400), ("client", "main", 1000)]);
    let fast = || sampled(&[("server", "handle_request", 1200), ("client", "main", 700)]);
    let run = explained(worse.clone(), fast(), slow());
    assert_eq!(
        second_line(&run).unwrap(),
        "CPU time: `handle_request` (server) takes 1.2 ms a packet in place of 600 µs; that is 80 % of the difference."
    );
    assert_eq!(
        second_line(&explained(worse.clone(), slow(), fast())),
        None,
        "it takes less, and is slower"
    );
    let run = explained(better.clone(), slow(), fast());
    assert!(
        second_line(&run).unwrap().contains("takes 600 µs a packet in place of 1.2 ms"),
        "{}",
        said(&run)
    );
    for (old, new) in [(None, None), (fast(), None), (None, slow()), (fast(), fast())] {
        assert_eq!(second_line(&explained(worse.clone(), old, new)), None);
    }
    let equal = rates(1550.0, Verdict::NoDifferenceShown, [0.986, 1.0, 1.009]);
    assert_eq!(second_line(&explained(equal, fast(), slow())), None);
    let mut early = explained(worse.clone(), fast(), slow());
    early.ended = Ended::Interrupted;
    assert_eq!(second_line(&early), None);
    let mut passed = explained(worse.clone(), fast(), slow());
    passed.gate = gate(1.30, decision(GateAnswer::NoWorse, [0.77, 0.8, 0.83]));
    assert_eq!(second_line(&passed), None, "a difference that the gate lets pass is not spoken of");
    passed.gate = gate(1.05, decision(GateAnswer::Worse, [0.77, 0.8, 0.83]));
    assert!(second_line(&passed).is_some());
    let mut memory = explained(worse, fast(), slow());
    memory
        .arms
        .iter_mut()
        .flat_map(|arm| arm.metrics.values_mut())
        .for_each(|of| of.unit = "bytes".into());
    assert_eq!(second_line(&memory), None, "memory has no CPU time");
}

#[test]
fn a_function_is_told_with_its_place_and_what_others_take_back() {
    let worse = rates(1240.0, Verdict::Worse, [0.77, 0.8, 0.83]);
    let function = |old, new| {
        said(&explained(worse.clone(), sampled(old), sampled(new)))
            .lines()
            .nth(1)
            .unwrap()
            .to_owned()
    };
    let of_kernel = function(&[("client", "tcp_sendmsg", 100)], &[("client", "tcp_sendmsg", 400)]);
    assert!(
        of_kernel.starts_with("CPU time: `tcp_sendmsg` (kernel) takes 200 µs a packet"),
        "{of_kernel}"
    );
    assert_eq!(
        function(&[("client", "parse_v1", 100)], &[("client", "parse_v2", 400)]),
        "CPU time: `parse_v2` takes 200 µs a packet in place of none; that is more than the whole difference: other \
         functions take less."
    );
    let whole = function(
        &[("client", "f", 103), ("client", "g", 50)],
        &[("client", "f", 401), ("client", "g", 40)],
    );
    assert_eq!(
        whole,
        "CPU time: `f` takes 200 µs a packet in place of 52 µs; that is the whole difference."
    );
    let long = "x".repeat(300);
    let long = function(&[("client", &long, 100)], &[("client", &long, 400)]);
    assert!(long.chars().count() < 180 && long.contains("x…`"), "{long}");
}

#[test]
fn the_function_of_the_arm_that_is_told_about_is_named() {
    let mut run = rates(1876.0, Verdict::Better, [1.18, 1.21, 1.24]);
    let mut second = run.arms[2].clone();
    second.name = "newer".into();
    second.metrics.get_mut("rps").unwrap().verdict = Some(Verdict::Worse);
    run.arms.push(second);
    run = explained(
        run,
        sampled(&[("server", "handle_request", 1200)]),
        sampled(&[("server", "handle_request", 2400)]),
    );
    run.arms[3].samples = sampled(&[("server", "handle_request", 4800)]);
    run.arms[2].samples = sampled(&[("server", "handle_request", 600)]);
    run.best = run.best_arms();
    assert!(
        said(&run).contains("CPU time of new: `handle_request` takes 300 µs"),
        "{}",
        said(&run)
    );
    run.arms[2].metrics.get_mut("rps").unwrap().verdict = Some(Verdict::NoDifferenceShown);
    run.best = run.best_arms();
    assert!(
        said(&run).contains("CPU time of newer: `handle_request` takes 2.4 ms"),
        "{}",
        said(&run)
    );
}
