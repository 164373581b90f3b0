//! Planted causes of TCP that depend on the path: its delay, its losses, and the far end's program.

use std::thread;
use std::time::Duration;

use wirepath_host::causes::Severity;

use crate::scene::{Scene, named, row, silent};

/// A scene of [`Scene::pair`] with a program between both ends that delays each frame, and loses some.
///
/// - `lose_every`: one frame of so many is lost; 0 for none.
fn delayed(delay_ms: u32, lose_every: u32) -> Scene {
    let mut scene = Scene::new(&["a", "d", "b"]);
    scene.wire(("a", "eth0", "10.1.0.1/24"), ("d", "left", ""));
    scene.wire(("b", "eth0", "10.1.0.2/24"), ("d", "right", ""));
    for name in ["a", "b"] {
        // The program passes frames as they are on a wire.
        scene.sh(name, "ethtool -K eth0 tx off gso off gro off");
    }
    scene.python(
        "d",
        &format!(
            "import select, socket, time\n\
             ports = []\n\
             for name in ('left', 'right'):\n    \
                 s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))\n    \
                 s.bind((name, 0))\n    \
                 s.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)\n    \
                 ports.append(s)\n\
             print('ready')\n\
             waiting, n = [], 0\n\
             while True:\n    \
                 left = max(0, waiting[0][0] - time.monotonic()) if waiting else 1\n    \
                 for s in select.select(ports, [], [], left)[0]:\n        \
                     frame, address = s.recvfrom(65536)\n        \
                     if address[2] == 4: continue\n        \
                     n += len(frame) > 500\n        \
                     if {lose_every} and len(frame) > 500 and n % {lose_every} == 0: continue\n        \
                     waiting.append((time.monotonic() + {delay_ms} / 1000, ports[1 - ports.index(s)], frame))\n    \
                 while waiting and waiting[0][0] <= time.monotonic():\n        \
                     _, to, frame = waiting.pop(0)\n        \
                     to.send(frame)"
        ),
    );
    scene
}

/// A server in `b` at port 8080.
///
/// - `setup`: lines with its socket `s` before it listens.
/// - `serve`: lines with each connection `c`.
fn server(scene: &mut Scene, setup: &str, serve: &str) {
    scene.python(
        "b",
        &format!(
            "import socket, threading, time\ns = socket.socket()\n{setup}\ns.bind(('', 8080))\ns.listen(200)\n\
             print('ready')\nopen = []\n\
             while True:\n    c = s.accept()[0]\n    open.append(c)\n    \
             threading.Thread(target=lambda c: {serve}, args=(c,), daemon=True).start()"
        ),
    );
}

/// Reads all that comes.
const READ: &str = "all(iter(lambda: c.recv(65536), b''))";

/// A client in `a`.
///
/// - `body`: lines with its connection `c`, which print a line.
fn client(scene: &mut Scene, body: &str) {
    scene.python(
        "a",
        &format!("import socket, time\nc = socket.create_connection(('10.1.0.2', 8080))\n{body}"),
    );
}

/// Sends 2 MB a second if it can.
const STREAM: &str = "for n in range(1000000):\n    c.send(b'x' * 20000)\n    time.sleep(0.01)\n    if n == 30: print('ready')";

fn bursts(restarts: u8) -> Scene {
    let mut scene = delayed(50, 0);
    scene.sh("a", &format!("sysctl -qw net.ipv4.tcp_slow_start_after_idle={restarts} net.ipv4.tcp_congestion_control=reno"));
    server(&mut scene, "", READ);
    client(
        &mut scene,
        "for n in range(1000000):\n    c.send(b'x' * 60000)\n    time.sleep(0.7)\n    if n == 2: print('ready')",
    );
    scene
}

#[test]
fn window_that_shrinks_after_a_pause_is_named() {
    let scene = bursts(1);
    // Two moments may both be within bursts.
    let report = (0..5)
        .map(|_| scene.examine("a"))
        .find(|report| report.findings.iter().any(|found| found.cause == "idle-restart"))
        .expect("pauses of 0.7 s are seen");
    let words =
        ["10.1.0.2:8080", "python3", "10 segments again", "tcp_slow_start_after_idle=0", "reno"];
    let found = named(&report, "idle-restart", Severity::Medium, &words);
    silent(&bursts(0).examine("a"), "idle-restart");
    row("idle-restart", "bursts of 60 kB with pauses over 100 ms", "doctor", found);
}

