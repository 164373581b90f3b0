//! Results of many machines: pooled figures against those computed by hand, no names, and the check of contributions.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use model::{
    ArmKind, ArmOutcome, Better, Floor, Machine, MetricOutcome, Outcome, Support, Verdict,
};
use serde_json::Value;
use wirepath_report::atlas::{
    Atlas, AtlasCounts, AtlasEntry, AtlasGroup, Contribution, ContributionProblem, Vocabulary,
    check, redacted,
};
use wirepath_report::html::atlas_site;
use wirepath_report::page::AtlasSite;

/// Deviations of the blocks' logarithms from a run's effect; their median is 0, that of their sizes 0.015.
const NOISE: [f64; 8] = [-0.03, -0.02, -0.01, -0.005, 0.005, 0.01, 0.02, 0.03];
/// Effects of ten machines, as logarithms, and factors of their noise.
const EFFECTS: [f64; 10] = [-0.20, -0.16, -0.24, -0.18, -0.22, -0.19, -0.10, -0.25, -0.21, -0.17];
const SCALES: [f64; 10] = [1.0, 2.0, 1.5, 0.5, 3.0, 1.0, 2.5, 0.8, 1.2, 1.0];

fn words() -> Vocabulary {
    Vocabulary {
        paths: set(&["probe"]),
        loads: set(&["ping", "flood"]),
        switches: set(&["spin", "batch", "gso", "bypass", "rps"]),
    }
}

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn metric(trials: Vec<f64>, verdict: Option<Verdict>) -> MetricOutcome {
    let median = model::statistics::median(&trials);
    let trials = trials.into_iter().map(Some).collect();
    MetricOutcome { median, verdict, ..MetricOutcome::unjudged("ns", Better::Lower, trials) }
}

fn arm(name: &str, kind: ArmKind, switches: &[&str], of: MetricOutcome) -> ArmOutcome {
    ArmOutcome {
        name: name.into(),
        kind,
        switches: switches.iter().map(|one| (*one).to_owned()).collect(),
        support: Support::Yes,
        trials: 8,
        metrics: BTreeMap::from([("rtt_ns_p50".to_owned(), of)]),
        latency: BTreeMap::new(),
        mode: BTreeMap::new(),
        counters: BTreeMap::new(),
        samples: None,
        reliability: None,
        failures: Vec::new(),
    }
}

/// A run of `spin` with a known effect, on a machine of its own.
fn run(number: usize, effect: f64, scale: f64) -> Outcome {
    let spin: Vec<f64> =
        NOISE.iter().map(|noise| 100_000.0 * (effect + noise * scale).exp()).collect();
    let of_spin = MetricOutcome {
        ratio: Some(effect.exp()),
        low: Some((effect - 0.1).exp()),
        high: Some((effect + 0.09).exp()),
        ..metric(spin, Some(Verdict::Better))
    };
    let plain = vec![100_000.0; 8];
    let drivers = ["ixgbe", "mlx5_core", "ixgbe", "virtio_net", "ixgbe"];
    let driver = drivers[number % drivers.len()];
    Outcome {
        id: format!("20261130-08000{number}-probe-00a{number}"),
        blocks: 8,
        judged: vec!["rtt_ns_p50".into()],
        floor: BTreeMap::from([("rtt_ns_p50".to_owned(), Floor { low: 0.98, high: 1.02 })]),
        resolve: 1.05,
        machine: Machine {
            id: format!("00000000000{number:x}"),
            kernel: format!("6.{}.{number}-amd64-buildhost7 #1 SMP", [1, 12, 18][number % 3]),
            cpu: format!("CPU {number}"),
            cpus: 8,
            memory_bytes: 17 << 30,
            hypervisor: (driver == "virtio_net").then(|| "KVM".to_owned()),
            nic: format!("eth{number} ({driver}, firmware 1.{number}, 8 queues, MTU 1500)"),
            ..Machine::default()
        },
        arms: vec![
            arm("baseline", ArmKind::Baseline, &[], metric(plain.clone(), None)),
            arm(
                "baseline again",
                ArmKind::Control,
                &[],
                metric(plain, Some(Verdict::NoDifferenceShown)),
            ),
            arm("+spin", ArmKind::Variant, &["spin"], of_spin),
        ],
        warnings: Vec::new(),
        ..common::ping()
    }
}

fn ten() -> Vec<Outcome> {
    (0..10).map(|number| run(number, EFFECTS[number], SCALES[number])).collect()
}

/// Runs as they come out of files of ten contributors.
fn entries(runs: &[Outcome]) -> Vec<AtlasEntry> {
    let shared = runs.iter().enumerate().map(|(number, run)| {
        let text = Contribution::new(std::slice::from_ref(run), Some(&words())).to_json();
        let read = Contribution::from_json(&text).expect("it was written so");
        assert_eq!(check(&read, &words(), false), [], "{text}");
        AtlasEntry::new(&format!("K{number}"), read.runs[0].clone())
    });
    shared.collect()
}

