//! The ring that the kernel fills with the records of an event, and its records.
//!
//! Source: perf_event_open(2); include/uapi/linux/perf_event.h.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use libbpf_sys::perf_event_mmap_page as Page;

use crate::mmap::{Mapping, SharedWords};

/// Ring of an event, which is open as long as this lives.
#[derive(Debug)]
pub(crate) struct PerfRing {
    event: OwnedFd,
    words: SharedWords,
    data_offset: usize,
    data_bytes: u64,
    tail: u64,
}

/// A record; times and numbers of its body are of the byte order of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PerfRecord<'a> {
    pub(crate) kind: u32,
    pub(crate) misc: u16,
    pub(crate) body: &'a [u8],
}

const ENABLE: libc::c_ulong = 0x2400;
const DISABLE: libc::c_ulong = 0x2401;

impl PerfRing {
    /// Maps the ring of an event.
    ///
    /// - `ring_bytes`: a power of two, at least a page.
    pub(crate) fn map(event: OwnedFd, ring_bytes: usize) -> io::Result<PerfRing> {
        // SAFETY: no pointer is passed.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page_bytes = usize::try_from(page_bytes).unwrap_or(4096);
        // The first page describes the ring.
        let mapping = Mapping::of_fd(event.as_fd(), page_bytes + ring_bytes.max(page_bytes), 0)?;
        let len_bytes = mapping.len_bytes();
        let words = SharedWords::new(mapping, len_bytes);
        let [data_offset, data_bytes] =
            [offset_of!(Page, data_offset), offset_of!(Page, data_size)]
                .map(|at| words.word64(at).load(Ordering::Relaxed));
        let fits = data_offset.checked_add(data_bytes).is_some_and(|end| end <= len_bytes as u64);
        if !fits
            || !data_bytes.is_power_of_two()
            || !data_offset.is_multiple_of(8)
            || data_bytes < 8
        {
            return Err(io::Error::other("the kernel gave a ring outside of its mapping"));
        }
        Ok(PerfRing { event, words, data_offset: data_offset as usize, data_bytes, tail: 0 })
    }

    pub(crate) fn enable(&self) -> io::Result<()> {
        self.control(ENABLE)
    }

    pub(crate) fn disable(&self) -> io::Result<()> {
        self.control(DISABLE)
    }

    fn control(&self, what: libc::c_ulong) -> io::Result<()> {
        // SAFETY: the request takes a number.
        let rc = unsafe { libc::ioctl(self.event.as_raw_fd(), what as _, 0) };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Copies the whole records in the ring, and gives their room back.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        // Acquire: the kernel has written the records before the index that covers them.
        let head = self.words.word64(offset_of!(Page, data_head)).load(Ordering::Acquire);
        let len_bytes = head.wrapping_sub(self.tail).min(self.data_bytes);
        let words = (0..len_bytes / 8).map(|word| {
            let at = self.tail.wrapping_add(word * 8) & (self.data_bytes - 1);
            self.words.word64(self.data_offset + at as usize).load(Ordering::Relaxed)
        });
        let bytes = words.flat_map(u64::to_ne_bytes).collect();
        self.tail = head;
        // Release: the records have been read before the kernel may overwrite them.
        self.words.word64(offset_of!(Page, data_tail)).store(head, Ordering::Release);
        bytes
    }
}

/// Records of a ring, up to the first one that is cut or has a length that none has.
pub(crate) fn records(mut bytes: &[u8]) -> impl Iterator<Item = PerfRecord<'_>> {
    const HEADER_BYTES: usize = 8;
    std::iter::from_fn(move || {
        let (header, _) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let [kind @ .., m0, m1, s0, s1] = *header;
        let len_bytes = usize::from(u16::from_ne_bytes([s0, s1]));
        if !len_bytes.is_multiple_of(8) {
            return None;
        }
        let body = bytes.get(HEADER_BYTES..len_bytes)?;
        bytes = &bytes[len_bytes..];
        Some(PerfRecord {
            kind: u32::from_ne_bytes(kind),
            misc: u16::from_ne_bytes([m0, m1]),
            body,
        })
    })
}
