//! Interrupting a thread that runs a guest.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use vmm_sys_util::signal::{Killable, SIGRTMIN, register_signal_handler};

use super::KvmError;

/// A signal that is not used otherwise; its default action ends the process.
fn number() -> i32 {
    SIGRTMIN() + 3
}

extern "C" fn nothing(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}

/// Makes the signal of [`kick`] harmless. Call before a thread that is kicked starts.
pub fn allow_kicks() -> Result<(), KvmError> {
    register_signal_handler(number(), nothing).map_err(KvmError::of("sigaction"))
}

/// Interrupts the thread's system calls, KVM_RUN included, until it has ended.
///
/// The thread must check a flag between two runs. A signal may arrive between the check and the
/// run; therefore it is repeated.
pub fn kick<T>(thread: JoinHandle<T>) -> std::thread::Result<T> {
    while !thread.is_finished() {
        // ESRCH: the thread has just ended.
        let _: Result<(), _> = thread.kill(number()).map_err(io::Error::from);
        std::thread::sleep(Duration::from_millis(1));
    }
    thread.join()
}
