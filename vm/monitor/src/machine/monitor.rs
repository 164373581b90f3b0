//! The monitor: one processor, one device, two threads.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use guest_pages::boot as boot_page;
use host::kvm::{
    self, Confinement, Event, GuestRam, KvmError, Vcpu, VcpuStatistics, VirtualMachine,
};
use sys::clock::ThreadCpuClock;

use super::backend::{Halves, Receiver};
use super::boot;
use super::device::{Device, IrqLine};
use super::elf;
use super::error::MonitorError;
use super::nic::{Nic, VIRTIO_AT};
use super::processor::{Descriptors, Processor};
use super::shared::Shared;
use super::spec::{GuestOutcome, Spec};
use super::worker;
use crate::lance::{Lance, Width};
use crate::virtio::NicOptions;

/// First port of the device, where the monitor's firmware would have put it.
pub const IO_BASE: u16 = 0xc000;
/// Line of the interrupt controller that the device pulls.
pub const IRQ_LINE: u8 = 10;

/// How the device's thread ended, with the receiver, and the processor's, with its descriptors: to
/// close them takes calls that the threads may not make any more.
type Worked = (Result<(), MonitorError>, Box<dyn Receiver>);
type Processed = (Result<GuestOutcome, MonitorError>, Descriptors);

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
        let machine = VirtualMachine::new(spec.ram_bytes).map_err(MonitorError::from)?;
        let halves = open(machine.ram())?;
        Ok(Self::assemble(spec, Arc::new(machine), halves)?)
    }

    fn assemble(
        spec: &Spec<'_>,
        machine: Arc<VirtualMachine>,
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
                    Some(ThreadCpuClock::of_this_thread());
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
    confinement.enter().map_err(|source| KvmError::Failed { what: "seccomp", source })?;
    Ok(())
}

/// The card after power-on, and after what firmware does.
fn nic(spec: &Spec<'_>) -> Nic {
    let &Spec { mac, switches, .. } = spec;
    if switches.virtio_net {
        let options = NicOptions {
            event_idx: switches.event_idx,
            packed: switches.packed_ring,
            polls: switches.own_polling,
            // The guest's driver has no more.
            ..NicOptions::PLAIN
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

fn write_boot_page(
    spec: &Spec<'_>,
    machine: &VirtualMachine,
    vcpu: &Vcpu,
) -> Result<(), MonitorError> {
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
    pub(super) fn leave(self) -> Result<GuestOutcome, MonitorError> {
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
