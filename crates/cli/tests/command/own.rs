//! Servers and clients of our own, whose differences are known.

use super::*;
use crate::common::echo::{METRIC, PING, SERVER as ECHO};
use crate::common::{all_text, fail, is_installed, run, succeed};

fn udp<'a>(client: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["--ready", "udp", "--client", client, "--metric", METRIC], more].concat()
}

#[test]
fn a_server_that_works_longer_is_worse_by_as_much_and_fails_the_threshold() {
    if !is_installed("python3") {
        return;
    }
    let data = Data::new();
    let (echo, ping) = (script(&data, "echo.py", ECHO), script(&data, "ping.py", PING));
    let (main, slow) = (format!("main={echo}"), format!("slow={echo} 400"));
    let arms = ["--arm", &main, "--arm", &slow, "--fail-on", "worse", "--json"];
    let output = run(prove(&data, &udp(&ping, &arms)));
    assert_eq!(output.status.code(), Some(4), "{}", all_text(&output));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("p50: slow is") && said.contains("slower than main"), "{said}");
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(names(&outcome), ["main", "main again", "slow"]);
    assert_no_failure(&outcome);
    let p50 = &arm(&outcome, "slow")["metrics"]["p50_us"];
    assert_eq!(
        (&p50["unit"], &p50["better"], &p50["verdict"]),
        (&"us".into(), &"lower".into(), &"worse".into())
    );
    let more = median(&outcome, "slow", "p50_us") - median(&outcome, "main", "p50_us");
    assert!((200.0..2_000.0).contains(&more), "400 µs of work, {more} µs seen");
    // 300 round trips of 400 µs.
    let cpu = |of| median(&outcome, of, "server_cpu_ns");
    assert!(cpu("slow") > cpu("main") + 60e6, "{} {}", cpu("slow"), cpu("main"));
    assert!(median(&outcome, "main", "interface_packet_count") >= 600.0);
    assert!(median(&outcome, "main", "cpu_ns_per_packet") > 0.0);
    assert!(median(&outcome, "main", "client_wall_ns") > 0.0);
    // The report says which command repeats it, and what was compared.
    let text = succeed(data.wirepath(&["report", "last"]));
    assert!(text.contains("p50") && text.contains("slow"), "{text}");
    assert_eq!(outcome["load"]["client"], ping.as_str());
}

