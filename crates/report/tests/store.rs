//! The store on disk: contents, errors, and kills.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use model::{
    Arm, Better, Cost, Delivery, Ended, Measurement, NotEffective, Shape, Throughput, Trap,
    latency_histogram,
};
use rusqlite::Connection;
use wirepath_report::store::{
    ExperimentHeader, Filter, SqliteStore, Store, StoreError, TrialRecord,
};

fn header(id: &str, started: &str) -> ExperimentHeader {
    let outcome = common::ping();
    ExperimentHeader {
        id: id.into(),
        started: started.into(),
        path: outcome.path,
        load: outcome.load,
        machine: outcome.machine,
        seed: u64::MAX,
        schedule: Default::default(),
        arms: vec![
            Arm::baseline(),
            Arm::control(),
            Arm::variant("+spin", [model::SwitchId::named("spin")].into_iter().collect()),
        ],
        version: "0.1.0".into(),
        name: None,
        note: None,
        phrases: Default::default(),
        search: None,
    }
}

fn measurement(offset: u64) -> Measurement {
    let mut rtt = latency_histogram();
    for i in 0..2_000 {
        rtt.record(60_000 + offset + (i * 7_919) % 40_000).unwrap();
    }
    let books = Delivery {
        sent_count: 2_001,
        received_count: 2_000,
        duplicated_count: Some(0),
        reordered_count: 1,
    };
    Measurement {
        wall_ns: 1_000_000_000 + offset,
        deliveries: [("forward".to_string(), books)].into(),
        segments: [("rtt".to_string(), rtt.clone()), ("kernel→app".to_string(), rtt)].into(),
        throughput: Some(Throughput {
            interval_ns: 999,
            received_count: 2_000,
            payload_bytes: 128_000,
        }),
        jitter_ns: Some(357),
        costs: [("near".to_string(), Cost { user_ns: 5, system_ns: 6, ..Cost::default() })].into(),
        cores_ns: 9,
        others_cpu_ns: 7,
        steal_ns: 8,
        mode: [("xdp".to_string(), "native, copy".to_string())].into(),
        counters: [("map_miss_count".to_string(), u64::MAX)].into(),
        figures: [("main_wait_ns_per_packet".to_string(), 812.5), ("rps".to_string(), 7.0)].into(),
        shapes: [("rps".to_string(), Shape { unit: "req/s".into(), better: Better::Higher })]
            .into(),
        packet_count: Some(77),
        refused: [("lost_count_forward".to_owned(), "not counted".to_owned())].into(),
        not_effective: vec![NotEffective { switch: "busy-poll".into(), why: "NAPI id 0".into() }],
        traps: vec![Trap { what: "a trap".into(), advice: "a way out".into() }],
        start: Some(7),
        reported: [("rtt".to_string(), vec![(0.5, 60.8), (0.99, 87.1)])].into(),
        // The outcome keeps those of all trials.
        samples: None,
    }
}

fn trial(ordinal: u32, result: Result<Measurement, String>) -> TrialRecord {
    TrialRecord {
        ordinal,
        block: ordinal / 3,
        arm: ["baseline", "baseline again", "+spin"][ordinal as usize % 3].into(),
        warmup: ordinal < 3,
        noisy: ordinal == 4,
        started_ms: u64::from(ordinal) * 1_000,
        wall_ns: 1_010_000_000,
        result,
    }
}

fn fresh() -> (tempfile::TempDir, SqliteStore) {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("results.db")).unwrap();
    (directory, store)
}

