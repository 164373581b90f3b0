//! Capabilities of a thread, and dropping them.
//!
//! Capabilities belong to a thread: other threads keep theirs, and a new thread inherits those of
//! its creator.
//!
//! Source: capabilities(7).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Capabilities that Wirepath uses, with the kernel's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Bypass of file permissions.
    DacOverride = 1,
    /// Bypass of file permissions for reading.
    DacReadSearch = 2,
    /// Ports below 1024.
    NetBindService = 10,
    /// Settings of interfaces, XDP, large socket buffers.
    NetAdmin = 12,
    /// Frames: AF_PACKET, AF_XDP.
    NetRaw = 13,
    /// Memory of rings beyond RLIMIT_MEMLOCK.
    IpcLock = 14,
    /// Descriptors of other processes.
    SysPtrace = 19,
    SysAdmin = 21,
    /// Real-time priorities.
    SysNice = 23,
    /// BPF programs that read kernel memory.
    Perfmon = 38,
    /// BPF programs and maps.
    Bpf = 39,
}

impl Capability {
    /// As capabilities(7) writes it.
    pub fn name(self) -> &'static str {
        match self {
            Capability::DacOverride => "CAP_DAC_OVERRIDE",
            Capability::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Capability::NetBindService => "CAP_NET_BIND_SERVICE",
            Capability::NetAdmin => "CAP_NET_ADMIN",
            Capability::NetRaw => "CAP_NET_RAW",
            Capability::IpcLock => "CAP_IPC_LOCK",
            Capability::SysPtrace => "CAP_SYS_PTRACE",
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::SysNice => "CAP_SYS_NICE",
            Capability::Perfmon => "CAP_PERFMON",
            Capability::Bpf => "CAP_BPF",
        }
    }

    fn mask(self) -> u64 {
        1 << self as u32
    }

    /// CAP_SYS_ADMIN implies it.
    fn is_part_of_sys_admin(self) -> bool {
        matches!(self, Capability::Perfmon | Capability::Bpf)
    }
}

/// Drops all capabilities of the calling thread except `kept`, irrevocably. After
/// [`no_new_privileges`], programs that it starts do not regain them.
pub fn keep(kept: &[Capability]) -> io::Result<()> {
    let kept = kept.iter().fold(0, |all, one| all | one.mask());
    set(kept & own()?.permitted, 0)
}

