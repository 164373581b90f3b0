//! Peer arms: the same guest on QEMU's devices. With the same driver on `pcnet`, and with a driver of
//! virtio-net on that.
//!
//! It boots as a plain PC, or as `microvm`, at privilege level 0. Under nested KVM, code at that level is
//! emulated instruction by instruction and slower than translated code, so TCG is the honest
//! accelerator where this is most needed.

use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use guest_pages::{
    PLAIN_BOOT_AT, PLAIN_DEVICES_AT, PLAIN_IDT_AT, PLAIN_REPORT_AT, Signal, boot as boot_page,
    driver, report,
};
use host::cpu::{ThreadClock, ThreadTimes};
use host::scratch::Scratch;
use lab::qemu::{NAMED_THREADS, Qemu, QemuError, listen};
use model::Support;
use sys::child::ChildPlace;
use sys::clock::monotonic_ns;
use sys::tap::Tap;

use super::topology::MAC;
use super::{image, support};
use model::PathError;
use vmm::{GuestTask, Switches};

/// The device of a peer arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QemuCard {
    /// The successor of the Lance.
    Pcnet,
    /// virtio over memory-mapped registers, the modern interface.
    VirtioNet,
    /// The same under KVM.
    VirtioNetKvm,
}

impl QemuCard {
    /// `None` if the arm `name` is not one of QEMU's.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "qemu-pcnet" => Some(QemuCard::Pcnet),
            "qemu-virtio-net" => Some(QemuCard::VirtioNet),
            "qemu-virtio-net-kvm" => Some(QemuCard::VirtioNetKvm),
            _ => None,
        }
    }

    /// Description for the record.
    fn what(self) -> &'static str {
        match self {
            QemuCard::Pcnet => "QEMU pcnet, TCG",
            QemuCard::VirtioNet => "QEMU virtio-net, TCG",
            QemuCard::VirtioNetKvm => "QEMU virtio-net, KVM",
        }
    }

    fn accelerator(self) -> &'static str {
        match self {
            QemuCard::Pcnet | QemuCard::VirtioNet => "tcg",
            QemuCard::VirtioNetKvm => "kvm",
        }
    }
}

/// Transport 5 of `microvm`, and its line: the second interrupt controller's third.
///
/// Source: QEMU, include/hw/i386/microvm.h and hw/i386/microvm.c: 512 bytes each, lines from 5 on where
/// ACPI, and with it a second I/O APIC, is missing.
const TRANSPORT: u64 = 5;
const VIRTIO_AT: u64 = PLAIN_DEVICES_AT + 512 * TRANSPORT;
const VIRTIO_LINE: u64 = 5 + TRANSPORT;
const PROGRAM: &str = "qemu-system-x86_64";
/// Memory in MiB; the boot page is at 48 MiB.
const MEMORY_MIB: &str = "64";
/// Time limit for QEMU to connect to the console socket.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// A signal, and the report page behind it.
const RECORD_BYTES: usize = 1 + 8 * report::LEN;

/// Measured part of a run.
pub(super) struct Ran {
    pub(super) device: &'static str,
    /// The guest's report page at its end.
    pub(super) report: [u64; report::LEN],
    /// Duration by the host's clock.
    pub(super) wall_ns: u64,
    /// CPU time of the thread that runs the guest.
    pub(super) vcpu: ThreadTimes,
    /// CPU time of all threads of QEMU.
    pub(super) process_ns: u64,
    /// The same from its start to its end.
    pub(super) total_ns: u64,
}

/// Support for QEMU and the guest's image on this host.
pub(super) fn support(card: QemuCard) -> Support {
    static TRIED: OnceLock<Support> = OnceLock::new();
    let support = TRIED.get_or_init(|| {
        if !Command::new(PROGRAM).arg("--version").output().is_ok_and(|o| o.status.success()) {
            return Support::unsupported(
                format!("a PC emulated by {PROGRAM}, which cannot be started"),
                "QEMU: `apt-get install qemu-system-x86`",
            );
        }
        let image = image::support();
        if !image.is_yes() {
            return image;
        }
        support::lab()
    });
    match (support, card) {
        (Support::Yes, QemuCard::VirtioNetKvm) => support::support(&model::Arm::baseline()),
        _ => support.clone(),
    }
}

/// Command line of QEMU; the TAP is its descriptor 0.
fn command(folder: &std::path::Path, card: QemuCard) -> Command {
    let [image, boot, console] =
        ["image", "boot", "console"].map(|name| folder.join(name).display().to_string());
    let mac: Vec<String> = MAC.iter().map(|byte| format!("{byte:02x}")).collect();
    let mac = mac.join(":");
    let mut command = Command::new(PROGRAM);
    match card {
        QemuCard::Pcnet => {
            command
                .args(["-M", "pc", "-cpu", "max", "-device"])
                .arg(format!("pcnet,netdev=n,mac={mac}"));
        }
        QemuCard::VirtioNet | QemuCard::VirtioNetKvm => {
            command
                // The old controller and timer, which the guest knows; its firmware would not let
                // that controller through a local APIC.
                .args(["-M", "microvm,acpi=off,pic=on,pit=on,rtc=off", "-cpu", "max,apic=off"])
                .args(["-global", "virtio-mmio.force-legacy=false", "-device"])
                .arg(format!(
                    "virtio-net-device,netdev=n,bus=virtio-mmio-bus.{TRANSPORT},mac={mac}"
                ));
        }
    }
    command
        .args(["-accel", card.accelerator(), "-m", MEMORY_MIB])
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
        .args(NAMED_THREADS)
        .args(["-netdev", "tap,id=n,fd=0"])
        .args(["-kernel", &image])
        .args(["-device"])
        .arg(format!("loader,file={boot},addr={PLAIN_BOOT_AT:#x},force-raw=on"))
        .args(["-chardev", &format!("socket,id=d,path={console}")])
        .args(["-device", "isa-debugcon,iobase=0xe9,chardev=d"]);
    command
}

