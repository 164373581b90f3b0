//! Foreign programs: they become ready, end, are counted, and leave nothing behind.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use testkit::LONG;
use wirepath_lab::program::{CgroupParent, End, Program, Ready, Spec};

static GO_ON: AtomicBool = AtomicBool::new(false);

fn spec<'a>(name: &'a str, command: &'a str) -> Spec<'a> {
    Spec { command, env: Vec::new(), netns: None, cpus: &[], folder: Path::new("/"), name }
}

fn parents() -> [CgroupParent; 2] {
    [CgroupParent::find(), CgroupParent::none("a test without groups")]
}

#[test]
fn a_client_runs_to_its_end() {
    for parent in parents() {
        let client = spec("client", "echo out; echo err >&2; exit 3");
        let client = Program::start_in(&client, &parent).unwrap();
        let finished = client.wait(LONG, &GO_ON).unwrap();
        assert_eq!((finished.status.code(), finished.end), (Some(3), End::ByItself));
        assert_eq!(
            (finished.stdout.bytes(), finished.stderr.bytes()),
            (&b"out\n"[..], &b"err\n"[..])
        );
    }
}

#[test]
fn a_server_is_ready_and_stops() {
    for parent in parents() {
        let server = spec("server", "exec python3 -m http.server --bind 127.0.0.1 47123");
        let mut server = Program::start_in(&server, &parent).unwrap();
        let ready: Ready = "tcp:47123".parse().unwrap();
        eprintln!("{:?}", server.wait_ready(&ready, LONG, &GO_ON).unwrap());
        eprintln!("{:?}", server.usage().unwrap());
        let finished = server.stop(Duration::from_secs(5)).unwrap();
        assert_eq!(finished.end, End::Terminated);
    }
}
