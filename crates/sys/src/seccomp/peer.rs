//! System-call filter of `wirepath peer` while it listens.
//!
//! Near ends are untrusted until they prove the secret, and always without one. The peer opens
//! engines for them repeatedly, so it keeps sockets, rings and BPF. It loses calls that would widen
//! a compromise: programs, written files, connections, other processes, namespaces, mounts,
//! modules.
//!
//! After a change of libbpf or the C library, run `strace -f` on a peer through all engines: a call that ends with EPERM
//! belongs on the list.

use std::io;

use seccompiler::{
    BackendError, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompRule,
};

use super::{Confinement, Rules, free, masked, one_of, plain_memory, program};

/// Calls allowed with any argument.
const FREE: &[libc::c_long] = &[
    // Open sockets: datagrams, rings, netlink, the control connection.
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    // Open descriptors.
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_wait,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    // Information of the host: files of /proc and /sys.
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getdents64,
    libc::SYS_newfstatat,
    libc::SYS_readlinkat,
    libc::SYS_statx,
    libc::SYS_uname,
    // Threads, their CPUs and their clocks.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals to itself.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // Memory; execute permission is filtered below.
    libc::SYS_brk,
    libc::SYS_madvise,
    // libbpf reserves descriptor numbers.
    libc::SYS_memfd_create,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Refused with ENOSYS, so that the C library falls back to `clone`.
    libc::SYS_clone3,
];

/// Calls that the peer never makes: a thread that makes one is compromised.
pub(super) const HOSTILE: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_setuid,
    libc::SYS_setresuid,
    libc::SYS_open_by_handle_at,
    libc::SYS_io_uring_setup,
    libc::SYS_userfaultfd,
    libc::SYS_reboot,
];

/// Requests of ioctl(2), none of which changes a terminal or pushes input into one (TIOCSTI).
const REQUESTS: &[u64] = &[
    0x5401, // TCGETS: is the output a terminal?
    0x5421, // FIONBIO
    0x8910, // SIOCGIFNAME
    0x8913, // SIOCGIFFLAGS
    0x8921, // SIOCGIFMTU
    0xb703, // NS_GET_NSTYPE
];

/// Calls that a thread no longer makes once its engine is open and it reads datagrams.
const SET_UP: &[libc::c_long] = &[
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getdents64,
    libc::SYS_openat,
    libc::SYS_readlinkat,
];

/// Commands of bpf(2) that such a thread makes: BPF_MAP_LOOKUP_ELEM for its program's counters, and
/// BPF_LINK_DETACH at its end.
const RUN_BPF_COMMANDS: [u64; 2] = [1, 34];

/// Commands of bpf(2): maps, programs, links, BTF, and their information.
///
/// Source: the kernel's include/uapi/linux/bpf.h, enum bpf_cmd.
const BPF_COMMANDS: &[u64] = &[
    0,  // BPF_MAP_CREATE
    1,  // BPF_MAP_LOOKUP_ELEM
    2,  // BPF_MAP_UPDATE_ELEM
    3,  // BPF_MAP_DELETE_ELEM
    4,  // BPF_MAP_GET_NEXT_KEY
    5,  // BPF_PROG_LOAD
    15, // BPF_OBJ_GET_INFO_BY_FD
    18, // BPF_BTF_LOAD
    22, // BPF_MAP_FREEZE
    28, // BPF_LINK_CREATE
    34, // BPF_LINK_DETACH
    35, // BPF_PROG_BIND_MAP
];

fn errno(number: i32) -> SeccompAction {
    SeccompAction::Errno(number as u32)
}

impl Confinement {
    /// Filter of a listening peer. Calls that only an intruder makes end the process; all others fail
    /// with EPERM.
    pub fn of_peer() -> io::Result<Self> {
        let rules = rules().map_err(io::Error::other)?;
        Ok(Confinement {
            programs: vec![
                program(free(HOSTILE), SeccompAction::Allow, SeccompAction::KillProcess)?,
                // Its flags are in memory, which a filter cannot read.
                program(free(&[libc::SYS_clone3]), SeccompAction::Allow, errno(libc::ENOSYS))?,
                program(rules, errno(libc::EPERM), SeccompAction::Allow)?,
            ],
        })
    }
}

impl Confinement {
    /// Filter of a peer's thread that reads datagrams, on top of [`Self::of_peer`]: it opens no file and no
    /// program, and connects and binds no socket; such calls fail with EPERM.
    pub fn of_peer_run() -> io::Result<Self> {
        let rules = || {
            let mut rules = free(SET_UP);
            let conditions = RUN_BPF_COMMANDS
                .iter()
                .map(|&command| SeccompCondition::new(0, Len::Dword, Op::Ne, command))
                .collect::<Result<_, _>>()?;
            rules.push((libc::SYS_bpf, vec![SeccompRule::new(conditions)?]));
            Ok::<_, BackendError>(rules)
        };
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        let rules = rules().map_err(io::Error::other)?;
        Ok(Confinement { programs: vec![program(rules, SeccompAction::Allow, refused)?] })
    }
}

