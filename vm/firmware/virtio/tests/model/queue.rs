//! The driver side of either kind of queue.

use wirepath_virtio::DeviceFault;
use wirepath_virtio::packed::{self, PackedQueue};
use wirepath_virtio::ring::{Access, Completion, Published};
use wirepath_virtio::split::{self, SplitQueue};

use crate::SIZE;
use crate::memory::Shared;

pub(crate) const SPLIT: split::Layout = split::Layout::new(0, SIZE);
pub(crate) const PACKED: packed::Layout = packed::Layout::new(0, SIZE);
/// Memory for either kind.
pub(crate) const BYTES: usize = if SPLIT.end > PACKED.end { SPLIT.end } else { PACKED.end };

pub(crate) trait Queue {
    fn new(memory: &Shared, event_idx: bool) -> Self;
    fn post(&mut self, memory: &Shared, token: u16, address: u64, len_bytes: u32) -> bool;
    fn publish(&mut self, memory: &Shared) -> Published;
    fn take(&mut self, memory: &Shared) -> Option<Result<Completion, DeviceFault>>;
    fn enable_interrupts(&self, memory: &Shared) -> bool;
    fn disable_interrupts(&self, memory: &Shared);
}

macro_rules! queue {
    ($queue:ident, $layout:expr) => {
        impl Queue for $queue<{ SIZE as usize }> {
            fn new(memory: &Shared, event_idx: bool) -> Self {
                $queue::new(memory, $layout, SIZE, event_idx)
            }

            fn post(&mut self, memory: &Shared, token: u16, address: u64, len_bytes: u32) -> bool {
                self.post(memory, token, address, len_bytes, Access::DeviceReads)
            }

            fn publish(&mut self, memory: &Shared) -> Published {
                self.publish(memory)
            }

            fn take(&mut self, memory: &Shared) -> Option<Result<Completion, DeviceFault>> {
                self.take(memory)
            }

            fn enable_interrupts(&self, memory: &Shared) -> bool {
                self.enable_interrupts(memory)
            }

            fn disable_interrupts(&self, memory: &Shared) {
                self.disable_interrupts(memory);
            }
        }
    };
}

queue!(SplitQueue, SPLIT);
queue!(PackedQueue, PACKED);
