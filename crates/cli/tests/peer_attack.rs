//! `wirepath peer` while others attack it and an honest near end measures: the honest figures
//! stay what they are, and the peer's memory and descriptors stay bounded.
//!
//! `WIREPATH_TEST_ATTACK=10000,1000000` sets how many connections and datagrams there are.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use common::{
    Data, FAR_IP, LONG, Running, Spaces, all_text, books, fail, succeed, until, wirepath,
};
use serde_json::Value;
use sys::netns::Netns;

/// UDP port of the honest run.
const PORT: u16 = 9321;
/// UDP port of the far end of `prove --peer`.
const REMOTE_PORT: u16 = 9000;
/// Smallest p-value of two equal arms that is put down to chance.
const P_MIN: f64 = 1e-4;
/// Attackers at a time.
const CROWD: usize = 8;

fn peer_at() -> SocketAddr {
    SocketAddr::new(FAR_IP.parse().unwrap(), 7117)
}

/// Connections and datagrams.
fn attack_size() -> (usize, usize) {
    let Ok(text) = std::env::var("WIREPATH_TEST_ATTACK") else { return (400, 100_000) };
    let (connections, datagrams) = text.split_once(',').expect("CONNECTIONS,DATAGRAMS");
    (connections.parse().unwrap(), datagrams.parse().unwrap())
}

/// Response of a near end to the challenge of a false peer.
fn overheard(secret_file: &str) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let near = thread::spawn({
        let args = ["probe", "ping", "127.0.0.1", "-c", "1", "--peer-port", &port];
        let command = wirepath(&[&args[..], &["--secret-file", secret_file]].concat());
        move || fail(command, 1)
    });
    let (mut stream, _) = listener.accept().unwrap();
    let hello = serde_json::json!({
        "wirepath_peer": 5, "version": "x", "challenge": "ab".repeat(32), "secret": true,
    });
    stream.write_all(format!("{hello}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).unwrap();
    // It is sent its own message in return, which is not ours.
    let first: Value = serde_json::from_str(&answer).unwrap();
    let back = serde_json::json!({ "secured": { "handshake": first["handshake"] } });
    stream.write_all(format!("{back}\n").as_bytes()).unwrap();
    let said = near.join().unwrap();
    assert!(said.contains("could not prove that it knows the secret"), "{said}");
    answer
}

/// Connects once and behaves badly in one of many ways.
fn knock(nth: usize, overheard: &str) {
    let mut stream = TcpStream::connect_timeout(&peer_at(), LONG).expect("the peer listens");
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut said = Vec::new();
    // The peer may hang up at any moment: what fails here is its answer.
    let _ = match nth % 8 {
        0 => Ok(()),
        1 => stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        2 => stream.write_all(&[b'x'; 1 << 16]),
        3 => stream.write_all(b"{\"wirepath_peer\":5,\"handshake\":null}\n"),
        4 => stream.write_all(overheard.as_bytes()),
        5 => stream.write_all(&[0xff; 100]),
        6 => stream.write_all("[".repeat(4000).as_bytes()).and_then(|()| stream.write_all(b"\n")),
        // A byte now and then, for as long as it is let.
        _ => (0..20).try_for_each(|_| {
            thread::sleep(Duration::from_millis(20));
            stream.write_all(b"{")
        }),
    };
    let _ = stream.take(1 << 20).read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said);
    assert!(!said.contains("secured"), "let in by {}: {said}", nth % 8);
    assert!(!said.contains("welcome"), "let in by {}: {said}", nth % 8);
}

/// Bytes at the peak, and descriptors now.
fn used(peer: &Running) -> (u64, usize) {
    let peak_bytes = common::peak_memory_bytes(peer.pid()).expect("it runs");
    (peak_bytes, fs::read_dir(format!("/proc/{}/fd", peer.pid())).unwrap().count())
}

/// Attacks the peer from the near namespace with all there is.
fn attack(spaces: &Spaces, port: u16, overheard: &str) {
    let (connections, datagrams) = attack_size();
    let near = Netns::open(format!("/run/netns/{}", spaces.near)).unwrap();
    near.run(|| {
        thread::scope(|scope| {
            // Threads are born in their parent's namespace.
            for crowd in 0..CROWD {
                scope.spawn(move || {
                    for nth in 0..connections / CROWD {
                        knock(crowd + nth * CROWD + nth, overheard);
                    }
                });
            }
            scope.spawn(|| {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
                socket.connect((FAR_IP, port)).unwrap();
                // Ours by its magic, of a run that there is not; and noise.
                let forged = [&b"WP"[..], &[1, 0, 9, 9, 9, 9], &[7; 56]].concat();
                for nth in 0..datagrams {
                    let payload = if nth % 2 == 0 { &forged[..] } else { &[0x5a; 64][..] };
                    // Refused when the honest run's socket is not there yet.
                    let _ = socket.send(payload);
                    if nth % 100 == 99 {
                        thread::sleep(Duration::from_millis(1));
                    }
                }
            });
        });
    })
    .unwrap();
}

/// True if a metric is judged by its load, and its trials are long enough for it.
fn is_judged(metric: &Value) -> bool {
    metric["verdict"].as_str().is_some_and(|verdict| verdict != "refused")
}

/// The arm that is the baseline again, of a run's outcome.
fn control_of(output: &Output) -> Value {
    // One that lasts as long as the attack is interrupted.
    assert!(matches!(output.status.code(), Some(0 | 130)), "{}", all_text(output));
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    let arms = outcome["arms"].as_array().unwrap();
    arms.iter().find(|arm| arm["kind"] == "control").expect("every run has one").clone()
}

