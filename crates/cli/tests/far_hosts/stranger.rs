//! A stranger's path between two hosts: its program runs at both ends.

use super::*;

const CONTRIB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib");

/// Enough blocks for a verdict.
const DECIDED: [&str; 8] =
    ["--max-blocks", "20", "--trial", "40ms", "--time", "60s", "--no-history", "--json"];

/// `prove echo` at the near end.
fn prove_echo(spaces: &Spaces, args: &[&str]) -> Command {
    with_example(spaces.near(&[&["prove", "echo", "--arms", "batch"], args].concat()))
}

/// The command with the example in its PATH.
fn with_example(mut command: Command) -> Command {
    let path = std::env::var("PATH").expect("a search path");
    command.env("PATH", format!("{CONTRIB}:{path}"));
    command
}

fn assert_measured(document: &Value, far: &str) {
    assert_eq!(document["load"]["far"], far);
    assert_eq!(document["machine"]["nic"], format!("route to {FAR_IP}"));
    for name in ["baseline", "batch"] {
        let arm = arm(document, name);
        assert_eq!(arm["failures"].as_array().map(Vec::len), Some(0), "{arm:#}");
        assert!(arm["latency"]["rtt"]["count"].as_u64() > Some(0), "{arm:#}");
    }
    let batch = &arm(document, "batch")["metrics"]["rtt_ns_p50"]["verdict"];
    assert_eq!(batch, "worse", "{document:#}");
}

#[test]
fn program_of_a_stranger_runs_at_both_ends_in_namespaces() {
    let spaces = Spaces::new();
    let far = format!("netns:{}", spaces.far);
    let document = json(prove_echo(&spaces, &[&["--far", &far], &DECIDED[..]].concat()));
    assert_measured(&document, &far);
    assert_far_end_gone(&spaces, &[]);
    let args = ["--far", &far, "--no-history"];
    let mut near = Running::start(prove_echo(&spaces, &[&args[..], &ENDLESS].concat()));
    let begun = until(LONG, || near.has_ended() || !far_pids(&spaces).is_empty());
    assert!(begun && !near.has_ended(), "{}", near.stderr());
    thread::sleep(Duration::from_millis(500));
    let programs = near.holdings();
    drop(near.end_by("KILL", LONG));
    programs.assert_gone();
    assert_far_end_gone(&spaces, &[]);
}

/// `fleet prove --on ssh:HOST echo`: the host runs the whole experiment.
fn fleet_prove_echo(sshd: &Sshd, ssh_options: &[&str]) -> Command {
    let (folder, on) = (sshd.data.file("near"), format!("ssh:root@{FAR_IP}"));
    let own = ["fleet", "prove", "--json", "--data-dir", &folder, "--on", &on];
    let words = ["echo", "--arms", "batch", "--max-blocks", "6", "--trial", "20ms", "--no-history"];
    with_example(sshd.spaces.near(&[&own[..], ssh_options, &words].concat()))
}

#[test]
fn program_of_a_stranger_is_started_by_ssh_where_it_is_installed() {
    let path = format!("{CONTRIB}:{SYSTEM_PATH}");
    for (path, is_installed) in [(path.as_str(), true), (SYSTEM_PATH, false)] {
        let Some(sshd) = Sshd::start(path) else { return };
        let far = sshd.far("user", "known");
        let far: Vec<&str> = far.iter().map(String::as_str).collect();
        let command = prove_echo(&sshd.spaces, &[&far[..], &DECIDED].concat());
        if is_installed {
            assert_measured(&json(command), &format!("ssh:root@{FAR_IP}"));
            let document = json(fleet_prove_echo(&sshd, &far[2..]));
            assert!(document["hosts"][0]["id"].is_string(), "{document:#}");
        } else {
            let said = fail(command, 1);
            assert!(said.contains("wirepath-echo did not start at"), "{said}");
            assert!(said.contains("install it there"), "{said}");
        }
        sshd.assert_nothing_left();
    }
}
