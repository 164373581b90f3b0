//! The command line on the simulated path, which needs no privileges.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use common::contained::{WrongSizes, assert_contained, assert_file_is_contained};
use common::{
    Data, LONG, QUICK, Running, all_text, fail, json, run, run_measured, succeed, wirepath,
};
use serde_json::Value;
use testkit::hostile;

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn set<'a>(names: &[&'a str]) -> BTreeSet<&'a str> {
    names.iter().copied().collect()
}

/// Every C0 and C1 control character, DEL, and sequences that retitle, clear or recolor a terminal.
fn hostile() -> String {
    let controls = ('\x01'..='\x1f').chain('\x7f'..='\u{9f}').collect::<String>();
    format!("\x1b]0;owned\x07\x1b[2J\u{9b}31m\u{9d}0;owned\u{9c}{controls}\u{202e}")
}

fn assert_harmless(what: &str, output: &std::process::Output) {
    let (out, err) = (&output.stdout, &output.stderr);
    for text in [std::str::from_utf8(out).unwrap(), std::str::from_utf8(err).unwrap()] {
        let bad: Vec<char> =
            text.chars().filter(|c| c.is_control() && !matches!(*c, '\n' | '\t')).collect();
        assert!(bad.is_empty() && !text.contains('\u{202e}'), "{what}: {bad:?} in {text}");
    }
    let text = all_text(output);
    assert!(text.contains("owned"), "{what} shows it: {text}");
}

#[test]
fn text_of_files_and_far_ends_cannot_drive_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    let quoted = |text: &str| serde_json::to_string(text).unwrap();
    let head = format!(
        "schema = 1\nmachine = \"x\"\nprofile = \"x\"\nnetns = {}\n",
        quoted(&format!("/{}", hostile())).replace('\u{7f}', "\\u007f")
    );
    for text in [head, format!("{} = 1\n", quoted("\x1b]0;owned\x07"))] {
        fs::write(&plan, text).unwrap();
        let command = wirepath(&["tune", "apply", plan.to_str().unwrap(), "--dry-run"]);
        assert_harmless("a plan", &run(command));
    }
    // A far end that answers with text of its own.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let hello = r#"{"wirepath_peer":5,"version":"x","challenge":"00","secret":false}"#;
    let answer = format!("{hello}\n{{\"error\":{{\"why\":{}}}}}\n", quoted(&hostile()));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            use std::io::Write;
            let mut stream = stream.unwrap();
            let _ = stream.write_all(answer.as_bytes());
            let _ = stream.read(&mut [0; 4096]);
        }
    });
    for more in [&[][..], &["--json"]] {
        let args = ["probe", "ping", "127.0.0.1", "-c", "5", "--peer-port", &port];
        let output = run(wirepath(&[&args[..], more].concat()));
        assert_eq!(output.status.code(), Some(1));
        assert_harmless("a far end", &output);
    }
}

/// Files of a stranger: the document, and the commands that read it as `FILE`.
fn files_of_a_stranger() -> Vec<(&'static str, Value, Vec<Vec<&'static str>>)> {
    let plan = serde_json::json!({
        "schema": 1, "machine": "0123456789ab", "profile": "latency", "interface": "eth0",
        "driver": "veth", "netns": "blue",
        "step": [{ "knob": "gro", "target": "interface eth0", "seen": "off", "value": "on", "reason": "a reason" }],
        "left-out": [{ "knob": "rings", "why": "not offered" }],
    });
    let experiment = serde_json::json!({
        "client": "bench $WIREPATH_HOST", "server": "serve", "ready": "line:ready", "setup": "prepare",
        "warmup": "200ms", "metrics": ["p99_us=re:p99 ([0-9]+) lower"], "near": "netns:blue",
        "far": "netns:red", "near-cpus": "0-1", "time": "10s", "grace": "3s", "within": "20s",
        "arm": [
            { "name": "main", "command": "./main", "env": { "GSO": "on" } },
            { "name": "changed", "command": "./changed", "switches": ["gro=off"] },
        ],
    });
    vec![
        (
            "plan",
            plan,
            vec![
                vec!["tune", "apply", "FILE", "--dry-run"],
                vec!["tune", "export", "FILE", "--to", "udev", "--out", "FOLDER"],
            ],
        ),
        ("experiment", experiment, vec![vec!["prove", "command", "FILE", "--check"]]),
    ]
}

