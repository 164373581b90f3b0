//! Power cuts at any moment of `apply` and `rollback`, with writes that were not synced lost or torn; and what a rollback
//! does with each state of a setting.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use tempfile::TempDir;

use super::files::{self, Change};
use super::journal::Record;
use super::rollback;
use super::{
    Applied, Journal, JournalStore, JournalStoreError, Options, Place, Plan, RestoreOutcome,
    RollbackError, Step, SwitchError, SwitchedPlan, System, Value, apply, machine_id,
};

/// Settings of a folder that stands for the machine.
const SETTINGS: &[(&str, &str)] = &[
    ("kernel/sched_rt_runtime_us", "950000"),
    ("kernel/numa_balancing", "0"),
    ("kernel/timer_migration", "1"),
];
const STEPS: &[(&str, &str, &str)] = &[
    ("sched-rt-runtime", "950000", "-1"),
    ("numa-balancing", "0", "1"),
    ("timer-migration", "1", "0"),
];
const OTHER_BOOT: &str = "00000000-0000-0000-0000-000000000000";

struct Machine {
    folder: TempDir,
    system: System,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let system = System::open(&Place { netns: None, root: Some(folder.path().into()) });
        let machine = Machine { folder, system: system.unwrap() };
        machine.boot();
        machine
    }

    /// Settings do not survive a reboot.
    fn boot(&self) {
        for (file, text) in SETTINGS {
            let file = self.folder.path().join("proc/sys").join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
    }

    fn plan(&self) -> Plan {
        let value = |text: &str| Value::new(text).unwrap();
        Plan {
            schema: super::PLAN_SCHEMA,
            machine: machine_id(&self.system),
            profile: "p".repeat(9000),
            interface: None,
            driver: None,
            other_interfaces: Vec::new(),
            netns: None,
            steps: STEPS
                .iter()
                .map(|(knob, seen, to)| Step {
                    knob: (*knob).into(),
                    target: super::Target::Host,
                    seen: value(seen),
                    value: value(to),
                    // Long enough that the journal takes several pages.
                    reason: "a test".into(),
                })
                .collect(),
            left_out: Vec::new(),
        }
    }

    fn apply(&self, store: &JournalStore) -> Applied {
        let stop = AtomicBool::new(false);
        let options =
            Options { stop: &stop, confirm_within: None, owner: None, watch: &mut |_| {} };
        apply(&self.system, &self.plan(), store, options).unwrap()
    }

    fn rollback(&self, store: &JournalStore) -> Result<super::RollbackReport, RollbackError> {
        let lock = store.lock().unwrap();
        rollback::rollback(store, &lock, Some(self.folder.path()), "a test")
    }
}

/// A folder whose syncs cost nothing, as there are thousands.
fn in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The same lines as an earlier boot would have written them.
fn of_other_boot(bytes: &[u8]) -> Vec<u8> {
    let boot = super::rollback::boot_id();
    let text = std::str::from_utf8(bytes).unwrap();
    text.lines()
        .map(|line| {
            let body = line[9..].replace(&boot, OTHER_BOOT);
            format!("{:08x} {body}\n", crc32fast::hash(body.as_bytes()))
        })
        .collect::<String>()
        .into_bytes()
}

/// Content of one file on a disk.
#[derive(Debug, Clone, Default)]
struct Content {
    synced: Vec<u8>,
    /// Appended since.
    loose: Vec<u8>,
}

/// A folder on a disk that keeps what was synced, and any part of the rest.
#[derive(Debug, Clone, Default)]
struct Disk {
    contents: Vec<Content>,
    synced_names: BTreeMap<PathBuf, usize>,
    /// Names after each change since they were synced; the file system keeps their order.
    loose_names: Vec<BTreeMap<PathBuf, usize>>,
}

impl Disk {
    fn names(&self) -> BTreeMap<PathBuf, usize> {
        self.loose_names.last().unwrap_or(&self.synced_names).clone()
    }

