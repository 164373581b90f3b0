//! Requests to the device in front of a frame to be sent, and its answers.
//!
//! Source: kernel documentation, networking/xsk-tx-metadata.rst; struct xsk_tx_metadata,
//! include/uapi/linux/if_xdp.h.

/// struct xsk_tx_metadata with its launch time: flags, and a union of request and completion.
pub(crate) const SEND_METADATA_BYTES: u32 = 24;
/// XDP_TXMD_FLAGS_TIMESTAMP.
const FLAG_STAMP: u64 = 1 << 0;
/// XDP_TXMD_FLAGS_CHECKSUM.
const FLAG_CHECKSUM: u64 = 1 << 1;
/// XDP_TXMD_FLAGS_LAUNCH_TIME (Linux 6.15).
const FLAG_LAUNCH_TIME: u64 = 1 << 2;
/// Place of the checksum's request and, after the completion, of the stamp.
const ANSWER: std::ops::Range<usize> = 8..16;

/// Room for requests in front of frames to be sent, in all frames of a UMEM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SendMetadata {
    /// No requests.
    #[default]
    None,
    /// Requests to the device (XDP_UMEM_TX_METADATA_LEN, Linux 6.11).
    Offered,
    /// As `Offered`; in copy mode the kernel computes the checksums (XDP_UMEM_TX_SW_CSUM), for drivers that
    /// do not.
    SoftwareChecksum,
}

impl SendMetadata {
    /// Flags of the registration.
    pub(crate) fn umem_flags(self) -> u32 {
        match self {
            SendMetadata::None => 0,
            SendMetadata::Offered => libc::XDP_UMEM_TX_METADATA_LEN,
            SendMetadata::SoftwareChecksum => {
                libc::XDP_UMEM_TX_METADATA_LEN | libc::XDP_UMEM_TX_SW_CSUM
            }
        }
    }

    /// Bytes in front of each frame.
    pub(crate) fn room_bytes(self) -> u32 {
        if self == SendMetadata::None { 0 } else { SEND_METADATA_BYTES }
    }
}

/// A checksum that the device is to complete. Its field must hold the sum of the pseudo-header, as that of
/// a packet with CHECKSUM_PARTIAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum {
    /// First byte that is summed up: that of the TCP or UDP header, from the frame's first byte.
    pub start: u16,
    /// Place of the checksum from `start`: 6 of UDP, 16 of TCP.
    pub offset: u16,
}

impl Checksum {
    /// True if the field is inside a packet of this length; the kernel drops others.
    pub(crate) fn fits(self, len_bytes: usize) -> bool {
        usize::from(self.start) + usize::from(self.offset) + 2 <= len_bytes
    }
}

/// Requests that go with one frame. The kernel ignores one that the driver does not have: ask by netlink
/// (family `netdev`, `xsk-features`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendRequest {
    /// Report when the frame was sent: by the device's clock; in copy mode CLOCK_TAI when the kernel freed its
    /// buffer, which is after the driver, or on a veth the receiver, was done with it.
    pub stamp: bool,
    /// Complete a checksum.
    pub checksum: Option<Checksum>,
    /// Earliest time to send, ns of the device's clock (Linux 6.15).
    pub launch_time_ns: Option<u64>,
}

impl SendRequest {
    /// The metadata as the kernel reads it.
    pub(crate) fn to_bytes(self) -> [u8; SEND_METADATA_BYTES as usize] {
        let mut flags = if self.stamp { FLAG_STAMP } else { 0 };
        let mut bytes = [0; SEND_METADATA_BYTES as usize];
        if let Some(Checksum { start, offset }) = self.checksum {
            flags |= FLAG_CHECKSUM;
            bytes[8..10].copy_from_slice(&start.to_ne_bytes());
            bytes[10..12].copy_from_slice(&offset.to_ne_bytes());
        }
        if let Some(launch_time_ns) = self.launch_time_ns {
            flags |= FLAG_LAUNCH_TIME;
            bytes[16..].copy_from_slice(&launch_time_ns.to_ne_bytes());
        }
        bytes[..8].copy_from_slice(&flags.to_ne_bytes());
        bytes
    }
}