#[test]
fn no_text_of_a_file_drives_the_terminal_or_becomes_a_line_of_its_own() {
    for (kind, document, commands) in files_of_a_stranger() {
        assert_file_is_contained(kind, &document, &commands);
    }
}

#[test]
fn no_text_of_a_list_of_hosts_a_result_or_a_far_end_drives_the_terminal() {
    let data = Data::new();
    succeed(data.wirepath(&QUICK));
    let result = json(data.wirepath(&["report", "last", "--json"]));
    let file_path = |name: &str| data.file(name);
    let mut runs = 0;
    for (name, text) in hostile::texts() {
        let mut contained = |args: &[&str]| {
            assert_contained(&run(wirepath(args)), &format!("{name}, {}", args.join(" ")));
            runs += 1;
        };
        let own = data.path().to_str().unwrap();
        for line in
            [text.clone(), format!("host-a {text} {text}"), format!("host-a address={text}")]
        {
            fs::write(file_path("hosts"), line).unwrap();
            contained(&[
                "fleet",
                "init",
                "--dir",
                &file_path("fleet"),
                "--hosts",
                &file_path("hosts"),
            ]);
        }
        let arm = result["arms"][2]["name"].as_str().unwrap();
        for field in ["fake", "id", arm, result["version"].as_str().unwrap(), "rtt_ns_p50"] {
            let field = if field == "id" { result["id"].as_str().unwrap() } else { field };
            let changed = hostile::replaced(&result, field, &text);
            fs::write(file_path("result.json"), changed.to_string()).unwrap();
            contained(&[
                "history",
                "compare",
                &file_path("result.json"),
                "last",
                "--data-dir",
                own,
            ]);
            let store = file_path(&format!("store-{name}"));
            contained(&["history", "import", &file_path("result.json"), "--data-dir", &store]);
            for shown in [
                &["history", "list"][..],
                &["history", "show", "last"],
                &["report", "last", "--json"],
            ] {
                contained(&[shown, &["--data-dir", &store]].concat());
            }
            for form in ["markdown", "github", "junit", "bencher", "openmetrics"] {
                contained(&["report", "last", "--format", form, "--data-dir", &store]);
            }
        }
    }
    testkit::note(&format!("{} texts: {runs} runs", hostile::texts().len()));
}