    fn change(&mut self, change: &Change) {
        let mut names = self.names();
        match change {
            Change::Create(path) => {
                names.insert(path.clone(), self.contents.len());
                self.contents.push(Content::default());
                self.loose_names.push(names);
            }
            Change::Link(from, to) => {
                names.insert(to.clone(), names[from]);
                self.loose_names.push(names);
            }
            Change::Rename(from, to) => {
                let content = names.remove(from).unwrap();
                names.insert(to.clone(), content);
                self.loose_names.push(names);
            }
            Change::Remove(path) => {
                names.remove(path);
                self.loose_names.push(names);
            }
            Change::Append(path, bytes) => self.contents[names[path]].loose.extend(bytes),
            Change::Sync(path) => {
                let content = &mut self.contents[names[path]];
                let loose = std::mem::take(&mut content.loose);
                content.synced.extend(loose);
            }
            Change::Cut(path, len) => self.contents[names[path]].synced.truncate(*len as usize),
            Change::SyncFolder => {
                self.synced_names = names;
                self.loose_names.clear();
            }
        }
    }

    /// Writes to `folder` what a power cut may leave. Appended pages are written in any order, and what
    /// was not reads as zeros.
    fn cut(&self, folder: &Path, random: &mut impl FnMut(usize) -> usize) {
        let kept = random(self.loose_names.len() + 1);
        let names = match kept {
            0 => &self.synced_names,
            kept => &self.loose_names[kept - 1],
        };
        for (path, content) in names {
            let content = &self.contents[*content];
            let mut bytes = content.synced.clone();
            let loose = &content.loose[..random(content.loose.len() + 1)];
            bytes.extend(loose);
            const PAGE: usize = 4096;
            for page in content.synced.len() / PAGE..bytes.len().div_ceil(PAGE) {
                if random(4) == 0 {
                    let end = bytes.len().min((page + 1) * PAGE);
                    bytes[(page * PAGE).max(content.synced.len())..end].fill(0);
                }
            }
            fs::write(folder.join(path.file_name().unwrap()), bytes).unwrap();
        }
    }
}

#[test]
fn every_power_cut_leaves_a_whole_journal_or_none() {
    let machine = Machine::new();
    let origin = tempfile::tempdir().unwrap();
    let store = JournalStore::new(origin.path());
    files::recorded();
    // Twice, so that there is an older journal of a rollback.
    for _ in 0..2 {
        assert!(matches!(machine.apply(&store), Applied::Done { .. }));
        let report = machine.rollback(&store).unwrap();
        assert!(report.failures().next().is_none(), "{report:?}");
    }
    let changes: Vec<Change> = files::recorded()
        .into_iter()
        .map(|change| match change {
            Change::Append(path, bytes) => Change::Append(path, of_other_boot(&bytes)),
            other => other,
        })
        .collect();
    assert!(
        changes.iter().filter(|change| matches!(change, Change::Append(..))).count() > 12,
        "{}",
        changes.len()
    );

    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let (mut journals, mut none, mut torn) = (0, 0, 0);
    for number in 0..1000 {
        let mut disk = Disk::default();
        changes.iter().take(number % (changes.len() + 1)).for_each(|change| disk.change(change));
        let folder = in_memory();
        disk.cut(folder.path(), &mut random);
        machine.boot();
        let after = JournalStore::new(folder.path());
        let synced = disk.loose_names.is_empty().then(|| {
            let content = disk.synced_names.get(&store.journal_file())?;
            Journal::parse(&disk.contents[*content].synced).unwrap()
        });
        let found = after.read();
        match &found {
            Ok(Some(journal)) => {
                journals += 1;
                torn += usize::from(journal.is_torn);
                assert_eq!(journal.header.boot, OTHER_BOOT);
                // All that was to be changed is there from the first moment on.
                assert_eq!(journal.steps().count(), STEPS.len(), "{number}");
                if let Some(Some(synced)) = &synced {
                    assert!(journal.record_count >= synced.record_count, "{number}");
                }
            }
            Ok(None) => {
                none += 1;
                assert!(!matches!(synced, Some(Some(_))), "{number}: a synced journal is lost");
            }
            // A hole in records that were being written: the message names the line.
            Err(JournalStoreError::Journal { .. }) => torn += 1,
            Err(other) => panic!("{number}: {other}"),
        }
        // The next start finds nothing to restore, and applies the plan.
        match machine.rollback(&after) {
            Ok(report) => assert!(report.is_stale && report.settings.is_empty(), "{number}"),
            Err(RollbackError::Nothing { .. }) => assert!(matches!(found, Ok(None)), "{number}"),
            Err(other) => panic!("{number}: {other}"),
        }
        if number % 10 == 0 {
            let folder = in_memory();
            disk.cut(folder.path(), &mut random);
            let applied = machine.apply(&JournalStore::new(folder.path()));
            assert!(matches!(applied, Applied::Done { .. }), "{number}: {applied:?}");
        }
    }
    assert!(journals > 100 && none > 50 && torn > 20, "{journals} {none} {torn}");
}

