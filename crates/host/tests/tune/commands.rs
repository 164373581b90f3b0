//! Pairs of commands as steps: run in the namespace, undone from the journal, refused in files.

use std::fs;
use std::sync::atomic::AtomicBool;

use wirepath_host::tune::{self, ApplyError, Moment, Options, Plan, PlanError, Step, Target};

use crate::bench::{Bench, value};

/// A plan of one pair of commands and a setting.
fn plan(bench: &Bench, on: &str, off: &str) -> Plan {
    let mut plan = bench.plan(&[("tx-queue-len", "interface wp-near", "777")]);
    plan.steps.push(Step {
        knob: "command".into(),
        target: Target::Command("hooks".into()),
        seen: value(off),
        value: value(on),
        reason: "a test".into(),
    });
    plan
}

fn links(bench: &Bench) -> String {
    let netns = bench.system.netns();
    let listed = netns.run(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
    let mut names: Vec<&str> =
        listed.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    names.sort_unstable();
    names.join(" ")
}

#[test]
fn a_pair_of_commands_runs_in_the_namespace_before_settings_and_is_undone_after_them() {
    let bench = Bench::new();
    let (before, links_before) = (bench.everything(), links(&bench));
    let log = bench.folder.path().join("log");
    let note = |word: &str| {
        let log = log.display();
        format!(
            "cat /sys/class/net/none 2>/dev/null; ip -o link show wp-near | grep -c 'qlen 777' >>{log}; echo {word} >>{log}"
        )
    };
    let on = format!("ip link add wp-pair type bridge; {}", note("on"));
    let off = format!("ip link del wp-pair; {}", note("off"));
    bench.apply(&plan(&bench, &on, &off)).unwrap();
    assert!(links(&bench).contains("wp-pair") && !links_before.contains("wp-pair"));
    let report = bench.rollback();
    assert!(report.failures().next().is_none() && report.foreign().next().is_none(), "{report:?}");
    assert_eq!((bench.everything(), links(&bench)), (before, links_before));
    assert_eq!(fs::read_to_string(log).unwrap(), "0\non\n0\noff\n");
}

#[test]
fn a_command_that_fails_is_undone_and_its_output_named() {
    let bench = Bench::new();
    let marker = bench.folder.path().join("undone");
    let off = format!("touch {}", marker.display());
    let failed = bench.apply(&plan(&bench, "echo no such table >&2; exit 3", &off)).unwrap_err();
    let text = wirepath_host::text::chain(&failed);
    assert!(text.contains("no such table") && text.contains("exit status: 3"), "{text}");
    assert!(matches!(failed, ApplyError::RolledBack { .. }), "{text}");
    assert!(marker.exists(), "a command that failed in its middle may have changed something");
    assert!(!bench.store.journal_file().exists());
}

#[test]
fn the_undo_of_a_killed_process_runs_from_the_journal_alone() {
    let bench = Bench::new();
    let marker = bench.folder.path().join("undone");
    let off = format!("echo x >>{}", marker.display());
    // As after kill -9: the journal has the start of a step, and nothing behind it.
    for stopped in [Moment::Announced(0), Moment::Changed(0), Moment::Recorded(1)] {
        let _gone = fs::remove_file(&marker);
        let mut seen = Vec::new();
        let stop = AtomicBool::new(false);
        let watch = &mut |moment| {
            seen.push(moment);
            assert_ne!(moment, stopped, "the process ends here");
        };
        let plan = plan(&bench, "true", &off);
        let options = Options { stop: &stop, confirm_within: None, owner: None, watch };
        let apply = || tune::apply(&bench.system, &plan, &bench.store, options).map(drop);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(apply));
        assert!(ended.is_err(), "{seen:?}");
        bench.rollback();
        assert_eq!(fs::read_to_string(&marker).unwrap(), "x\n", "{stopped:?}");
    }
}

#[test]
fn plan_files_have_no_commands() {
    let bench = Bench::new();
    let text = plan(&bench, "true", "true").to_text();
    let refused = Plan::parse(&text).unwrap_err();
    assert!(matches!(refused, PlanError::Steps { .. }), "{refused}");
    assert!(refused.to_string().contains("--switch"), "{refused}");
    assert!(tune::find("command").is_none(), "`tune knobs` does not list it");
}
