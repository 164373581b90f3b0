//! A stranger's path: a program named `wirepath-NAME` in PATH, of which contrib/ has an example in Python.

mod common;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::far_end::arm;
use common::{Data, LONG, Running, all_text, fail, json, run, succeed, until};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/wirepath-echo");
/// Few and short trials.
const SHORT: [&str; 6] = ["--max-blocks", "20", "--trial", "40ms", "--time", "60s"];

/// Search path of commands that begins with a folder.
fn path_with(folder: &Path) -> OsString {
    let path = std::env::var_os("PATH").expect("a search path");
    let folders = [folder.to_owned()].into_iter().chain(std::env::split_paths(&path));
    std::env::join_paths(folders).expect("plain names")
}

/// A folder in PATH, and what the program needs.
struct Stranger {
    data: Data,
    bin: PathBuf,
}

impl Stranger {
    fn new() -> Self {
        let data = Data::new();
        let bin = data.path().join("bin");
        fs::create_dir(&bin).expect("a folder");
        Stranger { data, bin }
    }

    /// The example, unchanged.
    fn example() -> Self {
        let stranger = Stranger::new();
        stranger.write("wirepath-echo", &fs::read_to_string(EXAMPLE).expect("the example"));
        stranger
    }

    fn write(&self, name: &str, text: &str) -> String {
        let file = self.bin.join(name);
        fs::write(&file, text).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("set");
        file.to_str().expect("a plain path").to_owned()
    }

    fn wirepath(&self, args: &[&str]) -> Command {
        let mut command = self.data.wirepath(args);
        command.env("PATH", path_with(&self.bin));
        command
    }

    fn prove(&self, name: &str, args: &[&str]) -> Command {
        self.wirepath(&[&["prove", name], args, &SHORT].concat())
    }
}

#[test]
fn switch_of_a_stranger_is_proven_as_one_of_our_own() {
    let stranger = Stranger::example();
    let document = json(stranger.prove("echo", &["--arms", "batch", "--json"]));
    assert_eq!(document["path"], "echo");
    let batch = arm(&document, "batch");
    assert_eq!(batch["failures"].as_array().map(Vec::len), Some(0), "{batch:#}");
    // Each of the 32 waits for those before it.
    assert_eq!(batch["metrics"]["rtt_ns_p50"]["verdict"], "worse", "{batch:#}");
    assert!(batch["metrics"]["cpu_ns_per_packet"]["median"].as_f64() > Some(0.0), "{batch:#}");
    assert!(batch["latency"]["rtt"]["count"].as_u64() > Some(100), "{batch:#}");
    assert_eq!(document["machine"]["nic"], "route to 127.0.0.1");
    let list = succeed(stranger.wirepath(&["paths", "echo"]));
    assert!(list.contains("32 datagrams are on their way") && list.contains("here: yes"), "{list}");
    let all = succeed(stranger.wirepath(&["paths"]));
    assert!(all.contains("`wirepath paths NAME`: ") && all.contains("echo"), "{all}");
    let said = fail(stranger.prove("echo", &["--arms", "sprint"]), 2);
    assert!(said.contains("sprint") && said.contains("connected"), "{said}");
    let said = fail(stranger.prove("eco", &[]), 2);
    assert!(
        said.contains("'eco' is not a path") && said.contains("wirepath-NAME in PATH"),
        "{said}"
    );
}

#[test]
fn shortest_path_of_the_document_is_decided() {
    const DOCUMENT: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals/path-contract.md");
    let document = fs::read_to_string(DOCUMENT).expect("the document");
    let (_, script) = document.split_once("```sh\n").expect("a script");
    let (script, _) = script.split_once("```").expect("its end");
    let stranger = Stranger::new();
    stranger.write("wirepath-nap", script);
    let document = json(stranger.prove("nap", &["--json"]));
    assert_eq!(arm(&document, "+short")["metrics"]["nap_ns"]["verdict"], "better", "{document:#}");
}

