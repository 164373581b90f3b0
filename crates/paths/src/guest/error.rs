//! Why a machine did not boot, or did not answer.

use std::io;

use host::child::ChildError;
use host::cpu::CpuError;
use host::lab::LabError;
use observe::dump::DumpError;
use wire::FrameError;

use crate::path::PathError;

/// Why a machine did not boot, or did not answer.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The image, or a part of the Linux guest, is not there.
    #[error("{what} is missing; {remedy}")]
    Missing {
        /// What was looked for.
        what: String,
        /// How to get it.
        remedy: String,
    },
    /// QEMU or another program could not be started.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// A socket or a file failed.
    #[error("{doing}")]
    Io {
        /// What was attempted.
        doing: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The guest did not get ready, or did not switch itself off when it should have.
    #[error("the guest {what}: {said}")]
    Boot {
        /// What it did not do.
        what: &'static str,
        /// The end of what it and QEMU printed.
        said: String,
    },
    /// Questions stayed without an answer.
    #[error("the guest does not answer {what}")]
    Silent {
        /// What it was asked.
        what: String,
    },
    /// QEMU's monitor answered with an error, or in words that nobody expects.
    #[error("QEMU's monitor: {said}")]
    Monitor {
        /// Its words.
        said: String,
    },
    /// A frame could not be written or read.
    #[error("a frame of the guest's wire")]
    Frame(#[from] FrameError),
    /// The firmware's counters or trace came in another shape.
    #[error("the firmware's dump")]
    Dump(#[from] DumpError),
    /// What another program printed is not what was expected.
    #[error("{program} printed no {wanted}")]
    Print {
        /// The program.
        program: &'static str,
        /// What was looked for.
        wanted: String,
    },
    /// CPU accounting could not be read.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The namespace with the TAP interface failed.
    #[error(transparent)]
    Lab(#[from] LabError),
}

impl GuestError {
    /// Wraps an error of the kernel: `map_err(GuestError::io("binding the socket"))`.
    pub(super) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> GuestError {
        move |source| GuestError::Io { doing, source }
    }
}

impl From<GuestError> for PathError {
    fn from(error: GuestError) -> Self {
        match error {
            GuestError::Missing { what, remedy } => {
                PathError::Unsupported { what: format!("the guest without {what}"), needs: remedy }
            }
            GuestError::Child(ChildError::NotFound { program, .. }) => PathError::Unsupported {
                what: format!("the guest without {}", program.display()),
                needs: match program.to_str() {
                    Some(super::tap::PING) => super::tap::INSTALL_PING.to_owned(),
                    _ => super::files::INSTALL_QEMU.to_owned(),
                },
            },
            error => PathError::part(error),
        }
    }
}
