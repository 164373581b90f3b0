//! Live proofs of real services under clients that vary and stop: settings without effect, and effects that are known.

use std::fs;
use std::process::Command;
use std::thread;

use serde_json::Value;

use crate::common::{Data, LONG, NEAR_IP, Running, Spaces, all_text, clean, enter, succeed, until};
use crate::{SERVICE, WITHOUT_EFFECT, command, plan_with_steps};

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tune_live/study_client.py");

/// Name, port, number of clients, and requests of each a second.
type Kind = (&'static str, &'static str, &'static str, &'static str);
const KINDS: [Kind; 3] =
    [("python", "9301", "6", "25"), ("redis", "9302", "8", "50"), ("nginx", "9303", "6", "25")];

/// A step of a plan: knob, target, value that is there, and the plan's.
type Step = (&'static str, &'static str, &'static str, &'static str);

/// A setting whose effect on one kind is known.
struct Effect {
    plan: &'static [Step],
    /// Figures of which one has to show it as worse.
    figures: &'static [&'static str],
    resolve: &'static str,
}

/// By kind.
const EFFECTS: [Effect; 3] = [
    // The service computes a tenth longer while this is off.
    Effect { plan: &WITHOUT_EFFECT, figures: &["cpu_per_request"], resolve: "8%" },
    Effect {
        plan: &[("rps-cpus", "queue va rx-0", "0", "3")],
        figures: &["cpu_per_request", "p50"],
        resolve: "10%",
    },
    // Of both, as TCP uses the other one: without gso alone nothing changes.
    Effect {
        plan: &[("tso", "interface va", "on", "off"), ("gso", "interface va", "on", "off")],
        figures: &["cpu_per_request", "p50"],
        resolve: "20%",
    },
];

/// A real service in a namespace, and its clients in another one.
struct Desk {
    spaces: Spaces,
    data: Data,
    port: &'static str,
    _programs: Vec<Running>,
}

impl Desk {
    /// - `planted`: the Python service has the planted effect.
    fn new((kind, port, clients, rate): Kind, planted: bool) -> Self {
        let (spaces, data) = (Spaces::new(), Data::new());
        let service = match kind {
            "python" if planted => {
                let script =
                    format!("exec python3 {SERVICE} {port} /proc/sys/net/ipv4/tcp_early_demux");
                enter(&spaces.near, &["sh", "-c", &script])
            }
            "python" => enter(&spaces.near, &["python3", SERVICE, port]),
            "redis" => enter(
                &spaces.near,
                &[
                    "redis-server",
                    "--port",
                    port,
                    "--save",
                    "",
                    "--bind",
                    "0.0.0.0",
                    "--protected-mode",
                    "no",
                ],
            ),
            _ => {
                fs::write(data.file("file"), [b'x'; 65536]).unwrap();
                let folder = data.path().display();
                let text = format!(
                    "daemon off; user root; pid {folder}/pid; error_log {folder}/log; events {{}}\n\
                     http {{ access_log off; keepalive_requests 100000000; client_body_temp_path {folder}/b; \
                     proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; \
                     scgi_temp_path {folder}/s; server {{ listen {port}; root {folder}; }} }}"
                );
                fs::write(data.file("nginx.conf"), text).unwrap();
                enter(&spaces.near, &["nginx", "-c", &data.file("nginx.conf")])
            }
        };
        let mut service = Running::start(clean(service, &[]));
        let listens = || {
            let listeners = succeed(enter(&spaces.near, &["ss", "-Hltn"]));
            listeners.contains(&format!(":{port} "))
        };
        assert!(until(LONG, || listens() || service.has_ended()), "{}", service.stderr());
        let client = ["python3", CLIENT, kind, NEAR_IP, port, clients, rate];
        let clients = Running::start(clean(enter(&spaces.far, &client), &[]));
        Desk { spaces, data, port, _programs: vec![service, clients] }
    }

    fn command(&self, args: &[&str]) -> Command {
        command(&self.data, args)
    }

