//! The sysfs of a network namespace, without touching any mount table.
//!
//! `/sys/class/net` shows the namespace in which sysfs was mounted. Here sysfs is mounted inside the
//! requested namespace and kept as a detached mount: no path leads to it, and it is unmounted when
//! its descriptor is closed.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::netns::{Netns, NetnsError};

#[derive(Debug, Error)]
pub enum SysfsError {
    #[error("{what} is not supported here: {needs}")]
    Unsupported { what: &'static str, needs: &'static str },
    #[error(
        "mounting the sysfs of a network namespace needs CAP_SYS_ADMIN: run as root, or grant \
         it with `sudo setcap cap_sys_admin,cap_net_admin,cap_net_raw+ep PROGRAM`"
    )]
    Denied {
        #[source]
        source: io::Error,
    },
    /// The namespace could not be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    #[error("mounting sysfs failed at {step}")]
    Mount {
        step: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("cannot read /sys/{}", path.display())]
    Read {
        /// Relative to the root of sysfs.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write {value:?} to /sys/{}", path.display())]
    Write {
        /// Relative to the root of sysfs.
        path: PathBuf,
        value: String,
        #[source]
        source: io::Error,
    },
}

/// A detached mount of sysfs that shows one network namespace.
///
/// It does not keep the namespace alive; interfaces of a removed namespace are not found.
#[derive(Debug)]
pub struct Sysfs {
    root: OwnedFd,
}

impl Sysfs {
    /// Mounts the sysfs of `netns`.
    ///
    /// Source: fsopen(2), fsconfig(2), fsmount(2), since Linux 5.2.
    pub fn of(netns: &Netns) -> Result<Self, SysfsError> {
        // fsopen takes the namespace of the calling thread.
        let root = netns.run(mount)??;
        Ok(Sysfs { root })
    }

    /// Reads a file such as `class/net/eth0/mtu`, without trailing white space.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<String, SysfsError> {
        let path = path.as_ref();
        self.open(path, libc::O_RDONLY)
            .and_then(|mut file| {
                let mut text = String::new();
                file.read_to_string(&mut text)?;
                text.truncate(text.trim_end().len());
                Ok(text)
            })
            .map_err(|source| SysfsError::Read { path: path.to_owned(), source })
    }

    /// Writes a file in one call, as sysfs requires.
    pub fn write(&self, path: impl AsRef<Path>, value: &str) -> Result<(), SysfsError> {
        let path = path.as_ref();
        self.open(path, libc::O_WRONLY)
            .and_then(|mut file| match file.write(value.as_bytes())? {
                written if written == value.len() => Ok(()),
                _ => Err(io::ErrorKind::WriteZero.into()),
            })
            .map_err(|source| SysfsError::Write {
                path: path.to_owned(),
                value: value.to_owned(),
                source,
            })
    }

    /// Checks that a file can be opened for writing; writes nothing.
    pub fn probe(&self, path: impl AsRef<Path>) -> Result<(), SysfsError> {
        let path = path.as_ref();
        self.open(path, libc::O_WRONLY).map(drop).map_err(|source| SysfsError::Write {
            path: path.to_owned(),
            value: String::new(),
            source,
        })
    }

    /// Names in a directory such as `class/net/eth0/queues`, sorted.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Vec<String>, SysfsError> {
        let path = path.as_ref();
        self.open(path, libc::O_RDONLY | libc::O_DIRECTORY)
            .and_then(|directory| {
                let reached = format!("/proc/thread-self/fd/{}", directory.as_raw_fd());
                let mut names = std::fs::read_dir(reached)?
                    .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                    .collect::<io::Result<Vec<_>>>()?;
                names.sort();
                Ok(names)
            })
            .map_err(|source| SysfsError::Read { path: path.to_owned(), source })
    }

    /// Last component of the target of a link such as `class/net/eth0/device/driver`; `None` if there
    /// is no such link (virtual devices have no `device`).
    pub fn link_name(&self, path: impl AsRef<Path>) -> Result<Option<String>, SysfsError> {
        let path = path.as_ref();
        let opened = self.open(path, libc::O_RDONLY | libc::O_DIRECTORY).and_then(|directory| {
            std::fs::read_link(format!("/proc/thread-self/fd/{}", directory.as_raw_fd()))
        });
        match opened {
            Ok(target) => Ok(target.file_name().map(|name| name.to_string_lossy().into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(SysfsError::Read { path: path.to_owned(), source }),
        }
    }

    /// Opens a path below the root; the kernel refuses one that leads out of it.
    ///
    /// Links of sysfs contain `..`. If anything on the machine is renamed or mounted at that moment,
    /// the kernel cannot check that they stay inside and returns EAGAIN; the call is retried.
    ///
    /// Source: openat2(2), EAGAIN.
    fn open(&self, path: &Path, flags: i32) -> io::Result<File> {
        const ATTEMPTS: u32 = 1000;
        let path = CString::new(path.as_os_str().as_bytes())?;
        for _ in 1..ATTEMPTS {
            match self.try_open(&path, flags) {
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                    std::thread::yield_now();
                }
                opened => return opened,
            }
        }
        self.try_open(&path, flags)
    }

    fn try_open(&self, path: &CStr, flags: i32) -> io::Result<File> {
        // SAFETY: all-zero is a valid open_how, a plain C struct of integers.
        let mut how: libc::open_how = unsafe { std::mem::zeroed() };
        how.flags = (flags | libc::O_CLOEXEC) as u64;
        how.resolve = libc::RESOLVE_BENEATH;
        // SAFETY: path and `how` are valid for the call and the size is that of `how`.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                self.root.as_fd().as_raw_fd(),
                path.as_ptr(),
                &raw const how,
                size_of::<libc::open_how>(),
            )
        };
        Ok(File::from(owned(fd)?))
    }
}

