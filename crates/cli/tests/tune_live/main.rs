//! `wirepath tune prove --live`: a real service under a client whose rate varies, and settings that are restored in any case.

#[path = "../common/mod.rs"]
mod common;
mod fleet;
mod study;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::{
    Data, LONG, NEAR_IP, Running, Spaces, all_text, clean, enter, fail, is_installed, json, run,
    succeed, until,
};
use serde_json::Value;

const PORT: &str = "9300";
const SERVICE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tune_live/service.py");
const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tune_live/client.py");

/// A run that is long enough for the fewest pairs of periods.
const SHORT: [&str; 9] =
    ["--live", "--port", PORT, "--baseline", "25s", "--for", "300s", "--resolve", "50%"];

/// A service in a namespace, and its clients in another one.
struct Desk {
    spaces: Spaces,
    data: Data,
    _service: Running,
    _clients: Running,
}

impl Desk {
    /// - `plan`: steps, each a knob, its target, the value that is set first, and that of the plan.
    fn new(plan: &[(&str, &str, &str, &str)]) -> Self {
        let spaces = Spaces::new();
        let data = Data::new();
        spaces.let_near_poll();
        let mut service =
            Running::start(clean(enter(&spaces.near, &["python3", SERVICE, PORT]), &[]));
        let ready = until(LONG, || service.stdout().contains("ready") || service.has_ended());
        assert!(ready && !service.has_ended(), "{}", service.stderr());
        let client = ["python3", CLIENT, NEAR_IP, PORT, "6", "30"];
        let clients = Running::start(clean(enter(&spaces.far, &client), &[]));
        let desk = Desk { spaces, data, _service: service, _clients: clients };
        fs::write(desk.data.file("plan.toml"), desk.plan(plan)).unwrap();
        desk
    }

    /// A plan of these steps for this machine.
    fn plan(&self, steps: &[(&str, &str, &str, &str)]) -> String {
        let at = ["--interface", "va", "--netns", &self.spaces.near];
        let args = [&["tune", "plan", "--profile", "latency"], &at[..]].concat();
        plan_with_steps(&succeed(self.command(&args)), steps)
    }

    fn command(&self, args: &[&str]) -> Command {
        command(&self.data, args)
    }

    fn prove(&self, args: &[&str]) -> Command {
        let plan = self.data.file("plan.toml");
        self.command(&[&["tune", "prove", &plan], &SHORT[..], args].concat())
    }

    fn near(&self, script: &str) -> String {
        succeed(enter(&self.spaces.near, &["sh", "-c", script]))
    }

    fn value(&self, file: &str) -> String {
        self.near(&format!("cat {file}")).trim().to_owned()
    }

    fn journal_exists(&self) -> bool {
        fs::exists(format!("{}/journal", self.data.file("state"))).unwrap()
    }
}

/// The program with settings and locks of its own: other tests of this program run live proofs of theirs.
fn command(data: &Data, args: &[&str]) -> Command {
    let mut command = data.wirepath(args);
    fs::create_dir_all(data.file("locks")).unwrap();
    command.env("WIREPATH_STATE", data.file("state"));
    command.env("WIREPATH_LOCKS", data.file("locks"));
    command
}

/// A plan with the head of another one, and these steps.
fn plan_with_steps(made: &str, steps: &[(&str, &str, &str, &str)]) -> String {
    let head = made.split("[[").next().unwrap();
    let head: Vec<&str> = head.lines().filter(|line| !line.ends_with("= []")).collect();
    format!("{}\n{}", head.join("\n"), steps.iter().map(step_table).collect::<String>())
}

fn step_table((knob, target, seen, value): &(&str, &str, &str, &str)) -> String {
    format!(
        "\n[[step]]\nknob = \"{knob}\"\ntarget = \"{target}\"\nseen = \"{seen}\"\nvalue = \"{value}\"\n\
         reason = \"a test\"\n"
    )
}

const EARLY: &str = "/proc/sys/net/ipv4/tcp_early_demux";
const WITHOUT_EFFECT: [(&str, &str, &str, &str); 1] = [("tcp-early-demux", "netns", "1", "0")];

const FOR_NEW_CONNECTIONS: [(&str, &str, &str, &str); 1] = [("tcp-sack", "netns", "1", "0")];

