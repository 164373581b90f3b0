//! Applying and rolling back plans, and the errors of both.

use std::fs;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use wirepath_host::net::ethtool::Feature;
use wirepath_host::tune::{
    self, Applied, ApplyError, Confirmation, JournalStoreError, KnobError, Moment, Options, Phase,
    Place, Plan, PlanError, RestoreOutcome, System, Target, await_confirmation, confirm,
};

use crate::bench::{Bench, INTERFACE, another, netns_file};

const RPS: (&str, &str, &str) = ("rps-cpus", "queue wp-near rx-0", "1");
const LENGTH: (&str, &str, &str) = ("tx-queue-len", "interface wp-near", "777");

#[test]
fn every_knob_of_a_namespace_is_set_and_restored_bit_for_bit() {
    let bench = Bench::new();
    let mut exercised = Vec::new();
    for knob in tune::all() {
        for target in tune::targets(knob, &bench.system, Some(INTERFACE)).unwrap() {
            // What belongs to the machine has its own test, on another root.
            if !target.is_in_netns() || knob.probe(&bench.system, &target).is_err() {
                continue;
            }
            let before = bench.everything();
            let target = target.to_string();
            let now = bench.read(knob.id(), &target);
            let plan = bench.plan(&[(knob.id(), &target, &another(knob, &now))]);
            match bench.apply(&plan) {
                Ok(Applied::Done { steps, .. }) => assert_eq!(steps.len(), 1),
                // Some offloads cannot be switched without another; then nothing has changed.
                Err(ApplyError::RolledBack { .. })
                    if knob.format() == tune::ValueFormat::Switch =>
                {
                    assert_eq!(bench.everything(), before, "{} {target}", knob.id());
                    continue;
                }
                other => panic!("{} {target}: {other:?}", knob.id()),
            }
            assert_ne!(bench.read(knob.id(), &target), now, "{} {target}", knob.id());
            let report = bench.rollback();
            assert!(report.failures().next().is_none(), "{report:?}");
            assert!(report.foreign().next().is_none(), "{report:?}");
            assert_eq!(bench.everything(), before, "{} {target}", knob.id());
            exercised.push(knob.id());
        }
    }
    exercised.dedup();
    for expected in [
        "channels",
        "gro",
        "gso",
        "tso",
        "rx-vlan",
        "tx-vlan",
        "udp-tunnel-tso",
        "gre-tso",
        "qdisc",
        "tx-queue-len",
        "threaded-napi",
        "napi-defer-hard-irqs",
        "gro-flush-timeout",
        "rps-cpus",
        "rps-flow-count",
        "xps-cpus",
        "xps-rxqs",
        "tcp-rmem",
        "udp-rmem-min",
        "ip-early-demux",
        "tcp-congestion-control",
        "somaxconn",
        "tcp-max-syn-backlog",
        "tcp-syncookies",
        "tcp-fastopen",
        "tcp-timestamps",
        "tcp-sack",
        "tcp-notsent-lowat",
        "tcp-slow-start-after-idle",
        "tcp-autocorking",
        "tcp-adv-win-scale",
        "tcp-pacing-ss-ratio",
        "tcp-pacing-ca-ratio",
        "tcp-tw-reuse",
        "tcp-max-tw-buckets",
        "ip-local-port-range",
        "tcp-keepalive-time",
        "tcp-keepalive-intvl",
        "tcp-keepalive-probes",
        "tcp-orphan-retries",
        "tcp-no-metrics-save",
        "route-congestion-control",
        "route-initcwnd",
        "route-initrwnd",
    ] {
        assert!(exercised.contains(&expected), "{expected} was not exercised: {exercised:?}");
    }
}

