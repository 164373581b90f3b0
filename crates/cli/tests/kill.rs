//! A command that ends in any way leaves no program, namespace, interface or child behind, and keeps
//! the trials that it has stored.

mod common;

use std::thread;
use std::time::Duration;

use common::dying::{SOON, peers_die_with_the_run, prove};
use common::{
    Data, FAR_IP, LONG, Running, Spaces, all_text, json, own_links, succeed, until, wirepath,
};

/// Waits for a few trials, and until the lab is in use.
fn await_trials(running: &mut Running, data: &Data, count: u64) {
    let saved = until(LONG, || running.has_ended() || data.trial_count() >= count);
    assert!(saved && !running.has_ended(), "{}", running.stderr());
}

/// Kills a run in the middle of a trial, and checks for leftovers.
fn kill_leaves_nothing_and_keeps_trials(args: &[&str], wants_program: bool) {
    let links = own_links();
    let data = Data::new();
    let mut running = prove(&data, args);
    await_trials(&mut running, &data, 4);
    // Programs come and go with the trials: poll until one is attached.
    let mut held = running.holdings();
    let seen = until(LONG, || {
        held = running.holdings();
        held.namespaces.len() >= 2 && (!wants_program || !held.programs.is_empty())
    });
    assert!(seen, "{args:?}: the check itself must be able to see a lab in use");
    running.end_by("KILL", LONG);
    held.assert_gone();
    assert_eq!(own_links(), links, "{args:?}");
    trials_are_kept(&data);
}

fn trials_are_kept(data: &Data) {
    let list = json(data.wirepath(&["history", "list", "--json"]));
    let row = &list["experiments"][0];
    assert_eq!(row["ended"], "unfinished", "{list}");
    let trials = row["trials"].as_u64().unwrap();
    assert!(trials >= 4, "{list}");
    let shown = succeed(data.wirepath(&["history", "show", "last"]));
    assert!(shown.contains(&format!("trials ({trials})")), "{shown}");
    assert!(!shown.contains("failed:"), "a trial failed: {shown}");
    let report = json(data.wirepath(&["report", "last", "--json"]));
    assert_eq!(report["ended"], "unfinished");
    assert!(!report["judged"].as_array().unwrap().is_empty(), "{report}");
    let text = succeed(data.wirepath(&["report", "last"]));
    assert!(text.contains("baseline") || text.contains("old"), "{text}");
}

#[test]
fn a_namespace_held_open_is_seen_after_its_owner_ends() {
    let data = Data::new();
    let mut running = prove(&data, &["probe", "--load", "ping", "--arms", "spin"]);
    await_trials(&mut running, &data, 1);
    let held = running.holdings();
    let theirs = held.namespaces.len();
    assert!(theirs >= 2 && held.links().len() > theirs, "{:?}", held.links());
    let other = running.namespaces().pop();
    running.end_by("KILL", LONG);
    // The held namespace keeps its loopback; the others are removed.
    assert!(until(LONG, || held.links().len() <= 2), "{:?}", held.links());
    assert!(held.links().contains(&"lo".to_owned()), "{:?}", held.links());
    drop(other);
    held.assert_gone();
}

#[test]
fn a_killed_ping_run_leaves_nothing() {
    kill_leaves_nothing_and_keeps_trials(
        &["probe", "--load", "ping", "--arms", "spin+bypass"],
        true,
    );
}

#[test]
fn a_killed_flood_run_leaves_nothing() {
    let args = ["probe", "--load", "flood", "--arms", "bypass+native,no-idle-states+pin+rps"];
    kill_leaves_nothing_and_keeps_trials(&args, true);
}

#[test]
fn a_killed_run_of_several_processes_leaves_nothing() {
    let program = env!("CARGO_BIN_EXE_wirepath");
    for (option, value) in [("--against", program), ("--runs", "3")] {
        let args = ["probe", "--load", "ping", "--arms", "spin+bypass", option, value];
        kill_leaves_nothing_and_keeps_trials(&args, true);
    }
}

#[test]
fn an_interrupted_series_ends_with_the_run_that_it_was_in() {
    let data = Data::new();
    let mut running = prove(&data, &["fake", "--arms", "fast", "--trial", "10ms", "--runs", "3"]);
    await_trials(&mut running, &data, 9);
    let output = running.end_by("INT", SOON);
    assert_eq!(output.status.code(), Some(130), "{}", all_text(&output));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("So far: ") && said.contains("ratio over 1 run"), "{said}");
    let list = json(data.wirepath(&["history", "list", "--json"]));
    assert_eq!(list["experiments"].as_array().unwrap().len(), 1);
}

#[test]
fn a_killed_storm_run_leaves_nothing() {
    // Receivers need no program; the one that is seen is the generator.
    kill_leaves_nothing_and_keeps_trials(&["probe", "--load", "storm", "--arms", "spin"], true);
}

#[test]
fn a_killed_simulated_run_keeps_its_trials() {
    let data = Data::new();
    let mut running = prove(&data, &["fake", "--trial", "20ms"]);
    await_trials(&mut running, &data, 12);
    let held = running.holdings();
    running.end_by("KILL", LONG);
    held.assert_gone();
    trials_are_kept(&data);
}

