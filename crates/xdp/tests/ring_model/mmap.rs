//! Replacement of `crate::mmap` under the model checker.

use std::mem::offset_of;
use std::ptr::NonNull;

use crate::SIZE;
use crate::checked::{AtomicU32, Cell};

#[derive(Debug)]
struct Memory {
    producer: AtomicU32,
    consumer: AtomicU32,
    flags: AtomicU32,
    slots: [Cell<u64>; SIZE as usize],
}

/// Byte offsets of producer index, consumer index, flags and slots.
pub(crate) const PLACES: [usize; 4] = [
    offset_of!(Memory, producer),
    offset_of!(Memory, consumer),
    offset_of!(Memory, flags),
    offset_of!(Memory, slots),
];

/// Memory of one ring.
#[derive(Debug)]
pub(crate) struct Mapping(Box<Memory>);

impl Mapping {
    /// Start value of both indexes.
    pub(crate) fn starting_at(index: u32) -> Self {
        Mapping(Box::new(Memory {
            producer: AtomicU32::new(index),
            consumer: AtomicU32::new(index),
            flags: AtomicU32::new(0),
            slots: std::array::from_fn(|_| Cell(loom::cell::UnsafeCell::new(u64::MAX))),
        }))
    }

    pub(crate) fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset + len <= size_of::<Memory>(), "outside the memory");
        let base = NonNull::from(&*self.0).cast::<u8>();
        // SAFETY: the offset lies in the memory, checked above.
        unsafe { base.add(offset) }
    }
}
