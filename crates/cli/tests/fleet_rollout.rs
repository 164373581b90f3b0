//! `wirepath fleet rollout` over namespaces of our own.

mod common;

use std::fs;
use std::process::Command;

use common::star::Star;
use common::{
    Data, LONG, Running, all_text, enter, fail, has_thread, is_installed, json, run, succeed, until,
};
use fleet::rollout::{Draw, Size};
use serde_json::Value;

const SEED: u64 = 7;
const SETTING: &str = "/proc/sys/net/ipv4/ip_early_demux";

/// A client whose figure depends on the settings of the host and nothing else: better with the plan, and worse with it on
/// hosts whose packets live for 99 hops. Chance would at times make a host differ from itself.
const CLIENT: &str = "\
demux=$(ip netns exec $1 cat /proc/sys/net/ipv4/ip_early_demux)
hops=$(ip netns exec $1 cat /proc/sys/net/ipv4/ip_default_ttl)
case $demux-$hops in 0-99) us=1500;; 0-*) us=900;; *) us=1000;; esac
echo \"{\\\"us\\\": $us}\"
";

/// Hosts with a plan that switches the early lookup of sockets off.
struct Fleet {
    star: Star,
    data: Data,
}

impl Fleet {
    fn new(hosts: usize) -> Self {
        let fleet = Fleet { star: Star::new(hosts, None), data: Data::new() };
        let plan = ["tune", "plan", "--profile", "forwarding", "--netns", &fleet.star.names[0]];
        let text = succeed(fleet.wirepath(&plan));
        fs::write(fleet.data.file("plan.toml"), text).expect("a plan");
        fs::write(fleet.data.file("client.sh"), CLIENT).expect("a client");
        fleet
    }

    fn wirepath(&self, args: &[&str]) -> Command {
        let mut command = common::wirepath(args);
        command.env("WIREPATH_DATA", self.data.path()).env("WIREPATH_LOCKS", self.data.path());
        command.env("WIREPATH_STATE", self.data.file("state"));
        command
    }

    fn rollout(&self, options: &[&str]) -> Command {
        let (plan, on) = (self.data.file("plan.toml"), self.star.on());
        let client = format!("sh {} {{host}}", self.data.file("client.sh"));
        let seed = SEED.to_string();
        let own = ["fleet", "rollout", &plan, "--on", &on, "--seed", &seed, "--metric", "us"];
        let load = ["--", "--from", &self.star.hub, "--client", &client, "--server"];
        let load = [&load[..], &["exec sleep 1000", "--ready", "sleep:1"]].concat();
        let limits = ["--metric", "us=json:/us lower", "--max-blocks", "8", "--time", "300s"];
        self.wirepath(&[&own[..], options, &load, &limits].concat())
    }

    fn value(&self, host: usize) -> String {
        succeed(enter(&self.star.names[host], &["cat", SETTING])).trim().to_owned()
    }

    fn values(&self) -> Vec<String> {
        (0..self.star.names.len()).map(|host| self.value(host)).collect()
    }

    /// Hosts of the stages, by their places.
    fn draw(&self, sizes: &[Size]) -> Draw {
        Draw::new(self.star.names.len(), sizes, SEED).expect("growing sizes")
    }

    fn id(&self) -> String {
        let status = json(self.wirepath(&["fleet", "status", "--json"]));
        status["rollouts"][0]["id"].as_str().expect("a roll-out").to_owned()
    }

    fn state(&self) -> Value {
        json(self.wirepath(&["fleet", "status", "--json"]))["rollouts"][0]["state"]["name"].take()
    }
}

fn states(document: &Value) -> Vec<&str> {
    let rows = document["transitions"].as_array().expect("transitions");
    rows.iter().filter_map(|row| row["state"]["name"].as_str()).collect()
}

