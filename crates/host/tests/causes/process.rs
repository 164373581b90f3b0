//! Planted causes of a program itself.

use std::process::Command;

use sys::child::{Child, ChildPlace};
use wirepath_host::causes::{self, DoctorReport, Severity};
use wirepath_host::program::{ProgramError, ProgramWatch};

use crate::scene::{Scene, named, row, silent};

/// Causes of this group whose twin is [`careful`].
const OF_RECEIVERS: [&str; 8] = [
    "not-pinned",
    "blocking-receive",
    "default-rcvbuf",
    "write-a-datagram",
    "one-datagram-a-call",
    "page-faults",
    "slow-reader",
    "run-delay",
];

/// Sends bursts to 10.1.0.2, port 9000, from CPU 0.
fn sender(scene: &mut Scene, burst: u32, pause_s: f64) {
    scene.python(
        "a",
        &format!(
            "import os, socket, time\nos.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})\n\
             s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.connect(('10.1.0.2', 9000))\nprint('ready')\n\
             while True:\n    for _ in range({burst}):\n        try: s.send(bytes(100))\n        except OSError: pass\n    \
             time.sleep({pause_s})"
        ),
    );
}

/// A receiver at port 9000: `prepare` runs before it is bound as `s`, `work` again and again.
fn receiver(scene: &mut Scene, prepare: &str, work: &str) -> u32 {
    let program = format!(
        "import mmap, os, resource, socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n{prepare}\n\
         s.bind(('10.1.0.2', 9000))\nprint('ready')\nwhile True:\n    {}",
        work.replace('\n', "\n    ")
    );
    scene.python("b", &program)
}

/// Reads all that is there, without waiting.
const POLL: &str = "try:\n    while True: s.recv(2048, socket.MSG_DONTWAIT)\nexcept BlockingIOError:\n    time.sleep(0.001)";

/// A receiver without a fault: bound to the last CPU, real-time, with a large buffer, and silent.
fn careful(scene: &mut Scene) -> u32 {
    let prepare = "os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})\n\
                   os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))\n\
                   s.setsockopt(socket.SOL_SOCKET, 33, 1 << 20)";
    receiver(scene, prepare, POLL)
}

fn examine(scene: &Scene, pid: u32) -> DoctorReport {
    let evidence = scene.evidence("b", None);
    let watch = ProgramWatch::begin(pid).unwrap();
    causes::examine(&evidence.with_program(watch).unwrap())
}

/// True, with the reason in the list of skips, if this machine does not count system calls.
fn lacks_calls(report: &DoctorReport) -> bool {
    let unseen = report.unseen.iter().find(|one| one.cause == "write-a-datagram");
    if let Some(unseen) = unseen {
        testkit::skip("bpf", unseen.why.clone());
    }
    unseen.is_some()
}

#[test]
fn plain_receiver_that_prints_is_named_in_each_respect_and_a_careful_one_in_none() {
    let _alone = testkit::alone();
    let mut scene = Scene::pair();
    sender(&mut scene, 1, 0.002);
    let pid = receiver(&mut scene, "", "s.recv(2048)\nprint('quote')");
    let report = examine(&scene, pid);
    let title = format!("python3 (process {pid})");
    let mut faults = Vec::new();
    if sys::affinity::allowed_cpus().unwrap().len() > 1 {
        faults.push(("not-pinned", Severity::Low, [title.as_str(), "taskset -c -p"]));
    }
    faults.push(("default-rcvbuf", Severity::Low, ["UDP port 9000", "rmem_max"]));
    if !lacks_calls(&report) {
        faults.push((
            "blocking-receive",
            Severity::Low,
            ["sleeps in recvfrom", "voluntary_ctxt_switches"],
        ));
        faults.push((
            "write-a-datagram",
            Severity::Medium,
            ["descriptor 1 for each datagram", "pipe:"],
        ));
    }
    let fact = report.facts.iter().find(|fact| fact.cause == "not-pinned").unwrap();
    assert!(
        fact.text.contains("SCHED_OTHER nice") && fact.text.contains("sleeps in recvfrom"),
        "{fact:?}"
    );

    let mut scene = Scene::pair();
    sender(&mut scene, 1, 0.002);
    let pid = careful(&mut scene);
    let twin = examine(&scene, pid);
    for cause in OF_RECEIVERS {
        silent(&twin, cause);
    }
    for (cause, severity, words) in faults {
        let found = named(&report, cause, severity, &words);
        row(cause, "receiver in Python: recv(), print(), defaults", "doctor --pid", found);
    }
}

#[test]
fn reader_slower_than_its_datagrams_is_told_from_a_small_buffer() {
    let _alone = testkit::alone();
    let mut scene = Scene::pair();
    sender(&mut scene, 20, 0.005);
    let work = "s.recv(2048)\nend = time.monotonic() + 0.003\nwhile time.monotonic() < end: pass";
    let pid = receiver(&mut scene, "s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)", work);
    let report = examine(&scene, pid);
    let words = ["has no time left", "more were dropped", "a larger buffer will not help"];
    let found = named(&report, "slow-reader", Severity::High, &words);
    row("slow-reader", "3 ms of work a datagram, 4,000 a second", "doctor --pid", found);
}