#[test]
fn large_plan_is_restored_with_its_side_effects() {
    let bench = Bench::new();
    // What the channels take along when they go.
    let steering = bench.plan(&[
        ("rps-cpus", "queue wp-near rx-1", "3"),
        ("rps-flow-count", "queue wp-near rx-1", "256"),
        ("xps-cpus", "queue wp-near tx-1", "2"),
    ]);
    bench.apply(&steering).unwrap();
    confirm(&bench.store, None).unwrap();
    fs::remove_file(bench.store.journal_file()).unwrap();
    let before = bench.everything();
    let plan = bench.plan(&[
        RPS,
        LENGTH,
        ("threaded-napi", "interface wp-near", "1"),
        ("gro", "interface wp-near", "on"),
        ("tso", "interface wp-near", "off"),
        ("gso", "interface wp-near", "off"),
        ("channels", "interface wp-near", "rx=1 tx=1"),
        ("qdisc", "interface wp-near", "pfifo:50"),
        ("udp-rmem-min", "netns", "8192"),
    ]);
    bench.apply(&plan).unwrap();
    assert_eq!(bench.read("channels", "interface wp-near"), "rx=1 tx=1 combined=0");
    let report = bench.rollback();
    assert!(report.failures().next().is_none() && report.foreign().next().is_none(), "{report:?}");
    assert_eq!(bench.everything(), before);
    let restored = |knob: &str| report.settings.iter().any(|setting| setting.knob == knob);
    assert!(restored("rps-cpus") && restored("channels"));
}

#[test]
fn applying_twice_changes_nothing_and_reports_drift() {
    let bench = Bench::new();
    let before = bench.everything();
    let plan = bench.plan(&[RPS, LENGTH]);
    assert!(matches!(bench.apply(&plan), Ok(Applied::Done { .. })));
    assert_eq!(bench.apply(&plan).unwrap(), Applied::Already(Vec::new()));
    bench.system.write_net("wp-near/tx_queue_len", "55").unwrap();
    let Applied::Already(drift) = bench.apply(&plan).unwrap() else { panic!("applied again") };
    assert_eq!(drift.len(), 1);
    assert_eq!((drift[0].0.as_str(), drift[0].3.as_str()), ("tx-queue-len", "55"));
    let other = bench.plan(&[("rps-cpus", "queue wp-near rx-1", "1")]);
    assert!(matches!(bench.apply(&other), Err(ApplyError::OtherPlan { .. })));
    bench.system.write_net("wp-near/tx_queue_len", "777").unwrap();
    bench.rollback();
    assert_eq!(bench.everything(), before);
    // A plan whose values are those of now has nothing to do.
    let nothing = bench.plan(&[("rps-cpus", "queue wp-near rx-0", "00000000")]);
    assert_eq!(bench.apply(&nothing).unwrap(), Applied::Nothing);
    assert!(!bench.store.journal_file().exists());
}

#[test]
fn settings_changed_by_another_process_are_reported_and_kept() {
    let bench = Bench::new();
    let before = bench.everything();
    bench.apply(&bench.plan(&[RPS, LENGTH, ("channels", "interface wp-near", "rx=1")])).unwrap();
    bench.system.write_net("wp-near/tx_queue_len", "4242").unwrap();
    // Nothing of the plan, but the channels might have disturbed it.
    bench.system.write_net("wp-near/gro_flush_timeout", "99").unwrap();
    let report = bench.rollback();
    let foreign: Vec<_> = report.foreign().map(|setting| setting.knob.as_str()).collect();
    assert_eq!(foreign, ["tx-queue-len", "gro-flush-timeout"], "{report:?}");
    let mut expected = before;
    let key = |knob: &str| (knob.to_owned(), "interface wp-near".to_owned());
    expected.insert(key("tx-queue-len"), "4242".into());
    expected.insert(key("gro-flush-timeout"), "99".into());
    assert_eq!(bench.everything(), expected);
    assert_eq!(bench.store.read().unwrap(), None);
}

