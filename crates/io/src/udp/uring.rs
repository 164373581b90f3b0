//! A UDP socket that receives through io_uring; it sends as without.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use sys::udp::Batch;
use sys::uring::{BUFFERS_MAX, DatagramRing};

use super::{POLL_TIMEOUT, UdpEngine, bundle};
use crate::engine::{Arrival, Echoed, Engine, EngineReport, Wait};
use crate::error::IoError;

/// Fewest buffers.
const BUFFERS_MIN: usize = 64;

/// Receives by one multishot request, whose completions carry the datagrams.
#[derive(Debug)]
pub struct UringEngine {
    udp: UdpEngine,
    /// `None` once finished.
    ring: Option<DatagramRing>,
    /// Longest wait: zero for a spinning receiver.
    timeout: Duration,
    batch: usize,
    /// Copies of datagrams to return, where several go by one call.
    answers: Option<Batch>,
}

impl UringEngine {
    pub(crate) fn over(udp: UdpEngine) -> Result<Self, IoError> {
        let spec = &udp.spec;
        let batch = spec.batch.max(1);
        let slot_bytes = if spec.gso { 65_536 } else { udp.payload_bytes.max(64) };
        // Room for four batches; of long buffers only one.
        let wanted = if spec.gso { BUFFERS_MIN } else { (4 * batch).max(BUFFERS_MIN) };
        let buffers = wanted.next_power_of_two().min(BUFFERS_MAX.into()) as u16;
        let ring = DatagramRing::new(udp.as_fd(), buffers, slot_bytes).map_err(|e| {
            udp.system("io_uring (Linux 6.1; sysctl kernel.io_uring_disabled=0)", e)
        })?;
        let answers = if batch > 1 || spec.gso {
            Some(Batch::new(batch, slot_bytes).map_err(|e| udp.system("memory", e))?)
        } else {
            None
        };
        let timeout = if spec.wait == Wait::Spin { Duration::ZERO } else { POLL_TIMEOUT };
        Ok(UringEngine { ring: Some(ring), timeout, batch, answers, udp })
    }
}

/// A socket's error that was passing counts as nothing received.
fn passed<T: Default>(udp: &mut UdpEngine, result: io::Result<T>) -> Result<T, IoError> {
    match result {
        Err(e) if udp.passing(&e) => Ok(T::default()),
        Err(e) => Err(udp.system("io_uring_enter", e)),
        Ok(value) => Ok(value),
    }
}

impl Engine for UringEngine {
    fn rx_take(&mut self, each: &mut impl FnMut(Arrival<'_>)) -> Result<usize, IoError> {
        let UringEngine { udp, ring: Some(ring), .. } = self else { return Ok(0) };
        let mut taken = 0;
        let got = ring.receive(self.batch, self.timeout, &mut |received| {
            udp.count_overflow(received.overflow_count);
            taken += bundle::take(received, each);
        });
        passed(udp, got)?;
        Ok(taken)
    }

    fn nap(&mut self, timeout: Duration) -> Result<(), IoError> {
        let UringEngine { udp, ring: Some(ring), .. } = self else { return Ok(()) };
        udp.reap_pinned()?;
        let waited = ring.wait(timeout);
        passed(udp, waited).map(|_| ())
    }

    fn tx_post(
        &mut self,
        flow: usize,
        want: usize,
        fill: &mut impl FnMut(&mut [u8]),
    ) -> Result<usize, IoError> {
        self.udp.tx_post(flow, want, fill)
    }

    fn echo(
        &mut self,
        answer: &mut impl FnMut(&mut Arrival<'_>) -> Option<u32>,
    ) -> Result<Echoed, IoError> {
        let UringEngine { udp, ring: Some(ring), answers, .. } = self else {
            return Ok(Echoed::default());
        };
        let mut echoed = Echoed::default();
        let (mut slots, mut failed) = (0, None);
        let got = ring.receive(self.batch, self.timeout, &mut |received| {
            udp.count_overflow(received.overflow_count);
            let mut received = received;
            let (from, len) = (received.from, received.bytes.len());
            let segment = received.segment_bytes.max(1);
            let (count, is_ours) = bundle::answer(&mut received, answer);
            echoed.taken += count;
            if !is_ours {
                return;
            }
            echoed.returned += count;
            match answers {
                Some(answers) => {
                    answers.payload(slots)[..len].copy_from_slice(received.bytes);
                    let cut = if len > segment { segment as u16 } else { 0 };
                    answers.set(slots, len, Some(from), cut);
                    slots += 1;
                }
                None => {
                    let sent = udp.send_back(received.bytes, from);
                    failed = failed.take().or(sent.err());
                }
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        passed(udp, got)?;
        if let Some(answers) = answers {
            udp.send_run(answers, 0..slots)?;
        }
        Ok(echoed)
    }

    fn finish(&mut self) -> EngineReport {
        let mut report = self.udp.finish();
        let Some(ring) = self.ring.take() else { return report };
        report.syscall_count += ring.enter_count;
        report.mode.push(("receives by".into(), "io_uring, multishot".into()));
        report.counters.extend([
            ("uring_enter_count".into(), ring.enter_count),
            ("uring_request_count".into(), ring.request_count),
            ("uring_no_buffer_count".into(), ring.no_buffer_count),
        ]);
        report
    }
}
