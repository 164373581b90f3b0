//! The probe between two namespaces made by `ip`, as between two hosts: with a peer, with a plain
//! echo, and with what can be wrong on the way.

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::{
    Data, FAR_IP, LONG, NEAR_IP, Running, Spaces, all_text, enter, fail, ip, is_installed, json,
    paths_besides_probe, run, succeed, until,
};
use remote::Caller;
use remote::work::{Answer, Call, Echo, EchoEnd, Host, Ping};
use serde_json::Value;
use sys::child::ChildPlace;

/// Every engine in the ways that it is used most.
const ENGINES: [&[&str]; 7] = [
    &[],
    &["--arm", "spin"],
    &["--arm", "batch+gso"],
    &["--packet"],
    &["--arm", "bypass"],
    &["--arm", "spin+bypass+native"],
    &["--arm", "bypass+native+zero-copy"],
];

fn count(doc: &Value, direction: &str, what: &str) -> u64 {
    doc["deliveries"][direction][what]
        .as_u64()
        .unwrap_or_else(|| panic!("{direction} {what}: {doc}"))
}

/// Asserts that a direction's books add up; returns (sent, lost).
fn balance(doc: &Value, direction: &str) -> (u64, u64) {
    let counted = |what| count(doc, direction, what);
    let first_arrivals = counted("received_count") - counted("duplicated_count");
    assert_eq!(counted("sent_count"), first_arrivals + counted("lost_count"), "{doc}");
    (counted("sent_count"), counted("lost_count"))
}

/// A host of a mesh that answers calls.
fn host(mut command: Command) -> Caller<Host> {
    // Both are on this machine, which one of them would lock.
    command.env("WIREPATH_OF_FLEET", "1");
    Caller::command(command, &ChildPlace::default()).expect("a host")
}

fn asked(host: &mut Caller<Host>, call: &Call) -> Answer {
    host.call(call).expect("a call");
    host.expect_answer(LONG).expect("an answer")
}

fn pings(session: u32, count: u32) -> Call {
    let address = FAR_IP.parse().expect("an address");
    Call::Ping(Ping { address, count, session, wait_s: 0 })
}

/// Echo for 50 pings.
fn served(wait_s: u32) -> Call {
    Call::Echo(Echo { ipv6: false, session: 7, until: Some(EchoEnd { count: 50, wait_s }) })
}

#[test]
fn echo_of_one_run_answers_no_other_and_ends_after_it() {
    let spaces = Spaces::new();
    let (mut near, mut far) = (host(spaces.near(&[])), host(spaces.far(&[])));
    assert_eq!(asked(&mut far, &served(60)), Answer::Ready);
    let stranger = asked(&mut near, &pings(8, 5));
    let Answer::Pinged(stranger) = stranger else { panic!("{stranger:?}") };
    assert_eq!((stranger.sent, stranger.lost), (5, 5), "{stranger:?}");
    let own = asked(&mut near, &pings(7, 50));
    let Answer::Pinged(own) = own else { panic!("{own:?}") };
    assert_eq!((own.sent, own.lost), (50, 0), "{own:?}");
    assert_eq!(far.expect_answer(LONG).expect("it ends by itself"), Answer::Done(String::new()));
    // Without a run, too.
    assert_eq!(asked(&mut far, &served(1)), Answer::Ready);
    assert_eq!(far.expect_answer(LONG).expect("it ends by itself"), Answer::Done(String::new()));
}

#[test]
fn pings_that_are_ended_too_late_leave_no_answer_behind() {
    let spaces = Spaces::new();
    let (mut near, mut far) = (host(spaces.near(&[])), host(spaces.far(&[])));
    assert_eq!(asked(&mut far, &served(60)), Answer::Ready);
    for _ in 0..2 {
        let pinged = asked(&mut near, &pings(7, 5));
        assert!(matches!(&pinged, Answer::Pinged(cell) if cell.lost == 0), "{pinged:?}");
        near.call(&Call::StopPing).expect("a call");
    }
}

