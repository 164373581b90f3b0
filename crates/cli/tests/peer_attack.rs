//! `wirepath peer` while others attack it and an honest near end measures: the honest figures
//! stay what they are, and the peer's memory and descriptors stay bounded.
//!
//! `WIREPATH_TEST_ATTACK=10000,1000000` sets how many connections and datagrams there are.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Data, FAR_IP, LONG, Running, Spaces, all_text, fail, succeed, until, wirepath};
use serde_json::Value;
use sys::netns::Netns;

/// UDP port of the honest run.
const PORT: u16 = 9321;
/// UDP port of the far end of `prove --peer`.
const REMOTE_PORT: u16 = 9000;
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

/// What a near end of ours says to prove the secret, as a false peer hears it.
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
        "wirepath_peer": 1, "version": "x", "challenge": "ab".repeat(32), "secret": true,
    });
    stream.write_all(format!("{hello}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).unwrap();
    // It is sent its own proof in return, which is not ours.
    let proof: Value = serde_json::from_str(&answer).unwrap();
    let back = serde_json::json!({ "welcome": { "proof": proof["proof"] } });
    stream.write_all(format!("{back}\n").as_bytes()).unwrap();
    let said = near.join().unwrap();
    assert!(said.contains("could not prove that it knows the secret"), "{said}");
    answer
}

/// Connects once and behaves badly in one of many ways; whether a connection came about.
fn knock(nth: usize, overheard: &str, stop: &AtomicBool) -> bool {
    let Ok(mut stream) = TcpStream::connect_timeout(&peer_at(), Duration::from_millis(100)) else {
        return false;
    };
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut said = Vec::new();
    // The peer may hang up at any moment: what fails here is its answer.
    let _ = match nth % 8 {
        0 => Ok(()),
        1 => stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        2 => stream.write_all(&[b'x'; 1 << 16]),
        3 => stream.write_all(b"{\"challenge\":\"00\",\"proof\":null}\n"),
        4 => stream.write_all(overheard.as_bytes()),
        5 => stream.write_all(&[0xff; 100]),
        6 => stream.write_all("[".repeat(4000).as_bytes()).and_then(|()| stream.write_all(b"\n")),
        // A byte now and then, for as long as it is let.
        _ => (0..20).try_for_each(|_| {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
            stream.write_all(b"{")
        }),
    };
    let _ = stream.take(1 << 20).read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said);
    assert!(!said.contains("welcome"), "let in by {}: {said}", nth % 8);
    true
}

/// Bytes at the peak, and descriptors now.
fn used(peer: &Running) -> (u64, usize) {
    let status = fs::read_to_string(format!("/proc/{}/status", peer.pid())).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    (kib * 1024, fs::read_dir(format!("/proc/{}/fd", peer.pid())).unwrap().count())
}

