//! Errors as numbers.

use virtio::pci::PciError;
use virtio::{DeviceFault, StartError};

/// `enum wpv_error` of the header.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WpvError {
    Ok = 0,
    Empty = 1,
    Full = 2,
    Frame = 3,
    Length = 4,
    Argument = 5,
    Memory = 6,
    NotVirtio = 7,
    Legacy = 8,
    NotNet = 9,
    ResetTimeout = 10,
    Features = 11,
    Queue = 12,
    Failed = 13,
    PciCapability = 14,
    PciBar = 15,
    PciWindow = 16,
    PciMsix = 17,
    Coherence = 18,
    Fault = 32,
    Restart = 33,
}

impl WpvError {
    /// The number of a result.
    pub(crate) fn from_result<E: Into<WpvError>>(result: Result<(), E>) -> WpvError {
        result.map_or_else(E::into, |()| WpvError::Ok)
    }
}

impl From<StartError> for WpvError {
    fn from(error: StartError) -> WpvError {
        match error {
            StartError::NotVirtio { .. } => WpvError::NotVirtio,
            StartError::Version { .. } => WpvError::Legacy,
            StartError::NotNet { .. } => WpvError::NotNet,
            StartError::ResetTimeout { .. } => WpvError::ResetTimeout,
            StartError::FeatureMissing { .. } | StartError::FeaturesRefused { .. } => {
                WpvError::Features
            }
            StartError::QueueSize { .. }
            | StartError::QueueBusy { .. }
            | StartError::QueueRefused { .. } => WpvError::Queue,
            StartError::Memory { .. } => WpvError::Memory,
            _ => WpvError::Failed,
        }
    }
}

impl From<PciError> for WpvError {
    fn from(error: PciError) -> WpvError {
        match error {
            PciError::NotVirtioNet { .. } => WpvError::NotVirtio,
            PciError::Capability { .. } => WpvError::PciCapability,
            PciError::Window { .. } => WpvError::PciWindow,
            PciError::Msix { .. } => WpvError::PciMsix,
            _ => WpvError::PciBar,
        }
    }
}

impl From<DeviceFault> for WpvError {
    fn from(fault: DeviceFault) -> WpvError {
        if fault.needs_restart() { WpvError::Restart } else { WpvError::Fault }
    }
}

#[cfg(test)]
mod tests {
    use super::WpvError::*;

    #[test]
    fn header_has_the_same_numbers() {
        let header = include_str!("../include/wirepath_virtio.h");
        let all = [
            (Ok, "OK"),
            (Empty, "EMPTY"),
            (Full, "FULL"),
            (Frame, "FRAME"),
            (Length, "LENGTH"),
            (Argument, "ARGUMENT"),
            (Memory, "MEMORY"),
            (NotVirtio, "NOT_VIRTIO"),
            (Legacy, "LEGACY"),
            (NotNet, "NOT_NET"),
            (ResetTimeout, "RESET_TIMEOUT"),
            (Features, "FEATURES"),
            (Queue, "QUEUE"),
            (Failed, "FAILED"),
            (PciCapability, "PCI_CAPABILITY"),
            (PciBar, "PCI_BAR"),
            (PciWindow, "PCI_WINDOW"),
            (PciMsix, "PCI_MSIX"),
            (Coherence, "COHERENCE"),
            (Fault, "FAULT"),
            (Restart, "RESTART"),
        ];
        for (error, name) in all {
            let line = format!("    WPV_{name} = {},\n", error as u32);
            assert!(header.contains(&line), "{line}");
        }
        assert_eq!(header.matches(" = ").count(), all.len());
    }
}
