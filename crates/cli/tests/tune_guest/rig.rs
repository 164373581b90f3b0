//! A Debian guest in QEMU with the program in it, and cards whose drivers are real: see
//! `xtask/src/linux_guest/rig.rs` for its protocol.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use host::child::{Child, Place};
use host::scratch::Scratch;
use lab::TapHome;
use serde_json::Value;

use testkit::skip;

use crate::common::{is_installed, run, succeed, until};

const QEMU: &str = "qemu-system-x86_64";
/// Time that an emulated machine may take to boot on a busy host.
const BOOT: Duration = Duration::from_secs(120);
/// Time that one script may take.
const SCRIPT: Duration = Duration::from_secs(120);
const TAP: &str = "wp-tap";

/// Cards of the guest: name in the guest, driver, MAC address, and the QEMU option that creates it.
///
/// The first three and `far` are on one wire; `vio` has two queues and a wire to the test.
const CARDS: [(&str, &str, &str, &str); 4] = [
    ("intel", "e1000e", "52:54:00:00:00:01", "e1000e,netdev=a"),
    ("vmx", "vmxnet3", "52:54:00:00:00:02", "vmxnet3,netdev=b"),
    ("far", "virtio_net", "52:54:00:00:00:03", "virtio-net-pci,netdev=c"),
    ("vio", "virtio_net", "52:54:00:00:00:04", "virtio-net-pci,netdev=d,mq=on,vectors=6"),
];

/// Addresses: `intel` and `vmx` reach `far`, which is in a namespace of that name.
pub(crate) const SETUP: &str = "
for card in /sys/class/net/*; do
    case $(cat $card/address) in
        52:54:00:00:00:01) name=intel ;;
        52:54:00:00:00:02) name=vmx ;;
        52:54:00:00:00:03) name=far ;;
        52:54:00:00:00:04) name=vio ;;
        *) continue ;;
    esac
    ip link set ${card##*/} name $name
done
sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
# Two cards of one machine on one wire: each answers for its own address only.
sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
ip netns add far
ip link set far netns far
ip -n far link set lo up
ip -n far link set far up
ip -n far address add 10.81.0.2/24 dev far
ip -n far address add 10.82.0.2/24 dev far
ip link set lo up
for name in intel vmx vio; do ip link set $name up; done
ip address add 10.81.0.1/24 dev intel
ip address add 10.82.0.1/24 dev vmx
ip address add 10.77.0.2/24 dev vio
for there in 10.81.0.2 10.82.0.2 10.77.0.1; do
    n=0
    until ping -qc 1 -W 1 $there >/dev/null; do n=$((n + 1)); [ $n -lt 30 ] || exit 1; done
done
for name in intel vmx vio; do ethtool -i $name | grep ^driver; done
";

/// The guest. QEMU is killed on drop, and when the thread that booted it ends.
pub(crate) struct Rig {
    qemu: Child,
    folder: Scratch,
    _wire: TapHome,
    next: Cell<u32>,
}

/// Result of a script.
pub(crate) struct ScriptResult {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Rig {
    /// Boots the guest with the program, and these programs of the host with their libraries. `None` if
    /// that is not possible; the reason is printed.
    pub(crate) fn boot(programs: &[&str]) -> Option<Rig> {
        let [kernel, initrd] = guest()?;
        if !is_installed(QEMU) || !programs.iter().all(|program| is_installed(program)) {
            return None;
        }
        let folder = Scratch::new().expect("a folder");
        let root = folder.path().join("share/root");
        install(Path::new(env!("CARGO_BIN_EXE_wirepath")), &root);
        for program in programs.iter().chain(&["sh"]) {
            install(&which(program), &root);
        }
        let wire = TapHome::new().expect("a namespace");
        let console = folder.path().join("console");
        let mut command = Command::new(QEMU);
        command
            // One thread for both CPUs: on a busy host two would wait for each other's locks while
            // neither runs. Nothing here depends on speed.
            .args(["-M", "q35", "-accel", "tcg,thread=single", "-cpu", "Nehalem"])
            .args(["-smp", "2", "-m", "512"])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-append", "console=ttyS0 quiet loglevel=3 panic=-1 nokaslr mitigations=off"])
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(initrd)
            .arg("-fsdev")
            .arg(format!(
                "local,id=f,security_model=none,path={}",
                folder.path().join("share").display()
            ))
            .args(["-device", "virtio-9p-pci,fsdev=f,mount_tag=wirepath"])
            .args(["-netdev", &format!("tap,id=d,queues=2,ifname={TAP},script=no,downscript=no")]);
        for port in ["a", "b", "c"] {
            command.args(["-netdev", &format!("hubport,hubid=0,id={port}")]);
        }
        for (_, _, mac, device) in CARDS {
            command.args(["-device", &format!("{device},mac={mac}")]);
        }
        let place = Place { netns: Some(&wire.netns), cpus: &[] };
        let mut qemu = Child::spawn(command, &place).expect("QEMU starts");
        let said = || fs::read_to_string(&console).unwrap_or_default();
        let mut has_ended = || qemu.wait(Duration::ZERO).is_ok_and(|ended| ended.is_some());
        let booted = until(BOOT, || said().contains("wirepath-linux ready") || has_ended());
        let failed = !booted || has_ended();
        let stderr = String::from_utf8_lossy(&qemu.stderr_so_far()).into_owned();
        assert!(!failed, "{}{stderr}", said());
        assert!(!said().contains("wirepath-linux: no "), "{}", said());
        wire.adopt(TAP).expect("QEMU has made it");
        let rig = Rig { qemu, folder, _wire: wire, next: Cell::new(0) };
        let drivers = rig.succeed(SETUP);
        for (name, driver, ..) in CARDS.iter().filter(|(name, ..)| *name != "far") {
            assert!(drivers.contains(driver), "{name}: {drivers}");
        }
        Some(rig)
    }

