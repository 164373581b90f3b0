//! A server whose work per request is known.

use std::io::{Read, Write};
use std::time::Duration;

use sys::bpf::ServiceSpan;
use wirepath_live::sources::Wanted;

use crate::server::{Server, ask, place};

/// Answers each byte after as many microseconds of its own CPU time as it says: a 400, b 440; z: 8 MiB at once; q: it closes.
const BUSY: &str = r#"
import socket, threading, time
server = socket.create_server(("127.0.0.1", PORT))
def serve(client):
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        asked = client.recv(1)
        if asked in (b"", b"q"):
            client.close()
            return
        begun = time.thread_time_ns()
        wanted = {b"a": 400_000, b"b": 440_000}.get(asked, 0)
        while time.thread_time_ns() - begun < wanted:
            pass
        client.sendall(b"x" * (8 << 20) if asked == b"z" else b"x")
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"#;

#[test]
fn work_of_a_request_is_in_its_latency_and_ten_percent_more_in_its_cpu_time() {
    let _alone = testkit::alone();
    let Some(server) = Server::python(BUSY) else { return };
    let Some(mut sources) = server.sources(&[]) else { return };
    let mut client = server.connect();
    let cpu = place(&sources, "cpu_per_request");
    let p50 = place(&sources, "p50");
    (0..100).for_each(|_| ask(&mut client, b'a'));
    let mut sums = [0.0, 0.0];
    for (round, arm) in [0, 1, 1, 0, 1, 0, 0, 1].into_iter().enumerate() {
        let before = sources.read().unwrap();
        (0..200).for_each(|_| ask(&mut client, b"ab"[arm]));
        let after = sources.read().unwrap();
        let seen = after.since(&before);
        assert_eq!(seen.request_count(), 200, "{round}: {:?}", seen.totals());
        let median = seen.value(p50).unwrap();
        assert!(median >= [399.0, 439.0][arm], "{round}: {median} us");
        sums[arm] += seen.value(cpu).unwrap();
    }
    let ratio = sums[1] / sums[0];
    testkit::note(&format!(
        "CPU per request: {} and {} us, ratio {ratio}",
        sums[0] / 4.0,
        sums[1] / 4.0
    ));
    assert!((1.03..1.20).contains(&ratio), "{sums:?}");
}

#[test]
fn a_client_that_does_not_read_lets_an_answer_wait_for_its_acknowledgement() {
    let _beside = testkit::beside();
    let Some(server) = Server::python(BUSY) else { return };
    let Some(mut sources) = server.sources(&[]) else { return };
    let mut client = server.connect();
    ask(&mut client, b'a');
    let quiet = sources.guard_sample(None).unwrap();
    assert!(quiet.waiting_ns.is_none_or(|ns| ns < 500_000_000), "{quiet:?}");
    let before = sources.read().unwrap();
    client.write_all(b"z").unwrap();
    let mut longest = 0;
    let is_late = testkit::until(Duration::from_secs(10), || {
        longest = sources.guard_sample(None).unwrap().waiting_ns.unwrap_or(0);
        longest > 700_000_000
    });
    let sample = sources.guard_sample(None);
    let reading = sources.read().unwrap();
    assert!(is_late, "{longest} ns, {sample:?}, {:?}", reading.since(&before).beside());
    let mut answer = vec![0; 8 << 20];
    client.read_exact(&mut answer).unwrap();
    let is_quiet = testkit::until(Duration::from_secs(10), || {
        sources.guard_sample(None).unwrap().waiting_ns.is_none_or(|ns| ns < 500_000_000)
    });
    assert!(is_quiet);
}

