//! A namespace to tune: two queues, GRO on, and everything that the kernel offers there.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicBool;

use lab::{Pair, PairSpec};
use sys::netns::Netns;
use tempfile::TempDir;
use wirepath_host::tune::{
    self, Applied, ApplyError, JournalStore, Knob, Options, PLAN_SCHEMA, Place, Plan, Step, System,
    Target, Value, ValueFormat, machine_id,
};

/// A lab, its settings, and a folder for journals.
pub(crate) struct Bench {
    pub(crate) pair: Pair,
    pub(crate) system: System,
    pub(crate) store: JournalStore,
    pub(crate) folder: TempDir,
}

pub(crate) const INTERFACE: &str = "wp-near";

pub(crate) fn value(text: &str) -> Value {
    Value::new(text).unwrap()
}

/// The file of a namespace that this process holds, for others to open.
pub(crate) fn netns_file(netns: &Netns) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), netns.as_fd().as_raw_fd())
}

impl Bench {
    pub(crate) fn new() -> Self {
        let pair = Pair::new(&PairSpec { queues: 2, gro: true, ..PairSpec::default() }).unwrap();
        let place = Place { netns: Some(netns_file(&pair.near.netns)), root: None };
        let system = System::open(&place).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let store = JournalStore::new(folder.path().join("state"));
        Bench { pair, system, store, folder }
    }

    /// A plan of `(knob, target, value)`, with the values of now as seen.
    pub(crate) fn plan(&self, steps: &[(&str, &str, &str)]) -> Plan {
        let steps = steps.iter().map(|(knob, target, to)| {
            let target: Target = target.parse().unwrap();
            let seen = tune::find(knob).unwrap().read(&self.system, &target).unwrap();
            let reason = "a test".to_owned();
            Step { knob: (*knob).to_owned(), target, seen, value: value(to), reason }
        });
        let steps = steps.collect();
        Plan {
            schema: PLAN_SCHEMA,
            machine: machine_id(&self.system),
            profile: "test".into(),
            interface: Some(INTERFACE.into()),
            driver: Some("veth".into()),
            other_interfaces: Vec::new(),
            netns: self.system.place().netns.clone(),
            steps,
            left_out: Vec::new(),
        }
    }

    pub(crate) fn apply(&self, plan: &Plan) -> Result<Applied, ApplyError> {
        let stop = AtomicBool::new(false);
        let options =
            Options { stop: &stop, confirm_within: None, owner: None, watch: &mut |_| {} };
        tune::apply(&self.system, plan, &self.store, options)
    }

    pub(crate) fn rollback(&self) -> tune::RollbackReport {
        let lock = self.store.lock().unwrap();
        let root = self.system.place().root.as_deref();
        tune::rollback(&self.store, &lock, root, "a test").unwrap()
    }

    pub(crate) fn read(&self, knob: &str, target: &str) -> String {
        let target = target.parse().unwrap();
        tune::find(knob).unwrap().read(&self.system, &target).unwrap().to_string()
    }

    /// Every setting of the namespace and its interface that can be read, byte for byte.
    pub(crate) fn everything(&self) -> BTreeMap<(String, String), String> {
        everything(&self.system)
    }
}

pub(crate) fn everything(system: &System) -> BTreeMap<(String, String), String> {
    let mut all = BTreeMap::new();
    for knob in tune::all() {
        for target in tune::targets(knob, system, Some(INTERFACE)).unwrap() {
            if let Ok(value) = knob.read(system, &target) {
                all.insert((knob.id().to_owned(), target.to_string()), value.to_string());
            }
        }
    }
    all
}

/// Another value than that of now which the knob should take.
pub(crate) fn another(knob: &dyn Knob, now: &str) -> String {
    match (knob.id(), knob.format()) {
        ("channels", _) => "rx=1 tx=1".into(),
        ("qdisc", _) => "pfifo:321".into(),
        // Some kernels take no table of one entry.
        ("rps-flow-count", _) => if now == "0" { "4096" } else { "0" }.into(),
        ("threaded-napi", _) => if now == "0" { "1" } else { "0" }.into(),
        (_, ValueFormat::Number { min, max }) => {
            let now: i64 = now.parse().unwrap();
            if now < max { now + 1 } else { min }.to_string()
        }
        (_, ValueFormat::Numbers { .. }) => now
            .split_whitespace()
            .map(|word| (word.parse::<i64>().unwrap() + 1).to_string())
            .collect::<Vec<_>>()
            .join(" "),
        // In a namespace of the tests, `reno` is allowed always.
        ("tcp-congestion-control" | "route-congestion-control", _) => {
            if now == "reno" { "bbr" } else { "reno" }.into()
        }
        (_, ValueFormat::Range { .. }) => {
            let (first, last) = now.split_once(char::is_whitespace).unwrap();
            format!("{} {last}", first.parse::<i64>().unwrap() + 1)
        }
        (_, ValueFormat::Mask) => if now.ends_with('1') { "2" } else { "1" }.into(),
        (_, ValueFormat::Switch) => if now == "on" { "off" } else { "on" }.into(),
        (id, _) => unreachable!("{id} has no other value"),
    }
}
