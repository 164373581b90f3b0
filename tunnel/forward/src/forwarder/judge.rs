//! A worker's decisions on the frames of its batch tickets: destination, drop, and headers to add
//! or remove.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::ports::{HEADROOM_BYTES, Pool, Taken};
use wire::{ethernet, flow, offload};

use super::counts::add;
use super::fast::FastTable;
use super::keepalive::{OWN, stamp, target_tunnel};
use super::{FLOOD, Forwarder, Rules, Table, Worker, frame_place, keep};
use crate::domain::{self, Domains, Members, Tag};
use crate::encap::{EncapDrop, Mark, PacketPlace};
use crate::fdb::{Fdb, FdbPort, Learned};
use crate::keepalive::KeepaliveMessage;
use crate::order::{BATCH_FRAMES_MAX, BatchTicket, Frame, FrameVerdict};

/// Sides of the forwarder, by which frames come in.
const PORT: usize = 0;
const UNDERLAY: usize = 1;

/// Destination of a frame from the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameTarget {
    Drop,
    Tunnel(u16),
    /// A copy into each tunnel of its network.
    Flood {
        copies: u16,
    },
}

impl FrameTarget {
    /// Frames that are sent.
    fn copies(self) -> u16 {
        match self {
            FrameTarget::Drop => 0,
            FrameTarget::Tunnel(_) => 1,
            FrameTarget::Flood { copies } => copies,
        }
    }
}

/// Destination and source of a frame.
type Macs = ([u8; 6], [u8; 6]);

/// Fields of a frame from the port that decide on its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ends {
    macs: Macs,
    tag: Tag,
}

/// Result of the table's look-up for a frame.
#[derive(Debug, Clone, Copy)]
struct FrameLookup {
    ends: Ends,
    /// `None` if no tunnel carries its VLAN.
    network: Option<u16>,
    /// The source could not be learnt: its share of the table was full.
    is_unlearnt: bool,
    port: Option<FdbPort>,
}

/// Frames of a batch ticket while they are processed. Parks them in the pool on drop, also on a
/// panic.
struct Held<'w, 'a>(&'w mut Vec<Option<Taken<'a>>>);

impl<'w, 'a> Held<'w, 'a> {
    fn claim(
        pool: &'a Pool,
        token: &BatchTicket<'_>,
        held: &'w mut Vec<Option<Taken<'a>>>,
    ) -> Self {
        let frames = (0..token.len()).map_while(|at| token.frame(at));
        held.extend(frames.map(|frame| pool.claim(frame.index())));
        Held(held)
    }
}

impl Drop for Held<'_, '_> {
    fn drop(&mut self) {
        self.0.drain(..).flatten().for_each(|taken| {
            taken.park();
        });
    }
}

