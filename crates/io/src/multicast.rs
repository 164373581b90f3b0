//! Multicast: receiving groups through sockets or as whole frames, and sending to them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use sys::multicast::{self, Membership};
use sys::packet::{PacketRx, PacketStatistics};
use sys::udp::{Batch, Stamps};
use sys::{socket, udp};
use wire::frame::PAYLOAD_BYTES_MAX;

use crate::IoError;

/// Memory of a recorder's ring: a second of a gigabit.
const TAP_RING_BYTES: usize = 64 << 20;

/// A multicast group, its port and the interface to receive it on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub address: SocketAddrV4,
    /// Only sender to receive from; `None` for any.
    pub source: Option<Ipv4Addr>,
    pub ifindex: u32,
    pub ifname: String,
}

impl Group {
    fn membership(&self) -> Membership {
        Membership {
            group: *self.address.ip(),
            source: self.source,
            ifindex: self.ifindex,
            ifname: self.ifname.clone(),
        }
    }

    /// A member of the group whose socket drops all datagrams, for receivers beside the stack.
    pub(crate) fn join_dropping(&self) -> Result<UdpSocket, IoError> {
        let socket = multicast::bind(self.address).map_err(self.failed("binding"))?;
        socket::attach_drop_all(socket.as_fd()).map_err(self.failed("SO_ATTACH_FILTER"))?;
        self.membership().join(socket.as_fd())?;
        Ok(socket)
    }

    fn failed(&self, what: &'static str) -> impl Fn(io::Error) -> IoError + '_ {
        move |source| match source.kind() {
            io::ErrorKind::PermissionDenied => {
                IoError::Permission { what, capability: "CAP_NET_RAW", source }
            }
            io::ErrorKind::NetworkDown => IoError::LinkDown { ifname: self.ifname.clone() },
            io::ErrorKind::AddrInUse => IoError::PortTaken {
                ip: (*self.address.ip()).into(),
                port: self.address.port(),
                source,
            },
            _ => IoError::System { what, ifname: self.ifname.clone(), source },
        }
    }
}

/// How a group's socket is tuned. Read once, when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupTuning {
    /// Receive buffer in bytes; `None` for the host's default.
    pub receive_buffer_bytes: Option<usize>,
    /// Datagrams a system call.
    pub batch: usize,
    /// Longest payload that is received whole.
    pub payload_bytes_max: usize,
    /// The socket polls the device queue itself (SO_BUSY_POLL).
    pub busy_poll: bool,
    /// Whose time stamps datagrams carry.
    pub stamps: Stamps,
}

impl Default for GroupTuning {
    /// The host's buffer, 32 datagrams a call, payloads up to 9,000 bytes.
    fn default() -> Self {
        GroupTuning {
            receive_buffer_bytes: None,
            batch: 32,
            payload_bytes_max: 9000,
            busy_poll: false,
            stamps: Stamps::Software,
        }
    }
}

/// A datagram of a group.
#[derive(Debug, Clone, Copy)]
pub struct GroupDatagram<'a> {
    /// Payload, truncated to [`GroupTuning::payload_bytes_max`].
    pub payload: &'a [u8],
    pub from: SocketAddrV4,
    /// Time of the stamp asked for, CLOCK_REALTIME or the NIC's clock, nanoseconds; the first few datagrams
    /// may have none.
    pub stamp_ns: Option<u64>,
}

/// Receives one group with the kernel's time stamps.
#[derive(Debug)]
pub struct GroupReceiver {
    socket: UdpSocket,
    batch: Batch,
    group: Group,
    granted_bytes: usize,
    /// SO_RXQ_OVFL of the last datagram.
    overflow_count: u32,
    /// System calls made to receive.
    pub syscall_count: u64,
}

