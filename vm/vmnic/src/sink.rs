//! The host's end of a trial: a packet socket that receives and checks the guest's frames.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lab::End;
use model::SequenceCounts;
use sys::packet::PacketRx;
use sys::rusage::ThreadUsage;

/// EtherType for local experiments, which no stack answers.
pub(super) const ETHERTYPE: u16 = 0x88b5;
/// Offset of the sequence number, 8 bytes, big-endian, after the Ethernet header.
pub(super) const SEQUENCE_AT: usize = 14;
/// Captured bytes of each frame: header, sequence number and part of the body.
const SNAP_BYTES: u32 = 64;
/// Room for about 50,000 frames while the sink has no CPU.
const RING_BYTES: usize = 8 << 20;
const BATCH: usize = 256;
const IDLE_TIMEOUT: Duration = Duration::from_millis(5);

/// Byte `i` of the body of every frame.
pub(super) fn body(i: usize) -> u8 {
    (i * 7 + i / 256) as u8
}

/// Received frames.
pub(super) struct SinkReceived {
    /// Sequence numbers of the measured frames, from 0.
    pub(super) book: SequenceCounts,
    /// Frames before the measured part.
    pub(super) warm_up_count: u64,
    /// Frames with wrong length or content.
    pub(super) wrong_count: u64,
    /// Frames that found the ring full, warm-up included.
    pub(super) dropped_count: u64,
    /// The kernel's time stamps of the first and the last measured frame, nanoseconds.
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    pub(super) usage: ThreadUsage,
    pub(super) call_count: u64,
}

/// Reason why the sink received nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum SinkError {
    #[error("cannot enter the network namespace of the lab")]
    Netns(#[source] io::Error),
    #[error("cannot open a packet socket")]
    Socket(#[source] io::Error),
    #[error("cannot receive")]
    Receive(#[source] io::Error),
}

/// The sink's socket.
pub(super) struct Sink {
    ring: PacketRx,
}

impl Sink {
    /// Opens the socket at an end of a lab; the calling thread is in its namespace.
    pub(super) fn open(end: &End) -> io::Result<Self> {
        let ring = PacketRx::open_protocol(end.ifindex, ETHERTYPE, SNAP_BYTES, RING_BYTES)?;
        Ok(Sink { ring })
    }

    /// Receives frames of `size_bytes` until `stop` is set and none is left. The first `warm_up` are not
    /// measured. `seen` is updated with the count of all.
    pub(super) fn receive(
        mut self,
        size_bytes: usize,
        warm_up: u64,
        stop: &AtomicBool,
        seen: &AtomicU64,
    ) -> io::Result<SinkReceived> {
        let expected: Vec<u8> = (0..SNAP_BYTES as usize).map(body).collect();
        let begun = ThreadUsage::now();
        let mut received = SinkReceived {
            book: SequenceCounts::new(),
            warm_up_count: 0,
            wrong_count: 0,
            dropped_count: 0,
            first_ns: 0,
            last_ns: 0,
            usage: ThreadUsage::default(),
            call_count: 0,
        };
        let mut count = 0;
        loop {
            // Read first: frames that arrived before it was set are still received.
            let stopping = stop.load(Ordering::Acquire);
            let taken = self.ring.take(BATCH, |frame, whole_bytes, stamp_ns| {
                received.enter(frame, whole_bytes == size_bytes, stamp_ns, warm_up, &expected);
            });
            count += taken as u64;
            seen.store(count, Ordering::Release);
            if taken == 0 {
                if stopping {
                    break;
                }
                self.ring.wait(IDLE_TIMEOUT)?;
            }
        }
        received.dropped_count = self.ring.statistics()?.drop_count;
        received.usage = ThreadUsage::now().since(&begun);
        received.call_count = self.ring.wait_count;
        Ok(received)
    }
}

impl SinkReceived {
    #[inline]
    fn enter(&mut self, frame: &[u8], whole: bool, stamp_ns: u64, warm_up: u64, expected: &[u8]) {
        const BODY_AT: usize = SEQUENCE_AT + 8;
        let Some(sequence) = frame.get(SEQUENCE_AT..).and_then(|rest| rest.first_chunk()) else {
            self.wrong_count += 1;
            return;
        };
        let right = frame.get(BODY_AT..) == expected.get(BODY_AT..frame.len());
        self.wrong_count += u64::from(!(whole && right));
        match u64::from_be_bytes(*sequence).checked_sub(warm_up) {
            None => self.warm_up_count += 1,
            Some(number) => {
                if self.first_ns == 0 {
                    self.first_ns = stamp_ns;
                }
                self.last_ns = self.last_ns.max(stamp_ns);
                self.book.record(number as u32);
            }
        }
    }
}
