//! Sending: TX ring and completion ring of a socket.

use std::os::fd::AsFd;

use libc::xdp_desc;

use super::{FRAGMENTS_MAX, Socket, frame_bytes};
use crate::XskError;
use crate::bind::{absent, system};
use crate::metadata::{SendRequest, SentFrame};
use crate::os;
use crate::umem::Owner;

impl Socket {
    /// Posts up to `want` packets of `len_bytes`, each written by `fill`; returns how many. The next
    /// [`kick`](Self::kick) sends them. If fewer were posted, ring or frames are used up: kick, reap
    /// and retry.
    ///
    /// Errors: a packet longer than the most fragments hold, or longer than one frame on a socket
    /// without multi-buffer.
    pub fn tx_post(
        &mut self,
        want: usize,
        len_bytes: usize,
        mut fill: impl FnMut(&mut [u8]),
    ) -> Result<usize, XskError> {
        if len_bytes > self.packet_bytes_max() {
            return self.tx_post_fragmented(want, len_bytes, fill);
        }
        let mut posted = 0;
        let room = self.tx.room(want as u32) as usize;
        while posted < want.min(room) {
            let Some(frame) = self.ledger.take_free(Owner::Sending) else { break };
            let addr = self.packet_address(frame);
            let len = len_bytes as u32;
            fill(frame_bytes(&self.frames, addr, len));
            if self.tx.push(xdp_desc { addr, len, options: 0 }).is_err() {
                self.ledger.pass(frame, Owner::Sending, Owner::Free);
                break;
            }
            posted += 1;
        }
        if posted > 0 {
            self.tx.publish();
        }
        Ok(posted)
    }

    fn tx_post_fragmented(
        &mut self,
        want: usize,
        len_bytes: usize,
        mut fill: impl FnMut(&mut [u8]),
    ) -> Result<usize, XskError> {
        let packet_bytes_max = self.packet_bytes_max();
        let needed = len_bytes.div_ceil(packet_bytes_max);
        let most = if self.bind.multi_buffer { FRAGMENTS_MAX } else { 1 };
        if needed > most {
            let frame_bytes = self.frames.umem.frame_bytes;
            return Err(XskError::TooLong { len_bytes, needed, frame_bytes, most });
        }
        let mut posted = 0;
        self.scratch.resize(len_bytes, 0);
        while posted < want
            && self.tx.room(needed as u32) as usize >= needed
            && self.ledger.free_count() >= needed
        {
            fill(&mut self.scratch);
            for (n, part) in self.scratch.chunks(packet_bytes_max).enumerate() {
                let Some(frame) = self.ledger.take_free(Owner::Sending) else { break };
                let offset = u64::from(self.frames.umem.tx_metadata_bytes());
                let addr = u64::from(frame) * u64::from(self.frames.umem.frame_bytes) + offset;
                let len = part.len() as u32;
                frame_bytes(&self.frames, addr, len).copy_from_slice(part);
                let options = if n + 1 < needed { libc::XDP_PKT_CONTD } else { 0 };
                // Room for all fragments was seen above, and this is the only producer.
                let pushed = self.tx.push(xdp_desc { addr, len, options });
                debug_assert!(pushed.is_ok());
            }
            posted += 1;
        }
        if posted > 0 {
            self.tx.publish();
        }
        Ok(posted)
    }

    /// Bytes of a packet that one frame holds.
    pub fn packet_bytes_max(&self) -> usize {
        (self.frames.umem.frame_bytes - self.frames.umem.tx_metadata_bytes()) as usize
    }

    /// Address of a packet to be sent in a frame: behind the room for requests.
    fn packet_address(&self, frame: u32) -> u64 {
        let base = u64::from(frame) * u64::from(self.frames.umem.frame_bytes);
        base + u64::from(self.frames.umem.tx_metadata_bytes())
    }

