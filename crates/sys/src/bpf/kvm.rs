//! Exits of virtual CPUs, what their guest accessed, and its interrupts (bpf/kvm.bpf.c).

use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{Link, RingBufferBuilder};
use zerocopy::FromBytes;

use super::error::BpfError;
use super::object::{Loaded, Opened, embedded, map_error, read_single, shared_types};
use super::process::{configured_process, recognising_events};
use super::tracing::MissingTracepoint;
use crate::capability::{Capability, missing_on_host};
use crate::perf::SoftwareEvent;
use crate::tracefs::Tracefs;

mod types {
    use super::shared_types;

    shared_types!("kvm");
}

/// Programs and their tracepoints, the last events of an exit first.
const TRACEPOINTS: [(&str, &str); 10] = [
    ("entries", "kvm_entry"),
    ("wake_ups", "kvm_vcpu_wakeup"),
    ("exits_to_process", "kvm_userspace_exit"),
    ("injections", "kvm_inj_virq"),
    ("lines", "kvm_set_irq"),
    ("messages", "kvm_msi_set_irq"),
    ("ports", "kvm_pio"),
    ("memory", "kvm_mmio"),
    ("doorbells", "kvm_fast_mmio"),
    ("exits", EXIT),
];
/// Without it nothing can be counted.
const EXIT: &str = "kvm_exit";

/// Ring buffer of intervals: 26,000 of them.
const SPANS_BYTES: u32 = 1 << 20;
/// Where none are kept: a page on every architecture.
const NO_SPANS_BYTES: u32 = 64 << 10;

/// Meaning of an event. The order is that of the C program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KvmEvent {
    /// The guest was left; the detail is the processor's reason, and above it in 32 bits its kind (1: Intel, 2: AMD, 0:
    /// another); the time is that until it ran again.
    Exit,
    /// The kernel left it to the process; the detail is KVM's reason, or a negative errno.
    ToProcess,
    /// Ports, by number, and memory, by guest-physical address, that device models answered, in the kernel or the
    /// process. Each access of a string instruction counts.
    PortRead,
    PortWrite,
    MemoryRead,
    MemoryWrite,
    /// A write to memory that the kernel turned into an eventfd, by address.
    Doorbell,
    /// An interrupt that the CPU was given on entry, by vector. With a virtual interrupt controller of the processor
    /// there are none.
    Injected,
    /// A halt in which the thread slept; the time is that of the halt.
    Halted,
    /// A halt that ended while the kernel polled.
    Polled,
    /// A line of the interrupt controller that a thread of the process raised, by its number.
    Line,
    /// A message-signalled interrupt that a thread of the process sent, by vector.
    Message,
}

impl KvmEvent {
    const ALL: [KvmEvent; 12] = [
        KvmEvent::Exit,
        KvmEvent::ToProcess,
        KvmEvent::PortRead,
        KvmEvent::PortWrite,
        KvmEvent::MemoryRead,
        KvmEvent::MemoryWrite,
        KvmEvent::Doorbell,
        KvmEvent::Injected,
        KvmEvent::Halted,
        KvmEvent::Polled,
        KvmEvent::Line,
        KvmEvent::Message,
    ];
}

/// Events of one thread with one detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvmSum {
    /// The thread's id in the first process namespace.
    pub thread: u32,
    pub event: KvmEvent,
    pub detail: u64,
    pub count: u64,
    pub ns: u64,
}

/// One exit; CLOCK_MONOTONIC, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvmSpan {
    pub begin_ns: u64,
    /// The guest runs again.
    pub end_ns: u64,
    pub reason: u64,
    pub thread: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KvmEvents {
    pub sums: Vec<KvmSum>,
    /// The first ones, if they were asked for.
    pub spans: Vec<KvmSpan>,
    /// Events that found the table full, so that they are in no sum.
    pub lost_count: u64,
    /// Exits after those of `spans`.
    pub lost_span_count: u64,
}

/// Programs that count KVM's events of one process until they are dropped.
#[derive(Debug)]
pub struct KvmCounter {
    // Before the object, so that they are detached first.
    links: Vec<Link>,
    loaded: Loaded,
    missing: Vec<MissingTracepoint>,
}

