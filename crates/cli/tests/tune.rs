//! `wirepath tune` and `wirepath doctor` in temporary namespaces.

mod common;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
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
    let restored_as = |outcome: &str| -> Vec<&str> {
        let settings = back["settings"].as_array().unwrap().iter();
        settings.filter(|s| s["outcome"] == outcome).map(|s| s["knob"].as_str().unwrap()).collect()
    };
    assert_eq!(restored_as("foreign"), ["tx-queue-len"], "{back}");
    assert!(restored_as("failed").is_empty() && restored_as("restored").len() >= 5, "{back}");
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

/// Control group, whose processes end with it.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        // There is none, unless the test failed.
        let _gone = fs::write(self.0.join("cgroup.kill"), "1");
        until(LONG, || !self.0.exists() || fs::remove_dir(&self.0).is_ok());
    }
}

/// `command` in a control group.
fn in_group(group: &Path, command: &Command) -> Command {
    let mut inside = Command::new("sh");
    let enter = format!("echo 0 > {}/cgroup.procs && exec \"$@\"", group.display());
    inside.args(["-c", &enter, "sh"]).arg(command.get_program()).args(command.get_args());
    inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    inside.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    inside
}

#[test]
fn the_guard_survives_the_end_of_its_session_and_of_its_control_group() {
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    let Some(root) = roots.into_iter().find(|root| root.join("cgroup.subtree_control").exists())
    else {
        return testkit::skip("cgroup", "control groups of version 2 are not mounted");
    };
    let group = Group(root.join(format!("wirepath-test-guard-{}", std::process::id())));
    if let Err(error) = fs::create_dir(&group.0) {
        return testkit::skip("cgroup", error);
    }
    let desk = Desk::new();
    let before = desk.knobs();
    let plan = desk.plan();
    let apply = desk.tune(&["apply", &plan, "--confirm-within", "300s"]);
    let mut waiting = Running::start(in_group(&group.0, &apply));
    waiting.await_stderr("unless `wirepath tune confirm`");
    assert_ne!(desk.knobs(), before);
    let guards = waiting.descendants();
    assert_eq!(guards.len(), 1, "{guards:?}");
    let stat = fs::read_to_string(format!("/proc/{}/stat", guards[0].0)).unwrap();
    let session = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(3).unwrap();
    assert_eq!(session, guards[0].0.to_string(), "a session of its own");
    // As a service manager ends a service, or a login its session.
    fs::write(group.0.join("cgroup.kill"), "1").unwrap();
    assert!(until(LONG, || waiting.has_ended()));
    let journal = desk.folder.path().join("state/journal");
    assert!(until(LONG, || !journal.exists()), "the guard rolls everything back");
    assert_eq!(desk.knobs(), before);
    assert!(until(LONG, || fs::remove_dir(&group.0).is_ok()), "no process is left in the group");
}

