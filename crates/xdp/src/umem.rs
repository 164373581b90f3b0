//! UMEM: the frames that an AF_XDP socket shares with the kernel, and the ledger of their owners.

use std::io;
use std::sync::Arc;

use crate::metadata::SendMetadata;
use crate::mmap::Mapping;

/// Memory of all frames; registered with the kernel by the first socket on it.
#[derive(Debug)]
pub(crate) struct Umem {
    pub(crate) area: Mapping,
    pub(crate) frame_bytes: u32,
    /// Chunk size of the kernel: a whole frame, or a page of it.
    pub(crate) chunk_bytes: u32,
    chunks: u32,
    pub(crate) frame_count: u32,
    memory: FrameMemory,
}

/// Memory of a UMEM's frames and their places in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameMemory {
    /// Huge pages of 2 MiB, which the machine must have reserved.
    pub huge_pages: bool,
    /// XDP_UMEM_UNALIGNED_CHUNK_FLAG: frames of any multiple of 64 bytes lie side by side, across pages too.
    pub unaligned: bool,
    /// Room for requests in front of frames to be sent.
    pub send_metadata: SendMetadata,
}

/// Divisor of a frame's size in unaligned mode: a cache line, so that no two frames share one.
const UNALIGNED_STEP_BYTES: u32 = 64;

/// Largest chunk that the kernel accepts: a page.
///
/// Source: xdp_umem_reg(), net/xdp/xdp_umem.c.
pub(crate) const CHUNK_BYTES_MAX: u32 = 4096;
const CHUNKS_MAX: u32 = 4;

impl Umem {
    /// Frames of 2048 bytes, or of one to four chunks of 4096.
    ///
    /// Errors: `InvalidInput` for other sizes, no frames, or 4 GiB and more; errors of mmap.
    pub(crate) fn allocate(frame_bytes: u32, frame_count: u32) -> io::Result<Umem> {
        Umem::allocate_in(FrameMemory::default(), frame_bytes, frame_count)
    }

    /// As [`Umem::allocate`]; unaligned frames have 2048 to 4096 bytes, a multiple of 64.
    fn allocate_in(memory: FrameMemory, frame_bytes: u32, frame_count: u32) -> io::Result<Umem> {
        let chunks = frame_bytes / CHUNK_BYTES_MAX;
        let whole =
            frame_bytes.is_multiple_of(CHUNK_BYTES_MAX) && (1..=CHUNKS_MAX).contains(&chunks);
        let fits_unaligned = memory.unaligned
            && (2048..=CHUNK_BYTES_MAX).contains(&frame_bytes)
            && frame_bytes.is_multiple_of(UNALIGNED_STEP_BYTES);
        if !(frame_bytes == 2048 || whole || fits_unaligned) || frame_count == 0 {
            let sizes = if memory.unaligned {
                format!("2048 to {CHUNK_BYTES_MAX}, a multiple of {UNALIGNED_STEP_BYTES}")
            } else {
                format!("2048, or one to {CHUNKS_MAX} times {CHUNK_BYTES_MAX}")
            };
            let what = format!(
                "UMEM of {frame_count} frames of {frame_bytes} bytes: frames must be of {sizes} \
                 bytes, and at least one"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        if frame_count.checked_mul(frame_bytes).is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "UMEM above 4 GiB"));
        }
        let len_bytes = frame_count as usize * frame_bytes as usize;
        let area = if memory.huge_pages {
            Mapping::huge(len_bytes)?
        } else {
            Mapping::anonymous(len_bytes)?
        };
        let chunk_bytes = frame_bytes.min(CHUNK_BYTES_MAX);
        let chunks = frame_bytes / chunk_bytes;
        Ok(Umem { area, frame_bytes, chunk_bytes, chunks, frame_count, memory })
    }

    pub(crate) fn chunks(&self) -> u32 {
        self.chunks
    }

    pub(crate) fn flags(&self) -> u32 {
        let unaligned = if self.memory.unaligned { libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG } else { 0 };
        unaligned | self.memory.send_metadata.umem_flags()
    }

    pub(crate) fn send_metadata(&self) -> SendMetadata {
        self.memory.send_metadata
    }

    /// Bytes in front of each frame to be sent.
    pub(crate) fn tx_metadata_bytes(&self) -> u32 {
        self.memory.send_metadata.room_bytes()
    }

    /// Place in the UMEM of an address that the kernel names; it may be out of range. In unaligned mode
    /// the upper 16 bits are the packet's offset in its frame.
    #[inline]
    pub(crate) fn place_of(&self, addr: u64) -> u64 {
        if self.memory.unaligned {
            (addr & libc::XSK_UNALIGNED_BUF_ADDR_MASK)
                + (addr >> libc::XSK_UNALIGNED_BUF_OFFSET_SHIFT)
        } else {
            addr
        }
    }

    #[inline]
    pub(crate) fn chunk_shift(&self) -> u32 {
        self.chunk_bytes.trailing_zeros()
    }

    /// Number of the frame that contains an address; it may be out of range.
    ///
    /// By shifts: a division by a variable takes tens of cycles, and there were four a frame.
    #[inline]
    pub(crate) fn index_of(&self, addr: u64) -> u32 {
        // An address too large leads to a number that no frame has: a UMEM is below 4 GiB, a quarter of the largest
        // number is far above that of its last frame.
        let chunk = u32::try_from(addr >> self.chunk_shift()).unwrap_or(u32::MAX);
        match self.chunks {
            1 => chunk,
            2 => chunk / 2,
            3 => chunk / 3,
            _ => chunk / CHUNKS_MAX,
        }
    }
}