#[test]
fn the_json_document_has_the_documented_shape() {
    let data = Data::new();
    let doc = json(data.wirepath(&[&QUICK[..], &["--json", "--seed", "7"]].concat()));
    let documented = [
        "schema", "id", "started", "version", "machine", "path", "load", "seed", "blocks",
        "wall_ms", "ended", "looks", "looked", "resolve", "judged", "arms", "best", "floor",
        "trust", "schedule", "warnings",
    ];
    assert_eq!(keys(&doc), set(&documented));
    assert_eq!(doc["schema"], 2);
    assert_eq!(
        (&doc["path"], &doc["seed"], &doc["blocks"]),
        (&"fake".into(), &7.into(), &8.into())
    );
    assert_eq!(doc["load"]["kind"], "simulated");
    let of_machine = [
        "id",
        "kernel",
        "cpu",
        "cpus",
        "memory_bytes",
        "hypervisor",
        "governor",
        "nic",
        "load_x100",
        "notes",
    ];
    assert_eq!(keys(&doc["machine"]), set(&of_machine));

    let arms = doc["arms"].as_array().unwrap();
    let named = |name: &str| arms.iter().find(|a| a["name"] == name).unwrap();
    let kinds: Vec<_> = arms.iter().map(|a| a["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["baseline", "control", "variant", "variant", "variant"]);
    for arm in arms {
        let of_arm = [
            "name", "kind", "switches", "support", "trials", "metrics", "latency", "mode",
            "counters", "failures",
        ];
        assert_eq!(keys(arm), set(&of_arm));
        let of_metric =
            ["unit", "better", "median", "ratio", "low", "high", "p", "verdict", "trials"];
        for (name, metric) in arm["metrics"].as_object().unwrap() {
            let mut found = keys(metric);
            for optional in ["why", "p_adjusted", "finds", "tail"] {
                found.remove(optional);
            }
            assert_eq!(found, set(&of_metric), "{name}");
            assert!(["lower", "higher"].contains(&metric["better"].as_str().unwrap()));
        }
    }
    assert_eq!(named("fast")["switches"], serde_json::json!(["fast"]));
    assert_eq!(named("fast")["trials"], 8);
    assert_eq!(named("absent")["support"]["status"], "unsupported");
    assert_eq!(named("absent")["trials"], 0);
    // The effects are known: minus and plus 30 %.
    let verdict = |name: &str| named(name)["metrics"]["rtt_ns_p50"]["verdict"].clone();
    assert_eq!((verdict("fast"), verdict("harmful")), ("better".into(), "worse".into()));
    assert!(named("baseline")["metrics"]["rtt_ns_p50"]["ratio"].is_null());
    let floor = &doc["floor"]["rtt_ns_p50"];
    assert!(floor["low"].as_f64() <= floor["high"].as_f64(), "{floor}");
    for warning in doc["warnings"].as_array().unwrap() {
        assert_eq!(keys(warning), set(&["what", "advice"]));
    }
    // The stored document equals the printed one.
    assert_eq!(json(data.wirepath(&["report", "last", "--json"])), doc);
    assert_eq!(json(data.wirepath(&["history", "show", "last", "--json"])), doc);
}

/// Arms in the order of their trials.
fn order(data: &Data) -> Vec<String> {
    let store = report::store::SqliteStore::open(data.path().join("history.db")).unwrap();
    let stored = report::store::Store::load(&store, "last").unwrap();
    stored.trials.into_iter().map(|t| t.arm).collect()
}

#[test]
fn a_seed_repeats_the_order_of_trials_and_another_changes_it() {
    let of_seed = |seed: &str| {
        let data = Data::new();
        succeed(data.wirepath(&[&QUICK[..], &["--seed", seed]].concat()));
        order(&data)
    };
    let first = of_seed("11");
    assert_eq!(first.len(), 9 * 4, "a warm-up and eight blocks of four arms that can run");
    assert_eq!(of_seed("11"), first);
    assert_ne!(of_seed("12"), first);
}

#[test]
fn invalid_arguments_exit_with_2_and_name_the_remedy() {
    let data = Data::new();
    let cases: [(&[&str], &[&str]); 23] = [
        (&["prove", "nosuch"], &["nosuch", "probe"]),
        (&["prove", "fake", "--load", "heavy"], &["heavy", "simulated"]),
        (&["prove", "fake", "--arms", "warp"], &["warp", "harmful"]),
        (&["prove", "fake", "--arms", "fast+fast+warp"], &["warp"]),
        (&["prove", "fake", "--peers", "netcat"], &["netcat", "fake-peer"]),
        (&["prove", "probe", "--peers", "netcat"], &["netcat", "iperf3, irtt, qperf, sockperf"]),
        (&["prove", "fake", "--time", "5parsecs"], &["parsecs", "use ms, s, m or h"]),
        (&["prove", "fake", "--time", "0s"], &["--time", "more than 0"]),
        (&["prove", "fake", "--max-blocks", "5"], &["--max-blocks 5", "fewer than 6 blocks"]),
        (
            &["prove", "fake", "--min-blocks", "9", "--max-blocks", "8"],
            &["--min-blocks 9", "--max-blocks 8"],
        ),
        (
            &["prove", "command", "--arm=a=true", "--arm=b=true", "--min-blocks", "5", "--check"],
            &["--min-blocks 5", "fewer than 6 blocks"],
        ),
        (&["prove", "probe", "--size", "23"], &["23 bytes", "--size between 24"]),
        (&["prove", "probe", "--size", "9000"], &["9000 bytes", "8972"]),
        (&["probe", "send", "127.0.0.1", "--size", "5"], &["--size 5", "24 bytes"]),
        (&["probe", "send", "127.0.0.1", "-N"], &["-N is now --arm bypass+native"]),
        (
            &["probe", "echo", "--engine", "xdp"],
            &["--engine is now --arm bypass for xdp, --packet"],
        ),
        (&["probe", "ping", "127.0.0.1", "--spin"], &["--spin is now --arm spin"]),
        (&["probe", "ping", "127.0.0.1", "--arm", "spin,batch"], &["joined by +", "spin+batch"]),
        (&["probe", "ping", "127.0.0.1", "--arm", "rps"], &["rps", "wirepath tune"]),
        (&["probe", "echo", "--packet", "--arm", "gso"], &["gso is not a switch of AF_PACKET"]),
        (&["probe", "echo", "--batch-size", "8"], &["--batch-size", "batch in --arm"]),
        (&["probe", "ping", "127.0.0.1", "--flows", "2"], &["one flow"]),
        (&["probe", "echo", "--arm", "bypass"], &["-i"]),
    ];
    for (args, wanted) in cases {
        let said = fail(data.wirepath(args), 2);
        assert!(said.starts_with("error: "), "{args:?}: {said}");
        for words in wanted {
            assert!(said.contains(words), "{args:?} should say {words:?}: {said}");
        }
        assert_eq!(said.trim_end().lines().count(), 1, "{args:?}: {said}");
    }
    assert!(!data.path().join("history.db").exists(), "nothing was begun");
}

#[test]
fn reports_of_unknown_experiments_are_refused_with_a_remedy() {
    let data = Data::new();
    for args in [["report", "last"], ["report", "20260101"]] {
        let said = fail(data.wirepath(&args), 2);
        assert!(said.contains("experiment"), "{said}");
    }
    assert!(
        fail(data.wirepath(&["report", "last"]), 2)
            .contains("`wirepath prove` runs and stores one")
    );
    assert!(succeed(data.wirepath(&["history"])).contains("no experiments yet"));
    succeed(data.wirepath(&QUICK));
    let said = fail(data.wirepath(&["report", "nosuch"]), 2);
    assert!(said.contains("nosuch") && said.contains("wirepath history"), "{said}");
    // The command that the message names works.
    assert!(succeed(data.wirepath(&["history"])).contains("fake"));
}

#[test]
fn a_data_folder_that_cannot_be_written_is_named_with_the_option() {
    let file = Data::new();
    let path = file.file("a-file");
    fs::write(&path, "not a folder").unwrap();
    // Root may write to read-only folders, but no user to /proc.
    for dir in [path.as_str(), "/proc/wirepath-test"] {
        let mut command = wirepath(&QUICK);
        command.args(["--data-dir", dir]);
        let said = fail(command, 1);
        assert!(said.contains(dir) && said.contains("--data-dir"), "{said}");
    }
    let data = Data::new();
    fs::write(data.path().join("history.db"), "this is no database, however long it is").unwrap();
    let said = fail(data.wirepath(&["history"]), 1);
    assert!(said.contains("history.db") && said.contains("move it away"), "{said}");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let data = Data::new();
    succeed(data.wirepath(&QUICK));
    for args in [&["report", "last"][..], &["paths"], &["--help"], &["completions", "zsh"]] {
        let mut child = data.wirepath(args).spawn().unwrap();
        // Closed before the first write.
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = child.wait().unwrap();
        assert!(status.success() && !said.contains("panicked"), "{args:?}: {status} {said}");
    }
}

#[test]
fn a_pipe_receives_plain_text_only() {
    let data = Data::new();
    let output = run(data.wirepath(&QUICK));
    assert!(!all_text(&output).contains('\u{1b}'), "{}", all_text(&output));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("stored as "), "no progress bar");
    for args in [&["report", "last"][..], &["history"], &["history", "show"], &["prove", "nosuch"]]
    {
        assert!(!all_text(&run(data.wirepath(args))).contains('\u{1b}'), "{args:?}");
    }
}

/// Runs a command on a terminal of 80 columns, with one environment variable set.
fn on_a_terminal(data: &Data, command: &str, setting: (&str, &str)) -> Option<String> {
    if !common::is_installed("script") {
        return None;
    }
    let program = env!("CARGO_BIN_EXE_wirepath");
    let line = format!("{program} {command} --data-dir {}", data.path().display());
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null());
    script.env("TERM", "xterm").env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
    script.env(setting.0, setting.1);
    Some(succeed(script))
}

