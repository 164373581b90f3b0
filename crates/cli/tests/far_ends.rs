//! Commands whose far end is dead, deaf or half dead: no number stands for another.

mod common;

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use common::dying::assert_dead_far_end_has_no_figure;
use common::star::Star;
use common::{FAR_IP, LONG, Running, Spaces, clean, enter, fail, ip, json, run, succeed, until};
use serde_json::Value;
use sys::bpf::{DropCounter, DropSpec};

/// Pings by an engine, and the options that it needs.
const ENGINES: [&[&str]; 3] =
    [&["--arm", "baseline"], &["--packet", "-i", "va"], &["--arm", "bypass", "-i", "va"]];

/// A socket in the far namespace that takes datagrams and never answers.
fn deaf(spaces: &Spaces) -> UdpSocket {
    let at = (FAR_IP.parse::<Ipv4Addr>().expect("an address"), 9000);
    at_far(spaces, || UdpSocket::bind(at)).expect("a socket")
}

/// Runs `body` on a thread in the far namespace.
fn at_far<R: Send>(spaces: &Spaces, body: impl FnOnce() -> R + Send) -> R {
    let far =
        sys::netns::Netns::open(format!("/run/netns/{}", spaces.far)).expect("the far namespace");
    far.run(body).expect("the namespace is entered")
}

/// Runs a command that must fail with 1 and still print its document.
fn failed(spaces: &Spaces, args: &[&str]) -> (Value, String) {
    let output = run(spaces.near(&[args, &["--json"]].concat()));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {told}");
    (serde_json::from_slice(&output.stdout).expect("a document"), told)
}

/// Packets that the near interface received (`rx`) or sent (`tx`) so far.
fn packets(spaces: &Spaces, direction: &str) -> u64 {
    let link = json(ip(&["-n", &spaces.near, "-s", "-j", "link", "show", "va"]));
    link[0]["stats64"][direction]["packets"].as_u64().expect("a count")
}

fn counts(document: &Value, direction: &str) -> [u64; 3] {
    ["sent_count", "received_count", "lost_count"]
        .map(|name| document["deliveries"][direction][name].as_u64().expect("a count"))
}

#[test]
fn ping_without_an_answer_fails_and_counts_no_arrival() {
    let spaces = Spaces::new();
    let mut deaf = Some(deaf(&spaces));
    // The second time there is no socket at all, and the kernel there refuses the datagrams.
    for state in ["deaf", "dead"] {
        for engine in ENGINES {
            let args = ["probe", "ping", FAR_IP, "--no-peer", "-c", "5"];
            let (document, told) = failed(&spaces, &[&args[..], engine].concat());
            let expected = format!("none of 5 datagrams to {FAR_IP}:9000 was answered");
            assert!(told.contains(&expected), "{state} {engine:?}: {told}");
            assert!(document["deliveries"]["forward"].is_null(), "{state} {engine:?}: {document}");
            assert_eq!(counts(&document, "round-trip"), [5, 0, 5], "{state} {engine:?}");
            assert!(document["metrics"]["rtt_ns_p50"].is_null(), "{state} {engine:?}: {document}");
            let cost = &document["metrics"]["cpu_ns_per_packet"];
            assert!(cost["value"].is_null(), "{state} {engine:?}: {cost}");
        }
        deaf.take();
    }
}

#[test]
fn ping_whose_far_end_dies_counts_what_was_answered() {
    let spaces = Spaces::new();
    let echo = spaces.echo(&[]);
    let args = ["probe", "ping", FAR_IP, "--no-peer", "--json", "--rate", "2000", "-c", "4000"];
    let ping = Running::start(spaces.near(&args));
    assert!(until(LONG, || packets(&spaces, "rx") > 500), "{}", ping.stderr());
    drop(echo);
    let output = ping.finish(LONG).expect("it ends");
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    let [sent, received, lost] = counts(&document, "round-trip");
    assert!(sent == 4000 && received > 0 && received < sent, "{document}");
    assert_eq!(received + lost, sent, "{document}");
    assert!(document["metrics"]["rtt_ns_max"]["value"].is_null(), "{document}");
}

