//! The calling end among far ends that fail, lie, stall or vanish. Each is a script in place of another build.

mod common;

use std::fs;
use std::io::{Write, stdout};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::{Echo, EchoAnswer, EchoCall};
use sys::child::{Child, ChildPlace};
use tempfile::TempDir;
use wirepath_remote::{Caller, Greeting, RemoteError};

const LIMIT: Duration = Duration::from_secs(20);

/// A program of our own that greets and then does as `body` says.
struct FarEnd {
    folder: TempDir,
}

impl FarEnd {
    fn new(script: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let far = FarEnd { folder };
        fs::write(far.file(), format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(far.file(), PermissionsExt::from_mode(0o700)).expect("set");
        far
    }

    fn greeting(body: &str) -> Self {
        let greeting = serde_json::to_string(&Greeting::own::<Echo>()).expect("JSON");
        FarEnd::new(&format!("echo '{greeting}'; read -r greeting; {body}"))
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("wirepath")
    }

    fn caller(&self) -> Result<Caller<Echo>, RemoteError> {
        Caller::command(Command::new(self.file()), &ChildPlace::default())
    }

    fn refused(&self) -> String {
        host::text::chain(&self.caller().expect_err("refused"))
    }
}

#[test]
fn calls_are_answered_in_order_and_heartbeats_of_the_far_end_are_skipped() {
    let far = FarEnd::greeting(
        "echo; echo; read -r call; echo \"{\\\"said\\\":\\\"$#\\\"}\"; read -r call; echo; exec cat",
    );
    let mut caller = far.caller().expect("it greets");
    assert_eq!(caller.greeting(), &Greeting::own::<Echo>());
    assert_eq!(caller.address(), None);
    caller.call(&EchoCall::Say("x".into())).expect("sent");
    // Its arguments were `answer echo`.
    let answer = caller.expect_answer(LIMIT).expect("an answer");
    assert_eq!(answer, EchoAnswer::Said("2".into()));
    assert!(caller.answer(Duration::ZERO).expect("it runs").is_none());
}

#[test]
fn another_version_and_another_service_are_refused_with_both_named() {
    let own = Greeting::own::<Echo>();
    for theirs in [
        Greeting { exchange: own.exchange + 1, wirepath: "9.9.9".into(), ..own.clone() },
        Greeting { service: "another".into(), wirepath: "9.9.9".into(), ..own.clone() },
    ] {
        let line = serde_json::to_string(&theirs).expect("JSON");
        let heard = TempDir::new().expect("a folder");
        let file = heard.path().join("greeting");
        let far = FarEnd::new(&format!(
            "echo '{line}'; read -r greeting; echo $greeting > {}",
            file.display()
        ));
        let said = far.refused();
        let both = said.contains("wirepath 9.9.9") && said.contains(&own.wirepath);
        assert!(both && said.contains("the same wirepath version"), "{said}");
        // It can say the same.
        assert!(fs::read_to_string(file).expect("it was greeted").contains("exchange"));
    }
}

#[test]
fn far_end_that_breaks_a_rule_ends_in_one_error() {
    for (script, expected) in [
        ("echo hello; sleep 100", "sent an unexpected line: \"hello\""),
        ("printf '\\033[31mhello\\n'; sleep 100", "\"[31mhello\""),
        ("echo 'no config' >&2; exit 2", "ended: no config"),
        ("exit 0", "ended: no message"),
        ("exec cat /dev/zero", "a line of more than 8 MiB"),
        ("exec cat /dev/zero >&2", "more than 32 MiB"),
    ] {
        let said = FarEnd::new(script).refused();
        assert!(said.contains(expected), "{script}: {said}");
    }
    for (body, expected) in [
        ("read -r call; echo '{\"said\":7}'; sleep 100", "sent an unexpected line"),
        ("read -r call; echo lost >&2; kill -9 $$", "ended: lost"),
        ("read -r call; exec cat /dev/zero", "a line of more than 8 MiB"),
        ("read -r call; exec yes '' >&2", "more than 32 MiB"),
    ] {
        let far = FarEnd::greeting(body);
        let mut caller = far.caller().expect("it greets");
        caller.call(&EchoCall::Say("x".into())).expect("sent");
        let said = host::text::chain(&caller.expect_answer(LIMIT).expect_err(body));
        assert!(said.contains(expected), "{body}: {said}");
    }
}

#[test]
fn silence_is_an_error_of_its_own_and_the_end_waits_no_longer_than_the_grace() {
    let far = FarEnd::greeting("exec sleep 1000");
    let mut caller = far.caller().expect("it greets");
    caller.set_grace(Duration::from_millis(10));
    let said = caller.expect_answer(Duration::from_millis(20)).expect_err("silent").to_string();
    assert!(said.contains("did not answer within"), "{said}");
    let too_long = caller.call(&EchoCall::Say("x".repeat(wirepath_remote::LINE_BYTES_MAX)));
    assert!(host::text::chain(&too_long.expect_err("refused")).contains("longer than"));
}

#[test]
fn absent_program_is_named() {
    let said = host::text::chain(
        &Caller::<Echo>::command(Command::new("/nonexistent/wirepath"), &ChildPlace::default())
            .expect_err("absent"),
    );
    assert!(said.contains("/nonexistent/wirepath"), "{said}");
}

/// True once a process has ended.
fn is_gone(pid: &str) -> bool {
    (0..2000).any(|_| {
        thread::sleep(Duration::from_millis(10));
        !is_running(pid)
    })
}

fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim().starts_with('Z'))
}

