//! Response time of the list and size of the file, with many experiments.
//!
//! `cargo run --release -p wirepath-report --example ten_thousand -- FOLDER [EXPERIMENTS] [BLOCKS]`
//! fills FOLDER/history.db with experiments of seven arms, simulated but of realistic size, and
//! prints its measurements.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use model::{
    ArmPlan, Ended, Experiment, ExperimentPlan, ExperimentStep, FakeSource, FakeSwitch, FakeWorld,
    Machine, Measurement, OutcomeHeader, PathSwitch,
};
use wirepath_report::html::{LoadText, PathPage, served};
use wirepath_report::store::{ExperimentHeader, Filter, SqliteStore, Store, TrialRecord};

type Fault = Box<dyn std::error::Error>;

/// Number of measured experiments; the others are copies of these under their own names.
const DISTINCT: usize = 20;

/// Rows of a page, as `serve` shows them.
const ROWS: u32 = 50;

/// Number of experiments on the page of a path.
const OUTCOMES: u32 = 40;

fn main() -> Result<(), Fault> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("give a folder")?;
    let count: usize = arguments.next().map_or(Ok(10_000), |n| n.parse())?;
    let blocks: u32 = arguments.next().map_or(Ok(12), |n| n.parse())?;
    let file = Path::new(&folder).join("history.db");
    let mut out = std::io::stdout().lock();
    let mut store = SqliteStore::open(&file)?;
    let begun = Instant::now();
    let simulated: Vec<Made> = (0..DISTINCT).map(|seed| make(seed as u64, blocks)).collect();
    writeln!(out, "simulated {DISTINCT} experiments in {:.1?}", begun.elapsed())?;
    let begun = Instant::now();
    for place in 0..count {
        save(&mut store, &simulated[place % DISTINCT], place)?;
    }
    let trials = simulated[0].trials.len();
    writeln!(out, "saved {count} of {trials} trials in {:.1?}", begun.elapsed())?;
    let bytes = store.size_bytes()?;
    writeln!(out, "{} MiB, {} bytes an experiment", bytes >> 20, bytes / count.max(1) as u64)?;
    drop(store);

    let last = (count as u32).saturating_sub(ROWS);
    let of_path = Filter { path: Some("probe".into()), ..Filter::default() };
    let of_day = Filter {
        since: Some("2026-03-01".into()),
        until: Some("2026-03-01".into()),
        ..Filter::default()
    };
    for (name, filter) in [
        ("first page", Filter::default()),
        ("last page", Filter { offset: last, ..Filter::default() }),
        ("one path", of_path),
        ("one day", of_day),
    ] {
        let filter = Filter { limit: Some(ROWS), ..filter };
        writeln!(out, "{name}: {}", timed(|| page(&file, &filter))?)?;
    }
    let newest = Filter {
        path: Some("probe".into()),
        machine: Some("machine-1".into()),
        limit: Some(OUTCOMES),
        ..Filter::default()
    };
    writeln!(out, "page of a path: {}", timed(|| path_page(&file, &newest))?)?;
    // What `prove` does before its first trial.
    let begun = Instant::now();
    let mut store = SqliteStore::open(&file)?;
    let opened = begun.elapsed();
    let mut header = simulated[0].header.clone();
    header.id = "one-more".into();
    store.begin(&header)?;
    writeln!(out, "opening {opened:.2?}, beginning one more {:.2?}", begun.elapsed() - opened)?;
    let begun = Instant::now();
    store.save_trial("one-more", &simulated[0].trials[0])?;
    writeln!(out, "saving a trial {:.2?}", begun.elapsed())?;
    let begun = Instant::now();
    store.load("000001")?;
    writeln!(out, "loading an experiment {:.2?}", begun.elapsed())?;
    Ok(())
}

/// Of nine times.
fn timed(mut page: impl FnMut() -> Result<String, Fault>) -> Result<String, Fault> {
    let mut times = Vec::new();
    for _ in 0..9 {
        let begun = Instant::now();
        page()?;
        times.push(begun.elapsed());
    }
    times.sort();
    Ok(format!("median {:.2?}, longest {:.2?} of 9", times[4], times[8]))
}

/// The page of a path as `serve` makes it, the opening of the file included.
fn path_page(file: &Path, filter: &Filter) -> Result<String, Fault> {
    let store = SqliteStore::open_reading(file)?;
    let (outcomes, total) = (store.outcomes(filter)?, store.count(filter)?);
    let page = PathPage {
        name: "probe",
        what: "simulated",
        loads: &[LoadText { name: "ping", what: "simulated", judged: &["rtt_ns_p50"] }],
        switches: FakeSwitch::SPECS,
        machine: filter.machine.as_deref(),
        machines: &store.machines()?,
        outcomes: &outcomes,
        total,
    };
    Ok(page.served())
}

