//! Errors of the monitor.

use host::kvm::{self, KvmError, OutsideRam};

use super::elf::ImageError;

/// Why a guest could not be run.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// KVM refused.
    #[error(transparent)]
    Kvm(#[from] KvmError),
    /// The image is not a guest of this monitor.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Memory is too small for what the monitor has to put there, or covers the virtio card.
    #[error("guest memory is too small or too large")]
    Memory(#[from] OutsideRam),
    /// The device's thread could not wait.
    #[error("poll() failed in the device's thread")]
    Wait(#[source] std::io::Error),
    /// The back end failed.
    #[error("the back end failed to receive")]
    Receive(#[source] std::io::Error),
    /// No thread could be made.
    #[error("a thread of the monitor cannot be made")]
    Thread(#[source] std::io::Error),
    /// KVM is there, but does not run guests as this monitor makes them.
    #[error("this KVM left a guest of three instructions by {exit:?}")]
    Unfit {
        /// How it was left.
        exit: kvm::Exit,
    },
    /// The monitor's process could not be made, or nothing can be read from it.
    #[error("the monitor has no process of its own")]
    Process(#[source] std::io::Error),
    /// The monitor's process failed.
    #[error("{0}")]
    Jailed(String),
    /// A thread of the monitor panicked: a defect, which is not the guest's to cause.
    #[error("a thread of the monitor panicked")]
    Panic,
}
