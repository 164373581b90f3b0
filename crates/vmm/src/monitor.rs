//! The monitor: one processor, one device, two threads.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use host::kvm::{
    self, Confinement, Event, GuestRam, KvmError, Machine, OutsideRam, Vcpu, VcpuStatistics,
};
use serde::{Deserialize, Serialize};
use sys::clock::ThreadClock;
use wire::nettest::{self, boot as boot_page};

use super::backend::Receiver;
use super::boot;
use super::condition::Condition;
use super::counters::Snapshot;
use super::device::{Device, IrqLine};
use super::elf::{self, ImageError};
use super::jail::Halves;
use super::nic::{Nic, VIRTIO_AT};
use super::processor::{Descriptors, Processor};
use super::switches::Switches;
use super::worker;
use crate::lance::{Lance, Width};
use crate::virtio::Options;

/// First port of the device, where the monitor's firmware would have put it.
pub const IO_BASE: u16 = 0xc000;
/// Line of the interrupt controller that the device pulls.
pub const IRQ_LINE: u8 = 10;

/// Why a guest could not be run.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// KVM refused.
    #[error(transparent)]
    Kvm(#[from] KvmError),
    /// The image is not a guest of this monitor.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Memory is too small for what the monitor has to put there, or covers the virtio card.
    #[error("guest memory is too small or too large")]
    Memory(#[from] OutsideRam),
    /// The device's thread could not wait.
    #[error("poll() failed in the device's thread")]
    Wait(#[source] std::io::Error),
    /// The back end failed.
    #[error("the back end failed to receive")]
    Receive(#[source] std::io::Error),
    /// No thread could be made.
    #[error("a thread of the monitor cannot be made")]
    Thread(#[source] std::io::Error),
    /// KVM is there, but does not run guests as this monitor makes them.
    #[error("this KVM left a guest of three instructions by {exit:?}")]
    Unfit {
        /// How it was left.
        exit: kvm::Exit,
    },
    /// The monitor's process could not be made, or nothing can be read from it.
    #[error("the monitor has no process of its own")]
    Process(#[source] std::io::Error),
    /// The monitor's process failed.
    #[error("{0}")]
    Jailed(String),
    /// A thread of the monitor panicked: a defect, which is not the guest's to cause.
    #[error("a thread of the monitor panicked")]
    Panic,
}

/// Task of the guest; see [`wire::nettest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    pub mode: nettest::Mode,
    /// Bytes of a frame, or of a write.
    pub size_bytes: u64,
    /// Frames of the measured part; 0 for as many as there is time for.
    pub count: u64,
    /// Microseconds after which the measured part ends; 0 without end.
    pub duration_us: u64,
    /// Frames before it.
    pub warm_up: u64,
    /// The guest digests its stream.
    pub digest: bool,
    /// A virtio-net card has the driver of crate `virtio-drivers`.
    pub foreign_driver: bool,
    /// Base-2 logarithm of the transmit ring's length.
    pub tx_ring_log2: u64,
    /// Base-2 logarithm of the receive ring's length.
    pub rx_ring_log2: u64,
    /// MAC address of the other end.
    pub peer_mac: [u8; 6],
    /// Address of the guest.
    pub ip: std::net::Ipv4Addr,
    /// Address of the other end.
    pub peer_ip: std::net::Ipv4Addr,
}

impl Task {
    /// Raw frames of `size_bytes`: `count` of them, after a tenth as many.
    pub fn send(size_bytes: u64, count: u64) -> Self {
        Task {
            mode: nettest::Mode::Send,
            size_bytes,
            count,
            duration_us: 0,
            warm_up: count / 10,
            digest: false,
            foreign_driver: false,
            tx_ring_log2: 4,
            rx_ring_log2: 5,
            peer_mac: [0xff; 6],
            ip: std::net::Ipv4Addr::UNSPECIFIED,
            peer_ip: std::net::Ipv4Addr::UNSPECIFIED,
        }
    }

    /// The boot page for it, but for what only a machine knows: clock and addresses.
    pub fn words(&self, switches: &Switches) -> [u64; boot_page::LEN] {
        let mut words = [0; boot_page::LEN];
        words[boot_page::MAGIC] = nettest::MAGIC;
        words[boot_page::MODE] = self.mode.to_word();
        words[boot_page::SIZE_BYTES] = self.size_bytes;
        words[boot_page::COUNT] = self.count;
        words[boot_page::DURATION_US] = self.duration_us;
        words[boot_page::WARM_UP] = self.warm_up;
        let bit = |on, bit| if on { bit } else { 0 };
        words[boot_page::DRIVER] = bit(switches.tx_int_mask, nettest::driver::MASK_TX_INTERRUPT)
            | bit(switches.own_polling, nettest::driver::DEVICE_POLLS)
            | bit(self.digest, nettest::driver::DIGEST)
            | bit(self.foreign_driver, nettest::driver::FOREIGN);
        words[boot_page::TX_RING_LOG2] = self.tx_ring_log2;
        words[boot_page::RX_RING_LOG2] = self.rx_ring_log2;
        let mac = self.peer_mac;
        words[boot_page::PEER_MAC] =
            u64::from_le_bytes([mac[0], mac[1], mac[2], mac[3], mac[4], mac[5], 0, 0]);
        words[boot_page::IP] = u32::from(self.ip).into();
        words[boot_page::PEER_IP] = u32::from(self.peer_ip).into();
        words
    }
}

/// A guest to be run.
pub struct Spec<'a> {
    /// Its image, a static ELF file.
    pub image: &'a [u8],
    /// Memory in bytes.
    pub ram_bytes: usize,
    /// MAC address of its device.
    pub mac: [u8; 6],
    pub task: Task,
    pub switches: Switches,
}

/// How a guest ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// It said that all is done.
    Done,
    /// It was stopped.
    Stopped,
    /// It said that it failed: source line of a panic, vector and address of an exception.
    GuestFailed {
        /// Line, or 0.
        line: u64,
        /// Vector.
        exception: u64,
        /// Instruction pointer.
        at: u64,
    },
    /// A triple fault.
    Shutdown,
    /// KVM could not go on.
    Stuck {
        /// KVM's name for it.
        what: String,
        /// Its detail.
        detail: u64,
        /// Instruction pointer.
        at: u64,
    },
}

/// Result of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// The part that the guest declared measured.
    pub measured: Option<Snapshot>,
    /// The whole run.
    pub total: Snapshot,
    /// How it left the device.
    pub condition: Condition,
}

/// State shared by both threads.
pub(super) struct Shared {
    pub(super) machine: Arc<Machine>,
    device: Mutex<Device>,
    pub(super) switches: Switches,
    pub(super) stopping: AtomicBool,
    /// Rung by the kernel for the guest.
    pub(super) doorbell: Event,
    /// Rung by the processor's thread.
    pub(super) wake: Event,
    pub(super) worker_clock: Mutex<Option<ThreadClock>>,
}

impl Shared {
    /// The device, for its own thread. A panic of the other thread does not make it unusable: the
    /// run ends anyway.
    pub(super) fn device(&self) -> MutexGuard<'_, Device> {
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        device.is_guest_waiting = false;
        device
    }

    /// The device, for the processor's thread.
    pub(super) fn device_for_guest(&self) -> MutexGuard<'_, Device> {
        let mut device = self.device();
        device.is_guest_waiting = true;
        device
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Wakes the device's thread.
    pub(super) fn wake(&self) {
        // Fails only if the eventfd counter overflows.
        let _ = self.wake.ring();
    }
}

