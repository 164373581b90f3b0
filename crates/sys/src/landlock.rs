//! Landlock: takes files, TCP connections, signals to other processes and abstract Unix sockets from a thread and the threads
//! that it starts, for root too.
//!
//! Source: kernel documentation, userspace-api/landlock.rst.

use std::ffi::{CStr, OsStr};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, PathBeneath, PathFd, PathFdError, Ruleset,
    RulesetAttr, RulesetCreatedAttr, Scope,
};

/// Rights on files that are taken, those of Linux 6.10: to execute, read, write, truncate, make and remove, and the requests
/// of devices that are opened later. Older kernels take those that they know.
const FILES: ABI = ABI::V5;

/// First version of Landlock with each right, and the right. Version 2 is left out: moving a file between folders
/// is refused by version 1, too.
const RIGHTS: [(ABI, Gap); 5] = [
    (ABI::V1, Gap { right: "reading and writing files", linux: "5.13, with Landlock enabled" }),
    (ABI::V3, Gap { right: "truncating files", linux: "6.2" }),
    (ABI::V4, Gap { right: "TCP connections", linux: "6.7" }),
    (ABI::V5, Gap { right: "requests to devices", linux: "6.10" }),
    (ABI::V6, Gap { right: "signals and abstract Unix sockets", linux: "6.12" }),
];

/// A right that a confined thread keeps, because the kernel cannot take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The right, as the subject of a sentence.
    pub right: &'static str,
    /// First Linux that takes it.
    pub linux: &'static str,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (needs Linux {})", self.right, self.linux)
    }
}

/// Lets the calling thread, and those that it starts, open files only beneath `folders`, only to read; neither bind nor
/// connect a TCP socket; signal only threads that are confined with it and those of its own process; and connect to abstract
/// Unix sockets of such threads alone. Open descriptors keep their use. Irrevocable; sets no_new_privs.
///
/// Returns the rights that this kernel cannot take, the oldest first; none since Linux 6.12.
pub fn read_only(folders: &[&CStr]) -> io::Result<Vec<Gap>> {
    // Best effort, the crate's default: rights that the kernel does not know are left out.
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(FILES))
        .and_then(|rules| rules.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp))
        .and_then(|rules| rules.scope(Scope::AbstractUnixSocket | Scope::Signal))
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
    Ok(gaps(&status.landlock))
}

/// Rights that a kernel with this version of Landlock cannot take.
fn gaps(kernel: &LandlockStatus) -> Vec<Gap> {
    let known = match kernel {
        LandlockStatus::Available { effective_abi, .. } => *effective_abi,
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => ABI::Unsupported,
    };
    RIGHTS.iter().filter(|(since, _)| *since > known).map(|(_, gap)| *gap).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::net::{TcpListener, TcpStream};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
    use std::process::{Child, Command};
    use std::thread;

    use landlock::{CompatLevel, Compatible};

    use super::*;

    /// Rules that fail at a right which the kernel does not know.
    fn strict() -> Ruleset {
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement)
    }

    fn refused(result: io::Result<()>, errno: i32) {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(errno));
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
            read_only(&[c"/proc"]).unwrap();
            assert!(fs::read_to_string("/proc/self/status").is_ok());
            assert!(File::open("/proc/thread-self/ns/net").is_ok());
            refused(File::open(&file).map(drop), libc::EACCES);
            refused(File::create(&file).map(drop), libc::EACCES);
            refused(fs::read_dir("/etc").map(drop), libc::EACCES);
            if strict().handle_access(AccessNet::ConnectTcp).is_ok() {
                refused(TcpStream::connect(at).map(drop), libc::EACCES);
            }
            assert_eq!(io::Read::read(&mut open, &mut [0; 1]).unwrap(), 0, "it was open before");
        })
        .join()
        .unwrap();
        fs::remove_file(path).unwrap();
        assert!(TcpStream::connect(at).is_ok(), "other threads are not confined");
    }

    fn signal(process: &Child) -> io::Result<()> {
        // SAFETY: no memory is involved; a child that is not reaped keeps its id.
        let rc = unsafe { libc::kill(process.id() as libc::pid_t, libc::SIGCONT) };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    #[test]
    fn confined_thread_signals_no_other_process_and_reaches_no_abstract_socket_but_its_own() {
        if strict().scope(Scope::Signal | Scope::AbstractUnixSocket).is_err() {
            testkit::skip("kernel", "Landlock without scopes (before Linux 6.12)");
            return;
        }
        let mut outsider = Command::new("sleep").arg("600").spawn().unwrap();
        let name = format!("wirepath-landlock-{}", std::process::id());
        let at = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&at).unwrap();
        let datagrams = SocketAddr::from_abstract_name(format!("{name}-datagrams")).unwrap();
        let receiver = UnixDatagram::bind_addr(&datagrams).unwrap();
        let own = SocketAddr::from_abstract_name(format!("{name}-own")).unwrap();
        thread::scope(|scope| {
            let confined = scope.spawn(|| {
                signal(&outsider).unwrap();
                drop(UnixStream::connect_addr(&at).unwrap());
                read_only(&[]).unwrap();
                refused(signal(&outsider), libc::EPERM);
                refused(UnixStream::connect_addr(&at).map(drop), libc::EPERM);
                let socket = UnixDatagram::unbound().unwrap();
                refused(socket.send_to_addr(b"x", &datagrams).map(drop), libc::EPERM);
                let _listener = UnixListener::bind_addr(&own).unwrap();
                assert!(UnixStream::connect_addr(&own).is_ok());
                // Threads of its own process, and itself.
                let own_process = std::process::id() as libc::pid_t;
                // SAFETY: no memory is involved.
                assert_eq!(unsafe { libc::kill(own_process, 0) }, 0);
            });
            confined.join().unwrap();
        });
        signal(&outsider).expect("other threads are not confined");
        assert!(UnixStream::connect_addr(&at).is_ok());
        drop((listener, receiver));
        outsider.kill().unwrap();
        outsider.wait().unwrap();
    }

    #[test]
    fn older_kernels_name_each_right_that_they_leave_and_this_one_what_it_leaves() {
        let rights = |abi: ABI| {
            let kernel = LandlockStatus::Available { effective_abi: abi, kernel_abi: None };
            gaps(&kernel).into_iter().map(|gap| gap.right).collect::<Vec<_>>()
        };
        let scopes = "signals and abstract Unix sockets";
        assert_eq!(rights(ABI::V6), [""; 0]);
        assert_eq!(rights(ABI::V5), [scopes]);
        assert_eq!(rights(ABI::V3), ["TCP connections", "requests to devices", scopes]);
        assert_eq!(rights(ABI::V1)[0], "truncating files");
        assert_eq!(gaps(&LandlockStatus::NotEnabled).len(), RIGHTS.len());
        let taken = thread::spawn(|| read_only(&[]).unwrap()).join().unwrap();
        let has_scopes = strict().scope(Scope::Signal).is_ok();
        assert_eq!(taken.iter().any(|gap| gap.right == scopes), !has_scopes, "{taken:?}");
        assert_eq!(
            gaps(&LandlockStatus::NotEnabled)[4].to_string(),
            format!("{scopes} (needs Linux 6.12)")
        );
    }
}
