//! `wirepath explain`: its counts and drop reasons against known traffic.

#[path = "../common/mod.rs"]
mod common;

mod late;
mod life;
mod places;
mod shaper;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::{
    Data, FAR_IP, LONG, Running, Spaces, enter, fail, get, has_program, is_installed, json, run,
    succeed, until, wirepath,
};
use serde_json::Value;

/// Traces both namespaces until it is interrupted.
fn explain(spaces: &Spaces, more: &[&str]) -> Running {
    let spaces = ["--netns", &spaces.near, "--netns", &spaces.far];
    let all =
        [&["explain", "--json", "--duty", "100", "--time", "60s"], &spaces[..], more].concat();
    let mut explain = Running::start(wirepath(&all));
    explain.await_stderr("tracing packets");
    explain
}

fn ended(explain: Running) -> Value {
    let output = explain.end_by("INT", LONG);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn stage(doc: &Value, from: &str, to: &str) -> u64 {
    let rows = doc["stages"].as_array().expect("a list");
    let of_both = rows.iter().filter(|row| row["from"] == from && row["to"] == to);
    of_both.map(|row| row["count"].as_u64().expect("a count")).sum()
}

fn drops(doc: &Value, reason: &str) -> u64 {
    let rows = doc["drops"].as_array().expect("a list");
    let of_reason = rows.iter().filter(|row| row["reason"] == reason);
    of_reason.map(|row| row["count"].as_u64().expect("a count")).sum()
}

/// Sends datagrams without a peer.
fn send(spaces: &Spaces, port: &str, count: &str, more: &[&str]) {
    let to = ["probe", "send", FAR_IP, "--no-peer", "--json", "--port", port, "-c", count];
    let doc = json(spaces.near(&[&to, more].concat()));
    assert_eq!(doc["counters"]["forward_sent_count"].to_string(), count);
}

/// A receiver of all datagrams to a port, already listening.
fn receiver(spaces: &Spaces, port: u16, more: &[&str]) -> Running {
    let port_text = port.to_string();
    let all = ["probe", "receive", "-i", "vb", "--json", "--time", "60s", "--port", &port_text];
    let receiver = Running::start(spaces.far(&[&all, more].concat()));
    assert!(
        until(LONG, || {
            let table = std::fs::read_to_string(format!("/proc/{}/net/udp", receiver.pid()));
            table.is_ok_and(|table| table.contains(&format!(":{port:04X} ")))
        }),
        "{}",
        receiver.stderr()
    );
    receiver
}

fn received(receiver: Running) -> u64 {
    let output = receiver.end_by("INT", LONG);
    let doc: Value = serde_json::from_slice(&output.stdout).expect("its books");
    doc["deliveries"]["forward"]["received_count"].as_u64().expect("a count")
}

#[test]
fn stages_count_what_was_sent_and_read() {
    let _lab = testkit::alone();
    let spaces = Spaces::new();
    let receiver = receiver(&spaces, 9000, &[]);
    let data = Data::new();
    let explain = explain(&spaces, &["--perfetto", &data.file("trace")]);
    send(&spaces, "9000", "30000", &[]);
    // Datagrams left in the socket are read before the check.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let doc = ended(explain);
    let read = received(receiver);

    // Address resolution adds a few packets.
    let about = |count: u64| assert!((30_000..=30_030).contains(&count), "{count}: {doc:#}");
    about(stage(&doc, "net_dev_queue", "net_dev_start_xmit"));
    about(stage(&doc, "netif_rx", "netif_receive_skb"));
    assert_eq!(doc["evicted_count"], 0, "{doc:#}");
    let ready = stage(&doc, "netif_receive_skb", "sk_data_ready");
    assert_eq!(ready, read, "{doc:#}");
    // A flood of another program may fill the backlog of a CPU, which all namespaces share.
    let dropped = drops(&doc, "SOCKET_RCVBUFF") + drops(&doc, "CPU_BACKLOG");
    assert_eq!(ready + dropped, 30_000, "{doc:#}");
    let of_queue = stage(&doc, "sk_data_ready", "sock_recv_length");
    // A read that came before the wake-up is counted and not timed.
    assert!((read - read / 1000..=read).contains(&of_queue), "{of_queue} of {read}: {doc:#}");

    let timed = doc["stages"][0]["timed_count"].as_u64().expect("a count");
    assert!((3_000..=4_500).contains(&timed), "one in eight: {doc:#}");
    assert!(doc["stages"][0]["p50_ns"].as_f64() > Some(0.0), "{doc:#}");
    let samples = doc["places"].as_array().expect("a list");
    assert!(samples.iter().any(|row| row["count"].as_u64() > Some(0)), "{doc:#}");
    assert_slices_are_those_of(&doc, &data.file("trace"));
}

/// Prints the number of slices by name, after a check of the tracks and clocks. The reader is Perfetto's own
/// package, with its own schema.
const READ_TRACE: &str = r#"
import collections, json, sys
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
trace = Trace()
trace.ParseFromString(open(sys.argv[1], "rb").read())
clocks = [c.clock_id for p in trace.packet for c in p.clock_snapshot.clocks]
assert clocks == [3, 6, 1], clocks
tracks = {p.track_descriptor.uuid: p.track_descriptor.name for p in trace.packet if p.HasField("track_descriptor")}
counts, at, is_open = collections.Counter(), collections.Counter(), collections.Counter()
for packet in trace.packet:
    if not packet.HasField("track_event"):
        continue
    event = packet.track_event
    begins = event.type == TrackEvent.TYPE_SLICE_BEGIN
    assert begins or event.type == TrackEvent.TYPE_SLICE_END, event
    assert event.track_uuid in tracks and packet.timestamp_clock_id == 3, packet
    assert is_open[event.track_uuid] == (not begins), "slices of a track do not overlap"
    assert packet.timestamp >= at[event.track_uuid], "a track goes on"
    at[event.track_uuid], is_open[event.track_uuid] = packet.timestamp, begins
    if begins:
        counts[event.name] += 1
        assert (tracks[event.track_uuid] != "packets") == event.name.startswith("of that: waking"), event
assert not any(is_open.values())
print(json.dumps(counts))
"#;

/// As many slices of each stage as packets were timed there.
fn assert_slices_are_those_of(doc: &Value, trace: &str) {
    let mut timed = BTreeMap::new();
    for row in doc["stages"].as_array().expect("a list") {
        let name = row["name"].as_str().expect("a name").to_owned();
        *timed.entry(name).or_insert(0) += row["timed_count"].as_u64().expect("a count");
    }
    timed.retain(|_, count| *count > 0);
    assert!(timed.len() >= 3, "{doc:#}");
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/perfetto");
    if !package.is_dir() {
        return testkit::skip("perfetto", "not installed; ./test installs it");
    }
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", package).args(["-c", READ_TRACE, trace]);
    let counts: BTreeMap<String, u64> = serde_json::from_str(&succeed(command)).expect("counts");
    assert_eq!(counts, timed, "{doc:#}");
}

/// Datagrams that were read in the namespace of a process.
fn datagrams_read(of: &Running) -> u64 {
    let table = fs::read_to_string(format!("/proc/{}/net/snmp", of.pid())).expect("its counters");
    let line = table.lines().rfind(|line| line.starts_with("Udp: ")).expect("those of UDP");
    line.split(' ').nth(1).and_then(|count| count.parse().ok()).expect("a count")
}

/// As [`send`], always on the same CPU, whose backlog keeps the order.
fn send_in_order(spaces: &Spaces, port: &str, count: &str) {
    let status = fs::read_to_string("/proc/self/status").expect("own status");
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let cpu = cpus.and_then(|cpus| cpus.trim().split(['-', ',']).next()).expect("a CPU");
    let to = ["taskset", "-c", cpu, env!("CARGO_BIN_EXE_wirepath"), "probe", "send", FAR_IP];
    let more = ["--no-peer", "--json", "--port", port, "-c", count];
    succeed(enter(&spaces.near, &[&to[..], &more].concat()));
}

fn row<'a>(doc: &'a Value, from: &str, to: &str) -> &'a Value {
    let rows = doc["stages"].as_array().expect("a list");
    let found = rows.iter().find(|row| row["from"] == from && row["to"] == to);
    found.unwrap_or_else(|| panic!("no {from} to {to}: {doc:#}"))
}

