//! Peer arms: a loop on the host that writes the same frames to a back end. The difference to the best arm
//! is the remaining cost of the guest and its device.

use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::rusage::ThreadUsage;

use super::sink::{ETHERTYPE, SEQUENCE_AT, body};
use vmm::Sender;
use vmm::lance::Sent;

/// Frames per pass: enough to make the cost of a call small.
const BATCH: u64 = 16;
/// Sleep when the back end is full: a tick, as in the device.
const FULL_INTERVAL: Duration = Duration::from_millis(1);

/// Result of a loop.
pub(super) struct Ran {
    /// Frames that the back end accepted.
    pub(super) sent_count: u64,
    pub(super) wall_ns: u64,
    pub(super) usage: ThreadUsage,
    pub(super) call_count: u64,
    /// Time asleep because the link was full.
    pub(super) idle_ns: u64,
}

/// Sends for `time` frames of `size_bytes` from the calling thread.
pub(super) fn run(
    sender: &mut dyn Sender,
    destination: [u8; 6],
    source: [u8; 6],
    size_bytes: usize,
    time: Duration,
) -> Ran {
    let mut template: Vec<u8> = (0..size_bytes).map(body).collect();
    template[..6].copy_from_slice(&destination);
    template[6..12].copy_from_slice(&source);
    template[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
    // Copied from one buffer before it is sent, as in the guest's driver.
    let mut frame = template.clone();
    let (begun, begin_ns) = (ThreadUsage::now(), monotonic_ns());
    let end_ns = begin_ns + time.as_nanos() as u64;
    let (mut sequence, mut idle_ns, mut now_ns) = (0u64, 0, begin_ns);
    while now_ns < end_ns {
        let mut full = false;
        for _ in 0..BATCH {
            frame.copy_from_slice(&template);
            frame[SEQUENCE_AT..SEQUENCE_AT + 8].copy_from_slice(&sequence.to_be_bytes());
            if sender.send(&frame) == Sent::Busy {
                full = true;
                break;
            }
            sequence += 1;
        }
        sender.flush();
        now_ns = monotonic_ns();
        if full {
            let before_ns = now_ns;
            std::thread::sleep(FULL_INTERVAL);
            now_ns = monotonic_ns();
            idle_ns += now_ns - before_ns;
        }
    }
    Ran {
        sent_count: sequence,
        wall_ns: now_ns - begin_ns,
        usage: ThreadUsage::now().since(&begun),
        call_count: sender.call_count(),
        idle_ns,
    }
}
