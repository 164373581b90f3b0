//! Sockets of TCP and UDP, with their state.
//!
//! Source: sock_diag(7), linux/inet_diag.h and linux/sock_diag.h.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use netlink_bindings::inet_diag::{self, IterableReplyAttrs, Msg, ReqV2, TcpInfo};
use netlink_bindings::traits::{NetlinkRequest, Protocol};

use super::error::{NetError, ask};

/// Most sockets that are read of one protocol and family.
pub(super) const SOCKETS_MAX: usize = 1 << 17;

/// Source: net/tcp_states.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TcpState {
    Established,
    SynSent,
    SynReceived,
    FinWait1,
    FinWait2,
    TimeWait,
    Closed,
    CloseWait,
    LastAck,
    Listen,
    Closing,
}

impl TcpState {
    fn of_number(number: u8) -> Self {
        match number {
            1 => TcpState::Established,
            2 => TcpState::SynSent,
            3 | 12 => TcpState::SynReceived,
            4 => TcpState::FinWait1,
            5 => TcpState::FinWait2,
            6 => TcpState::TimeWait,
            8 => TcpState::CloseWait,
            9 => TcpState::LastAck,
            10 => TcpState::Listen,
            11 => TcpState::Closing,
            _ => TcpState::Closed,
        }
    }
}

/// The timer of a TCP socket that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpTimer {
    Off,
    /// Data or a SYN that is not acknowledged.
    Retransmit,
    KeepAlive,
    TimeWait,
    /// The far end's window is closed.
    WindowProbe,
}

/// Memory of a socket as the kernel counts it: buffers with their overhead, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketMemory {
    pub received_bytes: u32,
    /// Twice the requested size.
    pub receive_buffer_bytes: u32,
    pub sent_bytes: u32,
    pub send_buffer_bytes: u32,
    /// Received while a program held the socket.
    pub backlog_bytes: u32,
    /// Packets dropped at the socket since it was opened.
    pub drop_count: u32,
}

impl SocketMemory {
    /// Source: linux/sock_diag.h, SK_MEMINFO_*.
    pub(super) fn of_attribute(bytes: &[u8]) -> Self {
        let field = |number: usize| {
            let bytes = bytes.get(number * 4..number * 4 + 4)?;
            bytes.try_into().ok().map(u32::from_ne_bytes)
        };
        SocketMemory {
            received_bytes: field(0).unwrap_or(0),
            receive_buffer_bytes: field(1).unwrap_or(0),
            sent_bytes: field(2).unwrap_or(0),
            send_buffer_bytes: field(3).unwrap_or(0),
            backlog_bytes: field(7).unwrap_or(0),
            drop_count: field(8).unwrap_or(0),
        }
    }
}

#[derive(Debug, Clone)]
pub struct TcpSocket {
    pub state: TcpState,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// Inode number, which identifies its owners; 0 if no program has it.
    pub inode: u32,
    pub uid: u32,
    pub timer: TcpTimer,
    /// Time until the timer expires, milliseconds.
    pub timer_ms: u32,
    /// Unanswered retransmissions or probes.
    pub retry_count: u8,
    /// Bytes that the program has not read; of a listener, connections that it has not accepted.
    pub receive_queue: u32,
    /// Bytes not acknowledged; of a listener, connections that may wait.
    pub send_queue: u32,
    /// Congestion control.
    pub congestion: String,
    /// Zero for a socket without a connection.
    pub info: TcpInfo,
    pub memory: SocketMemory,
}

impl TcpSocket {
    /// True if the next connection of a listener is refused.
    ///
    /// Source: net/sock.h, sk_acceptq_is_full.
    pub fn is_full(&self) -> bool {
        self.state == TcpState::Listen && self.receive_queue > self.send_queue
    }
}

#[derive(Debug, Clone)]
pub struct UdpSocket {
    pub local: SocketAddr,
    /// Unspecified unless it is connected.
    pub remote: SocketAddr,
    /// Inode number, which identifies its owners.
    pub inode: u32,
    pub uid: u32,
    /// Interface that it is bound to; 0 for none.
    pub bound_ifindex: u32,
    pub memory: SocketMemory,
}

