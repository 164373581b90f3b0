//! The kernel's trace events by their files, without mounting anything that another process sees.
//!
//! Source: fsopen(2), fsmount(2); the kernel's Documentation/trace/ftrace.rst.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use crate::capability::{Capability, missing_on_host};

/// Where systemd mounts it.
const MOUNTED: &str = "/sys/kernel/tracing";

/// tracefs: where it is mounted, or a mount of our own that lasts as long as this value.
#[derive(Debug)]
pub struct Tracefs {
    folder: PathBuf,
    /// Of a mount that is in no namespace.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// Opens it.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN, if it is not mounted or belongs to root; ENODEV of a kernel without trace events.
    pub fn open() -> io::Result<Tracefs> {
        let mounted = PathBuf::from(MOUNTED);
        if fs::read_dir(mounted.join("events")).is_ok() {
            return Ok(Tracefs { folder: mounted, _mount: None });
        }
        let mount = detached_mount(c"tracefs").map_err(|why| {
            match missing_on_host(&[Capability::SysAdmin]) {
                Some(missing) => io::Error::new(why.kind(), format!("{missing}: {why}")),
                None => why,
            }
        })?;
        let folder = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        Ok(Tracefs { folder, _mount: Some(mount) })
    }

    /// Number of an event, for perf_event_open(2).
    ///
    /// - `event`: `GROUP/NAME`, as `kvm/kvm_exit`.
    ///
    /// # Errors
    /// ENOENT if the kernel has no such event, or its module is not loaded.
    pub fn event_id(&self, event: &str) -> io::Result<u64> {
        let text = fs::read_to_string(self.folder.join("events").join(event).join("id"))?;
        text.trim().parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, text))
    }
}

/// Mounts a file system in no namespace: the descriptor is its only user.
fn detached_mount(kind: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string.
    let context = unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) };
    let context = new_descriptor(context)?;
    let none = std::ptr::null::<u8>();
    // SAFETY: this command takes neither key nor value.
    let created = unsafe {
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, none, none, 0)
    };
    if created < 0 {
        return Err(io::Error::last_os_error());
    }
    let attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    // SAFETY: the call takes numbers only.
    let mount = unsafe {
        libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, attributes)
    };
    new_descriptor(mount)
}

/// `<linux/mount.h>`.
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const MOUNT_ATTR_NOSUID: libc::c_uint = 2;
const MOUNT_ATTR_NODEV: libc::c_uint = 4;
const MOUNT_ATTR_NOEXEC: libc::c_uint = 8;

fn new_descriptor(result: libc::c_long) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(result as RawFd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_numbers_and_no_mount_is_seen() {
        let before = fs::read_to_string("/proc/self/mounts").unwrap();
        let tracefs = match Tracefs::open() {
            Ok(tracefs) => tracefs,
            Err(why) => return testkit::skip("root", why.to_string()),
        };
        assert_eq!(fs::read_to_string("/proc/self/mounts").unwrap(), before);
        assert!(tracefs.event_id("sched/sched_switch").unwrap() > 0);
        let error = tracefs.event_id("sched/none").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
