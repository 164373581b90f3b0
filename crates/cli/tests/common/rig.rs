//! A Debian guest in QEMU with the program in it, and cards whose drivers are real: see
//! `xtask/src/linux_guest/rig.rs` for its protocol.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use host::child::{Child, ChildPlace};
use host::scratch::Scratch;
use lab::TapHome;
use serde_json::Value;

use testkit::skip;

use super::{is_installed, run, succeed, until};

const QEMU: &str = "qemu-system-x86_64";
/// Time that an emulated machine may take to boot, or to run one script: `./test` leaves it the CPU time that other programs
/// do not use.
const GUEST_TIMEOUT: Duration = Duration::from_secs(300);
/// The same of a guest whose clock counts instructions: nothing in it gives up early, and several are emulated at once.
const COUNTED_TIMEOUT: Duration = Duration::from_secs(1200);

/// A kind of guest.
pub(crate) struct Machine {
    /// Files of `cargo xtask linux-guest`: kernel and initramfs.
    pub(crate) files: [&'static str; 2],
    /// QEMU's model of the CPU.
    pub(crate) cpu: &'static str,
    pub(crate) memory_mib: u32,
    /// Time of an instruction, nanoseconds as a power of two: the guest's clock then does not depend on the host's load.
    pub(crate) instruction_time: Option<u8>,
    /// QEMU's options for the back ends of the cards.
    pub(crate) wires: &'static [&'static str],
    /// QEMU's options for the PCIe ports that cards name as their bus.
    pub(crate) ports: &'static [&'static str],
    pub(crate) cards: &'static [Card],
    /// Connects the TAP interfaces that QEMU has made, also for the guests beside this one.
    pub(crate) connect: fn(&TapHome),
    /// Script that sets up the guest.
    pub(crate) setup: &'static str,
}

/// A guest as most are, without a kernel and cards.
pub(crate) const USUAL: Machine = Machine {
    files: [""; 2],
    cpu: "Nehalem",
    memory_mib: 512,
    instruction_time: None,
    wires: &[],
    ports: &[],
    cards: &[],
    connect: |_| {},
    setup: "",
};

/// A card of the guest.
pub(crate) struct Card {
    /// Its name in the guest.
    pub(crate) name: &'static str,
    /// Its driver, as `ethtool -i` prints it for the cards that the script leaves in the guest's own
    /// namespace.
    pub(crate) driver: Option<&'static str>,
    pub(crate) mac: &'static str,
    /// QEMU's option.
    pub(crate) device: &'static str,
}

/// Script that names the cards by their addresses.
fn names(cards: &[Card]) -> String {
    let cases = cards.iter().map(|card| format!("{}) name={} ;;\n", card.mac, card.name));
    format!(
        "for card in /sys/class/net/*; do\n case $(cat $card/address) in\n{}*) continue ;;\n esac\n \
         ip link set ${{card##*/}} name $name\ndone\n",
        cases.collect::<String>()
    )
}

/// The guest. QEMU is killed on drop, and when the thread that booted it ends.
pub(crate) struct Rig {
    qemu: Child,
    folder: Scratch,
    _wire: Rc<TapHome>,
    next: Cell<u32>,
    timeout: Duration,
}

/// Result of a script.
pub(crate) struct ScriptResult {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Rig {
    /// Boots a guest with the program, and these programs of the host with their libraries. `None` if
    /// that is not possible; the reason is printed.
    pub(crate) fn boot(machine: &Machine, programs: &[&str]) -> Option<Rig> {
        Rig::boot_all([machine], programs).map(|[rig]| rig)
    }

    /// Boots guests at the same time, whose TAP interfaces are in one namespace. They are set up in this
    /// order.
    pub(crate) fn boot_all<const N: usize>(
        machines: [&Machine; N],
        programs: &[&str],
    ) -> Option<[Rig; N]> {
        let files =
            machines.iter().map(|machine| guest(machine.files)).collect::<Option<Vec<_>>>()?;
        if !is_installed(QEMU) || !programs.iter().all(|program| is_installed(program)) {
            return None;
        }
        let wire = Rc::new(TapHome::new().expect("a namespace"));
        let mut files = files.iter();
        let mut rigs = machines.map(|machine| {
            let files = files.next().expect("a pair for each machine");
            Rig::start(machine, files, programs, Rc::clone(&wire))
        });
        rigs.iter_mut().for_each(Rig::await_boot);
        machines.iter().for_each(|machine| (machine.connect)(&wire));
        for (rig, machine) in rigs.iter().zip(machines) {
            let drivers = rig.succeed(&format!("{}{}", names(machine.cards), machine.setup));
            for Card { name, driver, .. } in machine.cards {
                assert!(driver.is_none_or(|driver| drivers.contains(driver)), "{name}: {drivers}");
            }
        }
        Some(rigs)
    }

