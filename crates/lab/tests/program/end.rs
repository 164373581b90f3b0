//! Every end of a program leaves no process and no control group.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use testkit::LONG;
use wirepath_lab::program::{ProgramEnd, ProgramError};

use crate::common::{GO_ON, GRACE, Home, in_both_homes, marked};

/// Grace time of programs that do not comply.
const SHORT: Duration = Duration::from_millis(100);

/// Python code by which a daemon reports that it runs.
const READY: &str = "print(\"ready\", flush=True)\n";

fn count(home: &Home) -> usize {
    marked(&home.mark).len()
}

#[test]
fn forked_processes_end_with_the_server() {
    in_both_homes(|home| {
        let command =
            "sleep 600 & (sleep 601 & sleep 602) & sh -c 'sleep 603 & wait' & echo ready; wait";
        let server = home.start_until_ready(command);
        let all = testkit::until(LONG, || server.processes().len() >= 6);
        assert!(all && count(home) >= 6, "{:?}", marked(&home.mark));
        let finished = server.stop(GRACE).unwrap();
        assert_eq!((finished.end, finished.status.signal()), (ProgramEnd::Terminated, Some(15)));
        assert_eq!(count(home), 0);
    });
}

#[test]
fn daemon_is_alive_after_its_parent_and_ends_with_a_stop_or_a_drop() {
    in_both_homes(|home| {
        for is_stopped in [true, false] {
            let body = [READY, "time.sleep(600)"].concat();
            let server = home.start_spec_until_ready(&home.daemon(&body));
            // The last process is the daemon, a child of the supervisor.
            assert!(testkit::until(LONG, || server.processes().len() == 1));
            assert!(server.is_running().unwrap());
            let daemon = server.processes()[0];
            let session = fs::read_to_string(format!("/proc/{daemon}/stat")).unwrap();
            let session = session.split(' ').nth(5).unwrap().to_owned();
            let own = fs::read_to_string("/proc/self/stat").unwrap();
            assert_ne!(session, own.split(' ').nth(5).unwrap(), "it left the session");
            if is_stopped {
                let finished = server.stop(GRACE).unwrap();
                assert_eq!(finished.end, ProgramEnd::Terminated);
                assert!(finished.status.success(), "of its parent");
            } else {
                drop(server)
            }
            assert_eq!(count(home), 0);
        }
    });
}

#[test]
fn daemon_that_ends_is_noticed() {
    in_both_homes(|home| {
        let exit = "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3))\n";
        let body = [exit, READY, "time.sleep(600)"].concat();
        let server = home.start_spec_until_ready(&home.daemon(&body));
        assert!(testkit::until(LONG, || server.processes().len() == 1), "its parents have ended");
        assert!(server.is_running().unwrap());
        let daemon = server.processes()[0].to_string();
        assert!(Command::new("kill").args(["-USR1", &daemon]).status().unwrap().success());
        assert!(testkit::until(LONG, || server.is_running().is_err()));
        let text = server.is_running().unwrap_err().to_string();
        assert!(text.starts_with("the server ended in mid-trial: exit status: 3"), "{text}");
        assert_eq!(server.stop(GRACE).unwrap().end, ProgramEnd::ByItself);
    });
}

#[test]
fn server_that_ends_with_success_has_not_failed() {
    in_both_homes(|home| {
        let server = home.start_until_ready("echo ready; sleep 0.2; echo served");
        assert!(testkit::until(LONG, || !server.is_running().unwrap()));
        let text = server.ended_unused().to_string();
        assert!(text.contains("before it had served a client: exit status: 0"), "{text}");
        assert!(text.ends_with("\nserved"), "{text}");
        let finished = server.stop(GRACE).unwrap();
        assert_eq!((finished.end, finished.status.code()), (ProgramEnd::ByItself, Some(0)));
    });
}

#[test]
fn processes_that_ignore_sigterm_are_killed() {
    in_both_homes(|home| {
        let command = "trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & echo ready; \
                       while :; do sleep 1; done";
        let finished = home.start_until_ready(command).stop(SHORT).unwrap();
        assert_eq!((finished.end, finished.status.signal()), (ProgramEnd::Killed, Some(9)));
        assert_eq!(count(home), 0);
        let body = ["signal.signal(15, signal.SIG_IGN)\n", READY, "time.sleep(600)"].concat();
        let server = home.start_spec_until_ready(&home.daemon(&body));
        assert_eq!(server.stop(SHORT).unwrap().end, ProgramEnd::Killed);
        assert_eq!(count(home), 0);
    });
}

#[test]
fn paused_processes_and_those_that_clean_up_comply() {
    in_both_homes(|home| {
        let command = "trap 'echo cleaned; exit 0' TERM; echo ready; kill -STOP $$";
        let finished = home.start_until_ready(command).stop(GRACE).unwrap();
        assert_eq!((finished.end, finished.status.code()), (ProgramEnd::Terminated, Some(0)));
        assert!(finished.stdout.bytes().ends_with(b"cleaned\n"));
    });
}