fn streaming(send_buffer: &str, receive_buffer: &str) -> Scene {
    let mut scene = delayed(20, 0);
    server(&mut scene, receive_buffer, READ);
    client(&mut scene, &format!("{send_buffer}\n{STREAM}"));
    scene
}

#[test]
fn buffers_that_limit_a_stream_are_named_by_their_side() {
    let report =
        streaming("c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)", "").examine("a");
    let words = ["10.1.0.2:8080", "python3", "SO_SNDBUF", "16 KiB"];
    let found = named(&report, "sndbuf-fixed", Severity::Medium, &words);
    row("sndbuf-fixed", "SO_SNDBUF of 16 KiB over 40 ms", "doctor", found);
    let scene = streaming("", "s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)");
    let report = scene.examine("a");
    let found = named(
        &report,
        "rwnd-limited",
        Severity::Medium,
        &["10.1.0.2:8080", "python3", "SO_RCVBUF"],
    );
    let words = ["receives", "SO_RCVBUF of 16 KiB"];
    named(&scene.examine("b"), "rwnd-limited", Severity::Medium, &words);
    row("rwnd-limited", "SO_RCVBUF of 16 KiB over 40 ms", "doctor", found);
    let twin = streaming("", "");
    let report = twin.examine("a");
    silent(&report, "sndbuf-fixed");
    silent(&report, "rwnd-limited");
    silent(&twin.examine("b"), "rwnd-limited");
}

#[test]
fn losses_on_the_way_are_named() {
    let lossy = |lose_every| {
        let mut scene = delayed(0, lose_every);
        server(&mut scene, "", READ);
        client(&mut scene, STREAM);
        scene
    };
    let report = lossy(15).examine("a");
    let found = report.findings.iter().find(|found| found.cause == "tcp-loss").expect("tcp-loss");
    assert!(found.severity >= Severity::Medium, "{found:#?}");
    let found = named(
        &report,
        "tcp-loss",
        found.severity,
        &["10.1.0.2", "python3", "lost on the way", "RetransSegs"],
    );
    silent(&lossy(0).examine("a"), "tcp-loss");
    row("tcp-loss", "one segment of 15 lost", "doctor", found);
}

#[test]
fn program_that_does_not_read_is_named_at_both_ends() {
    let scene = |serve| {
        let mut scene = Scene::pair();
        server(&mut scene, "", serve);
        let send = "c.settimeout(0.5)\ntry:\n    for _ in range(300): c.send(b'x' * 100000)\nexcept OSError: pass\n\
                    print('ready')\nc.settimeout(60)\nfor _ in range(300):\n    c.send(b'x' * 1000000)\n    time.sleep(0.1)";
        client(&mut scene, send);
        scene
    };
    let stuck = scene("time.sleep(60)");
    let sender = stuck.examine("a");
    let found = named(
        &sender,
        "zero-window",
        Severity::Medium,
        &["python3", "10.1.0.2:8080", "cannot send", "does not read"],
    );
    let receiver = stuck.examine("b");
    named(
        &receiver,
        "zero-window",
        Severity::Medium,
        &["python3", "unread for", "its sender waits"],
    );
    let twin = scene(READ);
    silent(&twin.examine("a"), "zero-window");
    silent(&twin.examine("b"), "zero-window");
    row("zero-window", "a server that never reads", "doctor", found);
}

#[test]
fn sockets_that_a_program_does_not_close_are_named() {
    let scene = |serve| {
        let mut scene = Scene::pair();
        server(&mut scene, "", serve);
        client(
            &mut scene,
            "for _ in range(25): socket.create_connection(('10.1.0.2', 8080)).close()\nprint('ready')\ntime.sleep(60)",
        );
        thread::sleep(Duration::from_millis(300));
        scene
    };
    let report = scene("time.sleep(60)").examine("b");
    let found = named(
        &report,
        "close-wait",
        Severity::Low,
        &["python3", "25 connections", "recv returns 0"],
    );
    silent(&scene("(c.recv(1), c.close())").examine("b"), "close-wait");
    row("close-wait", "25 connections that the server never closes", "doctor", found);
}

/// A client that connects again and again.
///
/// - `port`: of the far end, which listens at 8080.
fn connecting(port: u16, before: &str) -> Scene {
    let mut scene = Scene::pair();
    server(&mut scene, "", "(c.recv(1), c.close())");
    scene.sh("a", before);
    scene.python(
        "a",
        &format!(
            "import socket, time\nprint('ready')\nopen = []\nwhile True:\n    s = socket.socket()\n    s.setblocking(False)\n    \
             s.connect_ex(('10.1.0.2', {port}))\n    time.sleep(0.02)\n    if {port} == 8080: s.close()\n    \
             else: open = open[-50:] + [s]"
        ),
    );
    scene
}