impl Forwarder<'_> {
    /// Decides on the destination of each frame and adds the headers.
    pub(super) fn encapsulate<'a>(
        &'a self,
        token: &mut BatchTicket<'a>,
        worker: &mut Worker<'a>,
        now_ns: u64,
    ) {
        let Worker { rules, worked, spare, held, replies, .. } = worker;
        // Claimed once per batch: a claim is an atomic exchange.
        let held = Held::claim(self.pool, token, held);
        let mut ends = [None; BATCH_FRAMES_MAX];
        for (at, (ends, taken)) in ends.iter_mut().zip(held.0.iter_mut()).enumerate() {
            let place = token.frame(at).map(frame_place);
            *ends = taken.as_mut().zip(place).and_then(|(taken, at)| frame_ends(taken.bytes(), at));
        }
        let mut targets = [FrameTarget::Drop; BATCH_FRAMES_MAX];
        {
            // The lock is never held while frames are read or headers are written.
            let mut table = self.table();
            keep(rules, &table.rules);
            let Table { fdb, rules, policer, fast } = &mut *table;
            let mut last = None;
            for (at, target) in targets.iter_mut().enumerate().take(held.0.len()) {
                let Some(frame) = token.frame(at) else { break };
                // Counted by the pool.
                let Some(taken) = &mut held.0[at] else { continue };
                if frame.class() == OWN {
                    let bytes = taken.bytes().get(frame_place(frame).at..);
                    *target = bytes
                        .and_then(target_tunnel)
                        .map_or(FrameTarget::Drop, FrameTarget::Tunnel);
                    continue;
                }
                *target = self.target(fdb, fast.as_mut(), rules, ends[at], &mut last, now_ns);
                let (bytes, copies) = (u64::from(frame.len_bytes()), target.copies());
                if let Some(policer) = &mut *policer {
                    if copies > 0 && !policer.take_copies(bytes, copies, now_ns) {
                        add(&self.counts.policed_count);
                        *target = FrameTarget::Drop;
                    }
                } else if let Some(fast) = fast
                    && copies > 1
                {
                    // The programs have counted it once.
                    fast.charge(bytes * u64::from(copies - 1));
                }
            }
        }
        let Some(rules) = rules.as_deref() else { return };
        let first_sequence = (token.ticket() as u32).wrapping_mul(BATCH_FRAMES_MAX as u32);
        let mut held_at = held.0.iter_mut().zip(targets).enumerate();
        token.judge(|frame| {
            let Some((at, (taken, target))) = held_at.next() else { return FrameVerdict::Drop };
            let sequence = first_sequence.wrapping_add(at as u32);
            if !self.tuning.work.is_none() {
                *worked = self.tuning.work.spin(*worked);
            }
            let tunnel = match target {
                FrameTarget::Drop => return FrameVerdict::Drop,
                FrameTarget::Flood { .. } => {
                    let Some(taken) = taken else { return FrameVerdict::Drop };
                    let (bytes, place) = (taken.bytes(), frame_place(frame));
                    self.finish_left(PORT, rules, bytes, place);
                    return FrameVerdict::Forward(
                        frame.in_class(FLOOD | frame_class(rules, bytes, place)),
                    );
                }
                FrameTarget::Tunnel(tunnel) => tunnel,
            };
            let Some(encap) = rules.encaps.get(usize::from(tunnel)) else {
                add(&self.counts.removed_count);
                return FrameVerdict::Drop;
            };
            let Some(taken) = taken else { return FrameVerdict::Drop };
            self.finish_left(PORT, rules, taken.bytes(), frame_place(frame));
            let (mut place, mut original) = (frame_place(frame), None);
            if !self.tuning.prepends {
                let Some((copy, copied_to)) = self.copied(spare, taken, place) else {
                    add(&self.counts.uncopied_count);
                    return FrameVerdict::Drop;
                };
                place = copied_to;
                original = Some(std::mem::replace(taken, copy));
            }
            let index = taken.index();
            let bytes = taken.bytes();
            let class = if frame.class() == OWN {
                stamp(bytes, place, now_ns);
                0
            } else {
                frame_class(rules, bytes, place)
            };
            let place = match rules.domains.tunnel_network(tunnel.into()) {
                0 => place,
                _ => domain::untag(bytes, place).unwrap_or(place),
            };
            let inner = bytes.get(place.at..place.at + place.len).unwrap_or(&[]);
            let mark = Mark { flow_hash: flow::tuple(inner).crc32c(), sequence };
            if let Some(inner) = bytes.get_mut(place.at..place.at + place.len) {
                self.clamp(rules, tunnel.into(), inner);
            }
            match encap.prepend(bytes, place, mark) {
                // Dropping `original` frees the buffer of a copied frame.
                Ok(whole) => FrameVerdict::Forward(Frame::new(
                    index,
                    whole.at as u16,
                    whole.len as u16,
                    class,
                )),
                Err(reason) => {
                    add(&self.counts.encap_drops[reason.index()]);
                    if reason == EncapDrop::TooBig {
                        let frame = (&mut *taken, place);
                        self.answer_too_big(rules, tunnel, frame, (spare, replies), now_ns);
                    }
                    if let Some(original) = original {
                        *taken = original;
                    }
                    FrameVerdict::Drop
                }
            }
        });
    }

    /// Finishes the checksums of a received frame that its sender left to a device.
    #[inline]
    fn finish_left(&self, side: usize, rules: &Rules, bytes: &mut [u8], place: PacketPlace) {
        if self.is_unfinished[side]
            && let Some(frame) = bytes.get_mut(place.at..place.at + place.len)
            && offload::finish_left(frame, rules.decap.spec().vxlan_port)
        {
            add(&self.counts.finished_count);
        }
    }

    /// Copies the frame into another buffer of the pool, with room for headers in front; `None` if
    /// the pool is empty.
    pub(super) fn copied<'a>(
        &'a self,
        spare: &mut Vec<Taken<'a>>,
        original: &mut Taken<'_>,
        from: PacketPlace,
    ) -> Option<(Taken<'a>, PacketPlace)> {
        if spare.is_empty() {
            self.pool.take(spare, BATCH_FRAMES_MAX);
        }
        let mut copy = spare.pop()?;
        let place = PacketPlace { at: HEADROOM_BYTES, len: from.len };
        let source = original.bytes().get(from.at..from.at + from.len)?;
        copy.bytes().get_mut(place.at..place.at + place.len)?.copy_from_slice(source);
        Some((copy, place))
    }

    /// - `last`: result for the previous frame, reused for the same pair of addresses.
    fn target(
        &self,
        fdb: &mut Fdb,
        fast: Option<&mut FastTable>,
        rules: &Rules,
        ends: Option<Ends>,
        last: &mut Option<FrameLookup>,
        now_ns: u64,
    ) -> FrameTarget {
        let Some(ends) = ends else {
            add(&self.counts.runt_count);
            return FrameTarget::Drop;
        };
        if is_reserved(ends.macs.0) {
            add(&self.counts.reserved_count);
            return FrameTarget::Drop;
        }
        let found = match *last {
            Some(found) if found.ends == ends => found,
            _ => find(fdb, fast, rules, ends, now_ns),
        };
        *last = Some(found);
        let Some(network) = found.network else {
            add(&self.counts.vlan_count);
            return FrameTarget::Drop;
        };
        if found.is_unlearnt {
            add(&self.counts.unlearnt_count);
        }
        match found.port {
            Some(FdbPort::Tunnel(tunnel)) => FrameTarget::Tunnel(tunnel),
            Some(FdbPort::Local(_)) => {
                add(&self.counts.local_count);
                FrameTarget::Drop
            }
            None => match rules.domains.members(network) {
                Members::One(tunnel) => FrameTarget::Tunnel(tunnel),
                Members::None | Members::Several => {
                    FrameTarget::Flood { copies: rules.domains.tunnel_count(network) }
                }
            },
        }
    }

    /// Decapsulates each frame and learns its source.
    pub(super) fn decapsulate(
        &self,
        token: &mut BatchTicket<'_>,
        worker: &mut Worker<'_>,
        now_ns: u64,
    ) {
        // A worker that was idle since a reload takes nothing by the rules of before.
        let reload_count = self.reload_count.load(Ordering::Acquire);
        if worker.rules.is_none() || worker.reload_count != reload_count {
            worker.rules = Some(self.table().rules.clone());
            worker.reload_count = reload_count;
        }
        let Some(rules) = worker.rules.clone() else { return };
        let mut sources = [([0; 6], 0); BATCH_FRAMES_MAX];
        let mut source_count = 0;
        token.judge(|frame| {
            let Some(mut taken) = self.pool.claim(frame.index()) else { return FrameVerdict::Drop };
            let bytes = taken.bytes();
            self.finish_left(UNDERLAY, &rules, bytes, frame_place(frame));
            let verdict = match rules.decap.open(bytes, frame_place(frame)) {
                Ok(inner)
                    if mac_addresses(bytes, inner.place)
                        .is_some_and(|(dst, _)| is_reserved(dst)) =>
                {
                    let PacketPlace { at, len } = inner.place;
                    match bytes.get(at..at + len).and_then(KeepaliveMessage::read) {
                        Some(message) => self.keepalive(&rules, inner.tunnel, message, now_ns),
                        None => add(&self.counts.reserved_count),
                    }
                    FrameVerdict::Drop
                }
                Ok(inner) => {
                    if inner.has_odd_ecn {
                        add(&self.counts.odd_ecn_count);
                    }
                    let PacketPlace { at, len } = inner.place;
                    if let Some(frame) = bytes.get_mut(at..at + len) {
                        self.clamp(&rules, inner.tunnel, frame);
                    }
                    match retagged(bytes, inner.place, &rules.domains, inner.tunnel) {
                        Some(place) => {
                            if let Some((_, src)) = mac_addresses(bytes, place) {
                                sources[source_count] = (src, inner.tunnel as u16);
                                source_count += 1;
                            }
                            FrameVerdict::Forward(moved(frame, place))
                        }
                        None => {
                            add(&self.counts.vlan_count);
                            FrameVerdict::Drop
                        }
                    }
                }
                Err(reason) => {
                    add(&self.counts.decap_drops[reason.index()]);
                    FrameVerdict::Drop
                }
            };
            taken.park();
            verdict
        });
        let mut table = self.table();
        let Table { fdb, rules: current, fast, .. } = &mut *table;
        // Not learnt after a reload, which may have renumbered the tunnels.
        if rules.learns && Arc::ptr_eq(&rules, current) {
            for (src, tunnel) in sources.iter().take(source_count) {
                let port = FdbPort::Tunnel(*tunnel);
                let network = rules.domains.tunnel_network((*tunnel).into());
                if learn(fdb, fast.as_mut(), network, *src, port, now_ns) == Learned::Full {
                    add(&self.counts.unlearnt_count);
                }
            }
        }
        keep(&mut worker.rules, current);
    }
}