/// Values of the settings in the order of [`SETTINGS`].
fn values(machine: &Machine) -> Vec<String> {
    let file = |name: &str| machine.folder.path().join("proc/sys").join(name);
    SETTINGS.iter().map(|(name, _)| fs::read_to_string(file(name)).unwrap().trim().into()).collect()
}

fn set(machine: &Machine, setting: usize, value: &str) {
    fs::write(machine.folder.path().join("proc/sys").join(SETTINGS[setting].0), value).unwrap();
}

/// Number and outcome of each entry that a rollback reports.
fn outcomes(report: &super::RollbackReport) -> Vec<(usize, &RestoreOutcome)> {
    report.settings.iter().map(|setting| (setting.entry, &setting.outcome)).collect()
}

fn foreign(found: &str) -> RestoreOutcome {
    RestoreOutcome::Foreign { found: Value::new(found).unwrap() }
}

/// A journal with the steps of the plan, written as far as `more`; without any, no change was allowed yet.
///
/// - `witness`: this entry is not part of the plan.
fn journaled(machine: &Machine, store: &JournalStore, witness: Option<usize>, more: &[Record]) {
    assert!(matches!(machine.apply(store), Applied::Done { .. }));
    let mut journal = store.read().unwrap().unwrap();
    store.close(&store.lock().unwrap()).unwrap();
    machine.boot();
    if let Some(witness) = witness {
        journal.entries[witness].wanted = None;
    }
    let mut records = vec![Record::Begin(journal.header)];
    records.extend(journal.entries.into_iter().map(Record::Entry));
    if !more.is_empty() {
        records.push(Record::Ready);
    }
    records.extend_from_slice(more);
    drop(store.begin(&store.lock().unwrap(), &records).unwrap());
}

fn machine_and_store() -> (Machine, TempDir, JournalStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = JournalStore::new(folder.path());
    (Machine::new(), folder, store)
}

#[test]
fn restored_settings_unchanged_ones_and_those_of_others_are_told_apart() {
    let (machine, _folder, store) = machine_and_store();
    machine.apply(&store);
    assert_eq!(values(&machine), ["-1", "1", "0"]);
    set(&machine, 1, "0");
    set(&machine, 2, "7");
    let report = machine.rollback(&store).unwrap();
    let expected =
        [(0, &RestoreOutcome::Restored), (1, &RestoreOutcome::Unchanged), (2, &foreign("7"))];
    assert_eq!(outcomes(&report), expected);
    assert_eq!(report.foreign().map(|setting| setting.entry).collect::<Vec<_>>(), [2]);
    assert_eq!((report.failures().count(), report.failure()), (0, None));
    assert_eq!(values(&machine), ["950000", "0", "7"]);
    assert!(!report.is_stale && !store.journal_file().exists());
    assert!(matches!(machine.rollback(&store), Err(RollbackError::Nothing { .. })));
}