#[test]
fn sender_alone_claims_no_arrival() {
    let spaces = Spaces::new();
    let _deaf = deaf(&spaces);
    for engine in ENGINES {
        let args = ["probe", "send", FAR_IP, "--no-peer", "--json", "-c", "100"];
        let document = json(spaces.near(&[&args[..], engine].concat()));
        assert_eq!(document["deliveries"], serde_json::json!({}), "{engine:?}: {document}");
        assert_eq!(document["counters"]["forward_sent_count"], 100, "{engine:?}: {document}");
        for absent in ["lost_count", "received_pps", "goodput_bps"] {
            assert!(document["metrics"][absent].is_null(), "{engine:?}: {document}");
        }
    }
    let output = run(spaces.near(&["probe", "send", FAR_IP, "--no-peer", "-c", "100"]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("sent 100, arrivals not known"), "{text}");
}

#[test]
fn run_whose_peer_dies_fails_without_a_result() {
    let spaces = Spaces::new();
    for role in ["ping", "send"] {
        let peer = spaces.peer(&[]);
        let before = packets(&spaces, "tx");
        let near = Running::start(
            spaces.near(&["probe", role, FAR_IP, "--time", "60s", "--rate", "1000"]),
        );
        assert!(until(LONG, || packets(&spaces, "tx") > before + 200), "{role}: {}", near.stderr());
        drop(peer);
        let output = near.finish(LONG).expect("it ends");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{role}: {told}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("received"), "{role}");
    }
}

#[test]
fn receiver_alone_does_not_call_lost_what_another_program_took() {
    let spaces = Spaces::new();
    let receiver = spaces.listening("receive", &[], |_| {});
    let args = ["probe", "send", FAR_IP, "--no-peer", "--rate", "2000", "-c", "4000"];
    let sender = Running::start(spaces.near(&args));
    assert!(until(LONG, || packets(&spaces, "tx") > 500), "{}", sender.stderr());
    // Takes all frames before they reach the socket, and is gone before the last datagram.
    let taken = at_far(&spaces, || {
        let mut taker = DropCounter::load(&DropSpec::default()).expect("a program");
        let index = host::net::link_named("vb").expect("our link").index;
        taker.attach(index, sys::bpf::XdpMode::Native).expect("attached");
        assert!(
            until(LONG, || taker.counts().is_ok_and(|counts| counts.frames > 300)),
            "{}",
            sender.stderr()
        );
        taker.counts().expect("counts").frames
    });
    sender.finish(LONG).expect("it ends");
    let output = receiver.end_by("INT", LONG);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("sent at least 4000"), "{text}");
    let unseen = text.split("not seen here ").nth(1).and_then(|rest| rest.split(' ').next());
    let unseen = unseen.and_then(|count| count.parse::<u64>().ok()).expect("a count");
    assert!(unseen >= taken && !text.contains("lost"), "{taken} taken: {text}");
}

#[test]
fn program_whose_far_end_dies_has_failed_trials_and_no_figure() {
    for (program, experiment, server, age_ms) in [
        ("sockperf", ["probe", "ping", "spin", "250ms"], "sockperf server", 2500),
        // The trial outlasts the age by far, however late the test looks on a busy machine.
        ("iperf3", ["probe", "flood", "spin", "1s"], "iperf3 -s", 500),
    ] {
        let age = Duration::from_millis(age_ms);
        assert_dead_far_end_has_no_figure(program, experiment, server, age);
    }
}

#[test]
fn experiment_without_a_far_end_is_refused() {
    let spaces = Spaces::new();
    let args = ["prove", "probe", "--peer", FAR_IP, "--arms", "spin", "--time", "5s"];
    let told = fail(spaces.near(&[&args[..], &["--no-history"]].concat()), 1);
    assert!(told.contains(FAR_IP), "{told}");
}

/// Jumbo frames at one end of a switch: each end's packets fit its own link, and those above the other's never arrive.
#[test]
fn different_mtus_of_the_ends_are_named_when_datagrams_are_lost() {
    let star = Star::new(2, None);
    let [near, far] = [&star.names[0], &star.names[1]];
    succeed(ip(&["-n", near, "link", "set", "wire", "mtu", "9000"]));
    succeed(ip(&["-n", &star.hub, "link", "set", "p0", "mtu", "9000"]));
    let program = env!("CARGO_BIN_EXE_wirepath");
    let place = format!("netns:{far}");
    let proof = [
        "prove",
        "probe",
        "--arms",
        "spin",
        "--trial",
        "50ms",
        "--time",
        "60s",
        "--max-blocks",
        "6",
    ];
    let warned = |size: &str| {
        let more = ["--no-history", "--json", "--far", &place, "--size", size];
        let output = run(clean(enter(near, &[program]), &[&proof[..], &more].concat()));
        let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
        let warnings = document["warnings"].as_array().expect("warnings").clone();
        let texts =
            warnings.iter().map(|warning| warning["what"].as_str().expect("text").to_owned());
        texts.filter(|what| what.contains("MTU")).collect::<Vec<_>>()
    };
    let lost = warned("4000");
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert!(lost[0].contains("9000 bytes here, 1500 at the far end"), "{lost:?}");
    assert_eq!(warned("64"), [""; 0], "nothing is lost");
}
