//! Interfaces of a device: guest memory on one side, a network on the other.

use std::cell::RefCell;

use crate::offload::OffloadHeader;

/// A DMA transfer to no memory: the range is outside guest memory, or the guest has
/// not allowed bus mastering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no guest memory for {len_bytes} bytes at {at:#x}")]
pub struct BusError {
    /// First bus address of the transfer.
    pub at: u32,
    /// Length in bytes.
    pub len_bytes: usize,
}

/// Guest memory as the device's 32-bit bus sees it.
///
/// Every address and length comes from the guest: an implementation checks each, in release
/// builds too, and touches nothing when the range does not fit whole. The guest may write the
/// memory at the same time.
pub trait GuestMemory {
    /// Copies `into.len()` bytes from bus address `at`.
    fn read(&self, at: u32, into: &mut [u8]) -> Result<(), BusError>;

    /// Copies `from` to bus address `at`.
    fn write(&self, at: u32, from: &[u8]) -> Result<(), BusError>;

    /// Loads a little-endian word. Acquire: what the guest wrote before it stored the word is
    /// visible after. `at` is a multiple of 4.
    fn load_u32(&self, at: u32) -> Result<u32, BusError>;

    /// Stores a little-endian word. Release: all that was written before is visible to a guest
    /// that sees the word. `at` is a multiple of 4.
    fn store_u32(&self, at: u32, value: u32) -> Result<(), BusError>;

    /// Loads a little-endian half word, as [`Self::load_u32`]. `at` is a multiple of 2.
    fn load_u16(&self, at: u32) -> Result<u16, BusError> {
        Ok((self.load_u32(at & !3)? >> (8 * (at & 2))) as u16)
    }
}

impl<M: GuestMemory + ?Sized> GuestMemory for &M {
    fn read(&self, at: u32, into: &mut [u8]) -> Result<(), BusError> {
        (**self).read(at, into)
    }

    fn write(&self, at: u32, from: &[u8]) -> Result<(), BusError> {
        (**self).write(at, from)
    }

    fn load_u32(&self, at: u32) -> Result<u32, BusError> {
        (**self).load_u32(at)
    }

    fn store_u32(&self, at: u32, value: u32) -> Result<(), BusError> {
        (**self).store_u32(at, value)
    }
}

/// Result of receiving a frame from the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reception {
    /// In guest memory, whole or with an error that its descriptor tells.
    Stored,
    /// Not for this station.
    Filtered,
    /// For this station, and lost: no descriptor, no memory, or longer than any wire allows.
    Lost,
    /// The receiver is off or has no buffer; the frame may be offered again.
    Off,
}

/// Result of sending a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// On its way, or lost as a wire loses frames.
    Taken,
    /// No room just now: the descriptor stays the device's, and the frame comes again.
    Busy,
}

/// Answer of a back end that is offered a part of guest memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    /// The back end has it until it returns it.
    Taken,
    /// No room just now.
    Busy,
    /// No guest memory, or a length that no wire carries.
    Refused,
}

/// A back end that has guest memory itself, so that frames are not copied. All addresses are those of a frame's
/// first byte.
pub trait InPlace {
    /// Posts a frame to send.
    fn post_send(&mut self, at: u32, len_bytes: u32) -> Posted;

    /// Takes a frame that was sent.
    fn take_sent(&mut self) -> Option<u32>;

    /// Posts a place to receive a frame into, with room for 1,514 bytes.
    fn post_receive(&mut self, at: u32) -> Posted;

    /// Takes a received frame: address and length.
    fn take_received(&mut self) -> Option<(u32, u32)>;

    /// Withdraws all places to receive into, and forgets what arrived.
    fn cancel(&mut self);
}

/// The network side.
pub trait NetworkSide {
    /// Sends one frame, from the destination address to the last byte before the check sequence.
    fn send(&mut self, frame: &[u8]) -> Sent;

    /// Sends one frame, with the work that `header` leaves to this side. Only a card whose owner has it offer offloads
    /// calls this, so a wire that carries none need not implement it.
    fn send_offloaded(&mut self, _header: &OffloadHeader, frame: &[u8]) -> Sent {
        self.send(frame)
    }

    /// The side that has guest memory; `None` if frames are copied.
    fn in_place(&mut self) -> Option<&mut dyn InPlace> {
        None
    }
}

impl<W: NetworkSide + ?Sized> NetworkSide for &mut W {
    fn send(&mut self, frame: &[u8]) -> Sent {
        (**self).send(frame)
    }

    fn send_offloaded(&mut self, header: &OffloadHeader, frame: &[u8]) -> Sent {
        (**self).send_offloaded(header, frame)
    }

    fn in_place(&mut self) -> Option<&mut dyn InPlace> {
        (**self).in_place()
    }
}

/// Both sides, for one operation of the device.
#[derive(Debug)]
pub struct Bus<'a, M, W> {
    /// Guest memory.
    pub memory: &'a M,
    /// Network.
    pub wire: &'a mut W,
}

/// Guest memory from address 0 in a plain vector: for tests, without a guest that runs.
#[derive(Debug)]
pub struct PlainMemory {
    bytes: RefCell<Vec<u8>>,
    access_count: RefCell<u64>,
}

impl PlainMemory {
    /// `len_bytes` of zeros.
    pub fn new(len_bytes: usize) -> Self {
        PlainMemory { bytes: RefCell::new(vec![0; len_bytes]), access_count: RefCell::new(0) }
    }

    /// Accesses since the last call, failed ones included.
    pub fn take_access_count(&self) -> u64 {
        self.access_count.take()
    }

    fn with<R>(
        &self,
        at: u32,
        len_bytes: usize,
        body: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, BusError> {
        *self.access_count.borrow_mut() += 1;
        let start = at as usize;
        let end = start.checked_add(len_bytes);
        let mut bytes = self.bytes.borrow_mut();
        let range = end.and_then(|end| bytes.get_mut(start..end));
        range.map(body).ok_or(BusError { at, len_bytes })
    }
}

impl GuestMemory for PlainMemory {
    fn read(&self, at: u32, into: &mut [u8]) -> Result<(), BusError> {
        self.with(at, into.len(), |bytes| into.copy_from_slice(bytes))
    }

    fn write(&self, at: u32, from: &[u8]) -> Result<(), BusError> {
        self.with(at, from.len(), |bytes| bytes.copy_from_slice(from))
    }

    fn load_u32(&self, at: u32) -> Result<u32, BusError> {
        let mut word = [0; 4];
        self.read(at, &mut word)?;
        Ok(u32::from_le_bytes(word))
    }

    fn store_u32(&self, at: u32, value: u32) -> Result<(), BusError> {
        self.write(at, &value.to_le_bytes())
    }
}