/// How the device's thread ended, with the receiver, and the processor's, with its descriptors: to
/// close them takes calls that the threads may not make any more.
type Worked = (Result<(), MonitorError>, Box<dyn Receiver>);
type Processed = (Result<Outcome, MonitorError>, Descriptors);

/// Both threads of a guest that runs.
pub(super) struct Threads {
    shared: Arc<Shared>,
    processor: JoinHandle<Processed>,
    worker: JoinHandle<Worked>,
    ended: mpsc::Receiver<()>,
}

/// A guest that is ready to run: all that takes more rights than running it is done.
pub(super) struct Prepared {
    shared: Arc<Shared>,
    vcpu: Vcpu,
    statistics: Option<VcpuStatistics>,
    receiver: Box<dyn Receiver>,
}

impl Prepared {
    /// Makes the machine, then its back end by `open`, which gets guest memory.
    pub(super) fn new(
        spec: &Spec<'_>,
        open: impl FnOnce(&GuestRam) -> Result<Halves, Box<dyn Error>>,
    ) -> Result<Self, Box<dyn Error>> {
        let machine = Machine::new(spec.ram_bytes).map_err(MonitorError::from)?;
        let halves = open(machine.ram())?;
        Ok(Self::with(spec, Arc::new(machine), halves)?)
    }

    fn with(
        spec: &Spec<'_>,
        machine: Arc<Machine>,
        (sender, receiver): Halves,
    ) -> Result<Self, MonitorError> {
        kvm::allow_kicks()?;
        let ram = machine.ram();
        boot::write_tables(ram)?;
        let entry = elf::load(ram, spec.image, boot::IMAGE_FLOOR)?;
        let vcpu = machine.vcpu()?;
        write_boot_page(spec, &machine, &vcpu)?;
        let stack = (ram.len_bytes() as u64 & !15) - 16;
        boot::set_registers(&vcpu, entry, stack)?;

        let pulse = spec.switches.irq_fd.then(Event::new).transpose()?;
        let line = IrqLine::new(machine.clone(), IRQ_LINE.into(), pulse)?;
        let device = Device::new(nic(spec), sender, ram.clone(), line, &spec.switches);
        let shared = Arc::new(Shared {
            machine: machine.clone(),
            device: Mutex::new(device),
            switches: spec.switches,
            stopping: AtomicBool::new(false),
            doorbell: Event::new()?,
            wake: Event::new()?,
            worker_clock: Mutex::new(None),
        });
        // Older kernels have none.
        let statistics = vcpu.statistics().ok();
        Ok(Prepared { shared, vcpu, statistics, receiver })
    }

