//! `wirepath tune prove`: the worth of settings, and that all are rolled back.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::{
    Data, LONG, Running, Spaces, all_text, echo, enter, fail, is_installed, json,
    paths_besides_probe, run, succeed, until,
};
use serde_json::Value;

/// A namespace with bad settings, one for its sender, and folders for journals and results.
struct Desk {
    spaces: Spaces,
    data: Data,
}

/// Settings of the namespace before it is tuned.
const SEEDED: [(&str, &str); 6] = [
    ("queues/rx-0/rps_cpus", "1"),
    ("queues/rx-1/rps_cpus", "1"),
    // A later packet waits 1 ms for the next poll of the queue: far longer than for a CPU.
    ("gro_flush_timeout", "1000000"),
    ("napi_defer_hard_irqs", "2"),
    ("queues/tx-0/xps_cpus", "1"),
    ("queues/tx-1/xps_cpus", "1"),
];

impl Desk {
    fn new() -> Self {
        let desk = Desk { spaces: Spaces::with_queues(2), data: Data::new() };
        desk.near("echo 1 > /proc/sys/net/ipv4/conf/va/forwarding");
        desk.spaces.let_near_poll();
        for (file, value) in SEEDED {
            desk.near(&format!("echo {value} > /sys/class/net/va/{file}"));
        }
        let rules: String =
            (0..40).map(|port| format!("udp dport {} drop; ", 40_000 + port)).collect();
        desk.near(&format!(
            "nft 'table ip seeded {{ chain in {{ type filter hook input priority 0; {rules} }}; }}' \
             2>/dev/null || true"
        ));
        desk
    }

    fn near(&self, script: &str) -> String {
        succeed(enter(&self.spaces.near, &["sh", "-c", script]))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.data.wirepath(args);
        command.env("WIREPATH_STATE", self.data.file("state"));
        command
    }

    /// A shell in a folder, in which `wirepath` is this program.
    fn shell(&self, folder: &str, line: &str) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_wirepath")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let own = self.command(&[]);
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(folder).env("PATH", path);
        shell.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell
    }

    /// All text of a line of the shell that must succeed.
    fn shell_text(&self, folder: &str, line: &str) -> String {
        let output = Running::start(self.shell(folder, line)).finish(12 * LONG).expect("it ends");
        assert!(output.status.success(), "{}", all_text(&output));
        all_text(&output)
    }

    /// The command that a text ends with, after this prefix, with the words that only the user knows.
    fn line_after(&self, prefix: &str, text: &str) -> String {
        let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(prefix)).collect();
        let [line] = lines[..] else { panic!("one line with {prefix:?}: {text}") };
        line.trim().replace("NETNS", &self.spaces.far)
    }

    fn plan(&self, profile: &str) -> String {
        let at = ["--interface", "va", "--netns", &self.spaces.near];
        let args = [&["tune", "plan", "--profile", profile], &at[..]].concat();
        let file = self.data.file(&format!("{profile}.toml"));
        fs::write(&file, succeed(self.command(&args))).unwrap();
        file
    }

    fn prove(&self, plan: &str, args: &[&str]) -> Command {
        let short = ["--time", "100s", "--trial", "40ms", "--max-blocks", "6"];
        self.command(&[&["tune", "prove", plan], &short[..], args].concat())
    }

    /// Long enough for intervals on a busy machine.
    fn prove_long(&self, plan: &str, args: &[&str]) -> Value {
        let long = ["--time", "300s", "--min-blocks", "8", "--max-blocks", "8", "--json"];
        let command = self.command(&[&["tune", "prove", plan], &long[..], args].concat());
        let output = Running::start(command).finish(12 * LONG).expect("it ends");
        assert!(output.status.success(), "{}", all_text(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Every knob of the namespace and its interface.
    fn knobs(&self) -> Value {
        let at = ["tune", "knobs", "--interface", "va", "--netns", &self.spaces.near, "--json"];
        let mut all = json(self.command(&at))["knobs"].take();
        let knobs = all.as_array_mut().unwrap();
        knobs.retain(|knob| !matches!(knob["scope"].as_str(), Some("host" | "cpu")));
        all
    }

    fn links(&self) -> String {
        self.near("ls /sys/class/net")
    }

    fn has_journal(&self) -> bool {
        Path::new(&self.data.file("state/journal")).exists()
    }
}

fn arm<'a>(outcome: &'a Value, name: &str) -> &'a Value {
    let arms = outcome["arms"].as_array().unwrap();
    arms.iter().find(|arm| arm["name"] == name).unwrap_or_else(|| panic!("{name} in {outcome:#}"))
}