#[test]
fn only_the_packets_of_one_service_are_traced_and_a_stopped_reader_shows() {
    let _lab = testkit::alone();
    let spaces = Spaces::new();
    let (stopped, other) = (receiver(&spaces, 9001, &[]), receiver(&spaces, 9002, &[]));
    stopped.signal("STOP");
    let start = |by: &[&str]| {
        let all = [
            "explain",
            "--json",
            "--duty",
            "100",
            "--timed-one-in",
            "1",
            "--time",
            "300s",
            "--samples",
            "0",
        ];
        let mut explain = Running::start(wirepath(&[&all[..], by].concat()));
        explain.await_stderr("tracing packets");
        explain
    };
    // To the stopped one, to a port without a socket, and to the other, which reads the last one last.
    let send_all = |to_stopped: &str| {
        let before = datagrams_read(&other);
        for (port, count) in [("9001", to_stopped), ("9003", "100"), ("9002", "100")] {
            send_in_order(&spaces, port, count);
        }
        assert!(until(2 * LONG, || datagrams_read(&other) == before + 100), "the other reads all");
    };
    let in_socket = ("sk_data_ready", "sock_recv_length");

    // By process, whose namespace is found.
    let data = Data::new();
    let trace = data.file("trace");
    let explain = start(&["--pid", &stopped.pid().to_string(), "--perfetto", &trace]);
    send_all("100");
    let held = Instant::now();
    thread::sleep(Duration::from_millis(500));
    let held = held.elapsed();
    let before = datagrams_read(&stopped);
    stopped.signal("CONT");
    assert!(until(2 * LONG, || datagrams_read(&stopped) == before + 100), "it reads again");
    stopped.signal("STOP");
    let doc = ended(explain);
    assert_eq!(doc["packets_count"], 100, "{doc:#}");
    for (from, to) in
        [("netif_rx", "netif_receive_skb"), ("netif_receive_skb", "sk_data_ready"), in_socket]
    {
        assert_eq!(stage(&doc, from, to), 100, "{from} to {to}: {doc:#}");
    }
    assert_eq!(stage(&doc, "net_dev_queue", "net_dev_start_xmit"), 0, "{doc:#}");
    let longest = row(&doc, in_socket.0, in_socket.1)["max_ns"].as_u64();
    assert!(longest >= Some(held.as_nanos() as u64), "{longest:?} is less than {held:?}");
    assert_eq!((&doc["evicted_count"], &doc["unread_count"]), (&0.into(), &0.into()), "{doc:#}");
    assert_eq!(drops(&doc, "NO_SOCKET"), 0, "of another port: {doc:#}");
    assert!(doc["cost"]["ns_per_packet"].is_f64() || doc["cost"]["packets_count"] == 0, "{doc:#}");

    assert_slices_are_those_of(&doc, &trace);

    // The other one is not held up by it.
    let begun = Instant::now();
    let explain = start(&["--netns", &spaces.far, "--port", "9002"]);
    send_all("100");
    let doc = ended(explain);
    assert_eq!((&doc["packets_count"], &doc["unread_count"]), (&100.into(), &0.into()), "{doc:#}");
    assert_eq!(stage(&doc, in_socket.0, in_socket.1), 100, "{doc:#}");
    let longest = row(&doc, in_socket.0, in_socket.1)["max_ns"].as_u64();
    assert!(longest < Some(begun.elapsed().as_nanos() as u64), "{doc:#}");

    // Waiting datagrams are in view while they wait, and so are drops of the full socket.
    let explain = start(&["--netns", &spaces.far, "--port", "9001"]);
    send_all("2100");
    let doc = ended(explain);
    let ready = stage(&doc, "netif_receive_skb", "sk_data_ready");
    assert_eq!(stage(&doc, in_socket.0, in_socket.1), 0, "{doc:#}");
    assert!(doc["unread_count"] == ready && ready > 0, "{doc:#}");
    assert_eq!(ready + drops(&doc, "SOCKET_RCVBUFF"), 2100, "{doc:#}");
}

