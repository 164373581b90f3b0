//! Ports that copy: AF_PACKET rings and TAP devices.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};

use io::IoError;
use sys::packet::{FrameOffload, PacketRx, PacketTx};
use sys::tap::Tap;
use wire::offload::{self, Cut, Unfinished};

use super::{HEADROOM_BYTES, Pool, Port, PortRx, PortTx, Receiver, Sender, Taken};

/// Memory of the receive ring.
const RX_RING_BYTES: usize = 8 << 20;
/// Slots of the send ring.
const TX_SLOTS: usize = 2048;
/// Local stock of frames: the pool's lock is taken once a batch.
const SPARE_FRAMES: usize = 64;

/// Frames of the pool at hand.
#[derive(Debug)]
pub(super) struct Spare<'p> {
    pool: &'p Pool,
    frames: Vec<Taken<'p>>,
}

impl<'p> Spare<'p> {
    pub(super) fn new(pool: &'p Pool) -> Self {
        Spare { pool, frames: Vec::with_capacity(SPARE_FRAMES) }
    }

    pub(super) fn next(&mut self) -> Option<Taken<'p>> {
        self.has_next().then(|| self.frames.pop())?
    }

    fn has_next(&mut self) -> bool {
        if self.frames.is_empty() {
            self.pool.take(&mut self.frames, SPARE_FRAMES);
        }
        !self.frames.is_empty()
    }

    /// A frame with bytes that `fill` writes; `None` if they do not fit, which is counted, or it fails.
    fn filled(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Option<()>,
    ) -> Option<Taken<'p>> {
        let mut frame = self.next()?;
        let filled = frame.bytes().get_mut(HEADROOM_BYTES..HEADROOM_BYTES + len).and_then(fill);
        if filled.is_none() {
            self.pool.count_oversized();
            self.frames.push(frame);
            return None;
        }
        Some(frame)
    }
}

/// A super-frame that is cut into frames.
#[derive(Debug)]
struct SuperFrame {
    bytes: Vec<u8>,
    /// `None` if there is none.
    cut: Option<Cut>,
}

#[derive(Debug)]
pub(super) struct PacketReceiver<'p> {
    ring: PacketRx,
    spare: Spare<'p>,
    super_frame: SuperFrame,
    /// UDP port of VXLAN, whose super-frames have headers of two packets.
    vxlan_port: u16,
}

impl<'p> PacketReceiver<'p> {
    pub(super) fn take(
        &mut self,
        max: usize,
        mut each: impl FnMut(Taken<'p>, usize, usize),
    ) -> usize {
        let mut taken = self.take_cut(max, &mut each);
        // One at a time: a super-frame may fill the rest. Without a free frame packets stay in the ring.
        while taken < max && self.spare.has_next() {
            let PacketReceiver { ring, spare, super_frame, vxlan_port } = self;
            let got = ring.take_offloaded(1, |bytes, whole_bytes, offload| {
                if bytes.len() != whole_bytes {
                    return spare.pool.count_oversized();
                }
                match offload {
                    Some(FrameOffload { is_unknown: true, .. }) => spare.pool.count_oversized(),
                    Some(FrameOffload { segment_bytes, checksum: (start, _), .. })
                        if segment_bytes > 0 =>
                    {
                        super_frame.bytes.clear();
                        super_frame.bytes.extend_from_slice(bytes);
                        super_frame.cut = Cut::of(bytes, start, segment_bytes, *vxlan_port);
                        if super_frame.cut.is_none() {
                            spare.pool.count_oversized();
                        }
                    }
                    _ => {
                        if let Some(FrameOffload { checksum: (start, offset), .. }) = offload {
                            // Beyond its end only if the kernel is wrong: its receiver drops it.
                            let _ = offload::finish(bytes, Unfinished { start, offset });
                        }
                        let frame = spare.filled(bytes.len(), |place| {
                            place.copy_from_slice(bytes);
                            Some(())
                        });
                        if let Some(frame) = frame {
                            each(frame, HEADROOM_BYTES, bytes.len());
                            taken += 1;
                        }
                    }
                }
            });
            if got == 0 {
                break;
            }
            taken += self.take_cut(max - taken, &mut each);
        }
        taken
    }

    /// Takes frames out of the super-frame at hand.
    fn take_cut(&mut self, max: usize, each: &mut impl FnMut(Taken<'p>, usize, usize)) -> usize {
        let SuperFrame { bytes, cut } = &mut self.super_frame;
        let mut taken = 0;
        while taken < max
            && let Some(rest) = cut
            && self.spare.has_next()
        {
            let len = rest.next_bytes();
            let frame = len
                .and_then(|len| self.spare.filled(len, |place| rest.next(bytes, place).map(drop)));
            match (frame, len) {
                (Some(frame), Some(len)) => {
                    each(frame, HEADROOM_BYTES, len);
                    taken += 1;
                }
                // It has ended, or its frames are larger than the pool's.
                _ => *cut = None,
            }
        }
        taken
    }
}

impl AsFd for PacketReceiver<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

#[derive(Debug)]
pub(super) struct PacketSender<'p> {
    ring: PacketTx,
    sent: Vec<Taken<'p>>,
    ifname: String,
}

impl<'p> PacketSender<'p> {
    pub(super) fn room(&mut self) -> usize {
        self.ring.reap();
        self.ring.room()
    }

