//! `wirepath tune` and `wirepath doctor` in temporary namespaces.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

use common::{
    LONG, Running, Spaces, all_text, enter, fail, is_installed, json, run, succeed, until, wirepath,
};
use serde_json::Value;
use tempfile::TempDir;

/// Two namespaces to tune, a folder for the journal, and a plan.
struct Desk {
    spaces: Spaces,
    folder: TempDir,
}

impl Desk {
    fn new() -> Self {
        Desk { spaces: Spaces::with_queues(2), folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// `wirepath tune` with its journal in the folder.
    fn tune(&self, args: &[&str]) -> Command {
        let mut command = wirepath(&[&["tune"], args].concat());
        command.env("WIREPATH_STATE", self.file("state"));
        command
    }

    /// Every knob of the near namespace and its interface, as the program reads them.
    fn knobs(&self) -> Value {
        let at = ["knobs", "--interface", "va", "--netns", &self.spaces.near, "--json"];
        let mut all = json(self.tune(&at))["knobs"].take();
        // Machine-wide settings may be changed by others.
        let knobs = all.as_array_mut().unwrap();
        knobs.retain(|knob| !matches!(knob["scope"].as_str(), Some("host" | "cpu")));
        all
    }

    /// File of a plan by the program, with a few steps added.
    fn plan(&self) -> String {
        let near = &self.spaces.near;
        let at = ["--interface", "va", "--netns", near];
        let mut text =
            succeed(self.tune(&[&["plan", "--profile", "forwarding"], &at[..]].concat()));
        assert!(text.contains("gro") && text.contains("reason"), "{text}");
        for (knob, target, seen, value) in [
            ("tx-queue-len", "interface va", "1000", "777"),
            ("gro-flush-timeout", "interface va", "0", "20000"),
            ("rps-cpus", "queue va rx-0", "0", "1"),
            ("rps-flow-count", "queue va rx-1", "0", "64"),
            ("qdisc", "interface va", "default:noqueue", "pfifo:100"),
        ] {
            text.push_str(&format!(
                "\n[[step]]\nknob = \"{knob}\"\ntarget = \"{target}\"\nseen = \"{seen}\"\n\
                 value = \"{value}\"\nreason = \"a test\"\n"
            ));
        }
        // Tables of left-out settings end the file; steps may follow them.
        let file = self.file("plan.toml");
        fs::write(&file, text).unwrap();
        file
    }
}

#[test]
fn a_plan_is_applied_shown_and_rolled_back() {
    let desk = Desk::new();
    let before = desk.knobs();
    let plan = desk.plan();
    let dry = json(desk.tune(&["apply", &plan, "--dry-run", "--json"]));
    assert!(dry["steps"].as_array().unwrap().iter().any(|step| step["knob"] == "gro"));
    assert_eq!(desk.knobs(), before);
    assert_eq!(json(desk.tune(&["status", "--json"]))["phase"], "nothing-applied");

    let done = json(desk.tune(&["apply", &plan, "--json"]));
    assert_eq!(done["outcome"], "applied");
    assert!(done["steps"].as_array().unwrap().len() >= 6, "{done}");
    assert_ne!(desk.knobs(), before);
    let status = json(desk.tune(&["status", "--json"]));
    assert_eq!(
        (status["phase"].as_str(), status["interface"].as_str()),
        (Some("applied"), Some("va"))
    );
    assert!(
        status["settings"].as_array().unwrap().iter().all(|s| s["now"] == s["wanted"]),
        "{status}"
    );
    let again = json(desk.tune(&["apply", &plan, "--json"]));
    assert_eq!(again["outcome"], "already-applied");

    let length = "/sys/class/net/va/tx_queue_len";
    succeed(enter(&desk.spaces.near, &["sh", "-c", &format!("echo 555 > {length}")]));
    assert!(succeed(desk.tune(&["status"])).contains("changed since"));
    let back = json(desk.tune(&["rollback", "--json"]));
    assert_eq!(back["outcome"], "rolled-back");
    let of = |outcome: &str| -> Vec<&str> {
        let settings = back["settings"].as_array().unwrap().iter();
        settings.filter(|s| s["outcome"] == outcome).map(|s| s["knob"].as_str().unwrap()).collect()
    };
    assert_eq!(of("foreign"), ["tx-queue-len"], "{back}");
    assert!(of("failed").is_empty() && of("restored").len() >= 5, "{back}");
    succeed(enter(&desk.spaces.near, &["sh", "-c", &format!("echo 1000 > {length}")]));
    assert_eq!(desk.knobs(), before);
    assert!(fail(desk.tune(&["rollback"]), 1).contains("nothing is applied"));
}

#[test]
fn unconfirmed_or_interrupted_settings_are_rolled_back() {
    let desk = Desk::new();
    let before = desk.knobs();
    let plan = desk.plan();
    let said = fail(desk.tune(&["apply", &plan, "--confirm-within", "1s"]), 1);
    assert!(said.contains("not confirmed in time"), "{said}");
    assert_eq!(desk.knobs(), before);
    for signal in ["TERM", "INT", "HUP"] {
        let mut waiting = Running::start(desk.tune(&["apply", &plan, "--confirm-within", "300s"]));
        waiting.await_stderr("unless `wirepath tune confirm`");
        assert_ne!(desk.knobs(), before);
        let output = waiting.end_by(signal, LONG);
        assert_eq!(output.status.code(), Some(1), "{signal}: {}", all_text(&output));
        assert_eq!(desk.knobs(), before, "{signal}");
    }
    let mut waiting = Running::start(desk.tune(&["apply", &plan, "--confirm-within", "300s"]));
    waiting.await_stderr("unless `wirepath tune confirm`");
    assert_eq!(json(desk.tune(&["status", "--json"]))["phase"], "waiting");
    succeed(desk.tune(&["confirm"]));
    assert!(waiting.finish(LONG).unwrap().status.success());
    assert_ne!(desk.knobs(), before);
    assert_eq!(json(desk.tune(&["status", "--json"]))["phase"], "confirmed");
    succeed(desk.tune(&["rollback"]));
    assert_eq!(desk.knobs(), before);
}

#[test]
fn a_killed_apply_is_reported_and_rolled_back() {
    let desk = Desk::new();
    let before = desk.knobs();
    let plan = desk.plan();
    let begun = Instant::now();
    succeed(desk.tune(&["apply", &plan]));
    let whole = begun.elapsed();
    succeed(desk.tune(&["rollback"]));
    let journal = desk.folder.path().join("state/journal");
    let mut noticed = 0;
    for number in 0..20 {
        let running = Running::start(desk.tune(&["apply", &plan]));
        thread::sleep(whole.mul_f64((f64::from(number) * 0.618_033_988_749_895).fract()));
        running.end_by("KILL", LONG);
        if journal.exists() {
            let next = run(desk.tune(&["status"]));
            noticed += u32::from(all_text(&next).contains("was ended while"));
            succeed(desk.tune(&["rollback"]));
        }
        assert_eq!(desk.knobs(), before, "{number}");
    }
    // A kill hits the middle only by chance; the library's tests cover every step.
    assert!(noticed <= 20);
}

#[test]
fn the_guard_rolls_back_after_a_killed_wait_for_confirmation() {
    let desk = Desk::new();
    let before = desk.knobs();
    let plan = desk.plan();
    let journal = desk.folder.path().join("state/journal");
    let wait = || {
        let mut waiting = Running::start(desk.tune(&["apply", &plan, "--confirm-within", "300s"]));
        waiting.await_stderr("unless `wirepath tune confirm`");
        let guards = waiting.descendants();
        assert_eq!(guards.len(), 1, "{guards:?}");
        assert_ne!(desk.knobs(), before);
        waiting
    };
    wait().end_by("KILL", LONG);
    assert!(until(LONG, || !journal.exists()), "the guard rolls everything back");
    assert_eq!(desk.knobs(), before);
    // The guard does not touch confirmed settings.
    let waiting = wait();
    succeed(desk.tune(&["confirm"]));
    assert!(waiting.finish(LONG).unwrap().status.success());
    assert!(journal.exists() && desk.knobs() != before);
    succeed(desk.tune(&["rollback"]));
    assert_eq!(desk.knobs(), before);
}

#[test]
fn bad_input_is_refused_before_anything_is_changed() {
    let desk = Desk::new();
    let before = desk.knobs();
    let plan = desk.plan();
    let text = fs::read_to_string(&plan).unwrap();
    let edited = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        let file = desk.file("edited.toml");
        fs::write(&file, text.replacen(from, to, 1)).unwrap();
        file
    };
    let near = desk.spaces.near.clone();
    let machine = text.lines().find(|line| line.starts_with("machine")).unwrap().to_owned();
    for (from, to, code, says) in [
        ("tx-queue-len", "tx-queue-lenght", 1, "did you mean tx-queue-len"),
        ("[[step]]", "[[stepp]]", 2, "stepp"),
        ("schema = 1", "schema = ", 2, "invalid plan"),
        ("value = \"777\"", "value = \"many\"", 1, "a number from"),
        ("interface va\"", "interface vx\"", 1, "the plan is for va"),
        (machine.as_str(), "machine = \"000000000000\"", 1, "another machine"),
        (near.as_str(), "no-such-namespace", 1, "no-such-namespace"),
    ] {
        let said = fail(desk.tune(&["apply", &edited(from, to)]), code);
        let said = said.replace("for machine 000000000000", "for another machine");
        assert!(said.contains(says), "{from} -> {to}: {said}");
        assert_eq!(desk.knobs(), before, "{to}");
        assert!(!Path::new(&desk.file("state/journal")).exists(), "{to}");
    }
    let at =
        |interface| ["plan", "--profile", "latency", "--interface", interface, "--netns", &near];
    assert!(fail(desk.tune(&at("eth77")), 1).contains("eth77"));
    assert!(fail(desk.tune(&["apply", &desk.file("none.toml")]), 2).contains("none.toml"));
    fail(desk.tune(&["confirm"]), 1);
    fail(desk.tune(&["rollback"]), 1);

    fs::create_dir_all(desk.file("state")).unwrap();
    fs::write(desk.file("state/journal"), "damaged\ndamaged\n").unwrap();
    for command in [&["apply", &plan][..], &["rollback"], &["status"]] {
        let said = fail(desk.tune(command), 1);
        assert!(said.contains("line 1 of the journal is damaged"), "{said}");
    }
    assert_eq!(desk.knobs(), before);
}

#[test]
fn without_permission_nothing_is_changed_and_the_reason_is_named() {
    if !is_installed("setpriv") {
        return;
    }
    let desk = Desk::new();
    let before = desk.knobs();
    let plan = desk.plan();
    let program = env!("CARGO_BIN_EXE_wirepath");
    // Root without any capability.
    let reach =
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", program, "tune", "apply", &plan];
    let mut command = Command::new("env");
    command.arg(format!("WIREPATH_STATE={}", desk.file("state"))).args(reach);
    let output = command.output().unwrap();
    let said = all_text(&output);
    assert!(!output.status.success() && said.contains("CAP_"), "{said}");
    assert_eq!(desk.knobs(), before);

    // The file system of the namespace's settings is mounted read-only in a mount namespace.
    let script = format!(
        "mount -o bind,ro /proc/sys /proc/sys && exec {program} tune --state {} apply {plan}",
        desk.file("state")
    );
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    let said = all_text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("read-only"), "{said}");
    assert_eq!(desk.knobs(), before);
    assert!(!Path::new(&desk.file("state/journal")).exists());
}

