//! Intervals in which a thread did not run although it could (bpf/interruptions.bpf.c).

use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libbpf_rs::{Link, RingBuffer, RingBufferBuilder};
use zerocopy::FromBytes;

use super::error::BpfError;
use super::object::{Loaded, Opened, embedded, map_error, shared_types};
use super::tracing::Tracepoints;
use crate::capability::{Capability, missing_on_host};
use crate::perf::{SoftwareEvent, ThreadEvent};

mod types {
    use super::shared_types;

    shared_types!("interruptions");
}

/// Smallest ring buffer: a page on every architecture.
pub const RING_BYTES_MIN: u32 = 64 << 10;
/// Ring buffer for an interval every 2 µs that is read every 20 ms.
pub const RING_BYTES: u32 = 1 << 20;

/// Programs and their tracepoints. Kernels without some of them, which are x86's, have their
/// interrupts in the first.
const TRACEPOINTS: [(&str, &str); 18] = [
    ("interrupt_begins", "irq_handler_entry"),
    ("interrupt_ends", "irq_handler_exit"),
    ("softirq_begins", "softirq_entry"),
    ("softirq_ends", "softirq_exit"),
    ("local_timer_begins", "local_timer_entry"),
    ("timer_expires", "hrtimer_expire_entry"),
    ("local_timer_ends", "local_timer_exit"),
    ("call_function_begins", "call_function_entry"),
    ("call_function_ends", "call_function_exit"),
    ("called", "csd_queue_cpu"),
    ("call_function_single_begins", "call_function_single_entry"),
    ("call_function_single_ends", "call_function_single_exit"),
    ("reschedule_begins", "reschedule_entry"),
    ("reschedule_ends", "reschedule_exit"),
    ("irq_work_begins", "irq_work_entry"),
    ("irq_work_ends", "irq_work_exit"),
    ("switched", "sched_switch"),
    ("woken", "sched_waking"),
];

/// Events of the thread, and their programs.
const EVENTS: [(&str, ThreadEvent); 4] = [
    ("leaves_cpu", ThreadEvent::ContextSwitch),
    ("fault_begins", ThreadEvent::PageFault),
    ("fault_ends", ThreadEvent::MinorFault),
    ("fault_ends", ThreadEvent::MajorFault),
];

/// Reason why the thread did not run. The order is that of the C program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InterruptionKind {
    /// Of a device.
    Interrupt,
    LocalTimer,
    /// A call from another CPU.
    FunctionCall,
    Reschedule,
    IrqWork,
    Softirq,
    /// Another task ran while the thread was ready.
    Preempted,
    /// The thread was ready, and its CPU idle: it was throttled, or moved to another CPU.
    Suspended,
    /// From the wake-up until it ran, on a CPU that was idle.
    WakeUp,
    PageFault,
}

impl InterruptionKind {
    const ALL: [InterruptionKind; 10] = [
        InterruptionKind::Interrupt,
        InterruptionKind::LocalTimer,
        InterruptionKind::FunctionCall,
        InterruptionKind::Reschedule,
        InterruptionKind::IrqWork,
        InterruptionKind::Softirq,
        InterruptionKind::Preempted,
        InterruptionKind::Suspended,
        InterruptionKind::WakeUp,
        InterruptionKind::PageFault,
    ];
}

/// One interval; CLOCK_MONOTONIC, nanoseconds. Outer ones include inner ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    pub begin_ns: u64,
    pub end_ns: u64,
    /// Time for which the timer was set, or at which another CPU made the call: at most `begin_ns`. `None` if
    /// unknown, and of other kinds.
    pub due_ns: Option<u64>,
    /// Time from which the thread ran or was ready: `begin_ns` to `end_ns`, which it is if the thread slept.
    pub awake_ns: u64,
    pub kind: InterruptionKind,
    /// Of the interrupt or softirq, or the thread's id of the task.
    pub number: u32,
    /// Of the interrupt, the task, or the function that is called; may be empty.
    pub name: [u8; 32],
    /// Intervals before it that found the ring buffer full, since the start.
    pub lost_count: u64,
}

/// Time in which a running thread is recognised.
pub const RECOGNISED: Duration = Duration::from_millis(100);

