//! Oracle of the fuzz target `virtqueue` and its corpus: a hostile device driven by a stream of
//! bytes.

#[path = "../../../fuzz/bytes.rs"]
mod bytes;

use std::vec::Vec;
use std::{assert, assert_eq};

use bytes::Bytes;

use crate::fake::{Behaviour, FakeDevice, FakeMemory, FakeRegisters, RX, TX};
use crate::mmio::status;
use crate::net::{HEADER_BYTES, NetDriver, QUEUE_FRAMES, Settings, pool_frames};
use crate::{DeviceFault, Frame};

/// Maximum frames held by the driver's user.
const HELD_MAX: usize = 64;
/// Minimum jump of an index: longer than any ring, so that no element of an earlier lap is taken
/// for one that the device has written.
const JUMP_MIN: u16 = 300;

/// A driver, its user, and a device that records the buffers it really owns.
struct Stage {
    device: FakeDevice,
    driver: NetDriver<FakeRegisters, FakeMemory>,
    /// Descriptors owned by the device, by queue.
    owned: [Vec<u16>; 2],
    pool_frames: usize,
    /// Frames held by the user.
    frames: Vec<Frame>,
    /// A ring is out of step, or holds garbage from the device, which the device does not read
    /// back, until the next start.
    is_lost: bool,
}

/// Drives the device and the driver's user by `bytes`. Returns the number of operations.
///
/// # Panics
///
/// If a frame is lost or handed out twice, the driver posts a buffer that the device still owns,
/// or accepts an invalid length.
pub fn run(bytes: &[u8]) -> u64 {
    let mut bytes = Bytes(bytes);
    let bits = bytes.u8();
    let settings = Settings {
        event_idx: bits & 1 != 0,
        tx_interrupts: bits & 2 != 0,
        rx_interrupts: bits & 4 != 0,
        packed: bits & 8 != 0,
        indirect: bits & 16 != 0,
        ring_frames: if bits & 128 != 0 { 8 } else { QUEUE_FRAMES as u16 },
    };
    let queue_frames_max = [2, 8, 11, 256][usize::from(bits >> 5) % 4];
    let behaviour = Behaviour { sends_at_once: false, queue_frames_max, ..Behaviour::default() };
    let (device, registers, memory) = FakeDevice::new(behaviour);
    // A device with a valid configuration must be accepted.
    let Ok(driver) = NetDriver::start(registers, memory, settings) else { return 0 };
    let mut stage = Stage {
        device,
        driver,
        owned: [Vec::new(), Vec::new()],
        pool_frames: pool_frames(settings.ring_frames),
        frames: Vec::new(),
        is_lost: false,
    };
    let mut operations = 0;
    while !bytes.0.is_empty() {
        stage.operate(&mut bytes);
        stage.check();
        operations += 1;
    }
    operations
}

impl Stage {
    fn operate(&mut self, bytes: &mut Bytes<'_>) {
        let operation = bytes.u8();
        let queue = if operation & 0x80 == 0 { RX } else { TX };
        match operation & 0x0f {
            0 => self.complete(queue, bytes),
            1 => self.forge(queue, bytes),
            2 => {
                self.device.forge_index(queue, JUMP_MIN + bytes.u16() % 30_000);
                self.is_lost = true;
            }
            3 => self.device.set_status(status::DEVICE_NEEDS_RESET),
            4 => self.device.raise_interrupt(bytes.u8().into()),
            5 => self.device.behave(|behaviour| {
                let bits = bytes.u8();
                behaviour.silent = bits & 1 != 0;
                behaviour.no_notify = bits & 2 != 0;
                behaviour.names_no_place = bits & 4 != 0;
            }),
            6 | 7 => self.receive(),
            8 => self.send(bytes),
            9 => self.look(TX),
            10 => {
                self.driver.rx_refill();
                self.driver.rx_kick();
                self.driver.tx_kick();
            }
            11 => {
                self.driver.take_interrupt();
                let _ = self.driver.rx_enable_interrupts();
                let _ = self.driver.tx_enable_interrupts();
            }
            12 => {
                if let Some(frame) = self.frames.pop() {
                    self.driver.free(frame);
                }
            }
            13 => {
                if let Some(frame) = self.frames.pop() {
                    self.driver.rx_post(frame);
                }
            }
            _ if self.is_lost || self.driver.needs_restart() => self.restart(),
            _ => self.driver.tx_disable_interrupts(),
        }
    }

