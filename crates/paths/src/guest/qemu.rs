//! One QEMU with a guest in it.

use std::io::Read;
use std::net::Ipv4Addr;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use host::child::{Child, Finished, Place};
use host::cpu::{ThreadClock, ThreadTimes};
use host::netns::Netns;
use host::scratch::Scratch;

use super::error::GuestError;
use super::files::{LinuxFiles, QEMU};
use super::link::Link;
use super::qmp::{Monitor, Waiting, accept};
use super::switches::PACKED;

/// How long the firmware may take to get ready on a busy machine.
const FIRMWARE_READY_MAX: Duration = Duration::from_secs(20);
/// And Linux.
const LINUX_READY_MAX: Duration = Duration::from_secs(120);
/// Words on the console by which a guest says that it is ready.
const READY: [&str; 2] = ["wirepath-guest ready ", "wirepath-linux ready "];
/// Name of the TAP interface that QEMU makes.
pub const TAP_IFNAME: &str = "wp-tap";

/// What is to be booted.
#[derive(Debug, Clone)]
pub enum System {
    /// The firmware.
    Firmware {
        /// Its image.
        image: PathBuf,
        /// Names of switches, between commas; none is the baseline.
        switches: String,
    },
    /// The same board and kernel with the driver and the protocols of others.
    Reference(PathBuf),
    /// Debian's kernel with an initramfs that answers.
    Linux(LinuxFiles),
}

/// What is to be booted, and how.
#[derive(Debug, Clone)]
pub struct Boot {
    /// The guest.
    pub system: System,
    /// Its address.
    pub ip: Ipv4Addr,
    /// More words for its command line.
    pub more: String,
    /// More arguments for QEMU.
    pub arguments: Vec<String>,
}

impl Boot {
    /// The firmware with some switches on, between commas.
    pub fn firmware(image: &Path, switches: impl Into<String>) -> Boot {
        let system = System::Firmware { image: image.to_owned(), switches: switches.into() };
        Boot::of(system)
    }

    fn of(system: System) -> Boot {
        Boot { system, ip: super::link::GUEST_IP, more: String::new(), arguments: Vec::new() }
    }

    /// The reference firmware.
    pub fn reference(image: PathBuf) -> Boot {
        Boot::of(System::Reference(image))
    }

    /// The Linux guest.
    pub fn linux(files: LinuxFiles) -> Boot {
        Boot::of(System::Linux(files))
    }

    /// The same with words added to its command line.
    pub fn with_words(mut self, words: &str) -> Boot {
        self.more = format!("{} {words}", self.more).trim().to_owned();
        self
    }

    fn append(&self) -> String {
        let ip = self.ip;
        let own = match &self.system {
            System::Firmware { switches, .. } => format!("wirepath.switches={switches} ip={ip}"),
            System::Reference(_) => format!("ip={ip}"),
            // Quiet where printing would only take time; no second protocol that chatters.
            System::Linux(_) => format!(
                "console=ttyAMA0 quiet loglevel=3 ipv6.disable=1 nokaslr panic=-1 wirepath.ip={ip}"
            ),
        };
        format!("{own} {}", self.more).trim().to_owned()
    }

    /// The network card. Packed rings are offered to who asked for them: a card differs between
    /// arms in nothing else.
    fn card(&self) -> &'static str {
        match &self.system {
            System::Firmware { switches, .. } if switches.split(',').any(|id| id == PACKED) => {
                "virtio-net-device,netdev=n,packed=on"
            }
            _ => "virtio-net-device,netdev=n",
        }
    }

    fn ready_max(&self) -> Duration {
        match self.system {
            System::Firmware { .. } | System::Reference(_) => FIRMWARE_READY_MAX,
            System::Linux(_) => LINUX_READY_MAX,
        }
    }

    fn command(&self, wire: &str, console: &str, monitor: &Path) -> Command {
        let (kernel, memory_mib) = match &self.system {
            System::Firmware { image, .. } | System::Reference(image) => (image, "64"),
            System::Linux(files) => (&files.kernel, "256"),
        };
        let mut command = Command::new(QEMU);
        command
            .args(["-M", "virt,gic-version=3", "-cpu", "cortex-a57", "-m", memory_mib])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-global", "virtio-mmio.force-legacy=false", "-serial", console])
            .args(["-netdev", wire, "-device", self.card()])
            .args(["-qmp", &format!("unix:{}", monitor.display())])
            .arg("-kernel")
            .arg(kernel)
            .args(["-append", &self.append()])
            .args(&self.arguments);
        if let System::Linux(files) = &self.system {
            command.arg("-initrd").arg(&files.initramfs);
        }
        command
    }
}