#[test]
fn stored_experiment_reads_back_unchanged() {
    let (_directory, mut store) = fresh();
    let outcome = common::ping();
    let header = header(&outcome.id, &outcome.started);
    store.begin(&header).unwrap();
    let seen = measurement(5);
    store.save_trial(&header.id, &trial(0, Ok(seen.clone()))).unwrap();
    store.save_trial(&header.id, &trial(4, Err("link went down".into()))).unwrap();
    store.save_outcome(&outcome).unwrap();
    store.finish(&header.id, Ended::Settled).unwrap();

    let stored = store.load("last").unwrap();
    assert_eq!(stored.header, header);
    assert_eq!(stored.ended, Ended::Settled);
    assert_eq!(stored.outcome.unwrap(), outcome);
    let [first, second] = &stored.trials[..] else { panic!("two trials were saved") };
    assert_eq!((first.ordinal, first.block, first.warmup, first.noisy), (0, 0, true, false));
    assert_eq!((second.ordinal, second.block, second.warmup, second.noisy), (4, 1, false, true));
    assert_eq!((second.started_ms, second.wall_ns), (4_000, 1_010_000_000));
    assert_eq!((&*first.arm, &*second.arm), ("baseline", "baseline again"));
    assert_eq!(second.result.as_ref().unwrap_err(), "link went down");
    let (mut back, mut seen) = (first.result.clone().unwrap(), seen);
    // Histograms compare by value; Debug shows every other field.
    assert_eq!(std::mem::take(&mut back.segments), std::mem::take(&mut seen.segments));
    assert_eq!(format!("{back:?}"), format!("{seen:?}"));
}

#[test]
fn unfinished_experiment_is_listed_with_its_trials() {
    let (_directory, mut store) = fresh();
    store.begin(&header("20261121-083000-probe-aaaa", "2026-11-21T08:30:00Z")).unwrap();
    for ordinal in 0..7 {
        let result = Ok(Measurement::default());
        store.save_trial("20261121-083000-probe-aaaa", &trial(ordinal, result)).unwrap();
    }
    let rows = store.list(&Filter::default()).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].ended, Ended::Unfinished);
    assert_eq!((rows[0].arms, rows[0].blocks, rows[0].trials), (3, 2, 7));
    assert_eq!(rows[0].headline, None);
    assert!(store.load("last").unwrap().outcome.is_none());
}

#[test]
fn finish_without_an_outcome_records_the_reason() {
    let (_directory, mut store) = fresh();
    store.begin(&header("a", "2026-11-21T08:30:00Z")).unwrap();
    store.finish("a", Ended::Interrupted).unwrap();
    assert_eq!(store.list(&Filter::default()).unwrap()[0].ended, Ended::Interrupted);
}

#[test]
fn list_is_filtered_and_newest_first() {
    let (_directory, mut store) = fresh();
    for (id, started, path) in [
        ("b", "2026-11-21T08:31:00Z", "probe"),
        ("a", "2026-11-21T08:33:00Z", "feed"),
        ("c", "2026-11-21T08:32:00Z", "probe"),
    ] {
        let mut header = header(id, started);
        header.path = path.into();
        header.machine.id = format!("machine of {id}");
        header.name = (id != "a").then(|| format!("Engines {id}"));
        header.note = Some("after the update".into());
        store.begin(&header).unwrap();
    }
    let ids = |filter: Filter| -> Vec<String> {
        store.list(&filter).unwrap().into_iter().map(|row| row.id).collect()
    };
    assert_eq!(ids(Filter::default()), ["a", "c", "b"]);
    assert_eq!(ids(Filter { limit: Some(2), ..Filter::default() }), ["a", "c"]);
    assert_eq!(ids(Filter { path: Some("probe".into()), ..Filter::default() }), ["c", "b"]);
    let named = Filter { name: Some("engines".into()), ..Filter::default() };
    assert_eq!(
        (ids(named.clone()), store.count(&named).unwrap()),
        (vec!["c".into(), "b".into()], 2)
    );
    assert_eq!(ids(Filter { name: Some("100%".into()), ..Filter::default() }), [""; 0]);
    let rows = store.list(&Filter::default()).unwrap();
    assert_eq!(
        (rows[1].title.as_str(), rows[0].title.as_str()),
        ("Engines c", "+spin against baseline, feed, ping, 64 bytes")
    );
    assert_eq!(rows[0].note.as_deref(), Some("after the update"));
    let machine = Some("machine of b".into());
    assert_eq!(ids(Filter { machine, ..Filter::default() }), ["b"]);
}