/// Timer that interrupts a thread until it is dropped.
#[derive(Debug)]
pub struct RecognitionTimer(#[expect(dead_code, reason = "attached until it is dropped")] Link);

/// Programs that report the intervals of one thread until they are dropped.
#[derive(Debug)]
pub struct Interruptions {
    loaded: Loaded,
    links: Vec<Link>,
    ring: RingBuffer<'static>,
    read: Arc<Mutex<Vec<Interval>>>,
    missing: Vec<String>,
}

impl Interruptions {
    /// Attaches the programs. No thread is followed yet.
    ///
    /// - `ring_bytes`: a power of two.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF and CAP_PERFMON; [`BpfError::Load`] if the kernel refuses.
    pub fn attach(ring_bytes: u32) -> Result<Interruptions, BpfError> {
        let tracepoints = Tracepoints::of_this_kernel(&TRACEPOINTS);
        let loaded = Opened::open("interruptions", embedded!("interruptions"))?
            .needs(&[Capability::Bpf, Capability::Perfmon])
            .without(&tracepoints.absent_programs())
            .map_entries("intervals", ring_bytes)?
            .load()?;
        let (links, refused) = tracepoints.attach(&loaded)?;
        let read = Arc::new(Mutex::new(Vec::new()));
        let into = read.clone();
        let map = loaded.handle("intervals")?;
        let mut builder = RingBufferBuilder::new();
        let failed = |why| map_error("intervals", "mapped", why);
        builder
            .add(&map, move |bytes: &[u8]| {
                into.lock().unwrap_or_else(PoisonError::into_inner).extend(interval(bytes));
                0
            })
            .map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        let missing = refused.iter().map(ToString::to_string).collect();
        Ok(Interruptions { loaded, links, ring, read, missing })
    }

    /// Follows a thread; one is all. It is recognised at its next context switch.
    ///
    /// - `thread`: as [`crate::thread::id`] numbers it.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_PERFMON; [`BpfError::Map`] if there is no such thread.
    pub fn follow(&mut self, thread: u32) -> Result<(), BpfError> {
        for (program, event) in EVENTS {
            let link = self.attach_event(program, SoftwareEvent::of_thread(event, thread))?;
            self.links.push(link);
        }
        Ok(())
    }

    /// As [`Self::follow`], for a thread that may never leave its CPU: it is recognised within [`RECOGNISED`] too, by a
    /// timer that interrupts it. Returns the timer; intervals count from when that is dropped.
    ///
    /// # Errors
    /// Those of [`Self::follow`].
    pub fn follow_running(&mut self, thread: u32) -> Result<RecognitionTimer, BpfError> {
        let period_ns = (RECOGNISED.as_nanos() / 4) as u64;
        let timer = self.attach_event("runs", SoftwareEvent::thread_timer(thread, period_ns))?;
        self.follow(thread)?;
        Ok(RecognitionTimer(timer))
    }

    fn attach_event(
        &self,
        program: &str,
        event: io::Result<SoftwareEvent>,
    ) -> Result<Link, BpfError> {
        let attached = event.and_then(|event| {
            let program = self.loaded.program(program).map_err(io::Error::other)?;
            let link = program.attach_perf_event(event.as_raw_fd());
            // The link owns the descriptor now.
            link.inspect(|_| event.give_away()).map_err(io::Error::other)
        });
        attached.map_err(|why| event_error(program, why))
    }

    /// Tracepoints that the kernel refused.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Appends the intervals that have ended since the last call. Makes no system call.
    pub fn drain(&mut self, into: &mut Vec<Interval>) {
        // The callback does not fail.
        let _count = self.ring.consume_raw();
        into.append(&mut self.read.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn event_error(program: &str, source: io::Error) -> BpfError {
    match missing_on_host(&[Capability::Perfmon]) {
        Some(missing) if source.kind() == io::ErrorKind::PermissionDenied => {
            BpfError::Permission { what: "events of a thread".into(), missing, source }
        }
        _ => BpfError::Map { map: program.into(), what: "attached to a thread", source },
    }
}

/// `None` if the bytes are no interval: of another length or kind.
fn interval(bytes: &[u8]) -> Option<Interval> {
    let raw = types::interval::read_from_bytes(bytes).ok()?;
    let end_ns = raw.end_ns.max(raw.begin_ns);
    Some(Interval {
        begin_ns: raw.begin_ns,
        end_ns,
        awake_ns: raw.awake_ns.clamp(raw.begin_ns, end_ns),
        due_ns: Some(raw.due_ns.min(raw.begin_ns)).filter(|due_ns| *due_ns > 0),
        kind: *InterruptionKind::ALL.get(raw.kind as usize)?,
        number: raw.number,
        name: raw.name.map(|letter| letter as u8),
        lost_count: raw.lost_count,
    })
}
