use std::io;
use std::path::PathBuf;

use host::program::ProgramError;
use thiserror::Error;

/// Why a machine cannot be watched at all. A source that is not available is an entry of
/// [`OutsideCounts::missing`](crate::OutsideCounts::missing) instead.
#[derive(Debug, Error)]
pub enum OutsideError {
    /// The process of the machine is not there.
    #[error(transparent)]
    Process(#[from] ProgramError),
    #[error("cannot read the trace log {}; is it the file of -D on QEMU's command line?", path.display())]
    Log {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}