#[test]
fn id_is_found_by_its_prefix() {
    let (_directory, mut store) = fresh();
    assert!(matches!(store.load("last"), Err(StoreError::Empty)));
    for id in ["run_1", "runx1", "run_12"] {
        store.begin(&header(id, "2026-11-21T08:30:00Z")).unwrap();
    }
    assert_eq!(store.load("runx").unwrap().header.id, "runx1");
    assert_eq!(store.load("run_1").unwrap().header.id, "run_1", "an exact id wins");
    let text = store.load("run").unwrap_err().to_string();
    assert!(text.contains("3 ids") && text.contains("runx1"), "{text}");
    // `_` is a letter here, not SQL's wildcard.
    let text = store.load("run_").unwrap_err().to_string();
    assert!(text.contains("2 ids") && !text.contains("runx1"), "{text}");
    for wanted in ["nope", "", "%"] {
        let text = store.load(wanted).unwrap_err().to_string();
        assert!(text.contains("wirepath history"), "{text}");
    }
}

#[test]
fn duplicate_ids_and_trials_are_errors() {
    let (_directory, mut store) = fresh();
    store.begin(&header("a", "2026-11-21T08:30:00Z")).unwrap();
    let again = store.begin(&header("a", "2026-11-21T08:30:00Z"));
    assert!(matches!(again, Err(StoreError::BadId { .. })), "{again:?}");
    let reserved = store.begin(&header("last", "2026-11-21T08:30:00Z"));
    assert!(matches!(reserved, Err(StoreError::BadId { .. })), "{reserved:?}");
    store.save_trial("a", &trial(0, Err("x".into()))).unwrap();
    let again = store.save_trial("a", &trial(0, Err("y".into())));
    assert!(matches!(again, Err(StoreError::TrialExists { ordinal: 0, .. })), "{again:?}");
    assert_eq!(store.load("a").unwrap().trials[0].result.as_ref().unwrap_err(), "x");
    let unknown = store.save_trial("b", &trial(0, Err("x".into())));
    assert!(matches!(unknown, Err(StoreError::NoSuchId { .. })), "{unknown:?}");
    let unknown = store.finish("b", Ended::Settled);
    assert!(matches!(unknown, Err(StoreError::NoSuchId { .. })), "{unknown:?}");
    let unknown = store.save_outcome(&common::ping());
    assert!(matches!(unknown, Err(StoreError::NoSuchId { .. })), "{unknown:?}");
}

#[test]
fn new_directory_is_private() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("deep/er/results.db");
    SqliteStore::open(&file).unwrap();
    let mode = file.parent().unwrap().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn each_defect_of_the_file_has_its_own_error() {
    let directory = tempfile::tempdir().unwrap();
    let file_path = |name: &str| directory.path().join(name);

    std::fs::write(file_path("plain"), "not a directory").unwrap();
    let error = SqliteStore::open(file_path("plain/results.db")).unwrap_err();
    assert!(matches!(error, StoreError::Directory { .. }), "{error}");

    std::fs::create_dir(file_path("a-directory")).unwrap();
    let error = SqliteStore::open(file_path("a-directory")).unwrap_err();
    assert!(matches!(error, StoreError::NotWritable { .. }), "{error}");

    std::fs::write(file_path("letter"), "Dear Sir or Madam, ".repeat(100)).unwrap();
    let error = SqliteStore::open(file_path("letter")).unwrap_err();
    assert!(matches!(error, StoreError::NotOurs { .. }), "{error}");
    assert!(std::fs::read_to_string(file_path("letter")).unwrap().starts_with("Dear Sir"));

    Connection::open(file_path("other.db"))
        .unwrap()
        .execute_batch("CREATE TABLE urls (url)")
        .unwrap();
    let before = std::fs::read(file_path("other.db")).unwrap();
    let error = SqliteStore::open(file_path("other.db")).unwrap_err();
    assert!(matches!(error, StoreError::NotOurs { .. }), "{error}");
    assert_eq!(std::fs::read(file_path("other.db")).unwrap(), before, "left as it was");

    drop(SqliteStore::open(file_path("newer.db")).unwrap());
    Connection::open(file_path("newer.db"))
        .unwrap()
        .pragma_update(None, "user_version", 1_000)
        .unwrap();
    let error = SqliteStore::open(file_path("newer.db")).unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 1_000, .. }), "{error}");
}