/// A frame that was sent, or given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentFrame {
    /// Number of its frame, as [`Socket::tx_post_request`](crate::Socket::tx_post_request) returned it.
    pub frame: u32,
    /// Answer to [`SendRequest::stamp`]; `None` if it was not asked for, or the driver gave none.
    pub stamp_ns: Option<u64>,
}

/// Requests for stamps that are under way, by frame of a share.
///
/// Request and answer have one place: only a value that is not the request's is an answer.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    first: u32,
    /// Empty without metadata.
    posted: Vec<Option<[u8; 8]>>,
}

impl Requests {
    /// For the frames of a share; none have requests if the UMEM has no room for them.
    pub(crate) fn new(first: u32, count: u32, metadata: SendMetadata) -> Self {
        let count = if metadata == SendMetadata::None { 0 } else { count as usize };
        Requests { first, posted: vec![None; count] }
    }

    /// Remembers what a frame was posted with.
    pub(crate) fn post(&mut self, frame: u32, request: SendRequest) {
        let asked = request.stamp.then(|| answer_field(&request.to_bytes()));
        if let Some(place) = self.posted.get_mut(frame.wrapping_sub(self.first) as usize) {
            *place = asked.flatten();
        }
    }

    /// The stamp of a completed frame.
    ///
    /// - `metadata`: the bytes of its room.
    pub(crate) fn complete(&mut self, frame: u32, metadata: &[u8]) -> Option<u64> {
        let place = self.posted.get_mut(frame.wrapping_sub(self.first) as usize)?;
        let asked = place.take()?;
        let answer = answer_field(metadata).filter(|answer| *answer != asked)?;
        Some(u64::from_ne_bytes(answer)).filter(|stamp_ns| *stamp_ns != 0)
    }

    /// True without metadata.
    pub(crate) fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }
}

fn answer_field(metadata: &[u8]) -> Option<[u8; 8]> {
    metadata.get(ANSWER)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMPED: SendRequest = SendRequest { stamp: true, checksum: None, launch_time_ns: None };
    const UDP: Checksum = Checksum { start: 34, offset: 6 };

    #[test]
    fn requests_have_the_layout_of_the_kernel() {
        let whole = SendRequest { stamp: true, checksum: Some(UDP), launch_time_ns: Some(5) };
        let bytes = whole.to_bytes();
        assert_eq!(bytes[..8], 7_u64.to_ne_bytes());
        assert_eq!(
            [bytes[8..10].to_vec(), bytes[10..12].to_vec()],
            [34_u16, 6].map(|n| n.to_ne_bytes().to_vec())
        );
        assert_eq!((&bytes[12..16], &bytes[16..]), (&[0; 4][..], &5_u64.to_ne_bytes()[..]));
        assert_eq!(SendRequest::default().to_bytes(), [0; 24]);
        assert_eq!(std::mem::offset_of!(libc::xsk_tx_metadata, xsk_tx_metadata_union), 8);
        assert!(UDP.fits(42) && !UDP.fits(41));
        assert!(!Checksum { start: u16::MAX, offset: u16::MAX }.fits(1500));
    }

    #[test]
    fn a_stamp_is_what_differs_from_the_request_and_is_reported_once() {
        let mut requests = Requests::new(8, 2, SendMetadata::Offered);
        let with_checksum = SendRequest { checksum: Some(UDP), ..STAMPED };
        for request in [STAMPED, with_checksum] {
            requests.post(9, request);
            assert_eq!(requests.complete(9, &request.to_bytes()), None, "no answer of the driver");
            requests.post(9, request);
            let mut answered = request.to_bytes();
            answered[ANSWER].copy_from_slice(&1234_u64.to_ne_bytes());
            assert_eq!(requests.complete(9, &answered), Some(1234));
            assert_eq!(requests.complete(9, &answered), None, "asked once");
        }
        requests.post(8, SendRequest { stamp: false, ..with_checksum });
        assert_eq!(requests.complete(8, &[0xff; 24]), None, "not asked");
        requests.post(8, STAMPED);
        assert_eq!(requests.complete(8, &[0xff; 15]), None, "too short");
        for foreign in [7, 10, u32::MAX] {
            requests.post(foreign, STAMPED);
            assert_eq!(requests.complete(foreign, &[0xff; 24]), None, "frame of another share");
        }
        assert!(Requests::new(0, 64, SendMetadata::None).is_empty());
    }
}
