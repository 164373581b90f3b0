//! SIGINT and SIGTERM: the first requests a stop, the second ends the process.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use remote::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::unregister;
use signal_hook::{SigId, flag};

pub const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];
/// Exit code of a process that a signal ended.
pub const INTERRUPTED_EXIT_CODE: i32 = model::ExitCode::Interrupted.code() as i32;

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Handlers that exit on the second signal.
static ON_SECOND: Mutex<Vec<SigId>> = Mutex::new(Vec::new());

fn stop() -> &'static Arc<AtomicBool> {
    STOP.get_or_init(Arc::default)
}

pub fn install() -> io::Result<()> {
    for signal in SIGNALS {
        flag::register(signal, stop().clone())?;
    }
    exit_on_second()
}

/// Lets the second signal end the process at once.
pub fn exit_on_second() -> io::Result<()> {
    let first_came = Arc::new(AtomicBool::new(stop_requested()));
    let mut ids = ON_SECOND.lock().unwrap_or_else(PoisonError::into_inner);
    for signal in SIGNALS {
        // Registered first, so that it sees the flag only from the second signal on.
        ids.push(flag::register_conditional_shutdown(
            signal,
            INTERRUPTED_EXIT_CODE,
            first_came.clone(),
        )?);
        ids.push(flag::register(signal, first_came.clone())?);
    }
    Ok(())
}

/// Removes the handlers of the second signal, for a caller that must clean up before the exit.
pub fn release_second() {
    for id in ON_SECOND.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        unregister(id);
    }
}

/// Errors: a stop was requested.
pub fn check_stop() -> Result<(), Failure> {
    if stop_requested() { Err(Failure::interrupted()) } else { Ok(()) }
}

/// Requests a stop, as the first signal does.
pub fn request_stop() {
    stop().store(true, Ordering::Relaxed);
}

/// Treats SIGHUP as a request to stop, too.
pub fn stop_on_hangup() -> io::Result<()> {
    flag::register(SIGHUP, stop().clone()).map(drop)
}

/// Flag that is set once a stop was requested.
pub fn stop_flag() -> &'static AtomicBool {
    stop()
}

pub fn stop_requested() -> bool {
    stop().load(Ordering::Relaxed)
}
