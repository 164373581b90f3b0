//! No namespace or interface outlives a lab whose process is killed.

use std::io::{Write, stdout};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::thread;
use std::time::Duration;

use sys::child::{Child, ChildPlace};
use sys::netns::Netns;
use sys::sysfs::Sysfs;
use wirepath_lab::{Pair, PairSpec, Triple};

const LONG: Duration = Duration::from_secs(20);

/// Child process of the next test, which kills it.
#[test]
#[ignore = "role of a child process"]
fn holds_a_lab_until_killed() {
    let lab = Triple::new(&PairSpec::default()).unwrap();
    let fds = [&lab.near.netns, &lab.middle.netns, &lab.far.netns].map(|n| n.as_fd().as_raw_fd());
    writeln!(stdout(), "holding {fds:?}").unwrap();
    thread::sleep(Duration::from_secs(600));
}

fn own_interfaces() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

fn interfaces(view: &Sysfs) -> Vec<String> {
    view.list("class/net").unwrap_or_default()
}

#[test]
fn a_killed_process_leaves_no_interface_and_no_namespace() {
    let before = own_interfaces();
    let role = testkit::role("holds_a_lab_until_killed");
    let mut child = Child::spawn(role, &ChildPlace::default()).unwrap();
    assert!(child.wait_for_stdout("]\n", LONG), "{:?}", child.wait(Duration::ZERO));

    let said = String::from_utf8(child.stdout_so_far()).unwrap();
    let (_, list) = said.split_once("holding [").unwrap();
    let fds = list.split(']').next().unwrap().split(", ").map(|fd| fd.parse::<u32>().unwrap());
    // A sysfs view of each namespace does not keep the namespace alive.
    let mut inodes = Vec::new();
    let views: Vec<Sysfs> = fds
        .map(|fd| {
            let netns = Netns::open(format!("/proc/{}/fd/{fd}", child.pid())).unwrap();
            inodes.push(netns.inode().unwrap());
            Sysfs::of(&netns).unwrap()
        })
        .collect();
    assert_eq!(views.iter().map(|view| interfaces(view).len()).collect::<Vec<_>>(), [2, 3, 2]);
    assert!(
        inodes.iter().all(|inode| testkit::is_netns_held(*inode)),
        "the check must detect a held namespace"
    );

    let killed = Command::new("kill").args(["-9", &child.pid().to_string()]).status().unwrap();
    assert!(killed.success());
    child.wait(LONG).unwrap().expect("killed");
    let gone = (0..2000).any(|_| {
        thread::sleep(Duration::from_millis(5));
        views.iter().all(|view| interfaces(view).is_empty())
    });
    assert!(gone, "{:?}", views.iter().map(|view| view.list("class/net")).collect::<Vec<_>>());
    assert!(!inodes.iter().any(|inode| testkit::is_netns_held(*inode)));
    assert_eq!(own_interfaces(), before);
}

/// As in a kill of both ends at once on a busy machine: the far end's namespace goes, and with it the wire, before the
/// near end's connection has ended.
#[test]
fn a_connection_without_a_far_end_does_not_keep_its_namespace() {
    let Pair { near, far } = Pair::new(&PairSpec::default()).unwrap();
    let far_ip = far.ip;
    let listener = far.run(move || TcpListener::bind((far_ip, 9000)).unwrap()).unwrap();
    let mut client = near.run(move || TcpStream::connect((far_ip, 9000)).unwrap()).unwrap();
    let view = Sysfs::of(&near.netns).unwrap();
    assert_eq!(interfaces(&view).len(), 2, "the check must see the namespace");
    far.set_up(false).unwrap();
    client.write_all(b"never acknowledged").unwrap();
    near.delete_link().unwrap();
    drop((client, listener, near, far));
    assert!(testkit::until(LONG, || interfaces(&view).is_empty()), "{:?}", interfaces(&view));
}