#[test]
fn colour_is_for_terminals_and_no_color_switches_it_off() {
    let data = Data::new();
    succeed(data.wirepath(&QUICK));
    let coloured = |name, value| on_a_terminal(&data, "report last", (name, value));
    let (Some(shown), Some(plain)) = (coloured("A", "b"), coloured("NO_COLOR", "1")) else {
        return;
    };
    assert!(shown.contains('\u{1b}'), "the check itself must be able to see: {shown}");
    assert!(!plain.contains('\u{1b}'), "{plain}");
}

#[test]
fn a_terminal_without_utf8_gets_ascii_in_80_columns() {
    let data = Data::new();
    succeed(data.wirepath(&QUICK));
    for command in ["report last", "history list", "history show last", "paths"] {
        let (Some(plain), Some(rich)) = (
            on_a_terminal(&data, command, ("LC_ALL", "C")),
            on_a_terminal(&data, command, ("NO_COLOR", "1")),
        ) else {
            return;
        };
        assert!(plain.is_ascii(), "{command}: {plain}");
        let widest = rich.lines().map(|line| line.trim_end().chars().count()).max().unwrap_or(0);
        assert!((20..=80).contains(&widest), "{command}: {widest} columns\n{rich}");
    }
    let report = on_a_terminal(&data, "report last", ("NO_COLOR", "1")).unwrap_or_default();
    assert!(
        report.contains('×') && report.contains('–'),
        "the check must be able to see: {report}"
    );
}

