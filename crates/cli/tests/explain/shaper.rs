//! Through a shaper the queue is the culprit, for TCP as for UDP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use sys::netns::Netns;

use crate::common::{FAR_IP, NEAR_IP, Spaces, enter, ip, succeed, udp_in};
use crate::{ended, explain};

const PORT: u16 = 5201;
/// Time in which packets are sent.
const LOAD_TIME: Duration = Duration::from_secs(2);

fn netns(name: &str) -> Netns {
    Netns::open(format!("/run/netns/{name}")).expect("a namespace")
}

/// - `burst`: smaller than a large TCP segment, so that the shaper cuts it; or larger.
fn shape(spaces: &Spaces, burst: &str, limit: &str) {
    let tbf = ["tc", "qdisc", "add", "dev", "va", "root", "tbf", "rate", "10mbit"];
    succeed(enter(&spaces.near, &[&tbf[..], &["burst", burst, "limit", limit]].concat()));
    // It fills queues, and another may be the default.
    let cubic = ["dev", "va", "src", NEAR_IP, "congctl", "cubic"];
    succeed(ip(&[&["-n", &spaces.near, "route", "replace", "10.77.0.0/24"], &cubic[..]].concat()));
}

/// One stream for a while.
fn stream(spaces: &Spaces) {
    let at: SocketAddr = format!("{FAR_IP}:{PORT}").parse().expect("an address");
    let listener = netns(&spaces.far).run(|| TcpListener::bind(at)).expect("one").expect("a port");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut bytes = vec![0; 1 << 16];
            while stream.read(&mut bytes).is_ok_and(|count| count > 0) {}
        });
        let is_over = &is_over;
        scope.spawn(move || {
            let mut stream =
                netns(&spaces.near).run(|| TcpStream::connect(at)).expect("one").expect("a server");
            while !is_over.load(Ordering::Relaxed) {
                stream.write_all(&[7; 1 << 14]).expect("an open stream");
            }
        });
        thread::sleep(LOAD_TIME);
        is_over.store(true, Ordering::Relaxed);
    });
}

/// The stage with the largest p99.
fn slowest(doc: &Value) -> &Value {
    let rows = doc["stages"].as_array().expect("a list").iter();
    let timed = rows.filter(|row| row["timed_count"].as_u64() > Some(0));
    let p99 = |row: &Value| row["p99_ns"].as_f64().expect("a time");
    timed.max_by(|a, b| p99(a).total_cmp(&p99(b))).expect("a stage")
}

fn assert_queue_is_the_culprit(doc: &Value, protocol: &str) {
    let row = slowest(doc);
    assert_eq!(row["name"], "queueing discipline", "{doc:#}");
    assert!(row["p99_ns"].as_f64() > Some(5e6), "{row:#}");
    let longest = &row["longest"];
    assert_eq!((&longest["interface"], &longest["protocol"]), (&"va".into(), &protocol.into()));
    assert_eq!(
        (&longest["port"], &longest["discipline"]),
        (&PORT.into(), &"tbf, 10 Mbit/s".into())
    );
    let headline = doc["headline"].as_str().expect("a sentence");
    assert!(headline.contains("queue of va (tbf, 10 Mbit/s)"), "{headline}");
}

#[test]
fn tcp_waits_in_the_queue_of_a_shaper_that_cuts_its_segments_and_of_one_that_does_not() {
    let _lab = testkit::alone();
    for (burst, is_cut) in [("5k", true), ("100k", false)] {
        let spaces = Spaces::new();
        shape(&spaces, burst, "200k");
        let explain = explain(&spaces, &["--timed-one-in", "1", "--samples", "0"]);
        stream(&spaces);
        let doc = ended(explain);
        assert_queue_is_the_culprit(&doc, "TCP");
        let rows = doc["stages"].as_array().expect("a list");
        let has = |name: &str| rows.iter().any(|row| row["name"] == name);
        assert_eq!(has("cut into segments"), is_cut, "{doc:#}");
        assert!(!has("forwarding") && !has("tunnel: decapsulation"), "{doc:#}");
    }
}

#[test]
fn datagrams_that_wait_in_a_shaper_or_are_dropped_by_it_name_its_interface_and_rate() {
    let _lab = testkit::alone();
    let spaces = Spaces::new();
    // Shorter than what a socket may have under way, so that the sender does not wait for it.
    shape(&spaces, "5k", "60k");
    let receiver = udp_in(&netns(&spaces.far), (FAR_IP, PORT));
    receiver.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket");
    let sender = udp_in(&netns(&spaces.near), ("0.0.0.0", 0));
    let explain = explain(&spaces, &["--timed-one-in", "1", "--samples", "0"]);
    let reader = thread::spawn(move || while receiver.recv(&mut [0; 2048]).is_ok() {});
    // More at once than the queue holds.
    for _ in 0..20 {
        for _ in 0..80 {
            // A full queue is reported to the sender.
            let _full = sender.send_to(&[7; 1200], (FAR_IP, PORT));
        }
        thread::sleep(Duration::from_millis(20));
    }
    reader.join().expect("the reader");
    let doc = ended(explain);
    let row = slowest(&doc);
    assert_eq!(row["name"], "queueing discipline", "{doc:#}");
    assert_eq!(row["longest"]["interface"], "va", "{row:#}");
    let headline = doc["headline"].as_str().expect("a sentence");
    assert!(headline.contains("queue of va (tbf, 10 Mbit/s)"), "{headline}");
    let rows = doc["drops"].as_array().expect("a list");
    let full = rows.iter().find(|row| row["reason"].as_str().unwrap_or("").starts_with("QDISC"));
    let full = full.unwrap_or_else(|| panic!("the queue overflows: {doc:#}"));
    let place = &full["places"][0];
    assert_eq!((&place["interface"], &place["netns"]), (&"va".into(), &spaces.near.clone().into()));
    let sentence = place["sentence"].as_str().expect("a sentence");
    assert!(sentence.contains("queue of va (tbf, 10 Mbit/s) is full"), "{sentence}");
    assert!(place["remedy"].as_str().is_some_and(|text| text.contains("tc qdisc del dev va root")));
}
