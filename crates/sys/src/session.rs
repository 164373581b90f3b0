//! Sessions: groups of processes that the end of a login reaches together.

use std::io;

/// Moves this process into a new session, without a terminal.
///
/// Errors: EPERM if it leads a process group.
///
/// Source: setsid(2).
pub fn lead_new() -> io::Result<()> {
    // SAFETY: no memory is involved.
    let rc = unsafe { libc::setsid() };
    if rc >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