    /// `None` if the run was refused, because it would take longer than it may.
    fn prove(&self, plan: &[(&str, &str, &str, &str)], more: &[&str]) -> Option<Value> {
        let at = ["--interface", "va", "--netns", &self.spaces.near];
        let made =
            succeed(self.command(&[&["tune", "plan", "--profile", "latency"], &at[..]].concat()));
        let file = self.data.file("plan.toml");
        fs::write(&file, plan_with_steps(&made, plan)).unwrap();
        let live =
            ["tune", "prove", &file, "--live", "--port", self.port, "--no-confirm", "--json"];
        let running = Running::start(self.command(&[&live[..], more].concat()));
        let output = running.finish(60 * LONG).expect("it ends");
        assert!(output.status.code().is_some_and(|code| code != 1), "{}", all_text(&output));
        if all_text(&output).contains("nothing was switched") {
            testkit::note(&format!("refused on port {}: {}", self.port, all_text(&output).trim()));
            return None;
        }
        Some(serde_json::from_slice(&output.stdout).expect("a document"))
    }
}

fn seconds(ns: &Value) -> String {
    ns.as_f64().map_or("-".to_owned(), |ns| format!("{:.0} s", ns / 1e9))
}

/// One line a figure: its verdict, ratio, evidence and time.
fn told(name: &str, doc: &Value) -> Vec<String> {
    let outcome = &doc["outcome"];
    let head = format!(
        "{name}: {} pairs of {}, announced {}, trips {}, trusted {}, end {}",
        outcome["pairs"],
        seconds(&outcome["period_ns"]),
        seconds(&outcome["forecast"]["time_ns"]),
        outcome["trips"],
        outcome["trusted"],
        outcome["end"]["end"]
    );
    let verdicts = outcome["verdicts"].as_array().unwrap().iter();
    let lines = verdicts.map(|of| {
        format!(
            "  {}: {} x{:.3} evidence {:.1} of {} after {}",
            of["figure"].as_str().unwrap(),
            of["verdict"].as_str().unwrap(),
            of["ratio"]["median"].as_f64().unwrap_or(f64::NAN),
            of["evidence"].as_f64().unwrap(),
            of["evidence_needed"],
            seconds(&of["decided_ns"])
        )
    });
    std::iter::once(head).chain(lines).collect()
}

/// Proves a setting with a resolution on a service of each kind at the same time.
fn all(
    settings: [(&'static [Step], &'static str); 3],
    planted: bool,
    more: &'static [&'static str],
) -> Vec<Option<Value>> {
    let settings = KINDS.into_iter().zip(settings);
    let threads: Vec<_> = settings
        .map(|(kind, (plan, resolve))| {
            thread::spawn(move || {
                let options = [&["--resolve", resolve], more].concat();
                Desk::new(kind, planted).prove(plan, &options)
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().expect("a proof")).collect()
}

fn verdict<'a>(doc: &'a Value, figure: &str) -> &'a Value {
    let verdicts = doc["outcome"]["verdicts"].as_array().unwrap();
    &verdicts.iter().find(|of| of["figure"] == figure).unwrap()["verdict"]
}

#[test]
#[ignore = "takes half an hour: twelve proofs of settings without effect on real services"]
fn study_nulls_on_real_services() {
    let mut decided = Vec::new();
    for round in 0..4 {
        let options = &["--for", "300s", "--baseline", "60s"];
        let proofs = all([(&WITHOUT_EFFECT, "20%"); 3], false, options);
        for ((kind, ..), doc) in KINDS.iter().zip(&proofs) {
            let Some(doc) = doc else { continue };
            let lines = told(&format!("null {} {kind}", round + 1), doc);
            lines.iter().for_each(|line| println!("{line}"));
            for of in doc["outcome"]["verdicts"].as_array().unwrap() {
                if of["verdict"] == "better" || of["verdict"] == "worse" {
                    decided.push(lines.join("\n"));
                }
            }
        }
    }
    assert!(decided.is_empty(), "{decided:#?}");
}

#[test]
#[ignore = "takes a quarter of an hour: three effects that are known on real services"]
fn study_known_effects_on_real_services() {
    let settings = EFFECTS.map(|effect| (effect.plan, effect.resolve));
    let proofs = all(settings, true, &["--for", "900s", "--baseline", "90s"]);
    for (((kind, ..), effect), doc) in KINDS.iter().zip(&EFFECTS).zip(&proofs) {
        let Some(doc) = doc else { panic!("{kind}: refused") };
        told(&format!("effect {kind}"), doc).iter().for_each(|line| println!("{line}"));
        let is_found = effect.figures.iter().any(|figure| verdict(doc, figure) == "worse");
        assert!(is_found, "{kind}: {:#}", doc["outcome"]["verdicts"]);
    }
}