/// A packet waits up to 2 s for the timer of its queue.
const HARMFUL: [(&str, &str, &str, &str); 2] = [
    ("gro-flush-timeout", "interface va", "0", "2000000000"),
    ("napi-defer-hard-irqs", "interface va", "0", "100000"),
];
const HARM: &str = "/sys/class/net/va/gro_flush_timeout";

fn is_possible() -> bool {
    is_installed("python3") && is_installed("ip")
}

#[test]
fn setting_is_switched_on_a_running_service_judged_stored_and_restored() {
    if !is_possible() {
        return;
    }
    let desk = Desk::new(&WITHOUT_EFFECT);
    let page = desk.data.file("live.html");
    let live = desk.prove(&["--seed", "7", "--no-confirm", "--json", "--html", &page]);
    let output = Running::start(live).finish(12 * LONG).expect("it ends");
    // A busy machine may leave it undecided.
    assert!([0, 5].contains(&output.status.code().unwrap()), "{}", all_text(&output));
    let doc: Value = serde_json::from_slice(&output.stdout).unwrap();
    let periods = doc["periods"].as_array().unwrap();
    let arms = |arm: &str| periods.iter().filter(|period| period["arm"] == arm).count();
    assert!(arms("on") >= 18 && arms("on").abs_diff(arms("off")) <= 1, "{doc:#}");
    let requests: u64 = periods.iter().map(|p| p["request_count"].as_u64().unwrap()).sum();
    assert!(requests > 1000, "{requests}");
    for verdict in doc["outcome"]["verdicts"].as_array().unwrap() {
        assert!(verdict["verdict"] != "better" && verdict["verdict"] != "worse", "{verdict:#}");
    }
    assert_eq!(desk.value(EARLY), "1");
    assert!(!desk.journal_exists());
    assert!(fs::read_to_string(page).unwrap().contains("Periods"));
    let id = doc["id"].as_str().unwrap();
    let stored = json(desk.command(&["report", id, "--json"]));
    assert_eq!(stored, doc);
    let text = succeed(desk.command(&["report", id]));
    assert!(text.contains("CPU per request") && text.lines().count() <= 40, "{text}");
}

#[test]
fn harm_is_undone_within_a_second_and_ends_the_run_with_4() {
    if !is_possible() {
        return;
    }
    let desk = Desk::new(&HARMFUL);
    let output = Running::start(desk.prove(&["--json"])).finish(12 * LONG).expect("it ends");
    assert_eq!(output.status.code(), Some(4), "{}", all_text(&output));
    let doc: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(doc["outcome"]["end"]["end"], "tripped", "{}", all_text(&output));
    let trips = trips(&doc);
    assert_eq!(trips.len(), 5, "{trips:?}");
    assert_eq!(desk.value(HARM), "0");
    assert!(!desk.journal_exists());
}

/// Time from the switch until the harm was undone, ms, of each on-period that tripped.
fn trips(doc: &Value) -> Vec<u64> {
    let periods = doc["periods"].as_array().unwrap();
    let on = periods.iter().filter(|period| period["arm"] == "on");
    on.filter_map(|period| {
        let trip = period.get("trip")?;
        let undone = trip["at_ns"].as_u64()? + trip["undone_after_ns"].as_u64()?;
        Some((undone - period["switched_ns"].as_u64()?) / 1_000_000)
    })
    .collect()
}

#[test]
fn interrupt_ends_with_the_result_so_far_and_the_setting_restored() {
    if !is_possible() {
        return;
    }
    let desk = Desk::new(&WITHOUT_EFFECT);
    let mut running = Running::start(desk.prove(&[]));
    assert!(until(3 * LONG, || desk.value(EARLY) == "0" || running.has_ended()));
    running.await_stderr("pairs of periods");
    thread::sleep(Duration::from_secs(6));
    let output = running.end_by("INT", LONG);
    assert_eq!(output.status.code(), Some(130), "{}", all_text(&output));
    assert!(all_text(&output).contains("CPU per request: not decided"), "{}", all_text(&output));
    assert_eq!(desk.value(EARLY), "1");
    assert!(!desk.journal_exists());
}

#[test]
fn change_by_another_process_is_kept_and_ends_the_run() {
    if !is_possible() {
        return;
    }
    let steps = [WITHOUT_EFFECT[0], ("tx-queue-len", "interface va", "1000", "500")];
    let desk = Desk::new(&steps);
    let mut running = Running::start(desk.prove(&[]));
    running.await_stderr("pairs of periods");
    thread::sleep(Duration::from_secs(3));
    desk.near("ip link set va txqueuelen 321");
    let output = running.finish(4 * LONG).expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{}", all_text(&output));
    assert!(
        all_text(&output).contains("changed by another process to 321"),
        "{}",
        all_text(&output)
    );
    assert_eq!(desk.value("/sys/class/net/va/tx_queue_len"), "321");
    assert_eq!(desk.value(EARLY), "1");
}