/// One socket's share of a UMEM; shares never overlap.
#[derive(Debug)]
pub struct Frames {
    pub(crate) umem: Arc<Umem>,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Frames {
    /// Allocates one UMEM and splits it in `shares` equal shares of `count` frames of
    /// `frame_bytes` (2048 or 4096: a power of two, at most a page).
    pub fn allocate(frame_bytes: u32, count: u32, shares: u32) -> io::Result<Vec<Frames>> {
        Frames::allocate_in(FrameMemory::default(), frame_bytes, count, shares)
    }

    /// As [`Frames::allocate`], in the given memory; unaligned frames have 2048 to 4096 bytes, a multiple
    /// of 64.
    pub fn allocate_in(
        memory: FrameMemory,
        frame_bytes: u32,
        count: u32,
        shares: u32,
    ) -> io::Result<Vec<Frames>> {
        if frame_bytes > CHUNK_BYTES_MAX {
            let what = format!(
                "UMEM of {shares} x {count} frames of {frame_bytes} bytes: frames must be of at most \
                 {CHUNK_BYTES_MAX} bytes"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let frame_count = count
            .checked_mul(shares)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "UMEM above 4 GiB"))?;
        let umem = Arc::new(Umem::allocate_in(memory, frame_bytes, frame_count)?);
        Ok((0..shares).map(|n| Frames { umem: umem.clone(), first: n * count, count }).collect())
    }

    /// Size of the pages that hold the frames, in bytes; `None` if the kernel does not tell.
    pub fn page_bytes(&self) -> Option<usize> {
        self.umem.area.page_bytes()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Owner {
    Free,
    /// The kernel, to receive into (fill ring, device, or RX ring before it is read).
    Receiving,
    /// The kernel, to send (TX ring, or completion ring before it is read).
    Sending,
    /// User space, holding a received frame.
    Held,
}

/// Frames of a share by owner. Balanced if every frame has exactly one owner and the kernel never
/// returned one that it did not own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LedgerBalance {
    /// All frames of the share.
    pub frame_count: u64,
    /// Unused.
    pub free_count: u64,
    /// Owned by the kernel, to receive into.
    pub receiving_count: u64,
    /// Owned by the kernel, to be sent.
    pub sending_count: u64,
    /// Received and not freed yet.
    pub held_count: u64,
    /// Frames returned by the kernel that it did not own, or with bad addresses.
    pub violation_count: u64,
}

impl std::ops::AddAssign for LedgerBalance {
    fn add_assign(&mut self, other: Self) {
        self.frame_count += other.frame_count;
        self.free_count += other.free_count;
        self.receiving_count += other.receiving_count;
        self.sending_count += other.sending_count;
        self.held_count += other.held_count;
        self.violation_count += other.violation_count;
    }
}

impl LedgerBalance {
    /// True if no frame was lost or duplicated.
    pub fn balances(&self) -> bool {
        let owned = self.free_count + self.receiving_count + self.sending_count + self.held_count;
        owned == self.frame_count && self.violation_count == 0
    }
}

/// Ownership of every frame of a share, and the stack of free ones.
#[derive(Debug)]
pub(crate) struct Ledger {
    first: u32,
    owners: Vec<Owner>,
    free: Vec<u32>,
    violation_count: u64,
}

impl Ledger {
    pub(crate) fn new(first: u32, count: u32) -> Self {
        Ledger {
            first,
            owners: vec![Owner::Free; count as usize],
            // The top of the stack is the lowest frame, so that a lightly loaded socket keeps reusing
            // the same few cache lines.
            free: (first..first + count).rev().collect(),
            violation_count: 0,
        }
    }

    pub(crate) fn free_count(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn take_free(&mut self, to: Owner) -> Option<u32> {
        let frame = self.free.pop()?;
        self.owners[(frame - self.first) as usize] = to;
        Some(frame)
    }

    /// True for a frame of this share that the kernel has to send.
    pub(crate) fn is_sending(&self, frame: u32) -> bool {
        let owner = self.owners.get(frame.wrapping_sub(self.first) as usize);
        owner == Some(&Owner::Sending)
    }

    /// Moves a frame from owner `from` to `to`. Refuses and counts it if `from` is not the owner, so
    /// that a frame is never in use twice.
    pub(crate) fn pass(&mut self, frame: u32, from: Owner, to: Owner) -> bool {
        let owner = self.owners.get_mut(frame.wrapping_sub(self.first) as usize);
        match owner {
            Some(owner) if *owner == from => {
                *owner = to;
                if to == Owner::Free {
                    self.free.push(frame);
                }
                true
            }
            _ => {
                self.violation_count += 1;
                false
            }
        }
    }

    pub(crate) fn violation(&mut self) {
        self.violation_count += 1;
    }

    pub(crate) fn balance(&self) -> LedgerBalance {
        let count = |owner| self.owners.iter().filter(|o| **o == owner).count() as u64;
        LedgerBalance {
            frame_count: self.owners.len() as u64,
            // From the stack, not the owners: the two must agree to balance.
            free_count: self.free.len() as u64,
            receiving_count: count(Owner::Receiving),
            sending_count: count(Owner::Sending),
            held_count: count(Owner::Held),
            violation_count: self.violation_count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_given_back_twice_is_a_violation_and_stays_single() {
        let mut ledger = Ledger::new(8, 4);
        let frame = ledger.take_free(Owner::Sending).unwrap();
        assert!(ledger.pass(frame, Owner::Sending, Owner::Free));
        assert!(!ledger.pass(frame, Owner::Sending, Owner::Free));
        let balance = ledger.balance();
        assert_eq!((balance.free_count, balance.violation_count), (4, 1));
        assert!(!balance.balances());
    }

    #[test]
    fn a_frame_of_another_share_is_a_violation() {
        let mut ledger = Ledger::new(8, 4);
        assert!(!ledger.pass(7, Owner::Receiving, Owner::Free));
        assert!(!ledger.pass(12, Owner::Receiving, Owner::Free));
        assert_eq!(ledger.balance().violation_count, 2);
    }

    #[test]
    fn shares_do_not_overlap() {
        let shares = Frames::allocate(2048, 16, 3).unwrap();
        let ranges: Vec<_> = shares.iter().map(|s| s.first..s.first + s.count).collect();
        assert_eq!(ranges, [0..16, 16..32, 32..48]);
        assert_eq!(shares[2].page_bytes(), Some(4096), "ordinary pages");
        assert!(Frames::allocate(1000, 16, 1).is_err());
        assert!(Frames::allocate(4096, u32::MAX, 2).is_err());
    }

    #[test]
    fn the_offset_above_bit_48_leads_into_the_frame_of_an_unaligned_address() {
        let unaligned = FrameMemory { unaligned: true, ..FrameMemory::default() };
        let umem = Umem::allocate_in(unaligned, 2112, 64).unwrap();
        assert_eq!(umem.flags(), libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG);
        for frame in 0..64_u64 {
            let base = frame * 2112;
            for offset in [0, 1, 256, 2111] {
                let place = umem.place_of(base | (offset << 48));
                assert_eq!((place / 2112, place % 2112), (frame, offset));
            }
        }
        // The kernel is not trusted: no address overflows.
        assert_eq!(umem.place_of(u64::MAX), (1 << 48) - 1 + 0xffff);
        let aligned = Umem::allocate(2048, 64).unwrap();
        assert_eq!((aligned.flags(), aligned.place_of(256 << 48)), (0, 256 << 48));
    }

    #[test]
    fn only_unaligned_frames_may_have_sizes_between_the_powers_of_two() {
        let unaligned = FrameMemory { unaligned: true, ..FrameMemory::default() };
        for frame_bytes in [2048, 2112, 3008, 4032, 4096] {
            assert!(Frames::allocate_in(unaligned, frame_bytes, 4, 1).is_ok(), "{frame_bytes}");
            let aligned = Frames::allocate(frame_bytes, 4, 1).is_ok();
            assert_eq!(aligned, frame_bytes.is_power_of_two(), "{frame_bytes}");
        }
        for frame_bytes in [0, 64, 1984, 2049, 2100, 4160, 8192] {
            assert!(Frames::allocate_in(unaligned, frame_bytes, 4, 1).is_err(), "{frame_bytes}");
        }
    }

    #[test]
    fn each_address_of_a_frame_of_one_to_four_chunks_leads_to_its_number() {
        for frame_bytes in [2048, 4096, 2 * 4096, 3 * 4096, 4 * 4096] {
            let umem = Umem::allocate(frame_bytes, 13).unwrap();
            assert!(umem.area.len_bytes() >= 13 * frame_bytes as usize);
            let wanted = (frame_bytes.min(4096), frame_bytes.div_ceil(4096));
            assert_eq!((umem.chunk_bytes, umem.chunks()), wanted);
            assert_eq!(1 << umem.chunk_shift(), umem.chunk_bytes);
            for addr in 0..13 * u64::from(frame_bytes) {
                let frame = u32::try_from(addr / u64::from(frame_bytes)).unwrap();
                assert_eq!(umem.index_of(addr), frame, "{addr} of frames of {frame_bytes}");
            }
            // The kernel is not trusted: no address beyond leads into the UMEM.
            let end = 13 * u64::from(frame_bytes);
            for addr in [end, end + 1, 1 << 32, (1 << 44) - 1, 1 << 44, u64::MAX] {
                assert!(umem.index_of(addr) >= 13, "{addr}");
            }
        }
    }

    #[test]
    fn four_gigabytes_no_frames_and_other_sizes_are_refused() {
        let refused = |frame_bytes, frame_count| {
            let error = Umem::allocate(frame_bytes, frame_count).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            error.to_string()
        };
        for (frame_bytes, frame_count) in
            [(4096, 1 << 20), (2048, 1 << 21), (4 * 4096, 1 << 18), (4096, u32::MAX)]
        {
            assert_eq!(refused(frame_bytes, frame_count), "UMEM above 4 GiB");
        }
        for (frame_bytes, frame_count) in
            [(4096, 0), (0, 4), (1024, 4), (5 * 4096, 4), (3 * 2048, 4), (2112, 4)]
        {
            let error = refused(frame_bytes, frame_count);
            assert!(error.contains("2048, or one to 4 times 4096"), "{error}");
        }
        for (count, shares) in [(0, 1), (1, 0), (1 << 31, 2), (1 << 10, 1 << 10)] {
            assert!(Frames::allocate(4096, count, shares).is_err(), "{count} x {shares}");
        }
        assert!(Frames::allocate(2 * 4096, 4, 1).is_err(), "a share has frames of a page at most");
    }

    #[test]
    fn balance_counts_the_frames_of_each_owner_and_the_lowest_is_taken_first() {
        let mut ledger = Ledger::new(8, 5);
        let owners = [Owner::Receiving, Owner::Sending, Owner::Held, Owner::Receiving];
        let taken: Vec<u32> = owners.map(|owner| ledger.take_free(owner).unwrap()).into();
        assert_eq!((taken, ledger.free_count()), (vec![8, 9, 10, 11], 1));
        assert!(ledger.pass(8, Owner::Receiving, Owner::Held));
        let balance = ledger.balance();
        let counts = LedgerBalance {
            frame_count: 5,
            free_count: 1,
            receiving_count: 1,
            sending_count: 1,
            held_count: 2,
            violation_count: 0,
        };
        assert_eq!(balance, counts);
        assert!(balance.balances());
        ledger.violation();
        assert!(!ledger.balance().balances());
        for lost in [
            LedgerBalance { free_count: 0, ..counts },
            LedgerBalance { receiving_count: 0, ..counts },
            LedgerBalance { sending_count: 2, ..counts },
            LedgerBalance { held_count: 3, ..counts },
        ] {
            assert!(!lost.balances(), "{lost:?}");
        }
        let mut sum = counts;
        sum += LedgerBalance { held_count: 3, violation_count: 3, ..counts };
        let summed = LedgerBalance {
            frame_count: 10,
            free_count: 2,
            receiving_count: 2,
            sending_count: 2,
            held_count: 5,
            violation_count: 3,
        };
        assert_eq!(sum, summed);
        assert!(ledger.take_free(Owner::Held).is_some());
        assert_eq!((ledger.take_free(Owner::Held), ledger.free_count()), (None, 0));
    }
}
