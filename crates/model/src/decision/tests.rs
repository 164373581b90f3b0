use super::*;
use crate::Random;

const THRESHOLD: f64 = 1.05;

/// An arm `factor` times its baselines, with noise, against a threshold of 5 %.
fn question(factor: f64, noise: f64, blocks: usize, better: Better) -> GateQuestion {
    let mut random = Random::new(5, 0);
    let mut values = |factor: f64| -> Vec<Option<f64>> {
        (0..blocks).map(|_| Some(factor * (noise * random.normal()).exp())).collect()
    };
    let allowed = match better {
        Better::Lower => 1.0 / THRESHOLD,
        Better::Higher => THRESHOLD,
    };
    let (arm, base, again) = (values(factor * allowed), values(1.0), values(1.0));
    let pairs = Pairs::new(&arm, &base, Some(&again), blocks, better);
    GateQuestion {
        at_worst: pairs.clone(),
        at_best: pairs.clone(),
        pairs,
        better,
        step: 0.0,
        has_worse_tail: false,
    }
}

fn answer(question: GateQuestion) -> GateVerdict {
    decide_once(&[question]).remove(0)
}

fn decide_once(questions: &[GateQuestion]) -> Vec<GateVerdict> {
    let evidence: Vec<GateEvidence> = questions.iter().map(|of| looked(&[(of, 1.0)])).collect();
    decide(questions, &evidence, &[])
}

/// Evidence of looks with their weights.
fn looked(looks: &[(&GateQuestion, f64)]) -> GateEvidence {
    let mut evidence = GateEvidence::default();
    looks.iter().for_each(|(question, weight)| evidence.look(question, *weight));
    evidence
}

fn lower(factor: f64, noise: f64, blocks: usize) -> GateVerdict {
    answer(question(factor, noise, blocks, Better::Lower))
}

#[test]
fn three_answers_follow_from_where_the_interval_lies() {
    assert_eq!(lower(1.0, 0.02, 24).answer, GateAnswer::NoWorse);
    assert_eq!(lower(0.5, 0.02, 24).answer, GateAnswer::NoWorse);
    assert_eq!(lower(1.2, 0.02, 24).answer, GateAnswer::Worse);
    let open = lower(1.0, 0.4, 24);
    assert_eq!((open.answer, open.reason), (GateAnswer::NotDecided, Some(Undecided::Wide)));
    // Worse, but by about the threshold: neither less nor more is shown.
    assert_eq!(lower(1.05, 0.02, 24).answer, GateAnswer::NotDecided);
    let higher = |factor| answer(question(factor, 0.02, 24, Better::Higher)).answer;
    assert_eq!(higher(1.0), GateAnswer::NoWorse);
    assert_eq!(higher(2.0), GateAnswer::NoWorse);
    assert_eq!(higher(0.8), GateAnswer::Worse);
}

#[test]
fn fewer_blocks_than_the_control_needs_decide_nothing() {
    for blocks in 1..8 {
        let open = lower(1.0, 0.001, blocks);
        let reason = Undecided::FewBlocks { blocks: blocks as u32, needed: 8 };
        assert_eq!(open.reason, Some(reason), "{blocks}");
        assert_eq!(open.more_blocks, Some(8 - blocks as u32));
    }
    assert_eq!(lower(1.0, 0.001, 8).answer, GateAnswer::NoWorse);
    // An arm that is worse after six blocks need not wait for a judgement of the control.
    assert_eq!(lower(1.5, 0.001, 5).answer, GateAnswer::NotDecided);
    assert_eq!(lower(1.5, 0.001, 6).answer, GateAnswer::Worse);
}

fn without_events(blocks: usize) -> GateVerdict {
    let zeros = vec![Some(0.0); blocks];
    let pairs = Pairs::on(Scale::Count, &zeros, &zeros, Some(&zeros), blocks, Better::Lower);
    let found = question(1.0, 0.01, blocks, Better::Lower);
    let (at_worst, at_best) = (pairs.clone(), pairs.clone());
    answer(GateQuestion { pairs, at_worst, at_best, ..found })
}

