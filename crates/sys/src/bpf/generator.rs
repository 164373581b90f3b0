//! Live frames from the kernel's test run: a load that user space cannot make.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::drop::sequence_offset;
use super::error::BpfError;
use super::interface::Interface;
use super::object::{Loaded, Opened, embedded, map_error, read_single, to_u64};

/// What a [`Generator`] did since it was made, in frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GeneratorCounts {
    /// Made and given a sequence number.
    pub attempted: u64,
    /// Taken by the target.
    pub sent: u64,
}

impl GeneratorCounts {
    /// Refused by the target: its peer's ring was full, or it is down.
    pub fn refused(&self) -> u64 {
        self.attempted.saturating_sub(self.sent)
    }
}

/// Sends copies of one frame out of an interface, from inside the kernel.
///
/// Every frame carries a running sequence number. One thread drives it; the
/// receiver's work on a veth is done on the same CPU, between batches.
///
/// The frames are recycled and only the sequence number is written on each
/// pass: a receiver that changes frames in place (a forwarder that counts down
/// the TTL, an echo that swaps addresses) changes the template's later copies.
///
/// A veth whose peer has neither an XDP program nor GRO takes no redirected
/// frame at all. [`Self::run`] notices after the first batch and says so; see
/// [`super::PassProgram`].
#[derive(Debug)]
pub struct Generator {
    // Before the object: the tracing of the target's answers.
    _answers: libbpf_rs::Link,
    program: OwnedFd,
    state: MapHandle,
    template: Vec<u8>,
    target: Interface,
    counts: GeneratorCounts,
    last_error: i64,
    gap_ps: u64,
    _loaded: Loaded,
}

impl Generator {
    /// Largest batch that the kernel takes, in frames.
    pub const BATCH_MAX: u32 = 256;

    /// A batch that fits a veth's ring (256 entries) with room to spare. Larger
    /// ones are no faster, and now and then find the ring full.
    pub const BATCH: u32 = 128;

    /// Makes a generator of `template`, a whole frame from the Ethernet header
    /// on, into an interface of this thread's network namespace.
    ///
    /// `sequence_offset` is where in the frame the sequence number goes (32
    /// bits, big endian, from 0 on), in bytes. A UDP checksum in the template
    /// must be 0, as it could not stay right.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON;
    /// [`BpfError::NoInterface`]; [`BpfError::Invalid`] when the sequence number
    /// does not fit the frame.
    pub fn new(
        template: &[u8],
        target_ifindex: u32,
        sequence_offset_bytes: usize,
    ) -> Result<Self, BpfError> {
        Self::with_stamp(template, target_ifindex, sequence_offset_bytes, None)
    }

    /// The same, of frames that carry the time at which they were made.
    ///
    /// - `stamp_offset_bytes`: where it goes (64 bits, big endian, CLOCK_MONOTONIC
    ///   nanoseconds).
    ///
    /// # Errors
    /// As of [`Self::new`].
    pub fn with_stamp(
        template: &[u8],
        target_ifindex: u32,
        sequence_offset_bytes: usize,
        stamp_offset_bytes: Option<usize>,
    ) -> Result<Self, BpfError> {
        let stamp = sequence_offset(stamp_offset_bytes.unwrap_or(0))?;
        if stamp_offset_bytes.is_some_and(|at| at + size_of::<u64>() > template.len()) {
            let what = format!("no room for a time in a frame of {} bytes", template.len());
            return Err(BpfError::Invalid { what });
        }
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
        // struct config of generator.bpf.c.
        let mut config = [0; 12];
        config[..4].copy_from_slice(&offset.to_ne_bytes());
        config[4..8].copy_from_slice(&target_ifindex.to_ne_bytes());
        config[8..].copy_from_slice(&stamp.to_ne_bytes());
        let loaded = Opened::open("generator", embedded!("generator"))?.config(&config)?.load()?;

        let target = Interface::read(target_ifindex);
        let key = 0_u32.to_ne_bytes();
        loaded.map("target")?.update(&key, &target_ifindex.to_ne_bytes(), MapFlags::ANY).map_err(
            |why| match why.kind() {
                // The map looks the interface up and answers EINVAL when there is none.
                libbpf_rs::ErrorKind::InvalidInput => BpfError::NoInterface {
                    ifindex: target_ifindex,
                    source: io::Error::new(io::ErrorKind::NotFound, why),
                },
                _ => map_error("target", "written", why),
            },
        )?;
        let answers =
            loaded.program("generator_xmit")?.attach().map_err(|why| BpfError::Attach {
                program: "generator_xmit",
                interface: target.clone(),
                source: io::Error::other(why),
            })?;
        let program = loaded
            .program("generator")?
            .as_fd()
            .try_clone_to_owned()
            .map_err(|source| BpfError::Run { interface: target.clone(), source })?;
        Ok(Generator {
            _answers: answers,
            program,
            state: loaded.map(".bss")?,
            template: template.to_vec(),
            target,
            counts: GeneratorCounts::default(),
            last_error: 0,
            gap_ps: 0,
            _loaded: loaded,
        })
    }

