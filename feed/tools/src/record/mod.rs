//! Recording groups as pcapng with the kernel's time stamps.
//!
//! Whole frames are captured by a packet ring, which needs CAP_NET_RAW. Without it, datagrams of the
//! group's sockets are recorded with generated IPv4 and UDP headers.

mod causes;
mod report;

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host::interruptions::{Trace, TraceError};
use host::net::LinkWatch;
use host::output_file;
use io::IoError;
use io::Stamps;
use io::multicast::{FrameTap, Group, GroupReceiver, GroupTuning};
use sys::thread::{ThreadError, start};
use sys::{affinity, clock, poll};

use self::causes::{Causes, explain};
pub use self::report::{RecordDocument, RecordReport};
use super::capture::{CaptureError, CapturedInterface, LinkType, Writer};
use super::late::Now;

/// Longest sleep between checks of the stop flag.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Flush interval, for readers that follow the file.
const FLUSH_INTERVAL_NS: u64 = 1_000_000_000;
/// Interval between checks that the interface still exists.
const LINK_CHECK_INTERVAL_NS: u64 = 100_000_000;
/// Frames per poll of the ring.
const FRAMES: usize = 256;
/// Receive buffer of a recording socket.
const BUFFER_BYTES: usize = 8 << 20;

/// Groups to record, and how.
#[derive(Debug, Clone)]
pub struct RecordPlan {
    /// Groups, all on one interface.
    pub groups: Vec<Group>,
    pub file: PathBuf,
    /// Overwrite an existing file.
    pub overwrite: bool,
    /// Record from sockets even if the packet ring is available, which hands packets over in blocks.
    pub sockets: bool,
    /// Time from the kernel to this program from which a datagram of a socket is late.
    pub late: Option<Duration>,
    /// CPU to run on.
    pub pin: Option<usize>,
    /// Whose time stamps packets carry.
    pub stamps: Stamps,
    /// Duration of the run.
    pub duration: Option<Duration>,
    /// Number of packets to record.
    pub count: Option<u64>,
}