fn rules() -> Result<Rules, BackendError> {
    let mut rules = free(FREE);
    rules.extend(plain_memory()?);
    // Threads, no processes.
    let thread = libc::CLONE_THREAD as u64;
    rules.push(masked(libc::SYS_clone, 0, thread, thread)?);
    // Files to read.
    let changing = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;
    rules.push(masked(libc::SYS_openat, 2, changing, libc::O_RDONLY as u64)?);
    rules.push(socket()?);
    rules.push(one_of(libc::SYS_bpf, 0, BPF_COMMANDS)?);
    rules.push(one_of(libc::SYS_ioctl, 1, REQUESTS)?);
    // A further filter, which can only take calls away.
    rules.push(one_of(libc::SYS_seccomp, 0, &[libc::SECCOMP_SET_MODE_FILTER.into()])?);
    // Names of threads and of memory; timer slack; before a filter.
    let options =
        [libc::PR_SET_NAME, libc::PR_SET_VMA, libc::PR_SET_TIMERSLACK, libc::PR_SET_NO_NEW_PRIVS];
    rules.push(one_of(libc::SYS_prctl, 0, &options.map(|option| option as u64))?);
    Ok(rules)
}

/// Datagrams, frames and netlink; no connections.
fn socket() -> Result<(libc::c_long, Vec<SeccompRule>), BackendError> {
    let kinds = [
        (libc::AF_INET, libc::SOCK_DGRAM),
        (libc::AF_INET6, libc::SOCK_DGRAM),
        (libc::AF_PACKET, libc::SOCK_RAW),
        (libc::AF_XDP, libc::SOCK_RAW),
        (libc::AF_NETLINK, libc::SOCK_RAW),
        // For names and MTUs of interfaces.
        (libc::AF_UNIX, libc::SOCK_DGRAM),
    ];
    let flags = !((libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u32);
    let rule = |(family, kind): (i32, i32)| {
        SeccompRule::new(vec![
            SeccompCondition::new(0, Len::Dword, Op::Eq, family as u64)?,
            SeccompCondition::new(1, Len::Dword, Op::MaskedEq(flags.into()), kind as u64)?,
        ])
    };
    Ok((libc::SYS_socket, kinds.into_iter().map(rule).collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;
    use std::thread;

    use super::*;

    fn refused(result: io::Result<()>) {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EPERM));
    }

    #[test]
    fn files_to_write_and_connections_are_refused_and_its_work_goes_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let file = std::env::temp_dir().join(format!("wirepath-seccomp-{}", std::process::id()));
        thread::spawn(move || {
            Confinement::of_peer().unwrap().enter().unwrap();
            refused(File::create(&file).map(drop));
            refused(fs::remove_file("/proc/self/status"));
            refused(TcpStream::connect(at).map(drop));
            refused(Command::new("true").status().map(drop));
            refused(set_window_size());
            assert!(fs::read_to_string("/proc/self/status").unwrap().contains("Seccomp:\t"));
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let to = socket.local_addr().unwrap();
            let sent = thread::spawn(move || socket.send_to(b"x", to).unwrap());
            assert_eq!(sent.join().unwrap(), 1);
        })
        .join()
        .unwrap();
        assert!(TcpStream::connect(at).is_ok(), "other threads are not confined");
    }

    /// A request to a terminal (TIOCSWINSZ) that is none of those allowed.
    fn set_window_size() -> io::Result<()> {
        let size = [0_u16; 4];
        // SAFETY: the kernel reads four numbers of 16 bits, which outlive the call.
        let rc = unsafe { libc::ioctl(0, libc::TIOCSWINSZ, size.as_ptr()) };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    #[test]
    fn a_thread_that_reads_datagrams_opens_and_connects_nothing_and_answers() {
        thread::spawn(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let other = UdpSocket::bind("127.0.0.1:0").unwrap();
            let to = other.local_addr().unwrap();
            Confinement::of_peer().unwrap().enter().unwrap();
            assert!(File::open("/proc/self/status").is_ok());
            Confinement::of_peer_run().unwrap().enter().unwrap();
            let refused = |result: io::Result<()>| {
                assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EPERM));
            };
            refused(File::open("/proc/self/status").map(drop));
            refused(fs::read_dir("/proc").map(drop));
            refused(socket.connect(to));
            refused(UdpSocket::bind("127.0.0.1:0").map(drop));
            assert_eq!(socket.send_to(b"x", to).unwrap(), 1);
            assert_eq!(other.recv(&mut [0; 8]).unwrap(), 1);
        })
        .join()
        .unwrap();
    }

    /// Child process of the next test.
    #[test]
    #[ignore = "role of a child process"]
    fn child_that_becomes_another_program() {
        Confinement::of_peer().unwrap().enter().unwrap();
        unreachable!("{}", Command::new("true").exec());
    }

    #[test]
    fn a_program_in_its_place_ends_it() {
        let role = "seccomp::peer::tests::child_that_becomes_another_program";
        let output = testkit::role(role).output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{output:?}");
    }
}
