//! `prove command --far ssh:HOST`: the server runs at the far host, and nothing of it stays.

use super::*;

/// TCP echo server of many connections.
const SERVER: &str = r#"
import os, socket, threading
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("", int(os.environ["WIREPATH_PORT"])))
server.listen(64)
def serve(connection):
    while data := connection.recv(4096):
        sum(range(2000))
        connection.sendall(data)
while True:
    threading.Thread(target=serve, args=[server.accept()[0]], daemon=True).start()
"#;

/// 300 requests on one connection.
const CLIENT: &str = r#"
import os, socket, time
client = socket.create_connection((os.environ["WIREPATH_FAR"], int(os.environ["WIREPATH_PORT"])), 3)
begun = time.perf_counter()
for _ in range(300):
    client.sendall(b"x" * 100)
    assert client.recv(4096), "no echo"
print("rps", 300 / (time.perf_counter() - begun))
"#;

struct Programs {
    server: String,
    client: String,
}

impl Sshd {
    fn programs(&self) -> Option<Programs> {
        if !is_installed("python3") || !is_installed("ethtool") {
            return None;
        }
        let script = |name: &str, text: &str| {
            fs::write(self.data.file(name), text).expect("a script");
            format!("exec python3 {}", self.data.file(name))
        };
        Some(Programs { server: script("s.py", SERVER), client: script("c.py", CLIENT) })
    }

    /// `wirepath prove command` with this far end, and results in the data folder.
    fn command(&self, args: &[&str]) -> Command {
        let data = ["--data-dir", self.data.path().to_str().expect("a plain path")];
        let mut command = self.near("command", &[args, &data].concat());
        command.env("WIREPATH_STATE", self.data.file("near-state"));
        command
    }

    fn far_features(&self) -> String {
        succeed(enter(&self.spaces.far, &["ethtool", "-k", "vb"]))
    }

    /// Processes of the session whose command line has a text.
    fn running(&self, text: &str) -> Vec<u32> {
        self.session().into_iter().filter(|pid| command_line(*pid).contains(text)).collect()
    }
}