/// A machine that runs. It is killed when this is dropped, and when the thread that booted it
/// ends, however that comes about (see [`Child::spawn`]).
#[derive(Debug)]
pub struct Machine {
    child: Child,
    folder: Scratch,
    monitor: Option<Monitor>,
    threads: Option<Threads>,
    /// From the start of QEMU until the guest said that it was ready; zero until then.
    pub ready_after: Duration,
}

/// The threads of QEMU that matter.
#[derive(Debug)]
struct Threads {
    vcpu: u32,
    main_clock: ThreadClock,
    vcpu_clock: ThreadClock,
}

/// What QEMU's threads have used since they began, or between two readings.
#[derive(Debug, Clone, Copy, Default)]
pub struct QemuTimes {
    /// Main thread: it moves frames between the wire and the device's rings.
    pub main: ThreadTimes,
    /// Thread that runs the guest.
    pub vcpu: ThreadTimes,
}

impl QemuTimes {
    /// What was added from `earlier` to `self`.
    pub fn since(&self, earlier: &QemuTimes) -> QemuTimes {
        let (main, vcpu) = (self.main.since(&earlier.main), self.vcpu.since(&earlier.vcpu));
        QemuTimes { main, vcpu }
    }
}

/// Which CPUs QEMU's threads may use; empty for any.
#[derive(Debug, Clone, Default)]
pub(super) struct Placement {
    pub(super) main: Vec<usize>,
    pub(super) vcpu: Vec<usize>,
    /// Real-time priority of the vCPU's thread.
    pub(super) vcpu_fifo: Option<i32>,
}

impl Machine {
    /// Boots with the network card on a pair of datagram sockets, and waits until the guest is
    /// ready: the firmware when it has announced its address, Linux when it says so.
    pub fn boot(boot: &Boot) -> Result<(Machine, Link), GuestError> {
        let folder = folder()?;
        let (near, card) = (folder.path().join("host"), folder.path().join("card"));
        let bound = UnixDatagram::bind(&near).map_err(GuestError::io("binding the wire's end"))?;
        let wire = dgram(&near, &card);
        let (mut machine, waiting, started) = Machine::start(boot, folder, &wire, None, None)?;
        let link = Link::new(bound, card)?;
        match boot.system {
            System::Firmware { .. } => {
                while !link.is_announced()? {
                    machine.check(boot, started)?;
                }
            }
            // These announce nothing.
            System::Reference(_) | System::Linux(_) => machine.await_console(boot, started)?,
        }
        machine.ready_after = started.elapsed();
        link.connect()?;
        machine.attach(waiting)?;
        Ok((machine, link))
    }

    /// Boots in a namespace, in which QEMU makes the TAP interface [`TAP_IFNAME`].
    ///
    /// The guest may be ready before the interface is: what it announces is lost.
    pub fn boot_on_tap(boot: &Boot, netns: &Netns) -> Result<Machine, GuestError> {
        let wire = tap();
        let (mut machine, waiting, started) =
            Machine::start(boot, folder()?, &wire, Some(netns), None)?;
        machine.await_console(boot, started)?;
        machine.ready_after = started.elapsed();
        machine.attach(waiting)?;
        Ok(machine)
    }

