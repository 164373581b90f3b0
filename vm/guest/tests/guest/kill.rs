//! No machine outlives the process that booted it.

use std::fs::File;
use std::io::{Write, stdout};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use host::child::{Child, ChildPlace};
use wirepath_guest::qemu::{Boot, GuestMachine};
use wirepath_guest::tap::TapMachine;

use super::{ALL, image};

const END_TIMEOUT: Duration = Duration::from_secs(30);

/// Child process of the next test, which kills it.
#[test]
#[ignore = "role of a child process"]
fn holds_machines_until_killed() {
    let image = image().expect("checked by the killing test");
    let boot = Boot::firmware(&image, ALL);
    let (on_sockets, _link) = GuestMachine::boot(&boot).expect("it gets ready");
    writeln!(stdout(), "folder {}", on_sockets.folder().display()).expect("the pipe is open");
    let mut pids = vec![on_sockets.pid()];
    let on_tap = TapMachine::boot(&boot).map(|tap| (tap.machine.pid(), tap));
    match &on_tap {
        Ok((pid, _)) => pids.push(*pid),
        Err(error) => testkit::skip("tap", error),
    }
    writeln!(stdout(), "holding {pids:?}").expect("the pipe is open");
    thread::sleep(Duration::from_secs(600));
}

/// A zombie that is not reaped has no command line.
fn is_there(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

#[test]
fn killed_process_leaves_no_qemu_and_with_it_no_tap_interface() {
    if image().is_none() {
        return;
    }
    let role = testkit::role("kill::holds_machines_until_killed");
    let mut child = Child::spawn(role, &ChildPlace::default()).expect("it starts");
    let holds = child.wait_for_stdout("]\n", END_TIMEOUT);
    let said = String::from_utf8_lossy(&child.stdout_so_far()).into_owned();
    assert!(holds, "{said}");
    let (_, list) = said.split_once("holding [").expect("it says so");
    let list = list.split(']').next().unwrap_or_default();
    let (_, folder) = said.split_once("folder ").expect("it says so");
    let folder = folder.lines().next().expect("it has a name");
    let pids: Vec<u32> = list.split(", ").map(|pid| pid.parse().expect("a number")).collect();
    assert!(
        pids.iter().all(|pid| is_there(*pid)),
        "the check itself must be able to see: {pids:?}"
    );

    let killed = Command::new("kill").args(["-9", &child.pid().to_string()]).status();
    assert!(killed.expect("kill is there").success());
    child.wait(END_TIMEOUT).expect("it can be waited for").expect("killed");
    let deadline = Instant::now() + END_TIMEOUT;
    for pid in pids {
        // Only the machine and its killed owner held the namespace of the interface.
        while is_there(pid) {
            assert!(Instant::now() < deadline, "QEMU {pid} outlives its owner");
            thread::sleep(Duration::from_millis(5));
        }
    }
    // The folder remains, unlocked, for the next process to delete.
    let lock = File::open(folder).expect("it remains").try_lock();
    lock.expect("its owner is dead");
    let long_ago = SystemTime::now() - Duration::from_secs(60);
    File::open(folder).unwrap().set_modified(long_ago).expect("we own it");
    // In another process: each sweeps once.
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command.args(["--exact", "kill::dropped_machine_is_gone_with_its_folder"]);
    assert!(command.output().expect("it starts").status.success());
    assert!(!Path::new(folder).exists(), "{folder}");
}

#[test]
fn dropped_machine_is_gone_with_its_folder() {
    let Some(image) = image() else { return };
    let (machine, link) = GuestMachine::boot(&Boot::firmware(&image, ALL)).expect("it gets ready");
    let pid = machine.pid();
    assert!(is_there(pid));
    let folder = machine.folder().to_owned();
    assert!(folder.join("card").exists());
    drop((machine, link));
    assert!(!is_there(pid));
    assert!(!folder.exists());
}