#[test]
fn a_container_is_found_by_its_id_and_its_stages_are_served_and_compared() {
    let _lab = testkit::alone();
    let Some(cgroup) = cgroup2() else {
        return testkit::skip("cgroup", "cgroup version 2 is not mounted");
    };
    let id = format!("{:064x}", u64::from(std::process::id()) << 32 | 0xfeed);
    let folder = Folder(cgroup.join(format!("docker-{id}.scope")));
    fs::create_dir(&folder.0).expect("a cgroup");
    let spaces = Spaces::new();
    // `ip netns exec` hides the mounted control groups, so the group is entered before.
    let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", folder.0.display());
    let mut inside = Command::new("sh");
    inside.args(["-c", &script, "sh", "ip", "netns", "exec", &spaces.far]);
    inside.args([env!("CARGO_BIN_EXE_wirepath"), "probe", "receive", "-i", "vb", "--json"]);
    inside.args(["--time", "300s", "--port", "9001"]);
    let inside = Running::start(inside);
    let outside = receiver(&spaces, 9002, &[]);
    assert!(
        until(LONG, || {
            let table = fs::read_to_string(format!("/proc/{}/net/udp", inside.pid()));
            table.is_ok_and(|table| table.contains(&format!(":{:04X} ", 9001)))
        }),
        "{}",
        inside.stderr()
    );
    let all = ["explain", "--json", "--duty", "100", "--container", &id, "--listen", "0"];
    let mut explain = Running::start(wirepath(&all));
    explain.await_stderr("tracing packets; Ctrl-C ends");
    send(&spaces, "9001", "100", &[]);
    send(&spaces, "9002", "50", &[]);
    assert!(until(2 * LONG, || datagrams_read(&outside) == 150), "all is read");
    let of_read =
        "{stage=\"in the socket, until it is read\",from=\"sk_data_ready\",to=\"sock_recv_length\"";
    let all_read = format!("wirepath_explain_stage_packets_total{of_read}}} 100\n");
    let text = || get(&explain.stderr(), "/metrics");
    assert!(until(2 * LONG, || text().contains(&all_read)), "{}", text());
    let text = text();
    let sample = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.trim().parse::<f64>().expect("a number")
    };
    let timed = sample(&format!("wirepath_explain_stage_seconds_count{of_read}}}"));
    let bucket = format!("wirepath_explain_stage_seconds_bucket{of_read},le=\"");
    let sizes: Vec<f64> = text
        .lines()
        .filter_map(|line| line.strip_prefix(&bucket)?.split(' ').next_back()?.parse().ok())
        .collect();
    assert!(timed > 0.0 && sizes.len() == 13 && sizes.is_sorted(), "{text}");
    assert_eq!(sizes.last(), Some(&timed), "{text}");
    if is_installed("promtool") {
        let file = Data::new();
        fs::write(file.file("metrics"), &text).expect("a file");
        let script = format!("promtool check metrics < {}", file.file("metrics"));
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        assert_eq!(common::all_text(&run(command)), "", "{text}");
    }
    let doc = ended(explain);
    assert_eq!(doc["packets_count"], 100, "{doc:#}");
    assert_eq!(stage(&doc, "sk_data_ready", "sock_recv_length"), 100, "{doc:#}");

    let data = Data::new();
    fs::write(data.file("before.json"), doc.to_string()).expect("a file");
    let again =
        ["explain", "--container", &id, "--time", "1s", "--diff", &data.file("before.json")];
    let text = succeed(wirepath(&again));
    assert!(text.contains("before → now") && text.contains("until it is read"), "{text}");
    inside.end_by("INT", LONG);
}

