//! Planted causes of TCP and its sockets.

use std::thread;
use std::time::Duration;

use wirepath_host::causes::Severity;

use crate::scene::{Scene, named, row, silent};

/// A server in `b` at port 8080 that answers each request of some bytes with one byte, on any number of connections.
///
/// - `setup`: lines before it listens.
fn answering(scene: &mut Scene, bytes: usize, setup: &str) -> u32 {
    scene.python(
        "b",
        &format!(
            "import socket, threading, time, resource\n\
             {setup}\n\
             s = socket.socket()\n\
             s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
             s.bind(('', 8080))\n\
             s.listen(100)\n\
             def serve(c):\n    \
                 while True:\n        \
                     got = 0\n        \
                     while got < {bytes}:\n            \
                         part = c.recv({bytes} - got)\n            \
                         if not part:\n                \
                             return c.close()\n            \
                         got += len(part)\n        \
                     c.send(b'y')\n\
             print('ready')\n\
             while True:\n    \
                 try:\n        \
                     c = s.accept()[0]\n    \
                 except OSError:\n        \
                     time.sleep(0.1)\n        \
                     continue\n    \
                 threading.Thread(target=serve, args=(c,)).start()"
        ),
    )
}

/// A client in `a` that connects to the server of [`answering`], and goes on as `body` says with its connection `c`.
fn client(scene: &mut Scene, body: &str) -> u32 {
    let begin = "import socket, time\nc = socket.create_connection(('10.1.0.2', 8080))\n";
    scene.python("a", &format!("{begin}{body}"))
}