fn mount() -> Result<OwnedFd, SysfsError> {
    let failed = |step: &'static str| {
        move |source: io::Error| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => SysfsError::Denied { source },
            Some(libc::ENOSYS) => {
                SysfsError::Unsupported { what: step, needs: "Linux 5.2 or newer" }
            }
            _ => SysfsError::Mount { step, source },
        }
    };
    const NAME: &CStr = c"sysfs";
    // SAFETY: the name is a valid C string; flag 1 is FSOPEN_CLOEXEC.
    let context = unsafe { libc::syscall(libc::SYS_fsopen, NAME.as_ptr(), 1) };
    let context = owned(context).map_err(failed("fsopen"))?;
    const FSCONFIG_CMD_CREATE: libc::c_int = 6;
    // SAFETY: this command takes neither key nor value.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            std::ptr::null::<libc::c_char>(),
            std::ptr::null::<libc::c_void>(),
            0,
        )
    };
    if rc != 0 {
        return Err(failed("fsconfig")(io::Error::last_os_error()));
    }
    // SAFETY: no memory is involved; flag 1 is FSMOUNT_CLOEXEC, no mount attributes.
    let root = unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), 1, 0) };
    owned(root).map_err(failed("fsmount"))
}

/// Converts the result of a system call that returns a descriptor.
fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    let Ok(fd @ 0..) = i32::try_from(fd) else {
        return Err(io::Error::last_os_error());
    };
    // SAFETY: the kernel returned a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_interfaces_of_the_namespace_are_seen() {
        let netns = Netns::new().unwrap();
        let sysfs = Sysfs::of(&netns).unwrap();
        assert_eq!(sysfs.list("class/net").unwrap(), ["lo"]);
        assert_eq!(sysfs.read("class/net/lo/address").unwrap(), "00:00:00:00:00:00");
        assert_eq!(sysfs.link_name("class/net/lo/device/driver").unwrap(), None);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let netns = Netns::new().unwrap();
        let sysfs = Sysfs::of(&netns).unwrap();
        let path = "class/net/lo/gro_flush_timeout";
        assert_eq!(sysfs.read(path).unwrap(), "0");
        sysfs.write(path, "20000").unwrap();
        assert_eq!(sysfs.read(path).unwrap(), "20000");
    }

    #[test]
    fn no_path_leads_out_of_it() {
        let sysfs = Sysfs::of(&Netns::new().unwrap()).unwrap();
        for path in ["/etc/passwd", "../etc/passwd", "class/../../etc/passwd"] {
            assert!(matches!(sysfs.read(path), Err(SysfsError::Read { .. })), "{path}");
        }
        let error = sysfs.write("class/net/lo/mtu", "-1").unwrap_err();
        assert!(error.to_string().contains("class/net/lo/mtu"), "{error}");
    }

    #[test]
    fn no_mount_table_changes() {
        // Mounts of sysfs: namespaces with a name, which other programs make meanwhile, are mounts too.
        let mounts = || {
            let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
            text.lines().filter(|line| line.contains(" - sysfs ")).map(str::to_owned).collect()
        };
        let before: Vec<String> = mounts();
        let _sysfs = Sysfs::of(&Netns::new().unwrap()).unwrap();
        assert_eq!(mounts(), before);
    }

    #[test]
    fn renames_elsewhere_do_not_disturb_reading() {
        let netns = Netns::new().unwrap();
        let sysfs = Sysfs::of(&netns).unwrap();
        let folder = std::env::temp_dir().join(format!("wirepath-rename-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (one, other) = (folder.join("one"), folder.join("other"));
                std::fs::create_dir(&one).unwrap();
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    std::fs::rename(&one, &other).unwrap();
                    std::fs::rename(&other, &one).unwrap();
                }
            });
            let failed = (0..2000)
                .map(|_| sysfs.read("class/net/lo/mtu").and_then(|_| sysfs.list("class/net/lo")))
                .find(Result::is_err);
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(failed.is_none(), "{failed:?}");
        });
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
