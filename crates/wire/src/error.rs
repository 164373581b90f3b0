//! Errors of frames.

use core::fmt;

use crate::probe::ProbeError;

/// Error of parsing or writing a frame.
///
/// Offsets count from the start of the slice passed to the function that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// The slice is too short.
    Short {
        /// Part that does not fit.
        what: &'static str,
        /// Offset of the part.
        at: usize,
        /// Length of the part.
        needed_bytes: usize,
        /// Bytes available.
        had_bytes: usize,
    },
    /// A packet of another kind, possibly well-formed.
    Other {
        /// Field with the wrong value.
        field: &'static str,
        /// Offset of the field.
        at: usize,
        /// Required value.
        expected: u32,
        /// Value found.
        found: u32,
    },
    /// A length that contradicts the frame around it.
    Length {
        /// Field that holds the length.
        field: &'static str,
        /// Offset of the field.
        at: usize,
        /// Smallest valid length.
        min_bytes: usize,
        /// Largest valid length.
        max_bytes: usize,
        /// Length found.
        found_bytes: usize,
    },
    /// A fragment, which does not contain a whole UDP payload.
    Fragment {
        /// Offset of flags and fragment offset.
        at: usize,
        /// Value of both.
        found: u16,
    },
    /// The checksum does not match.
    Checksum {
        /// Header with the checksum.
        field: &'static str,
        /// Offset of the checksum.
        at: usize,
        /// Checksum of the bytes.
        expected: u16,
        /// Checksum found.
        found: u16,
    },
    /// UDP over IPv6 without a checksum (RFC 8200, section 8.1).
    NoChecksum {
        /// Offset of the checksum.
        at: usize,
    },
    /// The UDP payload does not start with a probe header.
    Probe {
        /// Offset of the payload.
        at: usize,
        /// Cause.
        source: ProbeError,
    },
}

impl FrameError {
    /// The error with its offset moved by `base` bytes, for a slice that starts earlier.
    pub(crate) fn shifted(mut self, base: usize) -> Self {
        match &mut self {
            FrameError::Short { at, .. }
            | FrameError::Other { at, .. }
            | FrameError::Length { at, .. }
            | FrameError::Fragment { at, .. }
            | FrameError::Checksum { at, .. }
            | FrameError::NoChecksum { at }
            | FrameError::Probe { at, .. } => *at = at.saturating_add(base),
        }
        self
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FrameError::Short { what, at, needed_bytes, had_bytes } => write!(
                f,
                "the frame is too short: {what} at offset {at} takes {needed_bytes} bytes, \
                 {had_bytes} are there"
            ),
            FrameError::Other { field, at, expected, found } => {
                write!(f, "{field} at offset {at} is {found:#x}, expected {expected:#x}")
            }
            FrameError::Length { field, at, min_bytes, max_bytes, found_bytes } => write!(
                f,
                "{field} at offset {at} is {found_bytes} bytes, expected {min_bytes} to {max_bytes}"
            ),
            FrameError::Fragment { at, found } => write!(
                f,
                "flags and fragment offset at offset {at} are {found:#06x}: a fragment, \
                 expected a whole datagram"
            ),
            FrameError::Checksum { field, at, expected, found } => {
                write!(f, "{field} at offset {at} is {found:#06x}, expected {expected:#06x}")
            }
            FrameError::NoChecksum { at } => {
                write!(f, "the UDP checksum at offset {at} is 0, and IPv6 requires one")
            }
            FrameError::Probe { at, .. } => {
                write!(f, "the UDP payload at offset {at} is not a probe's")
            }
        }
    }
}

impl core::error::Error for FrameError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            FrameError::Probe { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Returns the first `len` bytes, or [`FrameError::Short`] with `what`.
pub(crate) fn front<'a>(
    bytes: &'a [u8],
    len: usize,
    what: &'static str,
) -> Result<&'a [u8], FrameError> {
    bytes.get(..len).ok_or(FrameError::Short {
        what,
        at: 0,
        needed_bytes: len,
        had_bytes: bytes.len(),
    })
}

/// Mutable [`front`].
pub(crate) fn front_mut<'a>(
    bytes: &'a mut [u8],
    len: usize,
    what: &'static str,
) -> Result<&'a mut [u8], FrameError> {
    let had_bytes = bytes.len();
    bytes.get_mut(..len).ok_or(FrameError::Short { what, at: 0, needed_bytes: len, had_bytes })
}
