//! Programs at tracepoints of the kernel: attaching them, and counting their run time.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::{fmt, io};

use libbpf_rs::Link;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Func, Typedef};

use super::error::BpfError;
use super::object::{Loaded, map_error};
use crate::capability::{Capability, missing_on_host};

/// Programs of an object, each with its tracepoint.
#[derive(Debug)]
pub(super) struct Tracepoints {
    /// In the order in which a packet passes them.
    present: Vec<(&'static str, &'static str)>,
    /// Not in the running kernel.
    absent: Vec<(&'static str, &'static str)>,
}

impl Tracepoints {
    /// Separates those that the running kernel has.
    ///
    /// Source: a tracepoint's type is `btf_trace_NAME` in the kernel's type information.
    pub(super) fn of_this_kernel(all: &[(&'static str, &'static str)]) -> Tracepoints {
        // Without type information loading fails with an error of its own.
        let btf = Btf::from_vmlinux().ok();
        Tracepoints::without(all, |tracepoint: &str| {
            let name = format!("btf_trace_{tracepoint}");
            btf.as_ref().is_some_and(|btf| btf.type_by_name::<Typedef<'_>>(&name).is_none())
        })
    }

    /// As [`Self::of_this_kernel`], for programs at the entry of functions.
    pub(super) fn functions_of_this_kernel(all: &[(&'static str, &'static str)]) -> Tracepoints {
        let btf = Btf::from_vmlinux().ok();
        Tracepoints::without(all, |function: &str| {
            btf.as_ref().is_some_and(|btf| btf.type_by_name::<Func<'_>>(function).is_none())
        })
    }

    /// Separates those that are absent, by the tracepoint's name.
    pub(super) fn without(
        all: &[(&'static str, &'static str)],
        is_absent: impl Fn(&str) -> bool,
    ) -> Tracepoints {
        let (absent, present) = all.iter().copied().partition(|(_, name)| is_absent(name));
        Tracepoints { present, absent }
    }

    pub(super) fn absent_programs(&self) -> Vec<&'static str> {
        self.absent.iter().map(|(program, _)| *program).collect()
    }

    pub(super) fn missing(&self) -> Vec<MissingTracepoint> {
        let reason = "not in this kernel";
        self.absent
            .iter()
            .map(|(_, name)| MissingTracepoint { name, reason: reason.into() })
            .collect()
    }

    /// Attaches all programs; returns the links, and the tracepoints that the kernel refused.
    ///
    /// # Errors
    /// [`BpfError::Permission`] if the kernel refuses all.
    pub(super) fn attach(
        &self,
        loaded: &Loaded,
    ) -> Result<(Vec<Link>, Vec<MissingTracepoint>), BpfError> {
        let (mut links, mut refused, mut last) = (Vec::new(), Vec::new(), None);
        // Last stages first, so that a packet seen at the start is seen at the end.
        for &(program, name) in self.present.iter().rev() {
            match loaded.program(program)?.attach_trace() {
                Ok(link) => links.push(link),
                Err(why) => {
                    refused.push(MissingTracepoint { name, reason: why.to_string() });
                    last = Some(why);
                }
            }
        }
        match last.filter(|_| links.is_empty()) {
            None => Ok((links, refused)),
            Some(why) => Err(BpfError::Permission {
                what: "tracing packets".into(),
                missing: missing_on_host(&[Capability::Bpf, Capability::Perfmon])
                    .unwrap_or_else(|| "leave of the kernel (lockdown?)".into()),
                source: io::Error::other(why),
            }),
        }
    }

    /// Run time of the programs while [`RunTimeCounting`] was on.
    pub(super) fn run_time(&self, loaded: &Loaded) -> Result<RunTime, BpfError> {
        let mut sum = RunTime { empty: runs_of(loaded, EMPTY)?, ..RunTime::default() };
        for (program, _) in &self.present {
            let runs = runs_of(loaded, program)?;
            sum.all.ns += runs.ns;
            sum.all.count += runs.count;
        }
        Ok(sum)
    }
}

/// A tracepoint that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingTracepoint {
    pub name: &'static str,
    pub reason: String,
}

impl fmt::Display for MissingTracepoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tracepoint {}: {}", self.name, self.reason)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Runs {
    /// CPU time, nanoseconds.
    pub ns: u64,
    pub count: u64,
}

impl Runs {
    /// Those since `earlier`.
    pub fn since(&self, earlier: &Runs) -> Runs {
        Runs { ns: self.ns - earlier.ns, count: self.count - earlier.count }
    }

    /// Sum of both.
    pub fn plus(&self, other: &Runs) -> Runs {
        Runs { ns: self.ns + other.ns, count: self.count + other.count }
    }
}

/// Run time of the programs as counted by the kernel, without entry and exit of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunTime {
    pub all: Runs,
    /// An empty program, whose run time is the cost of counting.
    pub empty: Runs,
}

/// The program that does nothing, in each object.
const EMPTY: &str = "empty";

fn runs_of(loaded: &Loaded, name: &str) -> Result<Runs, BpfError> {
    let program = loaded.program(name)?;
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of_val(&info) as u32;
    let fd = program.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open; `info` may be written, and `len` says how far.
    let rc = unsafe { libbpf_sys::bpf_obj_get_info_by_fd(fd, (&raw mut info).cast(), &mut len) };
    if rc != 0 {
        let source = io::Error::last_os_error();
        return Err(BpfError::Map { map: name.into(), what: "asked for its cost", source });
    }
    Ok(Runs { ns: info.run_time_ns, count: info.run_cnt })
}

/// Keeps the empty program attached until dropped.
#[derive(Debug)]
pub struct EmptyRuns(#[expect(dead_code, reason = "attached until it is dropped")] Link);

impl EmptyRuns {
    pub(super) fn attach(loaded: &Loaded) -> Result<EmptyRuns, BpfError> {
        let attached = loaded.program(EMPTY)?.attach_trace();
        attached.map(EmptyRuns).map_err(|why| map_error(EMPTY, "attached", why))
    }
}

/// Makes the kernel count the run time of all BPF programs of this machine until dropped.
///
/// Counting costs two clock reads a run, which are not in the count.
#[derive(Debug)]
pub struct RunTimeCounting(#[expect(dead_code, reason = "counts until it is closed")] OwnedFd);

impl RunTimeCounting {
    /// Starts counting.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN.
    pub fn start() -> io::Result<RunTimeCounting> {
        // SAFETY: no pointer is passed.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call returned a new descriptor without another owner.
        Ok(RunTimeCounting(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}