fn boot_bytes(task: &GuestTask, card: QemuCard) -> Vec<u8> {
    // Drivers of virtio-net want no interrupt for frames sent.
    let switches = Switches { tx_int_mask: card != QemuCard::Pcnet, ..Switches::default() };
    let mut words = task.words(&switches);
    words[boot_page::DRIVER] |= driver::PLAIN_PC;
    words[boot_page::IDT] = PLAIN_IDT_AT;
    words[boot_page::REPORT] = PLAIN_REPORT_AT;
    if card != QemuCard::Pcnet {
        words[boot_page::VIRTIO_AT] = VIRTIO_AT;
        words[boot_page::VIRTIO_LINE] = VIRTIO_LINE;
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Runs the guest on a TAP until it is done and returns its measured part.
///
/// Errors: QEMU does not start; the guest fails or is not done in time.
pub(super) fn run(
    card: QemuCard,
    image: &[u8],
    task: &GuestTask,
    tap: &Tap,
    patience: Duration,
) -> Result<Ran, PathError> {
    let folder = Scratch::new().map_err(PathError::part)?;
    for (name, bytes) in [("image", image), ("boot", &boot_bytes(task, card))] {
        std::fs::write(folder.path().join(name), bytes).map_err(PathError::part)?;
    }
    let listener = listen(&folder.path().join("console")).map_err(PathError::part)?;
    let tap = tap.as_fd().try_clone_to_owned().map_err(PathError::part)?;
    let qemu = Qemu::start(command(folder.path(), card), &ChildPlace::default(), Stdio::from(tap));
    let mut machine = Machine { qemu: qemu.map_err(PathError::part)? };
    let mut console = machine.qemu.accept(&listener, START_TIMEOUT).map_err(PathError::part)?;
    let wait = Some(Duration::from_millis(200));
    console.set_read_timeout(wait).map_err(PathError::part)?;
    let deadline = Instant::now() + patience;
    let (mut vcpu, mut begun, mut ran) = (None, None, None);
    loop {
        let (signal, report) = machine.record(&mut console, deadline)?;
        match signal {
            Signal::Ready => vcpu = Some(machine.vcpu_clock().map_err(PathError::part)?),
            Signal::Begin => {
                let clock =
                    vcpu.as_ref().ok_or_else(|| failed("the guest began before it was ready"))?;
                let times = clock.now().map_err(PathError::part)?;
                begun = Some((monotonic_ns(), times, machine.qemu.cpu_ns()));
            }
            Signal::End => {
                let (Some(clock), Some((at_ns, times, process_ns))) = (&vcpu, &begun) else {
                    return Err(failed("the guest ended a measured part that it had not begun"));
                };
                let now_ns = monotonic_ns();
                ran = Some(Ran {
                    device: card.what(),
                    report,
                    wall_ns: now_ns - at_ns,
                    vcpu: clock.now().map_err(PathError::part)?.since(times),
                    process_ns: machine.qemu.cpu_ns().saturating_sub(*process_ns),
                    total_ns: 0,
                });
            }
            Signal::Done => {
                let ran = ran.ok_or_else(|| failed("the guest had no measured part"))?;
                return Ok(Ran { total_ns: machine.qemu.cpu_ns(), ..ran });
            }
            Signal::Failed => {
                let [line, exception, at] =
                    [report::PANIC_LINE, report::EXCEPTION, report::EXCEPTION_AT]
                        .map(|index| report[index]);
                return Err(failed(&format!(
                    "the guest failed: source line {line}, exception {exception} at {at:#x}"
                )));
            }
        }
    }
}

fn failed(why: &str) -> PathError {
    PathError::at(PROGRAM, why)
}

/// QEMU, killed on drop.
struct Machine {
    qemu: Qemu,
}

impl Machine {
    /// Errors: QEMU has ended, or `deadline` has passed.
    fn check(&mut self, deadline: Instant) -> Result<(), PathError> {
        let ended = self.qemu.wait(Duration::ZERO).map_err(PathError::part)?;
        if let Some(finished) = ended {
            let said = String::from_utf8_lossy(&finished.stderr).trim().to_owned();
            return Err(failed(&format!("it ended early: {said}")));
        }
        if Instant::now() < deadline { Ok(()) } else { Err(failed("its guest timed out")) }
    }

    /// Next signal, with the report page at that time.
    fn record(
        &mut self,
        console: &mut UnixStream,
        deadline: Instant,
    ) -> Result<(Signal, [u64; report::LEN]), PathError> {
        let mut record = [0; RECORD_BYTES];
        let mut have = 0;
        while have < record.len() {
            match console.read(&mut record[have..]) {
                Ok(0) => {
                    self.check(deadline)?;
                    return Err(failed("it closed the guest's console"));
                }
                Ok(len) => have += len,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    self.check(deadline)?;
                }
                Err(error) => return Err(PathError::part(error)),
            }
        }
        let [signal, page @ ..] = &record;
        let signal =
            Signal::from_byte(*signal).ok_or_else(|| failed("unknown signal from its guest"))?;
        let mut words = [0; report::LEN];
        for (word, bytes) in words.iter_mut().zip(page.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Ok((signal, words))
    }

    /// The clock of the thread that runs the guest.
    fn vcpu_clock(&self) -> Result<ThreadClock, QemuError> {
        self.qemu.thread_clock(self.qemu.vcpu_thread()?)
    }
}
