//! Landlock: takes files and TCP connections from a thread and the threads that it starts, for root too.
//!
//! Source: kernel documentation, userspace-api/landlock.rst.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// LANDLOCK_ACCESS_FS_READ_FILE and READ_DIR.
const READING: u64 = 1 << 2 | 1 << 3;
/// All rights of the first version: to execute, read, write, make and remove.
const ALL: u64 = (1 << 13) - 1;
/// LANDLOCK_ACCESS_NET_BIND_TCP and CONNECT_TCP.
const TCP: u64 = 1 << 0 | 1 << 1;
/// First version that knows TCP (Linux 6.7).
const TCP_VERSION: libc::c_long = 4;
const ASK_VERSION: u32 = 1;
const PATH_BENEATH: u32 = 1;

/// `struct landlock_ruleset_attr` of version 4; the first field alone is that of version 1.
#[repr(C)]
struct Ruleset {
    files: u64,
    net: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// Lets the calling thread, and those that it starts, open files only beneath `folders`, only to read, and
/// connect no TCP socket. Open descriptors keep their use. Irrevocable; sets no_new_privs.
///
/// Returns false if the kernel has no Landlock (before Linux 5.13, or not enabled). TCP needs Linux 6.7.
pub fn read_only(folders: &[&CStr]) -> io::Result<bool> {
    let Some(version) = version() else { return Ok(false) };
    let has_tcp = version >= TCP_VERSION;
    let wanted = Ruleset { files: ALL, net: if has_tcp { TCP } else { 0 } };
    let size = if has_tcp { size_of::<Ruleset>() } else { size_of::<u64>() };
    // SAFETY: `wanted` outlives the call, and `size` is no more than its size.
    let fd =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const wanted, size, 0) };
    let fd = checked(fd)? as i32;
    // SAFETY: the call returned a new descriptor without another owner.
    let rules = unsafe { OwnedFd::from_raw_fd(fd) };
    for folder in folders {
        // SAFETY: a string with its zero byte, which outlives the call.
        let opened = unsafe { libc::open(folder.as_ptr(), libc::O_PATH | libc::O_CLOEXEC) };
        let opened = match checked(opened.into()) {
            // Nothing to read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened? as i32,
        };
        // SAFETY: open(2) returned a new descriptor without another owner.
        let opened = unsafe { OwnedFd::from_raw_fd(opened) };
        let rule = PathBeneath { allowed: READING, parent: opened.as_raw_fd() };
        // SAFETY: `rule` outlives the call, which reads it.
        let added = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                rules.as_raw_fd(),
                PATH_BENEATH,
                &raw const rule,
                0,
            )
        };
        checked(added)?;
    }
    // SAFETY: no memory is involved.
    checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
    // SAFETY: no memory is involved; the descriptor is open.
    checked(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) })?;
    Ok(true)
}

/// Version of the kernel's Landlock; `None` if it has none.
fn version() -> Option<libc::c_long> {
    let no_rules = std::ptr::null::<Ruleset>();
    // SAFETY: with this flag the call reads no memory.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, no_rules, 0_usize, ASK_VERSION) };
    (version > 0).then_some(version)
}

fn checked(rc: libc::c_long) -> io::Result<libc::c_long> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use super::*;

    fn refused(result: io::Result<()>) {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EACCES));
    }

    #[test]
    fn only_files_beneath_the_folders_are_read_and_no_tcp_socket_connects() {
        let Some(version) = version() else {
            testkit::skip("kernel", "no Landlock");
            return;
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let path = std::env::temp_dir().join(format!("wirepath-landlock-{}", std::process::id()));
        fs::write(&path, "").unwrap();
        let mut open = File::open(&path).unwrap();
        let file = path.clone();
        thread::spawn(move || {
            assert!(read_only(&[c"/proc"]).unwrap());
            assert!(fs::read_to_string("/proc/self/status").is_ok());
            assert!(File::open("/proc/thread-self/ns/net").is_ok());
            refused(File::open(&file).map(drop));
            refused(File::create(&file).map(drop));
            refused(fs::read_dir("/etc").map(drop));
            if version >= TCP_VERSION {
                refused(TcpStream::connect(at).map(drop));
            }
            assert_eq!(io::Read::read(&mut open, &mut [0; 1]).unwrap(), 0, "it was open before");
        })
        .join()
        .unwrap();
        fs::remove_file(path).unwrap();
        assert!(TcpStream::connect(at).is_ok(), "other threads are not confined");
    }
}