    fn start(
        machine: &Machine,
        [kernel, initrd]: &[PathBuf; 2],
        programs: &[&str],
        wire: Rc<TapHome>,
    ) -> Rig {
        let folder = Scratch::new().expect("a folder");
        let root = folder.path().join("share/root");
        install(Path::new(env!("CARGO_BIN_EXE_wirepath")), &root);
        for program in programs.iter().chain(&["sh"]) {
            install(&which(program), &root);
        }
        let console = folder.path().join("console");
        let mut command = Command::new(QEMU);
        command
            // One thread for both CPUs: on a busy host two would wait for each other's locks while
            // neither runs. Nothing here depends on speed.
            .args(["-M", "q35", "-accel", "tcg,thread=single", "-cpu", machine.cpu])
            .args(["-smp", "2", "-m", &machine.memory_mib.to_string()])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            // The kernel's own checks of its timer and of its clock fail on a busy host.
            .args([
                "-append",
                "console=ttyS0 quiet loglevel=3 panic=-1 nokaslr mitigations=off no_timer_check \
                 tsc=reliable",
            ])
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
            .args(["-device", "virtio-9p-pci,fsdev=f,mount_tag=wirepath"]);
        if let Some(shift) = machine.instruction_time {
            command.args(["-icount", &format!("shift={shift},sleep=off")]);
        }
        for wire in machine.wires {
            command.args(["-netdev", wire]);
        }
        for port in machine.ports {
            command.args(["-device", port]);
        }
        for Card { mac, device, .. } in machine.cards {
            command.args(["-device", &format!("{device},mac={mac}")]);
        }
        let place = ChildPlace { netns: Some(&wire.netns), cpus: &[] };
        let qemu = Child::spawn(command, &place).expect("QEMU starts");
        let timeout =
            if machine.instruction_time.is_some() { COUNTED_TIMEOUT } else { GUEST_TIMEOUT };
        Rig { qemu, folder, _wire: wire, next: Cell::new(0), timeout }
    }

    fn console(&self) -> String {
        fs::read_to_string(self.folder.path().join("console")).unwrap_or_default()
    }

    fn await_boot(&mut self) {
        let mut has_ended = false;
        let booted = until(self.timeout, || {
            has_ended = self.qemu.wait(Duration::ZERO).is_ok_and(|ended| ended.is_some());
            has_ended || self.console().contains("wirepath-linux ready")
        });
        let stderr = String::from_utf8_lossy(&self.qemu.stderr_so_far()).into_owned();
        let said = self.console();
        assert!(booted && !has_ended && !said.contains("wirepath-linux: no "), "{said}{stderr}");
    }

    /// Runs a script to its end.
    pub(crate) fn run(&self, script: &str) -> ScriptResult {
        let number = self.next.replace(self.next.get() + 1);
        let file = |what: &str| self.folder.path().join("share").join(format!("{what}.{number}"));
        // The guest polls for the name: the contents must be complete before it exists.
        fs::write(file("new"), script).expect("a file");
        fs::rename(file("new"), file("run")).expect("a file");
        let code = || fs::read_to_string(file("code")).ok();
        let ended = until(self.timeout, || code().is_some());
        let text = |what| {
            let bytes = fs::read(file(what)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (stdout, stderr) = (text("out"), text("err"));
        assert!(
            ended,
            "no end of {script}\n{stdout}\n{stderr}\n{}\n{}",
            self.console(),
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
    pub(crate) fn put(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        fs::write(self.folder.path().join("share").join(name), contents).expect("a file");
        format!("/host/{name}")
    }
}

/// End that serves: a namespace of a guest, or a guest of its own.
#[derive(Clone, Copy)]
pub(crate) struct FarEnd<'a> {
    pub(crate) rig: &'a Rig,
    /// Command that enters the namespace; empty for the guest's own.
    pub(crate) inside: &'static str,
}

impl FarEnd<'_> {
    /// Starts the program, whose process is in `/tmp/far.pid` then, and waits until it listens.
    pub(crate) fn start(self, command: &str) {
        self.rig.succeed(&format!(
            ": >/tmp/far.err
             {} wirepath {command} >/tmp/far.out 2>/tmp/far.err &
             echo $! >/tmp/far.pid
             n=0
             until grep -q listening /tmp/far.err; do
                 n=$((n + 1)); [ $n -lt 300 ] || {{ cat /tmp/far.err >&2; exit 9; }}
                 sleep 0.1
             done",
            self.inside
        ));
    }

    /// Returns the result of `near`, during which the program serves. Its output is in `/tmp/far.out` then.
    pub(crate) fn serve<T>(self, command: &str, near: impl FnOnce() -> T) -> T {
        self.start(command);
        let told = near();
        self.rig.succeed(
            "pid=$(cat /tmp/far.pid)
             kill $pid
             while [ -e /proc/$pid ]; do sleep 0.1; done",
        );
        told
    }
}

/// True if the installed QEMU has this model of a card; otherwise the skip is reported.
pub(crate) fn has_model(model: &str) -> bool {
    if !is_installed(QEMU) {
        return false;
    }
    let mut help = Command::new(QEMU);
    help.args(["-device", "help"]);
    let listed = run(help);
    let is_there = String::from_utf8_lossy(&listed.stdout).contains(&format!("name \"{model}\""));
    if !is_there {
        skip("kernel", format_args!("{QEMU} has no model of {model}; igb needs QEMU 8.0"));
    }
    is_there
}

fn guest(files: [&str; 2]) -> Option<[PathBuf; 2]> {
    if !cfg!(target_arch = "x86_64") {
        skip("linux-guest", "the guest runs programs of this machine, and is an x86-64");
        return None;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/firmware/linux");
    let files = files.map(|name| folder.join(name));
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
