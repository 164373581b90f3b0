//! The processor: why it leaves the guest, and what it wants to know.

use std::io;
use std::ptr::NonNull;

use kvm_bindings::{kvm_regs, kvm_sregs};
use kvm_ioctls::{VcpuExit, VcpuFd};

use super::{GuestRam, KvmError, VcpuStatistics};

/// Why the guest was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// `count` reads of `width_bytes` from a port: answer through [`Vcpu::operand`].
    In {
        /// Port.
        port: u16,
        /// Bytes of each access.
        width_bytes: u8,
        /// Accesses; more than one for a string instruction.
        count: u32,
    },
    /// `count` writes of `width_bytes` to a port: values in [`Vcpu::operand`].
    Out {
        /// Port.
        port: u16,
        /// Bytes of each access.
        width_bytes: u8,
        /// Accesses; more than one for a string instruction.
        count: u32,
    },
    /// A read from an address without memory: answer through [`Vcpu::operand`].
    MemoryRead {
        /// Guest physical address.
        address: u64,
    },
    /// A write to an address without memory: value in [`Vcpu::operand`].
    MemoryWrite {
        /// Guest physical address.
        address: u64,
    },
    /// A signal, or a request for an immediate exit.
    Interrupted,
    /// A halt that the in-kernel interrupt controller did not take.
    Halt,
    /// A triple fault, or the guest asked for it.
    Shutdown,
    /// KVM could not go on.
    Failed {
        /// KVM's name for it.
        what: &'static str,
        /// Its detail: hardware reason or suberror.
        detail: u64,
    },
}

/// A register write that was collected without leaving the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coalesced {
    /// Port.
    pub port: u16,
    /// Bytes of the access.
    pub width_bytes: u8,
    /// Value.
    pub value: u32,
}

/// The processor of a [`super::Machine`].
#[derive(Debug)]
pub struct Vcpu {
    fd: VcpuFd,
    /// Bytes of the page shared with the kernel.
    run_bytes: usize,
    /// Where the last exit's operand lies in that page.
    operand: (usize, usize),
    /// Keeps the guest's memory mapped as long as it may run.
    _ram: GuestRam,
}

impl Vcpu {
    pub(super) fn new(mut fd: VcpuFd, run_bytes: usize, ram: GuestRam) -> Result<Self, KvmError> {
        fd.map_coalesced_mmio_ring().map_err(KvmError::of("mapping the coalescing ring"))?;
        Ok(Vcpu { fd, run_bytes, operand: (0, 0), _ram: ram })
    }

    /// Runs the guest until it is left for something that is ours to do.
    pub fn run(&mut self) -> Result<Exit, KvmError> {
        enum Kind {
            In(u16, usize),
            Out(u16, usize),
        }
        self.operand = (0, 0);
        // What the exit borrows is looked up again below, by offset.
        let kind = match self.fd.run() {
            Ok(VcpuExit::IoIn(port, bytes)) => Kind::In(port, bytes.len()),
            Ok(VcpuExit::IoOut(port, bytes)) => Kind::Out(port, bytes.len()),
            Ok(VcpuExit::MmioRead(address, bytes)) => {
                let len = bytes.len();
                return Ok(self.memory_exit(len, Exit::MemoryRead { address }));
            }
            Ok(VcpuExit::MmioWrite(address, bytes)) => {
                let len = bytes.len();
                return Ok(self.memory_exit(len, Exit::MemoryWrite { address }));
            }
            Ok(VcpuExit::Hlt) => return Ok(Exit::Halt),
            Ok(VcpuExit::Shutdown) => return Ok(Exit::Shutdown),
            Ok(VcpuExit::Intr) => return Ok(Exit::Interrupted),
            Ok(VcpuExit::FailEntry(detail, _)) => {
                return Ok(Exit::Failed { what: "KVM_EXIT_FAIL_ENTRY", detail });
            }
            Ok(VcpuExit::InternalError) => {
                let run = self.fd.get_kvm_run();
                // SAFETY: the exit reason says that this variant is the valid one.
                let detail = u64::from(unsafe { run.__bindgen_anon_1.internal }.suberror);
                return Ok(Exit::Failed { what: "KVM_EXIT_INTERNAL_ERROR", detail });
            }
            Ok(_) => {
                let detail = u64::from(self.fd.get_kvm_run().exit_reason);
                return Ok(Exit::Failed { what: "an exit without a handler", detail });
            }
            Err(error) => {
                let source = io::Error::from(error);
                return match source.raw_os_error() {
                    Some(libc::EINTR | libc::EAGAIN) => Ok(Exit::Interrupted),
                    _ => Err(KvmError::Failed { what: "KVM_RUN", source }),
                };
            }
        };
        // SAFETY: after a port exit this is the union's valid variant.
        let io = unsafe { self.fd.get_kvm_run().__bindgen_anon_1.io };
        let (Kind::In(_, len) | Kind::Out(_, len)) = kind;
        self.operand = (usize::try_from(io.data_offset).unwrap_or(usize::MAX), len);
        let (width_bytes, count) = (io.size, io.count);
        Ok(match kind {
            Kind::In(port, _) => Exit::In { port, width_bytes, count },
            Kind::Out(port, _) => Exit::Out { port, width_bytes, count },
        })
    }

