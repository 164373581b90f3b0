//! A port in memory: numbered copies of one frame come in, and what goes out is counted and checked. Neither takes a CPU of
//! its own, so that the forwarder between two of them has the machine to itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::copying::Spare;
use super::{HEADROOM_BYTES, Pool, Port, PortRx, PortTx, Receiver, Sender, Taken};

/// Bytes of a frame's number, which are its last.
const NUMBER_BYTES: usize = 4;

/// Frames that left a port.
#[derive(Debug, Default)]
pub struct MemoryCounts {
    frame_count: AtomicU64,
    reordered_count: AtomicU64,
}

impl MemoryCounts {
    /// Frames that left.
    pub fn frame_count(&self) -> u64 {
        self.frame_count.load(Ordering::Acquire)
    }

    /// Those with a lower number than one before.
    pub fn reordered_count(&self) -> u64 {
        self.reordered_count.load(Ordering::Acquire)
    }
}

#[derive(Debug)]
pub(super) struct MemoryReceiver<'p> {
    spare: Spare<'p>,
    frame: Vec<u8>,
    /// By frame of the pool: true once it holds the bytes, which stay there while it goes round.
    is_filled: Vec<bool>,
    left_count: u64,
    number: u32,
}

impl<'p> MemoryReceiver<'p> {
    pub(super) fn take(
        &mut self,
        max: usize,
        mut each: impl FnMut(Taken<'p>, usize, usize),
    ) -> usize {
        let len = self.frame.len();
        let mut taken = 0;
        while taken < max && self.left_count > 0 {
            let Some(mut frame) = self.spare.next() else { break };
            let index = frame.index() as usize;
            let Some(place) = frame.bytes().get_mut(HEADROOM_BYTES..HEADROOM_BYTES + len) else {
                break;
            };
            if !std::mem::replace(&mut self.is_filled[index], true) {
                place.copy_from_slice(&self.frame);
            }
            place[len - NUMBER_BYTES..].copy_from_slice(&self.number.to_be_bytes());
            self.number = self.number.wrapping_add(1);
            self.left_count -= 1;
            each(frame, HEADROOM_BYTES, len);
            taken += 1;
        }
        taken
    }
}

#[derive(Debug)]
pub(super) struct MemorySender<'p> {
    /// Left, and not reclaimed yet.
    held: Vec<Taken<'p>>,
    counts: Arc<MemoryCounts>,
    number: u32,
}

impl<'p> MemorySender<'p> {
    pub(super) fn post(&mut self, mut frame: Taken<'p>, offset: usize, len: usize) {
        let bytes = frame.bytes().get(offset..offset + len).unwrap_or_default();
        if let Some(number) = bytes.last_chunk::<NUMBER_BYTES>() {
            let number = u32::from_be_bytes(*number);
            let is_late = number.wrapping_sub(self.number) > u32::MAX / 2;
            self.counts.reordered_count.fetch_add(u64::from(is_late), Ordering::Relaxed);
            self.number = number;
        }
        self.counts.frame_count.fetch_add(1, Ordering::Release);
        self.held.push(frame);
    }

    pub(super) fn reap(&mut self, frames: &mut Vec<Taken<'p>>) -> usize {
        let count = self.held.len();
        frames.append(&mut self.held);
        count
    }
}

/// A port that gives `frame_count` copies of a frame, and counts what is sent on it.
///
/// - `frame`: at least 64 bytes; its last four become the number of each copy.
pub fn open_memory_port<'p>(
    pool: &'p Pool,
    frame: &[u8],
    frame_count: u64,
) -> (Port<'p>, Arc<MemoryCounts>) {
    let counts = Arc::new(MemoryCounts::default());
    let receiver = MemoryReceiver {
        spare: Spare::new(pool),
        frame: frame.to_vec(),
        is_filled: vec![false; pool.frame_count() as usize],
        left_count: frame_count,
        number: 0,
    };
    let sender = MemorySender { held: Vec::new(), counts: counts.clone(), number: 0 };
    let rx = PortRx::new(vec![Receiver::Memory(Box::new(receiver))]);
    (Port { filter: None, rx, tx: PortTx(Sender::Memory(sender)) }, counts)
}
