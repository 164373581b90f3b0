//! Experiments whose far end is started for them: in a namespace of this host, and by ssh on a host with a
//! real sshd. Nothing of either stays, however it ends.

mod command;
#[path = "../common/mod.rs"]
mod common;
mod fleet;
mod middle;
mod peers;
mod random;
mod stranger;
mod verdicts;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::far_end::{
    ENDLESS, SBIN_PATH, SHORT, SYSTEM_PATH, Sshd, arm, assert_far_end_gone,
    assert_kills_leave_nothing_in_a_namespace, assert_kills_leave_nothing_on_a_host, command_line,
    far_peer, far_pids, has_program, near_packets, prove,
};
use common::{
    Data, FAR_IP, LONG, NEAR_IP, PLAN_WITHOUT_EFFECT, Running, Spaces, all_text, enter, fail,
    has_thread, ip, is_installed, json, run, succeed, until,
};
use serde_json::Value;

fn names(object: &Value) -> BTreeSet<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// Asserts that no datagram is missing in an arm's books, that nothing failed, and that both ends are
/// described.
fn assert_complete(document: &Value, arm_name: &str) {
    let arm = arm(document, arm_name);
    assert_eq!(arm["failures"].as_array().map(Vec::len), Some(0), "{arm:#}");
    assert!(arm["trials"].as_u64() >= Some(6), "{arm:#}");
    let counters = arm["counters"].as_object().expect("counters");
    assert!(counters["forward_sent_count"].as_u64() > Some(0), "{arm:#}");
    let mut unbalanced = counters.iter().filter(|(name, _)| name.contains("unbalanced"));
    assert!(unbalanced.all(|(_, count)| count == 0), "{arm:#}");
    let cost = &arm["metrics"]["cpu_ns_per_packet"]["median"];
    assert!(cost.as_f64() > Some(0.0), "{arm:#}");
    let (machine, far) = (&document["machine"], &document["machine"]["far"]);
    for fact in ["id", "kernel", "cpu", "cpus", "memory_bytes"] {
        assert_eq!(machine[fact], far[fact], "both ends are on one machine: {machine:#}");
    }
    assert_eq!(far["nic"], "vb (veth, 1 queue, MTU 1500)");
    assert_eq!(machine["nic"], format!("va (veth, 1 queue, MTU 1500) to {FAR_IP}"));
}

#[test]
fn namespace_gives_the_same_measurements_as_a_peer_and_stays_as_it_was() {
    let spaces = Spaces::new();
    let far = format!("netns:{}", spaces.far);
    let arms = ["--load", "ping", "--arms", "spin,bypass", "--json"];
    let own = json(prove(&spaces, &["--far", &far], &[&arms[..], &SHORT].concat()));
    assert_far_end_gone(&spaces, &[]);
    assert_eq!(own["load"]["far"], far);
    let peer = spaces.peer(&[]);
    let other = json(prove(&spaces, &["--peer", FAR_IP], &[&arms[..], &SHORT].concat()));
    drop(peer);
    assert_eq!(other["load"]["far"], format!("peer:{FAR_IP}"));
    for document in [&own, &other] {
        for name in ["baseline", "spin", "bypass"] {
            assert_complete(document, name);
        }
    }
    for name in ["baseline", "bypass"] {
        let [own, other] = [&own, &other].map(|document| arm(document, name));
        assert_eq!(names(&own["metrics"]), names(&other["metrics"]), "{name}");
        assert_eq!(names(&own["mode"]), names(&other["mode"]), "{name}");
    }
    let text =
        succeed(prove(&spaces, &["--far", &far, "--load", "ping", "--arms", "spin", "-v"], &SHORT));
    // The line may be broken anywhere: facts before it have other lengths on a busy host.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("far end: kernel"), "{text}");
}