#[test]
fn sockperf_dies_with_the_run() {
    let args = ["probe", "--load", "ping", "--arms", "spin", "--peers", "sockperf"];
    peers_die_with_the_run(&args, "sockperf", " -p ");
}

#[test]
fn iperf3_dies_with_the_run() {
    let args = ["probe", "--load", "flood", "--arms", "spin", "--peers", "iperf3"];
    peers_die_with_the_run(&args, "iperf3", " -p ");
}

#[test]
fn an_interrupted_run_reports_its_results() {
    for signal in ["INT", "TERM"] {
        for args in [
            &["fake", "--arms", "fast", "--trial", "10ms"][..],
            &["probe", "--load", "ping", "--arms", "spin+bypass", "--trial", "50ms"],
        ] {
            let data = Data::new();
            let mut running = prove(&data, args);
            // The warm-up and two blocks of baseline, control and variant.
            await_trials(&mut running, &data, 9);
            let held = running.holdings();
            let output = running.end_by(signal, SOON);
            assert_eq!(output.status.code(), Some(130), "{signal} {args:?}: {}", all_text(&output));
            let said = String::from_utf8(output.stdout).unwrap();
            assert!(said.contains("baseline") && said.contains("So far: "), "{said}");
            held.assert_gone();
            let list = json(data.wirepath(&["history", "list", "--json"]));
            assert_eq!(list["experiments"][0]["ended"], "interrupted");
        }
    }
}

/// `prove command` with two programs, until it is ended.
fn prove_programs(data: &Data, client: &str, more: &[&str]) -> Running {
    let [a, b] = ["a", "b"].map(|name| format!("{name}={client}"));
    let arms = ["prove", "command", "--arm", &a, "--arm", &b];
    let limits = ["--time", "300s", "--min-blocks", "100"];
    let mut command = data.wirepath(&[&arms[..], more, &limits].concat());
    command.env("WIREPATH_STATE", data.file("state"));
    Running::start(command)
}

#[test]
fn a_run_that_is_interrupted_before_its_first_block_has_ended_says_so_in_one_line() {
    for more in [&[][..], &["--json"], &["--runs", "2"], &["--fail-on", "worse"], &["compare"]] {
        let data = Data::new();
        let mut running = if more == ["compare"] {
            let args = ["compare", "sleep 100", "sleep 100", "--time", "300s"];
            Running::start(data.wirepath(&args))
        } else {
            prove_programs(&data, "sleep 100", more)
        };
        let is_seen = until(LONG, || {
            let descendants = running.descendants();
            running.has_ended() || descendants.iter().any(|(_, line)| line.starts_with("sleep 100"))
        });
        assert!(is_seen, "{more:?}");
        let held = running.holdings();
        let output = running.end_by("INT", SOON);
        held.assert_gone();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(130), "{more:?}: {}", all_text(&output));
        assert!(output.stdout.is_empty(), "{more:?}: {}", all_text(&output));
        let last = said.lines().last().unwrap_or_default();
        let line = "error: interrupted before the first block ended; nothing is known yet";
        assert_eq!(last, line, "{more:?}: {said}");
        assert!(!said.contains("next:") && !said.contains("stored"), "{more:?}: {said}");
    }
}

#[test]
fn an_interrupted_run_of_programs_shows_its_result_and_how_to_go_on_with_it() {
    let data = Data::new();
    // A gate that may be decided at that moment changes nothing.
    let mut running = prove_programs(&data, "sleep 0.01", &["--fail-on", "worse"]);
    await_trials(&mut running, &data, 12);
    let output = running.end_by("INT", SOON);
    assert_eq!(output.status.code(), Some(130), "{}", all_text(&output));
    let (result, said) = (String::from_utf8(output.stdout).unwrap(), output.stderr);
    let said = String::from_utf8(said).unwrap();
    assert!(result.contains("So far: "), "{result}");
    assert!(said.contains("next: wirepath prove command --resume "), "{said}");
    assert!(said.lines().last().unwrap().contains("interrupted after "), "{said}");
    let list = json(data.wirepath(&["history", "list", "--json"]));
    assert_eq!(list["experiments"][0]["ended"], "interrupted");
}

#[test]
fn a_series_that_is_interrupted_between_two_runs_shows_those_that_ended() {
    let data = Data::new();
    let short = ["fake", "--arms", "fast", "--trial", "5ms", "--max-blocks", "6", "--time", "60s"];
    let args = [&["prove"], &short[..], &["--runs", "3", "--every", "1h"]].concat();
    let running = Running::start(data.wirepath(&args));
    let has_ended = until(LONG, || {
        let list = succeed(data.wirepath(&["history", "list", "--json"]));
        list.contains("\"ended\": \"block-limit\"")
    });
    assert!(has_ended, "{}", running.stderr());
    // The next run begins in an hour.
    thread::sleep(Duration::from_millis(500));
    let output = running.end_by("INT", SOON);
    assert_eq!(output.status.code(), Some(130), "{}", all_text(&output));
    let result = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(result.contains("ratio over 1 run"), "{result}");
    assert!(all_text(&output).contains("interrupted after 1 of 3 runs"), "{}", all_text(&output));
}