#[test]
fn every_engine_pings_without_loss_and_both_ends_books_agree() {
    let spaces = Spaces::new();
    let _peer = spaces.peer(&[]);
    for engine in ENGINES {
        let args = ["probe", "ping", FAR_IP, "--json", "-c", "500"];
        let doc = json(spaces.near(&[&args, engine].concat()));
        assert_eq!((&doc["schema"], &doc["command"]), (&1.into(), &"probe ping".into()));
        assert_eq!(doc["far_end_told"], true);
        for direction in ["forward", "return"] {
            assert_eq!(balance(&doc, direction), (500, 0), "{engine:?}: {doc}");
            assert_eq!(count(&doc, direction, "reordered_count"), 0);
        }
        assert_eq!(doc["metrics"]["rtt_ns_p50"]["unit"], "ns");
        assert!(doc["metrics"]["rtt_ns_p50"]["value"].as_f64() > Some(0.0), "{doc}");
        for end in ["near", "far"] {
            assert!(doc["costs"][end]["user_ns"].is_u64(), "{doc}");
        }
        let refused = doc["not_effective"].as_array().unwrap();
        assert_eq!(
            refused.len(),
            usize::from(engine.concat().contains("zero-copy")),
            "{engine:?}: {doc}"
        );
        no_frame_is_missing(&doc);
    }
}

fn no_frame_is_missing(doc: &Value) {
    for (name, value) in doc["counters"].as_object().unwrap() {
        assert!(!name.contains("unbalanced") || *value == 0, "{name}: {doc}");
    }
}

#[test]
fn every_engine_sends_and_the_far_end_tells_what_arrived() {
    let spaces = Spaces::new();
    let _peer = spaces.peer(&[]);
    for engine in ENGINES {
        // As fast as it goes: some may be lost, and then it is counted.
        let args = ["probe", "send", FAR_IP, "--json", "--time", "300ms"];
        let doc = json(spaces.near(&[&args, engine].concat()));
        let (sent, _) = balance(&doc, "forward");
        assert!(sent > 1000 && count(&doc, "forward", "received_count") > 100, "{doc}");
        assert_eq!(count(&doc, "forward", "duplicated_count"), 0);
        assert!(doc["metrics"]["received_pps"]["value"].as_f64() > Some(0.0), "{doc}");
        no_frame_is_missing(&doc);
        // At a rate that any engine keeps up with, as many as asked for and all of them.
        let args = ["probe", "send", FAR_IP, "--json", "--rate", "2000", "-c", "400"];
        let doc = json(spaces.near(&[&args, engine].concat()));
        assert_eq!(balance(&doc, "forward"), (400, 0), "{engine:?}: {doc}");
    }
}

#[test]
fn a_secret_is_shared_by_file() {
    let spaces = Spaces::new();
    let data = Data::new();
    let file = data.file("secret");
    common::write_secret(&file, "correct horse battery");
    let _peer = spaces.peer(&["--secret-file", &file]);
    let args = ["probe", "ping", FAR_IP, "--json", "-c", "100"];
    let doc = json(spaces.near(&[&args[..], &["--secret-file", &file]].concat()));
    assert_eq!(balance(&doc, "return"), (100, 0));
    assert!(fail(spaces.near(&args), 1).contains("--secret-file"));
}

#[test]
fn every_engine_is_echoed_by_every_engine() {
    let spaces = Spaces::new();
    let ways: [&[&str]; 4] =
        [&[], &["--packet"], &["--arm", "bypass"], &["--arm", "spin+bypass+native"]];
    for far in ways {
        let echo = spaces.echo(&[&["-i", "vb", "--json"], far].concat());
        for near in ways {
            let args = ["probe", "ping", FAR_IP, "--no-peer", "--json", "-c", "100"];
            let doc = json(spaces.near(&[&args, near].concat()));
            assert_eq!(doc["far_end_told"], false);
            assert_eq!(balance(&doc, "round-trip"), (100, 0), "{near:?} by {far:?}: {doc}");
        }
        let output = echo.end_by("INT", LONG);
        let doc: Value = serde_json::from_slice(&output.stdout).unwrap();
        // Its books are of the last sender, and say how many there were.
        assert_eq!(doc["counters"]["near_sender_count"], ways.len(), "{far:?}: {doc}");
        assert_eq!(balance(&doc, "forward"), (100, 0), "{far:?}: {doc}");
        assert_eq!(doc["counters"]["near_returned_count"], 100, "{far:?}: {doc}");
    }
}

