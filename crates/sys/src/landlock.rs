//! Landlock: takes files and TCP connections from a thread and the threads that it starts, for root too.
//!
//! Source: kernel documentation, userspace-api/landlock.rst.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;

use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, PathFdError, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus,
};

/// Rights on files that are taken, those of Linux 6.10: to execute, read, write, truncate, make and remove, and the requests
/// of devices that are opened later. Older kernels take those that they know.
const FILES: ABI = ABI::V5;

/// Lets the calling thread, and those that it starts, open files only beneath `folders`, only to read, and
/// neither bind nor connect a TCP socket. Open descriptors keep their use. Irrevocable; sets no_new_privs.
///
/// Returns false if the kernel has no Landlock (before Linux 5.13, or not enabled). TCP needs Linux 6.7.
pub fn read_only(folders: &[&CStr]) -> io::Result<bool> {
    // Best effort, the crate's default: rights that the kernel does not know are left out.
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(FILES))
        .and_then(|rules| rules.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp))
        .and_then(Ruleset::create)
        .map_err(io::Error::other)?;
    for folder in folders {
        let opened = match PathFd::new(OsStr::from_bytes(folder.to_bytes())) {
            // Nothing to read.
            Err(PathFdError::OpenCall { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                continue;
            }
            opened => opened.map_err(io::Error::other)?,
        };
        let rule = PathBeneath::new(opened, AccessFs::ReadFile | AccessFs::ReadDir);
        rules = rules.add_rule(rule).map_err(io::Error::other)?;
    }
    let status = rules.restrict_self().map_err(io::Error::other)?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use landlock::{CompatLevel, Compatible};

    use super::*;

    /// Rules that fail at a right which the kernel does not know.
    fn strict() -> Ruleset {
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement)
    }

    fn refused(result: io::Result<()>) {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EACCES));
    }

    #[test]
    fn only_files_beneath_the_folders_are_read_and_no_tcp_socket_connects() {
        if strict().handle_access(AccessFs::Execute).is_err() {
            testkit::skip("kernel", "no Landlock");
            return;
        }
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
            if strict().handle_access(AccessNet::ConnectTcp).is_ok() {
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