#[test]
fn a_second_signal_ends_the_process() {
    let data = Data::new();
    let mut running = prove(&data, &["fake", "--arms", "fast", "--trial", "60s"]);
    assert!(
        until(LONG, || !succeed(data.wirepath(&["history"])).contains("no experiments"))
            && !running.has_ended()
    );
    running.signal("INT");
    // Two signals that arrive together count as one.
    thread::sleep(Duration::from_millis(300));
    assert!(!running.has_ended(), "the first waits for the trial");
    let output = running.end_by("INT", SOON);
    assert_eq!(output.status.code(), Some(130), "{}", all_text(&output));
}

#[test]
fn a_killed_generator_leaves_nothing() {
    for signal in ["KILL", "INT", "TERM"] {
        let links = own_links();
        let running =
            Running::start(wirepath(&["probe", "generate", "--lab", "--time", "300s", "--json"]));
        let mut held = running.holdings();
        let seen = until(LONG, || {
            held = running.holdings();
            held.namespaces.len() >= 2 && held.programs.len() >= 3
        });
        assert!(seen, "{}: {}", held.programs.len(), running.stderr());
        // Programs are there before the first frame. The kernel sends some frames of its own.
        let sends = || held.received_count() > 1_000;
        assert!(until(LONG, sends), "{signal}: nothing sent: {}", running.stderr());
        let output = running.end_by(signal, SOON);
        held.assert_gone();
        assert_eq!(own_links(), links);
        if signal != "KILL" {
            assert_eq!(output.status.code(), Some(0), "{}", all_text(&output));
            let doc: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(doc["sent_count"].as_u64() > Some(0));
            assert_eq!(doc["sent_count"], doc["counted_at_far_end"]);
        }
    }
}

#[test]
fn killed_near_and_far_ends_leave_no_program() {
    let spaces = Spaces::new();
    for (role, engine) in [
        ("echo", &["--arm", "bypass"][..]),
        ("echo", &["--arm", "spin+bypass+native"]),
        ("receive", &["--arm", "bypass"]),
        ("echo", &["--packet"]),
        ("echo", &[]),
    ] {
        let xdp = engine.iter().any(|word| word.contains("bypass"));
        let mut args = vec!["probe", role, "-i", "vb"];
        args.extend(engine);
        for signal in ["KILL", "INT", "TERM"] {
            let mut far = Running::start(spaces.far(&args));
            far.await_stderr("listening on ");
            if xdp {
                assert!(
                    until(LONG, || spaces.far_link().contains("prog/xdp")),
                    "the check cannot see programs"
                );
            }
            let near_role = if role == "echo" { "ping" } else { "send" };
            let mut args =
                vec!["probe", near_role, FAR_IP, "--no-peer", "--time", "300s", "--rate", "1000"];
            args.extend(engine);
            let near = Running::start(spaces.near(&args));
            if xdp && role == "echo" {
                assert!(
                    until(LONG, || spaces.near_link().contains("prog/xdp")),
                    "{}",
                    near.stderr()
                );
            }
            thread::sleep(Duration::from_millis(300));
            for (what, end) in [("near", near), ("far", far)] {
                let held = end.holdings();
                assert_eq!(held.programs.is_empty(), !xdp || (role, what) == ("receive", "near"));
                let output = end.end_by(signal, SOON);
                if signal != "KILL" {
                    assert_eq!(output.status.code(), Some(0), "{}", all_text(&output));
                    let books = String::from_utf8_lossy(&output.stdout).into_owned();
                    assert!(books.contains(" sent "), "{what} {args:?}: {books}");
                    assert!(!books.contains("sent 0"), "{what} {args:?}: {books}");
                }
                held.assert_gone();
            }
            for link in [spaces.near_link(), spaces.far_link()] {
                assert!(!link.contains("xdp"), "{role} {engine:?} {signal}: {link}");
            }
        }
    }
}

#[test]
fn a_killed_peer_leaves_no_program() {
    let spaces = Spaces::new();
    for signal in ["KILL", "TERM"] {
        let peer = spaces.peer(&[]);
        let near = Running::start(spaces.near(&[
            "probe",
            "ping",
            FAR_IP,
            "--arm",
            "spin+bypass+native",
            "--time",
            "300s",
        ]));
        assert!(
            until(LONG, || spaces.far_link().contains("xdp") && spaces.near_link().contains("xdp")),
            "{}",
            near.stderr()
        );
        let held = peer.holdings();
        assert!(!held.programs.is_empty());
        peer.end_by(signal, SOON);
        held.assert_gone();
        let output = near.finish(SOON).expect("the near end ends with its peer");
        assert_eq!(output.status.code(), Some(1), "{}", all_text(&output));
        assert!(
            until(LONG, || !spaces.far_link().contains("xdp")
                && !spaces.near_link().contains("xdp")),
            "{} {}",
            spaces.far_link(),
            spaces.near_link()
        );
    }
}
