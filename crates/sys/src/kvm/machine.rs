//! A virtual machine: memory, interrupt controller, and shortcuts for port accesses.

use kvm_bindings::{KVM_PIT_SPEAKER_DUMMY, kvm_pit_config, kvm_userspace_memory_region};
use kvm_ioctls::{Cap, IoEventAddress, Kvm, VmFd};
use xdp::ExternalMemory;

use super::{Event, GuestRam, KvmError, Vcpu};

/// Address of three pages that KVM needs on Intel: above guest memory, below the firmware.
const TSS_ADDRESS: usize = 0xfffb_d000;

/// A virtual machine with an in-kernel interrupt controller and timer.
#[derive(Debug)]
pub struct VirtualMachine {
    kvm: Kvm,
    vm: VmFd,
    ram: GuestRam,
}

impl VirtualMachine {
    /// Makes a machine with `ram_bytes` of memory from address 0.
    ///
    /// Errors: [`KvmError::Device`] without a usable /dev/kvm, [`KvmError::Missing`] if KVM lacks
    /// a capability of the port switches.
    pub fn new(ram_bytes: usize) -> Result<Self, KvmError> {
        let kvm = Kvm::new().map_err(|error| KvmError::Device(error.into()))?;
        for (cap, what) in [
            (Cap::UserMemory, "user memory"),
            (Cap::Irqchip, "interrupt controller"),
            (Cap::ImmediateExit, "immediate exit"),
            (Cap::CoalescedPio, "coalesced port writes"),
            (Cap::Ioeventfd, "ioeventfd"),
            (Cap::Irqfd, "irqfd"),
        ] {
            if !kvm.check_extension(cap) {
                return Err(KvmError::Missing { what });
            }
        }
        let vm = kvm.create_vm().map_err(KvmError::of("KVM_CREATE_VM"))?;
        vm.set_tss_address(TSS_ADDRESS).map_err(KvmError::of("KVM_SET_TSS_ADDR"))?;
        vm.create_irq_chip().map_err(KvmError::of("KVM_CREATE_IRQCHIP"))?;
        let pit = kvm_pit_config { flags: KVM_PIT_SPEAKER_DUMMY, ..Default::default() };
        vm.create_pit2(pit).map_err(KvmError::of("KVM_CREATE_PIT2"))?;
        let ram = GuestRam::new(ram_bytes)?;
        let region = kvm_userspace_memory_region {
            slot: 0,
            flags: 0,
            guest_phys_addr: 0,
            memory_size: ram.len_bytes() as u64,
            userspace_addr: ram.address() as u64,
        };
        // SAFETY: the region is memory of `ram`, which this value and its vCPUs keep mapped as
        // long as the machine lives; Rust code reaches it by volatile and atomic accesses only.
        unsafe { vm.set_user_memory_region(region) }
            .map_err(KvmError::of("KVM_SET_USER_MEMORY_REGION"))?;
        Ok(VirtualMachine { kvm, vm, ram })
    }

    pub fn ram(&self) -> &GuestRam {
        &self.ram
    }

    /// Creates the only processor, with all features that the host's KVM offers.
    pub fn vcpu(&self) -> Result<Vcpu, KvmError> {
        let fd = self.vm.create_vcpu(0).map_err(KvmError::of("KVM_CREATE_VCPU"))?;
        let cpuid = self
            .kvm
            .get_supported_cpuid(kvm_bindings::KVM_MAX_CPUID_ENTRIES)
            .map_err(KvmError::of("KVM_GET_SUPPORTED_CPUID"))?;
        fd.set_cpuid2(&cpuid).map_err(KvmError::of("KVM_SET_CPUID2"))?;
        Vcpu::new(fd, self.vm.run_size(), self.ram.clone())
    }

    /// Sets the level of an interrupt line (0 to 15: PIC).
    pub fn set_irq(&self, line: u32, active: bool) -> Result<(), KvmError> {
        self.vm.set_irq_line(line, active).map_err(KvmError::of("KVM_IRQ_LINE"))
    }

    /// Makes each write to `event` pulse an interrupt line.
    pub fn attach_irq(&self, event: &Event, line: u32) -> Result<(), KvmError> {
        self.vm.register_irqfd(&event.fd, line).map_err(KvmError::of("KVM_IRQFD"))
    }

    /// Makes guest writes of the 16-bit `value` to `port` signal `event` instead of exiting.
    pub fn attach_doorbell(&self, event: &Event, port: u16, value: u16) -> Result<(), KvmError> {
        self.vm
            .register_ioevent(&event.fd, &IoEventAddress::Pio(u64::from(port)), value)
            .map_err(KvmError::of("KVM_IOEVENTFD"))
    }

    pub fn detach_doorbell(&self, event: &Event, port: u16, value: u16) -> Result<(), KvmError> {
        self.vm
            .unregister_ioevent(&event.fd, &IoEventAddress::Pio(u64::from(port)), value)
            .map_err(KvmError::of("KVM_IOEVENTFD"))
    }

    /// Makes guest writes of the 32-bit `value` to guest physical `address` signal `event` instead of
    /// exiting.
    pub fn attach_notify(&self, event: &Event, address: u64, value: u32) -> Result<(), KvmError> {
        self.vm
            .register_ioevent(&event.fd, &IoEventAddress::Mmio(address), value)
            .map_err(KvmError::of("KVM_IOEVENTFD"))
    }

    pub fn detach_notify(&self, event: &Event, address: u64, value: u32) -> Result<(), KvmError> {
        self.vm
            .unregister_ioevent(&event.fd, &IoEventAddress::Mmio(address), value)
            .map_err(KvmError::of("KVM_IOEVENTFD"))
    }

    /// Collects guest writes to `len` ports from `port` for [`Vcpu::drain`] instead of exiting.
    /// Reads still exit.
    pub fn coalesce(&self, port: u16, len: u32) -> Result<(), KvmError> {
        self.vm
            .register_coalesced_mmio(IoEventAddress::Pio(u64::from(port)), len)
            .map_err(KvmError::of("KVM_REGISTER_COALESCED_MMIO"))
    }

    pub fn uncoalesce(&self, port: u16, len: u32) -> Result<(), KvmError> {
        self.vm
            .unregister_coalesced_mmio(IoEventAddress::Pio(u64::from(port)), len)
            .map_err(KvmError::of("KVM_UNREGISTER_COALESCED_MMIO"))
    }
}
