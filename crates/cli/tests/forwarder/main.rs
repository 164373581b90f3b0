//! A forwarder between two hosts: each change on it is a switch, proved through it, and undone whatever ends the run.

#[path = "../common/mod.rs"]
mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::{
    Data, LONG, Running, all_text, enter, fail, ip, is_installed, json, run, succeed, until,
};
use serde_json::Value;

/// Page whose file the tests run.
const PAGE: &str = include_str!("../../../../docs/your-forwarder.md");

/// Names of the switches of the page's file, as arms of a ladder.
const CHANGES: [&str; 9] = [
    "ap/lan0:rps-cpus=3",
    "ap:queues",
    "ap:hooks",
    "ap:bridge-nf",
    "ap:headroom",
    "ap:capture",
    "ap:hash",
    "ap/wlan0:qdisc=pfifo:1000",
    "ap:mtu",
];

/// An access point with all faults, a host on either side, and the folder of its scripts.
struct Appliance {
    data: Data,
    names: [String; 3],
}

impl Appliance {
    /// `None` without a program that it needs.
    fn new() -> Option<Self> {
        if !["nft", "tc", "tcpdump", "clang"].into_iter().all(is_installed) {
            return None;
        }
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| format!("wpf{}-{number}{end}", std::process::id());
        let appliance = Appliance { data: Data::new(), names: ["src", "ap", "sta"].map(name) };
        let scene = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/forwarder/scene");
        for script in ["appliance.sh", "tun.sh", "hash.sh", "capture.sh", "hooks.nft"] {
            fs::copy(scene.join(script), appliance.folder().join(script)).unwrap();
        }
        testkit::bpf_object(&appliance.folder(), testkit::CONSTANT_HASH);
        let mut command = Command::new("sh");
        command.arg("appliance.sh").current_dir(appliance.folder());
        for (variable, name) in ["SRC", "AP", "STA"].iter().zip(&appliance.names) {
            command.env(variable, name);
        }
        succeed(command);
        Some(appliance)
    }

    fn folder(&self) -> PathBuf {
        self.data.path().to_owned()
    }

    /// The file of the page, for these namespaces.
    fn file(&self) -> String {
        let mut text = testkit::page_file(PAGE).to_owned();
        for (end, name) in ["src", "ap", "sta"].iter().zip(&self.names) {
            text = text.replace(&format!("netns:{end}"), &format!("netns:{name}"));
        }
        let file = self.data.file("forwarder.toml");
        fs::write(&file, text).unwrap();
        file
    }

    fn wirepath(&self, args: &[&str]) -> Command {
        let mut command = self.data.wirepath(args);
        command.env("WIREPATH_STATE", self.data.file("state")).current_dir(self.folder());
        command
    }

