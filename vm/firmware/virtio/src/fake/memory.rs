//! The shared memory, as the driver accesses it.

use std::assert;
use std::ops::Range;

use super::{Access, BASE, FakeMemory};
use crate::Memory;

impl Memory for FakeMemory {
    fn len_bytes(&self) -> usize {
        self.0.borrow().memory.len()
    }

    fn address(&self) -> u64 {
        BASE
    }

    fn read16(&self, at: usize) -> u16 {
        assert!(at.is_multiple_of(2), "{at:#x}");
        let mut state = self.0.borrow_mut();
        state.log(Access::Read(at));
        state.get16(at)
    }

    fn read32(&self, at: usize) -> u32 {
        assert!(at.is_multiple_of(4), "{at:#x}");
        let mut state = self.0.borrow_mut();
        state.log(Access::Read(at));
        u32::from(state.get16(at)) | u32::from(state.get16(at + 2)) << 16
    }

    fn write16(&self, at: usize, value: u16) {
        assert!(at.is_multiple_of(2), "{at:#x}");
        let mut state = self.0.borrow_mut();
        state.log(Access::Write(at));
        state.put16(at, value);
    }

    fn write32(&self, at: usize, value: u32) {
        let mut state = self.0.borrow_mut();
        state.log(Access::Write(at));
        state.put32(at, value);
    }

    fn write64(&self, at: usize, value: u64) {
        let mut state = self.0.borrow_mut();
        state.log(Access::Write(at));
        state.put32(at, value as u32);
        state.put32(at + 4, (value >> 32) as u32);
    }

    fn with_bytes<T>(&mut self, range: Range<usize>, work: impl FnOnce(&mut [u8]) -> T) -> T {
        work(&mut self.0.borrow_mut().memory[range])
    }

    fn copy(&mut self, from: usize, to: usize, len_bytes: usize) {
        self.0.borrow_mut().memory.copy_within(from..from + len_bytes, to);
    }

    fn write_barrier(&self) {
        self.0.borrow_mut().log(Access::WriteBarrier);
    }

    fn read_barrier(&self) {
        self.0.borrow_mut().log(Access::ReadBarrier);
    }

    fn full_barrier(&self) {
        self.0.borrow_mut().log(Access::FullBarrier);
    }
}