#[test]
fn failed_setting_keeps_the_journal_until_it_is_restored_or_forgotten() {
    let (machine, _folder, store) = machine_and_store();
    machine.apply(&store);
    let lock = store.lock().unwrap();
    let file = machine.folder.path().join("proc/sys").join(SETTINGS[1].0);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    set(&machine, 2, "7");
    drop(lock);
    let report = machine.rollback(&store).unwrap();
    assert_eq!(report.failures().map(|setting| setting.entry).collect::<Vec<_>>(), [1]);
    let why = report.failure().unwrap();
    assert!(why.contains("numa-balancing") && why.contains("host"), "{why}");
    assert!(store.journal_file().exists());
    // The first rollback decided which values are of another process.
    set(&machine, 2, "0");
    let again = machine.rollback(&store).unwrap();
    assert_eq!(outcomes(&again)[2], (2, &foreign("7")));
    let lock = store.lock().unwrap();
    let beyond = rollback::forget(&store, &lock, &[STEPS.len()]).unwrap_err();
    assert!(matches!(beyond, RollbackError::NoEntry { entry: 3 }), "{beyond}");
    rollback::forget(&store, &lock, &[1]).unwrap();
    drop(lock);
    let report = machine.rollback(&store).unwrap();
    assert_eq!(outcomes(&report)[1], (1, &RestoreOutcome::Forgotten));
    assert!(!store.journal_file().exists() && file.is_dir());
    let lock = store.lock().unwrap();
    let error = rollback::forget(&store, &lock, &[0]).unwrap_err();
    assert!(matches!(error, RollbackError::Nothing { .. }), "{error}");
}

#[test]
fn value_of_a_step_that_was_interrupted_is_taken_for_its_own_and_of_one_not_begun_is_not() {
    let (machine, _folder, store) = machine_and_store();
    journaled(&machine, &store, None, &[Record::Started { entry: 0 }]);
    set(&machine, 0, "123");
    set(&machine, 1, "7");
    let report = machine.rollback(&store).unwrap();
    assert_eq!(outcomes(&report), [(0, &RestoreOutcome::Restored), (1, &foreign("7"))]);
    assert_eq!(values(&machine), ["950000", "7", "1"]);
}

#[test]
fn witness_is_restored_if_a_step_was_under_way_and_is_another_s_if_none_was() {
    let found = Value::new("-1").unwrap();
    let begun = Record::Started { entry: 0 };
    let completed = Record::Completed { entry: 0, found };
    for (records, expected, last) in [
        (vec![begun.clone()], RestoreOutcome::Restored, "1"),
        (vec![begun, completed], foreign("7"), "7"),
    ] {
        let (machine, _folder, store) = machine_and_store();
        journaled(&machine, &store, Some(2), &records);
        set(&machine, 0, "-1");
        set(&machine, 2, "7");
        let report = machine.rollback(&store).unwrap();
        assert_eq!(outcomes(&report), [(0, &RestoreOutcome::Restored), (2, &expected)]);
        assert_eq!(values(&machine), ["950000", "0", last]);
    }
}

#[test]
fn journal_without_a_change_restores_nothing_and_forgets_nothing() {
    let (machine, _folder, store) = machine_and_store();
    journaled(&machine, &store, None, &[]);
    set(&machine, 0, "123");
    let lock = store.lock().unwrap();
    let early = rollback::forget(&store, &lock, &[0]).unwrap_err();
    assert!(matches!(early, RollbackError::TooEarly), "{early}");
    drop(lock);
    let report = machine.rollback(&store).unwrap();
    assert_eq!(outcomes(&report), []);
    assert_eq!((values(&machine)[0].as_str(), store.journal_file().exists()), ("123", false));
}

#[test]
fn settings_of_an_earlier_boot_are_left_and_unknown_knobs_are_named() {
    let (machine, _folder, store) = machine_and_store();
    machine.apply(&store);
    let bytes = fs::read(store.journal_file()).unwrap();
    fs::write(store.journal_file(), of_other_boot(&bytes)).unwrap();
    let report = machine.rollback(&store).unwrap();
    assert!(report.is_stale && report.settings.is_empty());
    assert_eq!(values(&machine), ["-1", "1", "0"], "nothing was restored");
    assert!(!store.journal_file().exists());
    // As written by a newer version.
    machine.boot();
    machine.apply(&store);
    let text = fs::read_to_string(store.journal_file()).unwrap();
    let line = |line: &str| {
        let body = line[9..].replace("timer-migration", "timer-of-tomorrow");
        format!("{:08x} {body}\n", crc32fast::hash(body.as_bytes()))
    };
    fs::write(store.journal_file(), text.lines().map(line).collect::<String>()).unwrap();
    let report = machine.rollback(&store).unwrap();
    assert!(report.failure().unwrap().contains("no such knob"), "{report:?}");
    assert_eq!(values(&machine), ["950000", "0", "0"], "the others are restored");
}