fn kill(pids: &[u32]) {
    for pid in pids {
        let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    }
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[test]
fn server_at_a_far_host_is_measured_there_with_its_settings() {
    let Some(sshd) = Sshd::start("BIN:/usr/sbin:/usr/bin:/bin") else { return };
    let Some(Programs { server, client }) = sshd.programs() else { return };
    let (before, log) = (sshd.far_features(), sshd.data.file("log"));
    let setup = format!(
        "echo $WIREPATH_ARM $WIREPATH_NEAR $(ethtool -k vb | grep tx-tcp-segmentation:) >>{log}"
    );
    let cleanup = format!("echo cleaned >>{log}");
    let (ready, time) = (["--setup", &setup, "--cleanup", &cleanup], ["--time", "100s"]);
    let arms = ["--switch", "tso=off", "--switch", "env:X=1", "--arms", "tso=off+env:X=1"];
    let args = ["--server", &server, "--client", &client, "--metric", "rps=re:rps (.+)"];
    let more = ["--max-blocks", "6", "--json"];
    let running = Running::start(sshd.command(&[&args[..], &ready, &arms, &time, &more].concat()));
    let output = running.finish(LONG * 3).expect("it ends");
    assert!(output.status.success(), "{}", all_text(&output));
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    for name in ["baseline", "tso=off+env:X=1"] {
        let arm = arm(&document, name);
        assert_eq!(arm["failures"].as_array().map(Vec::len), Some(0), "{arm:#}");
        let median = |metric: &str| arm["metrics"][metric]["median"].as_f64();
        for metric in [
            "rps",
            "client_cpu_ns",
            "server_memory_bytes_max",
            "server_ready_ns",
            "cpu_ns_per_packet",
            "context_switches_per_packet",
        ] {
            assert!(median(metric) > Some(0.0), "{metric}: {arm:#}");
        }
        // 300 requests of 100 bytes and their answers, with headers.
        assert!(median("interface_bytes") > Some(60_000.0), "{arm:#}");
        assert!(median("server_cpu_ns") > Some(1e6), "{arm:#}");
    }
    let (machine, far) = (&document["machine"], &document["machine"]["far"]);
    assert_eq!(far["kernel"], machine["kernel"], "both ends are on one machine");
    assert_eq!(far["nic"], "vb (veth, 1 queue, MTU 1500)");
    assert_eq!(machine["nic"], format!("va (veth, 1 queue, MTU 1500) to {FAR_IP}"));
    let text = fs::read_to_string(&log).expect("a log");
    let seen: BTreeSet<&str> = text.lines().collect();
    let on = "10.77.0.1 tx-tcp-segmentation: on";
    assert_eq!(
        seen,
        BTreeSet::from([
            // The control runs under the name of the baseline.
            &*format!("baseline {on}"),
            "cleaned",
            "tso=off+env:X=1 10.77.0.1 tx-tcp-segmentation: off",
        ])
    );
    let cleaned = text.lines().filter(|line| *line == "cleaned").count();
    assert_eq!(cleaned * 2, text.lines().count(), "{text}");
    assert_eq!(sshd.far_features(), before);
    sshd.assert_nothing_left();
}

/// UDP server that ends by itself after so many datagrams, prints their number and writes it to a file, too.
const COUNTING: &str = r#"
import json, os, socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", int(os.environ["WIREPATH_PORT"])))
wanted = int(os.environ["COUNT"])
for _ in range(wanted):
    server.recv(2048)
open(os.environ["REPORT"], "w").write(json.dumps({"interface": os.environ["WIREPATH_INTERFACE"], "count": wanted}))
print("its secret is 7;", "count", wanted, flush=True)
"#;

/// Sends datagrams for ever.
const FEED: &str = r#"
import os, socket, time
feed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    feed.sendto(b"x", (os.environ["WIREPATH_FAR"], int(os.environ["WIREPATH_PORT"])))
    time.sleep(0.001)
"#;

#[test]
fn a_server_at_a_far_host_ends_a_trial_and_its_figures_are_taken_there() {
    let Some(sshd) = Sshd::start("BIN:/usr/sbin:/usr/bin:/bin") else { return };
    if sshd.programs().is_none() {
        return;
    }
    let (server, feed, report) =
        (sshd.data.file("count.py"), sshd.data.file("feed.py"), sshd.data.file("report.json"));
    fs::write(&server, COUNTING).expect("a script");
    fs::write(&feed, FEED).expect("a script");
    let server = format!("REPORT={report} exec python3 {server}");
    let (feed, file) =
        (format!("exec python3 {feed}"), format!("n_count=file:{report}:json:/count"));
    let beside =
        "trap 'echo saw $WIREPATH_FAR_INTERFACE 3; exit' INT; while :; do sleep 0.05; done";
    let args = ["--server", &server, "--feed", &feed, "--arm", "baseline:COUNT=50"];
    let figures = ["--metric", "got_count=server:re:count ([0-9]+)", "--metric", &file];
    let witness = ["--beside", beside, "--beside-ready", "sleep:50"];
    let witness = [&witness[..], &["--metric", "saw_count=beside:re:saw vb ([0-9]+)"]].concat();
    let more = ["--arm", "b:COUNT=80", "--time", "100s", "--max-blocks", "6", "--json"];
    let document = json(sshd.command(&[&args[..], &figures, &witness, &more].concat()));
    for (name, count) in [("baseline", 50.0), ("baseline again", 50.0), ("b", 80.0)] {
        let arm = arm(&document, name);
        assert_eq!(arm["failures"].as_array().map(Vec::len), Some(0), "{arm:#}");
        let median = |metric: &str| arm["metrics"][metric]["median"].as_f64();
        assert_eq!((median("got_count"), median("n_count")), (Some(count), Some(count)), "{arm:#}");
        assert_eq!(median("saw_count"), Some(3.0));
        assert!(
            median("server_cpu_ns") > Some(1e6) && median("feed_cpu_ns") > Some(0.0),
            "{arm:#}"
        );
    }
    let written = fs::read_to_string(&report).expect("it was written there");
    assert!(written.contains("\"interface\": \"vb\""), "{written}");
    sshd.assert_nothing_left();
}

/// Without `wirepath`, and with the tools of an administrator.
const TOOLS_PATH: &str = "/usr/sbin:/usr/bin:/bin";

#[test]
fn failures_at_a_far_host_are_failed_trials_and_mistakes_are_found_before() {
    let Some(sshd) = Sshd::start("BIN:/usr/sbin:/usr/bin:/bin") else { return };
    let Some(Programs { server, client }) = sshd.programs() else { return };
    let base = ["--client", &client, "--metric", "rps=re:rps (.+)", "--time", "100s"];
    let good = format!("good={server}");
    let bad = "bad=echo no config >&2; exit 3";
    let dies = format!("dies=({}) & sleep 0.4; kill -9 $!; exit 7", server);
    let arms = ["--arm", &good, "--arm", bad, "--arm", &dies, "--max-blocks", "6", "--json"];
    let warmup = ["--warmup", "600ms", "--grace", "200ms"];
    let document = json(sshd.command(&[&base[..], &arms, &warmup].concat()));
    let why = |name: &str| arm(&document, name)["failures"].clone();
    assert_eq!(why("good").as_array().map(Vec::len), Some(0), "{document:#}");
    let said = why("bad").to_string();
    assert!(said.contains("ended before it was ready") && said.contains("no config"), "{said}");
    assert!(why("dies").to_string().contains("server"), "{}", why("dies"));
    sshd.assert_nothing_left();

    let absent = ["--server", "/nonexistent/server", "--arm", "x:X=1", "--check"];
    let said = fail(sshd.command(&[&base[..], &absent].concat()), 2);
    assert!(said.contains("far end") && said.contains("/nonexistent/server"), "{said}");
    let knob = ["--server", &server, "--switch", "rings=rx=512", "--check"];
    let said = fail(sshd.command(&[&base[..], &knob].concat()), 2);
    assert!(said.contains("far end, switch rings=rx=512"), "{said}");
    let fine = ["--server", &server, "--switch", "tso=off", "--check"];
    assert!(succeed(sshd.command(&[&base[..], &fine].concat())).contains("no mistake found"));
    sshd.assert_nothing_left();
}

/// Starts a run whose settings at the far end are set and whose server runs.
fn busy(sshd: &Sshd, before: &str, server: &str, more: &[&str]) -> Running {
    let args = [
        "--server",
        server,
        "--client",
        "sleep 1000",
        "--within",
        "900s",
        "--ready",
        "tcp",
        "--switch",
        "tso=off",
        "--arms",
        "alone",
        "--time",
        "900s",
        "--no-history",
    ];
    // The client of the baseline ends at once.
    let client = "[ $WIREPATH_ARM = tso=off ] || exit 0; exec sleep 1000";
    let args: Vec<&str> =
        args.iter().map(|arg| if *arg == "sleep 1000" { client } else { *arg }).collect();
    let mut near = Running::start(sshd.command(&[&args[..], more].concat()));
    assert!(
        until(LONG * 2, || near.has_ended()
            || sshd.far_features() != before && !sshd.running("s.py").is_empty()),
        "{}",
        near.stderr()
    );
    assert!(!near.has_ended(), "{}", near.stderr());
    near
}

#[test]
fn nothing_is_left_at_a_far_host_when_either_side_is_killed() {
    let Some(sshd) = Sshd::start(TOOLS_PATH) else { return };
    let Some(Programs { server, .. }) = sshd.programs() else { return };
    let before = sshd.far_features();
    // A server that ignores SIGTERM, and a daemon.
    let stubborn = format!("trap '' TERM; setsid sleep 1000 & ({server}) & wait");
    for victim in ["near", "interrupt", "session", "agent"] {
        let near = busy(&sshd, &before, &stubborn, &["--grace", "200ms"]);
        let client = near.holdings();
        match victim {
            "near" => drop(near.end_by("KILL", LONG)),
            "interrupt" => drop(near.end_by("INT", LONG)),
            victim => {
                let text = if victim == "agent" { "answer programs" } else { "sshd:" };
                let mut pids = sshd.running(text);
                // The supervisors of its programs are its children, and have its command line.
                let is_child = |pid: &u32| parent(*pid).is_some_and(|of| pids.contains(&of));
                if victim == "agent" {
                    pids = pids.iter().copied().filter(|pid| !is_child(pid)).collect();
                }
                assert!(!pids.is_empty(), "{victim}");
                kill(&pids);
                let output = near.finish(LONG).expect("it ends");
                let said = all_text(&output);
                assert_eq!(output.status.code(), Some(1), "{victim}: {said}");
                assert!(said.contains("the far end ssh:root@"), "{victim}: {said}");
            }
        }
        client.assert_gone();
        assert!(until(LONG, || sshd.far_features() == before), "{victim}: settings stay");
        sshd.assert_nothing_left();
    }
}

#[test]
fn nothing_is_left_at_a_far_host_whose_connection_breaks() {
    let Some(sshd) = Sshd::start(TOOLS_PATH) else { return };
    let Some(Programs { server, .. }) = sshd.programs() else { return };
    let before = sshd.far_features();
    let near = busy(&sshd, &before, &server, &[]);
    // Packets are dropped from now on; neither end is told.
    let drops = |what: &str| {
        succeed(ip(&["-n", &sshd.spaces.far, "route", what, "blackhole", "10.77.0.1/32"]));
    };
    drops("add");
    assert!(
        until(LONG * 2, || sshd.running("s.py").is_empty()
            && sshd.running("answer programs").is_empty()),
        "{:?}",
        sshd.running("")
    );
    assert!(until(LONG, || sshd.far_features() == before), "settings stay");
    let output = near.finish(LONG * 2).expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{}", all_text(&output));
    // The daemon's session waits for its connection.
    drops("delete");
    kill(&sshd.running("sshd: "));
}
