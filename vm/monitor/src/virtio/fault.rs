//! Violations of the specification by a driver, after which the device needs a reset.

use crate::bus::BusError;

/// A rule that a driver broke. The device stops, and says DEVICE_NEEDS_RESET.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DriverFault {
    /// A part of a ring or a buffer is outside guest memory.
    #[error(transparent)]
    Memory(#[from] BusError),
    /// An address needs more than 32 bits, beyond any memory of this machine.
    #[error("address {0:#x} is beyond guest memory")]
    Address(u64),
    /// Size or alignment of a queue is not allowed.
    #[error("queue {queue} has {size} descriptors, or a part that is not aligned")]
    Layout {
        /// Number of the queue.
        queue: u16,
        /// Its descriptors.
        size: u32,
    },
    /// The available index is further ahead than the ring is long.
    #[error("available index {index} with {next} processed")]
    Index {
        /// The driver's index.
        index: u16,
        /// The device's next.
        next: u16,
    },
    /// A descriptor number is outside its table.
    #[error("descriptor {0} is outside the table")]
    Descriptor(u32),
    /// A chain is longer than the queue, so it loops.
    #[error("a chain has more than {0} descriptors")]
    Loop(u16),
    /// A table of descriptors that is not negotiated, nested, chained or of a wrong length.
    #[error("an indirect table of {len_bytes} bytes is not allowed here")]
    Table {
        /// Length of the table.
        len_bytes: u32,
    },
    /// A buffer has the wrong direction for its queue.
    #[error("a buffer of queue {queue} has the wrong direction")]
    Direction {
        /// Number of the queue.
        queue: u16,
    },
    /// A frame, its room or its header is not in one piece, which a card without copies needs.
    #[error("a frame or its header is not in one piece, or a buffer has no room for a whole frame")]
    Pieces,
    /// A command has no room for its answer.
    #[error("a command of {0} buffers has no room for its answer")]
    Answer(usize),
    /// A frame to send is shorter than its header.
    #[error("{0} bytes are shorter than a frame's header")]
    Header(u64),
}