#[test]
fn empty_file_becomes_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("results.db");
    // What a process leaves that was killed before its first migration ended.
    Connection::open(&file).unwrap().execute_batch("VACUUM").unwrap();
    let mut store = SqliteStore::open(&file).unwrap();
    store.begin(&header("a", "2026-11-21T08:30:00Z")).unwrap();
    let version: u32 = Connection::open(&file)
        .unwrap()
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    assert!(version > 0);
}

#[test]
fn locked_file_is_reported() {
    let (_directory, mut store) = fresh();
    let file = store.path().to_path_buf();
    store.begin(&header("a", "2026-11-21T08:30:00Z")).unwrap();
    let holder = Connection::open(&file).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut other = SqliteStore::open_waiting(&file, Duration::from_millis(20)).unwrap();
    let error = other.save_trial("a", &trial(0, Err("x".into()))).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    holder.execute_batch("ROLLBACK").unwrap();
    other.save_trial("a", &trial(0, Err("x".into()))).unwrap();
}

#[test]
fn concurrent_writers_lose_no_trial() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("results.db");
    std::thread::scope(|scope| {
        for writer in ["left", "right"] {
            let file = &file;
            // Both also race to make and migrate the file.
            scope.spawn(move || {
                let mut store = SqliteStore::open(file).unwrap();
                store.begin(&header(writer, "2026-11-21T08:30:00Z")).unwrap();
                for ordinal in 0..60 {
                    let offset = u64::from(ordinal);
                    store.save_trial(writer, &trial(ordinal, Ok(measurement(offset)))).unwrap();
                }
                store.finish(writer, Ended::TimeUp).unwrap();
            });
        }
    });
    let store = SqliteStore::open(&file).unwrap();
    for writer in ["left", "right"] {
        let stored = store.load(writer).unwrap();
        assert_eq!(stored.trials.len(), 60);
        assert_eq!(stored.trials[59].result.as_ref().unwrap().segments, measurement(59).segments);
    }
}

#[test]
fn finish_folds_the_log_into_the_file() {
    let (_directory, mut store) = fresh();
    store.begin(&header("a", "2026-11-21T08:30:00Z")).unwrap();
    for ordinal in 0..30 {
        store.save_trial("a", &trial(ordinal, Ok(measurement(0)))).unwrap();
    }
    store.finish("a", Ended::TimeUp).unwrap();
    // The database file alone, without its log, now has everything.
    let copy = store.path().with_file_name("copy.db");
    std::fs::copy(store.path(), &copy).unwrap();
    let stored = SqliteStore::open(&copy).unwrap().load("a").unwrap();
    assert_eq!((stored.trials.len(), stored.ended), (30, Ended::TimeUp));
}

/// Numbers that look random, the same in every run.
fn random(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % below
}

/// A power cut keeps a synced prefix of the log and any of the pages after it; the file itself changes
/// at checkpoints alone, which the log repeats until it was synced.
#[test]
fn power_cuts_keep_a_prefix_of_the_trials_each_whole() {
    const TRIALS: u32 = 12;
    const PAGE: usize = 4096;
    let (directory, mut store) = fresh();
    store.begin(&header("a", "2026-11-21T08:30:00Z")).unwrap();
    store.finish("a", Ended::Unfinished).unwrap();
    let file = {
        let mut name = store.path().to_path_buf().into_os_string();
        name.push("");
        std::fs::read(name).unwrap_or_default()
    };
    for ordinal in 0..TRIALS {
        let offset = u64::from(ordinal);
        store.save_trial("a", &trial(ordinal, Ok(measurement(offset)))).unwrap();
    }
    let log = {
        let name = format!("{}-wal", store.path().display());
        std::fs::read(name).unwrap()
    };
    let copy = directory.path().join("cut.db");
    let sibling = |suffix: &str| format!("{}{suffix}", copy.display());
    let (mut state, mut seen) = (0x9e37_79b9_7f4a_7c15, std::collections::BTreeSet::new());
    for cut in 0..300 {
        let mut left = log[..random(&mut state, log.len() as u64 + 1) as usize].to_vec();
        // Every third time, a page before the end was not written either.
        if cut % 3 == 0 && left.len() > PAGE {
            let at = random(&mut state, (left.len() - PAGE) as u64) as usize;
            left[at..at + PAGE].fill(0);
        }
        let _absent = std::fs::remove_file(sibling("-shm"));
        std::fs::write(&copy, &file).unwrap();
        std::fs::write(sibling("-wal"), &left).unwrap();
        let after = SqliteStore::open(&copy).unwrap();
        let stored = after.load("a").unwrap();
        for (ordinal, trial) in stored.trials.iter().enumerate() {
            assert_eq!(trial.ordinal as usize, ordinal, "{cut}: no gap");
            let whole = measurement(ordinal as u64);
            assert_eq!(trial.result.as_ref().unwrap().segments, whole.segments, "{cut}");
        }
        assert_eq!(after.check().unwrap(), [], "{cut}");
        seen.insert(stored.trials.len());
    }
    assert!(seen.len() > TRIALS as usize / 2, "{seen:?}");
    // A file that lost its end, which no power cut does, is reported.
    for _ in 0..50 {
        let whole = std::fs::read(&copy).unwrap();
        let short = directory.path().join("short.db");
        let _absent = std::fs::remove_file(directory.path().join("short.db-wal"));
        let len = 1 + random(&mut state, whole.len() as u64 - 1) as usize;
        std::fs::write(&short, &whole[..len]).unwrap();
        let outcome = SqliteStore::open(&short).and_then(|store| store.check());
        assert!(outcome.is_err() || outcome.is_ok_and(|damage| !damage.is_empty()), "{len}");
    }
}

