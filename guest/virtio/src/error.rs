//! What can be wrong with a device.

use core::fmt;

/// Why a device could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// The register window does not start with "virt".
    NotVirtio {
        /// What it starts with.
        magic: u32,
    },
    /// Another version of virtio-mmio; 1 is the legacy interface.
    Version {
        /// Version found; 2 is needed.
        found: u32,
    },
    /// Another kind of device.
    NotNet {
        /// Device id found; 1 is a network card, 0 an empty slot.
        device: u32,
    },
    /// The device did not finish its reset in time.
    ResetTimeout {
        /// Status that it still had.
        status: u32,
    },
    /// The device does not offer a feature that is needed.
    FeatureMissing {
        /// Name of the feature.
        feature: &'static str,
        /// Features that it offers.
        offered: u64,
    },
    /// The device took FEATURES_OK back: it refuses the features chosen.
    FeaturesRefused {
        /// Features that we chose.
        chosen: u64,
    },
    /// A queue does not exist or is too small to be used.
    QueueSize {
        /// Number of the queue.
        queue: u16,
        /// Largest size that the device allows.
        max_frames: u32,
    },
    /// The queue is in use although the device was reset.
    QueueBusy {
        /// Number of the queue.
        queue: u16,
    },
    /// The memory given is too small or not aligned to a page.
    Memory {
        /// Bytes needed.
        needed_bytes: usize,
        /// Bytes given.
        given_bytes: usize,
    },
    /// The configuration changed all the time while it was read.
    ConfigUnstable,
    /// The device set DEVICE_NEEDS_RESET or FAILED while it was started.
    Failed {
        /// Its status.
        status: u32,
    },
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
            StartError::NotNet { device } => write!(f, "device id {device} is no network card"),
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
            StartError::Memory { needed_bytes, given_bytes } => {
                write!(f, "{needed_bytes} bytes on a page boundary are needed, got {given_bytes}")
            }
            StartError::ConfigUnstable => f.write_str("the configuration does not keep still"),
            StartError::Failed { status } => {
                write!(f, "the device gave up; status is {status:#x}")
            }
        }
    }
}

impl core::error::Error for StartError {}

/// What a device did against the rules while running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceFault {
    /// The used index ran ahead of what was posted: no element can be believed any more. Reset.
    Index {
        /// Elements that it announces.
        announced: u16,
        /// Descriptors that it has.
        posted: u16,
    },
    /// An element names a descriptor that the device does not have; the element is skipped.
    Id {
        /// Descriptor named.
        id: u32,
    },
    /// An element of a packed ring names a buffer that the device does not have. How many slots
    /// on the next element is depends on the buffer: no element can be believed any more. Reset.
    Place {
        /// Id named.
        id: u16,
    },
    /// More bytes than the buffer has, or fewer than the header; the buffer came back to us.
    Len {
        /// Length said.
        len_bytes: u32,
        /// Smallest length that makes sense.
        min_bytes: u32,
        /// Largest.
        max_bytes: u32,
    },
}

impl DeviceFault {
    /// Whether only a reset helps: the fault comes again at every call until then.
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
            DeviceFault::Id { id } => write!(f, "the device returned descriptor {id} unasked"),
            DeviceFault::Place { id } => {
                write!(f, "the device returned buffer {id} unasked; its ring is out of step")
            }
            DeviceFault::Len { len_bytes, min_bytes, max_bytes } => {
                write!(f, "the device says {len_bytes} bytes, expected {min_bytes} to {max_bytes}")
            }
        }
    }
}

impl core::error::Error for DeviceFault {}