#[test]
fn setting_for_new_connections_takes_clients_that_come_anew() {
    if !is_possible() {
        return;
    }
    let desk = Desk::new(&FOR_NEW_CONNECTIONS);
    let pooled = fail(desk.prove(&[]), 5);
    assert!(pooled.contains("0 % of the requests came on such"), "{pooled}");
    assert!(pooled.contains("--close-connections"), "{pooled}");
    let closing = desk.prove(&["--close-connections", "--no-confirm", "--json"]);
    let output = Running::start(closing).finish(12 * LONG).expect("it ends");
    assert!([0, 5].contains(&output.status.code().unwrap()), "{}", all_text(&output));
    let doc: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(doc["outcome"]["pairs"].as_u64().unwrap() >= 18, "{doc:#}");
    let periods = doc["periods"].as_array().unwrap();
    // On a busy machine the guard ends periods of either arm.
    for period in periods.iter().filter(|of| !of["trip"].is_object()) {
        assert!(period["request_count"].as_u64() > Some(0), "{period:#}");
    }
    assert_eq!(desk.value("/proc/sys/net/ipv4/tcp_sack"), "1");
    assert!(!desk.journal_exists());
}

/// Kills a run at a moment after its first switch; the guard restores the values.
fn killed(desk: &Desk, after: Duration) {
    let mut running = Running::start(desk.prove(&[]));
    running.await_stderr("pairs of periods");
    thread::sleep(after);
    running.end_by("KILL", LONG);
    let restored = until(LONG, || desk.value(EARLY) == "1" && !desk.journal_exists());
    assert!(restored, "{} after {after:?}", desk.value(EARLY));
}

#[test]
fn killed_run_leaves_the_value_that_was_there() {
    if !is_possible() {
        return;
    }
    let desk = Desk::new(&WITHOUT_EFFECT);
    [1900, 4100].into_iter().for_each(|ms| killed(&desk, Duration::from_millis(ms)));
}

#[test]
#[ignore = "takes ten minutes: twenty moments of a kill"]
fn study_kill_at_twenty_moments() {
    let desk = Desk::new(&WITHOUT_EFFECT);
    (0..20).for_each(|n| killed(&desk, Duration::from_millis(300 + 337 * n)));
}

#[test]
#[ignore = "takes ten minutes: twenty harms and the time until each was undone"]
fn study_twenty_harms_are_undone() {
    let desk = Desk::new(&HARMFUL);
    let mut all = Vec::new();
    while all.len() < 20 {
        let output = Running::start(desk.prove(&["--json"])).finish(12 * LONG).expect("it ends");
        let doc: Value = serde_json::from_slice(&output.stdout).unwrap();
        all.extend(trips(&doc));
        assert_eq!(desk.value(HARM), "0");
    }
    all.sort_unstable();
    // TCP sees the first request when the timer of the queue has passed, 2 s after the switch.
    let in_time = all.iter().filter(|ms| **ms <= 2000 + 1000).count();
    assert!(in_time * 10 >= all.len() * 9, "{all:?} ms from the switch");
}

#[test]
fn wrong_command_lines_say_what_to_write() {
    let data = Data::new();
    let plan = data.file("plan.toml");
    fs::write(&plan, common::PLAN_WITHOUT_EFFECT).unwrap();
    let refused =
        |args: &[&str]| fail(data.wirepath(&[&["tune", "prove", &plan], args].concat()), 2);
    assert!(refused(&["--live", "--load", "ping"]).contains("--load"));
    assert!(refused(&["--live", "--port", "1", "--guard", "p99 > fast"]).contains("p99 > 2x"));
    assert!(
        refused(&["--live", "--port", "1", "--rebase", "--baseline", "1s"]).contains("--baseline")
    );
    assert!(refused(&["--for", "10m"]).contains("--live"));
    let old = run(data.wirepath(&["prove", "fake", "--live"]));
    assert_eq!(old.status.code(), Some(2));
    assert!(all_text(&old).contains("--live is now --watch"), "{}", all_text(&old));
}
