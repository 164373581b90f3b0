//! `wirepath fleet rollout --live`: services in namespaces, crossed over in pairs.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::common::star::Star;
use crate::common::{
    Data, LONG, Running, all_text, clean, enter, fail, let_poll, run, succeed, until,
};
use crate::{
    CLIENT, HARMFUL, PORT, SERVICE, WITHOUT_EFFECT, command, is_possible, plan_with_steps,
};

const EARLY: &str = "/proc/sys/net/ipv4/tcp_early_demux";
const HARM: &str = "/sys/class/net/wire/gro_flush_timeout";

/// Hosts, each with a service and its clients.
struct Fleet {
    star: Star,
    data: Data,
    programs: Vec<Running>,
}

impl Fleet {
    fn new(hosts: usize, plan: &[(&str, &str, &str, &str)]) -> Self {
        let (star, data) = (Star::new(hosts, None), Data::new());
        let mut programs = Vec::new();
        for (at, name) in star.names.iter().enumerate() {
            let_poll((name, "wire"), (&star.hub, &format!("p{at}")));
            let mut service = Running::start(clean(enter(name, &["python3", SERVICE, PORT]), &[]));
            let ready = until(LONG, || service.stdout().contains("ready") || service.has_ended());
            assert!(ready && !service.has_ended(), "{}", service.stderr());
            let address = format!("10.79.0.{}", at + 1);
            let client = ["python3", CLIENT, &address, PORT, "4", "25"];
            programs.push(service);
            programs.push(Running::start(clean(enter(&star.hub, &client), &[])));
        }
        let fleet = Fleet { star, data, programs };
        let at = ["--interface", "wire", "--netns", &fleet.star.names[0]];
        let args = [&["tune", "plan", "--profile", "latency"], &at[..]].concat();
        let made = succeed(fleet.command(&args));
        fs::write(fleet.data.file("plan.toml"), plan_with_steps(&made, plan)).unwrap();
        fleet
    }

    fn command(&self, args: &[&str]) -> Command {
        command(&self.data, args)
    }

    fn rollout(&self, options: &[&str]) -> Command {
        let (plan, on) = (self.data.file("plan.toml"), self.star.on());
        let own =
            ["fleet", "rollout", &plan, "--on", &on, "--live", "--period", "2s", "--hold", "1s"];
        self.command(&[&own[..], options, &["--", "--port", PORT, "--resolve", "50%"]].concat())
    }

    fn values(&self, file: &str) -> Vec<String> {
        let value = |name: &String| succeed(enter(name, &["cat", file])).trim().to_owned();
        self.star.names.iter().map(value).collect()
    }
}

#[test]
fn setting_without_effect_is_crossed_over_and_no_figure_is_worse() {
    if !is_possible() {
        return;
    }
    let fleet = Fleet::new(3, &WITHOUT_EFFECT);
    let page = fleet.data.file("rollout.html");
    let options = ["--stages", "3", "--for", "150s", "--accept-inconclusive", "--html", &page];
    let live = fleet.rollout(&[&options[..], &["--seed", "7", "--json"]].concat());
    let output = Running::start(live).finish(12 * LONG).expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", all_text(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let proof = &document["stages"][0]["proof"]["live"];
    let pairs: Vec<usize> =
        proof["groups"].as_array().unwrap().iter().map(|of| of.as_array().unwrap().len()).collect();
    assert_eq!(pairs, [2, 1], "{proof:#}");
    let rounds = proof["rounds"].as_u64().unwrap();
    assert!(rounds >= 11, "{proof:#}");
    for of in proof["figures"].as_array().unwrap() {
        assert_ne!(of["verdict"]["verdict"], "worse", "{of:#}");
        assert!(of["verdict"]["pairs"].as_u64().unwrap() + 4 >= 2 * rounds, "{of:#}");
    }
    assert_eq!(fleet.values(EARLY), ["0"; 3]);
    let text = fs::read_to_string(page).unwrap();
    assert!(text.contains("crossed over with") && text.contains("CPU per request"), "{text}");
    let id = document["id"].as_str().unwrap();
    succeed(fleet.command(&["fleet", "rollout", "--abort", id]));
    assert_eq!(fleet.values(EARLY), ["1"; 3]);
}

#[test]
fn harm_on_one_half_at_a_time_is_undone_at_once_and_rolls_the_plan_back() {
    if !is_possible() {
        return;
    }
    let plan = HARMFUL.map(|(knob, _, seen, value)| (knob, "interface wire", seen, value));
    let fleet = Fleet::new(2, &plan);
    let rollout = fleet.rollout(&["--stages", "2", "--for", "300s", "--json"]);
    let output = Running::start(rollout).finish(12 * LONG).expect("it ends");
    assert_eq!(output.status.code(), Some(4), "{}", all_text(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let proof = &document["stages"][0]["proof"];
    assert_eq!(proof["gate"], "shut", "{document:#}");
    assert!(proof["live"]["trips"]["on"].as_u64().unwrap() >= 1, "{proof:#}");
    assert_eq!(fleet.values(HARM), ["0"; 2]);
}

#[test]
fn kill_in_a_period_restores_the_hosts_and_nothing_stays() {
    if !is_possible() {
        return;
    }
    let fleet = Fleet::new(2, &WITHOUT_EFFECT);
    let running = Running::start(fleet.rollout(&["--stages", "2", "--for", "300s"]));
    assert!(until(LONG, || fleet.values(EARLY).contains(&"0".to_owned())), "{}", running.stderr());
    let holdings = running.holdings();
    drop(running.end_by("KILL", LONG));
    assert!(until(LONG, || fleet.values(EARLY) == ["1"; 2]));
    holdings.assert_gone();
}

#[test]
fn service_without_traffic_is_named_before_anything_is_switched() {
    if !is_possible() {
        return;
    }
    let mut fleet = Fleet::new(1, &WITHOUT_EFFECT);
    // The clients, which were started last.
    drop(fleet.programs.pop());
    let text = fail(fleet.rollout(&["--stages", "1", "--for", "60s"]), 1);
    assert!(text.contains("not begun") && text.contains("no request came"), "{text}");
    assert_eq!(fleet.values(EARLY), ["1"]);
}

#[test]
fn live_roll_out_without_a_service_or_with_a_load_is_refused() {
    let data = Data::new();
    let plan = data.file("plan.toml");
    fs::write(&plan, "schema = 1\nmachine = \"x\"\nprofile = \"forwarding\"\n").unwrap();
    let refused = |args: &[&str]| {
        let live = ["fleet", "rollout", &plan, "--on", "this", "--stages", "1", "--live"];
        fail(data.wirepath(&[&live[..], args].concat()), 2)
    };
    assert!(refused(&[]).contains("--unit NAME"));
    assert!(refused(&["--unit", "a", "--", "--port", "1"]).contains("--unit NAME"));
    assert!(refused(&["--", "--port", "1", "--load", "ping"]).contains("leave out the load"));
    assert!(refused(&["--period", "1s", "--", "--port", "1"]).contains("--period"));
    assert!(refused(&["--", "--port", "1", "--metric", "x"]).contains("metric"));
    let one = run(data.wirepath(&["fleet", "rollout", &plan, "--on", "this", "--period", "3s"]));
    assert_eq!(one.status.code(), Some(2), "{}", all_text(&one));
}
