//! Errors of the guest and its machine.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;

use host::cpu::CpuError;
use lab::LabError;
use lab::qemu::QemuError;
use model::PathError;
use sys::child::ChildError;
use telemetry::dump::DumpError;
use wire::FrameError;

pub(super) const INSTALL_QEMU: &str = "apt-get install qemu-system-arm";
pub(super) const INSTALL_PING: &str = "apt-get install iputils-ping";

/// Reason why a machine did not boot or answer.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The image, or a part of the Linux guest, is missing.
    #[error("{what} is missing; {remedy}")]
    Missing { what: String, remedy: String },
    /// The firmware may not know all that this program asks of it.
    #[error("{} is of another version than this program; {remedy}", image.display())]
    OtherVersion { image: PathBuf, remedy: String },
    /// QEMU could not be started, or failed.
    #[error(transparent)]
    Qemu(#[from] QemuError),
    /// ping(8) could not be started.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// A socket or a file failed.
    #[error("{doing}")]
    Io {
        /// Attempted operation.
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    /// The guest did not get ready or did not power off.
    #[error("the guest {what}: {said}")]
    Boot {
        what: &'static str,
        /// The last lines printed by the guest and QEMU.
        said: String,
    },
    /// No answer to requests.
    #[error("the guest does not answer {what}")]
    Silent { what: String },
    /// A frame could not be written or read.
    #[error("a frame of the guest's wire")]
    Frame(#[from] FrameError),
    /// The firmware's counters or trace are malformed.
    #[error("the firmware's dump")]
    Dump(#[from] DumpError),
    /// Unexpected output of a program.
    #[error("{program} printed no {wanted}")]
    Print { program: &'static str, wanted: String },
    /// The namespace with the TAP interface failed.
    #[error(transparent)]
    Lab(#[from] LabError),
}

impl GuestError {
    /// Wraps a kernel error: `map_err(GuestError::io("binding the socket"))`.
    pub(super) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> GuestError {
        move |source| GuestError::Io { doing, source }
    }
}

impl From<CpuError> for GuestError {
    fn from(error: CpuError) -> Self {
        GuestError::Qemu(error.into())
    }
}

fn not_installed(program: &OsStr, needs: &str) -> PathError {
    let what = format!("the guest without {}", program.display());
    PathError::Unsupported { what, needs: needs.to_owned() }
}

impl From<GuestError> for PathError {
    fn from(error: GuestError) -> Self {
        match error {
            GuestError::Missing { what, remedy } => {
                PathError::Unsupported { what: format!("the guest without {what}"), needs: remedy }
            }
            GuestError::OtherVersion { image, remedy } => PathError::Unsupported {
                what: format!("the guest from {} (an image of another version)", image.display()),
                needs: remedy,
            },
            GuestError::Qemu(QemuError::Child(ChildError::NotFound { program, .. })) => {
                not_installed(&program, INSTALL_QEMU)
            }
            GuestError::Child(ChildError::NotFound { program, .. }) => {
                not_installed(&program, INSTALL_PING)
            }
            error => PathError::part(error),
        }
    }
}
