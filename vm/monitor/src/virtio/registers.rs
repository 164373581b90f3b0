//! The register window.
//!
//! Source: virtio 1.2, section 4.2.2.

use super::VirtioNet;
use super::layout::Layout;
use super::queue::{QUEUE_SIZE_MAX, Queue};
use crate::bus::{Bus, GuestMemory, NetworkSide};
use crate::lance::Width;

/// Bytes of the window.
pub const WINDOW_BYTES: u64 = 0x200;

/// Offsets of the registers.
pub mod register {
    pub const MAGIC: u16 = 0x000;
    pub const VERSION: u16 = 0x004;
    pub const DEVICE_ID: u16 = 0x008;
    pub const VENDOR_ID: u16 = 0x00c;
    pub const DEVICE_FEATURES: u16 = 0x010;
    pub const DEVICE_FEATURES_SEL: u16 = 0x014;
    pub const DRIVER_FEATURES: u16 = 0x020;
    pub const DRIVER_FEATURES_SEL: u16 = 0x024;
    pub const QUEUE_SEL: u16 = 0x030;
    pub const QUEUE_NUM_MAX: u16 = 0x034;
    pub const QUEUE_NUM: u16 = 0x038;
    pub const QUEUE_READY: u16 = 0x044;
    pub const QUEUE_NOTIFY: u16 = 0x050;
    pub const INTERRUPT_STATUS: u16 = 0x060;
    pub const INTERRUPT_ACK: u16 = 0x064;
    pub const STATUS: u16 = 0x070;
    pub const QUEUE_DESC_LOW: u16 = 0x080;
    pub const QUEUE_DESC_HIGH: u16 = 0x084;
    pub const QUEUE_DRIVER_LOW: u16 = 0x090;
    pub const QUEUE_DRIVER_HIGH: u16 = 0x094;
    pub const QUEUE_DEVICE_LOW: u16 = 0x0a0;
    pub const QUEUE_DEVICE_HIGH: u16 = 0x0a4;
    pub const CONFIG_GENERATION: u16 = 0x0fc;
    pub const CONFIG: u16 = 0x100;
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
const MAGIC: u32 = 0x7472_6976;
/// The modern interface.
const VERSION: u32 = 2;
const DEVICE_NET: u32 = 1;
/// "wpth", little-endian: assigned to no vendor.
const VENDOR: u32 = u32::from_le_bytes(*b"wpth");

/// Bytes of the configuration.
const CONFIG_BYTES: usize = 10;

/// Interrupt status: buffers were used.
pub(super) const CAUSE_USED: u32 = 1;
/// Interrupt status: the configuration changed, or the device needs a reset.
pub(super) const CAUSE_CONFIG: u32 = 2;

fn half(value: u64, select: u32) -> u32 {
    match select {
        0 => value as u32,
        1 => (value >> 32) as u32,
        _ => 0,
    }
}

impl VirtioNet {
    /// A read at `offset` of the window. Registers have 32 bits; the configuration also bytes.
    pub fn read(&self, offset: u16, width: Width) -> u32 {
        use register as r;
        if offset >= r::CONFIG {
            return self.read_config(offset - r::CONFIG, width);
        }
        if width != Width::Dword {
            return width.mask();
        }
        match offset {
            r::MAGIC => MAGIC,
            r::VERSION => VERSION,
            r::DEVICE_ID => DEVICE_NET,
            r::VENDOR_ID => VENDOR,
            r::DEVICE_FEATURES => half(self.offered(), self.offered_half),
            r::QUEUE_NUM_MAX if self.selected < self.queue_count().into() => QUEUE_SIZE_MAX.into(),
            r::QUEUE_READY => {
                let queue = self.queues.get(self.selected as usize);
                queue.is_some_and(Option::is_some).into()
            }
            r::INTERRUPT_STATUS => self.causes,
            r::STATUS => self.status,
            _ => 0,
        }
    }

    fn read_config(&self, offset: u16, width: Width) -> u32 {
        // MAC address, status, and the largest number of pairs (5.1.4).
        let mut config = [0; CONFIG_BYTES];
        config[..6].copy_from_slice(&self.mac);
        config[8..].copy_from_slice(&self.pairs().to_le_bytes());
        let mut value = [0; 4];
        for (i, byte) in value.iter_mut().take(width.bytes()).enumerate() {
            *byte = config.get(usize::from(offset) + i).copied().unwrap_or(0);
        }
        u32::from_le_bytes(value)
    }