    /// Starts with the console on a stream instead of a file, and waits for nothing: in a
    /// namespace with a TAP interface, or else on a pair of sockets.
    pub fn start_with_console(
        boot: &Boot,
        netns: Option<&Netns>,
    ) -> Result<(Machine, UnixStream, Option<Link>), GuestError> {
        let folder = folder()?;
        let at = folder.path().join("serial");
        let listener =
            UnixListener::bind(&at).map_err(GuestError::io("listening for a console"))?;
        listener.set_nonblocking(true).map_err(GuestError::io("listening for a console"))?;
        let (near, card) = (folder.path().join("host"), folder.path().join("card"));
        let (link, wire) = match netns {
            Some(_) => (None, tap()),
            None => {
                let doing = "binding the wire's end";
                let bound = UnixDatagram::bind(&near).map_err(GuestError::io(doing))?;
                (Some(Link::new(bound, card.clone())?), dgram(&near, &card))
            }
        };
        let console = format!("unix:{}", at.display());
        let (mut machine, waiting, _) = Machine::start(boot, folder, &wire, netns, Some(&console))?;
        let ended = || !machine.is_running();
        let stream = accept(&listener, Duration::from_secs(10), ended, "waiting for the console");
        let stream = stream.map_err(|error| machine.explained(error))?;
        machine.attach(waiting)?;
        Ok((machine, stream, link))
    }

    /// Boots something that switches itself off; returns what it printed.
    pub fn run_to_end(boot: &Boot, at_most: Duration) -> Result<String, GuestError> {
        let folder = folder()?;
        let (near, card) = (folder.path().join("host"), folder.path().join("card"));
        let _bound = UnixDatagram::bind(&near).map_err(GuestError::io("binding the wire's end"))?;
        // Its monitor's connection waits there, unanswered.
        let (mut machine, _waiting, _) =
            Machine::start(boot, folder, &dgram(&near, &card), None, None)?;
        match machine.child.wait(at_most)? {
            Some(_) => Ok(machine.said()),
            None => {
                let what = "did not switch itself off";
                Err(GuestError::Boot { what, said: machine.last_words() })
            }
        }
    }

    fn start(
        boot: &Boot,
        folder: Scratch,
        wire: &str,
        netns: Option<&Netns>,
        console: Option<&str>,
    ) -> Result<(Machine, Waiting, Instant), GuestError> {
        let at = folder.path().join("monitor");
        let waiting = Waiting::at(&at)?;
        let file = format!("file:{}", folder.path().join("console").display());
        let command = boot.command(wire, console.unwrap_or(&file), &at);
        let started = Instant::now();
        let child = Child::spawn(command, &Place { netns, cpus: &[] })?;
        let machine =
            Machine { child, folder, monitor: None, threads: None, ready_after: Duration::ZERO };
        Ok((machine, waiting, started))
    }

    /// Connects to the monitor and finds the threads.
    fn attach(&mut self, waiting: Waiting) -> Result<(), GuestError> {
        let pid = self.pid();
        let attached = waiting.accept(|| !self.is_running()).and_then(|mut monitor| {
            let vcpu = monitor.vcpu_thread()?;
            let main_clock = ThreadClock::open(pid, pid)?;
            let vcpu_clock = ThreadClock::open(pid, vcpu)?;
            Ok((monitor, Threads { vcpu, main_clock, vcpu_clock }))
        });
        let (monitor, threads) = attached.map_err(|error| self.explained(error))?;
        (self.monitor, self.threads) = (Some(monitor), Some(threads));
        Ok(())
    }