    /// Runs a script to its end.
    pub(crate) fn run(&self, script: &str) -> ScriptResult {
        let number = self.next.replace(self.next.get() + 1);
        let file = |what: &str| self.folder.path().join("share").join(format!("{what}.{number}"));
        // The guest polls for the name: the contents must be complete before it exists.
        fs::write(file("new"), script).expect("a file");
        fs::rename(file("new"), file("run")).expect("a file");
        let code = || fs::read_to_string(file("code")).ok();
        let ended = until(SCRIPT, || code().is_some());
        let text = |what| {
            let bytes = fs::read(file(what)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (stdout, stderr) = (text("out"), text("err"));
        let console = || fs::read_to_string(self.folder.path().join("console"));
        assert!(
            ended,
            "no end of {script}\n{stdout}\n{stderr}\n{:?}\n{}",
            console(),
            String::from_utf8_lossy(&self.qemu.stderr_so_far())
        );
        let code = code().and_then(|text| text.trim().parse().ok()).expect("a number");
        ScriptResult { code, stdout, stderr }
    }

    /// Runs a script of which every command must succeed; its standard output.
    pub(crate) fn succeed(&self, script: &str) -> String {
        let came = self.run(&format!("set -e\n{script}"));
        let ScriptResult { code, stdout, stderr } = &came;
        assert_eq!(*code, 0, "{script}\n{stdout}\n{stderr}");
        came.stdout
    }

    /// Runs a script that must succeed and print one JSON document.
    pub(crate) fn json(&self, script: &str) -> Value {
        let text = self.succeed(script);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }

    /// Writes a file to the guest's folder; returns its name there.
    pub(crate) fn put(&self, name: &str, text: &str) -> String {
        fs::write(self.folder.path().join("share").join(name), text).expect("a file");
        format!("/host/{name}")
    }
}

fn guest() -> Option<[PathBuf; 2]> {
    if !cfg!(target_arch = "x86_64") {
        skip("linux-guest", "the guest runs programs of this machine, and is an x86-64");
        return None;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/firmware/linux");
    let files = ["bzImage", "rig.cpio"].map(|name| folder.join(name));
    let is_there = files.iter().all(|file| file.exists());
    if !is_there {
        skip("linux-guest", "not built; run `cargo xtask linux-guest`");
    }
    is_there.then_some(files)
}

/// Path of a program of the host.
fn which(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").expect("there is one");
    let mut found = std::env::split_paths(&path).map(|folder| folder.join(program));
    found.find(|file| file.is_file()).expect("it is installed")
}

/// Installs a stripped program in the guest's `/usr/bin`, and its libraries where it expects them.
fn install(program: &Path, root: &Path) {
    let place = |file: &Path, to: PathBuf| {
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        fs::copy(file, &to).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        to
    };
    let to = place(program, root.join("usr/bin").join(program.file_name().expect("a program")));
    if is_installed("strip") {
        let mut strip = Command::new("strip");
        strip.arg(&to);
        succeed(strip);
    }
    let mut ldd = Command::new("ldd");
    ldd.arg(program);
    let listed = run(ldd);
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        // `libc.so.6 => /lib/libc.so.6 (0x...)`, and the loader itself without an arrow.
        let file = line.split_whitespace().find(|word| word.starts_with('/'));
        if let Some(file) = file {
            let inside = root.join(file.trim_start_matches('/'));
            if !inside.exists() {
                place(Path::new(file), inside);
            }
        }
    }
}