    /// Starts both threads.
    pub(super) fn start(self) -> Result<Threads, MonitorError> {
        let Prepared { shared, vcpu, statistics, mut receiver } = self;
        let confinement = Confinement::of_monitor()?;
        let of_vcpu = confinement.clone();
        let (tell, ended) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let of_worker = shared.clone();
        let worker = std::thread::Builder::new()
            .name("device".into())
            .spawn(move || {
                *of_worker.worker_clock.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(ThreadClock::of_this_thread());
                let _ = ready.send(());
                let confined = enter(&confinement);
                let worked = confined.and_then(|()| worker::run(&of_worker, receiver.as_mut()));
                (worked, receiver)
            })
            .map_err(MonitorError::Thread)?;
        let of_processor = shared.clone();
        // Its clock is wanted from the first snapshot on.
        let _ = is_ready.recv();
        let processor = std::thread::Builder::new()
            .name("vcpu".into())
            .spawn(move || {
                let mut processor = Processor::new(&of_processor, vcpu, statistics);
                let outcome = enter(&of_vcpu).and_then(|()| processor.run());
                let kept = processor.into_descriptors();
                of_processor.stopping.store(true, Ordering::Release);
                of_processor.wake();
                // Fails if the receiver is gone.
                let _ = tell.send(());
                (outcome, kept)
            })
            .map_err(MonitorError::Thread)?;
        Ok(Threads { shared, processor, worker, ended })
    }
}

fn enter(confinement: &Confinement) -> Result<(), MonitorError> {
    let failed = |source| KvmError::Failed { what: "seccomp", source };
    Ok(confinement.enter().map_err(failed)?)
}

/// The card after power-on, and after what firmware does.
fn nic(spec: &Spec<'_>) -> Nic {
    let &Spec { mac, switches, .. } = spec;
    if switches.virtio_net {
        let options = Options {
            event_idx: switches.event_idx,
            packed: switches.packed_ring,
            polls: switches.own_polling,
        };
        return Nic::virtio(mac, options);
    }
    let mut lance = Lance::new(mac);
    // An address, ports on, and the line, which drivers read.
    lance.pci.write(0x10, Width::Dword, IO_BASE.into());
    lance.pci.write(0x04, Width::Word, 1);
    lance.pci.write(0x3c, Width::Byte, IRQ_LINE.into());
    Nic::Lance(Box::new(lance))
}

fn write_boot_page(spec: &Spec<'_>, machine: &Machine, vcpu: &Vcpu) -> Result<(), MonitorError> {
    let mut words = spec.task.words(&spec.switches);
    words[boot_page::TSC_KHZ] = vcpu.tsc_khz()?.into();
    words[boot_page::IDT] = boot::IDT;
    words[boot_page::REPORT] = boot::REPORT_PAGE;
    if spec.switches.virtio_net {
        words[boot_page::VIRTIO_AT] = VIRTIO_AT;
        words[boot_page::VIRTIO_LINE] = IRQ_LINE.into();
    }
    for (i, word) in (0..).zip(words) {
        machine.ram().store_u64(boot::BOOT_PAGE + 8 * i, word)?;
    }
    Ok(())
}

impl Threads {
    /// Waits until the guest has ended by itself, at most `timeout`; returns whether it has.
    pub(super) fn wait(&self, timeout: Duration) -> bool {
        !matches!(self.ended.recv_timeout(timeout), Err(mpsc::RecvTimeoutError::Timeout))
    }

    /// Ends the guest, whatever it does, and says what happened. The process ends next: nothing is released, which
    /// takes system calls that it may not make.
    pub(super) fn leave(self) -> Result<Outcome, MonitorError> {
        let Threads { shared, processor, worker, .. } = self;
        shared.stopping.store(true, Ordering::Release);
        shared.wake();
        let ends = (kvm::kick(processor), worker.join());
        std::mem::forget(shared);
        match ends {
            (Ok((outcome, descriptors)), Ok((worked, receiver))) => {
                std::mem::forget((descriptors, receiver));
                worked.and(outcome)
            }
            panicked => {
                std::mem::forget(panicked);
                Err(MonitorError::Panic)
            }
        }
    }
}