    fn await_console(&mut self, boot: &Boot, started: Instant) -> Result<(), GuestError> {
        loop {
            let said = self.said();
            if READY.iter().any(|words| said.contains(words)) {
                return Ok(());
            }
            self.check(boot, started)?;
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Fails once the guest will not get ready any more.
    fn check(&mut self, boot: &Boot, started: Instant) -> Result<(), GuestError> {
        let ended = self.child.wait(Duration::ZERO)?.is_some();
        if ended || started.elapsed() > boot.ready_max() {
            return Err(GuestError::Boot { what: "did not get ready", said: self.last_words() });
        }
        Ok(())
    }

    /// A failure of a machine that has ended is that it ended.
    fn explained(&mut self, error: GuestError) -> GuestError {
        match self.is_running() {
            true => error,
            false => GuestError::Boot { what: "ended at once", said: self.last_words() },
        }
    }

    /// Whether QEMU still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.wait(Duration::ZERO), Ok(None))
    }

    /// All that came over the console, if that is a file, and QEMU's own messages once it has
    /// ended.
    pub fn said(&mut self) -> String {
        let mut text = Vec::new();
        if let Ok(mut file) = std::fs::File::open(self.folder.path().join("console")) {
            // What a terminal would show, so far.
            let _so_far = file.read_to_end(&mut text);
        }
        if let Ok(Some(Finished { stderr, .. })) = self.child.wait(Duration::ZERO) {
            text.extend_from_slice(&stderr);
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The end of it, for an error message.
    fn last_words(&mut self) -> String {
        let said = self.said();
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        match lines[lines.len().saturating_sub(3)..] {
            [] => "it said nothing".to_owned(),
            ref last => last.join(" / "),
        }
    }

    /// What QEMU's threads have used since they began.
    pub fn times(&self) -> Result<QemuTimes, GuestError> {
        let Some(threads) = &self.threads else { return Ok(QemuTimes::default()) };
        Ok(QemuTimes { main: threads.main_clock.now()?, vcpu: threads.vcpu_clock.now()? })
    }

    /// CPU time of all its threads so far, nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.child.cpu_ns().unwrap_or(0)
    }

    /// Moves the threads to their CPUs and gives the vCPU its priority.
    pub(super) fn place(&self, placement: &Placement) -> Result<(), GuestError> {
        let Some(threads) = &self.threads else { return Ok(()) };
        let moves = [(self.pid(), &placement.main), (threads.vcpu, &placement.vcpu)];
        for (thread, cpus) in moves.into_iter().filter(|(_, cpus)| !cpus.is_empty()) {
            io::affinity::pin_thread(thread, cpus)
                .map_err(GuestError::io("placing a thread of QEMU"))?;
        }
        let Some(priority) = placement.vcpu_fifo else { return Ok(()) };
        io::sched::set_fifo_thread(threads.vcpu, priority)
            .map_err(GuestError::io("giving the vCPU's thread SCHED_FIFO"))
    }

    /// Stops the guest, its clock included, until [`resume`](Self::resume).
    pub(super) fn pause(&mut self) -> Result<(), GuestError> {
        self.monitor.as_mut().map_or(Ok(()), Monitor::stop)
    }

    /// Lets a paused guest go on.
    pub(super) fn resume(&mut self) -> Result<(), GuestError> {
        self.monitor.as_mut().map_or(Ok(()), Monitor::resume)
    }

    /// Folder of its sockets and its console; it goes with the machine.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }
}

fn folder() -> Result<Scratch, GuestError> {
    Scratch::new().map_err(GuestError::io("making a folder for QEMU's sockets"))
}

fn dgram(near: &Path, card: &Path) -> String {
    format!(
        "dgram,id=n,local.type=unix,local.path={},remote.type=unix,remote.path={}",
        card.display(),
        near.display()
    )
}

fn tap() -> String {
    format!("tap,id=n,ifname={TAP_IFNAME},script=no,downscript=no,vhost=off")
}

/// QEMU's version, such as `7.2.22`; `None` when it is not installed.
pub fn version() -> Option<&'static str> {
    static VERSION: OnceLock<Option<String>> = OnceLock::new();
    let read = || {
        let output = Command::new(QEMU).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Some(text.split_whitespace().nth(3).unwrap_or("of unknown version").to_owned())
    };
    VERSION.get_or_init(read).as_deref()
}

/// Whether this QEMU's card can offer packed rings.
pub(super) fn offers_packed_rings() -> bool {
    static OFFERS: OnceLock<bool> = OnceLock::new();
    let look = || {
        let output = Command::new(QEMU).args(["-device", "virtio-net-device,help"]).output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("packed="))
    };
    *OFFERS.get_or_init(look)
}