#[test]
fn the_gain_of_a_plan_and_of_each_setting_is_shown_with_intervals() {
    let desk = Desk::new();
    let (before, links) = (desk.knobs(), desk.links());
    let plan = desk.plan("latency");
    let from = desk.spaces.far.clone();
    let load = ["--load", "ping", "--trial", "300ms"];
    let outcome = desk.prove_long(&plan, &[&["--from", &from], &load[..]].concat());
    assert_eq!(desk.knobs(), before);
    assert_eq!(desk.links(), links);
    assert!(!desk.has_journal());

    let whole = arm(&outcome, "plan");
    let knobs: Vec<&str> =
        whole["switches"].as_array().unwrap().iter().flat_map(Value::as_str).collect();
    assert_eq!(knobs, ["rps-cpus", "gro-flush-timeout", "napi-defer-hard-irqs"]);
    assert_eq!(arm(&outcome, "+rps-cpus")["switches"].as_array().unwrap().len(), 1);
    assert_eq!(arm(&outcome, "+gro-flush-timeout")["switches"].as_array().unwrap().len(), 2);
    for (name, count) in [("+rps-cpus", 2), ("plan", 4)] {
        // RPS of both queues, then the timer and the deferral.
        let arm = arm(&outcome, name);
        let trials = arm["trials"].as_u64().unwrap();
        assert_eq!(arm["counters"]["settings_changed_count"], trials * count, "{arm:#}");
    }
    let gain = &whole["metrics"]["rtt_ns_p50"];
    assert!(gain["ratio"].as_f64().unwrap() < 0.7, "{gain:#}");
    assert!(gain["low"].is_f64() && gain["high"].is_f64(), "{gain:#}");
    assert!(outcome["floor"]["rtt_ns_p50"]["low"].is_f64());
    let steps = outcome["steps"].as_array().unwrap();
    let of_rtt: Vec<&Value> = steps.iter().filter(|row| row["metric"] == "rtt_ns_p50").collect();
    assert_eq!(of_rtt.len(), 3, "{steps:#?}");
    for row in &of_rtt {
        assert!(row["low"].is_f64() && row["high"].is_f64(), "{row:#}");
    }
    assert_eq!(
        (of_rtt[0]["over"].as_str(), of_rtt[1]["over"].as_str()),
        (Some("baseline"), Some("+rps-cpus"))
    );
    let best = of_rtt.iter().map(|row| row["ratio"].as_f64().unwrap()).fold(1.0, f64::min);
    assert!(best < 0.7, "the timer is what holds packets back: {of_rtt:#?}");

    // It is stored as any other experiment, and its page shows how to repeat it.
    let page = desk.data.file("page.html");
    succeed(desk.command(&["report", "last", "--html", &page]));
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("wirepath tune prove") && html.contains("--from"), "{html}");
    let text = succeed(desk.prove(&plan, &["--from", &from, "--load", "ping", "--arms", "alone"]));
    assert!(text.contains("gro-flush-timeout") && text.contains("plan"), "{text}");
}

