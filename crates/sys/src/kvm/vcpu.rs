//! The processor, its exits and their operands.

use std::io;
use std::ptr::NonNull;

use kvm_bindings::{kvm_regs, kvm_sregs};
use kvm_ioctls::{VcpuExit, VcpuFd};

use super::{GuestRam, KvmError, VcpuStatistics};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// `count` reads of `width_bytes` from a port: answer through [`Vcpu::operand`].
    In {
        port: u16,
        width_bytes: u8,
        /// Accesses; more than one for a string instruction.
        count: u32,
    },
    /// `count` writes of `width_bytes` to a port: values in [`Vcpu::operand`].
    Out {
        port: u16,
        width_bytes: u8,
        /// Accesses; more than one for a string instruction.
        count: u32,
    },
    /// A read from an address without memory: answer through [`Vcpu::operand`].
    MemoryRead { address: u64 },
    /// A write to an address without memory: value in [`Vcpu::operand`].
    MemoryWrite { address: u64 },
    /// A signal, or a request for an immediate exit.
    Interrupted,
    /// A halt that the in-kernel interrupt controller did not handle.
    Halt,
    /// A triple fault or a shutdown by the guest.
    Shutdown,
    /// KVM cannot continue.
    Failed {
        /// KVM's name for it.
        what: &'static str,
        /// Its detail: hardware reason or suberror.
        detail: u64,
    },
}

/// A port write that was collected without an exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coalesced {
    pub port: u16,
    pub width_bytes: u8,
    pub value: u32,
}

/// The processor of a [`super::VirtualMachine`].
#[derive(Debug)]
pub struct Vcpu {
    fd: VcpuFd,
    /// Bytes of the page shared with the kernel.
    run_bytes: usize,
    /// Offset of the last exit's operand in that page.
    operand: (usize, usize),
    /// Keeps guest memory mapped while the guest may run.
    _ram: GuestRam,
}

impl Vcpu {
    pub(super) fn new(mut fd: VcpuFd, run_bytes: usize, ram: GuestRam) -> Result<Self, KvmError> {
        fd.map_coalesced_mmio_ring().map_err(KvmError::of("mapping the coalescing ring"))?;
        Ok(Vcpu { fd, run_bytes, operand: (0, 0), _ram: ram })
    }

    /// Runs the guest until an exit that user space must handle.
    pub fn run(&mut self) -> Result<Exit, KvmError> {
        enum Kind {
            In(u16, usize),
            Out(u16, usize),
        }
        self.operand = (0, 0);
        // The operand that the exit borrows is located again below, by offset.
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
    /// Call it before handling an exit: collected writes happened first.
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

    pub fn registers(&self) -> Result<kvm_regs, KvmError> {
        self.fd.get_regs().map_err(KvmError::of("KVM_GET_REGS"))
    }

    pub fn set_registers(&self, registers: &kvm_regs) -> Result<(), KvmError> {
        self.fd.set_regs(registers).map_err(KvmError::of("KVM_SET_REGS"))
    }

    pub fn system_registers(&self) -> Result<kvm_sregs, KvmError> {
        self.fd.get_sregs().map_err(KvmError::of("KVM_GET_SREGS"))
    }

    pub fn set_system_registers(&self, registers: &kvm_sregs) -> Result<(), KvmError> {
        self.fd.set_sregs(registers).map_err(KvmError::of("KVM_SET_SREGS"))
    }

    /// Frequency of the guest's time stamp counter in kHz.
    pub fn tsc_khz(&self) -> Result<u32, KvmError> {
        self.fd.get_tsc_khz().map_err(KvmError::of("KVM_GET_TSC_KHZ"))
    }

    pub fn statistics(&self) -> Result<VcpuStatistics, KvmError> {
        VcpuStatistics::open(&self.fd)
    }
}
