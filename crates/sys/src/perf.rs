//! Events of the kernel: how they are opened, and those that run BPF programs (timers of CPUs, and what happens to a thread).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// `PERF_FLAG_FD_CLOEXEC` of `<linux/perf_event.h>`.
pub(crate) const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

/// A software event that runs a BPF program.
///
/// Source: perf_event_open(2), PERF_TYPE_SOFTWARE: needs no counter of the processor.
#[derive(Debug)]
pub(crate) struct SoftwareEvent(OwnedFd);

#[derive(Debug, Clone, Copy)]
pub(crate) enum ThreadEvent {
    ContextSwitch = libbpf_sys::PERF_COUNT_SW_CONTEXT_SWITCHES as isize,
    /// At the start of a page fault.
    PageFault = libbpf_sys::PERF_COUNT_SW_PAGE_FAULTS as isize,
    /// At the end of a page fault without I/O.
    MinorFault = libbpf_sys::PERF_COUNT_SW_PAGE_FAULTS_MIN as isize,
    /// At the end of a page fault with I/O.
    MajorFault = libbpf_sys::PERF_COUNT_SW_PAGE_FAULTS_MAJ as isize,
}

impl SoftwareEvent {
    /// Opens a timer that fires `per_second` times a second, in whichever process runs.
    ///
    /// Errors: ENODEV if the CPU is offline; EACCES without CAP_PERFMON.
    pub(crate) fn timer(cpu: u32, per_second: u32) -> io::Result<SoftwareEvent> {
        let mut attributes = attributes(u64::from(libbpf_sys::PERF_COUNT_SW_CPU_CLOCK));
        attributes.__bindgen_anon_1.sample_freq = u64::from(per_second);
        attributes.set_freq(1);
        open(&attributes, -1, cpu as libc::c_int)
    }

    /// Opens a timer that fires after each `period_ns` in which a thread ran.
    ///
    /// Errors: those of [`Self::of_thread`].
    pub(crate) fn thread_timer(thread: u32, period_ns: u64) -> io::Result<SoftwareEvent> {
        let mut attributes = attributes(u64::from(libbpf_sys::PERF_COUNT_SW_CPU_CLOCK));
        attributes.__bindgen_anon_1.sample_period = period_ns;
        open(&attributes, thread as libc::pid_t, -1)
    }

    /// Opens a timer as [`Self::thread_timer`] that writes a record with the time, on CLOCK_MONOTONIC, into the ring that
    /// is mapped from it.
    ///
    /// Errors: those of [`Self::of_thread`].
    pub(crate) fn thread_samples(thread: u32, period_ns: u64) -> io::Result<SoftwareEvent> {
        let mut attributes = attributes(u64::from(libbpf_sys::PERF_COUNT_SW_CPU_CLOCK));
        attributes.__bindgen_anon_1.sample_period = period_ns;
        attributes.sample_type = u64::from(libbpf_sys::PERF_SAMPLE_TIME);
        attributes.set_use_clockid(1);
        attributes.clockid = libc::CLOCK_MONOTONIC;
        open(&attributes, thread as libc::pid_t, -1)
    }

    /// Opens an event that fires each time, on every CPU.
    ///
    /// - `thread`: as `gettid` numbers it.
    ///
    /// Errors: ESRCH if there is no such thread; EACCES without CAP_PERFMON.
    pub(crate) fn of_thread(event: ThreadEvent, thread: u32) -> io::Result<SoftwareEvent> {
        let mut attributes = attributes(event as u64);
        attributes.__bindgen_anon_1.sample_period = 1;
        open(&attributes, thread as libc::pid_t, -1)
    }

    /// Opens a tracepoint. A program at it runs on every CPU, in whichever process passes it.
    ///
    /// - `id`: as [`crate::tracefs::Tracefs::event_id`] returns it.
    ///
    /// Errors: EACCES without CAP_PERFMON.
    pub(crate) fn tracepoint(id: u64) -> io::Result<SoftwareEvent> {
        let attributes = libbpf_sys::perf_event_attr {
            type_: libbpf_sys::PERF_TYPE_TRACEPOINT,
            ..attributes(id)
        };
        open(&attributes, -1, 0)
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// Releases ownership of the descriptor to a holder of its number.
    pub(crate) fn give_away(self) {
        let _number = self.0.into_raw_fd();
    }
}

fn attributes(event: u64) -> libbpf_sys::perf_event_attr {
    libbpf_sys::perf_event_attr {
        type_: libbpf_sys::PERF_TYPE_SOFTWARE,
        size: size_of::<libbpf_sys::perf_event_attr>() as u32,
        config: event,
        ..Default::default()
    }
}

/// - `thread`, `cpu`: -1 for every one.
fn open(
    attributes: &libbpf_sys::perf_event_attr,
    thread: libc::pid_t,
    cpu: libc::c_int,
) -> io::Result<SoftwareEvent> {
    perf_event_open(attributes, thread, cpu, CLOSE_ON_EXEC).map(SoftwareEvent)
}

/// - `pid`: of a thread, -1 for every one, or the descriptor of a control group's folder by `flags`.
/// - `cpu`: -1 for every one.
pub(crate) fn perf_event_open(
    attributes: &libbpf_sys::perf_event_attr,
    pid: libc::pid_t,
    cpu: libc::c_int,
    flags: libc::c_ulong,
) -> io::Result<OwnedFd> {
    let no_group = -1;
    let attributes: *const _ = attributes;
    // SAFETY: the attributes live through the call and carry their size.
    let fd =
        unsafe { libc::syscall(libc::SYS_perf_event_open, attributes, pid, cpu, no_group, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

impl AsRawFd for SoftwareEvent {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
