//! Stamps that XDP programs write in front of received frames.

use std::net::IpAddr;

use sys::bpf::{FEED_STAMP_BYTES, FeedGroup, FrameMetadata, ProbeFilterSpec, SocketFilter};
use sys::clock;
use wire::frame::Received;
use xdp::{MetadataKey, Socket, Then};

use crate::engine::{Arrival, EngineSpec, Local, Stamps};
use crate::error::IoError;
use crate::frames;

/// Stamps in front of the frames of a socket.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FrameStamps {
    Off,
    /// By the program of a multicast group.
    Feed {
        group: FeedGroup,
        /// CLOCK_TAI minus CLOCK_REALTIME.
        tai_offset_ns: i64,
    },
    /// In metadata, by the probe's program.
    Metadata {
        metadata: FrameMetadata,
        /// Clock of the stamps minus CLOCK_REALTIME: 0 of a driver, whose clock follows the host's.
        offset_ns: i64,
    },
}

impl FrameStamps {
    /// Those that were asked for; none behind a program of another process.
    ///
    /// Errors: the kernel has no random numbers.
    pub(crate) fn new(spec: &EngineSpec, local: &Local) -> Result<Self, IoError> {
        if spec.xsk_map.is_some() || spec.stamps == Stamps::Off {
            return Ok(FrameStamps::Off);
        }
        let tai_offset_ns = clock::tai_offset_ns();
        if let IpAddr::V4(address) = local.ip
            && address.is_multicast()
            && spec.stamps == Stamps::Software
        {
            let group = FeedGroup { address, port: local.port, source: None };
            return Ok(FrameStamps::Feed { group, tai_offset_ns });
        }
        let key = MetadataKey::random().map_err(|source| {
            let ifname = local.ifname.clone();
            IoError::System { what: "getrandom", ifname, source }
        })?;
        Ok(match spec.stamps {
            Stamps::Hardware => {
                let metadata = FrameMetadata::Hints(key, local.ifindex);
                FrameStamps::Metadata { metadata, offset_ns: 0 }
            }
            _ => {
                let metadata = FrameMetadata::Stamp(key);
                FrameStamps::Metadata { metadata, offset_ns: tai_offset_ns }
            }
        })
    }

    /// The program that writes them.
    pub(crate) fn load(self, spec: &EngineSpec, local: &Local) -> Result<SocketFilter, IoError> {
        let metadata = match self {
            FrameStamps::Feed { group, .. } => {
                return Ok(SocketFilter::for_feed(&[group], local.queues.max(1))?);
            }
            FrameStamps::Metadata { metadata, .. } => Some(metadata),
            FrameStamps::Off => None,
        };
        let probe = ProbeFilterSpec {
            addresses: local.destinations(),
            udp_port: local.port,
            arp_icmp: false,
            vlan_tag: spec.vlan_tag,
            frags: spec.multi_buffer,
            queues: local.queues.max(1),
        };
        Ok(SocketFilter::for_probe_with(&probe, metadata)?)
    }

    /// Takes up to a batch of datagrams, each with its stamp.
    pub(crate) fn take(
        self,
        socket: &mut Socket,
        batch: usize,
        each: &mut impl FnMut(Arrival<'_>),
    ) -> usize {
        match self {
            FrameStamps::Off => {
                socket.rx_take(batch, |frame, frame_bytes| pass(frame, frame_bytes, None, each))
            }
            FrameStamps::Feed { tai_offset_ns, .. } => {
                socket.rx_take_from(FEED_STAMP_BYTES as u32, batch, |bytes, frame_bytes| {
                    let (front, frame) = bytes.split_at_mut(FEED_STAMP_BYTES);
                    pass(frame, frame_bytes, take_stamp(front, tai_offset_ns), each)
                })
            }
            FrameStamps::Metadata { metadata, offset_ns } => {
                socket.rx_take_with_metadata(metadata.key(), batch, |found, frame, frame_bytes| {
                    let stamp_ns = found.and_then(|found| found.stamp_ns);
                    let stamp_ns = stamp_ns.map(|ns| ns.saturating_add_signed(-offset_ns));
                    pass(frame, frame_bytes, stamp_ns, each)
                })
            }
        }
    }
}

/// Passes the datagram of a frame on, if it is one.
fn pass(
    frame: &mut [u8],
    frame_bytes: usize,
    stamp_ns: Option<u64>,
    each: &mut impl FnMut(Arrival<'_>),
) -> Then {
    if let Ok(mut received) = Received::parse(frame, frame_bytes) {
        each(frames::arrival(&mut received, stamp_ns));
    }
    Then::Release
}

/// Takes the stamp that an XDP program wrote in front of a frame, CLOCK_REALTIME nanoseconds; `None` if it
/// wrote none. The stamp is cleared, so that a later frame in its place cannot pass it off as its own.
pub(crate) fn take_stamp(front: &mut [u8], tai_offset_ns: i64) -> Option<u64> {
    let stamp = front.first_chunk_mut::<FEED_STAMP_BYTES>()?;
    let tai_ns = u64::from_ne_bytes(std::mem::take(stamp));
    (tai_ns > 0).then(|| tai_ns.saturating_add_signed(-tai_offset_ns))
}