#[test]
fn completions_and_man_pages_are_written() {
    for (shell, words) in [
        ("bash", "complete "),
        ("zsh", "#compdef wirepath"),
        ("fish", "complete -c"),
        ("elvish", "edit:completion"),
    ] {
        assert!(succeed(wirepath(&["completions", shell])).contains(words), "{shell}");
    }
    let data = Data::new();
    let dir = data.file("man1");
    succeed(wirepath(&["man", &dir]));
    for page in ["wirepath.1", "wirepath-prove.1", "wirepath-probe-ping.1"] {
        let text = fs::read_to_string(format!("{dir}/{page}")).expect(page);
        assert!(text.contains(".TH"), "{page}");
    }
    let said = fail(wirepath(&["man", "/proc/wirepath-test"]), 1);
    assert!(said.contains("/proc/wirepath-test"), "{said}");
}

#[test]
fn lists_parse_as_json() {
    let data = Data::new();
    succeed(data.wirepath(&QUICK));
    let list = json(data.wirepath(&["history", "list", "--json"]));
    let rows = list["experiments"].as_array().unwrap();
    assert_eq!((list["schema"].as_u64(), rows.len()), (Some(1), 1));
    assert_eq!((&rows[0]["path"], &rows[0]["ended"]), (&"fake".into(), &"block-limit".into()));
    assert_eq!(json(data.wirepath(&["history", "--json"])), list);
    let paths = json(wirepath(&["paths", "--json"]));
    let probe = &paths["paths"].as_array().unwrap()[0];
    assert_eq!(probe["name"], "probe");
    for path in paths["paths"].as_array().unwrap() {
        let name = path["name"].as_str().unwrap();
        let alone = json(wirepath(&["paths", name, "--json"]));
        assert_eq!(alone["paths"], serde_json::json!([path]));
        let text = succeed(wirepath(&["paths", name]));
        assert!(text.starts_with(&format!("{name}:")), "{text}");
    }
    for switch in probe["switches"].as_array().unwrap() {
        let status = switch["support"]["status"].as_str().unwrap();
        assert!(["yes", "unsupported"].contains(&status), "{switch}");
    }
}

#[test]
fn two_runs_at_once_share_a_data_folder() {
    let data = Data::new();
    let runs: Vec<_> = (0..2).map(|_| Running::start(data.wirepath(&QUICK))).collect();
    for run in runs {
        let output = run.finish(LONG).expect("ends");
        assert!(output.status.success(), "{}", all_text(&output));
    }
    let list = json(data.wirepath(&["history", "--json"]));
    let rows = list["experiments"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row["trials"] == 36 && row["ended"] == "block-limit"), "{list}");
    assert_ne!(rows[0]["id"], rows[1]["id"]);
}

#[test]
fn the_html_page_has_no_external_resources() {
    let data = Data::new();
    succeed(data.wirepath(&QUICK));
    let (html, csv) = (data.file("report.html"), data.file("report.csv"));
    succeed(data.wirepath(&["report", "last", "--html", &html, "--csv", &csv]));
    let page = fs::read_to_string(html).unwrap();
    assert!(page.contains("<svg") && page.contains("harmful"));
    let lower = page.to_lowercase();
    for fetch in
        ["src=", "href=\"http", "href='http", "url(http", "@import", "<script src", "<link"]
    {
        assert!(!lower.contains(fetch), "{fetch}");
    }
    // The XML namespace of SVG is a name and is not fetched.
    let rest = lower.replace("http://www.w3.org/", "");
    assert!(!rest.contains("http://") && !rest.contains("https://"));
    let mut lines = fs::read_to_string(csv).unwrap();
    lines.truncate(lines.find('\n').unwrap());
    assert!(lines.starts_with("id,path,arm,kind,switches"), "{lines}");
}