    /// A write at `offset` of the window.
    pub fn write<M: GuestMemory, W: NetworkSide>(
        &mut self,
        bus: &mut Bus<'_, M, W>,
        offset: u16,
        width: Width,
        value: u32,
    ) {
        use register as r;
        if width != Width::Dword {
            return;
        }
        match offset {
            r::DEVICE_FEATURES_SEL => self.offered_half = value,
            r::DRIVER_FEATURES_SEL => self.chosen_half = value,
            r::DRIVER_FEATURES if self.status & status::FEATURES_OK == 0 => {
                if let Some(half) = self.feature_halves.get_mut(self.chosen_half as usize) {
                    *half = value;
                }
            }
            r::QUEUE_SEL => self.selected = value,
            r::QUEUE_READY => {
                if value != 1
                    && let Ok(queue) = u16::try_from(self.selected)
                {
                    self.withdraw(bus, queue);
                }
                self.set_ready(value);
            }
            r::QUEUE_NOTIFY => self.notified(bus, value),
            r::INTERRUPT_ACK => {
                self.causes &= !value;
                self.tells_received &= self.causes & CAUSE_USED != 0;
            }
            r::STATUS => {
                if value == 0 {
                    (0..self.queue_count()).for_each(|queue| self.withdraw(bus, queue));
                }
                self.set_status(value);
            }
            _ => self.set_layout(offset, value),
        }
    }

    /// Ends what a back end does with the buffers of a queue.
    fn withdraw<M: GuestMemory, W: NetworkSide>(&mut self, bus: &mut Bus<'_, M, W>, queue: u16) {
        if let Some(place) = bus.wire.in_place() {
            self.placed.forget(queue, place);
        }
    }

    fn set_status(&mut self, value: u32) {
        if value == 0 {
            return self.reset();
        }
        let known = status::ACKNOWLEDGE | status::DRIVER | status::FAILED;
        self.status |= value & known;
        if value & status::FEATURES_OK != 0 && self.has_valid_choice() {
            self.status |= status::FEATURES_OK;
        }
        if value & self.status & status::FEATURES_OK != 0 {
            self.status |= value & status::DRIVER_OK;
        }
    }

    fn set_layout(&mut self, offset: u16, value: u32) {
        use register as r;
        let index = self.selected as usize;
        // A queue that is ready keeps its layout (4.2.2.2).
        if self.selected >= self.queue_count().into() || self.queues[index].is_some() {
            return;
        }
        let Layout { size, descriptors, driver, device } = &mut self.layouts[index];
        match offset {
            r::QUEUE_NUM => *size = value,
            r::QUEUE_DESC_LOW => set_low(descriptors, value),
            r::QUEUE_DESC_HIGH => set_high(descriptors, value),
            r::QUEUE_DRIVER_LOW => set_low(driver, value),
            r::QUEUE_DRIVER_HIGH => set_high(driver, value),
            r::QUEUE_DEVICE_LOW => set_low(device, value),
            r::QUEUE_DEVICE_HIGH => set_high(device, value),
            _ => {}
        }
    }

    fn set_ready(&mut self, value: u32) {
        let index = self.selected as usize;
        if self.selected >= self.queue_count().into() {
            return;
        }
        let queue = &mut self.queues[index];
        if value != 1 {
            *queue = None;
            return;
        }
        // Features decide how a queue works, so they come first (3.1.1).
        if queue.is_some() || self.status & status::FEATURES_OK == 0 {
            return;
        }
        let number = index as u16;
        let direction = self.direction(number);
        match Queue::new(number, direction, &self.layouts[index], self.negotiated()) {
            Ok(ready) => self.queues[index] = Some(ready),
            Err(fault) => self.broken(fault),
        }
    }
}

fn set_low(address: &mut u64, value: u32) {
    *address = *address & !0xffff_ffff | u64::from(value);
}

fn set_high(address: &mut u64, value: u32) {
    *address = *address & 0xffff_ffff | u64::from(value) << 32;
}