#[test]
fn datagrams_in_a_vlan_are_echoed_with_its_tag_and_sockets_need_its_device() {
    let spaces = Spaces::new();
    let echo = spaces.echo(&["-i", "vb", "--json", "--arm", "bypass", "--vlan", "7"]);
    let ping = ["probe", "ping", FAR_IP, "--no-peer", "-c", "50", "--json"];
    let tagged = [&ping[..], &["--arm", "bypass+native", "--vlan", "7:3"]].concat();
    let document = json(spaces.near(&tagged));
    assert_eq!(balance(&document, "round-trip"), (50, 0), "{document}");
    // Datagrams without a tag are answered in the VLAN.
    let untagged = json(spaces.near(&[&ping[..], &["--arm", "bypass"]].concat()));
    assert_eq!(balance(&untagged, "round-trip"), (50, 0), "{untagged}");
    let output = echo.end_by("INT", LONG);
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(document["counters"]["near_xdp_untagged_count"], 50, "{document}");
    let sockets = fail(spaces.near(&[&ping[..], &["--vlan", "7"]].concat()), 3);
    assert!(sockets.contains("ip link add link va name va.7 type vlan id 7"), "{sockets}");
    let peer = spaces.peer(&[]);
    let by_peer = ["probe", "ping", FAR_IP, "-c", "5", "--arm", "bypass", "--vlan", "7"];
    let refused = fail(spaces.near(&by_peer), 1);
    assert!(refused.contains("a peer whose address is not on the VLAN's device"), "{refused}");
    drop(peer);
    let far = format!("netns:{}", spaces.far);
    let prove = ["prove", "probe", "--far", &far, "--vlan", "7", "--arms", "bypass"];
    let refused = fail(spaces.near(&[&prove[..], &["--no-history"]].concat()), 3);
    assert!(refused.contains("VLAN 7 for sockets"), "{refused}");
    for path in paths_besides_probe() {
        let other = fail(spaces.near(&["prove", &path, "--vlan", "7"]), 2);
        assert!(other.contains("--vlan is of path probe"), "{path}: {other}");
    }
}

/// A capture at one interface, and what tshark makes of it with every checksum verified.
struct Capture {
    file: String,
    tcpdump: Running,
}

impl Capture {
    fn start(namespace: &str, link: &str, file: String) -> Self {
        let program = ["tcpdump", "-Z", "root", "-U", "-n", "-i", link, "-w", &file, "udp"];
        let mut tcpdump = Running::start(enter(namespace, &program));
        tcpdump.await_stderr("listening on");
        Capture { file, tcpdump }
    }

    /// (IPv4 checksum status, UDP checksum status) of the datagrams from an address; 1 is good.
    fn checksums_from(self, source: &str, wanted: usize) -> Vec<(String, String)> {
        let Capture { file, tcpdump } = self;
        let read = || {
            let mut tshark = Command::new("tshark");
            tshark.args(["-r", &file, "-o", "ip.check_checksum:TRUE"]);
            tshark.args(["-o", "udp.check_checksum:TRUE", "-T", "fields"]);
            tshark.args(["-e", "ip.checksum.status", "-e", "udp.checksum.status"]);
            // The search for a neighbour sends to another port.
            tshark.args(["-Y", &format!("ip.src=={source} && udp.port==9000")]);
            // The last packet may be half written yet, which it says in its exit status.
            let text = String::from_utf8(run(tshark).stdout).unwrap();
            text.lines()
                .filter_map(|line| {
                    let (ip, udp) = line.split_once('\t')?;
                    Some((ip.to_owned(), udp.to_owned()))
                })
                .collect::<Vec<_>>()
        };
        let mut seen = Vec::new();
        let all = until(LONG, || {
            seen = read();
            seen.len() >= wanted
        });
        tcpdump.end_by("INT", LONG);
        assert!(all, "{} of {wanted} captured from {source}", seen.len());
        seen
    }
}

fn has_capture_tools() -> bool {
    is_installed("tcpdump") && is_installed("tshark")
}