#[test]
fn namespace_is_empty_however_the_run_ends() {
    let spaces = Spaces::new();
    let far = format!("netns:{}", spaces.far);
    for (signal, code) in [("INT", Some(130)), ("TERM", Some(130)), ("KILL", None)] {
        let data = Data::new();
        let dir = data.path().to_str().expect("a plain path");
        let args = ["--far", &far, "--load", "ping", "--arms", "bypass", "--data-dir", dir];
        let mut near = Running::start(prove(&spaces, &args, &ENDLESS));
        let in_use =
            until(LONG, || near.has_ended() || (data.trial_count() >= 6 && has_program(&spaces)));
        assert!(in_use && !near.has_ended(), "{}", near.stderr());
        assert!(far_peer(&spaces).is_some(), "the check itself must see the far end");
        let output = near.end_by(signal, LONG);
        assert_eq!(output.status.code(), code, "{signal}: {}", all_text(&output));
        assert_far_end_gone(&spaces, &[]);
    }
    // The far end's own end is explained.
    let args = ["--far", &far, "--load", "ping", "--arms", "spin", "--no-history"];
    let mut near = Running::start(prove(&spaces, &args, &ENDLESS));
    assert!(until(LONG, || near.has_ended() || far_peer(&spaces).is_some()), "{}", near.stderr());
    thread::sleep(Duration::from_millis(500));
    let peer = far_peer(&spaces).expect("it runs").to_string();
    succeed({
        let mut kill = Command::new("kill");
        kill.args(["-KILL", &peer]);
        kill
    });
    let output = near.finish(LONG).expect("it ends");
    let said = all_text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("the far end {far} ended")), "{said}");
    assert_far_end_gone(&spaces, &[]);
}

#[test]
fn namespaces_that_are_no_far_end_are_refused_with_the_remedy() {
    let spaces = Spaces::new();
    let refused = |args: &[&str], code: i32| fail(prove(&spaces, args, &SHORT), code);
    let own = format!("netns:{}", spaces.near);
    assert!(refused(&["--far", &own], 1).contains("the namespace that this command runs in"));
    let said = refused(&["--far", "netns:no-such-namespace"], 1);
    assert!(said.contains("no-such-namespace"), "{said}");
    for text in ["db2", "netns:", "tcp:db2", "ssh:-oProxyCommand=true"] {
        let said = refused(&["--far", text], 2);
        assert!(said.contains("is not a valid far end; use ssh:"), "{said}");
    }
    let far = format!("netns:{}", spaces.far);
    let key = ["--far", &far, "--secret-file", "/dev/null"];
    assert!(refused(&key, 2).contains("remove --secret-file"));
    let said = refused(&["--far", &far, "--load", "ping", "--direction", "receive"], 2);
    assert!(said.contains("remove --direction"), "{said}");
    assert!(refused(&["--far", &far, "--app-cpu", "4000"], 2).contains("--app-cpu"));
    assert!(refused(&["--direction", "receive"], 2).contains("--far"));
    // A second wire.
    let pair = ["link", "add", "vc", "netns", &spaces.near, "type", "veth", "peer", "name", "vd"];
    succeed(ip(&[&pair[..], &["netns", &spaces.far]].concat()));
    let ends = [(&spaces.near, "vc", "10.78.0.1/24"), (&spaces.far, "vd", "10.78.0.2/24")];
    for (name, link, address) in ends {
        succeed(ip(&["-n", name, "address", "add", address, "dev", link]));
        succeed(ip(&["-n", name, "link", "set", link, "up"]));
    }
    let said = refused(&["--far", &far], 1);
    let both = said.contains("10.77.0.2 (vb)") && said.contains("10.78.0.2 (vd)");
    assert!(both && said.contains("--far-address"), "{said}");
    let choices: [(&[&str], &str); 2] =
        [(&["--far-address", "10.78.0.2"], "vc"), (&["-i", "va"], "va")];
    for (choice, nic) in choices {
        let args =
            [&["--far", &far, "--load", "ping", "--arms", "spin", "--json"], choice].concat();
        let document = json(prove(&spaces, &args, &SHORT));
        let used = document["machine"]["nic"].as_str().expect("a text");
        assert!(used.starts_with(nic), "{choice:?}: {used}");
    }
    assert_far_end_gone(&spaces, &[]);
}

/// True if a thread with this name may run on that CPU alone.
fn is_pinned(pid: u32, name: &str, cpu: usize) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let statuses = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    let (name, cpu) = (format!("Name:\t{name}\n"), format!("Cpus_allowed_list:\t{cpu}\n"));
    let mut of_name = statuses.filter(|status| status.starts_with(&name));
    of_name.any(|status| status.contains(&cpu))
}