#[test]
fn a_step_that_fails_undoes_those_before_it() {
    let bench = Bench::new();
    let before = bench.everything();
    // The kernel takes a mask only as far as there are CPUs; what reads back differs.
    let plan = bench.plan(&[LENGTH, RPS, ("rps-cpus", "queue wp-near rx-1", "80000000,00000001")]);
    let error = bench.apply(&plan).unwrap_err();
    assert!(matches!(error, ApplyError::RolledBack { .. }), "{error:?}");
    assert!(error.to_string().contains("step 3"), "{error}");
    assert_eq!(bench.everything(), before);
    assert_eq!(bench.store.read().unwrap(), None);
    assert_eq!(bench.store.read_last().unwrap().unwrap().phase, Phase::RollingBack);
}

#[test]
fn stop_between_any_two_steps_restores_all_settings() {
    let bench = Bench::new();
    let before = bench.everything();
    let plan = bench.plan(&[LENGTH, RPS, ("gro", "interface wp-near", "off")]);
    for at in [Moment::Journaled, Moment::Changed(0), Moment::Recorded(1), Moment::Recorded(2)] {
        let stop = AtomicBool::new(false);
        let mut watch = |moment| {
            if moment == at {
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        };
        let options = Options { stop: &stop, confirm_within: None, owner: None, watch: &mut watch };
        let error = tune::apply(&bench.system, &plan, &bench.store, options).unwrap_err();
        assert!(error.to_string().contains("stopped"), "{at:?}: {error}");
        assert_eq!(bench.everything(), before, "{at:?}");
    }
}

#[test]
fn unconfirmed_settings_are_restored_and_confirmed_ones_stay() {
    let bench = Bench::new();
    let before = bench.everything();
    let plan = bench.plan(&[LENGTH, RPS]);
    let apply = |within| {
        let stop = AtomicBool::new(false);
        let options =
            Options { stop: &stop, confirm_within: Some(within), owner: None, watch: &mut |_| {} };
        match tune::apply(&bench.system, &plan, &bench.store, options).unwrap() {
            Applied::Done { confirm_by_ms: Some(by_ms), .. } => by_ms,
            other => panic!("{other:?}"),
        }
    };
    let never = AtomicBool::new(false);
    let by_ms = apply(Duration::from_millis(300));
    assert_ne!(bench.everything(), before);
    let ended = await_confirmation(&bench.store, None, by_ms, &never, &mut |_| {}).unwrap();
    assert!(matches!(ended, Confirmation::RolledBack { .. }), "{ended:?}");
    assert_eq!(bench.everything(), before);

    let by_ms = apply(Duration::from_secs(600));
    let mut confirmed = false;
    let ended = await_confirmation(&bench.store, None, by_ms, &never, &mut |_| {
        if !confirmed {
            confirm(&bench.store, None).unwrap();
            confirmed = true;
        }
    })
    .unwrap();
    assert_eq!(ended, Confirmation::Confirmed);
    assert_eq!(bench.read(LENGTH.0, LENGTH.1), "777");
    bench.rollback();

    let by_ms = apply(Duration::from_secs(600));
    let stop = AtomicBool::new(true);
    let ended = await_confirmation(&bench.store, None, by_ms, &stop, &mut |_| {}).unwrap();
    assert!(matches!(ended, Confirmation::RolledBack { .. }), "{ended:?}");
    assert_eq!(bench.everything(), before);

    // The deadline has passed, and no process waits.
    apply(Duration::from_millis(1));
    std::thread::sleep(Duration::from_millis(20));
    assert!(confirm(&bench.store, None).unwrap_err().to_string().contains("passed"));
    bench.rollback();
    assert_eq!(bench.everything(), before);
}

#[test]
fn confirmation_that_comes_too_early_leaves_the_lock_to_the_process_that_applies() {
    let bench = Bench::new();
    let why = || confirm(&bench.store, None).unwrap_err().to_string();
    let lock = bench.store.lock().unwrap();
    assert!(why().contains("nothing to confirm"), "{}", why());
    drop(lock);
    // One that is at work is waited for, not undone.
    let plan = bench.plan(&[LENGTH]);
    let never = AtomicBool::new(false);
    let mut seen = Vec::new();
    let options = Options {
        stop: &never,
        confirm_within: Some(Duration::from_secs(600)),
        owner: None,
        watch: &mut |_| seen.push(confirm(&bench.store, None).unwrap_err()),
    };
    tune::apply(&bench.system, &plan, &bench.store, options).unwrap();
    assert!(
        !seen.is_empty()
            && seen
                .iter()
                .all(|error| wirepath_host::text::chain(error).contains("is changing settings")),
        "{seen:?}"
    );
    bench.rollback();
}

#[test]
fn a_plan_that_cannot_be_applied_changes_nothing() {
    let bench = Bench::new();
    let before = bench.everything();
    let good = bench.plan(&[LENGTH, RPS]);
    let refused = |plan: &Plan, says: &str| {
        let error = bench.apply(plan).unwrap_err();
        let said = wirepath_host::text::chain(&error);
        assert!(matches!(error, ApplyError::Plan(_)), "{said}");
        assert!(said.contains(says), "{says}: {said}");
        assert_eq!(bench.everything(), before);
        assert!(!bench.store.journal_file().exists());
    };
    refused(&Plan { machine: "another".into(), ..good.clone() }, "machine another");
    refused(&Plan { interface: Some("eth77".into()), ..good.clone() }, "no interface eth77");
    refused(&Plan { driver: Some("e1000e".into()), ..good.clone() }, "driver e1000e");
    let changed = |change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        plan
    };
    let seen = changed(&|plan| plan.steps[0].seen = crate::bench::value("1234"));
    refused(&seen, "when it was planned");
    let queue = changed(&|plan| plan.steps[1].target = Target::RxQueue(INTERFACE.into(), 9));
    refused(&queue, "rps-cpus");
    let irq = changed(&|plan| {
        plan.steps[1].knob = "irq-affinity".into();
        plan.steps[1].target = Target::Irq(1);
    });
    refused(&irq, "not the interface's");
    let rings = changed(&|plan| {
        plan.steps[0].knob = "rings".into();
        plan.steps[0].value = crate::bench::value("rx=512");
    });
    refused(&rings, "rings is not offered by driver veth");
    let host_only = changed(&|plan| {
        plan.steps[0].knob = "busy-poll".into();
        plan.steps[0].target = Target::Netns;
        plan.steps[0].value = crate::bench::value("50");
    });
    refused(&host_only, "host-only");
}