/// TCP sockets of this namespace, of both IP versions and in all states; at most 131,072 of each version.
pub fn tcp_sockets() -> Result<Vec<TcpSocket>, NetError> {
    let mut sockets = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        each_tcp_socket(&request(family, libc::IPPROTO_TCP), |header, attributes| {
            if sockets.len() < SOCKETS_MAX {
                sockets.push(tcp_socket(header, attributes));
            }
        })?;
    }
    Ok(sockets)
}

/// Passes on the sockets that a request lists.
fn each_tcp_socket(
    request: &ReqV2,
    mut each: impl FnMut(&Msg, &IterableReplyAttrs<'_>),
) -> Result<(), NetError> {
    ask("listing TCP sockets", |socket| {
        let mut replies = socket.request(&inet_diag::Request::new().op_tcp_diag_dump(request))?;
        while let Some((header, attributes)) = replies.recv().transpose()? {
            each(&header, &attributes);
        }
        Ok(())
    })
}

/// Closes the connections of this namespace at these local ports, as a reset does; listeners stay. Returns their number.
///
/// Errors: without CAP_NET_ADMIN, or the kernel has no CONFIG_INET_DIAG_DESTROY.
pub fn close_connections(ports: &[u16]) -> Result<usize, NetError> {
    let mut closed = 0;
    for family in [libc::AF_INET, libc::AF_INET6] {
        let request = request(family, libc::IPPROTO_TCP);
        let mut open = Vec::new();
        each_tcp_socket(&request, |header, _| {
            let is_connection = !matches!(
                TcpState::of_number(header.state),
                TcpState::Listen | TcpState::TimeWait | TcpState::Closed
            );
            if is_connection && ports.contains(&u16::from_be(header.sockid._sport_be)) {
                open.push(header.sockid.clone());
            }
        })?;
        for sockid in open {
            let request = ReqV2 { sockid, ..request.clone() };
            let destroyed = ask("closing a TCP connection", |socket| {
                socket.request(&Destroy(request.as_slice().to_vec()))?.recv_ack()
            });
            match destroyed {
                // It has closed by itself.
                Err(error) if error.is_not_found() => {}
                destroyed => {
                    destroyed?;
                    closed += 1;
                }
            }
        }
    }
    Ok(closed)
}

/// Source: linux/sock_diag.h.
const SOCK_DESTROY: u16 = 21;

/// Asks for the end of one socket: `struct inet_diag_req_v2`.
struct Destroy(Vec<u8>);

impl NetlinkRequest for Destroy {
    fn protocol(&self) -> Protocol {
        let protonum = libc::NETLINK_SOCK_DIAG as u16;
        Protocol::Raw { protonum, request_type: SOCK_DESTROY }
    }

    fn flags(&self) -> u16 {
        libc::NLM_F_ACK as u16
    }

    fn payload(&self) -> &[u8] {
        &self.0
    }

    type ReplyType<'buf> = ();

    fn decode_reply(_: &[u8]) -> Self::ReplyType<'_> {}
}

fn tcp_socket(header: &Msg, attributes: &IterableReplyAttrs<'_>) -> TcpSocket {
    let (local, remote) = addresses(header);
    TcpSocket {
        state: TcpState::of_number(header.state),
        local,
        remote,
        inode: header.inode,
        uid: header.uid,
        timer: match header.timer {
            1 => TcpTimer::Retransmit,
            2 => TcpTimer::KeepAlive,
            3 => TcpTimer::TimeWait,
            4 => TcpTimer::WindowProbe,
            _ => TcpTimer::Off,
        },
        timer_ms: header.expires,
        retry_count: header.retrans,
        receive_queue: header.rqueue,
        send_queue: header.wqueue,
        congestion: attributes
            .get_cong()
            .map_or(String::new(), |name| name.to_string_lossy().into_owned()),
        info: attributes.get_tcp_info().unwrap_or_default(),
        memory: SocketMemory::of_attribute(attributes.get_skmeminfo().unwrap_or_default()),
    }
}

/// UDP sockets of this namespace, of both IP versions; at most 131,072 of each version.
pub fn udp_sockets() -> Result<Vec<UdpSocket>, NetError> {
    let mut sockets = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let request = request(family, libc::IPPROTO_UDP);
        ask("listing UDP sockets", |socket| {
            let mut replies =
                socket.request(&inet_diag::Request::new().op_udp_diag_dump(&request))?;
            while let Some((header, attributes)) = replies.recv().transpose()? {
                let (local, remote) = addresses(&header);
                let memory = attributes.get_skmeminfo().unwrap_or_default();
                if sockets.len() < SOCKETS_MAX {
                    sockets.push(UdpSocket {
                        local,
                        remote,
                        inode: header.inode,
                        uid: header.uid,
                        bound_ifindex: header.sockid.r#if,
                        memory: SocketMemory::of_attribute(memory),
                    });
                }
            }
            Ok(())
        })?;
    }
    Ok(sockets)
}