/// A control group; removed when dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        until(LONG, || fs::remove_dir(&self.0).is_ok());
    }
}

/// Folder where control groups of version 2 are mounted.
fn cgroup2() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "));
    mount.and_then(|line| line.split(' ').nth(4)).map(PathBuf::from)
}

#[test]
fn drops_are_counted_exactly_by_kernel_reason() {
    let _lab = testkit::alone();
    if !is_installed("nft") {
        return;
    }
    let spaces = Spaces::new();
    let rules = "table ip t {\nchain c {\ntype filter hook prerouting priority 0\n\
                 udp dport 9998 drop\nudp dport 9997 udp checksum set 0x1234\n}\n}\n";
    succeed(enter(&spaces.far, &["nft", rules]));
    let full = receiver(&spaces, 9996, &["--rcvbuf", "8192"]);
    full.signal("STOP");
    let explain = explain(&spaces, &[]);
    send(&spaces, "9999", "50", &[]);
    send(&spaces, "9998", "60", &[]);
    // The checksum is in the packet, not left to the hardware.
    send(&spaces, "9997", "40", &["--packet"]);
    send(&spaces, "9996", "500", &[]);
    let doc = ended(explain);
    full.signal("CONT");
    let read = received(full);

    // The packet engine resolves the address by a datagram to another closed port.
    assert_eq!(drops(&doc, "NO_SOCKET"), 50 + 1, "{doc:#}");
    assert_eq!(drops(&doc, "NETFILTER_DROP"), 60, "{doc:#}");
    assert_eq!(drops(&doc, "UDP_CSUM"), 40, "{doc:#}");
    assert!(read < 500, "the buffer was to be too small");
    assert_eq!(drops(&doc, "SOCKET_RCVBUFF"), 500 - read, "{doc:#}");
    let named = doc["drops"].as_array().expect("a list").iter();
    assert!(named.clone().all(|row| !row["function"].as_str().unwrap_or("0x").starts_with("0x")));
}