#[test]
fn missing_knobs_have_typed_errors() {
    let bench = Bench::new();
    let system = &bench.system;
    let probe_error = |knob: &str, target: &str| {
        let target = target.parse().unwrap();
        tune::find(knob).unwrap().probe(system, &target).unwrap_err()
    };
    for knob in ["rings", "coalescing"] {
        let error = probe_error(knob, "interface wp-near");
        assert!(
            matches!(&error, KnobError::NotOffered { by, .. } if by.contains("veth")),
            "{error}"
        );
    }
    let error = probe_error("busy-poll", "netns");
    assert!(matches!(error, KnobError::HostOnly { .. }), "{error}");
    // Visible in the namespace, but read-only.
    let error = probe_error("rmem-max", "netns");
    assert!(matches!(error, KnobError::HostOnly { .. }), "{error}");
    let error = probe_error("tx-queue-len", "interface eth77");
    assert!(matches!(error, KnobError::NoTarget { .. }), "{error}");
    bench.pair.near.set_feature(Feature::GRO, false).unwrap();
    let threaded = tune::find("threaded-napi").unwrap();
    let target: Target = "interface wp-near".parse().unwrap();
    let error = threaded.set(system, &target, &crate::bench::value("1")).unwrap_err();
    assert!(error.to_string().contains("GRO is on"), "{error}");
    let error = tune::find("rps-cpus").unwrap().check(&target, &crate::bench::value("1"));
    assert!(matches!(error, Err(KnobError::Scope { .. })), "{error:?}");
}

