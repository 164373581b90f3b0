//! The registers of the fake device.

use std::{assert, assert_eq, panic};

use super::rings::Queue;
use super::{Access, FakeRegisters, RX, State, TX};
use crate::mmio::{FEATURE_VERSION_1, register, status};
use crate::{Registers, mmio, net};

impl State {
    fn reset(&mut self) {
        self.status = 0;
        self.chosen = 0;
        self.interrupt = 0;
        self.reset_reads_left = self.behaviour.reset_reads;
        for queue in &mut self.queues {
            *queue = Queue { doorbells: queue.doorbells, ..Queue::default() };
        }
    }

    fn write(&mut self, at: usize, value: u32) {
        let selected = self.select[2] as usize;
        match at {
            register::DEVICE_FEATURES_SEL => self.select[0] = value,
            register::DRIVER_FEATURES_SEL => self.select[1] = value,
            register::QUEUE_SEL => self.select[2] = value,
            register::DRIVER_FEATURES => {
                assert_eq!(self.status & status::FEATURES_OK, 0, "features after FEATURES_OK");
                let shift = 32 * self.select[1];
                self.chosen = self.chosen & !(0xffff_ffff << shift) | u64::from(value) << shift;
            }
            register::STATUS if value == 0 => self.reset(),
            register::STATUS => {
                let refused = self.behaviour.refuse_features
                    || self.chosen & !self.behaviour.offered != 0
                    || self.chosen & FEATURE_VERSION_1 == 0;
                self.status = if refused { value & !status::FEATURES_OK } else { value };
                if value & status::DRIVER_OK != 0 && self.behaviour.fails_at_start {
                    self.status |= status::DEVICE_NEEDS_RESET;
                }
            }
            register::QUEUE_NUM => self.queues[selected].size = value as u16,
            register::QUEUE_READY => {
                self.queues[selected].ready = value == 1;
                self.open(selected);
            }
            register::QUEUE_DESC_LOW..=register::QUEUE_DEVICE_HIGH => {
                let part = (at - register::QUEUE_DESC_LOW) / 16;
                let shift = if at % 16 == 4 { 32 } else { 0 };
                let address = &mut self.queues[selected].addresses[part];
                *address = *address & !(0xffff_ffff << shift) | u64::from(value) << shift;
            }
            register::QUEUE_NOTIFY => {
                self.log(Access::Doorbell(value));
                self.queues[value as usize].doorbells += 1;
                while value as usize == RX
                    && let Some(frame) = self.behaviour.arriving.pop_front()
                {
                    if !self.deliver(&frame) {
                        self.behaviour.arriving.push_front(frame);
                        break;
                    }
                }
                if value as usize == TX && self.behaviour.sends_at_once {
                    while let Some(id) = self.next_available(TX) {
                        self.send(id);
                        self.complete(TX, &[(id, 0)]);
                    }
                }
            }
            register::INTERRUPT_ACK => {
                self.log(Access::Acknowledge);
                let late = core::mem::take(&mut self.behaviour.causes_late);
                self.raise(late);
                self.interrupt &= !value;
            }
            _ => panic!("register {at:#x} is not writable"),
        }
    }

    fn read(&mut self, at: usize) -> u32 {
        match at {
            register::MAGIC => mmio::MAGIC,
            register::VERSION => self.behaviour.version,
            register::DEVICE_ID => net::DEVICE_NET,
            register::DEVICE_FEATURES => (self.behaviour.offered >> (32 * self.select[0])) as u32,
            register::QUEUE_NUM_MAX => self.behaviour.queue_frames_max,
            register::QUEUE_READY => self.queues[self.select[2] as usize].ready.into(),
            register::INTERRUPT_STATUS => self.interrupt,
            register::CONFIG_GENERATION => self.generation,
            register::STATUS => match self.reset_reads_left {
                0 => self.status,
                _ => {
                    self.reset_reads_left -= 1;
                    status::DRIVER_OK
                }
            },
            _ => panic!("register {at:#x} is not readable"),
        }
    }
}

impl Registers for FakeRegisters {
    fn read8(&self, at: usize) -> u8 {
        let mut state = self.0.borrow_mut();
        if state.behaviour.config_changes > 0 {
            state.behaviour.config_changes -= 1;
            state.generation += 1;
        }
        // 52:54:00:12:34:56; halfway through a change the bytes are useless.
        let byte = [0x52, 0x54, 0x00, 0x12, 0x34, 0x56][at - register::CONFIG];
        if state.behaviour.config_changes > 0 { !byte } else { byte }
    }

    fn read32(&self, at: usize) -> u32 {
        assert!(at < register::CONFIG, "the MAC address is read in bytes");
        self.0.borrow_mut().read(at)
    }

    fn write32(&self, at: usize, value: u32) {
        self.0.borrow_mut().write(at, value);
    }
}