#[test]
fn counts_pass_only_if_rare_events_would_have_been_seen() {
    // 0.8 to the 14th is 4.4 %.
    assert_eq!(without_events(13).reason, Some(Undecided::FewBlocks { blocks: 13, needed: 14 }));
    assert_eq!(without_events(14).answer, GateAnswer::NoWorse);
}

#[test]
fn proposed_blocks_decide() {
    for (factor, noise) in [(1.0, 0.1), (1.0, 0.2), (1.2, 0.3)] {
        let open = lower(factor, noise, 12);
        assert_eq!(open.answer, GateAnswer::NotDecided, "{factor} {noise}");
        let blocks = 12 + open.more_blocks.unwrap() as usize;
        assert_ne!(lower(factor, noise, blocks).answer, GateAnswer::NotDecided, "{blocks}");
    }
}

#[test]
fn worse_is_corrected_for_all_figures_of_the_run_and_no_worse_is_not() {
    let found = question(1.2, 0.02, 8, Better::Lower);
    let mut many = vec![found];
    many.extend(vec![question(1.0, 0.01, 8, Better::Lower); 35]);
    let answers = decide_once(&many);
    assert_eq!(answers[0].reason, Some(Undecided::Corrected { figures: 36 }));
    assert_eq!(answers[0].more_blocks, Some(6), "14 blocks can decide one of 36");
    assert!(answers[1..].iter().all(|answer| answer.answer == GateAnswer::NoWorse));
}

#[test]
fn coarse_steps_are_the_reason_where_more_blocks_would_not_help() {
    let mut coarse = question(1.0, 0.001, 24, Better::Lower);
    let values = vec![Some(8.0 / THRESHOLD); 24];
    coarse.at_worst = Pairs::new(&values, &[Some(7.0); 24], None, 24, Better::Lower);
    coarse.step = 1.0;
    let open = answer(coarse);
    assert_eq!(open.reason, Some(Undecided::Resolution { step: 1.0 }));
    assert_eq!(open.more_blocks, None);
}

#[test]
fn worse_tail_of_all_trials_keeps_a_figure_open() {
    let mut tail = question(1.0, 0.001, 24, Better::Lower);
    tail.has_worse_tail = true;
    assert_eq!(answer(tail).reason, Some(Undecided::Tail));
}

#[test]
fn a_look_costs_its_weight_and_what_it_showed_stays() {
    let answer_after = |looks: &[(&GateQuestion, f64)]| {
        let (last, _) = looks[looks.len() - 1];
        decide(std::slice::from_ref(last), &[looked(looks)], &[]).remove(0).answer
    };
    let blocks = (8..40).find(|&blocks| lower(1.0, 0.05, blocks).answer == GateAnswer::NoWorse);
    let early = question(1.0, 0.05, blocks.unwrap(), Better::Lower);
    assert_eq!(answer_after(&[(&early, 0.05)]), GateAnswer::NotDecided);
    assert_eq!(answer_after(&[(&early, 0.05), (&early, 0.99)]), GateAnswer::NoWorse);
    let wide = question(1.0, 0.4, 24, Better::Lower);
    assert_eq!(answer_after(&[(&early, 1.0), (&wide, 0.05)]), GateAnswer::NoWorse);
}

#[test]
fn steps_are_the_last_decimal_or_what_all_values_are_multiples_of() {
    let step = |values: &[f64]| step_of(values.iter().copied());
    assert_eq!(step(&[]), 0.0);
    assert_eq!(step(&[7.0, 7.0]), 1.0);
    assert_eq!(step(&[0.0, 1.0, 7.0]), 1.0);
    assert_eq!(step(&[7_000.0, 8_000.0, 10_000.0]), 1_000.0);
    assert!((step(&[1.25, 1.31, 1.4]) - 0.01).abs() < 1e-12);
    assert!(step(&[1.2511234, 1.3111235, 1.4141421]) < 1e-6);
    assert_eq!(step(&[1_000.0]), 1.0, "a constant is not its own step");
}
