//! Live frames from BPF_PROG_TEST_RUN: a load that user space cannot generate.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::drop::sequence_offset;
use super::error::BpfError;
use super::interface::Interface;
use super::link::TraceLink;
use super::object::{Loaded, Opened, embedded, map_error, read_single, shared_types, write_single};

mod types {
    super::shared_types!("generator");
}

/// Counters of a [`Generator`], in frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GeneratorCounts {
    /// Generated and numbered.
    pub attempted: u64,
    /// Taken by the target, or received by loopback.
    pub sent: u64,
}

impl GeneratorCounts {
    /// Frames refused by the target: the peer's ring was full, or the target is down.
    pub fn refused(&self) -> u64 {
        self.attempted.saturating_sub(self.sent)
    }
}

/// Fields of a [`Generator`]'s frames that change, beside the sequence number; by default none.
///
/// Flows and lengths need a template of Ethernet without tags, IPv4 without options, and UDP.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GeneratorMarks {
    /// Position of the send time (64 bits, big endian, CLOCK_MONOTONIC nanoseconds).
    pub stamp_offset: Option<usize>,
    /// Frames of several flows, which take turns.
    pub flows: Option<Flows>,
    /// Bytes of the frames from the Ethernet header on, which take turns, at most [`LENGTHS_MAX`]; the
    /// template has the greatest length. Empty: all frames have the length of the template.
    pub lengths: Vec<u16>,
    /// Frames become socket buffers that loopback of the namespace receives, where a program takes them; the
    /// target receives none.
    pub into_loopback: bool,
}

/// Flows of a [`Generator`], told apart by their UDP source port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flows {
    /// 1 to 256.
    pub count: u16,
    /// Position of the flow's number, 8 bits.
    pub offset: usize,
    /// UDP source port of the first flow; the others follow.
    pub port: u16,
}

/// Most lengths of [`GeneratorMarks`].
pub const LENGTHS_MAX: usize = 16;

fn invalid_frame(what: String) -> BpfError {
    BpfError::Invalid { what }
}

impl GeneratorMarks {
    /// Checks them against a template. The result lacks the sequence number, the target and the namespace.
    fn config(&self, template: &[u8], number_at: usize) -> Result<types::config, BpfError> {
        let len = template.len();
        if self.stamp_offset.is_some_and(|at| at.saturating_add(size_of::<u64>()) > len) {
            return Err(invalid_frame(format!("no room for a time in a frame of {len} bytes")));
        }
        if (self.flows.is_some() || !self.lengths.is_empty()) && !is_plain_udp(template) {
            let what =
                "flows and lengths need a template of Ethernet, IPv4 without options, and UDP";
            return Err(invalid_frame(what.into()));
        }
        if let Some(Flows { count, offset, port }) = self.flows
            && (!(1..=256).contains(&count)
                || port.checked_add(count - 1).is_none()
                || offset >= len)
        {
            return Err(invalid_frame(format!(
                "{count} flows from port {port}, numbered at offset {offset}, do not fit; give 1 to 256, \
                 ports up to 65535, and an offset within the {len} bytes of the frame"
            )));
        }
        let marks_end = number_at.saturating_add(size_of::<u32>()).max(HEADERS_BYTES);
        if self.lengths.len() > LENGTHS_MAX
            || !self.lengths.iter().all(|length| (marks_end..=len).contains(&usize::from(*length)))
        {
            return Err(invalid_frame(format!(
                "lengths {:?}: give at most {LENGTHS_MAX} between {marks_end} and {len}",
                self.lengths
            )));
        }
        let mut lengths = [0; LENGTHS_MAX];
        lengths.iter_mut().zip(&self.lengths).for_each(|(to, length)| *to = *length);
        let flows = self.flows.unwrap_or(Flows { count: 1, offset: 0, port: 0 });
        Ok(types::config {
            sequence_offset_bytes: 0,
            target_ifindex: 0,
            stamp_offset_bytes: sequence_offset(self.stamp_offset.unwrap_or(0))?,
            flow_offset_bytes: sequence_offset(flows.offset)?,
            flow_count: flows.count.into(),
            port: flows.port.into(),
            length_count: self.lengths.len() as u32,
            pid_namespace_device: 0,
            pid_namespace_inode: 0,
            into_loopback: self.into_loopback.into(),
            lengths,
        })
    }
}

/// Ethernet, IPv4 and UDP.
const HEADERS_BYTES: usize = ETHERNET_BYTES + 20 + 8;

fn is_plain_udp(template: &[u8]) -> bool {
    let byte = |offset: usize| template.get(ETHERNET_BYTES + offset).copied();
    template.len() >= HEADERS_BYTES
        && template[ETHERNET_BYTES - 2..ETHERNET_BYTES] == [0x08, 0x00]
        && (byte(0), byte(9)) == (Some(0x45), Some(17))
}

