//! Resources are counted over all processes of a program.

use testkit::LONG;
use wirepath_lab::program::{CountedBy, Usage};

use crate::common::{GO_ON, GRACE, Home, in_both_homes, ready};

/// CPU time that a process of these tests uses, by its own clock.
const BURNT_NS: u64 = 200_000_000;
/// Python code that uses it.
const BURN: &str = "
end = time.process_time_ns() + 200_000_000
while time.process_time_ns() < end: pass
";

fn is_counted(home: &Home, usage: &Usage) {
    let expected = if home.has_groups { CountedBy::Cgroup } else { CountedBy::Rusage };
    assert_eq!(usage.counted_by, expected);
}

#[test]
fn cpu_time_of_a_client_has_that_of_its_children_and_grandchildren() {
    in_both_homes(|home| {
        let burn = format!("python3 -c 'import time{BURN}'");
        let command = format!("({burn}; {burn}) & {burn} & wait");
        let usage = home.start("client", &command).wait(LONG, &GO_ON).unwrap().usage;
        is_counted(home, &usage);
        assert!(usage.cpu_ns() >= 3 * BURNT_NS, "{usage:?}");
        assert!(usage.context_switch_count > 0, "{usage:?}");
    });
}

#[test]
fn cpu_time_of_a_daemon_is_counted_while_it_lives() {
    in_both_homes(|home| {
        // Each line of its input file is a request to work.
        let folder = host::scratch::Scratch::new().unwrap();
        let go = folder.path().join("go");
        let body = format!(
            "print(\"ready\", flush=True)
while not os.path.exists({go:?}): time.sleep(0.001)
{BURN}
print(\"burnt\", flush=True)
time.sleep(600)"
        );
        let mut server = home.start_spec_until_ready(&home.daemon(&body));
        assert!(testkit::until(LONG, || server.processes().len() == 1), "its parents have ended");
        let before = server.usage().unwrap();
        is_counted(home, &before);
        std::fs::write(&go, "").unwrap();
        server.wait_ready(&ready("line:^burnt$"), LONG, &GO_ON).unwrap();
        let after = server.usage().unwrap();
        let used = after.since(&before);
        // A reading may be a clock tick behind.
        assert!(used.cpu_ns() + 10_000_000 >= BURNT_NS, "{before:?} {after:?}");
        assert!(after.memory_bytes_max.unwrap() > 1 << 20, "{after:?}");
        let all = server.stop(GRACE).unwrap().usage;
        assert!(all.cpu_ns() + 10_000_000 >= after.cpu_ns(), "{after:?} {all:?}");
        assert!(all.context_switch_count >= before.context_switch_count);
    });
}

#[test]
fn context_switches_of_all_threads_are_counted() {
    in_both_homes(|home| {
        let body = "import threading, time
def switch():
    for _ in range(200): time.sleep(0.0001)
threads = [threading.Thread(target=switch) for _ in range(3)]
[t.start() for t in threads]; [t.join() for t in threads]";
        let client = home.start("client", &format!("python3 -c '{body}'"));
        let usage = client.wait(LONG, &GO_ON).unwrap().usage;
        assert!(usage.context_switch_count >= 600, "{usage:?}");
    });
}

#[test]
fn memory_of_a_server_is_at_least_its_largest_size() {
    in_both_homes(|home| {
        let body = "import time; b = bytearray(300 << 20); del b; print(\"ready\", flush=True); time.sleep(600)";
        let server = home.start_until_ready(&format!("exec python3 -c '{body}'"));
        let bytes = server.usage().unwrap().memory_bytes_max.unwrap();
        assert!((300 << 20..1 << 30).contains(&bytes), "{bytes}");
        let bytes = server.stop(GRACE).unwrap().usage.memory_bytes_max.unwrap();
        assert!((300 << 20..1 << 30).contains(&bytes), "{bytes}");
    });
}
