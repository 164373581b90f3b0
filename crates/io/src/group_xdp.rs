//! Multicast groups through AF_XDP: a socket on every receive queue of an interface, past the stack.

use std::net::{IpAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use sys::bpf::{FEED_GROUPS_MAX, FEED_STAMP_BYTES, FeedGroup, SocketFilter, XdpMode};
use sys::{clock, poll, socket};
use wire::frame;
use xdp::{Bind, Copying, Frames, Socket, Then};

use crate::IoError;
use crate::multicast::{Group, GroupDatagram};
use crate::redirect::Redirect;
use crate::xdp_stamps::take_stamp;

/// Frames of one queue, all of them for receiving; its RX ring holds as many.
const FRAMES: u32 = 4096;
/// Packet in front of which the kernel keeps 256 bytes of a frame of 2,048.
const SMALL_PACKET_BYTES_MAX: u32 = 2048 - 256;
/// Ethernet header and one VLAN tag.
const ETHERNET_BYTES: u32 = 18;

/// Interface whose groups are received past the stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPort {
    pub mtu_bytes: u32,
    /// Receive queues in use, at most [`poll::FDS_MAX`].
    pub queues: u32,
    /// Where the XDP program runs. In native mode zero-copy is used where the driver has it.
    pub mode: XdpMode,
    /// Datagrams taken from a queue at a time.
    pub batch: usize,
    /// Pinned map of AF_XDP sockets of a program that is attached already; `None` for one of our own.
    pub xsk_map: Option<PathBuf>,
}

/// Receives one or two groups of one interface. Datagrams carry the time at which our XDP program
/// ran; a program of another process stamps none.
#[derive(Debug)]
pub struct XdpGroups {
    // Field order is drop order: the program is detached before the sockets close, so that no frame is
    // redirected to a closed socket.
    filter: Redirect,
    sockets: Vec<Socket>,
    /// Hold the memberships. Datagrams that still reach the stack are dropped and counted here.
    members: Vec<UdpSocket>,
    groups: Vec<Group>,
    batch: usize,
    /// `None` if the program does not stamp.
    tai_offset_ns: Option<i64>,
    taken_counts: [u64; FEED_GROUPS_MAX],
}

impl XdpGroups {
    /// Joins the groups, all on one interface, in the calling thread's network namespace.
    ///
    /// Errors: without CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF or CAP_PERFMON; before Linux 6.1; a program that
    /// is attached already; more queues than a wait can take.
    pub fn open(groups: &[Group], port: &GroupPort) -> Result<Self, IoError> {
        let Some(Group { ifindex, ifname, .. }) = groups.first() else {
            return Err(IoError::NoRemote);
        };
        let queues = port.queues.max(1);
        if queues as usize > poll::FDS_MAX {
            let ifname = ifname.clone();
            return Err(IoError::TooManyQueues { ifname, queues, most: poll::FDS_MAX });
        }
        let named: Vec<_> = groups
            .iter()
            .map(|group| FeedGroup {
                address: *group.address.ip(),
                port: group.address.port(),
                source: group.source,
            })
            .collect();
        let mut filter = Redirect::open(port.xsk_map.as_deref(), || {
            Ok(SocketFilter::for_feed(&named, queues)?)
        })?;
        let sockets = open_sockets(*ifindex, ifname, port, queues)?;
        filter.start(*ifindex, port.mode, (0..).zip(sockets.iter().map(AsFd::as_fd)))?;
        // Last: what arrives from here on finds the program.
        let members = groups.iter().map(Group::join_dropping).collect::<Result<_, _>>()?;
        Ok(XdpGroups {
            filter,
            sockets,
            members,
            groups: groups.to_vec(),
            batch: port.batch.max(1),
            tai_offset_ns: port.xsk_map.is_none().then(clock::tai_offset_ns),
            taken_counts: [0; FEED_GROUPS_MAX],
        })
    }

