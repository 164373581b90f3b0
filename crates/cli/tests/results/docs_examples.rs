//! Results in the documentation follow from their own trials by the rules of docs/method.md.

use std::fs;
use std::path::Path;

use model::pairs::Pairs;
use model::verdict::{self, Evidence, Question};
use model::{ArmKind, ArmOutcome, MetricOutcome, Outcome};
use serde_json::Value;

/// Every result in the pages of a folder, with the page's name.
fn results(folder: &Path) -> Vec<(String, Outcome)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("docs") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            found.extend(results(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let page = fs::read_to_string(&path).expect("text");
            for block in page.split("```json\n").skip(1) {
                let text = block.split("```").next().unwrap_or_default();
                let doc = serde_json::from_str::<Value>(text).unwrap_or_default();
                if doc["judged"].is_array() {
                    let outcome = serde_json::from_value(doc).expect("a result");
                    found.push((path.display().to_string(), outcome));
                }
            }
        }
    }
    found
}

fn arm(outcome: &Outcome, kind: ArmKind) -> &ArmOutcome {
    outcome.arms.iter().find(|arm| arm.kind == kind).unwrap_or_else(|| panic!("no {kind:?}"))
}

/// Figures that follow from trials, rounded as text.
type Figures = (Option<String>, Option<String>, Option<String>, Option<String>);

fn rounded(value: Option<f64>) -> Option<String> {
    value.filter(|value| value.is_finite()).map(|value| format!("{value:.4}"))
}

fn printed(metric: &MetricOutcome) -> Figures {
    (rounded(metric.ratio), rounded(metric.low), rounded(metric.high), rounded(metric.p))
}

fn follows(outcome: &Outcome) {
    let baseline = arm(outcome, ArmKind::Baseline);
    let control = arm(outcome, ArmKind::Control);
    let blocks = outcome.blocks as usize;
    let median = |trials: &[Option<f64>]| {
        let mut values: Vec<f64> = trials.iter().flatten().copied().collect();
        values.sort_by(f64::total_cmp);
        let nth_value = |index: usize| values.get(index).copied();
        Some((nth_value((values.len().max(1) - 1) / 2)? + nth_value(values.len() / 2)?) / 2.0)
    };
    for arm in &outcome.arms {
        for (name, metric) in &arm.metrics {
            let name = format!("{}, {name}", arm.name);
            assert!(metric.trials.len() <= blocks, "{name}: a value or null per block");
            assert_eq!(metric.median, median(&metric.trials), "{name}");
        }
    }
    let (mut places, mut questions, mut evidence) = (Vec::new(), Vec::new(), Vec::new());
    for name in &outcome.judged {
        let (base, again) = (&baseline.metrics[name], &control.metrics[name]);
        let pairs = Pairs::new(&again.trials, &base.trials, None, blocks, base.better);
        let question = Question::new(pairs, base.better);
        let answer = verdict::control(&question, outcome.resolve).expect("pairs");
        let (shown, verdict) = (answer.comparison.expect("a ratio"), answer.verdict.into());
        let interval = shown.interval;
        let figures = (
            rounded(Some(shown.ratio)),
            rounded(interval.map(|interval| interval.low)),
            rounded(interval.map(|interval| interval.high)),
            rounded(Some(shown.p)),
        );
        assert_eq!(printed(again), figures, "the control");
        assert_eq!(again.verdict, Some(verdict), "the control");
        let floor = outcome.floor.get(name);
        let ends = |floor: &model::Floor| (rounded(Some(floor.low)), rounded(Some(floor.high)));
        assert_eq!(floor.map(ends), interval.as_ref().map(ends), "the floor of {name}");
        for arm in &outcome.arms {
            let metric = arm.metrics.get(name).filter(|_| arm.kind.is_compared());
            let Some(metric) = metric else { continue };
            let control = &again.trials;
            let question = |blocks: usize| {
                let first = |trials: &[Option<f64>]| trials[..blocks.min(trials.len())].to_vec();
                let (of, base, again) =
                    (first(&metric.trials), first(&base.trials), first(control));
                let pairs = Pairs::new(&of, &base, Some(&again), of.len(), metric.better);
                Question::new(pairs, metric.better)
            };
            let mut seen = Evidence::default();
            // An arm that was decided was not looked at again.
            let looks =
                outcome.looked.iter().filter(|of| of.blocks as usize <= metric.trials.len());
            looks.for_each(|look| {
                seen.look(&question(look.blocks as usize), look.weight, outcome.resolve);
            });
            places.push((&arm.name, metric));
            questions.push(question(blocks));
            evidence.push(seen);
        }
    }
    let failing: Vec<_> = outcome.arms.iter().filter_map(|arm| arm.reliability.as_ref()).collect();
    assert!(outcome.looked.len() == 1 || failing.is_empty(), "shares of failures at earlier looks");
    let weight = outcome.looked.first().map_or(1.0, |look| look.weight);
    let p: Vec<f64> = failing.iter().map(|failing| failing.p / weight).collect();
    let (answers, failing_p) = verdict::answers(&questions, &evidence, &p, true);
    for ((name, metric), answer) in places.into_iter().zip(answers) {
        let shown = answer.comparison.expect("pairs");
        let figures = (
            rounded(Some(shown.ratio)),
            rounded(shown.interval.map(|interval| interval.low)),
            rounded(shown.interval.map(|interval| interval.high)),
            rounded(Some(shown.p)),
        );
        assert_eq!(printed(metric), figures, "{name}");
        let more = (rounded(metric.p_adjusted), rounded(metric.finds), metric.verdict);
        let wanted =
            (rounded(answer.p_adjusted), rounded(answer.finds), Some(answer.verdict.into()));
        assert_eq!(more, wanted, "{name}");
        assert_eq!(metric.why, answer.why, "{name}");
    }
    for (failing, p) in failing.into_iter().zip(failing_p) {
        assert_eq!(rounded(Some(failing.p_adjusted)), rounded(Some(p)), "{failing:?}");
    }
}

#[test]
fn every_printed_result_follows_from_its_trials() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = results(&root.join("docs"));
    assert!(!found.is_empty(), "docs/reference/results.md has one");
    for folder in fs::read_dir(&root).expect("the sources") {
        let docs = folder.expect("a readable folder").path().join("docs");
        if docs.is_dir() {
            found.extend(results(&docs));
        }
    }
    for (page, outcome) in found {
        println!("{page}: {}", outcome.id);
        follows(&outcome);
    }
}