#[test]
fn each_command_from_the_finding_to_the_rollback_is_the_line_that_the_one_before_it_ends_with() {
    let desk = Desk::new();
    let before = desk.knobs();
    let folder = desk.data.file("chain");
    fs::create_dir(&folder).unwrap();

    let examine = format!("wirepath doctor va --profile latency --netns {}", desk.spaces.near);
    let found = desk.shell_text(&folder, &examine);
    let line = desk.line_after("next: ", &found);
    assert!(line.ends_with("| wirepath tune plan --from - > plan.toml"), "{line}");
    let planned = desk.shell_text(&folder, &line);
    let plan = fs::read_to_string(Path::new(&folder).join("plan.toml")).unwrap();
    for knob in ["rps-cpus", "gro-flush-timeout", "napi-defer-hard-irqs"] {
        assert!(plan.contains(&format!("knob = \"{knob}\"")), "{knob}: {plan}");
    }
    assert!(
        plan.contains("holds merged packets until a timer"),
        "the finding is the reason: {plan}"
    );
    let limits = "--load ping --trial 100ms --time 200s --min-blocks 9 --max-blocks 9";
    let prove = format!("{} {limits}", desk.line_after("next: ", &planned));
    let proved = desk.shell_text(&folder, &prove);
    assert_eq!(desk.knobs(), before, "all settings were rolled back");
    let kept = fs::read_to_string(Path::new(&folder).join("kept.toml")).expect("what helps");
    assert!(kept.contains("#   gro-flush-timeout: rtt_ns_p50 0."), "the planted timer: {kept}");
    let again = fail(desk.shell(&folder, &prove), 2);
    assert!(again.contains("kept.toml exists already"), "{again}");

    let mut applying = Running::start(desk.shell(&folder, &desk.line_after("next: ", &proved)));
    applying.await_stderr("next: ");
    let confirm = desk.line_after("next: ", &applying.stderr());
    desk.shell_text(&folder, &confirm);
    let applied = applying.finish(LONG).expect("it was confirmed");
    assert!(applied.status.success(), "{}", all_text(&applied));
    // The first line is the confirmation of before.
    let said = all_text(&applied).replacen(&format!("next: {confirm}"), "", 1);
    assert_eq!(desk.near("cat /sys/class/net/va/gro_flush_timeout").trim(), "0");
    let status = desk.shell_text(&folder, &desk.line_after("next: ", &said));
    assert!(status.contains("as planned"), "{status}");
    let exported = desk.shell_text(&folder, &desk.line_after("or: ", &said));
    let install = desk.line_after("next: ", &exported);
    assert_eq!(install, "cp -r out/etc /");
    assert!(Path::new(&folder).join("out/etc").is_dir(), "{exported}");
    desk.shell_text(&folder, &desk.line_after("undo: ", &said));
    assert_eq!(desk.knobs(), before);
    assert!(!desk.has_journal());
}

#[test]
fn an_interrupted_proof_of_a_plan_shows_its_result_and_restores_all_settings() {
    let desk = Desk::new();
    let before = desk.knobs();
    let plan = desk.plan("latency");
    let kept = desk.data.file("kept.toml");
    let from = desk.spaces.far.clone();
    let args = ["--from", &from, "--load", "ping", "--min-blocks", "100", "--max-blocks", "100"];
    let limits = ["--time", "300s", "--trial", "20ms", "--keep", &kept];
    let mut running =
        Running::start(desk.command(&[&["tune", "prove", &plan], &args[..], &limits].concat()));
    assert!(
        until(LONG, || running.has_ended() || desk.data.trial_count() >= 12),
        "{}",
        running.stderr()
    );
    let output = running.end_by("INT", LONG);
    assert_eq!(output.status.code(), Some(130), "{}", all_text(&output));
    let result = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(result.contains("baseline"), "{result}");
    assert!(!Path::new(&kept).exists(), "{}", all_text(&output));
    assert_eq!(desk.knobs(), before);
    assert!(!desk.has_journal());
}

