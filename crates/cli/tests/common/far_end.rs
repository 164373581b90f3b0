//! Far ends of experiments: a namespace of this host, and a host with a real sshd. Nothing of either stays.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::{
    Data, FAR_IP, LONG, Running, Spaces, all_text, enter, ip, is_installed, json, run, succeed,
    until,
};

/// Few and short trials.
pub(crate) const SHORT: [&str; 7] =
    ["--max-blocks", "6", "--trial", "50ms", "--time", "60s", "--no-history"];
/// Trials until the command is ended.
pub(crate) const ENDLESS: [&str; 6] = ["--time", "300s", "--min-blocks", "1000", "--trial", "50ms"];

/// Search paths of commands at a far end: without the program, and with it.
pub(crate) const SYSTEM_PATH: &str = "/usr/bin:/bin";
pub(crate) const SBIN_PATH: &str = "BIN:/usr/sbin:/usr/bin:/bin";

/// Processes in the far namespace.
pub(crate) fn far_pids(spaces: &Spaces) -> Vec<u32> {
    let pids = succeed(ip(&["netns", "pids", &spaces.far]));
    pids.split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
}

pub(crate) fn command_line(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// The peer in the far namespace: by its name, or by the descriptor of a copy.
pub(crate) fn far_peer(spaces: &Spaces) -> Option<u32> {
    let names = ["wirepath", "/proc/self/fd/4"].map(|name| format!("{name} peer --secret-stdin"));
    far_pids(spaces)
        .into_iter()
        .find(|pid| names.iter().any(|name| command_line(*pid).starts_with(name)))
}

pub(crate) fn has_program(spaces: &Spaces) -> bool {
    spaces.far_link().contains("xdp")
}

/// Asserts that the far namespace has again the processes `before`, and no XDP program.
pub(crate) fn assert_far_end_gone(spaces: &Spaces, before: &[u32]) {
    let left = || {
        let pids = far_pids(spaces).into_iter().filter(|pid| !before.contains(pid));
        pids.map(|pid| (pid, command_line(pid))).collect::<Vec<_>>()
    };
    assert!(until(LONG, || left().is_empty()), "processes left: {:?}", left());
    assert!(until(LONG, || !has_program(spaces)), "{}", spaces.far_link());
}

pub(crate) fn prove(spaces: &Spaces, args: &[&str], more: &[&str]) -> Command {
    spaces.near(&[&["prove", "probe"], args, more].concat())
}

pub(crate) fn arm<'a>(document: &'a Value, name: &str) -> &'a Value {
    let arms = document["arms"].as_array().expect("arms");
    arms.iter().find(|arm| arm["name"] == name).unwrap_or_else(|| panic!("{name}: {document:#}"))
}

/// Packets that the near interface has received and sent.
pub(crate) fn near_packets(spaces: &Spaces) -> [u64; 2] {
    let link = json(ip(&["-n", &spaces.near, "-s", "-j", "link", "show", "va"]));
    ["rx", "tx"].map(|way| link[0]["stats64"][way]["packets"].as_u64().expect("a count"))
}

/// A sshd in the far namespace, with keys of its own.
pub(crate) struct Sshd {
    pub(crate) spaces: Spaces,
    pub(crate) data: Data,
    daemon: Running,
}

impl Sshd {
    /// - `path`: search path of commands at the far end; BIN is a folder with the program.
    ///
    /// Returns `None`, and a skip, if it is not installed.
    pub(crate) fn start(path: &str) -> Option<Self> {
        if !(is_installed("sshd") && is_installed("ssh")) {
            return None;
        }
        let (spaces, data) = (Spaces::new(), Data::new());
        for key in ["host", "user", "other"] {
            let mut keygen = Command::new("ssh-keygen");
            succeed({
                keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", &data.file(key)]);
                keygen
            });
        }
        let read = |name: &str| fs::read_to_string(data.file(name)).expect("a key");
        let write = |name: &str, text: String| fs::write(data.file(name), text).expect("written");
        write("authorized", read("user.pub"));
        write("known", format!("{FAR_IP} {}", read("host.pub")));
        write("empty", String::new());
        fs::create_dir(data.file("tmp")).expect("a folder");
        let bin = data.file("bin");
        fs::create_dir(&bin).expect("a folder");
        symlink(env!("CARGO_BIN_EXE_wirepath"), format!("{bin}/wirepath")).expect("a link");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(data.path(), mode).expect("readable");
        let path = path.replace("BIN", &bin);
        let config = format!(
            "ListenAddress {FAR_IP}:22\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
             PidFile none\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin yes\nSetEnv PATH={path} TMPDIR={} WIREPATH_STATE={} WIREPATH_LOCKS={}\n",
            data.file("host"),
            data.file("authorized"),
            data.file("tmp"),
            data.file("far-state"),
            data.path().display(),
        );
        write("config", config);
        // sshd wants a folder in /run, which is here its own.
        let script = format!(
            "mount -t tmpfs none /run && mkdir /run/sshd && exec /usr/sbin/sshd -D -e -f {}",
            data.file("config")
        );
        let daemon = Running::start(enter(&spaces.far, &["sh", "-c", &script]));
        let near = sys::netns::Netns::open(format!("/run/netns/{}", spaces.near)).expect("ours");
        let at = (FAR_IP.parse::<Ipv4Addr>().expect("an address"), 22);
        assert!(
            until(LONG, || near.run(|| TcpStream::connect(at).is_ok()).expect("entered")),
            "{}",
            daemon.stderr()
        );
        Some(Sshd { spaces, data, daemon })
    }