    /// Everything that the switches change; of a tunnel that is being remade, that it is not there.
    fn state(&self) -> String {
        let script = "
            ip -o link | sed -E 's/^[0-9]+: ([^:@]+).* mtu ([0-9]+) qdisc ([a-z_]+)( master [a-z0-9]+)?.*/\\1 \\2 \\3\\4/'
            nft list ruleset; tc qdisc show; tc filter show dev lan0 ingress | sed 's/id [0-9]*//; s/tag.*//'
            ip route; cat /sys/class/net/*/queues/rx-0/rps_cpus; cat tun.conf; ls /sys/class/net/tun0/queues
            cat /proc/sys/net/bridge/bridge-nf-call-iptables
            awk 'NR > 1 { print $3, $4 }' /proc/net/packet";
        let mut command = enter(&self.names[1], &["sh", "-c", script]);
        command.current_dir(self.folder());
        all_text(&run(command))
    }
}

impl Drop for Appliance {
    fn drop(&mut self) {
        let mut command = Command::new("sh");
        command.args(["-c", "kill $(cat capture.pid)"]).current_dir(self.folder());
        let _gone = command.status();
        for name in &self.names {
            let _gone = ip(&["netns", "delete", name]).status();
        }
    }
}

fn arm<'a>(document: &'a Value, name: &str) -> &'a Value {
    let arms = document["arms"].as_array().unwrap();
    arms.iter()
        .find(|arm| arm["name"] == name)
        .unwrap_or_else(|| panic!("no arm {name}: {document:#}"))
}

#[test]
fn nine_changes_on_a_forwarder_are_one_ladder_and_are_undone_after_each_trial() {
    let Some(appliance) = Appliance::new() else { return };
    let (file, before) = (appliance.file(), appliance.state());
    let document = json(appliance.wirepath(&[
        "prove",
        "command",
        &file,
        "--time",
        "70s",
        "--max-blocks",
        "6",
        "--json",
    ]));
    assert_eq!(appliance.state(), before);
    for (number, change) in CHANGES.iter().enumerate() {
        let arm = arm(&document, &format!("+{change}"));
        assert_eq!(arm["switches"].as_array().unwrap().len(), number + 1, "{arm:#}");
        assert!(arm["not_effective"].as_array().is_none_or(Vec::is_empty), "{arm:#}");
        assert_eq!(arm["failures"], Value::Array(Vec::new()), "{arm:#}");
        // Each packet of the client's interface crosses three interfaces of the forwarder.
        let median = |figure: &str| arm["metrics"][figure]["median"].as_f64();
        if let (Some(crossed), Some(sent)) =
            (median("ap_packet_count"), median("interface_packet_count"))
        {
            assert!(crossed >= 3.0 * sent, "{arm:#}");
        }
    }
}

#[test]
fn a_run_killed_at_ten_moments_leaves_the_forwarder_as_it_was() {
    let Some(appliance) = Appliance::new() else { return };
    let (file, before) = (appliance.file(), appliance.state());
    for moment in 0..10 {
        let args = ["prove", "command", &file, "--time", "60s", "--no-history"];
        let running = Running::start(appliance.wirepath(&args));
        std::thread::sleep(Duration::from_millis(700 + 613 * moment));
        running.signal("KILL");
        let _killed = running.finish(LONG);
        let is_restored = until(LONG, || appliance.state() == before);
        assert!(is_restored, "before:\n{before}\nafter:\n{}", appliance.state());
        let journals =
            fs::read_dir(appliance.folder().join("state")).into_iter().flatten().flatten();
        for place in journals.map(|entry| entry.path()).filter(|path| path.is_dir()) {
            assert!(until(LONG, || !place.join("journal").exists()), "{}", place.display());
        }
    }
}

#[test]
fn a_plan_of_the_forwarder_and_switches_beside_it_are_proved_through_it() {
    let Some(appliance) = Appliance::new() else { return };
    let before = appliance.state();
    let [src, ap, sta] = &appliance.names;
    let plan = appliance.data.file("plan.toml");
    let made = ["tune", "plan", "--profile", "forwarding", "--netns", ap, "-i", "lan0"];
    fs::write(&plan, succeed(appliance.wirepath(&made))).unwrap();
    let [near, far, at] = [src, sta, ap].map(|name| format!("netns:{name}"));
    let at = format!("ap={at}");
    let hooks = "ap:hooks=on:nft flush ruleset|off:nft -f hooks.nft";
    let args =
        ["tune", "prove", &plan, "--near", &near, "--far", &far, "--at", &at, "--switch", hooks];
    let more =
        ["--load", "ping", "--arms", "alone", "--time", "100s", "--max-blocks", "6", "--json"];
    let document = json(appliance.wirepath(&[&args[..], &more].concat()));
    assert_eq!(appliance.state(), before);
    let whole = arm(&document, "plan")["switches"].as_array().unwrap();
    assert!(whole.len() > 1 && whole.contains(&"ap:hooks".into()), "{whole:?}");
    assert_eq!(arm(&document, "ap:hooks")["failures"], Value::Array(Vec::new()));
}

#[test]
fn mistakes_about_places_are_named_with_their_remedy() {
    let data = Data::new();
    let base = ["prove", "command", "--load", "ping", "--near", "netns:a", "--far", "netns:b"];
    let refused = |more: &[&str]| fail(data.wirepath(&[&base[..], more].concat()), 2);
    for (more, says) in [
        (vec!["--switch", "ap:gro=on"], "--at ap=netns:NAME"),
        (vec!["--at", "netns:ap"], "NAME=PLACE"),
        (vec!["--at", "near=netns:ap", "--switch", "gro=on"], "is not near"),
        (vec!["--at", "ap=peer:x", "--switch", "gro=on"], "netns:NAME, ssh:"),
        (vec!["--switch", "x=on:true"], "off:COMMAND"),
        (vec!["--switch", "gro=on", "--client", "true"], "--load"),
    ] {
        let said = refused(&more);
        assert!(said.contains(says), "{more:?}: {said}");
    }
    let lab = ["prove", "command", "--load", "ping", "--switch", "x=on:true|off:true"];
    let said = fail(data.wirepath(&lab), 2);
    assert!(said.contains("--near and --far"), "{said}");
    let alone = ["prove", "command", "--load", "ping", "--at", "ap=this", "--switch", "gro=on"];
    let said = fail(data.wirepath(&alone), 2);
    assert!(said.contains("between two places"), "{said}");
}