#[test]
fn echoes_and_pings_of_our_own_making_carry_right_checksums() {
    if !has_capture_tools() {
        return;
    }
    let spaces = Spaces::new();
    let data = Data::new();
    let own: [&[&str]; 3] = [&["--packet"], &["--arm", "bypass"], &["--arm", "bypass+native"]];
    let ping = |engine: &[&str]| {
        let args = ["probe", "ping", FAR_IP, "--no-peer", "-c", "50", "--size", "101"];
        succeed(spaces.near(&[&args, engine].concat()));
    };
    let good = |seen: &[(String, String)]| seen.iter().all(|(ip, udp)| ip == "1" && udp == "1");
    for (n, engine) in own.into_iter().enumerate() {
        // Echoes of pings that a socket sent: on a veth those come without a checksum, which
        // the echo must not hand on as it is.
        let echo = spaces.echo(&[&["-i", "vb"], engine].concat());
        let capture = Capture::start(&spaces.near, "va", data.file(&format!("echo{n}.pcap")));
        ping(&[]);
        ping(&["--packet"]);
        let seen = capture.checksums_from(FAR_IP, 100);
        assert!(good(&seen), "echoes by {engine:?}: {seen:?}");
        drop(echo);
    }
    let _echo = spaces.echo(&[]);
    for (n, engine) in own.into_iter().enumerate() {
        let capture = Capture::start(&spaces.far, "vb", data.file(&format!("ping{n}.pcap")));
        ping(engine);
        let seen = capture.checksums_from(NEAR_IP, 50);
        assert!(good(&seen), "pings by {engine:?}: {seen:?}");
    }
}

#[test]
fn two_queues_carry_what_two_threads_send() {
    let spaces = Spaces::with_queues(2);
    let _peer = spaces.peer(&[]);
    let args = ["probe", "send", FAR_IP, "--arm", "bypass", "--queues", "2", "--json"];
    // Everything arrives at some queue; a socket at the far end hears them all.
    let more = ["--far-arm", "baseline", "--rate", "2000", "-c", "400"];
    let doc = json(spaces.near(&[&args[..], &more].concat()));
    let (sent, lost) = balance(&doc, "forward");
    assert_eq!(lost, 0, "{doc}");
    assert_eq!(sent, 800, "400 of each thread: {doc}");
    no_frame_is_missing(&doc);
    // One queue more than there are.
    let args = ["probe", "send", FAR_IP, "--arm", "bypass", "--queues", "3", "-c", "1"];
    let said = run(spaces.near(&args));
    let text = all_text(&said);
    assert_eq!(said.status.code(), Some(1), "{text}");
    assert!(text.contains("queue 2") && text.contains("ethtool -L"), "{text}");
}

#[test]
fn rate_count_and_flows_are_kept() {
    let spaces = Spaces::new();
    let _peer = spaces.peer(&[]);
    let begun = Instant::now();
    let doc =
        json(spaces.near(&["probe", "send", FAR_IP, "--rate", "1000", "-c", "500", "--json"]));
    assert_eq!(balance(&doc, "forward"), (500, 0));
    // Half a second by schedule: never earlier, however late on a busy machine.
    assert!(doc["wall_ns"].as_u64() >= Some(498_000_000), "{doc}");
    assert!(begun.elapsed() >= Duration::from_millis(498));
    for engine in [&[][..], &["--packet"], &["--arm", "bypass"]] {
        let args =
            ["probe", "send", FAR_IP, "--flows", "8", "--rate", "4000", "-c", "800", "--json"];
        let doc = json(spaces.near(&[&args[..], engine].concat()));
        assert_eq!(balance(&doc, "forward"), (800, 0), "{engine:?}: {doc}");
        assert_eq!(count(&doc, "forward", "reordered_count"), 0, "flows are kept apart: {doc}");
    }
    let args = ["probe", "ping", FAR_IP, "--rate", "2000", "-c", "400", "--json"];
    let doc = json(spaces.near(&args));
    assert_eq!((balance(&doc, "forward"), balance(&doc, "return")), ((400, 0), (400, 0)));
}