#[test]
fn pin_moves_both_ends_to_the_cpus_that_were_named_and_is_not_effective_where_they_were() {
    let spaces = Spaces::new();
    let far = format!("netns:{}", spaces.far);
    let cpus = sys::affinity::allowed_cpus().expect("CPUs");
    // Each end has the other half otherwise.
    let (near_cpu, far_cpu) = (cpus[cpus.len() - 1], cpus[0]);
    let named = ["--app-cpu", &near_cpu.to_string(), "--far-cpu", &far_cpu.to_string()];
    let args = ["--far", &far, "--load", "ping", "--arms", "pin", "--no-history"];
    let mut near = Running::start(prove(&spaces, &[&args[..], &named].concat(), &ENDLESS));
    let mut seen = [false; 2];
    let both = until(LONG, || {
        seen[0] |= is_pinned(near.pid(), "near", near_cpu);
        seen[1] |= far_peer(&spaces).is_some_and(|peer| is_pinned(peer, "run", far_cpu));
        seen == [true; 2] || near.has_ended()
    });
    assert!(both && !near.has_ended(), "{seen:?} {}", near.stderr());
    near.end_by("INT", LONG);
    if !(2..4).contains(&cpus.len()) {
        return testkit::skip("kernel", "two or three CPUs, which each end has one of already");
    }
    let args = ["--far", &far, "--load", "ping", "--arms", "pin", "--json"];
    let document = json(prove(&spaces, &args, &SHORT));
    let verdict = &arm(&document, "pin")["metrics"]["rtt_ns_p50"]["verdict"];
    assert_eq!(verdict, "not-effective", "{document:#}");
}

#[test]
fn one_way_load_goes_in_the_direction_that_was_asked_for() {
    let spaces = Spaces::new();
    let far = format!("netns:{}", spaces.far);
    for (direction, busy, idle) in [("receive", 0, 1), ("send", 1, 0)] {
        let before = near_packets(&spaces);
        let args = ["--far", &far, "--load", "flood", "--arms", "batch,bypass", "--json"];
        let document =
            json(prove(&spaces, &[&args[..], &["--direction", direction]].concat(), &SHORT));
        let after = near_packets(&spaces);
        let moved = |way: usize| after[way] - before[way];
        assert!(moved(busy) > 100 * moved(idle), "{direction}: {before:?} {after:?}");
        for name in ["baseline", "batch", "bypass"] {
            assert_complete(&document, name);
            let received = &arm(&document, name)["metrics"]["received_pps"]["median"];
            assert!(received.as_f64() > Some(1000.0), "{direction} {name}: {document:#}");
        }
        let stored = &document["load"]["direction"];
        assert_eq!(stored.as_str(), (direction == "receive").then_some("receive"));
    }
}

#[test]
fn flood_of_tune_prove_arrives_at_the_tuned_interface() {
    let (spaces, data) = (Spaces::new(), Data::new());
    let near = |script: &str| succeed(enter(&spaces.near, &["sh", "-c", script]));
    const FILE: &str = "/sys/class/net/va/queues/rx-0/rps_cpus";
    near(&format!("echo 1 > {FILE}"));
    let tune = |args: &[&str]| {
        let mut command = spaces.near(&[&["tune"], args].concat());
        command.env("WIREPATH_STATE", data.file("state"));
        command
    };
    let whole = succeed(tune(&["plan", "--profile", "latency", "--interface", "va"]));
    // One step of it: others are settings of the whole machine.
    let header = whole.split("[[").next().expect("a header");
    let steps = || whole.split("[[step]]").skip(1).filter_map(|step| step.split("[[").next());
    let step = steps().find(|step| step.contains("rps-cpus")).unwrap_or_else(|| panic!("{whole}"));
    let plan = data.file("plan.toml");
    fs::write(&plan, format!("{header}[[step]]{step}")).expect("written");
    let (far, before) = (format!("netns:{}", spaces.far), near_packets(&spaces));
    let args = ["prove", &plan, "--far", &far, "--load", "flood", "--json"];
    let document = json(tune(&[&args[..], &SHORT].concat()));
    let after = near_packets(&spaces);
    assert!(after[0] - before[0] > 100 * (after[1] - before[1]), "{before:?} {after:?}");
    assert_eq!(document["load"]["direction"], "receive");
    assert_eq!(document["load"]["interface"], "va");
    assert_complete(&document, "baseline");
    assert_complete(&document, "plan");
    assert_eq!(near(&format!("cat {FILE}")).trim(), "1", "rolled back");
    assert_far_end_gone(&spaces, &[]);
}