    pub(super) fn post(
        &mut self,
        mut frame: Taken<'p>,
        offset: usize,
        len: usize,
    ) -> Result<(), Taken<'p>> {
        let Some(bytes) = frame.bytes().get(offset..offset.saturating_add(len)) else {
            return Err(frame);
        };
        if self.ring.post(1, len, |slot| slot.copy_from_slice(bytes)) == 0 {
            return Err(frame);
        }
        self.sent.push(frame);
        Ok(())
    }

    pub(super) fn reap(&mut self, frames: &mut Vec<Taken<'p>>) -> usize {
        self.ring.reap();
        let count = self.sent.len();
        frames.append(&mut self.sent);
        count
    }

    pub(super) fn pending(&mut self) -> usize {
        self.ring.reap();
        self.ring.in_flight()
    }

    pub(super) fn kick(&mut self) -> Result<bool, IoError> {
        self.ring.kick().map_err(|source| IoError::packet(source, "sendto", &self.ifname))
    }
}

#[derive(Debug)]
pub(super) struct TapReceiver<'p> {
    tap: Tap,
    spare: Spare<'p>,
}

impl<'p> TapReceiver<'p> {
    pub(super) fn take(
        &mut self,
        max: usize,
        mut each: impl FnMut(Taken<'p>, usize, usize),
    ) -> usize {
        for taken in 0..max {
            let Some(mut frame) = self.spare.next() else { return taken };
            let room = &mut frame.bytes()[HEADROOM_BYTES..];
            let room_bytes = room.len();
            match self.tap.read(room) {
                // A frame that fills the room was truncated: the MTU was raised after the check.
                Ok(len) if len == room_bytes => {
                    self.spare.pool.count_oversized();
                    self.spare.frames.push(frame);
                    return taken;
                }
                Ok(len) => each(frame, HEADROOM_BYTES, len),
                Err(_) => {
                    self.spare.frames.push(frame);
                    return taken;
                }
            }
        }
        max
    }
}

impl AsFd for TapReceiver<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tap.as_fd()
    }
}

#[derive(Debug)]
pub(super) struct TapSender<'p> {
    tap: Tap,
    sent: Vec<Taken<'p>>,
}

impl<'p> TapSender<'p> {
    pub(super) fn post(
        &mut self,
        mut frame: Taken<'p>,
        offset: usize,
        len: usize,
    ) -> Result<(), Taken<'p>> {
        let Some(bytes) = frame.bytes().get(offset..offset.saturating_add(len)) else {
            return Err(frame);
        };
        match self.tap.write(bytes) {
            Ok(()) => {
                self.sent.push(frame);
                Ok(())
            }
            Err(_) => Err(frame),
        }
    }

    pub(super) fn reap(&mut self, frames: &mut Vec<Taken<'p>>) -> usize {
        let count = self.sent.len();
        frames.append(&mut self.sent);
        count
    }
}

/// Opens a port of AF_PACKET rings on an interface of the calling thread's network namespace.
///
/// The port receives all frames that arrive; the host's stack receives them too.
///
/// Super-frames are cut and checksums finished, as a card would do.
///
/// - `vxlan_port`: UDP port of VXLAN.
pub fn open_packet_port<'p>(
    pool: &'p Pool,
    ifindex: u32,
    ifname: &str,
    vxlan_port: u16,
) -> Result<Port<'p>, IoError> {
    let frame_bytes = pool.frame_bytes() as usize;
    let ring = PacketRx::open_offloaded(ifindex, RX_RING_BYTES)
        .map_err(|source| IoError::packet(source, "a packet receive ring", ifname))?;
    let out = PacketTx::open_dropping(ifindex, frame_bytes, TX_SLOTS)
        .map_err(|source| IoError::packet(source, "a packet send ring", ifname))?;
    let sent = Vec::with_capacity(TX_SLOTS);
    Ok(Port {
        filter: None,
        rx: PortRx::new(vec![Receiver::Packet(Box::new(PacketReceiver {
            ring,
            spare: Spare::new(pool),
            super_frame: SuperFrame { bytes: Vec::new(), cut: None },
            vxlan_port,
        }))]),
        tx: PortTx(Sender::Packet(PacketSender { ring: out, sent, ifname: ifname.to_owned() })),
    })
}

/// Makes a TAP device of this name in the calling thread's network namespace, and a port whose
/// frames this host's stack sends and receives. The device goes with the port.
pub fn open_tap_port<'p>(pool: &'p Pool, ifname: &str) -> Result<Port<'p>, IoError> {
    let what = "a TAP device";
    let tap = Tap::new(ifname).map_err(|source| match source.kind() {
        ErrorKind::PermissionDenied => {
            IoError::Permission { what, capability: "CAP_NET_ADMIN", source }
        }
        _ => IoError::packet(source, what, ifname),
    })?;
    let writer = tap.try_clone().map_err(|source| IoError::packet(source, what, ifname))?;
    Ok(Port {
        filter: None,
        rx: PortRx::new(vec![Receiver::Tap(TapReceiver { tap, spare: Spare::new(pool) })]),
        tx: PortTx(Sender::Tap(TapSender { tap: writer, sent: Vec::new() })),
    })
}