    /// Takes arrived datagrams, at most a batch of each queue, without waiting; returns how many. `each` gets
    /// the index of the group, too.
    pub fn take(&mut self, each: &mut impl FnMut(usize, GroupDatagram<'_>)) -> usize {
        let XdpGroups { sockets, groups, batch, tai_offset_ns, taken_counts, .. } = self;
        let front_bytes = if tai_offset_ns.is_some() { FEED_STAMP_BYTES } else { 0 };
        let mut taken = 0;
        for socket in sockets {
            let took = socket.rx_take_from(front_bytes as u32, *batch, |bytes, _| {
                if let Some((at, datagram)) = parse(bytes, groups, *tai_offset_ns) {
                    taken_counts[at] += 1;
                    each(at, datagram);
                }
                Then::Release
            });
            if took > 0 {
                socket.rx_post();
            } else if socket.fill_needs_wakeup() {
                socket.poll_device();
            }
            taken += took;
        }
        taken
    }

    /// Descriptors to wait on, one a queue.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Datagrams of a group that did not get here: dropped by a full ring, or passed to the stack because
    /// their queue has no socket.
    ///
    /// The rings count for all groups together. While they count none, what is redirected and not taken is
    /// still in them.
    pub fn dropped_count(&self, group: usize) -> u64 {
        let counted = self.sockets.iter().filter_map(|socket| socket.statistics().ok());
        let most: u64 = counted.map(|s| s.rx_dropped_count + s.rx_ring_full_count).sum();
        let redirected = match most {
            0 => 0,
            _ => match (&self.filter, self.filter.redirected_by_group()) {
                (_, Some(counts)) => counts[group],
                // Another's program counts nothing: the rings' losses are all of this group.
                (Redirect::Pinned { .. }, None) => most.saturating_add(self.taken_counts[group]),
                (Redirect::Own(_), None) => 0,
            },
        };
        let in_rings = redirected.saturating_sub(self.taken_counts[group]).min(most);
        let passed = socket::drop_count(self.members[group].as_fd()).unwrap_or(0);
        in_rings + passed
    }

    /// System calls made to receive, without waits.
    pub fn syscall_count(&self) -> u64 {
        self.sockets.iter().map(|socket| socket.wakeup_count).sum()
    }

    /// True if all queues are in zero-copy mode.
    pub fn is_zero_copy(&self) -> bool {
        self.sockets.iter().all(Socket::is_zero_copy)
    }
}

fn open_sockets(
    ifindex: u32,
    ifname: &str,
    port: &GroupPort,
    queues: u32,
) -> Result<Vec<Socket>, IoError> {
    let is_small = port.mtu_bytes + ETHERNET_BYTES <= SMALL_PACKET_BYTES_MAX;
    let frame_bytes = if is_small { 2048 } else { 4096 };
    let shares = Frames::allocate(frame_bytes, FRAMES, queues).map_err(|source| {
        IoError::System { what: "allocating the UMEM", ifname: ifname.to_owned(), source }
    })?;
    let native = port.mode == XdpMode::Native;
    let mut sockets: Vec<Socket> = Vec::with_capacity(shares.len());
    for (queue, frames) in (0..).zip(shares) {
        let bind = Bind {
            ifindex,
            ifname: ifname.to_owned(),
            queue,
            queues,
            copying: if native { Copying::PreferZeroCopy } else { Copying::Copy },
            need_wakeup: native,
            multi_buffer: false,
            ring_entries: FRAMES,
            fill_target: FRAMES,
            tx_budget: 0,
        };
        sockets.push(Socket::open(frames, bind, sockets.first())?);
    }
    Ok(sockets)
}

/// Takes the stamp off the front of a frame and finds its group; `None` if it is of none.
fn parse<'a>(
    bytes: &'a mut [u8],
    groups: &[Group],
    tai_offset_ns: Option<i64>,
) -> Option<(usize, GroupDatagram<'a>)> {
    let (stamp_ns, frame) = match tai_offset_ns {
        Some(offset_ns) => {
            let (front, frame) = bytes.split_at_mut_checked(FEED_STAMP_BYTES)?;
            (take_stamp(front, offset_ns), frame)
        }
        None => (None, bytes),
    };
    let (meta, payload) = frame::udp_payload(frame).ok()?;
    let (IpAddr::V4(src_ip), IpAddr::V4(dst_ip)) = (meta.src_ip, meta.dst_ip) else { return None };
    let to = SocketAddrV4::new(dst_ip, meta.dst_port);
    let at = groups.iter().position(|group| {
        group.address == to && group.source.is_none_or(|source| source == src_ip)
    })?;
    let from = SocketAddrV4::new(src_ip, meta.src_port);
    Some((at, GroupDatagram { payload: frame.get(payload)?, from, stamp_ns }))
}