/// Sends copies of one frame out of an interface, from inside the kernel.
///
/// Every frame carries a running sequence number. One thread runs it; on a veth the receiver's
/// work is done on the same CPU, between batches.
///
/// The frames are recycled and only the sequence number is written on each
/// pass: a receiver that changes frames in place (a forwarder that counts down
/// the TTL, an echo that swaps addresses) changes the template's later copies.
///
/// A veth whose peer has no XDP program and no GRO takes no redirected frame: [`Self::run`] fails
/// after the first batch. See [`super::PassProgram`].
#[derive(Debug)]
pub struct Generator {
    // Before the object. Traces the target's return codes.
    _answers: TraceLink,
    program: OwnedFd,
    state: MapHandle,
    template: Vec<u8>,
    target: Interface,
    counts: GeneratorCounts,
    last_error: i64,
    gap_ps: u64,
    part_ns: (u64, u64),
    _loaded: Loaded,
}

impl Generator {
    /// Largest batch that the kernel takes, in frames.
    pub const BATCH_MAX: u32 = 256;

    /// Default batch: half of a veth's ring (256 entries). Larger ones are no faster and find the
    /// ring full now and then.
    pub const BATCH: u32 = 128;

    /// Makes a generator of `template`, a whole frame with its Ethernet header, into an interface of
    /// this thread's network namespace.
    ///
    /// - `sequence_offset_bytes`: position of the sequence number (32 bits, big endian, from 0).
    ///
    /// A UDP checksum in the template must be 0, because it is not updated.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON;
    /// [`BpfError::NoInterface`]; [`BpfError::Invalid`] if the sequence number does not fit the
    /// frame.
    pub fn new(
        template: &[u8],
        target_ifindex: u32,
        sequence_offset_bytes: usize,
    ) -> Result<Self, BpfError> {
        Self::of_marks(template, target_ifindex, sequence_offset_bytes, &GeneratorMarks::default())
    }

    /// As [`Self::new`], with more that changes from frame to frame.
    ///
    /// # Errors
    /// As of [`Self::new`], and [`BpfError::Invalid`] if a mark does not fit the frame.
    pub fn of_marks(
        template: &[u8],
        target_ifindex: u32,
        sequence_offset_bytes: usize,
        marks: &GeneratorMarks,
    ) -> Result<Self, BpfError> {
        let offset = sequence_offset(sequence_offset_bytes)?;
        if template.len() < ETHERNET_BYTES
            || sequence_offset_bytes + size_of::<u32>() > template.len()
        {
            return Err(BpfError::Invalid {
                what: format!(
                    "a sequence number at offset {sequence_offset_bytes} does not fit a frame of \
                     {} bytes",
                    template.len()
                ),
            });
        }
        let target = Interface::read(target_ifindex);
        let (device, inode) = own_pid_namespace()
            .map_err(|source| BpfError::Run { interface: target.clone(), source })?;
        let config = types::config {
            sequence_offset_bytes: offset,
            target_ifindex,
            pid_namespace_device: device,
            pid_namespace_inode: inode,
            ..marks.config(template, sequence_offset_bytes)?
        };
        let loaded = Opened::open("generator", embedded!("generator"))?.config(&config)?.load()?;

        let key = 0_u32.to_ne_bytes();
        loaded
            .handle("target")?
            .update(&key, &target_ifindex.to_ne_bytes(), MapFlags::ANY)
            .map_err(|why| match why.kind() {
                // The map update looks the interface up: EINVAL means that there is none.
                libbpf_rs::ErrorKind::InvalidInput => BpfError::NoInterface {
                    ifindex: target_ifindex,
                    source: io::Error::new(io::ErrorKind::NotFound, why),
                },
                _ => map_error("target", "written", why),
            })?;
        let answers = loaded.attach_trace("generator_xmit", target_ifindex)?;
        let program = loaded
            .program("generator")?
            .as_fd()
            .try_clone_to_owned()
            .map_err(|source| BpfError::Run { interface: target.clone(), source })?;
        Ok(Generator {
            _answers: answers,
            program,
            state: loaded.handle(".bss")?,
            template: template.to_vec(),
            target,
            counts: GeneratorCounts::default(),
            last_error: 0,
            gap_ps: 0,
            part_ns: (0, 0),
            _loaded: loaded,
        })
    }

