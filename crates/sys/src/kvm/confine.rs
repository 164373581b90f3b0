//! System-call filter for threads that run a guest or its device.
//!
//! The guest is hostile. If it takes over such a thread, the thread can use the descriptors that
//! are open and little else: it cannot open files, create threads, processes or executable memory,
//! or send to an address.

use seccompiler::{
    BackendError, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompRule,
};

use super::KvmError;
use crate::seccomp::{Confinement, Rules, free, masked, one_of, plain_memory};

/// Calls allowed with any argument, by caller.
const FREE: &[libc::c_long] = &[
    // Frames of a TAP; eventfds; the statistics of the processor.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_pread64,
    libc::SYS_ppoll,
    // CPU clocks of threads; the other clocks are read without a system call on most processors.
    libc::SYS_clock_gettime,
    libc::SYS_getrusage,
    // Locks, and restarted waits after a signal.
    libc::SYS_futex,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigreturn,
    // Memory of the allocator, and release of resources when the thread ends.
    libc::SYS_brk,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_madvise,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
];

const KVMIO: u64 = 0xae;

/// `_IO(KVMIO, number)`.
const fn io(number: u64) -> u64 {
    KVMIO << 8 | number
}

/// `_IOW(KVMIO, number, T)`.
const fn iow<T>(number: u64) -> u64 {
    1 << 30 | (size_of::<T>() as u64) << 16 | io(number)
}

/// `_IOR(KVMIO, number, T)`.
const fn ior<T>(number: u64) -> u64 {
    2 << 30 | (size_of::<T>() as u64) << 16 | io(number)
}

/// Requests to KVM while a guest runs: KVM_RUN; KVM_IRQ_LINE; (un)registering coalesced ports;
/// KVM_IOEVENTFD; and KVM_GET_REGS, to report where a guest hangs.
const REQUESTS: [u64; 6] = [
    io(0x80),
    iow::<kvm_bindings::kvm_irq_level>(0x61),
    iow::<kvm_bindings::kvm_coalesced_mmio_zone>(0x67),
    iow::<kvm_bindings::kvm_coalesced_mmio_zone>(0x68),
    iow::<kvm_bindings::kvm_ioeventfd>(0x79),
    ior::<kvm_bindings::kvm_regs>(0x81),
];

/// Calls of the monitor's process beside those of its threads: to start, interrupt and join these, to wait for
/// its owner and to end.
const OF_PROCESS: &[libc::c_long] = &[
    libc::SYS_poll,
    libc::SYS_close,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getrandom,
    libc::SYS_tgkill,
    libc::SYS_exit_group,
];

impl Confinement {
    /// Filter for the process of a monitor after set-up, which its threads inherit and narrow to
    /// [`Self::of_monitor`]. Any other call ends the process.
    pub fn of_monitor_process() -> Result<Self, KvmError> {
        let rules = process_rules().map_err(std::io::Error::other);
        rules.and_then(Confinement::or_kill_without_clone3).map_err(|source| KvmError::Failed {
            what: "compiling the filter of system calls",
            source,
        })
    }

    /// Filter for the threads of a monitor after set-up. Any other call ends the process.
    pub fn of_monitor() -> Result<Self, KvmError> {
        let rules = rules().map_err(std::io::Error::other);
        rules.and_then(Confinement::or_kill).map_err(|source| KvmError::Failed {
            what: "compiling the filter of system calls",
            source,
        })
    }
}

fn rules() -> Result<Rules, BackendError> {
    let mut rules = free(FREE);
    rules.push(one_of(libc::SYS_ioctl, 1, &REQUESTS)?);
    rules.extend(plain_memory()?);
    // Notification of a ring: no data, no address.
    let empty = [1, 2, 4].map(|argument| SeccompCondition::new(argument, Len::Qword, Op::Eq, 0));
    let empty = empty.into_iter().collect::<Result<Vec<_>, _>>()?;
    rules.push((libc::SYS_sendto, vec![SeccompRule::new(empty)?]));
    Ok(rules)
}

fn process_rules() -> Result<Rules, BackendError> {
    let mut rules = rules()?;
    rules.extend(free(OF_PROCESS));
    // Threads, no processes.
    let thread = libc::CLONE_THREAD as u64;
    rules.push(masked(libc::SYS_clone, 0, thread, thread)?);
    // The threads' own filter; names of threads and of memory.
    rules.push(one_of(libc::SYS_seccomp, 0, &[libc::SECCOMP_SET_MODE_FILTER.into()])?);
    let options = [libc::PR_SET_NAME, libc::PR_SET_VMA, libc::PR_SET_NO_NEW_PRIVS];
    rules.push(one_of(libc::SYS_prctl, 0, &options.map(|option| option as u64))?);
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::jail::Forked;

    #[test]
    fn requests_are_those_of_the_kernel_s_header() {
        // As printed by a C program from linux/kvm.h, x86-64.
        let expected = [0xae80, 0x4008_ae61, 0x4010_ae67, 0x4010_ae68, 0x4040_ae79, 0x8090_ae81];
        assert_eq!(REQUESTS, expected);
    }

    #[test]
    fn filter_compiles() {
        Confinement::of_monitor().unwrap();
        Confinement::of_monitor_process().unwrap();
    }

    #[test]
    fn process_starts_threads_under_its_filter_and_a_file_that_it_opens_ends_it() {
        let child = Forked::start(|inside| {
            let mut socket = File::from(inside.socket().try_clone_to_owned().unwrap());
            let narrow = Confinement::of_monitor().unwrap();
            Confinement::of_monitor_process().unwrap().enter().unwrap();
            let one = std::thread::spawn(move || narrow.enter().is_ok()).join().unwrap();
            socket.write_all(&[u8::from(one)]).unwrap();
            drop(File::open("/proc/self/status"));
            socket.write_all(&[2]).unwrap();
        });
        let child = child.unwrap();
        let mut said = Vec::new();
        child.socket().read_to_end(&mut said).unwrap();
        assert_eq!(said, [1]);
        let (status, _) = child.end(std::time::Duration::from_secs(60)).unwrap();
        assert_eq!(status.signal(), Some(libc::SIGSYS), "{status}");
    }
}
