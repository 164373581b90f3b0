//! SIGINT and SIGTERM: the first asks the command to end, the second ends the process.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

fn flag_cell() -> &'static Arc<AtomicBool> {
    ASKED.get_or_init(Arc::default)
}

/// Begins to listen for signals.
pub(crate) fn install() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        // Registered first, so that it sees the flag only from the second signal on.
        flag::register_conditional_shutdown(signal, 130, flag_cell().clone())?;
        flag::register(signal, flag_cell().clone())?;
    }
    Ok(())
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