/// By hand: each effect is the median of its eight differences; its error 1.2533 x 1.4826 x 0.015 x scale / sqrt(8). The mean
/// by the formulas of DerSimonian and Laird, the interval by Hartung and Knapp with 9 degrees of freedom (t 2.262157), in
/// Python.
#[test]
fn ten_machines_are_pooled_as_by_hand() {
    let atlas = Atlas::new(entries(&ten()));
    let [section] = atlas.sections.as_slice() else { panic!("{atlas:?}") };
    assert_eq!((section.machines, section.runs), (10, 10));
    let [spin] = section.metrics.as_slice() else { panic!("{:?}", section.metrics) };
    let all = &spin.rows[0];
    assert_eq!((all.machines, spin.arm.as_str()), (10, "spin"));
    let pooled = all.answer.pooled.expect("a figure");
    for (found, expected) in [
        (pooled.mean, -0.19415631290618976),
        (pooled.tau, 0.0320998796417953),
        (pooled.interval.0, -0.22343610265397618),
        (pooled.interval.1, -0.16487652315840334),
    ] {
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }
    assert_eq!(all.answer.verdict, Some(Verdict::Better));
    // Six machines have ixgbe, two each of the others: these have a range and no verdict.
    let row = |driver: &str| {
        let wanted = AtlasGroup::Driver(driver.into());
        spin.rows.iter().find(|row| row.group == wanted).expect("a row of the driver")
    };
    assert!(row("ixgbe").machines == 6 && row("ixgbe").answer.pooled.is_some());
    let two = row("mlx5_core");
    assert!(two.machines == 2 && two.answer.pooled.is_none() && two.range.is_some());
    assert!(two.reason().is_some_and(|why| why.starts_with("2 machines")), "{:?}", two.reason());
    let kernels: Vec<&AtlasGroup> = spin
        .rows
        .iter()
        .map(|row| &row.group)
        .filter(|group| matches!(group, AtlasGroup::Kernel(_)))
        .collect();
    let kernel = |name: &str| AtlasGroup::Kernel(name.into());
    assert_eq!(kernels, [&kernel("6.1"), &kernel("6.12"), &kernel("6.18")]);
}

#[test]
fn one_machine_with_many_runs_is_one_machine_and_a_run_counts_once() {
    let mut runs = entries(&[run(0, -0.2, 1.0)]);
    for number in 1..10 {
        let mut again = run(0, -0.2, 1.0);
        again.id = format!("20261130-090000-probe-{number:04x}");
        // Another kernel does not make it another machine.
        again.machine.kernel = format!("6.{number}.0-amd64");
        runs.push(AtlasEntry::new("K0", redacted(&again, &words())));
    }
    runs.push(runs[0].clone());
    let atlas = Atlas::new(runs);
    let section = &atlas.sections[0];
    assert_eq!((section.machines, section.runs), (1, 10));
    let all = &section.metrics[0].rows[0];
    assert_ne!(all.answer.verdict, Some(Verdict::Better), "{all:?}");
}

#[test]
fn runs_that_decide_nothing_are_counted_as_such_and_idle_ones_are_not_pooled() {
    let mut runs = ten();
    let verdict = |run: &mut Outcome, verdict| {
        let of = run.arms[2].metrics.get_mut("rtt_ns_p50").unwrap();
        of.verdict = Some(verdict);
    };
    verdict(&mut runs[0], Verdict::Inconclusive);
    verdict(&mut runs[1], Verdict::NotEffective);
    runs[2].arms[2].support = Support::Unsupported { what: "spin".into(), needs: "eth0".into() };
    let atlas = Atlas::new(entries(&runs));
    let all = &atlas.sections[0].metrics[0].rows[0];
    let expected = AtlasCounts {
        better: 7,
        undecided: 1,
        not_effective: 1,
        unsupported: 1,
        ..AtlasCounts::default()
    };
    assert_eq!((all.counts, all.machines), (expected, 8));
}

/// Every text of a result in turn replaced by one with a host, a user, an address and a file.
#[test]
fn no_name_is_in_what_is_shared() {
    const NAMES: &str = "db7.corp.example:/home/alice/srv@10.1.2.3 -p 9";
    let whole = serde_json::to_value(common::ping()).unwrap();
    let mut paths = Vec::new();
    leaves(&whole, &mut Vec::new(), &mut paths);
    let mut seen = BTreeSet::new();
    let mut replaced = 0;
    for path in paths {
        let mut changed = whole.clone();
        let pointer: String =
            path.iter().map(|part| format!("/{}", part.replace('/', "~1"))).collect();
        *changed.pointer_mut(&pointer).unwrap() = NAMES.into();
        // Words of the format, such as verdicts.
        let Ok(outcome) = serde_json::from_value::<Outcome>(changed) else { continue };
        replaced += 1;
        seen.insert(path[0].clone());
        // Read from the kernel and the processor; no user names them.
        if ["/machine/cpu", "/machine/hypervisor"].contains(&pointer.as_str()) {
            continue;
        }
        let text = Contribution::new(&[outcome], Some(&words())).to_json();
        for name in ["db7", "corp", "example", "home", "alice", "srv", "10.1.2.3"] {
            assert!(!text.contains(name), "{pointer}: {text}");
        }
    }
    assert!(
        replaced > 50 && seen.contains("machine") && seen.contains("arms"),
        "{replaced} {seen:?}"
    );
    // With names, they are there.
    let named = Outcome { name: Some(NAMES.into()), ..common::ping() };
    assert!(Contribution::new(&[named], None).to_json().contains("alice"));
}