impl GroupReceiver {
    /// Binds and joins, in the calling thread's network namespace.
    pub fn open(group: &Group, tuning: &GroupTuning) -> Result<Self, IoError> {
        group.membership().check()?;
        let socket = multicast::bind(group.address).map_err(group.failed("binding"))?;
        let fd = socket.as_fd();
        if let Some(bytes) = tuning.receive_buffer_bytes {
            socket::set_receive_buffer(fd, bytes).map_err(group.failed("SO_RCVBUF"))?;
        }
        let granted_bytes = socket::receive_buffer(fd).unwrap_or_default();
        if tuning.busy_poll {
            socket::set_busy_poll(fd, true).map_err(group.failed(socket::BUSY_POLL))?;
        }
        udp::set_receive_stamps(fd, tuning.stamps).map_err(group.failed("SO_TIMESTAMPING"))?;
        udp::set_overflow_count(fd).map_err(group.failed("SO_RXQ_OVFL"))?;
        let slot_bytes = tuning.payload_bytes_max.clamp(64, PAYLOAD_BYTES_MAX);
        let batch = Batch::new(tuning.batch.max(1), slot_bytes).map_err(group.failed("memory"))?;
        // Last, because the receive buffer fills from here on.
        group.membership().join(fd)?;
        Ok(GroupReceiver {
            socket,
            batch,
            group: group.clone(),
            granted_bytes,
            overflow_count: 0,
            syscall_count: 0,
        })
    }

    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Receive buffer granted by the kernel, with its own bookkeeping: about twice the request.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.granted_bytes
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Takes queued datagrams, at most one batch, without waiting; returns how many.
    pub fn take(&mut self, each: &mut impl FnMut(GroupDatagram<'_>)) -> Result<usize, IoError> {
        self.syscall_count += 1;
        let taken = match self.batch.receive(self.socket.as_fd(), false) {
            Ok(taken) => taken,
            // ECONNREFUSED answers an earlier send, not this receive.
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => 0,
            Err(e) => return Err(self.group.failed("receiving")(e)),
        };
        for slot in 0..taken {
            let received = self.batch.received(slot);
            if let Some(count) = received.overflow_count {
                self.overflow_count = count;
            }
            // The socket is of IPv4.
            let SocketAddr::V4(from) = received.from else { continue };
            each(GroupDatagram { payload: received.bytes, from, stamp_ns: received.stamp_ns });
        }
        Ok(taken)
    }

    /// Datagrams that the kernel dropped because the receive buffer was full. Reads the counter of
    /// SO_RXQ_OVFL directly, so that drops after the last datagram count too.
    pub fn dropped_count(&self) -> u64 {
        let told = u64::from(self.overflow_count);
        socket::drop_count(self.socket.as_fd()).map_or(told, |count| count.max(told))
    }
}

/// A socket that sends to a group or a host through an interface. `ttl` applies to groups only.
pub fn sender(to: SocketAddrV4, ifindex: u32, ifname: &str, ttl: u8) -> Result<UdpSocket, IoError> {
    multicast::sender(to, ifindex, ttl).map_err(|source| match source.kind() {
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => IoError::System {
            what: "finding a way to the destination",
            ifname: ifname.to_owned(),
            source,
        },
        _ => IoError::System { what: "opening a sender", ifname: ifname.to_owned(), source },
    })
}

/// Receives groups as whole Ethernet frames, from a TPACKET_V3 ring beside the stack.
#[derive(Debug)]
pub struct FrameTap {
    ring: PacketRx,
    /// Sockets that hold the memberships; their queues stay empty.
    _members: Vec<UdpSocket>,
    ifname: String,
}

impl FrameTap {
    /// Joins the groups, all on one interface, and opens the ring. Needs CAP_NET_RAW.
    ///
    /// - `stamps`: of the kernel, or of the NIC where it has them.
    pub fn open(groups: &[Group], stamps: Stamps) -> Result<Self, IoError> {
        let Some(first) = groups.first() else { return Err(IoError::NoRemote) };
        let flows: Vec<_> = groups.iter().map(|group| (group.source, group.address)).collect();
        let ring = PacketRx::open_flows(first.ifindex, &flows, TAP_RING_BYTES)
            .map_err(first.failed("a packet receive ring"))?;
        if stamps == Stamps::Hardware {
            ring.use_hardware_stamps().map_err(first.failed("PACKET_TIMESTAMP"))?;
        }
        let members = groups.iter().map(Group::join_dropping).collect::<Result<_, _>>()?;
        Ok(FrameTap { ring, _members: members, ifname: first.ifname.clone() })
    }

    /// Takes up to `max` frames: the captured bytes, the frame's whole length, the kernel's time
    /// stamp (CLOCK_REALTIME nanoseconds). Returns how many.
    pub fn take(&mut self, max: usize, each: &mut impl FnMut(&[u8], usize, u64)) -> usize {
        self.ring.take(max, |bytes, len_bytes, stamp_ns| each(bytes, len_bytes, stamp_ns))
    }

    /// Sleeps until there are frames, at most `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        self.ring.wait(timeout).map_err(|source| self.failed(source))
    }

    /// Frames that matched, and those of them that found the ring full.
    pub fn statistics(&mut self) -> Result<PacketStatistics, IoError> {
        self.ring.statistics().map_err(|source| IoError::System {
            what: "reading the ring's counters",
            ifname: self.ifname.clone(),
            source,
        })
    }

    fn failed(&self, source: io::Error) -> IoError {
        IoError::System { what: "waiting for frames", ifname: self.ifname.clone(), source }
    }
}