/// Sets the calling thread's capabilities.
///
/// - `permitted`: and effective.
fn set(permitted: u64, inheritable: u64) -> io::Result<()> {
    let header = [VERSION_3, 0];
    // Effective, permitted and inheritable, the low words first.
    let sets = [permitted, permitted, inheritable];
    let low = sets.map(|set| set as u32);
    let high = sets.map(|set| (set >> 32) as u32);
    let sets = [low, high];
    // SAFETY: both arrays have the size that version 3 needs.
    let rc = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets programs that the calling thread starts keep its capabilities, which they would lose as those of a user other
/// than root. Threads that it starts from now on do the same.
///
/// Source: capabilities(7), ambient set; since Linux 4.3.
pub(crate) fn raise_ambient() -> io::Result<()> {
    let permitted = own()?.permitted;
    set(permitted, permitted)?;
    for capability in (0..u64::BITS).filter(|number| permitted & 1 << number != 0) {
        // SAFETY: no pointer is passed.
        let rc = unsafe {
            libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, capability, 0, 0)
        };
        if rc != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Takes from the program that the calling thread executes next the capabilities that it would keep as those of this
/// program's own ends; those of root and of its file are not affected. Neither allocates nor locks.
pub(crate) fn clear_ambient() {
    // Fails before Linux 4.3 alone, which has no such set.
    // SAFETY: no pointer is passed.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION_3: u32 = 0x2008_0522;

/// Programs started by the calling thread and its children gain no privileges by set-user-id bits,
/// file capabilities or root.
///
/// Source: the kernel's userspace-api/no_new_privs.rst.
pub fn no_new_privileges() -> io::Result<()> {
    // SAFETY: no pointer is passed.
    let rc = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub fn effective_uid() -> u32 {
    // SAFETY: geteuid takes no argument and cannot fail.
    unsafe { libc::geteuid() }
}

/// Names of the capabilities that the calling thread lacks; `None` if it has all of them.
pub fn missing(needed: &[Capability]) -> Option<String> {
    missing_from(own().ok()?.effective, needed)
}

/// As [`missing`], of what needs a capability that holds for the whole host: in a user namespace of its own, a process
/// lacks all of them.
pub fn missing_on_host(needed: &[Capability]) -> Option<String> {
    let effective = if is_in_initial_user_namespace() { own().ok()?.effective } else { 0 };
    missing_from(effective, needed)
}

/// Inode number of the user namespace that the kernel starts with.
///
/// Source: PROC_USER_INIT_INO of linux/proc_ns.h.
const INITIAL_INODE: u64 = 0xEFFF_FFFD;

/// True if this process is in the user namespace that the kernel started with. Elsewhere a capability holds for what the
/// namespace owns, not for settings of the host.
pub(crate) fn is_in_initial_user_namespace() -> bool {
    // Without /proc or in a kernel without user namespaces there is no other one.
    fs::metadata("/proc/self/ns/user").map_or(true, |namespace| namespace.ino() == INITIAL_INODE)
}

fn missing_from(effective: u64, needed: &[Capability]) -> Option<String> {
    let has = |capability: Capability| effective & capability.mask() != 0;
    let names: Vec<_> = needed
        .iter()
        .filter(|one| !(has(**one) || one.is_part_of_sys_admin() && has(Capability::SysAdmin)))
        .map(|one| one.name())
        .collect();
    (!names.is_empty()).then(|| names.join(" and "))
}

struct Own {
    effective: u64,
    permitted: u64,
}

fn own() -> io::Result<Own> {
    let header = [VERSION_3, 0];
    let mut sets = [0_u32; 6];
    // SAFETY: both arrays have the size that version 3 needs; the second may be written.
    let rc = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    let [effective, permitted, _, effective_high, permitted_high, _] = sets.map(u64::from);
    Ok(Own {
        effective: effective_high << 32 | effective,
        permitted: permitted_high << 32 | permitted,
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::thread;

    use super::*;

    #[test]
    fn missing_ones_are_named_and_sys_admin_stands_in_for_bpf_only() {
        let needed = [Capability::Bpf, Capability::NetAdmin];
        assert_eq!(missing_from(0, &needed).as_deref(), Some("CAP_BPF and CAP_NET_ADMIN"));
        assert_eq!(missing_from(1 << 39, &needed).as_deref(), Some("CAP_NET_ADMIN"));
        assert_eq!(missing_from(1 << 21, &needed).as_deref(), Some("CAP_NET_ADMIN"));
        assert_eq!(missing_from(1 << 21 | 1 << 12, &needed), None);
        assert_eq!(missing_from(0, &[Capability::Perfmon]).as_deref(), Some("CAP_PERFMON"));
    }

    /// A hexadecimal field of this thread's status file.
    fn status_field(what: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let bits = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        u64::from_str_radix(bits.trim(), 16).unwrap()
    }

    #[test]
    fn dropped_capabilities_are_gone_in_this_thread_only() {
        let before = status_field("CapEff:");
        if before & Capability::NetBindService.mask() == 0 {
            testkit::skip("root", "no capability to give up");
            return;
        }
        thread::spawn(|| {
            keep(&[Capability::NetBindService]).unwrap();
            for set in ["CapEff:", "CapPrm:"] {
                assert_eq!(status_field(set), Capability::NetBindService.mask(), "{set}");
            }
            assert_eq!(status_field("CapInh:"), 0);
            keep(&[Capability::NetAdmin]).unwrap();
            assert_eq!(status_field("CapPrm:"), 0, "nothing comes back");
            assert_eq!(missing(&[Capability::NetRaw]).as_deref(), Some("CAP_NET_RAW"));
            let refused = UdpSocket::bind("127.0.0.1:7").unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            // A new thread inherits from its creator.
            thread::spawn(|| assert_eq!(status_field("CapEff:"), 0)).join().unwrap();
        })
        .join()
        .unwrap();
        assert_eq!(status_field("CapEff:"), before);
    }

    #[test]
    fn no_new_privileges_stays_with_the_thread() {
        thread::spawn(|| {
            no_new_privileges().unwrap();
            assert_eq!(status_field("NoNewPrivs:"), 1);
        })
        .join()
        .unwrap();
    }
}