/// The page as `serve` makes it, the opening of the file included.
fn page(file: &Path, filter: &Filter) -> Result<String, Fault> {
    let store = SqliteStore::open_reading(file)?;
    let (rows, total) = (store.list(filter)?, store.count(filter)?);
    let (paths, machines) = (store.paths()?, store.machines()?);
    Ok(served::list(&served::List {
        rows: &rows,
        total,
        per_page: ROWS,
        filter,
        paths: &paths,
        machines: &machines,
    }))
}

struct Made {
    header: ExperimentHeader,
    outcome: model::Outcome,
    trials: Vec<TrialRecord>,
}

fn make(seed: u64, blocks: u32) -> Made {
    let world = FakeWorld { seed, ..FakeWorld::default() };
    let mut source = FakeSource::new(world);
    let ids = model::ids(FakeSwitch::SPECS);
    let plan = ArmPlan::parse("fast,slight,nothing,harmful,fast+slight", &ids)
        .unwrap_or_else(|e| unreachable!("a good list: {e}"));
    let arms = model::arms(&plan, &ids, &[], &mut FakeSource::support);
    let judged = vec!["rtt_ns_p50".to_owned(), "cpu_ns_per_packet".to_owned()];
    let mut plan = ExperimentPlan::new(seed, arms, judged, u64::MAX, 2);
    (plan.max_blocks, plan.stop_early) = (blocks, false);
    let mut experiment = Experiment::new(plan);
    let mut trials = Vec::new();
    while let ExperimentStep::Trial { block, arm, warmup } = experiment.next(source.now_ns()) {
        let arm = experiment.arms()[arm].0.clone();
        let started_ms = source.now_ns() / 1_000_000;
        let mut seen = source.trial(&arm);
        thicken(&mut seen, trials.len() as u64 + 1_000 * seed);
        trials.push(TrialRecord {
            ordinal: trials.len() as u32,
            block,
            arm: arm.name,
            warmup,
            noisy: false,
            started_ms,
            wall_ns: 250_000_000,
            result: Ok(seen.clone()),
        });
        experiment.record(Ok(seen));
    }
    let machine = Machine { id: format!("machine-{}", seed % 3), cpus: 2, ..Machine::default() };
    let load = [("kind", "ping"), ("size_bytes", "64"), ("time_ms", "60000")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let outcome = experiment.outcome(OutcomeHeader {
        machine: machine.clone(),
        path: "probe".into(),
        load: load.clone().into(),
        version: "0.1.0".into(),
        ..OutcomeHeader::default()
    });
    let header = ExperimentHeader {
        id: String::new(),
        started: String::new(),
        path: "probe".into(),
        load: load.into(),
        machine,
        seed,
        schedule: Default::default(),
        arms: experiment.arms().iter().map(|(arm, _)| arm.clone()).collect(),
        version: "0.1.0".into(),
        name: None,
        note: None,
        phrases: Default::default(),
        search: None,
    };
    Made { header, outcome, trials }
}

/// A simulated histogram has 200 values at most; one of a veth pair has thousands, and its row in
/// the file some 800 bytes.
fn thicken(seen: &mut Measurement, seed: u64) {
    let mut random = model::Random::new(seed, 1);
    for histogram in seen.segments.values_mut() {
        let middle = histogram.value_at_quantile(0.5) as f64;
        for _ in 0..4_000 {
            let tail = if random.below(100) == 0 { 3.0 } else { 0.06 };
            let value = middle * (tail * random.normal().abs()).exp();
            histogram.saturating_record(value as u64);
        }
    }
}

fn save(store: &mut SqliteStore, made: &Made, place: usize) -> Result<(), Fault> {
    let id = format!("{place:06}-probe");
    let (path, day) = (["probe", "feed", "tunnel"][place % 3], place % 300);
    let mut header = made.header.clone();
    (header.id, header.path) = (id.clone(), path.into());
    header.started =
        format!("2026-{:02}-{:02}T08:{:02}:00Z", 1 + day / 28, 1 + day % 28, place % 60);
    store.begin(&header)?;
    for trial in &made.trials {
        store.save_trial(&id, trial)?;
    }
    let mut outcome = made.outcome.clone();
    (outcome.id, outcome.path, outcome.started) = (id.clone(), path.into(), header.started);
    outcome.ended = Ended::Settled;
    store.save_outcome(&outcome)?;
    store.finish(&id, Ended::Settled)?;
    Ok(())
}
