//! A service whose processes come and go.

use crate::server::{Server, ask, place};

/// Forks a child for each request, which works for 20 ms of CPU time; the parent waits for it.
const FORKING: &str = r#"
import os, socket, time
server = socket.create_server(("127.0.0.1", PORT))
while True:
    client = server.accept()[0]
    while client.recv(1):
        child = os.fork()
        if not child:
            while time.process_time_ns() < 20_000_000:
                pass
            client.sendall(b"x")
            os._exit(0)
        os.waitpid(child, 0)
"#;

#[test]
fn time_of_children_that_ended_is_the_service_s() {
    let _beside = testkit::beside();
    let Some(server) = Server::python(FORKING) else { return };
    let Some(mut sources) = server.sources(&[]) else { return };
    let mut client = server.connect();
    let before = sources.read().unwrap();
    (0..20).for_each(|_| ask(&mut client, b'.'));
    // The last child may still run.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let after = sources.read().unwrap();
    let seen = after.since(&before);
    assert_eq!(seen.request_count(), 20, "{:?}", seen.totals());
    let cpu_us = seen.value(place(&sources, "cpu_per_request")).unwrap();
    assert!((19_000.0..60_000.0).contains(&cpu_us), "{cpu_us} us");
}