/// Class of a frame from the port, by its tag's priority, too.
fn frame_class(rules: &Rules, bytes: &[u8], place: PacketPlace) -> u8 {
    let tagged = bytes.get(place.at..place.at + place.len).unwrap_or(&[]);
    rules.classifier.class(tagged) & !FLOOD
}

/// True for 01:80:c2:00:00:00 to 0f: no bridge forwards them.
///
/// Source: IEEE 802.1Q, table 8-1.
fn is_reserved(dst: [u8; 6]) -> bool {
    matches!(dst, [0x01, 0x80, 0xc2, 0, 0, 0..=0x0f])
}

/// Learns a source, for the fast path too.
#[inline]
fn learn(
    fdb: &mut Fdb,
    fast: Option<&mut FastTable>,
    network: u16,
    mac: [u8; 6],
    port: FdbPort,
    now_ns: u64,
) -> Learned {
    let learned = fdb.learn(network, mac, port, now_ns);
    if let Some(fast) = fast {
        if let Learned::Replaced { network, mac } = learned {
            fast.forgotten(network, mac);
        }
        if matches!(learned, Learned::New | Learned::Replaced { .. } | Learned::Moved) {
            fast.learnt(network, mac, port, now_ns);
        }
    }
    learned
}

/// Learns the source of a frame from the port and looks up its destination.
fn find(
    fdb: &mut Fdb,
    fast: Option<&mut FastTable>,
    rules: &Rules,
    ends: Ends,
    now_ns: u64,
) -> FrameLookup {
    let (dst, src) = ends.macs;
    let network = rules.domains.network(ends.tag);
    let (is_unlearnt, port) = network.map_or((false, None), |network| {
        let is_unlearnt = rules.learns
            && learn(fdb, fast, network, src, FdbPort::Local(0), now_ns) == Learned::Full;
        (is_unlearnt, fdb.lookup(network, dst, now_ns))
    });
    FrameLookup { ends, network, is_unlearnt, port }
}