    /// Arguments that name this far end.
    pub(crate) fn far(&self, key: &str, known: &str) -> Vec<String> {
        let options = [
            format!("IdentityFile={}", self.data.file(key)),
            format!("UserKnownHostsFile={}", self.data.file(known)),
            "IdentitiesOnly=yes".into(),
            "IdentityAgent=none".into(),
            "GlobalKnownHostsFile=/dev/null".into(),
            "StrictHostKeyChecking=yes".into(),
        ];
        let options = options.into_iter().flat_map(|option| ["--ssh-option".to_owned(), option]);
        ["--far".to_owned(), format!("ssh:root@{FAR_IP}")].into_iter().chain(options).collect()
    }

    /// `wirepath prove PATH` with this far end.
    pub(crate) fn near(&self, path: &str, args: &[&str]) -> Command {
        let far = self.far("user", "known");
        let far: Vec<&str> = far.iter().map(String::as_str).collect();
        self.spaces.near(&[&["prove", path], &far[..], args].concat())
    }

    /// The command with the client's options.
    pub(crate) fn prove(&self, key: &str, known: &str, args: &[&str]) -> Command {
        let far = self.far(key, known);
        prove(&self.spaces, &far.iter().map(String::as_str).collect::<Vec<_>>(), args)
    }

    /// The daemon's own process.
    pub(crate) fn own(&self) -> Vec<u32> {
        vec![self.daemon.pid()]
    }

    pub(crate) fn assert_nothing_left(&self) {
        assert_far_end_gone(&self.spaces, &self.own());
        let left: Vec<_> = fs::read_dir(self.data.file("tmp")).expect("ours").collect();
        assert!(left.is_empty(), "{left:?}");
    }

    /// The session's processes at the far end, oldest first.
    pub(crate) fn session(&self) -> Vec<u32> {
        far_pids(&self.spaces).into_iter().filter(|pid| !self.own().contains(pid)).collect()
    }
}

/// Moments a service and victim. `WIREPATH_TEST_KILLS=50` sets another number.
pub(crate) fn kill_count() -> u64 {
    std::env::var("WIREPATH_TEST_KILLS").map_or(3, |text| text.parse().expect("a number"))
}

/// Moments of the first second, after which every service measures.
pub(crate) fn moments() -> Vec<Duration> {
    let random = RandomState::new();
    (0..kill_count()).map(|n| Duration::from_millis(random.hash_one(n) % 1000)).collect()
}

/// Starts `near` and kills it, or the oldest process at the far end beside `before`.
pub(crate) fn kill_after(
    moment: Duration,
    near: Command,
    spaces: &Spaces,
    before: &[u32],
    is_near: bool,
) {
    let near = Running::start(near);
    if is_near {
        thread::sleep(moment);
        near.end_by("KILL", LONG);
        return;
    }
    let started = || far_pids(spaces).into_iter().find(|pid| !before.contains(pid));
    if !until(LONG, || started().is_some()) {
        panic!("no far end: {}", near.stderr());
    }
    thread::sleep(moment);
    // It may be another one by now, or none.
    let Some(victim) = started() else { return };
    let mut kill = Command::new("kill");
    kill.args(["-KILL", &victim.to_string()]);
    run(kill);
    // A far end that was replaced by a new one, or a failed trial, ends no command.
    let output = near.end_by("INT", LONG * 2);
    assert!(matches!(output.status.code(), Some(1 | 130)), "{}", all_text(&output));
}

/// Kills either end of `prove PATH`, whose far end is a namespace, at random moments: nothing is left.
pub(crate) fn assert_kills_leave_nothing_in_a_namespace(path: &str) {
    let spaces = Spaces::new();
    let far = format!("netns:{}", spaces.far);
    for (n, moment) in moments().into_iter().enumerate() {
        let near =
            spaces.near(&[&["prove", path, "--far", &far, "--no-history"][..], &ENDLESS].concat());
        testkit::note(&format!("{path} after {moment:?}"));
        kill_after(moment, near, &spaces, &[], n % 2 == 0);
        assert_far_end_gone(&spaces, &[]);
    }
}

/// As [`assert_kills_leave_nothing_in_a_namespace`], with the far end on a host.
///
/// - `args`: arguments beside the path and the far end, the limits included.
pub(crate) fn assert_kills_leave_nothing_on_a_host(sshd: &Sshd, path: &str, args: &[&str]) {
    for (n, moment) in moments().into_iter().enumerate() {
        let near = sshd.near(path, &[args, &["--no-history"]].concat());
        testkit::note(&format!("{path} after {moment:?}"));
        kill_after(moment, near, &sshd.spaces, &sshd.own(), n % 2 == 0);
        sshd.assert_nothing_left();
    }
}