    /// Sends `frames` frames in batches of `batch` (1 to [`Self::BATCH_MAX`]). Returns the time from
    /// the first generated frame to the last one taken by the target.
    ///
    /// The call itself takes longer: at the end of a run the kernel sleeps until it has reclaimed
    /// all frames (22 ms on Linux 6.18, whatever their number). The returned time excludes it;
    /// prefer long runs.
    ///
    /// A signal ends the run early; see [`Self::counts`]. Call it on a thread in the target's
    /// network namespace.
    ///
    /// # Errors
    /// [`BpfError::TargetRefuses`] if the target took no frame at all; [`BpfError::Run`] if the
    /// kernel refuses (frame too long, batch too large).
    pub fn run(&mut self, frames: u32, batch: u32) -> Result<Duration, BpfError> {
        if batch == 0 || batch > Self::BATCH_MAX {
            return Err(BpfError::Invalid {
                what: format!("a batch is 1 to {} frames, not {batch}", Self::BATCH_MAX),
            });
        }
        let mut sending = Duration::ZERO;
        let mut left = frames;
        while left > 0 {
            // One batch first, to check that the target takes frames at all.
            let part = if self.counts.sent == 0 { left.min(batch) } else { left };
            let part = part.min(i32::MAX.unsigned_abs());
            self.trace_thread(own_thread())?;
            let ended_early = self.run_part(part, batch);
            self.part_ns = self.trace_thread(0)?;
            sending += Duration::from_nanos(self.part_ns.1 - self.part_ns.0);
            if ended_early? {
                break;
            }
            self.check_taken()?;
            left -= part;
        }
        Ok(sending)
    }

    /// Sets the rate of further runs. The kernel spins until each frame is due; a batch is sent when
    /// its last frame is generated.
    ///
    /// - `rate_pps`: frames a second; 0 for full speed.
    pub fn set_rate(&mut self, rate_pps: f64) {
        let gap_ps = if rate_pps > 0.0 { 1e12 / rate_pps } else { 0.0 };
        self.gap_ps = gap_ps as u64;
    }

    /// Counters over all runs.
    pub fn counts(&self) -> GeneratorCounts {
        self.counts
    }

    /// Frames that the target took, over all runs.
    pub fn sent(&self) -> u64 {
        self.counts.sent
    }

    /// CLOCK_MONOTONIC nanoseconds of the first frame and of the last bulk taken, in the last run without the batch
    /// that may precede it.
    pub fn sent_ns(&self) -> (u64, u64) {
        self.part_ns
    }

    /// The sequence number that the next frame will carry; wraps.
    pub fn next_sequence(&self) -> u32 {
        self.counts.attempted as u32
    }

    /// Returns true if a signal ended the run.
    fn run_part(&self, frames: u32, batch: u32) -> Result<bool, BpfError> {
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            data_in: self.template.as_ptr().cast(),
            data_size_in: self.template.len() as u32,
            repeat: frames as i32,
            flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
            batch_size: batch,
            ..Default::default()
        };
        // SAFETY: `options` lives through the call and says its own size; the
        // kernel only reads the template, whose length is given.
        let answer = unsafe {
            libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut options)
        };
        match -answer {
            0 => Ok(false),
            libc::EINTR => Ok(true),
            code => Err(BpfError::Run {
                interface: self.target.clone(),
                source: io::Error::from_raw_os_error(code),
            }),
        }
    }

    /// Reads the counters and restricts further counting to `thread`. Returns when the run that ended began and
    /// stopped to send.
    fn trace_thread(&mut self, thread: u64) -> Result<(u64, u64), BpfError> {
        let run: types::run = read_single(&self.state)?;
        let types::run { attempted, sent, last_error, .. } = run;
        self.counts = GeneratorCounts { attempted, sent };
        self.last_error = last_error;
        let (gap_ps, begun) = (self.gap_ps, attempted);
        let next = types::run { thread, first_ns: 0, last_ns: 0, gap_ps, begun, ..run };
        write_single(&self.state, &next)?;
        Ok((run.first_ns, run.last_ns.max(run.first_ns)))
    }

    fn check_taken(&self) -> Result<(), BpfError> {
        if self.counts.attempted == 0 || self.counts.sent > 0 {
            return Ok(());
        }
        // 0 if the redirect failed before the driver.
        let code = i32::try_from(self.last_error.unsigned_abs()).unwrap_or(libc::EIO);
        Err(BpfError::TargetRefuses {
            interface: self.target.clone(),
            source: (code != 0).then(|| io::Error::from_raw_os_error(code)),
        })
    }
}

const ETHERNET_BYTES: usize = 14;

/// Device and inode of the namespace in which [`own_thread`] is numbered.
fn own_pid_namespace() -> io::Result<(u32, u32)> {
    let namespace = std::fs::metadata("/proc/self/ns/pid")?;
    let device = u32::try_from(namespace.dev()).map_err(io::Error::other)?;
    let inode = u32::try_from(namespace.ino()).map_err(io::Error::other)?;
    Ok((device, inode))
}

fn own_thread() -> u64 {
    // SAFETY: no argument; cannot fail.
    let thread = unsafe { libc::gettid() };
    u64::from(thread.unsigned_abs())
}
