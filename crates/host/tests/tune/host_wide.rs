//! Knobs of the machine, acting on a folder that stands for it: nothing of this machine is touched.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use sys::netns::Netns;
use tempfile::TempDir;
use wirepath_host::net::create_bridge;
use wirepath_host::tune::{
    self, Applied, ApplyError, JournalStore, KnobError, Options, PLAN_SCHEMA, Place, Plan, Profile,
    Step, System, Value, Wanted, machine_id,
};

use crate::bench::netns_file;

const FILES: &[(&str, &str)] = &[
    ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
    ("proc/cpuinfo", "model name\t: A CPU\n"),
    ("proc/interrupts", "           CPU0       CPU1\n 24:  5  0  PCI-MSI 0-edge  eth0\n"),
    ("proc/irq/24/smp_affinity", "3\n"),
    ("proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
    ("proc/sys/net/core/rmem_max", "212992\n"),
    ("proc/sys/net/core/busy_poll", "0\n"),
    ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
    ("sys/devices/system/cpu/online", "0-1\n"),
    ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n"),
    ("sys/devices/system/cpu/cpu1/cpuidle/state0/disable", "0\n"),
    ("sys/devices/system/cpu/cpu1/cpuidle/state1/disable", "0\n"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "never\n"),
    ("sys/class/net/eth0/device/msi_irqs/24", "msix\n"),
    ("sys/class/net/eth0/queues/rx-0/rps_cpus", "00\n"),
];

pub(crate) struct Root {
    pub(crate) folder: TempDir,
    pub(crate) system: System,
    pub(crate) store: JournalStore,
}

pub(crate) fn root() -> Root {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in FILES {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let netns = Netns::new().unwrap();
    let place = Place { netns: Some(netns_file(&netns)), root: Some(folder.path().into()) };
    let system = System::from_netns(netns, place).unwrap();
    let store = JournalStore::new(folder.path().join("state"));
    Root { folder, system, store }
}

/// Contents, without trailing white space.
fn contents(folder: &Path) -> Vec<String> {
    let read = |(path, _): &(&str, &str)| fs::read_to_string(folder.join(path)).unwrap();
    FILES.iter().map(|file| read(file).trim_end().to_owned()).collect()
}

pub(crate) fn plan(system: &System, steps: &[(&str, &str, &str)]) -> Plan {
    let steps = steps.iter().map(|(knob, target, value)| {
        let target = target.parse().unwrap();
        let seen = tune::find(knob).unwrap().read(system, &target).unwrap();
        let value = Value::new(*value).unwrap();
        Step { knob: (*knob).to_owned(), target, seen, value, reason: "a test".to_owned() }
    });
    Plan {
        schema: PLAN_SCHEMA,
        machine: machine_id(system),
        profile: "test".into(),
        interface: Some("eth0".into()),
        driver: None,
        other_interfaces: Vec::new(),
        netns: system.place().netns.clone(),
        steps: steps.collect(),
        left_out: Vec::new(),
    }
}

pub(crate) const STEPS: &[(&str, &str, &str)] = &[
    ("rps-cpus", "queue eth0 rx-0", "2"),
    ("irq-affinity", "irq 24", "2"),
    ("rmem-max", "host", "16777216"),
    ("busy-poll", "host", "50"),
    ("tcp-rmem", "host", "4096 262144 6291456"),
    ("sched-rt-runtime", "host", "-1"),
    ("governor", "cpu 1", "performance"),
    ("idle-states", "cpu 1", "state1=1"),
    ("huge-pages", "host", "madvise"),
];

pub(crate) fn apply(root: &Root, plan: &Plan) -> Result<Applied, ApplyError> {
    let stop = AtomicBool::new(false);
    let options = Options { stop: &stop, confirm_within: None, owner: None, watch: &mut |_| {} };
    tune::apply(&root.system, plan, &root.store, options)
}

#[test]
fn settings_of_the_machine_are_set_and_restored() {
    let root = root();
    let before = contents(root.folder.path());
    let Applied::Done { steps, .. } = apply(&root, &plan(&root.system, STEPS)).unwrap() else {
        panic!("nothing to do?");
    };
    assert_eq!(steps.len(), STEPS.len());
    let note = steps.iter().find(|step| step.knob == "irq-affinity").unwrap().note.clone();
    assert!(note.unwrap().contains("not be verified"), "an interrupt arrived");
    let after = contents(root.folder.path());
    let changed = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    assert_eq!(changed, STEPS.len(), "{after:?}");
    let lock = root.store.lock().unwrap();
    let report = tune::rollback(&root.store, &lock, Some(root.folder.path()), "a test").unwrap();
    assert!(report.failures().next().is_none(), "{report:?}");
    assert_eq!(contents(root.folder.path()), before);
}

#[test]
fn plans_follow_the_hints_of_drivers_where_their_cpus_are_free() {
    let root = root();
    root.system.within(|| create_bridge("eth0")).unwrap();
    // The CPUs of eth0's three interrupts: as hinted, without a hint, and hinted on the application's CPU.
    for (irq, hint) in [(24, "2\n"), (25, "0\n"), (26, "1\n")] {
        for (path, text) in [
            (format!("proc/irq/{irq}/smp_affinity"), "3\n"),
            (format!("proc/irq/{irq}/affinity_hint"), hint),
            (format!("sys/class/net/eth0/device/msi_irqs/{irq}"), "msix\n"),
        ] {
            let path = root.folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
    let planned = |app_cpu| {
        let wanted = Wanted { profile: Profile::Throughput, interface: Some("eth0"), app_cpu };
        let plan = tune::plan(&root.system, wanted).unwrap();
        let steps = plan.steps.into_iter().filter(|step| step.knob == "irq-affinity");
        let rows = steps.map(|step| {
            (step.target.to_string(), step.value.to_string(), step.reason.contains("hint"))
        });
        rows.collect::<Vec<_>>()
    };
    let row = |irq: &str, mask: &str, by_hint| (format!("irq {irq}"), mask.to_owned(), by_hint);
    let sorted = |all: Vec<_>| {
        let mut all: Vec<(String, String, bool)> = all;
        all.sort();
        all
    };
    assert_eq!(
        sorted(planned(None)),
        [row("24", "2", true), row("25", "2", false), row("26", "1", true)]
    );
    assert_eq!(
        sorted(planned(Some(0))),
        [row("24", "2", true), row("25", "2", false), row("26", "2", false)]
    );
}

#[test]
fn a_setting_that_is_absent_or_read_only_stops_the_plan_before_anything_is_changed() {
    let root = root();
    let before = contents(root.folder.path());
    let good = plan(&root.system, STEPS);
    fs::remove_file(root.folder.path().join("proc/sys/net/core/busy_poll")).unwrap();
    let error = wirepath_host::text::chain(&apply(&root, &good).unwrap_err());
    assert!(error.contains("busy-poll is not offered"), "{error}");
    fs::write(root.folder.path().join("proc/sys/net/core/busy_poll"), "0\n").unwrap();
    let governor = tune::find("governor").unwrap();
    let absent = governor.probe(&root.system, &"cpu 0".parse().unwrap()).unwrap_err();
    assert!(matches!(absent, KnobError::NotOffered { .. }), "{absent}");
    assert_eq!(contents(root.folder.path()), before);
    assert!(!root.store.journal_file().exists());
}

#[test]
fn journal_of_an_earlier_boot_restores_nothing() {
    let root = root();
    apply(&root, &plan(&root.system, STEPS)).unwrap();
    let after = contents(root.folder.path());
    // The same journal, of another boot: each line with a new checksum.
    let text = fs::read_to_string(root.store.journal_file()).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let other = text.lines().map(|line| {
        let body = line[9..].replace(boot.trim(), "00000000-0000-0000-0000-000000000000");
        format!("{:08x} {body}\n", crc32fast::hash(body.as_bytes()))
    });
    fs::write(root.store.journal_file(), other.collect::<String>()).unwrap();
    let nothing = tune::confirm(&root.store, None).unwrap_err().to_string();
    assert!(nothing.contains("nothing to confirm"), "{nothing}");
    let lock = root.store.lock().unwrap();
    let report = tune::rollback(&root.store, &lock, Some(root.folder.path()), "a test").unwrap();
    assert!(report.is_stale && report.settings.is_empty());
    assert_eq!(contents(root.folder.path()), after);
    assert!(!root.store.journal_file().exists());
}