#[test]
fn control_is_the_baseline_and_nothing_is_lost_among_attackers_too() {
    let (spaces, data) = (Spaces::new(), Data::new());
    let secret = data.file("secret");
    common::write_secret(&secret, "correct horse battery\n");
    let overheard = overheard(&secret);
    let mut peer = spaces.peer(&["--secret-file", &secret]);
    let prove = |blocks: &str| {
        let args = ["prove", "probe", "--peer", FAR_IP, "--load", "ping", "--arms", "spin"];
        let short = ["--trial", "50ms", "--time", "1h", "--no-history", "--json"];
        let blocks = ["--min-blocks", blocks, "--max-blocks", blocks, "--secret-file", &secret];
        Running::start(spaces.near(&[&args[..], &short, &blocks].concat()))
    };
    let backlog_before = testkit::backlog_drop_count();
    let quiet = control_of(&prove("20").finish(LONG * 4).expect("it ends"));
    // It is in before the crowd comes, which has the same address and takes all places of that.
    let told = peer.stderr().lines().count();
    let mut among = prove("100000");
    // The peer reports each trial.
    let trials =
        || peer.stderr().lines().skip(told).filter(|line| line.contains("payloads")).count();
    assert!(until(LONG, || trials() > 0), "{}", among.stderr());
    // Three arms, and a block to warm up.
    while trials() < 3 * 22 {
        attack(&spaces, REMOTE_PORT, &overheard);
        assert!(!among.has_ended(), "{}", among.stderr());
    }
    assert!(!among.has_ended(), "{}", among.stderr());
    let among = control_of(&among.end_by("INT", LONG));
    let backlog_drops = testkit::backlog_drop_count() - backlog_before;
    for (when, control) in [("alone", quiet), ("attacked", among)] {
        let metrics = control["metrics"].as_object().unwrap();
        let judged: Vec<_> = metrics.iter().filter(|(_, metric)| is_judged(metric)).collect();
        assert!(!judged.is_empty(), "{when}: {control}");
        for (name, metric) in judged {
            let pairs = metric["trials"].as_array().unwrap().len();
            assert!(pairs >= 20, "{when}: {name}: {metric}");
            // Twenty pairs can reach 2e-6. The verdict on a control is wrong in one run of 100.
            let p = metric["p"].as_f64().expect("it is compared with the baseline");
            assert!(p >= P_MIN, "{when}: {name}: {metric}");
        }
        let lost = metrics["lost_count"]["trials"].as_array().unwrap();
        // None of a block that was broken off.
        let lost: Vec<f64> = lost.iter().filter_map(Value::as_f64).collect();
        assert!(lost.len() >= 20, "{when}: {control}");
        let lost: f64 = lost.iter().sum();
        assert!(lost <= backlog_drops as f64, "{when}: {backlog_drops} in the backlog: {control}");
        let overflow = &control["counters"]["far_socket_overflow_count"];
        assert_eq!(overflow, 0, "{when}: the queue is the near end's alone: {control}");
        assert_eq!(control["failures"].as_array().map(Vec::len), Some(0), "{when}: {control}");
    }
    assert!(!peer.has_ended(), "{}", peer.stderr());
}

#[test]
fn honest_run_is_the_same_among_attackers() {
    let (connections, datagrams) = attack_size();
    let (spaces, data) = (Spaces::new(), Data::new());
    let secret = data.file("secret");
    common::write_secret(&secret, "correct horse battery\n");
    let overheard = overheard(&secret);
    let began = Instant::now();
    let mut peer = spaces.peer(&["--secret-file", &secret]);
    let port = PORT.to_string();
    let honest = |count: &str| {
        // A queue of 200 KiB lasts for a second, however late its reader is scheduled.
        let args = ["probe", "ping", FAR_IP, "--rate", "200", "--port", &port, "-c", count];
        spaces.near(&[&args[..], &["--secret-file", &secret]].concat())
    };
    // One before, for what the peer takes without attackers.
    assert!(succeed(honest("100")).contains("received 100, lost 0"));
    let (bytes, descriptors) = used(&peer);

    let backlog_before = testkit::backlog_drop_count();
    let mut long = honest("1000000");
    long.arg("--json");
    let mut running = Running::start(long);
    running.await_stderr("peer at ");
    attack(&spaces, PORT, &overheard);
    assert!(!running.has_ended(), "{}", running.stderr());
    let output = running.end_by("INT", LONG);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    let doc: Value = serde_json::from_str(&said).unwrap();
    assert!(books::probe(&doc) > 100, "{said}");
    let lost = doc["metrics"]["lost_count"]["value"].as_f64().expect("a count");
    let backlog_drops = testkit::backlog_drop_count() - backlog_before;
    assert!(lost <= backlog_drops as f64, "{backlog_drops} in the backlog: {said}");
    assert_eq!(doc["counters"]["far_socket_overflow_count"], 0, "{said}");

    let (bytes_after, _) = used(&peer);
    assert!(bytes_after < bytes + (4 << 20), "{bytes} bytes, then {bytes_after}");
    assert!(until(LONG, || used(&peer).1 <= descriptors), "{} descriptors", used(&peer).1);
    // At most one per second about refused connections, and a few about honest runs.
    let told = peer.stderr().lines().count() as u64;
    assert!(told <= began.elapsed().as_secs() + 20, "{told} lines for {connections} knocks");
    assert!(succeed(honest("100")).contains("received 100, lost 0"));
    assert!(!peer.has_ended());
    println!(
        "{connections} connections, {datagrams} datagrams: peak memory {bytes} then \
         {bytes_after} bytes, {told} lines told; honest run: {said}"
    );
}