    /// Posts one packet of `len_bytes`, written by `fill`, with requests to the device; returns the number of its
    /// frame, by which [`tx_reap_with`](Self::tx_reap_with) reports it. `None` if ring or frames are used up.
    ///
    /// Errors: [`XskError::Request`] if the UMEM has no [room](crate::SendMetadata) for requests, or the checksum is
    /// outside the packet; [`XskError::TooLong`] for more than one frame.
    pub fn tx_post_request(
        &mut self,
        len_bytes: usize,
        request: &SendRequest,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Option<u32>, XskError> {
        if self.requests.is_empty() {
            let why = "the UMEM has no room for it; allocate it with FrameMemory::send_metadata";
            return Err(XskError::Request { why });
        }
        if request.checksum.is_some_and(|checksum| !checksum.fits(len_bytes)) {
            return Err(XskError::Request { why: "the checksum is outside the packet" });
        }
        if len_bytes > self.packet_bytes_max() {
            let needed = len_bytes.div_ceil(self.packet_bytes_max());
            let frame_bytes = self.frames.umem.frame_bytes;
            return Err(XskError::TooLong { len_bytes, needed, frame_bytes, most: 1 });
        }
        if self.tx.room(1) == 0 {
            return Ok(None);
        }
        let Some(frame) = self.ledger.take_free(Owner::Sending) else { return Ok(None) };
        let metadata = request.to_bytes();
        let (addr, len) = (self.packet_address(frame), len_bytes as u32);
        fill(frame_bytes(&self.frames, addr, len));
        let front = addr - metadata.len() as u64;
        frame_bytes(&self.frames, front, metadata.len() as u32).copy_from_slice(&metadata);
        self.requests.post(frame, *request);
        // Room was seen above, and this is the only producer.
        let pushed = self.tx.push(xdp_desc { addr, len, options: libc::XDP_TX_METADATA });
        debug_assert!(pushed.is_ok());
        self.tx.publish();
        Ok(Some(frame))
    }

    /// Reclaims frames that were sent; returns how many.
    pub fn tx_reap(&mut self) -> usize {
        self.tx_reap_with(|_| {})
    }

    /// As [`tx_reap`](Self::tx_reap), with the answers to requests.
    #[inline]
    pub fn tx_reap_with(&mut self, mut each: impl FnMut(SentFrame)) -> usize {
        let ready = self.completion.ready(self.bind.ring_entries);
        let frame_size = u64::from(self.frames.umem.frame_bytes);
        for _ in 0..ready {
            let Some(addr) = self.completion.take() else { break };
            let Ok(frame) = u32::try_from(self.frames.umem.place_of(addr) / frame_size) else {
                self.ledger.violation();
                continue;
            };
            let stamp_ns = if self.requests.is_empty() || !self.ledger.is_sending(frame) {
                None
            } else {
                let metadata_bytes = self.frames.umem.tx_metadata_bytes();
                let base = u64::from(frame) * frame_size;
                self.requests.complete(frame, frame_bytes(&self.frames, base, metadata_bytes))
            };
            if self.ledger.pass(frame, Owner::Sending, Owner::Free) {
                each(SentFrame { frame, stamp_ns });
            }
        }
        if ready > 0 {
            self.completion.release();
        }
        ready as usize
    }

    /// Descriptors posted for sending that the kernel has not taken yet.
    pub fn tx_pending(&mut self) -> usize {
        self.tx.outstanding() as usize
    }

    /// Frames posted for sending that have not been reaped.
    pub fn tx_in_flight(&self) -> usize {
        self.ledger.balance().sending_count as usize
    }

    /// Notifies the kernel, if it needs a notification, that there are frames to send. Returns false
    /// if it must be called again.
    ///
    /// Errors: the device is gone.
    pub fn kick(&mut self) -> Result<bool, XskError> {
        if self.bind.need_wakeup && !self.tx.needs_wakeup() {
            return Ok(true);
        }
        self.wakeup_count += 1;
        os::wake_sender(self.fd.as_fd()).map_err(|source| match source.raw_os_error() {
            Some(libc::ENXIO | libc::ENODEV) => absent(&self.bind, "a send", source),
            _ => system(&self.bind, "sendto", source),
        })
    }
}