#[test]
fn every_help_ends_with_an_example() {
    fn check(path: &[String], seen: &mut usize) {
        let args: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let help = succeed(wirepath(&args));
        let example =
            help.split_once("\nExample:\n").unwrap_or_else(|| panic!("{args:?}: {help}")).1;
        for line in example.trim_end().lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words.first(), Some(&"wirepath"), "{args:?}: {line:?} in {help}");
        }
        *seen += 1;
        let Some((_, commands)) = help.split_once("\nCommands:\n") else { return };
        let commands = commands.lines().take_while(|line| !line.is_empty());
        // A line that goes on is further in.
        let commands = commands.filter_map(|line| line.strip_prefix("  "));
        let commands = commands.filter(|line| !line.starts_with(' '));
        for name in commands.filter_map(|line| line.split_whitespace().next()) {
            check(&[path, &[name.to_owned()]].concat(), seen);
        }
    }
    let mut seen = 0;
    check(&[], &mut seen);
    let all = succeed(wirepath(&["help", "all"]));
    let commands = all.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands: BTreeSet<&str> = commands.collect();
    for command in commands {
        check(&[command.to_owned()], &mut seen);
    }
    assert!(seen > 50, "{seen} helps");
}

/// Peak memory of a command in bytes.
fn peak_bytes(command: Command) -> u64 {
    let (output, peak_bytes) = run_measured(command);
    assert!(output.status.success(), "{}", all_text(&output));
    peak_bytes
}

const MIB: u64 = 1 << 20;

#[test]
fn a_simulated_run_uses_little_memory() {
    let data = Data::new();
    let peak = peak_bytes(data.wirepath(&["prove", "fake", "--time", "3s"]));
    assert!(peak < 150 * MIB, "{} MiB", peak / MIB);
}

#[test]
fn a_real_run_uses_little_memory_beside_its_rings() {
    let data = Data::new();
    let args = ["prove", "probe", "--load", "ping", "--arms", "spin,spin+bypass", "--time", "8s"];
    let peak = peak_bytes(data.wirepath(&args));
    // 4096 frames of 2048 bytes at each end.
    let rings = 2 * 4096 * 2048;
    assert!(peak < 150 * MIB + rings, "{} MiB", peak / MIB);
}

#[test]
fn files_of_a_wrong_size_are_refused_before_they_are_read() {
    let data = Data::new();
    let files = WrongSizes::new(&data);
    for file in [&files.huge, &files.zeros] {
        let mut commands = vec![
            vec!["prove", "command", "--check", file],
            vec!["tune", "apply", "--dry-run", file],
            vec!["tune", "verify", file],
            vec!["explain", "--diff", file],
            vec!["peer", "--secret-file", file],
        ];
        if file == &files.huge {
            commands.push(vec!["history", "compare", file, file]);
        }
        for args in commands {
            files.assert_refused(&data, &args);
        }
    }
}

#[test]
fn programs_in_the_form_of_other_tools_are_refused_with_the_right_form() {
    let data = Data::new();
    for args in [
        &["prove", "./a", "./b"][..],
        &["./a", "./b"],
        &["prove", "./a"],
        &["prove", "probe", "./b"],
        &["prove", "command", "./a", "./b"],
        &["prove", "command", env!("CARGO_BIN_EXE_wirepath")],
    ] {
        let said = fail(data.wirepath(args), 2);
        let are_both = args.contains(&"./a") && args.contains(&"./b");
        let right = if are_both { "compare ./a ./b`" } else { "`wirepath compare " };
        assert!(said.contains(right), "{args:?}: {said}");
    }
}

/// A user of the program has no source tree.
#[test]
fn no_message_of_the_program_sends_its_user_to_cargo() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_wirepath")).unwrap();
    let has = |text: &str| program.windows(text.len()).any(|bytes| bytes == text.as_bytes());
    assert!(
        has("two programs are compared by `wirepath compare "),
        "the search must see the program's texts"
    );
    for chore in ["xtask", "build", "install", "run", "test"] {
        let text = ["cargo ", chore].concat();
        assert!(!has(&text), "{text}");
    }
}
