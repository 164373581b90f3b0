//! What can be wrong with a frame.

use core::fmt;

use crate::probe::ProbeError;

/// Why bytes are not the frame that was asked for.
///
/// Offsets count from the start of the slice that was given to the function that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// The slice ends before the part does.
    Short {
        /// Part that does not fit.
        what: &'static str,
        /// Where the part starts.
        at: usize,
        /// Bytes it takes from there.
        needed_bytes: usize,
        /// Bytes that are there.
        had_bytes: usize,
    },
    /// Well-formed perhaps, but another kind of packet.
    Other {
        /// Field that tells.
        field: &'static str,
        /// Where the field is.
        at: usize,
        /// Value it must have.
        expected: u32,
        /// Value it has.
        found: u32,
    },
    /// A length that contradicts the frame around it.
    Length {
        /// Field that holds the length.
        field: &'static str,
        /// Where the field is.
        at: usize,
        /// Smallest length that makes sense there.
        min_bytes: usize,
        /// Largest.
        max_bytes: usize,
        /// Length found.
        found_bytes: usize,
    },
    /// A piece of a datagram: there is no whole UDP payload in it.
    Fragment {
        /// Where the flags and the fragment offset are.
        at: usize,
        /// Their value.
        found: u16,
    },
    /// The checksum does not match.
    Checksum {
        /// Whose checksum.
        field: &'static str,
        /// Where it is.
        at: usize,
        /// What it would have to be.
        expected: u16,
        /// What it is.
        found: u16,
    },
    /// The UDP payload is none of the probe's.
    Probe {
        /// Where the payload starts.
        at: usize,
        /// What is wrong with it.
        source: ProbeError,
    },
}

impl FrameError {
    /// The same error, seen from a slice that starts `base` bytes earlier.
    pub(crate) fn shifted(mut self, base: usize) -> Self {
        match &mut self {
            FrameError::Short { at, .. }
            | FrameError::Other { at, .. }
            | FrameError::Length { at, .. }
            | FrameError::Fragment { at, .. }
            | FrameError::Checksum { at, .. }
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

/// The first `len` bytes of `bytes`, or [`FrameError::Short`] about `what`.
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

/// The first `len` bytes of `bytes`, to write to.
pub(crate) fn front_mut<'a>(
    bytes: &'a mut [u8],
    len: usize,
    what: &'static str,
) -> Result<&'a mut [u8], FrameError> {
    let had_bytes = bytes.len();
    bytes.get_mut(..len).ok_or(FrameError::Short { what, at: 0, needed_bytes: len, had_bytes })
}
