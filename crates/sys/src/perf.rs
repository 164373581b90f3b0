//! CPU sampling timers.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// `PERF_FLAG_FD_CLOEXEC` of `<linux/perf_event.h>`.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

/// A timer of one CPU that runs a BPF program.
///
/// Source: perf_event_open(2), PERF_COUNT_SW_CPU_CLOCK: needs no counter of the processor.
#[derive(Debug)]
pub(crate) struct CpuTimer(OwnedFd);

impl CpuTimer {
    /// Opens a timer that fires `per_second` times a second.
    ///
    /// Errors: ENODEV if the CPU is offline; EACCES without CAP_PERFMON.
    pub(crate) fn open(cpu: u32, per_second: u32) -> io::Result<CpuTimer> {
        let mut attributes = libbpf_sys::perf_event_attr {
            type_: libbpf_sys::PERF_TYPE_SOFTWARE,
            size: size_of::<libbpf_sys::perf_event_attr>() as u32,
            config: u64::from(libbpf_sys::PERF_COUNT_SW_CPU_CLOCK),
            ..Default::default()
        };
        attributes.__bindgen_anon_1.sample_freq = u64::from(per_second);
        attributes.set_freq(1);
        let (every_process, no_group) = (-1, -1);
        // SAFETY: the attributes live through the call and carry their size.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                every_process,
                cpu,
                no_group,
                CLOSE_ON_EXEC,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call returned a new descriptor without another owner.
        Ok(CpuTimer(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
    }
}

impl CpuTimer {
    /// Releases ownership of the descriptor to a holder of its number.
    pub(crate) fn give_away(self) {
        let _number = self.0.into_raw_fd();
    }
}

impl AsRawFd for CpuTimer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
