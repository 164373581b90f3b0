//! Children of a supervisor: nothing here allocates.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Waits for a child that has ended or is about to.
pub(super) fn reap(pid: u32) {
    loop {
        let mut status = 0;
        // SAFETY: the status may be written.
        let rc = unsafe { libc::waitpid(pid as libc::pid_t, &mut status, 0) };
        if rc >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// Process id and parent of an entry of /proc.
pub(super) fn process(name: &CStr) -> Option<(libc::pid_t, libc::pid_t)> {
    let pid: libc::pid_t = name.to_str().ok()?.parse().ok()?;
    let mut path = [0; 32];
    let mut rest = &mut path[..];
    write!(rest, "/proc/{pid}/stat").ok()?;
    let room_left = rest.len();
    let path = path.get(..32 - room_left)?;
    // A path as short as this is not copied to the heap.
    let mut file = File::open(Path::new(OsStr::from_bytes(path))).ok()?;
    let mut text = [0; 256];
    let len = file.read(&mut text).ok()?;
    // "PID (NAME) STATE PARENT …"; the name may hold anything.
    let text = text.get(..len)?;
    let after_name = text.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(text.get(after_name..)?).ok()?;
    Some((pid, fields.split(' ').nth(2)?.parse().ok()?))
}

/// Sends SIGKILL to a process, or to the group of the negative number.
pub(super) fn kill(pid: libc::pid_t) {
    // SAFETY: no memory is involved; a child that is not reaped keeps its id.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Waits for any child; `None` if there is none. With WNOHANG, process 0 if all run.
pub(super) fn wait(options: i32) -> Option<(libc::pid_t, i32)> {
    let mut status = 0;
    // SAFETY: the status may be written.
    let pid = unsafe { libc::waitpid(-1, &mut status, options) };
    (pid >= 0).then_some((pid, status))
}