#[test]
fn damaged_row_is_named_in_the_error() {
    let (_directory, mut store) = fresh();
    store.begin(&header("a", "2026-11-21T08:30:00Z")).unwrap();
    store.save_trial("a", &trial(0, Ok(measurement(0)))).unwrap();
    let raw = Connection::open(store.path()).unwrap();
    raw.execute("UPDATE segments SET histogram = x'00112233'", []).unwrap();
    let text = store.load("a").unwrap_err().to_string();
    assert!(text.contains("trial 0") && text.contains("`a`"), "{text}");
}

/// Kills and reaps on drop, so that a failing test leaves no process.
struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const VICTIM: &str = "WIREPATH_TEST_KILLED_STORE";

#[test]
fn killed_writer_loses_at_most_one_trial() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..5 {
        let file = directory.path().join(format!("results-{round}.db"));
        let store = SqliteStore::open(&file).unwrap();
        let mut writer = Writer(
            testkit::role("writes_until_killed")
                .env(VICTIM, &file)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap(),
        );
        let wanted = 10 + 7 * round;
        let deadline = Instant::now() + Duration::from_secs(60);
        let before = loop {
            let rows = store.list(&Filter::default()).unwrap();
            let trials = rows.first().map_or(0, |row| row.trials);
            if trials >= wanted {
                break trials;
            }
            assert!(Instant::now() < deadline, "the writer saved {trials} trials in a minute");
            std::thread::sleep(Duration::from_millis(1));
        };
        writer.0.kill().unwrap(); // SIGKILL
        writer.0.wait().unwrap();
        drop(store);

        let store = SqliteStore::open(&file).unwrap();
        let stored = store.load("last").unwrap();
        assert_eq!(stored.ended, Ended::Unfinished);
        assert!(stored.trials.len() >= before as usize, "what was seen saved is still there");
        for (ordinal, trial) in stored.trials.iter().enumerate() {
            assert_eq!(trial.ordinal as usize, ordinal, "no gap");
            let whole = measurement(ordinal as u64);
            assert_eq!(trial.result.as_ref().unwrap().segments, whole.segments);
        }
        let raw = Connection::open(&file).unwrap();
        let check: String = raw.query_row("PRAGMA integrity_check", [], |r| r.get(0)).unwrap();
        assert_eq!(check, "ok");
    }
}

/// Child process of the test above, which kills it.
#[test]
#[ignore = "role of a child process"]
fn writes_until_killed() {
    let file = std::env::var_os(VICTIM).expect("set by the test above");
    let mut store = SqliteStore::open(Path::new(&file)).unwrap();
    store.begin(&header("victim", "2026-11-21T08:30:00Z")).unwrap();
    for ordinal in 0.. {
        let offset = u64::from(ordinal);
        store.save_trial("victim", &trial(ordinal, Ok(measurement(offset)))).unwrap();
    }
    unreachable!("the parent kills this process")
}
