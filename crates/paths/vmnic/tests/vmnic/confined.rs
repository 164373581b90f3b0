//! The monitor's threads may make the system calls that they need, and no other.

use std::os::unix::process::ExitStatusExt;

use vmm::lance::Sent;
use vmm::{End, Sender, Silence, Switches, Task};

use crate::guest;

/// Names the thread whose back end does what it should not.
const VARIABLE: &str = "WIREPATH_TEST_FORBIDDEN_CALL";
/// The number that Linux gives it.
const SIGSYS: i32 = 31;

/// A back end that a guest has taken over: it opens a file.
struct Opens {
    forbidden: bool,
}

impl Sender for Opens {
    fn send(&mut self, _: &[u8]) -> Sent {
        if self.forbidden {
            drop(std::fs::File::open("/proc/self/status"));
        }
        Sent::Taken
    }

    fn call_count(&self) -> u64 {
        0
    }
}

/// Frames are sent by the processor's thread in the baseline, by the device's with a doorbell.
fn switches(thread: &str) -> Switches {
    Switches { tdmd_doorbell: thread == "lance", ..Switches::default() }
}

fn end(thread: &str, forbidden: bool) -> Option<End> {
    let sender = Box::new(Opens { forbidden });
    let outcome = guest::run(Task::send(60, 20), switches(thread), sender, Box::new(Silence));
    outcome.map(|outcome| outcome.end)
}

/// Child process of the next test.
#[test]
#[ignore = "role of a child process"]
fn child_that_makes_a_forbidden_call() {
    end(&std::env::var(VARIABLE).expect("set by the next test"), true);
}

#[test]
fn thread_that_opens_a_file_ends_the_process() {
    for thread in ["vcpu", "lance"] {
        // The same without that call runs to its end.
        let Some(end) = end(thread, false) else { return };
        assert_eq!(end, End::Done);
        let child = testkit::role("confined::child_that_makes_a_forbidden_call")
            .env(VARIABLE, thread)
            .output()
            .unwrap();
        assert_eq!(child.status.signal(), Some(SIGSYS), "{thread}: {child:?}");
    }
}

#[test]
fn caller_of_the_monitor_is_not_confined() {
    if end("vcpu", false).is_none() {
        return;
    }
    std::fs::File::open("/proc/self/status").unwrap();
    std::thread::spawn(|| std::fs::read("/proc/self/status").unwrap()).join().unwrap();
}