#[test]
fn older_program_of_a_stranger_is_compared_with_the_one_in_path() {
    let stranger = Stranger::example();
    let text = fs::read_to_string(EXAMPLE).expect("the example");
    let slow = text.replace("        echo.sendto(", "        time.sleep(0.001); echo.sendto(");
    assert_ne!(slow, text);
    let old = stranger.write("wirepath-echo.old", &slow);
    // Each trial of the slow one has answers enough for a median, also beside other programs.
    let long = ["--max-blocks", "14", "--trial", "200ms", "--time", "60s"];
    let prove = ["prove", "echo", "--against", &old, "--json"];
    let document = json(stranger.wirepath(&[&prove[..], &long].concat()));
    let new = arm(&document, "new");
    assert_eq!(new["metrics"]["rtt_ns_p50"]["verdict"], "better", "{new:#}");
    assert_eq!(document["load"]["against"], format!("{old} (1.0)"));
    let other = stranger.write("wirepath-other", &text.replace("\"echo\"", "\"other\""));
    let said = fail(stranger.prove("echo", &["--against", &other]), 2);
    assert!(said.contains("describes path \"other\" in place of echo"), "{said}");
}

/// Shell commands of a program that greets with this description.
fn greeting(path: &str) -> String {
    let head = "{\"wirepath\":\"1\",\"exchange\":1,\"service\":\"path\"";
    format!("echo '{head},\"path\":{path}}}'; read greeting")
}

/// True once the program and its echo run.
fn is_measuring(near: &Running) -> bool {
    let programs = near.descendants();
    programs.iter().filter(|(_, line)| line.contains("wirepath-echo answer path")).count() >= 2
}

#[test]
fn programs_that_break_the_contract_end_in_one_error() {
    let stranger = Stranger::new();
    let loads = "\"loads\":[{\"name\":\"l\",\"what\":\"\",\"judged\":[\"x_us\"]}]";
    let good = greeting(&format!("{{\"contract\":1,\"name\":\"bad\",\"what\":\"\",{loads}}}"));
    for (body, expected) in [
        ("echo hello".to_owned(), "unexpected line: \"hello\""),
        ("echo oops >&2; exit 3".into(), "ended: oops"),
        ("exec cat /dev/zero".into(), "a line of more than 8 MiB"),
        (
            greeting("{\"contract\":9}"),
            "version 9 of the path contract, and this program version 1",
        ),
        (format!("{good}; read call; echo '{{\"support\":7}}'; sleep 1"), "unexpected line"),
        (format!("{good}; read call; echo '{{\"closed\":{{}}}}'; sleep 1"), "unexpected line"),
        (format!("{good}; exit 0"), "ended: no message"),
    ] {
        stranger.write("wirepath-bad", &format!("#!/bin/sh\n{body}\n"));
        let output = run(stranger.prove("bad", &["--arms", "baseline"]));
        let said = all_text(&output);
        assert!(!output.status.success(), "{body}: {said}");
        assert!(said.contains(expected) && !said.contains("panicked"), "{body}: {said}");
    }
}

#[test]
fn program_that_breaks_the_contract_in_a_trial_ends_the_run_with_its_reason() {
    let stranger = Stranger::new();
    let text = fs::read_to_string(EXAMPLE).expect("the example");
    for (what, expected) in [
        ("print('nonsense', flush=True)", "unexpected line: \"nonsense\""),
        ("os.kill(os.getpid(), 9)", "ended: no message"),
        ("return {\"measured\": {\"metrcs\": {}}}", "unknown field `metrcs`"),
        ("return {\"measured\": {\"metrics\": {\"A B\": 1}}}", "not a valid name of a metric"),
    ] {
        let head = "    if call == \"trial\":\n";
        let broken = text.replace(head, &format!("{head}        {what}\n"));
        assert_ne!(broken, text);
        stranger.write("wirepath-echo", &broken);
        let output = run(stranger.prove("echo", &["--arms", "batch"]));
        let said = all_text(&output);
        assert_eq!(output.status.code(), Some(1), "{what}: {said}");
        assert!(said.contains(expected), "{what}: {said}");
    }
}

#[test]
fn nothing_of_a_stranger_outlives_the_run_however_it_ends() {
    for (signal, code) in [("INT", Some(130)), ("KILL", None)] {
        let stranger = Stranger::example();
        let args = ["prove", "echo", "--arms", "batch", "--time", "300s", "--min-blocks", "1000"];
        let mut near = Running::start(stranger.wirepath(&args));
        assert!(until(LONG, || near.has_ended() || is_measuring(&near)), "{}", near.stderr());
        assert!(!near.has_ended(), "{}", near.stderr());
        std::thread::sleep(Duration::from_millis(300));
        let held = near.holdings();
        assert_eq!(near.end_by(signal, LONG).status.code(), code);
        held.assert_gone();
    }
}