#[test]
fn flows_differ_in_their_source_port() {
    if !has_capture_tools() {
        return;
    }
    let (spaces, data) = (Spaces::new(), Data::new());
    let _peer = spaces.peer(&[]);
    for (n, engine) in [&[][..], &["--arm", "bypass"]].into_iter().enumerate() {
        let capture = Capture::start(&spaces.far, "vb", data.file(&format!("flows{n}.pcap")));
        let args = ["probe", "send", FAR_IP, "--flows", "8", "--rate", "2000", "-c", "160"];
        // A receiver with an XDP program would take them before the capture.
        let far = ["--far-arm", "baseline"];
        succeed(spaces.near(&[&args[..], engine, &far].concat()));
        let file = capture.file.clone();
        capture.checksums_from(NEAR_IP, 160);
        let mut tshark = Command::new("tshark");
        tshark.args(["-r", &file, "-T", "fields", "-e", "udp.srcport", "-Y"]);
        tshark.arg(format!("ip.src=={NEAR_IP} && udp.dstport==9000"));
        let text = String::from_utf8(run(tshark).stdout).unwrap();
        let ports: std::collections::BTreeSet<&str> = text.lines().collect();
        assert_eq!(ports.len(), 8, "{engine:?}: {ports:?}");
    }
}

#[test]
fn what_is_wrong_with_the_way_is_named() {
    let spaces = Spaces::new();
    let data = Data::new();
    succeed(ip(&["-n", &spaces.near, "link", "add", "vc", "type", "veth", "peer", "name", "vd"]));
    let dir = data.path().to_str().unwrap();
    let unused = "10.77.0.99";
    let cases: [(&[&str], &[&str]); 6] = [
        (&["probe", "ping", FAR_IP, "-i", "vc"], &["va", "vc", "reached through"]),
        (&["probe", "send", FAR_IP, "-i", "eth77"], &["no interface eth77"]),
        (&["probe", "ping", "192.0.2.1"], &["no route to 192.0.2.1"]),
        (&["probe", "generate", "192.0.2.1"], &["no route to 192.0.2.1"]),
        (&["probe", "send", FAR_IP, "--arm", "bypass", "-q", "7"], &["queue 7"]),
        (&["prove", "probe", "--peer", FAR_IP, "--data-dir", dir], &["wirepath peer --listen"]),
    ];
    for (args, wanted) in cases {
        // An interface that does not exist is a mistake of the command line.
        let code = if args.contains(&"eth77") { 2 } else { 1 };
        let said = fail(spaces.near(args), code);
        for words in wanted {
            assert!(said.contains(words), "{args:?} should say {words:?}: {said}");
        }
    }
    // One second is what a neighbour gets; a search for a peer must not come on top.
    for args in [&["probe", "ping", unused][..], &["probe", "send", unused, "--arm", "bypass"]] {
        let near = Running::start(spaces.near(args));
        let output = near.finish(Duration::from_secs(3)).expect("gives up soon");
        assert_eq!(output.status.code(), Some(1), "{}", all_text(&output));
        assert!(all_text(&output).contains(unused), "{}", all_text(&output));
    }
    // Without a peer and without an echo server it runs and reports the loss.
    let output = run(spaces.near(&["probe", "ping", FAR_IP, "-c", "3"]));
    assert!(all_text(&output).contains("no wirepath peer at"), "{}", all_text(&output));
}

#[test]
fn an_experiment_runs_between_two_hosts() {
    let (spaces, data) = (Spaces::new(), Data::new());
    let _peer = spaces.peer(&[]);
    let dir = data.path().to_str().unwrap();
    for load in ["ping", "flood"] {
        let args = [
            "prove",
            "probe",
            "--peer",
            FAR_IP,
            "--load",
            load,
            "--arms",
            "bypass,rps",
            "--max-blocks",
            "6",
            "--trial",
            "50ms",
            "--json",
            "--data-dir",
            dir,
        ];
        let doc = json(spaces.near(&args));
        assert_eq!(doc["load"]["far"], format!("peer:{FAR_IP}"));
        let arms = doc["arms"].as_array().unwrap();
        let trials =
            |name: &str| arms.iter().find(|a| a["name"] == name).unwrap()["trials"].as_u64();
        // More where blocks were noisy.
        assert!(trials("baseline") >= Some(6) && trials("bypass") >= Some(6), "{doc}");
        assert_eq!(trials("rps"), Some(0), "the other host's setting is not ours");
    }
}