#[test]
fn plan_that_hurts_hosts_of_the_second_stage_is_rolled_back_on_the_first_one_too() {
    let fleet = Fleet::new(3);
    let draw = fleet.draw(&[Size::Hosts(1), Size::Share(1.0)]);
    for host in draw.stage(1) {
        let file = "echo 99 > /proc/sys/net/ipv4/ip_default_ttl";
        succeed(enter(&fleet.star.names[*host], &["sh", "-c", file]));
    }
    let html = fleet.data.file("rollout.html");
    let stages = ["--stages", "1,100%", "--hold", "1s", "--html", &html, "--json"];
    let output = run(fleet.rollout(&stages));
    assert_eq!(output.status.code(), Some(4), "{}", all_text(&output));
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    let first = ["planned", "baseline", "proving", "applying", "holding", "confirming"];
    let expected = [&first[..], &["proving", "rolling-back", "rolled-back"]].concat();
    assert_eq!(states(&document), expected, "{document:#}");
    let canary = format!("netns:{}", fleet.star.names[draw.stage(0)[0]]);
    assert_eq!(document["stages"][0]["hosts"], Value::from(vec![canary.clone()]));
    assert_eq!(document["stages"][0]["proof"]["gate"], "open", "{document:#}");
    assert_eq!(document["stages"][0]["proof"]["control_count"], 1);
    assert_eq!(document["stages"][1]["proof"]["gate"], "shut", "{document:#}");
    assert!(document["trigger"].as_str().is_some_and(|why| why.contains("worse on")));
    // The values of the canary, read back by it.
    let last = document["transitions"].as_array().and_then(|rows| rows.last()).expect("a row");
    assert_eq!(last["answers"][0]["host"], Value::from(canary), "{last:#}");
    assert!(last["answers"][0]["text"].as_str().is_some_and(|text| text.contains("restored to 1")));
    assert_eq!(fleet.values(), ["1"; 3]);
    assert!(fs::read_to_string(&html).is_ok_and(|page| page.contains("rolled back: worse on")));
    let again = fail(fleet.wirepath(&["fleet", "rollout", "--abort", &fleet.id()]), 2);
    assert!(again.contains("rolled back"), "{again}");
}

#[test]
fn hosts_roll_back_by_themselves_when_the_process_is_killed_and_another_goes_on() {
    let fleet = Fleet::new(2);
    let draw = fleet.draw(&[Size::Hosts(1), Size::Share(1.0)]);
    let canary = draw.stage(0)[0];
    let has_plan = || fleet.value(canary) == "0" && fleet.state() == "holding";
    let first = Running::start(fleet.rollout(&["--stages", "1,100%", "--hold", "1h"]));
    assert!(until(LONG * 2, has_plan), "{}", first.stderr());
    let holdings = first.holdings();
    drop(first.end_by("KILL", LONG));
    // Nothing was confirmed.
    assert!(until(LONG, || fleet.values() == ["1"; 2]));
    holdings.assert_gone();
    let id = fleet.id();
    let second = Running::start(fleet.wirepath(&["fleet", "rollout", "--resume", &id]));
    assert!(until(LONG * 2, has_plan), "{}", second.stderr());
    let paused = second.end_by("INT", LONG * 2);
    assert_eq!(paused.status.code(), Some(130), "{}", all_text(&paused));
    assert!(all_text(&paused).contains("--resume"), "{}", all_text(&paused));
    assert_eq!((fleet.values(), fleet.state()), (vec!["1".to_owned(); 2], "paused".into()));
    // Meanwhile the user applies the same plan by hand: it is not the roll-out's to roll back.
    let by_hand = |args: &[&str]| {
        let state = fleet.data.file(&format!("state/fleet/{}", fleet.star.names[canary]));
        succeed(fleet.wirepath(&[&["tune", "--state", &state], args].concat()))
    };
    let plan = fleet.data.file(&format!("plan-{canary}.toml"));
    fs::write(
        &plan,
        by_hand(&["plan", "--profile", "forwarding", "--netns", &fleet.star.names[canary]]),
    )
    .expect("a plan");
    by_hand(&["apply", &plan]);
    let text = succeed(fleet.wirepath(&["fleet", "rollout", "--abort", &id, "--json"]));
    assert!(text.contains("of a user, not of rollout-"), "{text}");
    assert_eq!((fleet.value(canary).as_str(), fleet.state()), ("0", "rolled-back".into()));
    by_hand(&["rollback"]);
    assert_eq!(fleet.values(), ["1"; 2]);
    // A setting that another process changes while it is held.
    let limits = ["--stages", "1", "--hold", "1h", "--confirm-within", "20s"];
    let third = Running::start(fleet.rollout(&limits));
    assert!(until(LONG * 2, has_plan), "{}", third.stderr());
    succeed(enter(&fleet.star.names[canary], &["sh", "-c", &format!("echo 1 > {SETTING}")]));
    let drifted = third.finish(LONG * 2).expect("it ends");
    assert_eq!(drifted.status.code(), Some(4), "{}", all_text(&drifted));
    assert!(all_text(&drifted).contains("changed by another process"), "{}", all_text(&drifted));
    assert_eq!((fleet.values(), fleet.state()), (vec!["1".to_owned(); 2], "rolled-back".into()));
}

