//! A QEMU machine with a guest.

use std::io::{Read, Seek, SeekFrom};
use std::net::Ipv4Addr;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use host::cpu::{ThreadClock, ThreadTimes};
use host::scratch::Scratch;
use lab::qemu::{Monitor, NAMED_THREADS, Qemu, QemuError, listen};
use sys::child::{ChildPlace, Finished};
use sys::netns::Netns;

use super::error::GuestError;
use super::files::{LinuxFiles, QEMU};
use super::link::GuestLink;
use model::PathSwitch;

use super::switches::Switch;

/// Time limit for the firmware to get ready, on a busy machine.
const FIRMWARE_READY_TIMEOUT: Duration = Duration::from_secs(20);
const LINUX_READY_TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit for QEMU to connect to its monitor and console.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Part of the console that is read.
const CONSOLE_BYTES_MAX: u64 = 4 << 20;
/// Console output of a guest that is ready.
const READY: [&str; 3] = ["wirepath-guest ready ", "wirepath-linux ready ", "Net ready\n"];
/// Name of the TAP interface that QEMU creates.
pub const TAP_IFNAME: &str = "wp-tap";

/// A guest system.
#[derive(Debug, Clone)]
pub enum GuestSystem {
    Firmware {
        image: PathBuf,
        /// Comma-separated names of switches; empty for the baseline.
        switches: String,
    },
    /// The same board and kernel with third-party driver and protocols.
    Reference(PathBuf),
    /// Debian's kernel with an initramfs that answers echoes.
    Linux(LinuxFiles),
}

/// Parameters of a boot.
#[derive(Debug, Clone)]
pub struct Boot {
    pub system: GuestSystem,
    pub ip: Ipv4Addr,
    /// Additional words for the guest's command line.
    pub more: String,
    /// Additional arguments for QEMU.
    pub arguments: Vec<String>,
    /// The card on wire `n`, if it is not virtio over mmio.
    pub card: Option<&'static str>,
}

impl Boot {
    /// Boots the firmware with comma-separated switches on.
    pub fn firmware(image: &Path, switches: impl Into<String>) -> Boot {
        let system = GuestSystem::Firmware { image: image.to_owned(), switches: switches.into() };
        Boot::new(system)
    }

    fn new(system: GuestSystem) -> Boot {
        let ip = super::link::GUEST_IP;
        Boot { system, ip, more: String::new(), arguments: Vec::new(), card: None }
    }

    pub fn reference(image: PathBuf) -> Boot {
        Boot::new(GuestSystem::Reference(image))
    }

    pub fn linux(files: LinuxFiles) -> Boot {
        Boot::new(GuestSystem::Linux(files))
    }

    /// Adds words to the guest's command line.
    pub fn with_words(mut self, words: &str) -> Boot {
        self.more = format!("{} {words}", self.more).trim().to_owned();
        self
    }

    fn append(&self) -> String {
        let ip = self.ip;
        let own = match &self.system {
            GuestSystem::Firmware { switches, .. } => {
                format!("wirepath.switches={switches} ip={ip}")
            }
            GuestSystem::Reference(_) => format!("ip={ip}"),
            // Quiet, because printing takes time; without IPv6, whose traffic would interfere.
            GuestSystem::Linux(_) => format!(
                "console=ttyAMA0 quiet loglevel=3 ipv6.disable=1 nokaslr panic=-1 wirepath.ip={ip}"
            ),
        };
        format!("{own} {}", self.more).trim().to_owned()
    }

    /// The network card. Only arms that ask for packed rings are offered them; cards are otherwise
    /// equal.
    fn card(&self) -> &'static str {
        if let Some(card) = self.card {
            return card;
        }
        match &self.system {
            GuestSystem::Firmware { switches, .. }
                if switches.split(',').any(|id| id == Switch::Packed.id()) =>
            {
                "virtio-net-device,netdev=n,packed=on"
            }
            _ => "virtio-net-device,netdev=n",
        }
    }

    fn ready_max(&self) -> Duration {
        match self.system {
            GuestSystem::Firmware { .. } | GuestSystem::Reference(_) => FIRMWARE_READY_TIMEOUT,
            GuestSystem::Linux(_) => LINUX_READY_TIMEOUT,
        }
    }

    fn command(&self, wire: &str, console: &str, monitor: &Path) -> Command {
        let (kernel, memory_mib) = match &self.system {
            GuestSystem::Firmware { image, .. } | GuestSystem::Reference(image) => (image, "64"),
            GuestSystem::Linux(files) => (&files.kernel, "256"),
        };
        let mut command = Command::new(QEMU);
        command
            .args(["-M", "virt,gic-version=3", "-cpu", "cortex-a57", "-m", memory_mib])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-global", "virtio-mmio.force-legacy=false", "-serial", console])
            .args(["-netdev", wire, "-device", self.card()])
            .args(["-qmp", &format!("unix:{}", monitor.display())])
            .args(NAMED_THREADS)
            .arg("-kernel")
            .arg(kernel)
            .args(["-append", &self.append()])
            .args(&self.arguments);
        if let GuestSystem::Linux(files) = &self.system {
            command.arg("-initrd").arg(&files.initramfs);
        }
        command
    }
}

