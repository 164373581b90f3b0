//! Getting a thread out of the guest.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use vmm_sys_util::signal::{Killable, SIGRTMIN, register_signal_handler};

use super::KvmError;

/// A signal that nothing else here uses, and whose default would end the process.
fn number() -> i32 {
    SIGRTMIN() + 3
}

extern "C" fn nothing(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}

/// Makes the signal of [`kick`] harmless. Call before a thread that is kicked starts.
pub fn allow_kicks() -> Result<(), KvmError> {
    register_signal_handler(number(), nothing).map_err(KvmError::of("sigaction"))
}

/// Interrupts whatever the thread does in the kernel, the guest included, until it has ended.
///
/// The thread must look at a flag of its own between two runs, and find it set. One signal
/// could fall between that look and the run; this repeats it.
pub fn kick<T>(thread: JoinHandle<T>) -> std::thread::Result<T> {
    while !thread.is_finished() {
        // A thread that has just ended is not found: then there is nothing to do.
        let _: Result<(), _> = thread.kill(number()).map_err(io::Error::from);
        std::thread::sleep(Duration::from_millis(1));
    }
    thread.join()
}
