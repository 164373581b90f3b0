//! virtio over memory-mapped registers, the modern interface.
//!
//! Source: virtio 1.2, sections 3.1.1 and 4.2.

use crate::StartError;

/// The register window of one device.
pub trait Registers {
    /// Reads a byte of the configuration space.
    fn read8(&self, at: usize) -> u8;
    /// Reads a register.
    fn read32(&self, at: usize) -> u32;
    /// Writes a register.
    fn write32(&self, at: usize, value: u32);
}

/// Offsets of the registers (4.2.2).
pub mod register {
    pub const MAGIC: usize = 0x000;
    pub const VERSION: usize = 0x004;
    pub const DEVICE_ID: usize = 0x008;
    pub const DEVICE_FEATURES: usize = 0x010;
    pub const DEVICE_FEATURES_SEL: usize = 0x014;
    pub const DRIVER_FEATURES: usize = 0x020;
    pub const DRIVER_FEATURES_SEL: usize = 0x024;
    pub const QUEUE_SEL: usize = 0x030;
    pub const QUEUE_NUM_MAX: usize = 0x034;
    pub const QUEUE_NUM: usize = 0x038;
    pub const QUEUE_READY: usize = 0x044;
    pub const QUEUE_NOTIFY: usize = 0x050;
    pub const INTERRUPT_STATUS: usize = 0x060;
    pub const INTERRUPT_ACK: usize = 0x064;
    pub const STATUS: usize = 0x070;
    pub const QUEUE_DESC_LOW: usize = 0x080;
    pub const QUEUE_DRIVER_LOW: usize = 0x090;
    pub const QUEUE_DEVICE_LOW: usize = 0x0a0;
    pub const QUEUE_DEVICE_HIGH: usize = 0x0a4;
    pub const CONFIG_GENERATION: usize = 0x0fc;
    pub const CONFIG: usize = 0x100;
}

/// Bits of the device status (2.1).
pub mod status {
    pub const ACKNOWLEDGE: u32 = 1;
    pub const DRIVER: u32 = 2;
    pub const DRIVER_OK: u32 = 4;
    pub const FEATURES_OK: u32 = 8;
    pub const DEVICE_NEEDS_RESET: u32 = 64;
    pub const FAILED: u32 = 128;
}

/// "virt", little-endian.
pub const MAGIC: u32 = 0x7472_6976;
/// Version of the modern interface.
pub const VERSION: u32 = 2;
/// Feature bit 32: the modern interface; always required here.
pub const FEATURE_VERSION_1: u64 = 1 << 32;
/// Feature bit 28: tables of descriptors.
pub const FEATURE_INDIRECT_DESC: u64 = 1 << 28;
/// Feature bit 34: packed virtqueues.
pub const FEATURE_RING_PACKED: u64 = 1 << 34;
/// Feature bit 29: used_event and avail_event.
pub const FEATURE_EVENT_IDX: u64 = 1 << 29;

/// Reads of the status before a reset times out. A device resets within a few; one read takes
/// tens of nanoseconds at least.
const RESET_READS_MAX: u32 = 100_000;
/// All causes of an interrupt.
const CAUSES: u32 = 3;
/// Attempts to read a configuration that keeps changing.
const CONFIG_READS_MAX: u32 = 100;

/// Causes of an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupt {
    /// The device used buffers (bit 0).
    pub used: bool,
    /// The configuration changed, or the device needs a reset (bit 1).
    pub config: bool,
}

impl Interrupt {
    /// True if the device reported no cause: a shared or late interrupt.
    pub fn is_spurious(self) -> bool {
        !self.used && !self.config
    }
}

/// Addresses of the parts of a queue, for the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueAddresses {
    /// Descriptor table, or ring.
    pub descriptors: u64,
    /// Driver area: available ring, or the driver's event suppression.
    pub driver: u64,
    /// Device area: used ring, or the device's event suppression.
    pub device: u64,
}

/// A virtio-mmio device.
pub struct Transport<R> {
    registers: R,
}

impl<R: Registers> Transport<R> {
    /// Checks for a modern virtio device of kind `device`.
    pub fn probe(registers: R, device: u32) -> Result<Self, StartError> {
        let magic = registers.read32(register::MAGIC);
        if magic != MAGIC {
            return Err(StartError::NotVirtio { magic });
        }
        let found = registers.read32(register::VERSION);
        if found != VERSION {
            return Err(StartError::Version { found });
        }
        match registers.read32(register::DEVICE_ID) {
            id if id == device => Ok(Transport { registers }),
            device => Err(StartError::NotNet { device }),
        }
    }

    pub fn status(&self) -> u32 {
        self.registers.read32(register::STATUS)
    }

    /// Resets the device and waits until it reports completion: until then it may still write to
    /// memory (4.2.3.1, 2.4.2).
    pub fn reset(&mut self) -> Result<(), StartError> {
        self.registers.write32(register::STATUS, 0);
        let mut status = self.status();
        for _ in 0..RESET_READS_MAX {
            if status == 0 {
                return Ok(());
            }
            core::hint::spin_loop();
            status = self.status();
        }
        Err(StartError::ResetTimeout { status })
    }