#[test]
fn a_queueing_discipline_set_by_hand_is_left_alone() {
    let bench = Bench::new();
    let near = &bench.pair.near;
    near.run(|| wirepath_host::net::set_root_fifo(near.ifindex, 10, false)).unwrap().unwrap();
    let plan = bench.plan(&[("qdisc", "interface wp-near", "noqueue")]);
    let error = wirepath_host::text::chain(&bench.apply(&plan).unwrap_err());
    assert!(error.contains("by hand"), "{error}");
    assert_eq!(bench.read("qdisc", "interface wp-near"), "pfifo:10");
}

#[test]
fn a_damaged_journal_is_never_acted_upon() {
    let bench = Bench::new();
    bench.apply(&bench.plan(&[LENGTH, RPS])).unwrap();
    let after = bench.everything();
    let path = bench.store.journal_file();
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[200] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let lock = bench.store.lock().unwrap();
    let error = tune::rollback(&bench.store, &lock, None, "a test").unwrap_err();
    assert!(
        matches!(&error, tune::RollbackError::Store(JournalStoreError::Journal { .. })),
        "{error}"
    );
    drop(lock);
    let other = bench.plan(&[("rps-cpus", "queue wp-near rx-1", "1")]);
    assert!(matches!(bench.apply(&other), Err(ApplyError::Store(_))));
    assert_eq!(bench.everything(), after);
    // Cut off in its last line, it is as good as whole.
    fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    let report = bench.rollback();
    assert_eq!(report.settings.iter().filter(|s| s.outcome == RestoreOutcome::Restored).count(), 2);
    assert_eq!(bench.read(LENGTH.0, LENGTH.1), "1000");
}

#[test]
fn two_processes_cannot_change_settings_at_once() {
    let bench = Bench::new();
    let before = bench.everything();
    let plan = bench.plan(&[LENGTH, RPS]);
    let stop = AtomicBool::new(false);
    let mut second = None;
    let mut watch = |moment| {
        if moment == Moment::Changed(0) {
            second = Some(bench.apply(&plan).unwrap_err());
        }
    };
    let options = Options { stop: &stop, confirm_within: None, owner: None, watch: &mut watch };
    tune::apply(&bench.system, &plan, &bench.store, options).unwrap();
    let second = second.unwrap();
    assert!(matches!(second, ApplyError::Store(JournalStoreError::Busy { .. })), "{second:?}");
    bench.rollback();
    assert_eq!(bench.everything(), before);
}

#[test]
fn deleted_interface_has_nothing_to_restore() {
    let bench = Bench::new();
    bench.apply(&bench.plan(&[LENGTH, ("udp-rmem-min", "netns", "8192")])).unwrap();
    bench.pair.near.delete_link().unwrap();
    let report = bench.rollback();
    let outcomes: Vec<_> = report.settings.iter().map(|setting| &setting.outcome).collect();
    assert_eq!(outcomes, [&RestoreOutcome::Gone, &RestoreOutcome::Restored]);
    assert_eq!(bench.read("udp-rmem-min", "netns"), "4096");
}

#[test]
fn settings_of_an_unnamed_namespace_are_restored_while_it_is_held() {
    let mut bench = Bench::new();
    let name = bench.pair.near.netns.try_clone().unwrap();
    let place = Place { netns: Some(netns_file(&name)), root: None };
    bench.system = System::open(&place).unwrap();
    bench.apply(&bench.plan(&[LENGTH])).unwrap();
    drop(name);
    let report = bench.rollback();
    let outcomes: Vec<_> = report.settings.iter().map(|setting| &setting.outcome).collect();
    assert_eq!(outcomes, [&RestoreOutcome::Restored]);
    assert_eq!(bench.read(LENGTH.0, LENGTH.1), "1000");
}

#[test]
fn a_plan_in_a_file_is_what_was_planned() {
    let bench = Bench::new();
    let plan = bench.plan(&[LENGTH, RPS]);
    let path = bench.folder.path().join("plan.toml");
    fs::write(&path, plan.to_text()).unwrap();
    assert_eq!(tune::read_plan(&path).unwrap(), plan);
    let absent = tune::read_plan(&bench.folder.path().join("none.toml")).unwrap_err();
    assert!(matches!(absent, PlanError::File(_)), "{absent}");
}