fn leaves(value: &Value, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    let parts: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(list) => {
            list.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect()
        }
        Value::String(_) => return found.push(path.clone()),
        _ => return,
    };
    for (part, value) in parts {
        path.push(part);
        leaves(value, path, found);
        path.pop();
    }
}

#[test]
fn kernel_and_interface_keep_what_they_are_and_lose_their_names() {
    let shared = redacted(&run(3, -0.2, 1.0), &words());
    assert_eq!(shared.machine.kernel, "6.1.3-amd64");
    assert_eq!(shared.machine.nic, "(virtio_net, firmware 1.3)");
    assert_eq!(shared.machine.hypervisor.as_deref(), Some("KVM"));
    assert_eq!(
        (shared.arms[2].name.as_str(), shared.started.get(10..)),
        ("spin", Some("T00:00:00Z"))
    );
    assert_eq!(redacted(&shared, &words()), shared);
    let mut own = run(0, -0.2, 1.0);
    own.arms[2].switches = vec!["our-secret-knob".into()];
    let shared = redacted(&own, &words());
    assert_eq!((shared.arms[2].name.as_str(), shared.arms[2].switches.len()), ("variant 1", 0));
}

#[test]
fn contribution_without_a_floor_or_with_figures_that_disagree_is_refused() {
    use ContributionProblem as Problem;
    fn problems(change: impl Fn(&mut Outcome)) -> Vec<Problem> {
        let mut run = redacted(&run(0, -0.2, 1.0), &words());
        change(&mut run);
        let contribution = Contribution { names: false, ..Contribution::new(&[run], None) };
        check(&contribution, &words(), false)
    }
    fn spin(run: &mut Outcome) -> &mut MetricOutcome {
        run.arms[2].metrics.get_mut("rtt_ns_p50").expect("it is there")
    }
    assert_eq!(problems(|_| {}), []);
    let name = || "rtt_ns_p50".to_owned();
    assert_eq!(problems(|run| run.floor.clear()), [Problem::NoFloor(1, name())]);
    assert_eq!(problems(|run| drop(run.arms.remove(1))), [Problem::NoFloor(1, name())]);
    // Too few samples for p99 in every arm: the run gave no figure that a floor could bound.
    assert_eq!(problems(|run| run.judged.push("rtt_ns_p99".into())), []);
    assert_eq!(problems(|run| run.name = Some("db7".into())), [Problem::Names(1)]);
    assert_eq!(problems(|run| run.machine.nic.clear()), [Problem::Machine(1)]);
    assert_eq!(problems(|run| run.ended = model::Ended::Interrupted), [Problem::Unfinished(1)]);
    assert_eq!(problems(|run| run.resolve = 3.0), [Problem::Resolution(1, 3.0)]);
    let ratio = [Problem::Ratio(1, "spin".into(), name())];
    assert_eq!(problems(|run| (spin(run).low, spin(run).high) = (Some(0.4), Some(0.5))), ratio);
    let verdict = [Problem::Verdict(1, "spin".into(), name())];
    assert_eq!(problems(|run| spin(run).verdict = Some(Verdict::Worse)), verdict);
    assert!(matches!(
        problems(|run| spin(run).trials[0] = Some(-1.0))[..],
        [Problem::NotPositive(..)]
    ));
    assert!(problems(|run| run.blocks = 3).contains(&Problem::Blocks(1, 3)));
    let named = Contribution::new(&[run(0, -0.2, 1.0)], None);
    assert_eq!(check(&named, &words(), false), [Problem::WithNames]);
    assert_eq!(check(&named, &words(), true), []);
}

#[test]
fn site_has_an_index_and_a_page_that_it_leads_to() {
    let left_out =
        [("bad<script>.json".to_owned(), "its signature \x1b[2J is not valid".to_owned())];
    let site = AtlasSite::new(&Atlas::new(entries(&ten())), 10, &left_out);
    let files = atlas_site(&site);
    let [(index, first), (page, second)] = files.as_slice() else { panic!("{}", files.len()) };
    assert!(index == "index.html" && first.contains(&format!("href=\"{page}\"")), "{first}");
    assert!(first.contains("bad&lt;script&gt;.json") && !first.contains('\x1b'), "{first}");
    for part in
        ["driver ixgbe", "kernel 6.18", "under KVM", "0.824×", "[0.800, 0.848]", "10 better"]
    {
        assert!(second.contains(part), "{part} in {second}");
    }
    assert!(!first.contains("<script") && !second.contains("<script"));
}