/// A running machine. Killed when it is dropped, and when the thread that booted it ends.
#[derive(Debug)]
pub struct GuestMachine {
    qemu: Qemu,
    folder: Scratch,
    monitor: Option<Monitor>,
    threads: Option<Threads>,
    /// Time from the start of QEMU until the guest was ready; zero before.
    pub ready_after: Duration,
}

/// Measured threads of QEMU.
#[derive(Debug)]
struct Threads {
    vcpu: u32,
    main_clock: ThreadClock,
    vcpu_clock: ThreadClock,
}

/// CPU time of QEMU's threads since their start, or between two readings.
#[derive(Debug, Clone, Copy, Default)]
pub struct QemuTimes {
    /// Main thread: moves frames between the wire and the device's rings.
    pub main: ThreadTimes,
    /// Thread that runs the guest.
    pub vcpu: ThreadTimes,
}

impl QemuTimes {
    /// Difference to an earlier reading.
    pub fn since(&self, earlier: &QemuTimes) -> QemuTimes {
        let (main, vcpu) = (self.main.since(&earlier.main), self.vcpu.since(&earlier.vcpu));
        QemuTimes { main, vcpu }
    }
}

/// CPUs of QEMU's threads; empty for any.
#[derive(Debug, Clone, Default)]
pub(super) struct Placement {
    pub(super) main: Vec<usize>,
    pub(super) vcpu: Vec<usize>,
    /// Real-time priority of the vCPU's thread.
    pub(super) vcpu_fifo: Option<i32>,
}

/// Scheduling of QEMU's threads, as the kernel reports it.
#[derive(Debug, Clone, Default)]
pub(super) struct PlacementInEffect {
    /// CPUs allowed to the main thread, such as `0-1`.
    pub(super) main_cpus: String,
    /// CPUs allowed to the vCPU's thread.
    pub(super) vcpu_cpus: String,
    /// Scheduling policy of the vCPU's thread; 1 is SCHED_FIFO.
    pub(super) vcpu_policy: String,
}

impl GuestMachine {
    /// Boots with the network card on a pair of datagram sockets. Returns when the guest is ready: the
    /// firmware has announced its address, other guests have printed it.
    pub fn boot(boot: &Boot) -> Result<(GuestMachine, GuestLink), GuestError> {
        let (mut machine, link, listener, started) = GuestMachine::start_with_link(boot)?;
        match boot.system {
            GuestSystem::Firmware { .. } => {
                while !link.is_announced()? {
                    machine.check(boot, started)?;
                }
            }
            // These send no announcement.
            GuestSystem::Reference(_) | GuestSystem::Linux(_) => {
                machine.await_console(boot, started)?
            }
        }
        machine.ready_after = started.elapsed();
        link.connect()?;
        machine.attach(&listener)?;
        Ok((machine, link))
    }

    /// Starts on a pair of sockets without waiting for the guest. Returns also the time of exec.
    pub(super) fn start_on_sockets(
        boot: &Boot,
    ) -> Result<(GuestMachine, GuestLink, Instant), GuestError> {
        let (mut machine, link, listener, started) = GuestMachine::start_with_link(boot)?;
        machine.attach(&listener)?;
        Ok((machine, link, started))
    }

    fn start_with_link(
        boot: &Boot,
    ) -> Result<(GuestMachine, GuestLink, UnixListener, Instant), GuestError> {
        let folder = folder()?;
        let (link, wire) = sockets(&folder)?;
        let (machine, listener, started) = GuestMachine::start(boot, folder, &wire, None, None)?;
        Ok((machine, link, listener, started))
    }

    /// Boots in a namespace, in which QEMU creates the TAP interface [`TAP_IFNAME`].
    ///
    /// The guest may be ready before the interface is, so its announcement may be lost.
    pub fn boot_on_tap(boot: &Boot, netns: &Netns) -> Result<GuestMachine, GuestError> {
        let wire = tap();
        let (mut machine, listener, started) =
            GuestMachine::start(boot, folder()?, &wire, Some(netns), None)?;
        machine.await_console(boot, started)?;
        machine.ready_after = started.elapsed();
        machine.attach(&listener)?;
        Ok(machine)
    }

