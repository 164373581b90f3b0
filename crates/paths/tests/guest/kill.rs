//! Nothing outlives whoever booted it.

use std::fs::File;
use std::io::{Write, stdout};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use host::child::{Child, Place};
use wirepath_paths::guest::qemu::{Boot, Machine};
use wirepath_paths::guest::tap::TapMachine;

use super::{ALL, image, skipped};

const ROLE: &str = "WIREPATH_TEST_HOLDS_MACHINES";
const LONG: Duration = Duration::from_secs(30);

/// Not a test by itself: the process that the next one kills.
#[test]
fn holds_machines_until_killed() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let image = image().expect("the one who kills has looked");
    let boot = Boot::firmware(&image, ALL);
    let (on_sockets, _link) = Machine::boot(&boot).expect("it gets ready");
    writeln!(stdout(), "folder {}", on_sockets.folder().display()).expect("somebody listens");
    let mut pids = vec![on_sockets.pid()];
    let on_tap = TapMachine::boot(&boot).map(|tap| (tap.machine.pid(), tap));
    match &on_tap {
        Ok((pid, _)) => pids.push(*pid),
        Err(error) => skipped(format!("the half with a TAP interface: {error}")),
    }
    writeln!(stdout(), "holding {pids:?}").expect("somebody listens");
    thread::sleep(Duration::from_secs(600));
}

/// A zombie that nobody collects has no command line any more.
fn is_there(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

#[test]
fn killed_process_leaves_no_qemu_and_with_it_no_tap_interface() {
    if image().is_none() {
        return;
    }
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command.args(["--exact", "kill::holds_machines_until_killed", "--nocapture"]).env(ROLE, "1");
    let mut child = Child::spawn(command, &Place::default()).expect("it starts");
    let holds = child.wait_for_stdout("]\n", LONG);
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
    child.wait(LONG).expect("it can be waited for").expect("killed");
    let deadline = Instant::now() + LONG;
    for pid in pids {
        // The interface is the machine's own, in a namespace that only it and the dead held.
        while is_there(pid) {
            assert!(Instant::now() < deadline, "QEMU {pid} outlives its owner");
            thread::sleep(Duration::from_millis(5));
        }
    }
    // The folder stays, and is the next one's to sweep: nobody holds it any more.
    let lock = File::open(folder).expect("it stayed").try_lock();
    lock.expect("its owner is dead");
    let long_ago = SystemTime::now() - Duration::from_secs(60);
    File::open(folder).unwrap().set_modified(long_ago).expect("it is ours");
    // In a process of its own: each sweeps once.
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command.args(["--exact", "kill::dropped_machine_is_gone_with_its_folder"]);
    assert!(command.output().expect("it starts").status.success());
    assert!(!Path::new(folder).exists(), "{folder}");
}

#[test]
fn dropped_machine_is_gone_with_its_folder() {
    let Some(image) = image() else { return };
    let (machine, link) = Machine::boot(&Boot::firmware(&image, ALL)).expect("it gets ready");
    let pid = machine.pid();
    assert!(is_there(pid));
    let folder = machine.folder().to_owned();
    assert!(folder.join("card").exists());
    drop((machine, link));
    assert!(!is_there(pid));
    assert!(!folder.exists());
}