#[test]
fn memory_that_is_new_for_each_datagram_is_named() {
    let _alone = testkit::alone();
    let mut scene = Scene::pair();
    sender(&mut scene, 1, 0.002);
    let work = "s.recv(2048)\nm = mmap.mmap(-1, 256 * 4096)\nfor page in range(256): m[page * 4096] = 1\nm.close()";
    let pid = receiver(&mut scene, "", work);
    let report = examine(&scene, pid);
    if !lacks_calls(&report) {
        let found = named(
            &report,
            "page-faults",
            Severity::Low,
            &["page faults a second", "minflt", "mlockall"],
        );
        row("page-faults", "1 MiB of new memory a datagram", "doctor --pid", found);
    }
}

#[test]
fn call_for_each_of_many_datagrams_is_named() {
    let _alone = testkit::alone();
    let mut scene = Scene::pair();
    let work = "for _ in range(1000):\n    s.sendto(b'x', ('10.1.0.2', 9000))\n    s.recv(2048)";
    let pid = receiver(&mut scene, "", work);
    let mut report = examine(&scene, pid);
    // A busy machine may have less than the 10,000 a second from which it counts.
    let has_it = |report: &DoctorReport| {
        report.findings.iter().any(|one| one.cause == "one-datagram-a-call")
    };
    testkit::until(testkit::LONG, || {
        report = examine(&scene, pid);
        has_it(&report) || report.unseen.iter().any(|one| one.cause == "one-datagram-a-call")
    });
    if !lacks_calls(&report) {
        let words = ["a system call for each datagram", "0 of them recvmmsg"];
        let found = named(&report, "one-datagram-a-call", Severity::Low, &words);
        row("one-datagram-a-call", "recv() in a loop, as fast as it can", "doctor --pid", found);
    }
}

#[test]
fn program_that_polls_where_its_packets_are_handled_is_named_and_one_that_sleeps_there_is_told_why_not()
 {
    let cpus = sys::affinity::allowed_cpus().unwrap();
    if cpus.len() < 2 {
        return testkit::skip("cpus", "one CPU has all packets");
    }
    // Where the sender is, which hands its packets over on its own CPU.
    let on_first = "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n\
                    s.setsockopt(socket.SOL_SOCKET, 33, 1 << 22)";
    let mut scene = Scene::pair();
    sender(&mut scene, 200, 0.005);
    let pid = receiver(&mut scene, on_first, POLL);
    let report = examine(&scene, pid);
    let mut scene = Scene::pair();
    sender(&mut scene, 200, 0.005);
    let pid = receiver(&mut scene, on_first, "s.recv(2048)");
    let twin = examine(&scene, pid);
    if lacks_calls(&report) {
        return;
    }
    let found =
        named(&report, "packets-on-its-cpu", Severity::Low, &["polls on CPU", "softnet_stat"]);
    assert!(
        !twin.findings.iter().any(|one| one.cause == "packets-on-its-cpu"),
        "{:#?}",
        twin.findings
    );
    let fact = twin.facts.iter().find(|fact| fact.cause == "packets-on-its-cpu").unwrap();
    assert!(fact.text.contains("no other CPU is woken"), "{fact:?}");
    row(
        "packets-on-its-cpu",
        "sender and polling receiver on one CPU of two",
        "doctor --pid",
        found,
    );
}

#[test]
fn wait_for_a_cpu_that_another_program_has_is_named() {
    let _alone = testkit::alone();
    let mut scene = Scene::pair();
    let spin = "import os\nos.sched_setaffinity(0, {max(os.sched_getaffinity(0))})\nprint('ready')\nwhile True: pass";
    scene.python("a", spin);
    let pid = scene.python("b", spin);
    let report = examine(&scene, pid);
    let words = ["was ready and waited", "schedstat", "SCHED_OTHER", "chrt -f -p 50"];
    let found = named(&report, "run-delay", Severity::Medium, &words);
    row("run-delay", "two programs that spin on one CPU", "doctor --pid", found);
}

#[test]
fn program_that_ends_while_it_is_examined_is_one_error() {
    let _alone = testkit::alone();
    let mut sleep = Command::new("sleep");
    sleep.arg("60");
    let child = Child::spawn(sleep, &ChildPlace::default()).unwrap();
    let pid = child.pid();
    let watch = ProgramWatch::begin(pid).unwrap();
    drop(child);
    let error = watch.end().unwrap_err();
    assert!(matches!(error, ProgramError::Ended { pid: ended } if ended == pid), "{error}");
    assert!(error.to_string().contains("ended while it was examined"), "{error}");
}