#[test]
fn bad_roll_out_is_refused_before_any_host_is_asked() {
    let data = Data::new();
    let plan = data.file("plan.toml");
    fs::write(&plan, "schema = 1\nmachine = \"x\"\nprofile = \"forwarding\"\n").expect("a plan");
    let refused = |args: &[&str]| {
        let mut command = common::wirepath(&[&["fleet", "rollout"], args].concat());
        command.env("WIREPATH_DATA", data.path()).env("WIREPATH_LOCKS", data.path());
        fail(command, 2)
    };
    assert!(refused(&[]).contains("PLAN"));
    assert!(refused(&[&plan, "--on", "this,this"]).contains("twice"));
    assert!(refused(&[&plan, "--on", "this"]).contains("stage 2 adds no host"));
    assert!(refused(&[&plan, "--on", "this", "--stages", "2"]).contains("there are 1"));
    assert!(refused(&[&plan, "--on", "this", "--stages", "x"]).contains("not a valid size"));
    let one = [&plan, "--on", "this", "--stages", "1"];
    let refused_load = |more: &[&str]| refused(&[&one[..], more].concat());
    assert!(refused_load(&["--confirm-within", "1s"]).contains("--confirm-within"));
    assert!(refused_load(&["--", "--state", "/x"]).contains("--state"));
    assert!(refused_load(&["--", "--load=storm", "--nonsense"]).contains("--nonsense"));
    assert!(refused(&["--resume", "x"]).contains("no roll-out"));
    assert!(refused(&["--resume", "x", "--abort", "x"]).contains("--abort"));
    assert!(!data.path().join("fleet.db").exists());
}

/// `./run fleet-demo` with less to measure.
fn demo(data: &Data) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/fleet-demo");
    let mut command = Command::new(script);
    command.arg(env!("CARGO_BIN_EXE_wirepath")).arg(data.path()).env("FLEET_DEMO", "small");
    let broker = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/nats-server");
    if fs::metadata(broker).is_ok() {
        command.arg(broker);
    }
    command
}

#[test]
#[ignore = "takes a minute; .ci/nightly runs it"]
fn demo_ends_with_a_roll_out_that_rolled_itself_back_and_leaves_nothing_when_it_is_killed() {
    if !["ethtool", "nft", "unshare"].iter().all(|program| is_installed(program)) {
        return;
    }
    let data = Data::new();
    let killed = Running::start(demo(&data));
    assert!(
        until(LONG, || killed.descendants().iter().any(|(pid, _)| has_thread(*pid, "wp-ping"))),
        "{}",
        killed.stderr()
    );
    let holdings = killed.holdings();
    drop(killed.end_by("KILL", LONG));
    holdings.assert_gone();
    let output = Running::start(demo(&data)).finish(10 * LONG).expect("it ends");
    let text = all_text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("h1: 0 h2: 0 h3: 0 h4: 0 h5: 0 h6: 0"), "{text}");
    assert!(text.contains("on 6 hosts") && text.contains("it should."), "{text}");
    for page in ["mesh.html", "rollout.html"] {
        assert!(fs::metadata(data.file(page)).is_ok_and(|page| page.len() > 1000), "{page}");
    }
}