#[test]
fn doctor_findings_match_the_plan_and_set_the_exit_code() {
    let desk = Desk::new();
    let near = &desk.spaces.near;
    succeed(enter(near, &["sh", "-c", "echo 1 > /sys/class/net/va/queues/rx-0/rps_cpus"]));
    let page = desk.file("page.html");
    let doctor = |args: &[&str]| {
        let at = ["doctor", "--interface", "va", "--netns", near, "--profile", "latency"];
        let mut command = wirepath(&[&at[..], args].concat());
        command.env("WIREPATH_STATE", desk.file("state"));
        command
    };
    let report = json(doctor(&["--json", "--html", &page]));
    let found = &report["findings"][0];
    assert_eq!(
        (found["check"].as_str(), found["severity"].as_str()),
        (Some("receive-steering"), Some("medium"))
    );
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("RPS on queue va rx-0"), "{html}");
    let said = succeed(doctor(&["--severity", "high"]));
    assert!(said.contains("echo 0 > /sys/class/net/va/queues/rx-0/rps_cpus"), "{said}");
    let output = run(doctor(&["--severity", "medium"]));
    assert_eq!(output.status.code(), Some(4), "{}", all_text(&output));

    let plan = desk.file("plan.toml");
    let args = ["plan", "--profile", "latency", "--interface", "va", "--netns", near];
    fs::write(&plan, succeed(desk.tune(&args))).unwrap();
    succeed(desk.tune(&["apply", &plan]));
    let after = run(doctor(&["--severity", "info"]));
    assert_eq!(after.status.code(), Some(0), "{}", all_text(&after));
    succeed(desk.tune(&["rollback"]));
    assert_eq!(run(doctor(&["--severity", "medium"])).status.code(), Some(4));
}

#[test]
fn doctor_without_privileges_lists_the_checks_it_could_not_run() {
    if !is_installed("setpriv") {
        return;
    }
    let desk = Desk::new();
    let near = &desk.spaces.near;
    let program = env!("CARGO_BIN_EXE_wirepath");
    // Root without any capability.
    let bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", program];
    let args = ["doctor", "--interface", "va", "--profile", "latency", "--json"];
    let output = enter(near, &[&bare[..], &args].concat()).output().unwrap();
    assert!(output.status.success(), "{}", all_text(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let unseen = report["unseen"].as_array().unwrap();
    assert!(unseen.iter().any(|row| row["check"] == "hooks"), "{report:#}");
    assert!(report["passed"].as_array().unwrap().len() >= 10, "{report:#}");
    // Findings on CPUs depend on the machine; the interface is new and has none.
    let of_interface = |finding: &&Value| finding["check"] != "cpu";
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.iter().find(of_interface), None, "{report:#}");
}