/// Attacks the peer from the near namespace with all there is; how many
/// connections came about.
fn attack(spaces: &Spaces, port: u16, overheard: &str) -> usize {
    let (connections, datagrams) = attack_size();
    let (stop, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let near = Netns::open(format!("/run/netns/{}", spaces.near)).unwrap();
    near.run(|| {
        thread::scope(|scope| {
            // Threads are born in their parent's namespace.
            for crowd in 0..CROWD {
                let (stop, made) = (&stop, &made);
                scope.spawn(move || {
                    for nth in 0..connections / CROWD {
                        let is_made = knock(crowd + nth * CROWD + nth, overheard, stop);
                        made.fetch_add(usize::from(is_made), Ordering::Relaxed);
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
    made.load(Ordering::Relaxed)
}

/// The arm that is the baseline again, of a run's outcome.
fn control_of(output: &Output) -> Value {
    assert!(output.status.success(), "{}", all_text(output));
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    let arms = outcome["arms"].as_array().unwrap();
    arms.iter().find(|arm| arm["kind"] == "control").expect("every run has one").clone()
}

#[test]
fn control_says_no_difference_among_attackers_too_and_every_loss_is_named() {
    let (spaces, data) = (Spaces::new(), Data::new());
    let secret = data.file("secret");
    fs::write(&secret, "correct horse battery\n").unwrap();
    let overheard = overheard(&secret);
    let mut peer = spaces.peer(&["--secret-file", &secret]);
    let prove = |blocks: &str| {
        let args = ["prove", "probe", "--peer", FAR_IP, "--load", "ping", "--arms", "spin"];
        let short = ["--trial", "50ms", "--time", "1h", "--no-history", "--json"];
        let blocks = ["--min-blocks", blocks, "--max-blocks", blocks, "--secret-file", &secret];
        Running::start(spaces.near(&[&args[..], &short, &blocks].concat()))
    };
    let quiet = control_of(&prove("6").finish(LONG * 2).expect("it ends"));
    // It is in before the crowd comes, which has the same address and takes all places of that.
    let told = peer.stderr().lines().count();
    let mut among = prove("100000");
    let measures = || peer.stderr().lines().skip(told).any(|line| line.contains("payloads"));
    assert!(until(LONG, measures), "{}", among.stderr());
    attack(&spaces, REMOTE_PORT, &overheard);
    assert!(!among.has_ended(), "{}", among.stderr());
    let among = control_of(&among.end_by("INT", LONG));
    for (when, control) in [("alone", quiet), ("attacked", among)] {
        let metrics = control["metrics"].as_object().unwrap();
        let judged: Vec<_> =
            metrics.iter().filter(|(_, metric)| !metric["verdict"].is_null()).collect();
        assert!(!judged.is_empty(), "{when}: {control}");
        for (name, metric) in judged {
            let verdict = metric["verdict"].as_str().unwrap();
            assert!(!matches!(verdict, "better" | "worse"), "{when}: {name}: {metric}");
        }
        let lost = metrics["lost_count"]["trials"].as_array().unwrap();
        let lost: f64 = lost.iter().filter_map(Value::as_f64).sum();
        // A socket has one queue for friend and foe: what it had no room for, the kernel counts.
        let overflow = control["counters"]["far_socket_overflow_count"].as_f64().unwrap();
        assert!(lost <= overflow, "{when}: {lost} lost, {overflow} named: {control}");
        assert!(when == "attacked" || lost == 0.0, "{when}: {control}");
        assert_eq!(control["failures"].as_array().map(Vec::len), Some(0), "{when}: {control}");
    }
    assert!(!peer.has_ended(), "{}", peer.stderr());
}

/// The number that a text begins with.
fn number(text: &str) -> Option<u64> {
    text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[test]
fn honest_run_is_the_same_among_attackers() {
    let (connections, datagrams) = attack_size();
    let (spaces, data) = (Spaces::new(), Data::new());
    let secret = data.file("secret");
    fs::write(&secret, "correct horse battery\n").unwrap();
    let overheard = overheard(&secret);
    let began = Instant::now();
    let mut peer = spaces.peer(&["--secret-file", &secret]);
    let port = PORT.to_string();
    let honest = |count: &str| {
        let args = ["probe", "ping", FAR_IP, "--rate", "1000", "--port", &port, "-c", count];
        spaces.near(&[&args[..], &["--secret-file", &secret]].concat())
    };
    // One before, for what the peer takes without attackers.
    assert!(succeed(honest("500")).contains("received 500, lost 0"));
    let (bytes, descriptors) = used(&peer);

    let mut running = Running::start(honest("1000000"));
    running.await_stderr("peer at ");
    let made = attack(&spaces, PORT, &overheard);
    assert!(!running.has_ended(), "{}", running.stderr());
    assert!(made > connections / 20, "hardly anybody got to the door");
    assert!(!running.has_ended(), "{}", running.stderr());
    let output = running.end_by("INT", LONG);
    let said = String::from_utf8(output.stdout).unwrap();
    let after = |what: &str| {
        let rests = said.split(what).skip(1);
        rests.map(|rest| number(rest).expect("a number")).collect::<Vec<u64>>()
    };
    // What the attackers leave no room for in the socket that both send to is lost, and named.
    let named = after("far_socket_overflow_count: ").first().copied().unwrap_or_default();
    let lost = after(", lost ");
    let is_named = lost.len() == 2 && lost[0] <= named && lost[1] == 0;
    assert!(output.status.success() && is_named, "{said}");

    let (bytes_after, _) = used(&peer);
    assert!(bytes_after < bytes + (16 << 20), "{bytes} bytes, then {bytes_after}");
    assert!(until(LONG, || used(&peer).1 <= descriptors), "{} descriptors", used(&peer).1);
    // One a second at most on those who were turned away, and a few on the honest runs.
    let told = peer.stderr().lines().count() as u64;
    assert!(told <= began.elapsed().as_secs() + 20, "{told} lines for {connections} knocks");
    assert!(succeed(honest("500")).contains("received 500, lost 0"));
    assert!(!peer.has_ended());
    println!(
        "{made} of {connections} connections, {datagrams} datagrams: peak memory {bytes} then \
         {bytes_after} bytes, {told} lines told; honest run: {said}"
    );
}
