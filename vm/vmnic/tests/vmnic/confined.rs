//! The monitor's threads may make the system calls that they need, and no other.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use model::{Arm, Load, Path as _};
use sys::pidfd::PidFd;
use vmm::lance::Sent;
use vmm::{GuestEnd, GuestTask, Sender, Silence, Switches};
use wirepath_vmnic::serve::ServedGuest;
use wirepath_vmnic::{Switch, Vmnic};

use crate::guest;

/// Frames are sent by the processor's thread in the baseline, by the device's with a doorbell.
fn switches(thread: &str) -> Switches {
    Switches { tdmd_doorbell: thread == "device", ..Switches::default() }
}

/// System calls that a guest would make once it has taken over a thread.
const CALLS: [&str; 4] = ["openat", "connect", "execve", "ioctl"];

/// A back end that a guest has taken over: it makes a call.
struct Calls {
    call: Option<&'static str>,
    socket: UdpSocket,
    file: File,
}

impl Sender for Calls {
    fn send(&mut self, _: &[u8]) -> Sent {
        match self.call {
            Some("openat") => drop(File::open("/proc/self/status")),
            Some("connect") => drop(self.socket.connect("127.0.0.1:9")),
            Some("execve") => drop(Command::new("/bin/true").exec()),
            // A request to a terminal.
            Some("ioctl") => drop(self.file.is_terminal()),
            _ => {}
        }
        Sent::Taken
    }

    fn call_count(&self) -> u64 {
        0
    }
}

/// Runs a guest with such a back end; `None` without KVM.
fn jailed(thread: &str, call: Option<&'static str>) -> Option<Result<GuestEnd, String>> {
    let running = guest::start(GuestTask::send(60, 20), switches(thread), || {
        let (socket, file) = (UdpSocket::bind("127.0.0.1:0")?, File::open("/dev/null")?);
        guest::halves(Calls { call, socket, file }, Silence)
    })?;
    running.wait(guest::GUEST_TIMEOUT);
    let ended = running.stop().map(|(outcome, _)| outcome.end);
    Some(ended.map_err(|error| error.to_string()))
}

#[test]
fn forbidden_call_of_either_thread_ends_the_monitor_s_process_alone() {
    for thread in ["vcpu", "device"] {
        let Some(end) = jailed(thread, None) else { return };
        assert_eq!(end, Ok(GuestEnd::Done), "{thread}");
        for call in CALLS {
            let why = jailed(thread, Some(call)).unwrap().unwrap_err();
            assert!(why.contains("without a report") && why.contains("31"), "{call}: {why}");
        }
    }
}

/// Value of a line of /proc/PID/status.
fn fact(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A served guest; `None` without KVM or image.
fn served(arm: &Arm) -> Option<ServedGuest> {
    guest::image_beside_us()?;
    let load = Load {
        kind: "stream".into(),
        size_bytes: 1514,
        rate_pps: 0,
        trial: Duration::ZERO,
        ipv6: false,
        vlan_tag: None,
        wire: None,
        far: None,
    };
    let support = Vmnic.support(arm, &load);
    if !support.is_yes() {
        testkit::skip("kvm", format!("{support:?}"));
        return None;
    }
    Some(ServedGuest::start(arm).unwrap())
}

/// The guest answers a datagram to its echo port.
fn answers(served: &ServedGuest) -> bool {
    let asked = served.netns().run(|| -> std::io::Result<bool> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect((served.guest_ip(), 7))?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        // One that boots answers later.
        Ok((0..60).any(|_| {
            let sent = socket.send(b"are you there?").is_ok();
            sent && socket.recv(&mut [0; 64]).is_ok_and(|len| len == 14)
        }))
    });
    asked.unwrap().unwrap()
}

#[test]
fn monitor_that_serves_has_no_files_and_no_rights_on_any_thread_and_the_guest_answers() {
    for switches in [&[][..], &[Switch::SharedRing], &[Switch::XdpRing]] {
        let arm = Arm::with(switches.iter().copied());
        let Some(served) = served(&arm) else { return };
        assert!(answers(&served), "{}", arm.name);
        let process = format!("/proc/{}", served.pid());
        let threads: Vec<_> = fs::read_dir(format!("{process}/task")).unwrap().collect();
        assert!(threads.len() >= 3, "{threads:?}");
        for thread in threads {
            let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
            let nothing = "0000000000000000";
            assert_eq!(fact(&status, "CapEff:"), nothing, "{}", arm.name);
            assert_eq!(fact(&status, "CapPrm:"), nothing, "{}", arm.name);
            assert_eq!(fact(&status, "NoNewPrivs:"), "1", "{}", arm.name);
            assert_eq!(fact(&status, "Seccomp:"), "2", "{}", arm.name);
            assert_eq!(fact(&status, "Uid:"), "65534 65534 65534 65534", "{}", arm.name);
        }
        assert_eq!(fs::read_dir(format!("{process}/root/")).unwrap().count(), 0, "{}", arm.name);
        let own = fs::read_link("/proc/self/ns/mnt").unwrap();
        assert_ne!(fs::read_link(format!("{process}/ns/mnt")).unwrap(), own);
        for fd in fs::read_dir(format!("{process}/fd")).unwrap() {
            let at = fs::read_link(fd.unwrap().path()).unwrap();
            let is_device = ["/dev/null", "/dev/kvm", "/dev/net/tun"]
                .iter()
                .any(|dev| at == std::path::Path::new(dev));
            let is_file = at.is_absolute() && !is_device;
            assert!(!is_file, "{}: {}", arm.name, at.display());
        }
        served.stop().unwrap();
    }
}

/// Child process of the next test.
#[test]
#[ignore = "role of a child process"]
fn child_that_serves_until_it_is_killed() {
    let Some(served) = served(&Arm::baseline()) else { return };
    let mut out = std::io::stdout();
    writeln!(out, "\nmonitor {}", served.pid()).unwrap();
    out.flush().unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn kill_of_the_owner_ends_the_monitor() {
    let mut role = testkit::role("confined::child_that_serves_until_it_is_killed");
    let mut owner = role.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let pid = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("monitor ").and_then(|pid| pid.parse().ok()));
    let Some(pid) = pid else {
        // It has told the reason why there is none.
        assert!(owner.wait().unwrap().success());
        return;
    };
    let monitor = PidFd::open(pid).unwrap();
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(monitor.has_ended_within(guest::GUEST_TIMEOUT).unwrap());
}
