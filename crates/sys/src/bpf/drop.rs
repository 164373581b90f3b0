//! Receiver that counts and drops, at XDP or tcx.

use libbpf_rs::MapHandle;

use super::XdpMode;
use super::error::BpfError;
use super::link::XdpProgram;
use super::object::{Opened, embedded, per_cpu, shared_types};

mod types {
    super::shared_types!("drop");
}

/// Longest beginning of a frame that is compared.
pub const HEAD_BYTES_MAX: usize = 64;

/// Two versions of the bytes that every frame begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    pub versions: [[u8; HEAD_BYTES_MAX]; 2],
    /// How many of them are compared, at most [`HEAD_BYTES_MAX`]. A frame of fewer than that maximum
    /// does not match.
    pub len: usize,
}

/// Settings of a [`DropCounter`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DropSpec {
    /// Accept frames of more than one buffer (jumbo in native mode).
    pub frags: bool,
    /// Byte offset of a running sequence number in the frame (32 bits, big endian, from 0);
    /// `None` disables the check. All frames must arrive on one receive queue.
    pub sequence_offset: Option<usize>,
    /// Value of the four bytes before the number; 0 for any. Frames with another value are
    /// counted as strays only.
    pub tag: u32,
    /// Byte offset of the send time in the frame (64 bits, big endian, CLOCK_MONOTONIC
    /// nanoseconds); `None` measures no delay.
    pub stamp_offset: Option<usize>,
    /// Byte offset of the flow's number (8 bits): the order is checked within each flow. Sequence numbers
    /// ascend over all flows. `None` for one flow.
    pub flow_offset: Option<usize>,
    /// Beginnings of which a frame has one; `None` compares nothing.
    pub heads: Option<Heads>,
}

/// Counters of a [`DropCounter`] since it was loaded, over all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DropCounts {
    pub frames: u64,
    /// Bytes from the Ethernet header on, without the frame check sequence.
    pub bytes: u64,
    /// Frames whose sequence number was not one more than the one before; 0 when not checked.
    pub sequence_breaks: u64,
    /// Frames with a number below the highest before them that had not come yet (RFC 4737
    /// section 3.3); 0 when not checked.
    pub reordered: u64,
    /// Frames with a number that had come before, among the last 65,536; 0 when not checked.
    pub duplicated: u64,
    /// Frames without the tag.
    pub strays: u64,
    /// Flows that frames came from; 0 when the sequence is not checked.
    pub flows: u64,
    /// Frames that begin with neither of [`DropSpec::heads`]; 0 when not compared.
    pub malformed: u64,
}

/// Program that counts every frame and drops it.
#[derive(Debug)]
pub struct DropCounter {
    program: XdpProgram,
    counts: MapHandle,
    delays: MapHandle,
}

/// Histogram of frame delays: 16 buckets for each power of two, so that a bucket is at most a
/// sixteenth of its value wide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DelayCounts {
    /// Frames by bucket.
    buckets: Vec<u64>,
}

const DELAY_BUCKETS: usize = 704;

impl DelayCounts {
    pub fn frame_count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Difference from an earlier reading.
    pub fn since(&self, earlier: &DelayCounts) -> DelayCounts {
        let change = |(now, then): (&u64, &u64)| now.saturating_sub(*then);
        DelayCounts { buckets: self.buckets.iter().zip(&earlier.buckets).map(change).collect() }
    }

    /// Delay that a share of the frames does not exceed, in nanoseconds: the upper end of its
    /// bucket. `None` without frames.
    ///
    /// - `share`: 0.0 to 1.0; 1.0 for the largest.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let wanted = (self.frame_count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.buckets.iter().enumerate().find_map(|(bucket, count)| {
            seen += count;
            (seen >= wanted).then(|| delay_ns_max(bucket))
        })
    }
}

/// Largest delay of a bucket.
fn delay_ns_max(bucket: usize) -> u64 {
    let (power, rest) = (bucket as u64 / 16, bucket as u64 % 16);
    match power {
        0 => rest,
        _ => ((16 + rest + 1) << (power - 1)) - 1,
    }
}

