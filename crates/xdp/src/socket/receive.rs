//! Receiving: fill ring and RX ring of a socket.

use libc::xdp_desc;

use super::{Socket, Then, frame_bytes};
use crate::Frames;
use crate::metadata::{MetadataKey, RX_METADATA_BYTES, RxMetadata};
use crate::umem::Owner;

/// Frames missing from the fill ring before it is refilled.
const FILL_BATCH: u32 = 64;

impl Socket {
    /// Refills the fill ring to its target; returns how many frames were posted.
    ///
    /// Does nothing while only a few are missing: each publication takes the ring's cache line from
    /// the kernel's CPU.
    pub fn rx_post(&mut self) -> usize {
        let missing = self.bind.fill_target.saturating_sub(self.receiving);
        if missing < FILL_BATCH.min(self.bind.fill_target / 4).max(1) {
            return 0;
        }
        let want = missing.min(self.fill.room(missing));
        let mut posted = 0;
        while posted < want {
            let Some(frame) = self.ledger.take_free(Owner::Receiving) else { break };
            let addr = u64::from(frame) * u64::from(self.frames.umem.frame_bytes);
            if self.fill.push(addr).is_err() {
                self.ledger.pass(frame, Owner::Receiving, Owner::Free);
                break;
            }
            posted += 1;
        }
        if posted > 0 {
            self.receiving += posted;
            self.fill.publish();
        }
        posted as usize
    }

    /// Takes up to `max` packets; returns how many. `each` gets a packet's first frame (the whole
    /// packet unless it spans frames) and its length in bytes, may edit it, and returns its
    /// disposition.
    ///
    /// The next [`kick`](Self::kick) sends packets of [`Then::Send`].
    pub fn rx_take(&mut self, max: usize, each: impl FnMut(&mut [u8], usize) -> Then) -> usize {
        self.rx_take_from(0, max, each)
    }

    /// As [`rx_take`](Self::rx_take); the slice begins `front_bytes` before the packet, with what an XDP
    /// program wrote there by `bpf_xdp_adjust_meta`.
    pub fn rx_take_from(
        &mut self,
        front_bytes: u32,
        max: usize,
        mut each: impl FnMut(&mut [u8], usize) -> Then,
    ) -> usize {
        self.take_packets(max, |frames, first, total| {
            let front = u64::from(front_bytes);
            let has_front = first.addr % u64::from(frames.umem.frame_bytes) >= front;
            // Without the bytes it is not the program's frame.
            if !has_front {
                return Then::Release;
            }
            each(frame_bytes(frames, first.addr - front, first.len + front_bytes), total)
        })
    }

    /// As [`rx_take`](Self::rx_take); each packet comes with its metadata, if the XDP program with this key
    /// wrote some.
    pub fn rx_take_with_metadata(
        &mut self,
        key: MetadataKey,
        max: usize,
        mut each: impl FnMut(Option<RxMetadata>, &mut [u8], usize) -> Then,
    ) -> usize {
        self.take_packets(max, |frames, first, total| {
            let offset = first.addr % u64::from(frames.umem.frame_bytes);
            let front = (offset as usize).min(RX_METADATA_BYTES);
            let bytes = frame_bytes(frames, first.addr - front as u64, first.len + front as u32);
            let (front, packet) = bytes.split_at_mut(front);
            each(RxMetadata::take(front, key), packet, total)
        })
    }

    /// Takes up to `max` packets; `each` gets the first descriptor of a packet and its length in bytes.
    #[inline]
    fn take_packets(
        &mut self,
        max: usize,
        mut each: impl FnMut(&Frames, &xdp_desc, usize) -> Then,
    ) -> usize {
        let waiting = self.rx.ready(max as u32);
        self.rx_waiting_max = self.rx_waiting_max.max(waiting);
        let ready = waiting.min(max as u32);
        if ready == 0 {
            return 0;
        }
        let mut packet_count = 0;
        let mut sent = false;
        for _ in 0..ready {
            let Some(mut desc) = self.rx.take() else { break };
            self.receiving = self.receiving.saturating_sub(1);
            let place = self.frames.umem.place_of(desc.addr);
            self.offset_count += u64::from(place != desc.addr);
            desc.addr = place;
            let Some(frame) = self.received_frame(&desc) else {
                self.ledger.violation();
                continue;
            };
            if !self.ledger.pass(frame, Owner::Receiving, Owner::Held) {
                continue;
            }
            self.fragments.push(desc);
            if desc.options & libc::XDP_PKT_CONTD != 0 {
                continue;
            }
            let total = self.fragments.iter().map(|d| d.len as usize).sum();
            let then = each(&self.frames, &self.fragments[0], total);
            packet_count += 1;
            sent |= self.settle(then);
        }
        self.rx.release();
        if sent {
            self.tx.publish();
        }
        packet_count
    }

    /// Sends or frees the fragments of one packet; returns true if they were queued for sending.
    fn settle(&mut self, then: Then) -> bool {
        let count = self.fragments.len() as u32;
        let send = then == Then::Send && self.tx.room(count) >= count;
        if then == Then::Send && !send {
            self.tx_full_count += 1;
        }
        for desc in self.fragments.drain(..) {
            let frame = (desc.addr / u64::from(self.frames.umem.frame_bytes)) as u32;
            let pushed = send && self.tx.push(desc).is_ok();
            let to = if pushed { Owner::Sending } else { Owner::Free };
            self.ledger.pass(frame, Owner::Held, to);
        }
        send
    }

    /// Frame of a descriptor; `None` if it is out of range.
    fn received_frame(&self, desc: &xdp_desc) -> Option<u32> {
        let frame_bytes = u64::from(self.frames.umem.frame_bytes);
        let offset = desc.addr % frame_bytes;
        let fits = offset + u64::from(desc.len) <= frame_bytes;
        let frame = desc.addr / frame_bytes;
        (fits && frame < u64::from(self.frames.umem.frame_count)).then_some(frame as u32)
    }
}