#[test]
fn ssh_gives_complete_measurements_with_an_installed_and_with_a_copied_program() {
    for (path, is_copied) in [("BIN:/usr/bin:/bin", false), (SYSTEM_PATH, true)] {
        let Some(sshd) = Sshd::start(path) else { return };
        let args =
            ["--load", "ping", "--arms", "bypass", "--json", "--time", "60s", "--no-history"];
        let args = [&args[..], &["--trial", "50ms", "--max-blocks", "6"]].concat();
        let running = Running::start(sshd.prove("user", "known", &args));
        assert!(until(LONG, || far_peer(&sshd.spaces).is_some()), "{}", running.stderr());
        let peer = far_peer(&sshd.spaces).expect("it runs");
        let image = fs::read_link(format!("/proc/{peer}/exe")).expect("a link");
        let image = image.to_string_lossy().into_owned();
        assert_eq!(image.ends_with("(deleted)"), is_copied, "{image}");
        let output = running.finish(LONG * 3).expect("it ends");
        assert!(output.status.success(), "{}", all_text(&output));
        let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
        for name in ["baseline", "bypass"] {
            assert_complete(&document, name);
        }
        assert_eq!(document["load"]["far"], format!("ssh:root@{FAR_IP}"));
        sshd.assert_nothing_left();
    }
}

#[test]
fn ssh_leaves_nothing_when_either_side_is_killed() {
    let Some(sshd) = Sshd::start(SYSTEM_PATH) else { return };
    for victim in ["near", "session"] {
        let args = ["--load", "ping", "--arms", "bypass", "--no-history"];
        let mut near = Running::start(sshd.prove("user", "known", &[&args[..], &ENDLESS].concat()));
        assert!(
            until(LONG * 2, || near.has_ended()
                || far_peer(&sshd.spaces).is_some() && has_program(&sshd.spaces)),
            "{}",
            near.stderr()
        );
        assert!(!near.has_ended(), "{}", near.stderr());
        let client = near.holdings();
        match victim {
            "near" => drop(near.end_by("KILL", LONG)),
            _ => {
                let daemons = sshd.session().into_iter();
                let daemons = daemons.filter(|pid| command_line(*pid).starts_with("sshd:"));
                for pid in daemons {
                    let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
                }
                let output = near.finish(LONG).expect("it ends");
                let said = all_text(&output);
                assert_eq!(output.status.code(), Some(1), "{said}");
                assert!(said.contains("the far end ssh:root@"), "{said}");
            }
        }
        client.assert_gone();
        sshd.assert_nothing_left();
    }
}

#[test]
fn ssh_errors_name_the_host_and_the_remedy() {
    let Some(sshd) = Sshd::start(SYSTEM_PATH) else { return };
    let refused = |key: &str, known: &str| {
        let said = fail(sshd.prove(key, known, &SHORT), 1);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(&format!("cannot reach root@{FAR_IP} by ssh")), "{said}");
        said
    };
    assert!(refused("user", "empty").contains(&format!("connect once by `ssh root@{FAR_IP}`")));
    assert!(refused("other", "known").contains("--ssh-option IdentityFile=FILE"));
    let nowhere = run(prove(&sshd.spaces, &["--far", "ssh:no-such-host.invalid"], &SHORT));
    assert!(all_text(&nowhere).contains("check the name"), "{}", all_text(&nowhere));
    sshd.assert_nothing_left();
}

#[test]
fn far_host_that_writes_without_end_is_cut_off_and_takes_no_memory() {
    let data = Data::new();
    let folder = data.path().join("bin");
    fs::create_dir(&folder).unwrap();
    let client = folder.join("ssh");
    for (redirection, said) in
        [("", "a line of more than 8 MiB"), (">&2", "more than 32 MiB to its standard error")]
    {
        fs::write(&client, format!("#!/bin/sh\nexec cat /dev/zero {redirection}\n")).unwrap();
        fs::set_permissions(&client, fs::Permissions::from_mode(0o755)).unwrap();
        let args = ["prove", "probe", "--far", "ssh:nowhere", "--time", "5s", "--no-history"];
        let mut command = data.wirepath(&args);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", folder.display()));
        let (output, peak_bytes) = common::run_measured(command);
        assert_eq!(output.status.code(), Some(1), "{}", all_text(&output));
        assert!(all_text(&output).contains(said), "{}", all_text(&output));
        assert!(peak_bytes < 256 << 20, "{peak_bytes}");
    }
}