    /// Starts with the console on a stream instead of a file, without waiting for the guest: with a
    /// TAP interface in `netns`, or on a pair of sockets if that is `None`.
    pub fn start_with_console(
        boot: &Boot,
        netns: Option<&Netns>,
    ) -> Result<(GuestMachine, UnixStream, Option<GuestLink>), GuestError> {
        let folder = folder()?;
        let at = folder.path().join("serial");
        let console_listener = listen(&at)?;
        let (link, wire) = match netns {
            Some(_) => (None, tap()),
            None => {
                let (link, wire) = sockets(&folder)?;
                (Some(link), wire)
            }
        };
        let console = format!("unix:{}", at.display());
        let (mut machine, listener, _) =
            GuestMachine::start(boot, folder, &wire, netns, Some(&console))?;
        let stream = machine.qemu.accept(&console_listener, CONNECT_TIMEOUT);
        let stream = stream.map_err(|error| machine.explained(error))?;
        machine.attach(&listener)?;
        Ok((machine, stream, link))
    }

    /// Boots a guest that powers itself off. Returns its output.
    pub fn run_to_end(boot: &Boot, at_most: Duration) -> Result<String, GuestError> {
        let folder = folder()?;
        let (_link, wire) = sockets(&folder)?;
        // The monitor's connection stays open, unused.
        let (mut machine, _listener, _) = GuestMachine::start(boot, folder, &wire, None, None)?;
        match machine.qemu.wait(at_most)? {
            Some(_) => Ok(machine.said()),
            None => {
                let what = "did not power off";
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
    ) -> Result<(GuestMachine, UnixListener, Instant), GuestError> {
        let at = folder.path().join("monitor");
        let listener = listen(&at)?;
        let file = format!("file:{}", folder.path().join("console").display());
        let command = boot.command(wire, console.unwrap_or(&file), &at);
        let started = Instant::now();
        let qemu = Qemu::start(command, &ChildPlace { netns, cpus: &[] }, Stdio::null())?;
        let machine = GuestMachine {
            qemu,
            folder,
            monitor: None,
            threads: None,
            ready_after: Duration::ZERO,
        };
        Ok((machine, listener, started))
    }

    /// Connects to the monitor and finds the threads.
    fn attach(&mut self, listener: &UnixListener) -> Result<(), GuestError> {
        let attached = self.monitor_and_threads(listener);
        let (monitor, threads) = attached.map_err(|error| self.explained(error))?;
        (self.monitor, self.threads) = (Some(monitor), Some(threads));
        Ok(())
    }

    fn monitor_and_threads(
        &mut self,
        listener: &UnixListener,
    ) -> Result<(Monitor, Threads), QemuError> {
        let monitor = Monitor::open(self.qemu.accept(listener, CONNECT_TIMEOUT)?)?;
        let vcpu = self.qemu.vcpu_thread()?;
        let main_clock = self.qemu.thread_clock(self.qemu.pid())?;
        let vcpu_clock = self.qemu.thread_clock(vcpu)?;
        Ok((monitor, Threads { vcpu, main_clock, vcpu_clock }))
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

    /// Errors: QEMU has ended, or the guest's time limit has passed.
    pub(super) fn check(&mut self, boot: &Boot, started: Instant) -> Result<(), GuestError> {
        let ended = !self.is_running();
        if ended || started.elapsed() > boot.ready_max() {
            return Err(GuestError::Boot { what: "did not get ready", said: self.last_words() });
        }
        Ok(())
    }

    /// Reports the end of QEMU in place of an error that it caused.
    fn explained(&mut self, error: QemuError) -> GuestError {
        if self.is_running() {
            return error.into();
        }
        GuestError::Boot { what: "ended at once", said: self.last_words() }
    }

    pub fn is_running(&mut self) -> bool {
        self.qemu.is_running()
    }

    /// Console output, if the console is a file, and QEMU's messages once it has ended. A guest may write without end: of
    /// more than 4 MiB the last part.
    pub fn said(&mut self) -> String {
        let mut text = Vec::new();
        if let Ok(mut file) = std::fs::File::open(self.folder.path().join("console")) {
            let len = file.metadata().map_or(0, |metadata| metadata.len());
            let start = SeekFrom::Start(len.saturating_sub(CONSOLE_BYTES_MAX));
            // A partial read is still useful.
            let _ = file.seek(start);
            let _ = file.take(CONSOLE_BYTES_MAX).read_to_end(&mut text);
        }
        if let Ok(Some(Finished { stderr, .. })) = self.qemu.wait(Duration::ZERO) {
            text.extend_from_slice(&stderr);
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Last lines of the output, for an error message.
    fn last_words(&mut self) -> String {
        let said = self.said();
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        match lines[lines.len().saturating_sub(3)..] {
            [] => "no output".to_owned(),
            ref last => last.join(" / "),
        }
    }

    /// CPU time of QEMU's threads since their start.
    pub fn times(&self) -> Result<QemuTimes, GuestError> {
        let Some(threads) = &self.threads else { return Ok(QemuTimes::default()) };
        Ok(QemuTimes { main: threads.main_clock.now()?, vcpu: threads.vcpu_clock.now()? })
    }

    /// CPU time of all threads so far.
    pub fn cpu_ns(&self) -> u64 {
        self.qemu.cpu_ns()
    }

    /// Pins the threads to their CPUs and sets the vCPU's priority.
    pub(super) fn place(&self, placement: &Placement) -> Result<(), GuestError> {
        let Some(threads) = &self.threads else { return Ok(()) };
        let moves = [(self.pid(), &placement.main), (threads.vcpu, &placement.vcpu)];
        for (thread, cpus) in moves.into_iter().filter(|(_, cpus)| !cpus.is_empty()) {
            sys::affinity::pin_thread(thread, cpus)
                .map_err(GuestError::io("pinning a thread of QEMU"))?;
        }
        let Some(priority) = placement.vcpu_fifo else { return Ok(()) };
        sys::sched::set_fifo_thread(threads.vcpu, priority)
            .map_err(GuestError::io("setting SCHED_FIFO on the vCPU's thread"))
    }

    /// Reads the placement of the threads from the kernel.
    ///
    /// Source: proc(5), `Cpus_allowed_list` of status; field 41 of stat, the policy.
    pub(super) fn placement_in_effect(&self) -> Result<PlacementInEffect, GuestError> {
        let Some(threads) = &self.threads else { return Ok(PlacementInEffect::default()) };
        let pid = self.pid();
        let stat = thread_file(pid, threads.vcpu, "stat")?;
        let policy = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(38));
        Ok(PlacementInEffect {
            main_cpus: allowed_cpus(pid, pid)?,
            vcpu_cpus: allowed_cpus(pid, threads.vcpu)?,
            vcpu_policy: policy.unwrap_or_default().to_owned(),
        })
    }

    /// Pauses the guest, including its clock, until [`resume`](Self::resume).
    pub fn pause(&mut self) -> Result<(), GuestError> {
        Ok(self.monitor.as_mut().map_or(Ok(()), Monitor::pause)?)
    }

    /// Ends a pause.
    pub fn resume(&mut self) -> Result<(), GuestError> {
        Ok(self.monitor.as_mut().map_or(Ok(()), Monitor::resume)?)
    }

    /// Folder of the sockets and the console; deleted with the machine.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn pid(&self) -> u32 {
        self.qemu.pid()
    }
}

/// A file of a thread in /proc.
fn thread_file(pid: u32, thread: u32, file: &str) -> Result<String, GuestError> {
    std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/{file}"))
        .map_err(GuestError::io("reading the placement of QEMU's threads"))
}

fn allowed_cpus(pid: u32, thread: u32) -> Result<String, GuestError> {
    let status = thread_file(pid, thread, "status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Ok(line.map_or_else(String::new, |list| list.trim().to_owned()))
}

fn folder() -> Result<Scratch, GuestError> {
    Scratch::new().map_err(GuestError::io("creating a folder for QEMU's sockets"))
}

/// A pair of datagram sockets: the near end, and QEMU's argument for the other.
fn sockets(folder: &Scratch) -> Result<(GuestLink, String), GuestError> {
    let (near, card) = (folder.path().join("host"), folder.path().join("card"));
    let bound = UnixDatagram::bind(&near).map_err(GuestError::io("binding the wire's end"))?;
    let wire = format!(
        "dgram,id=n,local.type=unix,local.path={},remote.type=unix,remote.path={}",
        card.display(),
        near.display()
    );
    Ok((GuestLink::new(bound, card)?, wire))
}

fn tap() -> String {
    format!("tap,id=n,ifname={TAP_IFNAME},script=no,downscript=no,vhost=off")
}

/// QEMU's version, such as `7.2.22`; `None` if it is not installed.
pub fn version() -> Option<&'static str> {
    static VERSION: OnceLock<Option<String>> = OnceLock::new();
    let version = VERSION.get_or_init(|| {
        let output = Command::new(QEMU).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Some(text.split_whitespace().nth(3).unwrap_or("of unknown version").to_owned())
    });
    version.as_deref()
}

/// True if this QEMU's card can offer packed rings.
pub(super) fn offers_packed_rings() -> bool {
    static OFFERS: OnceLock<bool> = OnceLock::new();
    *OFFERS.get_or_init(|| {
        let output = Command::new(QEMU).args(["-device", "virtio-net-device,help"]).output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("packed="))
    })
}