/// Gives a frame out of a tunnel the tag of its VLAN. `None` if it is tagged itself and its tunnel
/// carries the untagged frames: the port would take it for one of another VLAN.
pub(super) fn retagged(
    bytes: &mut [u8],
    place: PacketPlace,
    domains: &Domains,
    tunnel: usize,
) -> Option<PacketPlace> {
    match domains.tunnel_network(tunnel) {
        0 if !domains.has_vlans() => Some(place),
        0 => {
            let frame = bytes.get(place.at..place.at + place.len)?;
            (Tag::outermost(frame) == Tag::Untagged).then_some(place)
        }
        vlan => domain::tag(bytes, place, vlan),
    }
}

/// The frame at another position; buffers are far below 64 KiB.
fn moved(frame: Frame, place: PacketPlace) -> Frame {
    frame.moved(place.at as u16, place.len as u16)
}

/// Destination and source of an Ethernet frame; `None` if it is shorter than its header.
#[inline]
fn mac_addresses(bytes: &[u8], place: PacketPlace) -> Option<Macs> {
    let frame = bytes.get(place.at..place.at.checked_add(place.len)?)?;
    let header: &[u8; ethernet::HEADER_BYTES] = frame.first_chunk()?;
    let (dst, rest) = header.split_first_chunk::<6>()?;
    Some((*dst, *rest.first_chunk::<6>()?))
}

/// Fields of a frame from the port; `None` if it is shorter than its header.
#[inline]
fn frame_ends(bytes: &[u8], place: PacketPlace) -> Option<Ends> {
    let macs = mac_addresses(bytes, place)?;
    Some(Ends { macs, tag: Tag::outermost(bytes.get(place.at..place.at + place.len)?) })
}
