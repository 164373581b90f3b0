//! Errors and faults of a device.

use core::fmt;

/// Reason why a device could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// The register window does not start with "virt".
    NotVirtio {
        /// Value found instead.
        magic: u32,
    },
    /// Unsupported version of virtio-mmio; 1 is the legacy interface.
    Version {
        /// Version found; 2 is needed.
        found: u32,
    },
    /// The device is not a network card.
    NotNet {
        /// Device id found; 0 is an empty slot.
        device: u32,
    },
    /// The device did not finish its reset in time.
    ResetTimeout { status: u32 },
    /// The device does not offer a required feature.
    FeatureMissing {
        feature: &'static str,
        /// Features that it offers.
        offered: u64,
    },
    /// The device cleared FEATURES_OK: it refuses the chosen features.
    FeaturesRefused { chosen: u64 },
    /// A queue does not exist or is too small.
    QueueSize {
        queue: u16,
        /// Largest size that the device allows.
        max_frames: u32,
    },
    /// The queue is in use although the device was reset.
    QueueBusy { queue: u16 },
    /// The queue stays disabled: its doorbell or its interrupt has no valid place.
    QueueRefused { queue: u16 },
    /// The memory is too small or not page-aligned.
    Memory { needed_bytes: usize, given_bytes: usize },
    /// The configuration kept changing while it was read.
    ConfigUnstable,
    /// The device set DEVICE_NEEDS_RESET or FAILED during the start.
    Failed { status: u32 },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            StartError::NotVirtio { magic } => {
                write!(f, "no virtio-mmio here: magic is {magic:#x}")
            }
            StartError::Version { found } => write!(
                f,
                "virtio-mmio version {found}, version 2 is needed (QEMU: -global \
                 virtio-mmio.force-legacy=false)"
            ),
            StartError::NotNet { device } => write!(f, "device id {device} is not a network card"),
            StartError::ResetTimeout { status } => {
                write!(f, "the device did not finish its reset; status is {status:#x}")
            }
            StartError::FeatureMissing { feature, offered } => {
                write!(f, "the device does not offer {feature}; it offers {offered:#x}")
            }
            StartError::FeaturesRefused { chosen } => {
                write!(f, "the device refused the features {chosen:#x}")
            }
            StartError::QueueSize { queue, max_frames } => {
                write!(f, "queue {queue} allows {max_frames} descriptors, too few")
            }
            StartError::QueueBusy { queue } => {
                write!(f, "queue {queue} is in use right after a reset")
            }
            StartError::QueueRefused { queue } => write!(f, "queue {queue} cannot be enabled"),
            StartError::Memory { needed_bytes, given_bytes } => {
                write!(f, "the driver needs {needed_bytes} page-aligned bytes, got {given_bytes}")
            }
            StartError::ConfigUnstable => f.write_str("the configuration keeps changing"),
            StartError::Failed { status } => {
                write!(f, "the device failed; status is {status:#x}")
            }
        }
    }
}

impl core::error::Error for StartError {}

/// Violation of the protocol by a running device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceFault {
    /// The used index is ahead of the buffers posted: no element can be trusted. Reset.
    Index {
        /// Completions that it announces.
        announced: u16,
        /// Descriptors that it has.
        posted: u16,
    },
    /// An element names a descriptor that the device does not have; the element is skipped.
    Id { id: u32 },
    /// An element of a packed ring names a buffer that the device does not have. The position of
    /// the next element depends on the buffer: no element can be trusted. Reset.
    Place { id: u16 },
    /// More bytes than the buffer holds, or fewer than the header; the buffer was reclaimed.
    Len {
        /// Length reported.
        len_bytes: u32,
        /// Smallest valid length.
        min_bytes: u32,
        /// Largest valid length.
        max_bytes: u32,
    },
}

impl DeviceFault {
    /// True if only a reset helps: the fault repeats at every call until then.
    pub fn needs_restart(&self) -> bool {
        matches!(self, DeviceFault::Index { .. } | DeviceFault::Place { .. })
    }
}

impl fmt::Display for DeviceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            DeviceFault::Index { announced, posted } => {
                write!(f, "the device announces {announced} completions, it has {posted}")
            }
            DeviceFault::Id { id } => {
                write!(f, "the device completed descriptor {id}, which it does not have")
            }
            DeviceFault::Place { id } => {
                write!(
                    f,
                    "the device completed buffer {id}, which it does not have; its ring is out of step"
                )
            }
            DeviceFault::Len { len_bytes, min_bytes, max_bytes } => {
                write!(
                    f,
                    "the device reported {len_bytes} bytes, expected {min_bytes} to {max_bytes}"
                )
            }
        }
    }
}

impl core::error::Error for DeviceFault {}