#[test]
fn the_gain_of_a_plan_for_the_users_own_program() {
    if !is_installed("python3") {
        return;
    }
    let desk = Desk::new();
    let (before, links) = (desk.knobs(), desk.links());
    let plan = desk.plan("latency");
    let script = |name: &str, text: &str| {
        let file = desk.data.file(name);
        fs::write(&file, text).unwrap();
        format!("exec python3 {file}")
    };
    let (server, client) = (script("echo.py", echo::SERVER), script("ping.py", echo::PING));
    let own = ["--server", &server, "--client", &client, "--ready", "udp"];
    let metric = ["--metric", echo::METRIC, "--from", &desk.spaces.far];
    let outcome = desk.prove_long(&plan, &[&own[..], &metric].concat());
    assert_eq!(desk.knobs(), before);
    assert_eq!(desk.links(), links);
    assert!(!desk.has_journal());
    // Without the timer packets of an echo no longer wait 1 ms for the next poll.
    let whole = &arm(&outcome, "plan")["metrics"]["p50_us"];
    assert_eq!(whole["verdict"], "better", "{whole:#}");
    assert!(whole["ratio"].as_f64().unwrap() < 0.8, "{whole:#}");
    let steps = outcome["steps"].as_array().unwrap();
    assert_eq!(steps.iter().filter(|row| row["metric"] == "p50_us").count(), 3, "{steps:#?}");
    assert_eq!(outcome["load"]["plan_digest"].as_str().map(str::is_empty), Some(false));

    let no_end = desk.command(&["tune", "prove", &plan, "--server", &server, "--client", &client]);
    assert!(fail(no_end, 2).contains("--from"), "two ends are needed");
}

#[test]
fn a_forwarded_load_crosses_the_namespace_and_leaves_nothing() {
    let desk = Desk::new();
    let (before, links) = (desk.knobs(), desk.links());
    let plan = desk.plan("forwarding");
    let from = desk.spaces.far.clone();
    let forwarded = || {
        let text = desk.near("cat /proc/net/snmp");
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("Ip:")).collect();
        let place = rows[0].split_whitespace().position(|name| name == "ForwDatagrams").unwrap();
        rows[1].split_whitespace().nth(place).unwrap().parse::<u64>().unwrap()
    };
    let so_far = forwarded();
    let outcome = json(desk.prove(&plan, &["--from", &from, "--forward", "--json"]));
    assert_eq!(outcome["load"]["kind"], "flood");
    let received: u64 = outcome["arms"]
        .as_array()
        .unwrap()
        .iter()
        .map(|arm| arm["counters"]["forward_sent_count"].as_u64().unwrap_or(0))
        .sum();
    // Except for warm-up and losses, all datagrams went through the namespace.
    assert!(forwarded() - so_far > received / 4 && received > 1000, "{received}");
    assert!(arm(&outcome, "plan")["metrics"]["cpu_ns_per_packet"]["ratio"].is_f64());
    assert_eq!(desk.knobs(), before);
    assert_eq!(desk.links(), links);

    desk.near("echo 0 > /proc/sys/net/ipv4/conf/va/forwarding");
    let said = fail(desk.prove(&plan, &["--from", &from, "--forward"]), 1);
    assert!(said.contains("does not forward what comes in by va"), "{said}");
    assert_eq!(desk.links(), links);
}

#[test]
fn a_namespace_without_a_named_wire_gets_a_temporary_one() {
    let desk = Desk::new();
    let links = desk.links();
    let at = ["tune", "plan", "--profile", "forwarding", "--netns", &desk.spaces.near];
    let plan = desk.data.file("netns.toml");
    fs::write(&plan, succeed(desk.command(&at))).unwrap();
    let outcome = json(desk.prove(&plan, &["--forward", "--arms", "alone", "--json"]));
    assert!(arm(&outcome, "ip-early-demux")["metrics"]["received_pps"]["ratio"].is_f64());
    assert!(outcome["machine"]["nic"].as_str().unwrap().contains("wp-annex-in"), "{outcome:#}");
    assert_eq!(desk.links(), links);
}