#[test]
fn attempts_that_are_refused_are_named() {
    let scene = connecting(8081, "true");
    let report = scene.examine("a");
    let found = named(&report, "refused", Severity::Medium, &["by far ends", "AttemptFails"]);
    silent(&connecting(8080, "true").examine("a"), "refused");
    row("refused", "50 connects a second to a closed port", "doctor", found);
}

#[test]
fn attempts_without_an_answer_are_named() {
    let scene = |rule: &str| {
        let mut scene = Scene::pair();
        server(&mut scene, "", "(c.recv(1), c.close())");
        scene.sh("b", rule);
        client(
            &mut scene,
            "open = [socket.socket() for _ in range(3)]\nfor s in open:\n    s.setblocking(False)\n    \
             s.connect_ex(('10.1.0.2', 8081))\nprint('ready')\ntime.sleep(60)",
        );
        scene
    };
    let deaf = scene(
        "nft 'table ip deaf { chain in { type filter hook input priority 0; tcp dport 8081 drop; }; }'",
    );
    for _ in 0..100 {
        if deaf.sh("a", "ss -Htno state syn-sent").contains(",2)") {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    let report = deaf.examine("a");
    let words = [
        "3 connections",
        "10.1.0.2:8081",
        "python3",
        "SYNs",
        "answers on other ports",
        "SynRetrans",
    ];
    let found = named(&report, "connect-unanswered", Severity::High, &words);
    silent(&scene("true").examine("a"), "connect-unanswered");
    row("connect-unanswered", "a filter at the far end drops SYNs", "doctor", found);
}

#[test]
fn too_many_sockets_in_time_wait_are_named() {
    let report = connecting(8080, "sysctl -qw net.ipv4.tcp_max_tw_buckets=5").examine("a");
    let found = named(
        &report,
        "tw-overflow",
        Severity::Medium,
        &["TCPTimeWaitOverflow", "tcp_max_tw_buckets=5"],
    );
    silent(&connecting(8080, "true").examine("a"), "tw-overflow");
    row("tw-overflow", "tcp_max_tw_buckets=5, 50 connections a second", "doctor", found);
}

#[test]
fn resets_are_named_by_the_side_that_sends_them() {
    let scene = |serve| {
        let mut scene = Scene::pair();
        server(&mut scene, "", serve);
        client(
            &mut scene,
            "print('ready')\nwhile True:\n    s = socket.create_connection(('10.1.0.2', 8080))\n    s.send(b'x' * 10)\n    \
             time.sleep(0.02)\n    s.close()",
        );
        scene
    };
    let rude = scene("(time.sleep(0.005), c.close())");
    let report = rude.examine("b");
    let found = named(
        &report,
        "resets",
        Severity::Medium,
        &["a program here closed them with unread data"],
    );
    named(&rude.examine("a"), "resets", Severity::Medium, &["far ends"]);
    silent(&scene("(c.recv(10), c.recv(10), c.close())").examine("b"), "resets");
    row("resets", "close with unread data, 50 times a second", "doctor", found);
}

#[test]
fn missing_signatures_are_named() {
    let scene = |key: &str| {
        let mut scene = Scene::pair();
        // struct tcp_md5sig of linux/tcp.h.
        let set = format!(
            "import struct\ns.setsockopt(socket.IPPROTO_TCP, 14, struct.pack('=HH4s120xBBHi80s', socket.AF_INET, 0, \
             socket.inet_aton('{key}'), 0, 0, 6, 0, b'secret'))"
        );
        server(&mut scene, &set, READ);
        scene.python(
            "a",
            "import socket, time\nprint('ready')\nopen = []\nfor _ in range(400):\n    s = socket.socket()\n    \
             s.setblocking(False)\n    s.connect_ex(('10.1.0.2', 8080))\n    open.append(s)\n    time.sleep(0.05)",
        );
        scene
    };
    let report = scene("10.1.0.1").examine("b");
    let words = ["segments were dropped", "the far end sends none", "TCPMD5NotFound"];
    let found = named(&report, "tcp-signature", Severity::High, &words);
    silent(&scene("10.1.0.99").examine("b"), "tcp-signature");
    row("tcp-signature", "a key for the client, which has none", "doctor", found);
}