impl Machine {
    fn switched(&self, store: &JournalStore) -> SwitchedPlan {
        let place = Place { netns: None, root: Some(self.folder.path().into()) };
        let (system, stop) = (System::open(&place).unwrap(), AtomicBool::new(false));
        SwitchedPlan::open(system, &self.plan(), store.clone(), &stop).unwrap()
    }
}

const BEFORE: [&str; 3] = ["950000", "0", "1"];
const AFTER: [&str; 3] = ["-1", "1", "0"];

#[test]
fn plan_is_switched_many_times_under_one_journal_that_hardly_grows() {
    let (machine, _folder, store) = machine_and_store();
    let mut plan = machine.switched(&store);
    assert_eq!(values(&machine), BEFORE, "nothing is changed by the start");
    plan.turn(true).unwrap();
    let len = fs::metadata(store.journal_file()).unwrap().len();
    files::recorded();
    for _ in 0..50 {
        plan.turn(false).unwrap();
        assert_eq!(values(&machine), BEFORE);
        plan.turn(true).unwrap();
        assert_eq!(values(&machine), AFTER);
    }
    let grown = fs::metadata(store.journal_file()).unwrap().len() - len;
    assert!(grown < 50 * 200, "{grown} bytes");
    assert!(!files::recorded().iter().any(|change| matches!(change, Change::Sync(_))));
    let report = plan.finish("a test").unwrap();
    assert_eq!((report.failure(), report.foreign().count()), (None, 0));
    assert_eq!(values(&machine), BEFORE);
    assert!(!store.journal_file().exists());
}

#[test]
fn other_wirepath_is_kept_out_while_a_plan_is_switched() {
    let (machine, _folder, store) = machine_and_store();
    let plan = machine.switched(&store);
    let busy = store.lock_within(std::time::Duration::ZERO).unwrap_err();
    assert!(matches!(busy, JournalStoreError::Busy { .. }), "{busy}");
    drop(plan);
    drop(store.lock().unwrap());
}

#[test]
fn value_that_another_process_set_ends_the_switching_and_is_kept() {
    for is_on in [false, true] {
        let (machine, _folder, store) = machine_and_store();
        let mut plan = machine.switched(&store);
        plan.turn(true).unwrap();
        plan.turn(is_on).unwrap();
        set(&machine, 1, "7");
        let error = plan.turn(!is_on).unwrap_err();
        let SwitchError::Foreign { knob: "numa-balancing", found, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(found.as_str(), "7");
        let report = plan.finish("a test").unwrap();
        assert_eq!(report.foreign().map(|setting| setting.entry).collect::<Vec<_>>(), [1]);
        assert_eq!(values(&machine), ["950000", "7", "1"]);
    }
}

#[test]
fn killed_at_any_mark_of_a_switch_the_journal_restores() {
    // The journal as it is after each record of two switches, with settings on, off, and half switched.
    let (machine, _folder, store) = machine_and_store();
    let mut plan = machine.switched(&store);
    plan.turn(true).unwrap();
    plan.turn(false).unwrap();
    plan.turn(true).unwrap();
    let whole = fs::read(store.journal_file()).unwrap();
    drop(plan);
    let ends: Vec<usize> = whole
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(at, _)| at + 1)
        .collect();
    let first_change = ends.len() - 11;
    let mut half_switched_count = 0;
    for end in &ends[first_change..] {
        fs::write(store.journal_file(), &whole[..*end]).unwrap();
        let journal = store.read().unwrap().unwrap();
        let mut states =
            vec![BEFORE, [AFTER[0], BEFORE[1], BEFORE[2]], [BEFORE[0], BEFORE[1], AFTER[2]], AFTER];
        // Between the marks of a switch a setting may have any value.
        if journal.is_switching {
            half_switched_count += 1;
            states.push(["123", "5", "0"]);
        }
        for state in states {
            fs::write(store.journal_file(), &whole[..*end]).unwrap();
            (0..3).for_each(|setting| set(&machine, setting, state[setting]));
            let report = machine.rollback(&store).unwrap();
            assert_eq!(report.failure(), None);
            if journal.states.iter().all(|state| *state != super::EntryState::Untouched) {
                assert_eq!(values(&machine), BEFORE, "{state:?} after {end} bytes");
            }
        }
    }
    assert_eq!(half_switched_count, 2);
}