impl KvmCounter {
    /// Attaches the programs. Outside of the first process namespace, the process is recognised at the first context
    /// switch of one of the threads.
    ///
    /// - `process`, `threads`: ids in the caller's process namespace.
    /// - `with_spans`: keep single exits, too.
    ///
    /// # Errors
    /// [`BpfError::Invalid`] of a kernel without KVM or its tracepoints; [`BpfError::Permission`] without CAP_BPF,
    /// CAP_PERFMON and CAP_SYS_ADMIN; [`BpfError::Load`] if the kernel refuses.
    pub fn attach(process: u32, threads: &[u32], with_spans: bool) -> Result<KvmCounter, BpfError> {
        let (present, missing) = tracepoints()?;
        let absent: Vec<&str> = TRACEPOINTS
            .iter()
            .map(|(program, _)| *program)
            .filter(|program| present.iter().all(|(found, _)| found != program))
            .collect();
        let process = configured_process(process);
        let config = types::config { process, spans: with_spans.into() };
        let loaded = Opened::open("kvm", embedded!("kvm"))?
            .needs(&[Capability::Bpf, Capability::Perfmon])
            .config(&config)?
            .map_entries("spans", if with_spans { SPANS_BYTES } else { NO_SPANS_BYTES })?
            .without(&absent)
            .load()?;
        let mut counter = KvmCounter { links: Vec::new(), loaded, missing };
        for event in recognising_events(threads) {
            counter.attach_event("switches", event)?;
        }
        for (program, id) in present {
            let event = SoftwareEvent::tracepoint(id).map_err(denied)?;
            counter.attach_event(program, event)?;
        }
        Ok(counter)
    }

    fn attach_event(&mut self, program: &str, event: SoftwareEvent) -> Result<(), BpfError> {
        let link = self.loaded.program(program)?.attach_perf_event(event.as_raw_fd());
        // The link owns the descriptor now.
        let link = link.inspect(|_| event.give_away());
        self.links.push(link.map_err(|why| map_error(program, "attached to a tracepoint", why))?);
        Ok(())
    }

    /// Tracepoints that this kernel does not have.
    pub fn missing(&self) -> &[MissingTracepoint] {
        &self.missing
    }

    /// Detaches the programs, and returns what they counted.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn finish(mut self) -> Result<KvmEvents, BpfError> {
        self.links.clear();
        let sums = self.loaded.map("sums")?;
        let lost: types::kvm_lost = read_single(&self.loaded.handle("lost")?)?;
        Ok(KvmEvents {
            sums: sums.entries()?.filter_map(|(key, value)| kvm_sum(&key, &value)).collect(),
            spans: self.spans()?,
            lost_count: lost.events,
            lost_span_count: lost.spans,
        })
    }

    fn spans(&self) -> Result<Vec<KvmSpan>, BpfError> {
        let map = self.loaded.handle("spans")?;
        let read = Arc::new(Mutex::new(Vec::new()));
        let into = read.clone();
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&map, move |bytes: &[u8]| {
                into.lock().unwrap_or_else(PoisonError::into_inner).extend(kvm_span(bytes));
                0
            })
            .map_err(span_error)?;
        builder.build().map_err(span_error)?.consume().map_err(span_error)?;
        let mut spans = read.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut *spans))
    }
}

fn span_error(why: libbpf_rs::Error) -> BpfError {
    map_error("spans", "mapped", why)
}

/// Numbers of the tracepoints by program, and those that are absent.
type Found = (Vec<(&'static str, u64)>, Vec<MissingTracepoint>);

fn tracepoints() -> Result<Found, BpfError> {
    let tracefs = Tracefs::open().map_err(denied)?;
    let (mut present, mut missing) = (Vec::new(), Vec::new());
    for (program, name) in TRACEPOINTS {
        match tracefs.event_id(&format!("kvm/{name}")) {
            Ok(id) => present.push((program, id)),
            Err(why) if name == EXIT => {
                let what = format!(
                    "no tracepoint kvm/{name} ({why}): the kernel's module kvm is not loaded"
                );
                return Err(BpfError::Invalid { what });
            }
            Err(why) => missing.push(MissingTracepoint { name, reason: why.to_string() }),
        }
    }
    Ok((present, missing))
}

fn denied(source: io::Error) -> BpfError {
    let needs = &[Capability::Bpf, Capability::Perfmon, Capability::SysAdmin];
    let missing =
        missing_on_host(needs).unwrap_or_else(|| "leave of the kernel (lockdown?)".into());
    BpfError::Permission { what: "tracepoints of KVM".into(), missing, source }
}

/// `None` if the bytes have another length, or a kind that is not known.
fn kvm_sum(key: &[u8], value: &[u8]) -> Option<KvmSum> {
    let key = types::kvm_key::read_from_bytes(key).ok()?;
    let sum = types::kvm_sum::read_from_bytes(value).ok()?;
    let event = *KvmEvent::ALL.get(key.kind as usize)?;
    Some(KvmSum { thread: key.thread, event, detail: key.detail, count: sum.count, ns: sum.ns })
}

fn kvm_span(bytes: &[u8]) -> Option<KvmSpan> {
    let raw = types::kvm_span::read_from_bytes(bytes).ok()?;
    let end_ns = raw.end_ns.max(raw.begin_ns);
    Some(KvmSpan { begin_ns: raw.begin_ns, end_ns, reason: raw.reason, thread: raw.thread })
}