#[test]
fn a_server_that_stops_lets_a_request_wait_and_its_slow_answer_counts() {
    let _beside = testkit::beside();
    let Some(server) = Server::python(BUSY) else { return };
    let Some(mut sources) = server.sources(&[]) else { return };
    let mut client = server.connect();
    ask(&mut client, b'a');
    let limit_ns = Some(300_000_000);
    sources.guard_sample(limit_ns).unwrap();
    server.child.pause();
    assert!(testkit::until(testkit::LONG, || server.is_stopped()));
    client.write_all(b"a").unwrap();
    let mut longest = 0;
    let is_late = testkit::until(Duration::from_secs(10), || {
        longest = sources.guard_sample(limit_ns).unwrap().waiting_ns.unwrap_or(0);
        longest > 600_000_000
    });
    server.child.resume();
    assert!(is_late, "{longest}");
    client.read_exact(&mut [0]).unwrap();
    let sample = sources.guard_sample(limit_ns).unwrap();
    assert_eq!((sample.request_count, sample.slow_count), (1, 1), "{sample:?}");
    assert_eq!(sample.waiting_ns.filter(|ns| *ns > 500_000_000), None, "{sample:?}");
    // A request that the server closes on.
    client.write_all(b"q").unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    let sample = sources.guard_sample(None).unwrap();
    assert_eq!((sample.request_count, sample.error_count), (1, 1), "{sample:?}");
}

#[test]
fn a_congestion_control_reaches_new_connections_alone() {
    let _beside = testkit::beside();
    let Some(server) = Server::python(BUSY) else { return };
    let Some(mut sources) = server.sources(&[]) else { return };
    let setting = "/proc/sys/net/ipv4/tcp_congestion_control";
    let before = server.netns.run(|| std::fs::read_to_string(setting)).unwrap().unwrap();
    let after = if before.trim() == "reno" { "cubic" } else { "reno" };
    let mut old = server.connect();
    ask(&mut old, b'.');
    std::thread::sleep(Duration::from_millis(10));
    let after_ns = sys::clock::monotonic_ns();
    if server.netns.run(|| std::fs::write(setting, after)).unwrap().is_err() {
        return testkit::skip("kernel", format!("congestion control {after}"));
    }
    let mut new = server.connect();
    let wanted = [
        Wanted::CongestionControl(after.into()),
        Wanted::NewSocketsOnly { after_ns },
        Wanted::AtOnce,
    ];
    for (wanted, shares) in wanted.iter().zip([(0.0, 1.0), (0.0, 1.0), (1.0, 1.0)]) {
        for (client, share) in [(&mut old, shares.0), (&mut new, shares.1)] {
            let is_over = std::sync::atomic::AtomicBool::new(false);
            let reach = std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        ask(client, b'.');
                    }
                });
                let reach = sources.reach(wanted, &mut |_| Ok(()));
                is_over.store(true, std::sync::atomic::Ordering::Relaxed);
                reach.unwrap()
            });
            assert!(reach.is_exact && reach.request_count > 0, "{reach:?}");
            let found = reach.share().unwrap();
            assert!((found - share).abs() < 0.02, "{wanted:?}: {reach:?}");
        }
    }
}

#[test]
fn figures_of_the_service_s_own_stand_beside_those_from_outside() {
    let _beside = testkit::beside();
    let Some(server) = Server::python(BUSY) else { return };
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    std::fs::write(&log, "").unwrap();
    let metric = format!("took=log:{}#took ([0-9]+):p50 lower", log.display());
    let Some(mut sources) = server.sources(&[&metric, "n=command:echo 7 higher"]) else { return };
    let before = sources.read().unwrap();
    let mut client = server.connect();
    (0..20).for_each(|_| ask(&mut client, b'.'));
    std::fs::write(&log, "took 10\ntook 20\ntook 30\n").unwrap();
    let after = sources.read().unwrap();
    let seen = after.since(&before);
    assert!((19.5..=20.5).contains(&seen.value(place(&sources, "took")).unwrap()));
    assert_eq!(seen.value(place(&sources, "n")), Some(7.0));
    assert_eq!(sources.figures()[0].name, "cpu_per_request");
    let beside = seen.beside();
    assert!(
        beside.iter().any(|one| one.name == "segments received" && one.value > 20.0),
        "{beside:?}"
    );
    assert!(seen.latency_us(ServiceSpan::LastAcknowledgement, 0.99).is_some());
}
