//! System-call filters of threads that answer HTTP requests.
//!
//! Such a thread has its connection and reads results, or only memory. It is not a list of all calls that it makes,
//! because SQLite's differ by version, but of those that it never makes.

use std::io;

use seccompiler::{BackendError, SeccompAction};

use super::peer::HOSTILE;
use super::{Confinement, Rules, free, masked, program};

/// Calls that fail: other connections, and changes of files but SQLite's own beside the results.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bpf,
    libc::SYS_kill,
    libc::SYS_creat,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_chown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_truncate,
    // Its flags are in memory, which a filter cannot read.
    libc::SYS_openat2,
];

fn errno(number: i32) -> SeccompAction {
    SeccompAction::Errno(number as u32)
}

impl Confinement {
    /// Filter of a thread that answers from stored results: it connects to nothing, starts no program and cuts no
    /// file. It may open one for writing, as SQLite does beside results in write-ahead mode.
    pub fn of_stored_pages() -> io::Result<Self> {
        let cut = masked(libc::SYS_openat, 2, libc::O_TRUNC as u64, libc::O_TRUNC as u64);
        Self::without(cut.map(|cut| vec![cut]))
    }

    /// Filter of a thread that answers from memory: as [`Self::of_stored_pages`], and it opens no file.
    pub fn of_pages() -> io::Result<Self> {
        Self::without(Ok(free(&[libc::SYS_open, libc::SYS_openat])))
    }

    fn without(more: Result<Rules, BackendError>) -> io::Result<Self> {
        let mut rules = free(REFUSED);
        rules.extend(more.map_err(io::Error::other)?);
        // Threads, no processes: clone3's flags are in memory, too.
        let clone3 = free(&[libc::SYS_clone3]);
        let process = masked(libc::SYS_clone, 0, libc::CLONE_THREAD as u64, 0);
        rules.push(process.map_err(io::Error::other)?);
        Ok(Confinement {
            programs: vec![
                program(free(HOSTILE), SeccompAction::Allow, SeccompAction::KillProcess)?,
                program(clone3, SeccompAction::Allow, errno(libc::ENOSYS))?,
                program(rules, SeccompAction::Allow, errno(libc::EPERM))?,
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, OpenOptions};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::process::Command;
    use std::thread;

    use super::*;

    fn refused<T>(result: io::Result<T>) {
        let error = result.err().expect("it is refused");
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    }

    /// Enters `filter` on a thread that has a connection, checks it by `check`, and answers.
    fn answers(filter: io::Result<Confinement>, check: impl FnOnce() + Send + 'static) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(at).unwrap();
        let (mut connection, _) = listener.accept().unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (filter, own) = (filter.unwrap(), std::env::temp_dir());
        thread::spawn(move || {
            filter.enter().unwrap();
            check();
            refused(TcpStream::connect(at));
            refused(other.connect(at));
            refused(UdpSocket::bind("127.0.0.1:0"));
            refused(Command::new("/bin/true").status());
            refused(File::create(own.join("wirepath-pages-cut")));
            refused(fs::create_dir(own.join("wirepath-pages-folder")));
            let mut byte = [0];
            connection.read_exact(&mut byte).unwrap();
            assert!(thread::spawn(|| ()).join().is_ok());
            connection.write_all(&byte).unwrap();
        });
        client.write_all(b"x").unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"x");
    }

    #[test]
    fn thread_that_answers_from_memory_opens_nothing_and_answers() {
        answers(Confinement::of_pages(), || {
            refused(File::open("/proc/self/status"));
            refused(OpenOptions::new().write(true).open("/dev/null"));
        });
    }

    #[test]
    fn thread_that_answers_from_results_opens_them_and_answers() {
        answers(Confinement::of_stored_pages(), || {
            assert!(File::open("/proc/self/status").is_ok());
            assert!(OpenOptions::new().read(true).write(true).open("/dev/null").is_ok());
        });
    }
}