/// Child process of the next test, which kills it.
#[test]
#[ignore = "role of a child process"]
fn holds_a_far_end_until_killed() {
    let far = FarEnd::greeting("echo \"{\\\"said\\\":\\\"$$\\\"}\"; exec sleep 1000");
    let mut caller = far.caller().expect("it greets");
    let EchoAnswer::Said(pid) = caller.expect_answer(LIMIT).expect("its process");
    writeln!(stdout(), "far end {pid}.").expect("written");
    thread::sleep(Duration::from_secs(600));
}

#[test]
fn far_end_ends_with_a_near_end_that_is_killed() {
    let role = testkit::role("holds_a_far_end_until_killed");
    let child = Child::spawn(role, &ChildPlace::default()).expect("it starts");
    assert!(child.wait_for_stdout(".\n", LIMIT), "it prints the process");
    let said = String::from_utf8(child.stdout_so_far()).expect("text");
    let (_, rest) = said.split_once("far end ").expect("its line");
    let (pid, _) = rest.split_once('.').expect("a full stop");
    assert!(is_running(pid), "the check must see it");
    // Dropping a child kills it.
    drop(child);
    assert!(is_gone(pid), "{pid}");
}

#[test]
fn all_that_a_far_end_runs_ends_when_it_is_dropped_and_with_the_thread_that_started_it() {
    let body = "sleep 1000 & echo \"{\\\"said\\\":\\\"$! $$\\\"}\"; cat > /dev/null; wait";
    for is_dropped in [true, false] {
        let far = FarEnd::greeting(body);
        let started = thread::spawn(move || {
            let mut caller = far.caller().expect("it greets");
            caller.set_grace(Duration::from_millis(10));
            let EchoAnswer::Said(pids) = caller.expect_answer(LIMIT).expect("its processes");
            assert!(pids.split(' ').all(is_running), "{pids}");
            if is_dropped {
                drop(caller);
                return (pids, None);
            }
            (pids, Some(caller))
        });
        let (pids, caller) = started.join().expect("no panic");
        assert!(is_gone(pids.split(' ').nth(1).expect("two")), "the program: {pids}");
        drop(caller);
        assert!(pids.split(' ').all(is_gone), "{pids}");
    }
}