    /// Completes a descriptor that the device owns, with any length.
    fn complete(&mut self, queue: usize, bytes: &mut Bytes<'_>) {
        let (pick, len_bytes) = (bytes.u8(), bytes.u32());
        self.take(queue);
        let owned = &mut self.owned[queue];
        if !owned.is_empty() {
            let id = owned.swap_remove(usize::from(pick) % owned.len());
            // Sometimes a valid length.
            let len_bytes = if pick & 1 == 0 { HEADER_BYTES as u32 + 60 } else { len_bytes };
            self.device.complete(queue, id, len_bytes);
        }
    }

    /// Completes a descriptor that the device never owned, or no longer owns.
    fn forge(&mut self, queue: usize, bytes: &mut Bytes<'_>) {
        let (id, len_bytes) = (bytes.u32(), bytes.u32());
        // Buffers posted but not yet shown, or posted before the driver's next check, the device
        // could only guess; no driver can tell such a guess from a valid completion.
        self.look(queue);
        self.driver.rx_kick();
        self.driver.tx_kick();
        self.take(queue);
        // In a packed ring the id has 16 bits and overwrites the driver's descriptor.
        let seen = id as u16;
        if !self.is_lost && !self.owned[queue].contains(&seen) {
            self.device.forge_used(queue, id, len_bytes);
            self.is_lost = self.driver.has_packed_rings();
            self.look(queue);
        }
    }

    /// Makes the driver take all completions.
    fn look(&mut self, queue: usize) {
        if queue == TX {
            let fault = self.driver.tx_reap().1;
            return self.lost(fault);
        }
        while !self.is_lost && self.driver.rx_has_used() {
            self.receive();
        }
    }

    fn take(&mut self, queue: usize) {
        while !self.is_lost
            && let Some(id) = self.device.take_available(queue)
        {
            self.owned[queue].push(id);
        }
    }

    fn receive(&mut self) {
        match self.driver.rx_take() {
            Some(Ok(received)) => {
                let len_bytes = self.driver.with_frame(&received.frame, 14, |bytes| bytes.len());
                assert!(len_bytes == 14 && received.len_bytes >= 14);
                if self.frames.len() < HELD_MAX {
                    self.frames.push(received.frame);
                } else {
                    self.driver.rx_post(received.frame);
                }
            }
            Some(Err(fault)) => self.lost(Some(fault)),
            None => {}
        }
    }

    fn send(&mut self, bytes: &mut Bytes<'_>) {
        let len_bytes = 14 + usize::from(bytes.u16()) % 1500;
        let Some(frame) = self.driver.take_free() else { return };
        if let Err(frame) = self.driver.tx_post(frame, len_bytes) {
            self.driver.free(frame);
        }
    }

    fn lost(&mut self, fault: Option<DeviceFault>) {
        self.is_lost |= fault.is_some_and(|fault| fault.needs_restart());
    }

    fn restart(&mut self) {
        self.driver.restart().expect("the device starts");
        self.owned = [Vec::new(), Vec::new()];
        self.is_lost = false;
    }

    /// Checks that every frame has exactly one owner.
    fn check(&self) {
        let ledger = self.driver.ledger();
        assert_eq!(ledger.total(), self.pool_frames as u32);
        assert_eq!(usize::from(ledger.held_count), self.frames.len());
        for (at, frame) in self.frames.iter().enumerate() {
            assert!(!self.frames[..at].contains(frame), "{frame:?} was given out twice");
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_of_hostile_devices_holds() {
        let inputs = crate::inputs::of("virtqueue");
        let operations: u64 = inputs.iter().map(|bytes| super::run(bytes)).sum();
        assert!(operations > 1000, "{operations}");
    }
}
