//! Planted causes of TCP and its sockets.

use wirepath_host::causes::Severity;

use crate::scene::{Scene, named, row, silent};

/// A server that never accepts, and a client that connects again and again.
fn server_with_backlog(backlog: u32) -> Scene {
    let mut scene = Scene::pair();
    let server = format!(
        "import socket, time\ns = socket.socket()\ns.bind(('10.1.0.2', 8080))\ns.listen({backlog})\n\
         print('ready')\ntime.sleep(60)"
    );
    scene.python("b", &server);
    scene.python(
        "a",
        "import socket, time\nprint('ready')\nopen = []\nfor _ in range(400):\n    s = socket.socket()\n    \
         s.setblocking(False)\n    s.connect_ex(('10.1.0.2', 8080))\n    open.append(s)\n    time.sleep(0.02)\n\
         time.sleep(60)",
    );
    scene
}

#[test]
fn full_accept_queue_is_named() {
    let report = server_with_backlog(1).examine("b");
    let words = ["TCP port 8080 of python3", "ListenOverflows", "backlog"];
    let found = named(&report, "listen-queue", Severity::High, &words);
    silent(&server_with_backlog(1000).examine("b"), "listen-queue");
    row("listen-queue", "listen(1), 400 connections, no accept()", "doctor", found);
}