fn request(family: i32, protocol: i32) -> ReqV2 {
    const INET_DIAG_INFO: u8 = 2;
    const INET_DIAG_CONG: u8 = 4;
    const INET_DIAG_SKMEMINFO: u8 = 7;
    let extensions = [INET_DIAG_INFO, INET_DIAG_CONG, INET_DIAG_SKMEMINFO];
    ReqV2 {
        family: family as u8,
        protocol: protocol as u8,
        ext: extensions.iter().map(|number| 1 << (number - 1)).sum(),
        states: u32::MAX,
        ..ReqV2::new()
    }
}

fn addresses(header: &Msg) -> (SocketAddr, SocketAddr) {
    let id = &header.sockid;
    let is_v4 = i32::from(header.family) == libc::AF_INET;
    (
        SocketAddr::new(address(is_v4, &id.src), u16::from_be(id._sport_be)),
        SocketAddr::new(address(is_v4, &id.dst), u16::from_be(id._dport_be)),
    )
}

/// - `bytes`: 16 of them; the first four for IPv4.
fn address(is_v4: bool, bytes: &[u8]) -> IpAddr {
    let bytes: [u8; 16] = bytes.try_into().unwrap_or_default();
    if is_v4 {
        Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()
    } else {
        Ipv6Addr::from(bytes).to_canonical()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_by_field_and_a_short_attribute_is_zero() {
        let bytes: Vec<u8> = (0u32..9).flat_map(u32::to_ne_bytes).collect();
        let memory = SocketMemory::of_attribute(&bytes);
        assert_eq!((memory.receive_buffer_bytes, memory.send_buffer_bytes), (1, 3));
        assert_eq!((memory.backlog_bytes, memory.drop_count), (7, 8));
        assert_eq!(SocketMemory::of_attribute(&bytes[..3]), SocketMemory::default());
    }

    #[test]
    fn connections_of_a_port_are_closed_and_its_listener_and_others_stay() {
        use std::io::Read;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = std::net::TcpStream::connect(address).unwrap();
        let mut beside = std::net::TcpStream::connect(other.local_addr().unwrap()).unwrap();
        let _accepted = (listener.accept().unwrap(), other.accept().unwrap());
        match close_connections(&[address.port()]) {
            // Without the rights.
            Err(NetError::Denied { .. }) => return,
            closed => assert_eq!(closed.unwrap(), 1),
        }
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        beside.set_nonblocking(true).unwrap();
        let error = beside.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        std::net::TcpStream::connect(address).unwrap();
    }

    #[test]
    fn own_listener_and_socket_are_listed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let datagrams = std::net::UdpSocket::bind("[::1]:0").unwrap();
        let local = listener.local_addr().unwrap();
        let found = tcp_sockets().unwrap();
        let own = found.iter().find(|one| one.local == local).unwrap();
        assert_eq!((own.state, own.is_full()), (TcpState::Listen, false));
        assert!(own.send_queue >= 128, "{own:?}");
        let local = datagrams.local_addr().unwrap();
        assert!(udp_sockets().unwrap().iter().any(|one| one.local == local));
    }
}