    /// Steps 1 to 6 of the initialisation (3.1.1): reset, acknowledge, negotiate features.
    ///
    /// - `wanted`: features to choose if the device offers them; VERSION_1 is always chosen.
    /// - Returns the features chosen.
    pub fn negotiate(&mut self, wanted: u64) -> Result<u64, StartError> {
        self.reset()?;
        self.add_status(status::ACKNOWLEDGE);
        self.add_status(status::DRIVER);
        let offered = self.offered();
        if offered & FEATURE_VERSION_1 == 0 {
            self.add_status(status::FAILED);
            return Err(StartError::FeatureMissing { feature: "VIRTIO_F_VERSION_1", offered });
        }
        let chosen = offered & (wanted | FEATURE_VERSION_1);
        for (half, bits) in [(0, chosen as u32), (1, (chosen >> 32) as u32)] {
            self.registers.write32(register::DRIVER_FEATURES_SEL, half);
            self.registers.write32(register::DRIVER_FEATURES, bits);
        }
        self.add_status(status::FEATURES_OK);
        // The device clears the bit if it refuses the choice (3.1.1, step 6).
        if self.status() & status::FEATURES_OK == 0 {
            self.add_status(status::FAILED);
            return Err(StartError::FeaturesRefused { chosen });
        }
        Ok(chosen)
    }

    pub fn offered(&self) -> u64 {
        let half = |select| {
            self.registers.write32(register::DEVICE_FEATURES_SEL, select);
            u64::from(self.registers.read32(register::DEVICE_FEATURES))
        };
        half(0) | half(1) << 32
    }

    /// Largest size of a queue; 0 if it does not exist.
    pub fn queue_frames_max(&self, queue: u16) -> u32 {
        self.registers.write32(register::QUEUE_SEL, queue.into());
        self.registers.read32(register::QUEUE_NUM_MAX)
    }

    /// Sets the addresses of a queue and enables it (4.2.3.2).
    pub fn set_queue(
        &mut self,
        queue: u16,
        size_frames: u16,
        addresses: QueueAddresses,
    ) -> Result<(), StartError> {
        self.registers.write32(register::QUEUE_SEL, queue.into());
        if self.registers.read32(register::QUEUE_READY) != 0 {
            return Err(StartError::QueueBusy { queue });
        }
        self.registers.write32(register::QUEUE_NUM, size_frames.into());
        for (low, address) in [
            (register::QUEUE_DESC_LOW, addresses.descriptors),
            (register::QUEUE_DRIVER_LOW, addresses.driver),
            (register::QUEUE_DEVICE_LOW, addresses.device),
        ] {
            self.registers.write32(low, address as u32);
            self.registers.write32(low + 4, (address >> 32) as u32);
        }
        self.registers.write32(register::QUEUE_READY, 1);
        if self.registers.read32(register::QUEUE_READY) == 0 {
            return Err(StartError::QueueRefused { queue });
        }
        Ok(())
    }

    /// Last step of the initialisation: sets DRIVER_OK.
    pub fn drive(&mut self) -> Result<(), StartError> {
        self.add_status(status::DRIVER_OK);
        let status = self.status();
        if status & (status::FAILED | status::DEVICE_NEEDS_RESET) != 0 {
            return Err(StartError::Failed { status });
        }
        Ok(())
    }

    /// Rings the doorbell of a queue.
    pub fn notify(&self, queue: u16) {
        self.registers.write32(register::QUEUE_NOTIFY, queue.into());
    }

    /// Reads and acknowledges the causes of an interrupt.
    ///
    /// Call before checking the rings: anything the device adds after the acknowledgement raises the
    /// line again, so nothing is missed.
    pub fn take_interrupt(&self) -> Interrupt {
        let mut bits = self.registers.read32(register::INTERRUPT_STATUS);
        if bits != 0 {
            self.registers.write32(register::INTERRUPT_ACK, bits);
        }
        // A cause added between the two keeps the line up. A controller that waits for an edge would
        // never interrupt again, so both are acknowledged, and the caller looks for both.
        if bits != 0 && bits != CAUSES && self.registers.read32(register::INTERRUPT_STATUS) != 0 {
            self.registers.write32(register::INTERRUPT_ACK, CAUSES);
            bits = CAUSES;
        }
        Interrupt { used: bits & 1 != 0, config: bits & 2 != 0 }
    }

    /// Copies the start of the configuration space byte by byte, until no change occurred in between.
    pub fn read_config<const N: usize>(&self) -> Result<[u8; N], StartError> {
        for _ in 0..CONFIG_READS_MAX {
            let before = self.registers.read32(register::CONFIG_GENERATION);
            let mut bytes = [0; N];
            for (offset, byte) in bytes.iter_mut().enumerate() {
                *byte = self.registers.read8(register::CONFIG + offset);
            }
            if self.registers.read32(register::CONFIG_GENERATION) == before {
                return Ok(bytes);
            }
        }
        Err(StartError::ConfigUnstable)
    }

    fn add_status(&self, bit: u32) {
        let status = self.status();
        self.registers.write32(register::STATUS, status | bit);
    }
}