#[test]
fn only_the_named_interface_of_the_named_namespace_is_traced() {
    let _lab = testkit::alone();
    let spaces = Spaces::new();
    let explain = Running::start(wirepath(&[
        "explain",
        "--json",
        "--duty",
        "100",
        "--time",
        "60s",
        "--netns",
        &spaces.far,
        "lo",
    ]));
    let mut explain = explain;
    explain.await_stderr("tracing packets");
    send(&spaces, "9000", "100", &[]);
    let doc = ended(explain);
    assert_eq!(doc["packets_count"], 0, "{doc:#}");
    assert_eq!(doc["drops"].as_array().map(Vec::len), Some(0), "{doc:#}");
}

#[test]
fn killed_explain_leaves_no_program() {
    let _lab = testkit::alone();
    let spaces = Spaces::new();
    let explain = explain(&spaces, &[]);
    let holdings = explain.holdings();
    assert!(!holdings.programs.is_empty(), "the check itself must be able to see");
    let programs = holdings.programs.clone();
    explain.end_by("KILL", LONG);
    assert!(until(LONG, || !programs.iter().any(|id| has_program(*id))));
}

#[test]
fn untraceable_interfaces_and_namespaces_are_named_in_the_error() {
    let spaces = Spaces::new();
    let explained = |args: &[&str]| wirepath(&[&["explain"], args].concat());
    let text = fail(explained(&["--netns", &spaces.far, "nosuch"]), 2);
    assert!(text.contains("no interface nosuch") && text.contains(&spaces.far), "{text}");
    let text = fail(explained(&["--netns", "nosuch"]), 2);
    assert!(text.contains("no network namespace nosuch"), "{text}");
    for (by, value, part) in [
        ("--pid", "4294967295", "no process 4294967295"),
        ("--cgroup", "/no/such.slice", "/no/such.slice"),
        ("--container", "0123456789ab", "no running container"),
    ] {
        let text = fail(explained(&[by, value]), 2);
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(run(explained(&["--port", "9", "--pid", "1"])).status.code(), Some(2));
    let text = fail(explained(&["--perfetto", "/no/such/trace", "--time", "1s"]), 1);
    assert!(text.contains("cannot write /no/such/trace"), "{text}");
    let text = fail(explained(&["--live", "--json"]), 2);
    assert!(text.contains("--live"), "{text}");
    assert_eq!(run(explained(&["--duty", "0"])).status.code(), Some(2));
}

#[test]
fn missing_privileges_are_named() {
    if !is_installed("setpriv") {
        return;
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-all", "--inh-caps", "-all", "--reuid", "65534"]);
    // A copy: the other user may not have access to the folder of the program.
    let data = Data::new();
    let program = data.file("wirepath");
    fs::copy(env!("CARGO_BIN_EXE_wirepath"), &program).expect("a copy");
    fs::set_permissions(data.path(), Permissions::from_mode(0o755)).expect("our folder");
    command.args(["--regid", "65534", "--clear-groups", &program, "explain", "--time", "1s"]);
    let output = run(command);
    let text = common::all_text(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("CAP_BPF") && text.contains("CAP_PERFMON"), "{text}");
}
