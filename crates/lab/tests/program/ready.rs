//! A server is ready by each sign, and only by its own.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use testkit::LONG;
use wirepath_lab::program::{ProgramEnd, ProgramError, Transport};
use wirepath_lab::{Pair, PairSpec};

use crate::common::{GO_ON, GRACE, in_both_homes, ready};

const SHORT: Duration = Duration::from_millis(300);

/// Serves one connection only.
const ONE_CONNECTION: &str = "exec python3 -c '
import socket
s = socket.socket(); s.bind((\"0.0.0.0\", 4433)); s.listen()
c, _ = s.accept(); c.sendall(b\"served\"); c.close()'";

const CLIENT: &str = "exec python3 -c '
import socket, os
print(socket.create_connection((os.environ[\"FAR\"], 4433)).recv(6).decode())'";

#[test]
fn tcp_server_in_a_namespace_keeps_its_only_connection_for_the_client() {
    in_both_homes(|home| {
        let pair = Pair::new(&PairSpec::default()).unwrap();
        let mut server = home.spec("server", ONE_CONNECTION);
        server.netns = Some(&pair.far.netns);
        let mut server = home.start_as(&server);
        server.wait_ready(&ready("tcp:4433"), LONG, &GO_ON).unwrap();
        let bound = server.bound_addresses(Transport::Tcp, 4433);
        assert!(bound.iter().all(|address| address.is_unspecified()) && bound.len() == 1);
        let mut client = home.spec("client", CLIENT);
        client.netns = Some(&pair.near.netns);
        client.env.push(("FAR".into(), pair.far.ip.to_string()));
        let client = home.start_as(&client).wait(LONG, &GO_ON).unwrap();
        assert_eq!(client.stdout.bytes(), b"served\n", "{}", client.stderr.last_lines());
        assert_eq!(server.wait(LONG, &GO_ON).unwrap().status.code(), Some(0));
    });
}

#[test]
fn udp_socket_of_the_server_is_a_sign_and_that_of_another_process_is_not() {
    in_both_homes(|home| {
        let pair = Pair::new(&PairSpec::default()).unwrap();
        let other = pair.far.run(|| UdpSocket::bind("127.0.0.1:53").unwrap()).unwrap();
        let body = "import socket, sys, time; s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); \
                    s.bind((\"::\", int(sys.argv[1]))); time.sleep(600)";
        for (port, is_ready) in [("54", true), ("55", false)] {
            let command = format!("exec python3 -c '{body}' {port}");
            let mut server = home.spec("server", &command);
            server.netns = Some(&pair.far.netns);
            let mut server = home.start_as(&server);
            if is_ready {
                server.wait_ready(&ready("udp:54"), LONG, &GO_ON).unwrap();
            } else {
                let error = server.wait_ready(&ready("udp:53"), SHORT, &GO_ON).unwrap_err();
                let own = std::process::id();
                let text = error.to_string();
                let held = format!("UDP port 53 is held by PID {own} (");
                assert!(text.contains(&held) && text.contains("after 300 ms"), "{text}");
            }
        }
        drop(other);
    });
}

#[test]
fn line_of_either_stream_is_a_sign() {
    in_both_homes(|home| {
        for redirect in ["", " >&2"] {
            let command =
                format!("echo starting{redirect}; echo 'now listening on 80'{redirect}; sleep 600");
            let mut server = home.start("server", &command);
            server.wait_ready(&ready(r"line:^now listening on \d+$"), LONG, &GO_ON).unwrap();
        }
        // A prompt has no line break.
        let mut server = home.start("server", "printf 'ready> '; sleep 600");
        server.wait_ready(&ready("line:ready>"), LONG, &GO_ON).unwrap();
    });
}

#[test]
fn new_file_is_a_sign_and_an_old_one_is_not() {
    in_both_homes(|home| {
        let folder = host::scratch::Scratch::new().unwrap();
        let mut server = home.spec("server", "echo $$ >server.pid; sleep 600");
        server.folder = folder.path();
        let mut server = home.start_as(&server);
        server.wait_ready(&ready("file:server.pid"), LONG, &GO_ON).unwrap();
        assert!(folder.path().join("server.pid").exists());
        // Older than the next server by more than the clock of files is coarse.
        let mut wait = home.start("wait", "sleep 0.1");
        wait.wait_ready(&ready("sleep:100"), LONG, &GO_ON).ok();
        let path = folder.path().join("server.pid");
        let old = ready(&format!("file:{}", path.display()));
        let mut server = home.start("server", "sleep 600");
        let error = server.wait_ready(&old, SHORT, &GO_ON).unwrap_err();
        assert!(error.to_string().contains("the file is older than the server"), "{error}");
        fs::write(&path, "new").unwrap();
        server.wait_ready(&old, LONG, &GO_ON).unwrap();
    });
}

#[test]
fn time_is_a_sign_if_the_server_lives() {
    in_both_homes(|home| {
        let mut server = home.start("server", "sleep 600");
        let after = server.wait_ready(&ready("sleep:50"), LONG, &GO_ON).unwrap();
        assert!(after >= Duration::from_millis(50), "{after:?}");
        let mut server = home.start("server", "exit 7");
        let error = server.wait_ready(&ready("sleep:20000"), LONG, &GO_ON).unwrap_err();
        assert!(matches!(error, ProgramError::EndedEarly { .. }), "{error}");
    });
}

#[test]
fn server_that_is_never_ready_is_reported_with_its_output() {
    in_both_homes(|home| {
        let mut server = home.start("server", "echo loading; exec sleep 600");
        server.wait_ready(&ready("line:^loading$"), LONG, &GO_ON).unwrap();
        for (sign, why) in [
            ("tcp:4433", "none of its processes has TCP port 4433"),
            ("udp:4433", "none of its processes has UDP port 4433"),
            ("line:^never$", "no line of its output matches"),
            ("file:/no/such/file", "there is no such file"),
        ] {
            let error = server.wait_ready(&ready(sign), SHORT, &GO_ON).unwrap_err();
            let text = error.to_string();
            let head = format!("the server was not ready ({sign}) after 300 ms: {why}; last lines");
            assert!(text.starts_with(&head) && text.ends_with("\nloading"), "{text}");
        }
        assert_eq!(server.stop(GRACE).unwrap().end, ProgramEnd::Terminated);
    });
}

#[test]
fn server_that_ends_early_is_reported_with_its_status_and_output() {
    in_both_homes(|home| {
        // A failed server may leave processes.
        for command in ["echo cannot bind >&2; exit 1", "sleep 600 & echo cannot bind >&2; exit 1"]
        {
            let mut server = home.start("server", command);
            let error = server.wait_ready(&ready("tcp:4433"), LONG, &GO_ON).unwrap_err();
            let expected = "the server ended before it was ready: exit status: 1; last lines of its \
                            standard error:\ncannot bind";
            assert_eq!(error.to_string(), expected);
        }
        let mut server = home.start("server", "no-such-program-here");
        let error = server.wait_ready(&ready("tcp:4433"), LONG, &GO_ON).unwrap_err();
        assert!(error.to_string().contains("not found"), "{error}");
    });
}

#[test]
fn last_words_of_a_server_that_ends_at_once_are_in_the_error() {
    in_both_homes(|home| {
        for _ in 0..50 {
            // Its end may be known before its output has been read; a child may still have the pipe.
            for command in ["echo no config >&2; exit 3", "sleep 600 & echo no config; exit 3"] {
                let mut server = home.start("server", command);
                let error = server.wait_ready(&ready("line:^never$"), LONG, &GO_ON).unwrap_err();
                assert!(error.to_string().contains("no config"), "{command}: {error}");
            }
        }
    });
}

#[test]
fn held_port_is_in_the_output_of_the_server() {
    in_both_homes(|home| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let command = format!("exec python3 -m http.server --bind 127.0.0.1 {port}");
        let mut server = home.start("server", &command);
        let error = server.wait_ready(&ready(&format!("tcp:{port}")), LONG, &GO_ON).unwrap_err();
        assert!(matches!(error, ProgramError::EndedEarly { .. }), "{error}");
        assert!(error.to_string().contains("Address already in use"), "{error}");
    });
}

#[test]
fn stop_flag_ends_a_wait_for_readiness() {
    in_both_homes(|home| {
        let mut server = home.start("server", "sleep 600");
        let stop = AtomicBool::new(true);
        let error = server.wait_ready(&ready("tcp:4433"), LONG, &stop).unwrap_err();
        assert!(error.is_interrupted(), "{error}");
    });
}