    /// Sends `frames` frames, `batch` of them at a time (1 to
    /// [`Self::BATCH_MAX`]), and returns how long the sending took: from the
    /// first frame made to the last handed to the target.
    ///
    /// The call itself takes longer: when a run ends, the kernel sleeps until
    /// it has all its frames back (22 ms on Linux 6.18, whatever their number).
    /// That is not in the returned time, and it is why runs should be long.
    ///
    /// A signal ends the run early; [`Self::counts`] tells how far it came. Call
    /// it on a thread in the target's network namespace.
    ///
    /// # Errors
    /// [`BpfError::TargetRefuses`] when not one frame was ever taken,
    /// [`BpfError::Run`] when the kernel refuses (frame too long, too many per
    /// batch).
    pub fn run(&mut self, frames: u32, batch: u32) -> Result<Duration, BpfError> {
        if batch == 0 || batch > Self::BATCH_MAX {
            return Err(BpfError::Invalid {
                what: format!("a batch is 1 to {} frames, not {batch}", Self::BATCH_MAX),
            });
        }
        let mut sending = Duration::ZERO;
        let mut left = frames;
        while left > 0 {
            // The first batch tells whether the target takes frames at all.
            let part = if self.counts.sent == 0 { left.min(batch) } else { left };
            let part = part.min(i32::MAX.unsigned_abs());
            self.trace_thread(own_thread())?;
            let ended_early = self.run_part(part, batch);
            sending += self.trace_thread(0)?;
            if ended_early? {
                break;
            }
            self.check_taken()?;
            left -= part;
        }
        Ok(sending)
    }

    /// Has the runs from now on keep a rate; they wait, in the kernel and with its CPU, for each
    /// frame's time. A batch goes out when its last frame is made.
    ///
    /// - `rate_pps`: frames a second; 0 for as many as can be.
    pub fn set_rate(&mut self, rate_pps: f64) {
        let gap_ps = if rate_pps > 0.0 { 1e12 / rate_pps } else { 0.0 };
        self.gap_ps = gap_ps as u64;
    }

    /// What became of the frames of all runs.
    pub fn counts(&self) -> GeneratorCounts {
        self.counts
    }

    /// Frames that the target took, over all runs.
    pub fn sent(&self) -> u64 {
        self.counts.sent
    }

    /// The sequence number that the next frame will carry; wraps.
    pub fn next_sequence(&self) -> u32 {
        self.counts.attempted as u32
    }

    /// Returns whether a signal ended it.
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

    /// Takes over what was counted, and lets `thread` alone be counted from now
    /// on. Returns how long the run that ended was sending.
    fn trace_thread(&mut self, thread: u64) -> Result<Duration, BpfError> {
        let state = read_single(&self.state)?;
        let mut words = state.chunks_exact(size_of::<u64>()).map(to_u64);
        let run: Run = std::array::from_fn(|_| words.next().unwrap_or_default());
        let [attempted, sent, last_error, _, first_ns, last_ns, ..] = run;
        self.counts = GeneratorCounts { attempted, sent };
        self.last_error = last_error.cast_signed();
        let next: Run = [attempted, sent, last_error, thread, 0, 0, self.gap_ps, attempted];
        let image: Vec<u8> = next.into_iter().flat_map(u64::to_ne_bytes).collect();
        self.state
            .update(&0_u32.to_ne_bytes(), &image, MapFlags::ANY)
            .map_err(|why| map_error(".bss", "written", why))?;
        Ok(Duration::from_nanos(last_ns.saturating_sub(first_ns)))
    }

    fn check_taken(&self) -> Result<(), BpfError> {
        if self.counts.attempted == 0 || self.counts.sent > 0 {
            return Ok(());
        }
        // 0 when the redirect itself failed, so that the driver was not asked.
        let code = i32::try_from(self.last_error.unsigned_abs()).unwrap_or(libc::EIO);
        Err(BpfError::TargetRefuses {
            interface: self.target.clone(),
            source: (code != 0).then(|| io::Error::from_raw_os_error(code)),
        })
    }
}

/// `struct run` of generator.bpf.c: attempted, sent, last error, thread, first and last time, gap,
/// attempted before.
type Run = [u64; 8];

const ETHERNET_BYTES: usize = 14;

fn own_thread() -> u64 {
    // SAFETY: it takes nothing and cannot fail.
    let thread = unsafe { libc::gettid() };
    u64::from(thread.unsigned_abs())
}