impl DropCounter {
    /// Loads the program; nothing is attached yet.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF and CAP_NET_ADMIN,
    /// [`BpfError::Invalid`] for an offset beyond any frame, [`BpfError::Load`] otherwise.
    pub fn load(spec: &DropSpec) -> Result<Self, BpfError> {
        let offset = sequence_offset(spec.sequence_offset.unwrap_or(0))?;
        let words = |bytes: &[u8; HEAD_BYTES_MAX]| {
            let (words, _) = bytes.as_chunks();
            std::array::from_fn(|word| u64::from_ne_bytes(words[word]))
        };
        let (versions, head_bytes) = match spec.heads {
            Some(heads) => (heads.versions, heads.len),
            None => ([[0; HEAD_BYTES_MAX]; 2], 0),
        };
        let mask = std::array::from_fn(|at| if at < head_bytes { 0xff } else { 0 });
        let config = types::config {
            heads: [words(&versions[0]), words(&versions[1])],
            head_mask: words(&mask),
            check_heads: spec.heads.is_some().into(),
            sequence_offset_bytes: offset,
            check_sequence: spec.sequence_offset.is_some().into(),
            tag: spec.tag.to_be(),
            stamp_offset_bytes: sequence_offset(spec.stamp_offset.unwrap_or(0))?,
            flow_offset_bytes: sequence_offset(spec.flow_offset.unwrap_or(0))?,
        };
        let opened = Opened::open("drop", embedded!("drop"))?.config(&config)?;
        let loaded = opened.xdp_frags(&["drop"], spec.frags).load()?;
        Ok(DropCounter {
            counts: loaded.handle("counts")?,
            delays: loaded.handle("delays")?,
            program: XdpProgram::new(loaded),
        })
    }

    /// Attaches the program to an interface until [`Self::detach`], drop or the end of the process.
    /// Call it on a thread in the interface's network namespace.
    ///
    /// # Errors
    /// See [`BpfError`]; each names the interface and the remedy.
    pub fn attach(&mut self, ifindex: u32, mode: XdpMode) -> Result<(), BpfError> {
        self.program.attach(ifindex, mode)
    }

    /// As [`Self::attach`], behind the driver: the program gets a socket buffer for each frame.
    ///
    /// # Errors
    /// [`BpfError::Attach`], also on kernels without tcx (before 6.6).
    pub fn attach_tcx(&mut self, ifindex: u32) -> Result<(), BpfError> {
        self.program.attach_tcx("drop_skb", ifindex)
    }

    /// Detaches the program, if it is attached.
    pub fn detach(&mut self) {
        self.program.detach();
    }

    /// Counters since loading.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn counts(&self) -> Result<DropCounts, BpfError> {
        let mut sum = DropCounts::default();
        for cpu in per_cpu::<types::counts>(&self.counts, 0)? {
            sum.frames += cpu.frames;
            sum.bytes += cpu.bytes;
            sum.sequence_breaks += cpu.sequence_breaks;
            sum.reordered += cpu.reordered;
            sum.duplicated += cpu.duplicated;
            sum.strays += cpu.strays;
            sum.flows += cpu.flows;
            sum.malformed += cpu.malformed;
        }
        Ok(sum)
    }

    /// Frames since loading, by the CPU that the program ran on, from CPU 0 on.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn frames_by_cpu(&self) -> Result<Vec<u64>, BpfError> {
        let cpus = per_cpu::<types::counts>(&self.counts, 0)?;
        Ok(cpus.into_iter().map(|cpu| cpu.frames).collect())
    }

    /// Delays of the frames that carried a send time.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn delays(&self) -> Result<DelayCounts, BpfError> {
        let mut buckets = vec![0; DELAY_BUCKETS];
        for cpu in per_cpu::<types::delays>(&self.delays, 0)? {
            buckets.iter_mut().zip(cpu.frames).for_each(|(sum, frames)| *sum += frames);
        }
        Ok(DelayCounts { buckets })
    }
}

/// Largest offset of a packet pointer that the verifier accepts.
const OFFSET_MAX: usize = u16::MAX as usize - size_of::<u64>();

/// Checks an offset that a program will add to the start of a frame.
pub(super) fn sequence_offset(offset: usize) -> Result<u32, BpfError> {
    u32::try_from(offset).ok().filter(|_| offset <= OFFSET_MAX).ok_or_else(|| BpfError::Invalid {
        what: format!("sequence offset {offset} is beyond any frame; give at most {OFFSET_MAX}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_upper_ends_of_their_buckets() {
        // Buckets of drop.bpf.c for 5 ns, 31 ns and 1000 ns.
        let mut buckets = vec![0; DELAY_BUCKETS];
        buckets[5] = 50;
        buckets[16 + 15] = 49;
        // 1000 >> 4 = 62, of six bits; 1000 >> 5 = 31, whose low bits are 15.
        buckets[6 * 16 + 15] = 1;
        let delays = DelayCounts { buckets };
        assert_eq!(delays.quantile_ns(0.5), Some(5));
        assert_eq!(delays.quantile_ns(0.99), Some(31));
        assert_eq!(delays.quantile_ns(1.0), Some(1023));
        assert_eq!(delays.since(&delays).quantile_ns(0.5), None);
    }

    #[test]
    fn buckets_meet_without_a_gap_and_are_a_sixteenth_wide_at_most() {
        for bucket in 1..DELAY_BUCKETS {
            let (below, here) = (delay_ns_max(bucket - 1), delay_ns_max(bucket));
            assert!(here > below && here - below <= (below + 1).div_ceil(16).max(1), "{bucket}");
        }
    }
}
