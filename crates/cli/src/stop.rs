//! SIGINT and SIGTERM: the first asks the command to end, the second ends the process.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::unregister;
use signal_hook::{SigId, flag};

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

fn flag_cell() -> &'static Arc<AtomicBool> {
    ASKED.get_or_init(Arc::default)
}

/// What asks a command to end.
pub(crate) const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];
/// The exit code of who ends at the second.
pub(crate) const SECOND_CODE: i32 = 130;

/// What ends the process at the second signal.
static ON_SECOND: Mutex<Vec<SigId>> = Mutex::new(Vec::new());

/// Begins to listen for signals.
pub(crate) fn install() -> io::Result<()> {
    for signal in SIGNALS {
        flag::register(signal, flag_cell().clone())?;
    }
    end_on_second()
}

/// Has the second signal end the process, on the spot.
pub(crate) fn end_on_second() -> io::Result<()> {
    let first_came = Arc::new(AtomicBool::new(asked()));
    let mut ids = ON_SECOND.lock().unwrap_or_else(PoisonError::into_inner);
    for signal in SIGNALS {
        // Registered first, so that it sees the flag only from the second signal on.
        ids.push(flag::register_conditional_shutdown(signal, SECOND_CODE, first_came.clone())?);
        ids.push(flag::register(signal, first_came.clone())?);
    }
    Ok(())
}

/// Leaves the second signal to somebody who has to tidy up before.
pub(crate) fn leave_second() {
    for id in ON_SECOND.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        unregister(id);
    }
}

/// Asks to end, as the first signal does.
pub(crate) fn ask() {
    flag_cell().store(true, Ordering::Relaxed);
}

/// Takes the end of the terminal for a wish to end, too.
pub(crate) fn on_hangup() -> io::Result<()> {
    flag::register(SIGHUP, flag_cell().clone()).map(drop)
}

/// Set once the user asked to end.
pub(crate) fn flag_ref() -> &'static AtomicBool {
    flag_cell()
}

/// Whether the user asked to end.
pub(crate) fn asked() -> bool {
    flag_cell().load(Ordering::Relaxed)
}
