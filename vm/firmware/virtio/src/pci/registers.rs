//! Registers of virtio-mmio in the structures of a PCI function (4.1.4.3 to 4.1.4.5).

use super::{PciAccess, PciRegisters};
use crate::mmio::{self, register};
use crate::{Registers, net};

const DEVICE_FEATURE_SELECT: u64 = 0x00;
const DEVICE_FEATURE: u64 = 0x04;
const DRIVER_FEATURE_SELECT: u64 = 0x08;
const DRIVER_FEATURE: u64 = 0x0c;
const CONFIG_VECTOR: u64 = 0x10;
const STATUS: u64 = 0x14;
const GENERATION: u64 = 0x15;
const QUEUE_SELECT: u64 = 0x16;
const QUEUE_SIZE: u64 = 0x18;
const QUEUE_VECTOR: u64 = 0x1a;
const QUEUE_ENABLE: u64 = 0x1c;
const QUEUE_NOTIFY_OFFSET: u64 = 0x1e;
const QUEUE_ADDRESSES: u64 = 0x20;
/// Causes of an interrupt by message, which are not reported: both.
const CAUSES: u32 = 3;

impl<P: PciAccess> PciRegisters<P> {
    fn common(&self, offset: u64) -> u64 {
        self.common.address + offset
    }

    /// Enables the selected queue: doorbell and vector first. Without them it stays disabled, which the transport
    /// reads back.
    fn enable_queue(&self) {
        let queue = usize::from(self.selected.get());
        let Some(doorbell) = self.doorbells.get(queue) else { return };
        let offset = self.access.read16(self.common(QUEUE_NOTIFY_OFFSET));
        let offset = u64::from(offset) * u64::from(self.notify_multiplier);
        if offset + 2 > self.notify.len_bytes || !offset.is_multiple_of(2) {
            return;
        }
        doorbell.set(Some(self.notify.address + offset));
        if let Some(vectors) = self.vectors {
            let vector = vectors[queue];
            self.access.write16(self.common(CONFIG_VECTOR), vectors[0]);
            self.access.write16(self.common(QUEUE_VECTOR), vector);
            // The device has no resources for it if it reads as another (4.1.5.1.2).
            if self.access.read16(self.common(QUEUE_VECTOR)) != vector {
                return;
            }
        }
        self.access.write16(self.common(QUEUE_ENABLE), 1);
    }
}

impl<P: PciAccess> Registers for PciRegisters<P> {
    fn read8(&self, at: usize) -> u8 {
        let offset = at.wrapping_sub(register::CONFIG) as u64;
        assert!(offset < self.config.len_bytes, "configuration at {at:#x}");
        self.access.read8(self.config.address + offset)
    }

    fn read32(&self, at: usize) -> u32 {
        match at {
            register::MAGIC => mmio::MAGIC,
            register::VERSION => mmio::VERSION,
            register::DEVICE_ID => net::DEVICE_NET,
            register::DEVICE_FEATURES => self.access.read32(self.common(DEVICE_FEATURE)),
            register::QUEUE_NUM_MAX => self.access.read16(self.common(QUEUE_SIZE)).into(),
            register::QUEUE_READY => self.access.read16(self.common(QUEUE_ENABLE)).into(),
            register::INTERRUPT_STATUS if self.vectors.is_some() => CAUSES,
            // The read acknowledges.
            register::INTERRUPT_STATUS => {
                u32::from(self.access.read8(self.interrupts.address)) & CAUSES
            }
            register::STATUS => self.access.read8(self.common(STATUS)).into(),
            register::CONFIG_GENERATION => self.access.read8(self.common(GENERATION)).into(),
            _ => panic!("register {at:#x} is not readable"),
        }
    }

    fn write32(&self, at: usize, value: u32) {
        match at {
            register::DEVICE_FEATURES_SEL => {
                self.access.write32(self.common(DEVICE_FEATURE_SELECT), value);
            }
            register::DRIVER_FEATURES_SEL => {
                self.access.write32(self.common(DRIVER_FEATURE_SELECT), value);
            }
            register::DRIVER_FEATURES => {
                self.access.write32(self.common(DRIVER_FEATURE), value);
            }
            register::QUEUE_SEL => {
                self.selected.set(value as u16);
                self.access.write16(self.common(QUEUE_SELECT), value as u16);
            }
            register::QUEUE_NUM => self.access.write16(self.common(QUEUE_SIZE), value as u16),
            register::QUEUE_READY => self.enable_queue(),
            register::QUEUE_NOTIFY => {
                if let Some(address) = self.doorbells.get(value as usize).and_then(|at| at.get()) {
                    self.access.write16(address, value as u16);
                }
            }
            register::INTERRUPT_ACK => {}
            register::STATUS => self.access.write8(self.common(STATUS), value as u8),
            register::QUEUE_DESC_LOW..=register::QUEUE_DEVICE_HIGH => {
                // Three addresses of two halves: 16 bytes apart there, 8 here.
                let from = (at - register::QUEUE_DESC_LOW) as u64;
                let to = QUEUE_ADDRESSES + from / 16 * 8 + from % 16;
                self.access.write32(self.common(to), value);
            }
            _ => panic!("register {at:#x} is not writable"),
        }
    }
}