    fn memory_exit(&mut self, len: usize, exit: Exit) -> Exit {
        let run = self.fd.get_kvm_run();
        let page = std::ptr::from_ref(run).addr();
        // SAFETY: after a memory exit this is the union's valid variant.
        let data = unsafe { &run.__bindgen_anon_1.mmio.data };
        self.operand = (std::ptr::from_ref(data).addr() - page, len.min(data.len()));
        exit
    }

    /// Bytes that the last exit reads or writes, `width_bytes` times `count` of them.
    pub fn operand(&mut self) -> &mut [u8] {
        let (offset, len) = self.operand;
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.run_bytes);
        if !fits {
            return &mut [];
        }
        let page: NonNull<u8> = NonNull::from(self.fd.get_kvm_run()).cast();
        // SAFETY: the offset is within the mapped page, checked above.
        let at = unsafe { page.add(offset) };
        // SAFETY: `len` bytes from there lie in the page too; it stays mapped as long as `self`,
        // which the result borrows, and the kernel writes it only in `run`.
        unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), len) }
    }

    /// Takes the port writes collected since the last call, oldest first.
    ///
    /// Call it before looking at any exit: what was collected came first.
    pub fn drain(&mut self, mut each: impl FnMut(Coalesced)) -> Result<usize, KvmError> {
        let mut count = 0;
        while let Some(entry) =
            self.fd.coalesced_mmio_read().map_err(KvmError::of("the coalescing ring"))?
        {
            let value = u32::from_le_bytes([0, 1, 2, 3].map(|i| entry.data[i]));
            let width_bytes = entry.len.min(4) as u8;
            let mask = u32::MAX >> (32 - 8 * u32::from(width_bytes.max(1)));
            let port = entry.phys_addr as u16;
            each(Coalesced { port, width_bytes, value: value & mask });
            count += 1;
        }
        Ok(count)
    }

    /// Has the next [`Vcpu::run`] return at once with [`Exit::Interrupted`], or not.
    pub fn set_immediate_exit(&mut self, on: bool) {
        self.fd.set_kvm_immediate_exit(u8::from(on));
    }

    /// General registers.
    pub fn registers(&self) -> Result<kvm_regs, KvmError> {
        self.fd.get_regs().map_err(KvmError::of("KVM_GET_REGS"))
    }

    /// Sets the general registers.
    pub fn set_registers(&self, registers: &kvm_regs) -> Result<(), KvmError> {
        self.fd.set_regs(registers).map_err(KvmError::of("KVM_SET_REGS"))
    }

    /// Segment and control registers.
    pub fn system_registers(&self) -> Result<kvm_sregs, KvmError> {
        self.fd.get_sregs().map_err(KvmError::of("KVM_GET_SREGS"))
    }

    /// Sets the segment and control registers.
    pub fn set_system_registers(&self, registers: &kvm_sregs) -> Result<(), KvmError> {
        self.fd.set_sregs(registers).map_err(KvmError::of("KVM_SET_SREGS"))
    }

    /// Frequency of the guest's time stamp counter in kHz.
    pub fn tsc_khz(&self) -> Result<u32, KvmError> {
        self.fd.get_tsc_khz().map_err(KvmError::of("KVM_GET_TSC_KHZ"))
    }

    /// The kernel's own counters of this processor.
    pub fn statistics(&self) -> Result<VcpuStatistics, KvmError> {
        VcpuStatistics::open(&self.fd)
    }
}