#[test]
fn a_server_is_judged_against_the_old_one_and_fails_only_if_it_is_worse() {
    if !is_installed("python3") {
        return;
    }
    let data = Data::new();
    let (echo, ping) = (script(&data, "echo.py", ECHO), script(&data, "ping.py", PING));
    let slow = format!("exec {echo} 400");
    let against = |old: &str, new: &str| {
        let more = ["--against", old, "--server", new, "--fail-on", "worse", "--json"];
        let output = run(prove(&data, &udp(&ping, &more)));
        let outcome: Value = serde_json::from_slice(&output.stdout).expect("a document");
        assert_eq!(names(&outcome), ["old", "old again", "new"]);
        assert_no_failure(&outcome);
        (outcome, output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // On a busy machine a run may find that the old server differs from itself, and then decides nothing.
    let is_found_worse = |_| {
        let (outcome, code, said) = against(&echo, &slow);
        assert_eq!(arm(&outcome, "new")["metrics"]["p50_us"]["verdict"], "worse", "{said}");
        match code {
            Some(4) => {
                assert!(said.contains("slower than old"), "{said}")
            }
            _ => assert!(code == Some(5) && said.to_lowercase().contains("not decided"), "{said}"),
        }
        code == Some(4)
    };
    assert!((0..RUNS_MAX).any(is_found_worse), "no verdict in {RUNS_MAX} runs");
    // The other way round it is better by as much.
    let (outcome, code, said) = against(&slow, &echo);
    assert_ne!(code, Some(4), "{said}");
    assert_eq!(arm(&outcome, "new")["metrics"]["p50_us"]["verdict"], "better");
}

#[test]
fn arms_of_a_file_are_all_judged_against_the_old_command() {
    let data = Data::new();
    let file = data.file("experiment.toml");
    let text = "metrics = ['score=re:score ([0-9]+) higher']\n\
                [[arm]]\nname = 'one'\ncommand = 'echo score 100'\n\
                [[arm]]\nname = 'two'\ncommand = 'echo score 400'\n";
    fs::write(&file, text).unwrap();
    let against = ["--against", "echo score 200"];
    let outcome = proven(&data, &[&[file.as_str()], &against[..]].concat());
    assert_eq!(names(&outcome), ["old", "old again", "one", "two"]);
    for (name, verdict, ratio) in [("one", "worse", 0.5), ("two", "better", 2.0)] {
        let score = &arm(&outcome, name)["metrics"]["score"];
        assert_eq!(score["verdict"], verdict, "{name}");
        assert!((score["ratio"].as_f64().unwrap() - ratio).abs() < 1e-9, "{score}");
    }
    // The file may name it, too.
    fs::write(&file, format!("against = 'echo score 200'\n{text}")).unwrap();
    let checked = succeed(prove(&data, &[&file, "--check"]));
    for name in ["old", "old again", "one", "two"] {
        assert!(checked.contains(&format!("arm     {name}\n")), "{checked}");
    }
    let mixed = fail(prove(&data, &[&file, "--switch", "env:S=1"]), 2);
    assert!(mixed.contains("--against") && mixed.contains("--switch"), "{mixed}");
    let alone = fail(prove(&data, &["--against", "true", "--client", "true"]), 2);
    assert!(alone.contains("--server"), "{alone}");
}

#[test]
fn arms_by_environment_share_a_server_and_one_alone_is_a_variant_of_it() {
    if !is_installed("python3") {
        return;
    }
    let data = Data::new();
    let (echo, ping) = (script(&data, "echo.py", ECHO), script(&data, "ping.py", PING));
    let args = udp(&ping, &["--server", &echo, "--arm", "slow:WORK_US=400", "--keep-servers"]);
    let outcome = proven(&data, &args);
    assert_eq!(names(&outcome), ["baseline", "baseline again", "slow"]);
    assert_no_failure(&outcome);
    let ratio = arm(&outcome, "slow")["metrics"]["p50_us"]["ratio"].as_f64();
    assert!(ratio > Some(1.5), "{ratio:?}");
    // The server of an arm is kept, so that no trial waits for it, and is started anew after some.
    let starts = outcome["trust"]["starts"][0]["starts"].as_u64();
    assert!((Some(2)..=Some(4)).contains(&starts), "{starts:?}");
    assert!(arm(&outcome, "slow")["metrics"]["server_ready_ns"].is_null());
}

/// Runs of which one must decide, or tell the cost of the trace.
const RUNS_MAX: usize = 5;

#[test]
fn stages_of_an_unmodified_server_are_timed_and_their_cost_is_told() {
    if !is_installed("python3") {
        return;
    }
    let data = Data::new();
    let (echo, ping) = (script(&data, "echo.py", ECHO), script(&data, "ping.py", PING));
    let more =
        ["--server", &echo, "--arm", "b:X=1", "--stages", "--metric", "socket_to_read_ns_p50"];
    let args = [&udp(&ping, &more)[..], &["--json"]].concat();
    // The cost is counted in windows: a trial that has no packet in one cannot tell it, nor can its run.
    let mut has_cost = false;
    for _ in 0..RUNS_MAX {
        let output = run(prove(&data, &args));
        let said = all_text(&output);
        if said.contains("not supported here") {
            return testkit::skip("kernel", "no stage latencies");
        }
        assert!(output.status.success(), "{said}");
        let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_no_failure(&outcome);
        for stage in ["driver_to_socket_ns_p50", "socket_to_read_ns_p50"] {
            assert!(median(&outcome, "b", stage) > 0.0, "{stage}");
        }
        // 300 datagrams in each trial.
        let timed = arm(&outcome, "b")["counters"]["stage_packet_count"].as_u64().unwrap();
        assert_eq!(timed, 300 * outcome["blocks"].as_u64().unwrap());
        let cost = &arm(&outcome, "b")["metrics"]["stage_trace_ns_per_packet"]["median"];
        has_cost = cost.as_f64().is_some_and(|ns| ns > 0.0);
        if has_cost {
            break;
        }
    }
    assert!(has_cost, "no cost in {RUNS_MAX} runs");
}

#[test]
fn switches_by_environment_make_a_ladder() {
    if !is_installed("python3") {
        return;
    }
    let data = Data::new();
    let (echo, ping) = (script(&data, "echo.py", ECHO), script(&data, "ping.py", PING));
    let switches = ["--server", &echo, "--switch", "env:OTHER=1", "--switch", "env:WORK_US=400"];
    let outcome = proven(&data, &udp(&ping, &switches));
    assert_eq!(names(&outcome), ["baseline", "baseline again", "+env:OTHER=1", "+env:WORK_US=400"]);
    let more = |of| median(&outcome, of, "p50_us") - median(&outcome, "baseline", "p50_us");
    assert!(more("+env:WORK_US=400") > 200.0 && more("+env:OTHER=1") < 200.0, "{outcome:#}");
}

#[test]
fn programs_without_a_server_are_compared_by_what_they_print() {
    let data = Data::new();
    let metric = "score=re:score ([0-9]+) higher";
    let args = ["--arm", "one=echo score 100", "--arm", "two=echo score 200", "--metric", metric];
    let outcome = proven(&data, &args);
    assert_no_failure(&outcome);
    let score = &arm(&outcome, "two")["metrics"]["score"];
    assert_eq!(score["verdict"], "better");
    assert!((score["ratio"].as_f64().unwrap() - 2.0).abs() < 1e-9, "{score}");
    // Without a server no packet is counted.
    assert_eq!(outcome["judged"], serde_json::json!(["score"]));
}

#[test]
fn commands_know_their_place_and_run_in_order() {
    let data = Data::new();
    let log = data.file("log");
    let step = |name: &str| {
        format!("echo {name} $WIREPATH_ARM $WIREPATH_TRIAL $WIREPATH_FAR $WIREPATH_PORT >>{log}")
    };
    let (setup, warmup, cleanup) = (step("setup"), step("warmup"), step("cleanup"));
    let server = format!("{}; echo up; exec sleep 1000", step("server"));
    let client = format!("{}; echo rps 5", step("client"));
    let args = [
        "--server",
        &server,
        "--client",
        &client,
        "--setup",
        &setup,
        "--cleanup",
        &cleanup,
        "--warmup",
        &warmup,
        "--ready",
        "line:up",
        "--metric",
        "rps=re:rps ([0-9]+)",
        "--arm",
        "b:X=1",
        "--port",
        "7001",
    ];
    assert_no_failure(&proven(&data, &args));
    let log = fs::read_to_string(log).unwrap();
    let lines: Vec<Vec<&str>> = log.lines().map(|line| line.split(' ').collect()).collect();
    for (trial, lines) in (1..).zip(lines.chunks(5)) {
        let steps: Vec<&str> = lines.iter().map(|line| line[0]).collect();
        assert_eq!(steps, ["setup", "server", "warmup", "client", "cleanup"]);
        for line in lines {
            let rest = &line[line.len() - 3..];
            assert_eq!(rest, [&trial.to_string(), "10.77.0.2", "7001"], "{line:?}");
        }
    }
    assert!(lines.len() >= 5 * 3 * 7, "a warm-up block and six: {}", lines.len());
}

#[test]
fn an_experiment_file_says_the_same_and_check_finds_its_mistakes() {
    let data = Data::new();
    let file = data.file("experiment.toml");
    let text = "metrics = ['score=re:score ([0-9]+) higher']\n\
                [[arm]]\nname = 'one'\ncommand = 'echo score 100'\n\
                [[arm]]\nname = 'two'\ncommand = 'echo score $S'\nenv = { S = '50' }\n";
    fs::write(&file, text).unwrap();
    let outcome = proven(&data, &[&file]);
    assert_eq!(median(&outcome, "two", "score"), 50.0);
    let checked = succeed(prove(&data, &[&file, "--check"]));
    assert!(checked.contains("nothing was run") && checked.contains("judged  score"), "{checked}");
    let document = json(prove(&data, &[&file, "--check", "--json"]));
    assert_eq!(document["arm"][1]["env"]["S"], "50");
    fs::write(&file, text.replace("echo score 100", "wirepath-no-such-program")).unwrap();
    let said = fail(prove(&data, &[&file, "--check"]), 2);
    assert!(said.contains("arm one") && said.contains("not installed"), "{said}");
    fs::write(&file, format!("cleint = 'x'\n{text}")).unwrap();
    assert!(fail(prove(&data, &[&file]), 2).contains("cleint"));
    let missing = fail(prove(&data, &["--server", "true"]), 2);
    assert!(missing.contains("second --arm"), "{missing}");
    let schema = json(data.wirepath(&["schema", "prove", "command", "file"]));
    assert!(schema["properties"]["ready-within"].is_object(), "{schema:#}");
}
