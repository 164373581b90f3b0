//! PCI configuration space.
//!
//! Source: Am79C970A data sheet, "PCI Configuration Registers".

use super::ports::Width;

/// Bytes that each of the two base address registers decodes.
pub const BAR_BYTES: u32 = 32;

const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const BAR_IO: usize = 0x10;
const BAR_MEMORY: usize = 0x14;
const COMMAND_IO: u8 = 1 << 0;
const COMMAND_MEMORY: u8 = 1 << 1;
const COMMAND_MASTER: u8 = 1 << 2;
/// Upper status byte: received master abort.
const MASTER_ABORT: u8 = 1 << 5;

/// The configuration space of one function.
#[derive(Debug, Clone)]
pub struct Pci {
    bytes: [u8; 256],
}

/// Bits of a configuration byte that software may write.
fn writable(at: usize) -> u8 {
    match at {
        COMMAND => 0x47,
        0x05 => 0x01,
        BAR_IO | BAR_MEMORY => 0xe0,
        0x11..=0x13 | 0x15..=0x17 => 0xff,
        // Latency timer, interrupt line.
        0x0d | 0x3c => 0xff,
        _ => 0,
    }
}

impl Pci {
    pub(super) fn new() -> Self {
        let mut bytes = [0; 256];
        // AMD, PCnet-PCI II, revision 0x10, Ethernet controller.
        bytes[..4].copy_from_slice(&[0x22, 0x10, 0x00, 0x20]);
        // Fast back-to-back capable, medium DEVSEL timing.
        bytes[STATUS..STATUS + 2].copy_from_slice(&[0x80, 0x02]);
        bytes[0x08..0x0c].copy_from_slice(&[0x10, 0x00, 0x00, 0x02]);
        bytes[BAR_IO] = 0x01;
        // Pin INTA, 1.5 µs minimum grant, longest latency.
        bytes[0x3c..0x40].copy_from_slice(&[0xff, 0x01, 0x06, 0xff]);
        Pci { bytes }
    }

    /// Reads `width` at byte `at`; past the end reads all ones.
    pub fn read(&self, at: u8, width: Width) -> u32 {
        let mut value = [0xff; 4];
        for (i, byte) in value.iter_mut().take(width.bytes()).enumerate() {
            *byte = self.bytes.get(usize::from(at) + i).copied().unwrap_or(0xff);
        }
        u32::from_le_bytes(value) & width.mask()
    }

    /// Writes `width` at byte `at`; what is read-only stays.
    pub fn write(&mut self, at: u8, width: Width, value: u32) {
        for (i, &new) in value.to_le_bytes().iter().take(width.bytes()).enumerate() {
            let at = usize::from(at) + i;
            let Some(byte) = self.bytes.get_mut(at) else { return };
            if at == STATUS + 1 {
                // Error bits, written 1 to clear.
                *byte &= !(new & 0xf9);
            } else {
                let mask = writable(at);
                *byte = *byte & !mask | new & mask;
            }
        }
    }

    fn long(&self, at: usize) -> u32 {
        u32::from_le_bytes([0, 1, 2, 3].map(|i| self.bytes[at + i]))
    }

    /// First port of the 32 that the device answers at, when port decoding is on.
    pub fn io_base(&self) -> Option<u16> {
        let base = u16::try_from(self.long(BAR_IO) & !3).ok()?;
        (self.bytes[COMMAND] & COMMAND_IO != 0 && base != 0).then_some(base)
    }

    /// First byte of the 32 that the device answers at, when memory decoding is on.
    pub fn memory_base(&self) -> Option<u32> {
        let base = self.long(BAR_MEMORY) & !15;
        (self.bytes[COMMAND] & COMMAND_MEMORY != 0 && base != 0).then_some(base)
    }

    /// The register that `port` addresses, as an offset into the device's 32 bytes.
    pub fn decode_port(&self, port: u16) -> Option<u8> {
        let offset = port.checked_sub(self.io_base()?)?;
        (u32::from(offset) < BAR_BYTES).then_some(offset as u8)
    }

    /// The register that `address` addresses, as an offset into the device's 32 bytes.
    pub fn decode_memory(&self, address: u64) -> Option<u8> {
        let offset = address.checked_sub(u64::from(self.memory_base()?))?;
        (offset < u64::from(BAR_BYTES)).then_some(offset as u8)
    }

    /// True if the guest allows the device to read and write its memory.
    pub fn is_bus_master(&self) -> bool {
        self.bytes[COMMAND] & COMMAND_MASTER != 0
    }

    pub(super) fn set_master_abort(&mut self) {
        self.bytes[STATUS + 1] |= MASTER_ABORT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_that_of_the_chip() {
        let pci = Pci::new();
        assert_eq!(pci.read(0, Width::Dword), 0x2000_1022);
        assert_eq!(pci.read(8, Width::Dword), 0x0200_0010);
        assert_eq!(pci.read(0x3d, Width::Byte), 1);
    }

    #[test]
    fn address_registers_tell_their_size_and_decode_when_enabled() {
        let mut pci = Pci::new();
        pci.write(0x10, Width::Dword, u32::MAX);
        assert_eq!(pci.read(0x10, Width::Dword), 0xffff_ffe1);
        pci.write(0x14, Width::Dword, u32::MAX);
        assert_eq!(pci.read(0x14, Width::Dword), 0xffff_ffe0);
        pci.write(0x10, Width::Dword, 0xc020);
        pci.write(0x14, Width::Dword, 0xfebf_0000);
        assert_eq!((pci.decode_port(0xc020), pci.decode_memory(0xfebf_0000)), (None, None));
        pci.write(4, Width::Word, 3);
        assert_eq!((pci.decode_port(0xc020), pci.decode_port(0xc03f)), (Some(0), Some(0x1f)));
        assert_eq!((pci.decode_port(0xc01f), pci.decode_port(0xc040)), (None, None));
        assert_eq!(pci.decode_memory(0xfebf_0010), Some(0x10));
        assert_eq!(pci.decode_memory(0xfebf_0020), None);
        assert_eq!(pci.decode_memory(u64::MAX), None);
    }

    #[test]
    fn read_only_fields_stay_and_errors_clear_by_writing_one() {
        let mut pci = Pci::new();
        pci.set_master_abort();
        for at in (0..=255).step_by(4) {
            if at != 4 {
                pci.write(at, Width::Dword, u32::MAX);
            }
        }
        assert_eq!(pci.read(0, Width::Dword), 0x2000_1022);
        assert_eq!(pci.read(6, Width::Word), 0x2280);
        pci.write(6, Width::Word, 0x2000);
        assert_eq!(pci.read(6, Width::Word), 0x0280);
        // A write across the end ends there.
        pci.write(255, Width::Dword, 0);
        assert_eq!(pci.read(254, Width::Dword), 0xffff_0000);
    }
}