#[test]
fn a_proof_that_is_killed_leaves_nothing() {
    let desk = Desk::new();
    let (before, links) = (desk.knobs(), desk.links());
    let plan = desk.plan("latency");
    let from = desk.spaces.far.clone();
    let endless = || {
        let args = ["--from", &from, "--load", "ping", "--max-blocks", "200", "--no-history"];
        let mut command = desk.command(&["tune", "prove", &plan, "--time", "300s"]);
        command.args(args).args(["--trial", "40ms"]);
        Running::start(command)
    };
    for number in 0..5 {
        let running = endless();
        assert!(until(LONG, || desk.has_journal()));
        thread::sleep(Duration::from_millis(number * 23));
        let held = running.holdings();
        running.end_by("KILL", LONG);
        // The guard restores the settings, the kernel removes the rest.
        assert!(until(LONG, || !desk.has_journal()), "{number}");
        held.assert_gone();
        assert_eq!(desk.knobs(), before, "{number}");
    }
    let mut found = 0;
    for number in 0..4 {
        let running = endless();
        assert!(until(LONG, || desk.has_journal()));
        for (guard, _) in running.descendants() {
            succeed({
                let mut kill = Command::new("kill");
                kill.args(["-KILL", &guard.to_string()]);
                kill
            });
        }
        thread::sleep(Duration::from_millis(number * 31));
        running.end_by("KILL", LONG);
        if desk.has_journal() {
            found += 1;
            let said = fail(desk.prove(&plan, &["--from", &from, "--load", "ping"]), 1);
            assert!(said.contains("tune rollback"), "{said}");
            let noticed = all_text(&run(desk.command(&["tune", "status"])));
            assert!(noticed.contains("was ended while"), "{noticed}");
            succeed(desk.command(&["tune", "rollback"]));
        }
        assert_eq!(desk.knobs(), before, "{number}");
    }
    assert!(found <= 4, "too many were killed in the middle");
    let running = endless();
    assert!(until(LONG, || desk.has_journal()));
    let output = running.end_by("TERM", LONG);
    assert!(!all_text(&output).contains("panicked"));
    assert_eq!(desk.knobs(), before);
    assert!(!desk.has_journal());
    assert_eq!(desk.links(), links);
}

#[test]
fn loads_that_bypass_the_settings_of_the_plan_are_refused() {
    let desk = Desk::new();
    let plan = desk.plan("latency");
    let far = desk.spaces.far.clone();
    let refused = |args: &[&str], says: &str| {
        let said = fail(desk.prove(&plan, args), 2);
        assert!(said.contains(says), "{args:?}: {said}");
        assert!(!desk.has_journal());
    };
    refused(&[], "--from NETNS");
    for path in paths_besides_probe() {
        refused(&["--path", &path, "--from", &far], "its own lab");
    }
    refused(&["--from", &far, "--forward", "--load", "ping"], "use flood");
    refused(&["--from", &far, "--load", "storm"], "storm");
    refused(&["--from", &desk.spaces.near], "within itself");
    refused(&["--peer", "10.77.0.2"], "--from");
    fail(desk.prove(&plan, &["--from", "no-such-namespace"]), 1);
    fail(desk.prove(&desk.data.file("none.toml"), &["--from", &far]), 2);
    let text = fs::read_to_string(&plan).unwrap();
    for (file, value) in SEEDED {
        let to = if file.contains("xps") { continue } else { "0" };
        let _ = value;
        desk.near(&format!("echo {to} > /sys/class/net/va/{file}"));
    }
    let said = fail(desk.prove(&plan, &["--from", &far]), 1);
    assert!(said.contains("nothing to prove"), "{said}\n{text}");
}

#[test]
fn tracing_and_experiments_exclude_each_other() {
    let data = Data::new();
    let own = |args: &[&str]| {
        let mut command = data.wirepath(args);
        command.env("WIREPATH_LOCKS", data.path());
        command
    };
    let mut proving = Running::start(own(&["prove", "fake", "--time", "300s"]));
    assert!(until(LONG, || data.path().join("history.db").exists() || proving.has_ended()));
    let said = fail(own(&["explain", "--time", "1s"]), 1);
    assert!(said.contains("a `wirepath prove` runs"), "{said}");
    proving.end_by("KILL", LONG);

    let mut explaining = Running::start(own(&["explain", "--time", "300s", "--samples", "0"]));
    let traces =
        until(LONG, || explaining.stderr().contains("tracing packets") || explaining.has_ended());
    if !traces || explaining.has_ended() {
        return testkit::skip("bpf", "packets cannot be traced here");
    }
    let said = fail(own(&["prove", "fake", "--time", "1s"]), 1);
    assert!(said.contains("packets are traced on this machine (`wirepath explain`"), "{said}");
    explaining.end_by("KILL", LONG);
    succeed(own(&common::QUICK));
}