#[test]
fn processes_that_fork_without_end_are_killed() {
    in_both_homes(|home| {
        // Each process forks the next and ends.
        let body = [
            "signal.signal(15, signal.SIG_IGN)\n",
            READY,
            "while True:\n  if os.fork(): os._exit(0)\n  time.sleep(0.001)",
        ];
        let server = home.start_spec_until_ready(&home.daemon(&body.concat()));
        assert_eq!(server.stop(SHORT).unwrap().end, ProgramEnd::Killed);
        assert_eq!(count(home), 0);
    });
}

#[test]
fn client_that_hangs_is_killed_at_its_limit() {
    in_both_homes(|home| {
        let client = home.start("client", "echo connected; sleep 600 & exec sleep 600");
        let error = client.wait(SHORT, &GO_ON).unwrap_err();
        let expected = "the client did not end within 100 ms and was killed; last lines of its \
                        output:\nconnected";
        assert_eq!(error.to_string(), expected);
        assert_eq!(count(home), 0);
    });
}

#[test]
fn stop_flag_kills_a_client() {
    in_both_homes(|home| {
        let error =
            home.start("client", "sleep 600").wait(LONG, &AtomicBool::new(true)).unwrap_err();
        assert!(error.is_interrupted(), "{error}");
        assert_eq!(count(home), 0);
    });
}

#[test]
fn processes_that_a_client_leaves_are_killed() {
    in_both_homes(|home| {
        let finished = home.start("client", "sleep 600 & exit 0").wait(LONG, &GO_ON).unwrap();
        assert_eq!((finished.end, finished.status.code()), (ProgramEnd::ByItself, Some(0)));
        assert_eq!(count(home), 0);
    });
}

#[test]
fn server_that_dies_in_mid_trial_ends_the_wait_for_its_client() {
    in_both_homes(|home| {
        let server = home.start_until_ready("echo ready; exec sleep 600");
        let client = home.start("client", "exec sleep 600");
        let pid = server.processes();
        assert!(!pid.is_empty());
        assert!(server.is_running().unwrap());
        let kill = Command::new("kill").arg("-KILL").args(pid.iter().map(u32::to_string)).status();
        assert!(kill.is_ok());
        let error =
            client.wait_beside(&mut || server.is_running().map(drop), LONG, &GO_ON).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("the server ended in mid-trial: signal: 9 (SIGKILL)"), "{text}");
        assert!(text.ends_with("\nready"), "{text}");
        let finished = server.stop(GRACE).unwrap();
        assert_eq!((finished.end, finished.status.signal()), (ProgramEnd::ByItself, Some(9)));
    });
}

#[test]
fn gigabytes_of_output_neither_block_the_program_nor_take_memory() {
    const TWO_GIB: u64 = 2 << 30;
    in_both_homes(|home| {
        let client = home.start("client", "yes | head -c 2147483648; echo; echo last");
        let finished = client.wait(LONG * 10, &GO_ON).unwrap();
        assert!(finished.status.success());
        let bytes = finished.stdout.bytes();
        let dropped_bytes = finished.stdout.dropped_bytes();
        // A line break stands for the dropped middle.
        assert_eq!(bytes.len() as u64 - 1 + dropped_bytes, TWO_GIB + 6);
        assert!(bytes.starts_with(b"y\ny\n") && bytes.ends_with(b"y\n\nlast\n"));
        assert!(bytes.len() < 10 << 20, "{}", bytes.len());
        let peak_bytes = sys::rusage::peak_resident_bytes();
        assert!(peak_bytes < 512 << 20, "{peak_bytes}");
    });
}

#[test]
fn killed_supervisor_is_an_error_and_the_program_ends() {
    in_both_homes(|home| {
        let server = home.start_until_ready("echo ready; sleep 600");
        let pid = server.processes()[0];
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let parents =
            |stat: &str| stat.rsplit(')').next().unwrap().split(' ').nth(2).unwrap().to_owned();
        let mut supervisor = parents(&stat);
        // The first process may be a child of the shell.
        while !fs::read_to_string(format!("/proc/{supervisor}/comm"))
            .unwrap()
            .starts_with("wirepath")
        {
            supervisor = parents(&fs::read_to_string(format!("/proc/{supervisor}/stat")).unwrap());
        }
        assert!(Command::new("kill").args(["-KILL", &supervisor]).status().unwrap().success());
        let error = server.stop(GRACE).unwrap_err();
        assert!(matches!(error, ProgramError::Lost { .. }), "{error}");
    });
}

#[test]
fn groups_that_the_program_made_are_removed_with_its_own() {
    let home = Home::new(true);
    let server = home.spec(
        "server",
        "G=$(sed -n 's/^0:://p' /proc/self/cgroup); \
        M=$(sed -n 's/.* \\([^ ]*\\) [^ ]* - cgroup2 .*/\\1/p' /proc/self/mountinfo); \
        mkdir -p $M$G/a/b && sleep 600 & echo ready; wait",
    );
    if wirepath_lab::program::Program::start_in(&server, &home.parent).unwrap().cgroup().is_none() {
        return testkit::skip("cgroup", "no control group can be created");
    }
    let server = home.start_spec_until_ready(&server);
    let folder = server.cgroup().unwrap().path().to_owned();
    assert!(testkit::until(LONG, || folder.join("a/b").exists()), "{}", folder.display());
    assert_eq!(server.stop(GRACE).unwrap().end, ProgramEnd::Terminated);
    assert!(!folder.exists());
    home.assert_gone();
}