/// Waits until `ss` shows a text in a namespace.
fn wait_for(scene: &Scene, name: &str, filter: &str, text: &str) {
    for _ in 0..200 {
        if scene.sh(name, &format!("ss -Htaino {filter}")).contains(text) {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("no {text} in {}", scene.sh(name, "ss -Htaino"));
}

/// A client that writes each request in two parts.
fn writing_twice(option: &str) -> Scene {
    let mut scene = Scene::pair();
    answering(&mut scene, 20, "");
    client(
        &mut scene,
        &format!(
            "{option}\nfor n in range(1000000):\n    c.send(b'x' * 10)\n    c.send(b'x' * 10)\n    c.recv(1)\n    \
             if n == 50: print('ready')"
        ),
    );
    scene
}

#[test]
fn small_writes_that_wait_for_a_delayed_acknowledgement_are_named() {
    let scene = writing_twice("");
    let report = scene.examine("a");
    let words = ["python3", "10.1.0.2:8080", "TCP_NODELAY", "DelayedACKs"];
    let found = named(&report, "nagle", Severity::Medium, &words);
    named(&scene.examine("b"), "nagle", Severity::Low, &["in two parts"]);
    let quick = writing_twice("c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)");
    silent(&quick.examine("a"), "nagle");
    silent(&quick.examine("b"), "nagle");
    row("nagle", "two writes and a read, again and again", "doctor", found);
}

/// A server that may have so many descriptors, and 30 clients that stay.
fn server_with_descriptors(most: u32) -> Scene {
    let mut scene = Scene::pair();
    answering(
        &mut scene,
        10,
        &format!("resource.setrlimit(resource.RLIMIT_NOFILE, ({most}, {most}))"),
    );
    client(
        &mut scene,
        "more = [socket.create_connection(('10.1.0.2', 8080)) for _ in range(30)]\nprint('ready')\ntime.sleep(60)",
    );
    scene
}

#[test]
fn program_at_its_descriptor_limit_is_named() {
    let report = server_with_descriptors(16).examine("b");
    let words = ["python3", "all 16 descriptors", "port 8080", "prlimit --pid", "--nofile=16:16"];
    let found = named(&report, "emfile", Severity::High, &words);
    silent(&server_with_descriptors(200).examine("b"), "emfile");
    row("emfile", "RLIMIT_NOFILE 16, 31 clients", "doctor", found);
}

/// A client that writes for ever after its first exchange; then the far end drops all that comes, or not.
fn peer(is_gone: bool) -> Scene {
    let mut scene = Scene::pair();
    answering(&mut scene, 10, "");
    client(
        &mut scene,
        "c.send(b'x' * 10)\nc.recv(1)\nprint('ready')\nwhile True:\n    c.send(b'x' * 10)\n    time.sleep(0.2)",
    );
    if is_gone {
        scene.sh("b", "nft 'table ip gone { chain in { type filter hook prerouting priority -300; drop; }; }'");
        wait_for(&scene, "a", "'( dport = 8080 )'", "backoff:3");
    }
    scene
}

#[test]
fn far_end_that_is_gone_without_a_word_is_named() {
    let report = peer(true).examine("a");
    let words =
        ["10.1.0.2:8080", "python3", "15 min", "TCP_USER_TIMEOUT", "tcp_retries2", "3 retries"];
    let found = named(&report, "dead-peer", Severity::High, &words);
    assert!(!report.findings.iter().any(|other| other.cause == "nat-idle"), "{report:#?}");
    silent(&peer(false).examine("a"), "dead-peer");
    row("dead-peer", "all packets to the far end dropped after an exchange", "doctor", found);
}

/// A connection that pauses for 5 s through a router that forgets after 2, if it does, beside one that does not
/// pause.
fn paused(is_forgotten: bool) -> Scene {
    let mut scene = Scene::routed();
    answering(&mut scene, 10, "");
    if is_forgotten {
        scene.sh(
            "r",
            "nft 'table ip fw { chain f { type filter hook forward priority 0; ct state invalid drop; ct state new tcp \
             flags & (syn | ack) == ack drop; }; }' && sysctl -qw \
             net.netfilter.nf_conntrack_tcp_timeout_established=2 net.netfilter.nf_conntrack_tcp_loose=0",
        );
    }
    scene.python(
        "a",
        "import socket, time\nbusy, idle = [socket.create_connection(('10.2.0.1', 8080)) for _ in range(2)]\n\
         idle.send(b'x' * 10)\nidle.recv(1)\n\
         def ask():\n    busy.send(b'x' * 10)\n    busy.recv(1)\n    time.sleep(0.1)\n\
         for _ in range(50): ask()\n\
         idle.send(b'x' * 10)\nprint('ready')\n\
         while True: ask()",
    );
    scene
}

#[test]
fn idle_connection_that_a_router_has_forgotten_is_named() {
    let scene = paused(true);
    wait_for(&scene, "a", "'( dport = 8080 )'", "backoff:3");
    let report = scene.examine("a");
    let words = ["10.2.0.1:8080", "python3", "pause of 5", "are answered", "SO_KEEPALIVE"];
    let found = named(&report, "nat-idle", Severity::High, &words);
    assert!(!report.findings.iter().any(|other| other.cause == "dead-peer"), "{report:#?}");
    silent(&paused(false).examine("a"), "nat-idle");
    row("nat-idle", "router forgets after 2 s, pause of 5 s", "doctor", found);
}

/// A client with ten connections to one far end, whose local ports are of a range.
fn connections_from(range: &str, reserved: &str, count: usize) -> Scene {
    let mut scene = Scene::pair();
    scene.sh("a", &format!("sysctl -qw net.ipv4.ip_local_port_range='{range}' net.ipv4.ip_local_reserved_ports={reserved}"));
    answering(&mut scene, 10, "");
    scene.python(
        "a",
        &format!(
            "import socket, time\nopen = []\nfor n in range({count}):\n    c = socket.socket()\n    \
             if c.connect_ex(('10.1.0.2', 8080)) == 0: open.append(c)\n\
             print('ready')\ntime.sleep(60)"
        ),
    );
    scene
}

#[test]
fn local_ports_that_are_used_up_are_named() {
    let report = connections_from("20000 20009", "''", 12).examine("a");
    let words =
        ["10 of 10 local ports", "10.1.0.2:8080", "python3", "EADDRNOTAVAIL", "20000 20009"];
    let found = named(&report, "eph-ports", Severity::High, &words);
    silent(&connections_from("20000 20099", "''", 12).examine("a"), "eph-ports");
    row("eph-ports", "a range of ten ports", "doctor", found);
}

#[test]
fn outgoing_connection_on_the_port_of_a_service_is_named() {
    let scene = connections_from("9090 9093", "''", 3);
    let report = scene.examine("a");
    let words =
        ["TCP port 909", "python3", "Address already in use", "ip_local_reserved_ports=909"];
    let found = named(&report, "port-overlap", Severity::Low, &words);
    silent(&connections_from("32768 60999", "''", 3).examine("a"), "port-overlap");
    row("port-overlap", "a range that covers services", "doctor", found);
}

/// A server with some listeners of one port, and a client that connects again and again.
///
/// - `accept`: lines that follow.
/// - `before`: shell command in the client's namespace.
fn server_with_backlog(backlog: u32, accept: &str, before: &str) -> Scene {
    let mut scene = Scene::pair();
    let server = format!(
        "import socket, threading, time\ndef listener():\n    s = socket.socket()\n    \
         s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n    s.bind(('10.1.0.2', 8080))\n    \
         s.listen({backlog})\n    return s\ns = listener()\n\
         def serve(s):\n    while True: open.append(s.accept()[0])\n\
         open = []\n{accept}\nprint('ready')\ntime.sleep(60)"
    );
    scene.python("b", &server);
    scene.sh("a", before);
    scene.python(
        "a",
        "import socket, time\nprint('ready')\nopen = []\nfor _ in range(400):\n    s = socket.socket()\n    \
         s.setblocking(False)\n    s.connect_ex(('10.1.0.2', 8080))\n    open.append(s)\n    time.sleep(0.02)\n\
         time.sleep(60)",
    );
    scene
}

/// Accepts all.
const ACCEPT: &str = "threading.Thread(target=serve, args=(s,), daemon=True).start()";

#[test]
fn full_accept_queue_is_named() {
    let report = server_with_backlog(1, "", "true").examine("b");
    let words = ["TCP port 8080 of python3", "ListenOverflows", "backlog"];
    let found = named(&report, "listen-queue", Severity::High, &words);
    silent(&server_with_backlog(1000, ACCEPT, "true").examine("b"), "listen-queue");
    row("listen-queue", "listen(1), 400 connections, no accept()", "doctor", found);
}

/// A line of `ss -Hltn` with more than a few connections that wait.
fn is_queued(line: &str) -> bool {
    line.split_whitespace().nth(1).and_then(|count| count.parse::<u32>().ok()) > Some(9)
}

#[test]
fn worker_that_accepts_nothing_is_named_beside_one_that_does() {
    let second = format!("{ACCEPT}\nother = listener()\n");
    let scene = server_with_backlog(1000, &second, "true");
    let waits = || scene.sh("b", "ss -Hltn 'sport = :8080'").lines().any(is_queued);
    assert!(testkit::until(std::time::Duration::from_secs(20), waits));
    let report = scene.examine("b");
    let words = ["TCP port 8080 of python3", "accepted none", "1 other listener"];
    let found = named(&report, "not-accepting", Severity::Medium, &words);
    let both = format!("{second}{}", ACCEPT.replace("(s,)", "(other,)"));
    silent(&server_with_backlog(1000, &both, "true").examine("b"), "not-accepting");
    row("not-accepting", "two SO_REUSEPORT listeners, one without accept()", "doctor", found);
}

#[test]
fn full_queue_of_half_open_connections_is_named() {
    const NO_HANDSHAKE: &str = "nft 'table ip deaf { chain in { type filter hook input priority 0; tcp flags & (syn | ack) == syn | ack drop; }; }'";
    let cookies = |scene: &Scene, value: u8| {
        scene.sh("b", &format!("sysctl -qw net.ipv4.tcp_syncookies={value}"))
    };
    let scene = server_with_backlog(4, ACCEPT, NO_HANDSHAKE);
    cookies(&scene, 0);
    let report = scene.examine("b");
    let words =
        ["SYNs were dropped", "TCP port 8080 of python3", "of 1 addresses", "TCPReqQFullDrop"];
    let found = named(&report, "syn-queue", Severity::High, &words);
    cookies(&scene, 1);
    named(
        &scene.examine("b"),
        "syn-queue",
        Severity::Medium,
        &["answered with cookies", "TCPReqQFullDoCookies"],
    );
    silent(&server_with_backlog(1000, ACCEPT, NO_HANDSHAKE).examine("b"), "syn-queue");
    row("syn-queue", "listen(4), handshakes that never end, no cookies", "doctor", found);
}

/// A listener that is closed and opened again, and a client that connects all the time.
fn reloaded(is_reloaded: bool) -> Scene {
    let mut scene = Scene::pair();
    let end = if is_reloaded { "old.close()" } else { "drain(old)" };
    let next = if is_reloaded { "listener()" } else { "old" };
    let pause = if is_reloaded { 0.5 } else { 0.02 };
    scene.python(
        "b",
        &format!(
            "import socket, time\n\
             def listener():\n    s = socket.socket()\n    \
                 s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n    s.bind(('10.1.0.2', 8080))\n    \
                 s.listen(500)\n    return s\n\
             def drain(s):\n    s.setblocking(False)\n    try:\n        while True: s.accept()[0].close()\n    \
                 except BlockingIOError: pass\n\
             old = listener()\nprint('ready')\n\
             while True:\n    time.sleep({pause})\n    new = {next}\n    {end}\n    old = new"
        ),
    );
    scene.python(
        "a",
        "import socket, time\nprint('ready')\nopen = []\nwhile True:\n    s = socket.socket()\n    s.setblocking(False)\n    \
         s.connect_ex(('10.1.0.2', 8080))\n    open = open[-99:] + [s]\n    time.sleep(0.02)",
    );
    scene
}

#[test]
fn reload_that_resets_connections_of_its_queue_is_named() {
    let report = reloaded(true).examine("b");
    let words =
        ["10.1.0.2:8080 closed", "resets were sent", "python3", "tcp_migrate_req", "OutRsts"];
    let found = named(&report, "reload", Severity::High, &words);
    silent(&reloaded(false).examine("b"), "reload");
    row("reload", "SO_REUSEPORT listener closed with its queue, twice a second", "doctor", found);
}

/// A server that reads slowly or quickly what a client writes in small segments.
fn reading(read: &str) -> Scene {
    let mut scene = Scene::pair();
    scene.python(
        "b",
        &format!(
            "import socket, time\ns = socket.socket()\ns.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 262144)\n\
             s.bind(('', 8080))\ns.listen(1)\nprint('ready')\nc = s.accept()[0]\nwhile True: {read}"
        ),
    );
    client(
        &mut scene,
        "c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)\nprint('ready')\n\
         for n in range(1000000):\n    c.send(b'x' * 30)\n    if n % 40 == 0: time.sleep(0.002)",
    );
    scene
}

#[test]
fn receive_queue_that_is_compacted_is_named() {
    let scene = reading("time.sleep(0.2); c.recv(2000)");
    let report = scene.examine("b");
    let found = report.findings.iter().find(|found| found.cause == "collapse").expect("collapse");
    assert!(found.severity >= Severity::Medium, "{found:#?}");
    let found = named(
        &report,
        "collapse",
        found.severity,
        &["python3", "unread", "TCPRcvCollapsed", "tcp_rmem"],
    );
    silent(&reading("c.recv(65536)").examine("b"), "collapse");
    row("collapse", "a slow reader of segments of 30 bytes", "doctor", found);
}

/// A server that answers after a part of each upload, and closes.
fn upload(reads_all: bool) -> Scene {
    let mut scene = Scene::pair();
    let rest = if reads_all { "while c.recv(65536): pass" } else { "c.recv(1000)" };
    scene.python(
        "b",
        &format!(
            "import socket\ns = socket.socket()\ns.bind(('', 8080))\ns.listen(50)\nprint('ready')\nwhile True:\n    \
             c = s.accept()[0]\n    {rest}\n    c.send(b'413')\n    c.close()"
        ),
    );
    scene.python(
        "a",
        "import socket, time\nprint('ready')\nwhile True:\n    try:\n        c = socket.create_connection(('10.1.0.2', 8080))\n        \
         c.sendall(b'x' * 200000)\n        c.shutdown(1)\n        c.recv(9)\n        c.close()\n    except OSError: pass\n    \
         time.sleep(0.2)",
    );
    scene
}

#[test]
fn connection_closed_with_unread_data_is_named() {
    let report = upload(false).examine("b");
    let words = ["unread data", "TCPAbortOnClose", "TCP port 8080", "python3"];
    let found = named(&report, "unread-close", Severity::Medium, &words);
    silent(&upload(true).examine("b"), "unread-close");
    row("unread-close", "uploads that the server closes half read", "doctor", found);
}