/// Error of a recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    Io(#[from] IoError),
    /// Error of the file format or of writing.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error("{} exists; choose another name, or give --overwrite", path.display())]
    Exists { path: PathBuf },
    #[error("cannot create {}", path.display())]
    Create {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// No group, too many groups, or several interfaces.
    #[error("give one to {} groups, all on one interface", poll::FDS_MAX)]
    Groups,
    #[error("waiting for datagrams failed")]
    Wait(#[source] std::io::Error),
    #[error("cannot run on CPU {cpu}; `nproc` and `taskset -p $$` show the CPUs that may be used")]
    Pin {
        cpu: usize,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Thread(#[from] ThreadError),
}

#[derive(Debug)]
enum Origin {
    Frames(Box<FrameTap>),
    Sockets(Vec<GroupReceiver>),
}

/// An open recording.
#[derive(Debug)]
pub struct Recorder {
    plan: RecordPlan,
    from: Origin,
    writer: Writer<BufWriter<File>>,
    report: RecordReport,
    /// Detects removal: a tap on a removed interface is silent.
    link: Option<LinkWatch>,
    /// Of a recording with a trace.
    causes: Option<Causes>,
}

impl Recorder {
    /// Joins the groups in the calling thread's network namespace and creates the file.
    pub fn open(plan: RecordPlan) -> Result<Self, RecordError> {
        let Some(first) = plan.groups.first() else { return Err(RecordError::Groups) };
        if plan.groups.len() > poll::FDS_MAX
            || plan.groups.iter().any(|group: &Group| group.ifindex != first.ifindex)
        {
            return Err(RecordError::Groups);
        }
        let name = first.ifname.clone();
        let taps = if plan.sockets { None } else { frame_tap(&plan)? };
        let from = match taps {
            Some(tap) => Origin::Frames(Box::new(tap)),
            None => Origin::Sockets(receivers(&plan)?),
        };
        let (link, from_name) = match &from {
            Origin::Frames(_) => (LinkType::Ethernet, "frames"),
            Origin::Sockets(_) => (LinkType::RawIp, "sockets"),
        };
        let file = create(&plan.file, plan.overwrite)?;
        let application = concat!("wirepath ", env!("CARGO_PKG_VERSION"));
        let interface = CapturedInterface { name: &name, link };
        let mut writer =
            Writer::new(BufWriter::with_capacity(1 << 20, file), &interface, application)?;
        writer.flush()?;
        let report = RecordReport::new(plan.file.clone(), from_name);
        let link = LinkWatch::new(plan.groups[0].ifindex).ok();
        Ok(Recorder { plan, from, writer, report, link, causes: None })
    }

    /// `frames` or `sockets`.
    pub fn from(&self) -> &'static str {
        self.report.from
    }

    /// Records until `stop` is set or a limit of the plan is reached.
    ///
    /// - `trace`: names the causes of late datagrams; not following any thread yet.
    pub fn run(
        mut self,
        stop: &AtomicBool,
        trace: Option<&Trace>,
    ) -> Result<RecordReport, RecordError> {
        std::thread::scope(|scope| {
            // Started before this thread is pinned: it belongs to no CPU.
            if let Some((trace, late)) = trace.zip(self.plan.late) {
                let (causes, asked, explained) = Causes::new(late, &mut self.writer)?;
                self.causes = Some(causes);
                let started = start(scope, "explain", move || -> Result<(), ThreadError> {
                    explain(trace, &asked, &explained);
                    Ok(())
                });
                if started.refused().is_some() {
                    started.end()?;
                }
            }
            if let Some(cpu) = self.plan.pin {
                affinity::pin_to(&[cpu]).map_err(|source| RecordError::Pin { cpu, source })?;
            }
            if let Some(trace) = trace {
                trace.follow_this_thread()?;
            }
            self.record(stop)
        })
    }

    fn record(mut self, stop: &AtomicBool) -> Result<RecordReport, RecordError> {
        let begun_ns = clock::monotonic_ns();
        let until_ns = self.plan.duration.map(|d| begun_ns + d.as_nanos() as u64);
        let (mut flush_ns, mut look_ns) = (begun_ns + FLUSH_INTERVAL_NS, begun_ns);
        loop {
            let is_over = stop.load(Ordering::Relaxed)
                || until_ns.is_some_and(|until| clock::monotonic_ns() >= until);
            let taken = self.take()?;
            if self.left() == 0 || is_over && taken == 0 {
                break;
            }
            let now_ns = clock::monotonic_ns();
            if now_ns >= flush_ns {
                if let Some(causes) = &mut self.causes {
                    causes.step(&mut self.writer)?;
                }
                self.writer.flush()?;
                flush_ns = now_ns + FLUSH_INTERVAL_NS;
            }
            if now_ns >= look_ns {
                self.report.gone = self.link.as_mut().and_then(LinkWatch::gone).map(str::to_owned);
                look_ns = now_ns + LINK_CHECK_INTERVAL_NS;
            }
            if self.report.gone.is_some() {
                break;
            }
            if taken == 0 {
                self.wait()?;
            }
        }
        self.finish(begun_ns)
    }

    fn left(&self) -> u64 {
        self.plan.count.map_or(u64::MAX, |count| count.saturating_sub(self.report.packets))
    }

    fn take(&mut self) -> Result<usize, RecordError> {
        let left = usize::try_from(self.left()).unwrap_or(usize::MAX).min(FRAMES);
        let (writer, report, causes) = (&mut self.writer, &mut self.report, &mut self.causes);
        let mut result = Ok(());
        let taken = match &mut self.from {
            Origin::Frames(tap) => tap.take(left, &mut |bytes, len_bytes, stamp_ns| {
                if result.is_err() {
                    return;
                }
                report.cut += u64::from(len_bytes > bytes.len());
                report.count(stamp_ns, bytes.len());
                result = writer.packet(stamp_ns, bytes);
            }),
            Origin::Sockets(receivers) => {
                let mut taken = 0;
                for receiver in receivers {
                    let to = receiver.group().address;
                    taken += receiver.take(&mut |datagram| {
                        if result.is_err() || report.packets >= self.plan.count.unwrap_or(u64::MAX)
                        {
                            return;
                        }
                        let now = Now::read();
                        report.unstamped += u64::from(datagram.stamp_ns.is_none());
                        let stamp_ns = datagram.stamp_ns.unwrap_or(now.real_ns);
                        if let Some(causes) = causes {
                            causes.note(stamp_ns, now);
                        }
                        report.count(stamp_ns, datagram.payload.len());
                        result = writer.datagram(stamp_ns, datagram.from, to, datagram.payload);
                    })?;
                }
                taken
            }
        };
        result?;
        Ok(taken)
    }

    fn wait(&mut self) -> Result<(), RecordError> {
        match &mut self.from {
            Origin::Frames(tap) => Ok(tap.wait(STOP_CHECK_INTERVAL)?),
            Origin::Sockets(receivers) => {
                let fds: Vec<_> = receivers.iter().map(GroupReceiver::as_fd).collect();
                poll::readable(&fds, STOP_CHECK_INTERVAL).map(drop).map_err(RecordError::Wait)
            }
        }
    }

    fn finish(mut self, begun_ns: u64) -> Result<RecordReport, RecordError> {
        self.report.dropped = match &mut self.from {
            Origin::Frames(tap) => tap.statistics()?.drop_count,
            Origin::Sockets(receivers) => receivers.iter().map(GroupReceiver::dropped_count).sum(),
        };
        self.report.elapsed_ns = clock::monotonic_ns() - begun_ns;
        let causes = self.causes.take();
        self.report.late = causes.map(|causes| causes.end(&mut self.writer)).transpose()?;
        let received = self.report.packets + self.report.dropped;
        self.writer.statistics(clock::realtime_ns(), received, self.report.dropped)?;
        self.writer.flush()?;
        Ok(self.report)
    }
}

/// `None` without the right to open one.
fn frame_tap(plan: &RecordPlan) -> Result<Option<FrameTap>, IoError> {
    match FrameTap::open(&plan.groups, plan.stamps) {
        Ok(tap) => Ok(Some(tap)),
        Err(IoError::Permission { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn receivers(plan: &RecordPlan) -> Result<Vec<GroupReceiver>, IoError> {
    let tuning = GroupTuning {
        receive_buffer_bytes: Some(BUFFER_BYTES),
        stamps: plan.stamps,
        ..Default::default()
    };
    plan.groups.iter().map(|group| GroupReceiver::open(group, &tuning)).collect()
}

fn create(path: &Path, overwrite: bool) -> Result<File, RecordError> {
    output_file::create_growing(path, overwrite).map_err(|source| match source.kind() {
        std::io::ErrorKind::AlreadyExists => RecordError::Exists { path: path.to_owned() },
        _ => RecordError::Create { path: path.to_owned(), source },
    })
}