/// A folder in place of `/`, with one setting of the machine and a log.
fn root_of_another_machine(desk: &Desk) -> (String, PathBuf, UnixDatagram) {
    let root = desk.folder.path().join("root");
    let setting = root.join("proc/sys/kernel/sched_rt_runtime_us");
    for (file, text) in [
        (root.join("etc/machine-id"), "0123456789abcdef0123456789abcdef\n"),
        (root.join("proc/cpuinfo"), "model name\t: A CPU\n"),
        (root.join("sys/devices/system/cpu/online"), "0\n"),
        (setting.clone(), "950000\n"),
    ] {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    fs::create_dir(root.join("dev")).unwrap();
    let log = UnixDatagram::bind(root.join("dev/log")).unwrap();
    log.set_read_timeout(Some(LONG)).unwrap();
    (root.display().to_string(), setting, log)
}

#[test]
fn the_guard_tries_a_failed_rollback_again_and_reports_it() {
    let desk = Desk::new();
    let (root, setting, log) = root_of_another_machine(&desk);
    let tune = |args: &[&str]| desk.tune(&[&["--root", &root], args].concat());
    let mut plan = succeed(tune(&["plan", "--profile", "latency"]));
    let steps = plan.find("[[").unwrap_or(plan.len());
    plan.truncate(steps);
    plan.push_str(
        "[[step]]\nknob = \"sched-rt-runtime\"\ntarget = \"host\"\nseen = \"950000\"\n\
         value = \"-1\"\nreason = \"a test\"\n",
    );
    let file = desk.file("plan.toml");
    fs::write(&file, plan).unwrap();
    let mut waiting = Running::start(tune(&["apply", &file, "--confirm-within", "300s"]));
    waiting.await_stderr("unless `wirepath tune confirm`");
    assert_eq!(fs::read_to_string(&setting).unwrap(), "-1");
    // The setting cannot be read for a while.
    fs::remove_file(&setting).unwrap();
    fs::create_dir(&setting).unwrap();
    waiting.end_by("KILL", LONG);
    let message = || {
        let mut bytes = [0; 2048];
        let len = log.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    let failed = message();
    assert!(failed.starts_with("<27>wirepath-tune-guard["), "{failed}");
    assert!(failed.contains("attempt 1") && failed.contains("sched-rt-runtime"), "{failed}");
    let status = json(tune(&["status", "--json"]));
    let noted = status["guard_failure"].as_str().unwrap();
    assert!(noted.contains("sched-rt-runtime of host"), "{status}");
    assert!(succeed(tune(&["status"])).contains("the guard: attempt"));
    assert!(message().contains("attempt 2"));
    fs::remove_dir(&setting).unwrap();
    fs::write(&setting, "-1\n").unwrap();
    let last = std::iter::repeat_with(message).find(|text| !text.contains("attempt")).unwrap();
    assert!(last.starts_with("<29>") && last.contains("rolled back"), "{last}");
    assert_eq!(fs::read_to_string(&setting).unwrap(), "950000");
    assert_eq!(json(tune(&["status", "--json"]))["phase"], "nothing-applied");
    assert!(!Path::new(&desk.file("state/guard")).exists());
}

#[test]
fn a_namespace_that_is_a_pipe_or_a_device_is_refused_without_opening_it() {
    let desk = Desk::new();
    let text = fs::read_to_string(desk.plan()).unwrap();
    let (pipe, node) = (desk.file("pipe"), desk.file("node"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(Command::new("mknod").args([&node, "c", "511", "511"]).status().unwrap().success());
    for named in [&pipe, &node] {
        let file = desk.file("named.toml");
        fs::write(&file, text.replacen(&desk.spaces.near, named, 1)).unwrap();
        for more in [&["--dry-run"][..], &[]] {
            let said = fail(desk.tune(&[&["apply", &file], more].concat()), 1);
            assert!(said.contains("is not a network namespace"), "{said}");
        }
        let said = fail(desk.tune(&["plan", "--profile", "latency", "--netns", named]), 1);
        assert!(said.contains("is not a network namespace"), "{said}");
    }
}

#[test]
fn a_setting_that_cannot_be_restored_is_given_up_by_its_number() {
    let desk = Desk::new();
    succeed(desk.tune(&["apply", &desk.plan()]));
    let address = ["link", "set", "va", "address", "02:00:00:00:00:77"];
    succeed(enter(&desk.spaces.near, &[&["ip"], &address[..]].concat()));
    let back = run(desk.tune(&["rollback", "--json"]));
    assert_eq!(back.status.code(), Some(1), "{}", all_text(&back));
    let document: Value = serde_json::from_slice(&back.stdout).unwrap();
    assert_eq!(document["outcome"], "incomplete");
    let failed = document["settings"].as_array().unwrap().iter();
    let failed = failed.filter(|setting| setting["outcome"] == "failed");
    let numbers: Vec<String> = failed.map(|setting| setting["entry"].to_string()).collect();
    assert!(!numbers.is_empty(), "{document}");
    let again = run(desk.tune(&["rollback"]));
    assert_eq!(again.status.code(), Some(1));
    let said = all_text(&again);
    assert!(said.contains("another device") && said.contains("--forget ENTRY"), "{said}");
    assert!(fail(desk.tune(&["rollback", "--forget", "999"]), 1).contains("no entry 999"));
    let said = succeed(desk.tune(&["rollback", "--forget", &numbers.join(",")]));
    assert!(said.contains("given up; before the plan it was"), "{said}");
    assert!(fail(desk.tune(&["rollback"]), 1).contains("nothing is applied"));
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
        (near.as_str(), "no-such-namespace", 2, "no-such-namespace"),
    ] {
        let said = fail(desk.tune(&["apply", &edited(from, to)]), code);
        let said = said.replace("for machine 000000000000", "for another machine");
        assert!(said.contains(says), "{from} -> {to}: {said}");
        assert_eq!(desk.knobs(), before, "{to}");
        assert!(!Path::new(&desk.file("state/journal")).exists(), "{to}");
    }
    assert!(
        fail(
            desk.tune(&["plan", "--profile", "latency", "--interface", "eth77", "--netns", &near]),
            2
        )
        .contains("eth77")
    );
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
        let at = ["doctor", "va", "--netns", near, "--profile", "latency"];
        let mut command = wirepath(&[&at[..], args].concat());
        command.env("WIREPATH_STATE", desk.file("state"));
        command
    };
    let report = json(doctor(&["--json", "--html", &page]));
    let found = &report["findings"][0];
    assert_eq!(
        (found["cause"].as_str(), found["severity"].as_str()),
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
    let args = ["doctor", "va", "--profile", "latency", "--json"];
    let output = enter(near, &[&bare[..], &args].concat()).output().unwrap();
    assert!(output.status.success(), "{}", all_text(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let unseen = report["unseen"].as_array().unwrap();
    assert!(unseen.iter().any(|row| row["cause"] == "hooks"), "{report:#}");
    assert!(report["passed"].as_array().unwrap().len() >= 10, "{report:#}");
    // Findings on CPUs and their backlogs depend on the machine; the interface is new and has none.
    let mut findings = report["findings"].as_array().unwrap().clone();
    findings.retain(|one| !["cpu", "softnet", "steal"].map(Some).contains(&one["cause"].as_str()));
    assert!(findings.is_empty(), "{report:#}");
}

#[test]
fn a_plan_made_inside_a_namespace_is_accepted_there() {
    let desk = Desk::new();
    let inside = |args: &[&str]| {
        let mut command = desk.spaces.near(&[&["tune"], args].concat());
        command.env("WIREPATH_STATE", desk.file("state"));
        command
    };
    let plan = succeed(inside(&["plan", "--profile", "throughput", "--interface", "va"]));
    let (steps, left_out) = plan.split_once("[[left-out]]").expect("settings that are left out");
    assert!(steps.contains("[[step]]"), "{plan}");
    for knob in ["rmem-max", "wmem-max", "netdev-budget"] {
        let line = format!("knob = \"{knob}\"");
        assert!(left_out.contains(&line) && !steps.contains(&line), "{plan}");
    }
    assert!(left_out.contains("host-only"), "{plan}");
    fs::write(desk.file("inside.toml"), &plan).expect("a file");
    succeed(inside(&["apply", &desk.file("inside.toml"), "--dry-run"]));

    // One that was made for the host, or by hand.
    let now = succeed(enter(&desk.spaces.near, &["cat", "/proc/sys/net/core/rmem_max"]));
    let step = format!(
        "\n[[step]]\nknob = \"rmem-max\"\ntarget = \"netns\"\nseen = \"{}\"\n\
         value = \"16777217\"\nreason = \"a test\"\n",
        now.trim()
    );
    fs::write(desk.file("by-hand.toml"), plan + &step).expect("a file");
    let text = fail(inside(&["apply", &desk.file("by-hand.toml"), "--dry-run"]), 1);
    assert!(text.contains("rmem-max is host-only") && !text.contains("run as root"), "{text}");
}

#[test]
fn a_plan_for_a_service_has_what_doctor_saw_and_candidates_with_their_reasons() {
    let desk = Desk::new();
    let near = &desk.spaces.near;
    for setting in ["net.core.somaxconn=2", "net.ipv4.tcp_congestion_control=reno"] {
        succeed(enter(near, &["sysctl", "-qw", setting]));
    }
    // Its queue of two is full, and nothing accepts.
    let script = "import socket, time\n\
        s = socket.socket()\ns.bind(('127.0.0.1', 8080))\ns.listen(64)\nopen = []\n\
        for _ in range(9):\n    c = socket.socket()\n    c.setblocking(False)\n    \
        c.connect_ex(('127.0.0.1', 8080))\n    open.append(c)\n    time.sleep(0.05)\n\
        print('ready', flush=True)\ntime.sleep(120)";
    let mut server = enter(near, &["python3", "-c", script]);
    let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
    // Open to the end: the line break may come by a second write, which must not fail.
    let mut said = server.stdout.take().unwrap();
    std::io::Read::read_exact(&mut said, &mut [0; 5]).unwrap();

    let made = succeed(desk.tune(&["plan", "--profile", "service", "--netns", near]));
    let step = |knob: &str| {
        let (_, rest) = made
            .split_once(&format!("knob = \"{knob}\""))
            .unwrap_or_else(|| panic!("{knob} in {made}"));
        rest.split("[[").next().unwrap().to_owned()
    };
    let queue = step("somaxconn");
    assert!(
        queue.contains("value = \"4096\"") && queue.contains("accept queue of TCP port 8080"),
        "{queue}"
    );
    for knob in ["tcp-notsent-lowat", "tcp-slow-start-after-idle"] {
        assert!(step(knob).contains("reason = \"to be proved: "), "{made}");
    }
    assert!(made.contains("profile = \"service\"") && !made.contains("reason = \"\""), "{made}");

    // The same by the document, without the candidates.
    let document = run(wirepath(&["doctor", "--netns", near, "--json"]));
    fs::write(desk.file("found.json"), &document.stdout).unwrap();
    let file = desk.file("found.json");
    let from = succeed(desk.tune(&["plan", "--from", &file]));
    assert!(from.contains("knob = \"somaxconn\"") && !from.contains("to be proved"), "{from}");

    fs::write(desk.file("service.toml"), &made).unwrap();
    let done = succeed(desk.tune(&["apply", &desk.file("service.toml")]));
    assert!(done.contains("listen() again"), "{done}");
    succeed(desk.tune(&["rollback"]));
    let back = succeed(enter(near, &["cat", "/proc/sys/net/core/somaxconn"]));
    assert_eq!(back.trim(), "2");
    server.kill().unwrap();
    server.wait().unwrap();
}

/// A plan of one setting of the host, with a profile of one's own.
fn plan_of_the_host(desk: &Desk, profile: &str) -> String {
    let made = succeed(desk.tune(&[
        "plan",
        "--profile",
        "latency",
        "--interface",
        "va",
        "--netns",
        &desk.spaces.near,
    ]));
    let machine = made.lines().find(|line| line.starts_with("machine = ")).expect("a machine");
    let profile = serde_json::to_string(profile).unwrap();
    let file = desk.file("host.toml");
    let step = "[[step]]\nknob = \"rmem-max\"\ntarget = \"host\"\nseen = \"1\"\nvalue = \"8388608\"\nreason = \"r\"\n";
    fs::write(&file, format!("schema = 1\n{machine}\nprofile = {profile}\n{step}")).unwrap();
    file
}

#[test]
fn export_refuses_a_profile_of_several_lines_and_keeps_any_other_in_its_comment() {
    let desk = Desk::new();
    for form in ["systemd", "udev", "sysctl", "networkmanager", "tuned", "ansible", "unit"] {
        let plan = plan_of_the_host(&desk, "latency\nINJECTED-LINE touch x\n#");
        let folder = desk.file(form);
        let said = fail(desk.tune(&["export", &plan, "--to", form, "--out", &folder]), 2);
        assert!(said.contains("`profile` of the plan") && said.contains("one line"), "{said}");
        assert!(!Path::new(&folder).exists());
    }
    let plan = plan_of_the_host(&desk, "$(touch x) `touch y` \" \\");
    let folder = desk.file("kept");
    succeed(desk.tune(&["export", &plan, "--to", "sysctl", "--out", &folder]));
    let text = fs::read_to_string(format!("{folder}/etc/sysctl.d/60-wirepath-host.conf")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("# Plan of wirepath tune, profile $(touch x)"), "{text}");
    assert_eq!(&lines[1..], ["net.core.rmem_max = 8388608"]);
}

#[test]
fn export_follows_no_link_in_its_folder() {
    let desk = Desk::new();
    let plan = plan_of_the_host(&desk, "latency");
    let export = |folder: &str| desk.tune(&["export", &plan, "--to", "sysctl", "--out", folder]);
    let (shared, victim) = (desk.file("shared"), desk.file("victim"));
    fs::create_dir_all(format!("{shared}/etc/sysctl.d")).unwrap();
    // A link to nothing, which another user may put into a shared folder.
    let planted = format!("{shared}/etc/sysctl.d/60-wirepath-host.conf");
    std::os::unix::fs::symlink(&victim, &planted).unwrap();
    let said = fail(export(&shared), 2);
    assert!(said.contains(&planted) && said.contains("remove it"), "{said}");
    fs::remove_file(&planted).unwrap();
    fs::remove_dir(format!("{shared}/etc/sysctl.d")).unwrap();
    fs::create_dir(&victim).unwrap();
    std::os::unix::fs::symlink(&victim, format!("{shared}/etc/sysctl.d")).unwrap();
    let said = fail(export(&shared), 2);
    assert!(said.contains("sysctl.d is a symbolic link"), "{said}");
    assert!(fs::read_dir(&victim).unwrap().next().is_none());
}
