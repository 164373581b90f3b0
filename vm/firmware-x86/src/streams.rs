//! TCP: a stream from one buffer or into nothing, and small services for any client.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use guest_pages::{STREAM_PORT, Signal, boot, driver, report, stream_byte};
use sha2::{Digest, Sha256};
use smoltcp::iface::{SocketHandle, SocketSet, SocketStorage};
use smoltcp::socket::{tcp, udp};
use smoltcp::wire::{IpAddress, IpEndpoint};

use crate::cpu::ticks;
use crate::nic::Nic;
use crate::pages::{Boot, Report};
use crate::signal;
use crate::stack::Stack;

/// Bytes of each of a socket's two buffers.
const BUFFER_BYTES: usize = 128 << 10;
/// Connections of one service at a time.
const CONNECTIONS: usize = 4;
const ECHO: u16 = 7;
const DISCARD: u16 = 9;
const CHARGEN: u16 = 19;
/// Longest write to a stream.
const WRITE_BYTES_MAX: usize = 65_536;

/// Memory that is handed out once.
struct Once<T> {
    taken: AtomicBool,
    memory: UnsafeCell<T>,
}

// SAFETY: the memory is reached only through `take`, which returns it to one caller.
unsafe impl<T> Sync for Once<T> {}

impl<T> Once<T> {
    const fn new(memory: T) -> Self {
        Once { taken: AtomicBool::new(false), memory: UnsafeCell::new(memory) }
    }

    #[expect(clippy::mut_from_ref, reason = "handed out once, guarded by `taken`")]
    fn take(&'static self) -> &'static mut T {
        assert!(!self.taken.swap(true, Ordering::AcqRel));
        // SAFETY: the flag makes this the only reference.
        unsafe { &mut *self.memory.get() }
    }
}

type Buffer = [u8; BUFFER_BYTES];

static BUFFERS: Once<[[Buffer; 2]; 3 * CONNECTIONS]> =
    Once::new([[[0; BUFFER_BYTES]; 2]; 3 * CONNECTIONS]);
static DATAGRAMS: Once<[[u8; 16 << 10]; 2]> = Once::new([[0; 16 << 10]; 2]);
static SOURCE: Once<[u8; WRITE_BYTES_MAX]> = Once::new([0; WRITE_BYTES_MAX]);

fn socket(buffers: &'static mut [Buffer; 2]) -> tcp::Socket<'static> {
    let [rx, tx] = buffers;
    tcp::Socket::new(tcp::SocketBuffer::new(&mut rx[..]), tcp::SocketBuffer::new(&mut tx[..]))
}

/// Checksums the stream, if the monitor asks for it.
struct Sum {
    digest: Option<Sha256>,
    bytes: u64,
}

impl Sum {
    fn new(boot: &Boot) -> Self {
        let wanted = boot.get(boot::DRIVER) & driver::DIGEST != 0;
        Sum { digest: wanted.then(Sha256::new), bytes: 0 }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if let Some(digest) = &mut self.digest {
            digest.update(bytes);
        }
    }

    /// Reports the progress, to diagnose a stream that stalls.
    fn tell(&self, socket: &tcp::Socket<'_>) {
        let state = match socket.state() {
            // Data before a stall is of interest too.
            tcp::State::Closed => return,
            tcp::State::Listen => 1,
            tcp::State::SynSent => 2,
            tcp::State::SynReceived => 3,
            tcp::State::Established => 4,
            tcp::State::FinWait1 => 5,
            tcp::State::FinWait2 => 6,
            tcp::State::CloseWait => 7,
            tcp::State::Closing => 8,
            tcp::State::LastAck => 9,
            tcp::State::TimeWait => 10,
        };
        let report = Report::get();
        report.set(report::STREAM_STATE, state);
        report.set(report::STREAM_UNACKED_BYTES, socket.send_queue() as u64);
        report.set(report::STREAM_BYTES, self.bytes);
    }

    fn report(self) {
        let report = Report::get();
        report.set(report::STREAM_BYTES, self.bytes);
        if let Some(digest) = self.digest {
            let bytes: [u8; 32] = digest.finalize().into();
            for (i, word) in bytes.chunks_exact(8).enumerate() {
                let word = word.try_into().map_or(0, u64::from_le_bytes);
                report.set(report::DIGEST + i, word);
            }
        }
    }
}

/// Opens a connection to the other end.
fn connect<'a>(
    boot: &Boot,
    nic: &'a mut Nic,
    sockets: &mut SocketSet<'_>,
) -> (Stack<'a>, SocketHandle) {
    let mut stack = Stack::new(boot, nic);
    let [first, ..] = BUFFERS.take();
    let handle = sockets.add(socket(first));
    let peer = IpAddress::Ipv4((boot.get(boot::PEER_IP) as u32).into());
    let local = 49_152 + (ticks() % 16_000) as u16;
    sockets
        .get_mut::<tcp::Socket>(handle)
        .connect(stack.interface.context(), IpEndpoint::new(peer, STREAM_PORT), local)
        .expect("the socket is new");
    let mut connected = false;
    while !connected {
        stack.turn(sockets, |_, sockets| {
            let socket = sockets.get_mut::<tcp::Socket>(handle);
            assert!(socket.is_open(), "the connection was refused");
            connected = socket.may_send();
            connected
        });
    }
    (stack, handle)
}

/// Sends writes of the requested size from one buffer, then closes.
pub(crate) fn send(boot: &Boot, nic: &mut Nic) {
    let mut storage = [SocketStorage::EMPTY; 1];
    let mut sockets = SocketSet::new(&mut storage[..]);
    let source = SOURCE.take();
    for (i, byte) in source.iter_mut().enumerate() {
        *byte = stream_byte(i);
    }
    let size = (boot.get(boot::SIZE_BYTES) as usize).clamp(1, WRITE_BYTES_MAX);
    let or_without_end = |value: u64| if value == 0 { u64::MAX } else { value };
    let total = or_without_end(boot.get(boot::COUNT)).saturating_mul(size as u64);
    let ticks_max = boot.get(boot::DURATION_US).saturating_mul(boot.tsc_khz()) / 1000;
    let ticks_max = or_without_end(ticks_max);
    let mut sum = Sum::new(boot);
    let (mut stack, handle) = connect(boot, nic, &mut sockets);
    Report::get().clear();
    signal(Signal::Begin);
    let begin = ticks();
    let (mut at, mut closed, mut done) = (0, false, false);
    while !done {
        stack.turn(&mut sockets, |_, sockets| {
            let socket = sockets.get_mut::<tcp::Socket>(handle);
            let mut worked = false;
            let over = sum.bytes >= total || at == 0 && ticks() - begin >= ticks_max;
            while !over && socket.can_send() && sum.bytes < total {
                let sent = socket.send_slice(&source[at..size]).unwrap_or(0);
                sum.add(&source[at..at + sent]);
                at = (at + sent) % size;
                worked |= sent > 0;
                if at == 0 && ticks() - begin >= ticks_max {
                    break;
                }
            }
            if over && !closed {
                socket.close();
                (closed, worked) = (true, true);
            }
            // Our FIN was acknowledged, and with it all data before.
            use tcp::State::{Closed, Closing, FinWait1, LastAck};
            sum.tell(socket);
            let state = socket.state();
            assert!(closed || state != Closed, "the connection was reset");
            done = closed
                && !matches!(state, FinWait1 | Closing | LastAck)
                && state != tcp::State::CloseWait;
            worked
        });
    }
    Report::get().set(report::TOTAL_TICKS, ticks() - begin);
    sum.report();
    signal(Signal::End);
}

/// Receives until the other end closes.
pub(crate) fn receive(boot: &Boot, nic: &mut Nic) {
    let mut storage = [SocketStorage::EMPTY; 1];
    let mut sockets = SocketSet::new(&mut storage[..]);
    let mut sum = Sum::new(boot);
    let (mut stack, handle) = connect(boot, nic, &mut sockets);
    Report::get().clear();
    signal(Signal::Begin);
    let begin = ticks();
    let mut done = false;
    while !done {
        stack.turn(&mut sockets, |_, sockets| {
            let socket = sockets.get_mut::<tcp::Socket>(handle);
            let mut worked = false;
            while socket.can_recv() {
                let taken = socket.recv(|bytes| {
                    sum.add(bytes);
                    (bytes.len(), bytes.len())
                });
                worked |= taken.is_ok_and(|taken| taken > 0);
            }
            sum.tell(socket);
            done = !socket.may_recv();
            worked
        });
    }
    Report::get().set(report::TOTAL_TICKS, ticks() - begin);
    sum.report();
    signal(Signal::End);
    let mut open = true;
    sockets.get_mut::<tcp::Socket>(handle).close();
    while open {
        stack.turn(&mut sockets, |_, sockets| {
            open = sockets.get_mut::<tcp::Socket>(handle).is_active();
            !open
        });
    }
}

/// Serves until the monitor stops the guest.
pub(crate) fn serve(boot: &Boot, nic: &mut Nic) {
    let mut storage = [const { SocketStorage::EMPTY }; 3 * CONNECTIONS + 1];
    let mut sockets = SocketSet::new(&mut storage[..]);
    let mut handles = [(0, SocketHandle::default()); 3 * CONNECTIONS];
    let ports = [ECHO, DISCARD, CHARGEN].into_iter().cycle();
    for ((buffers, entry), port) in BUFFERS.take().iter_mut().zip(&mut handles).zip(ports) {
        let mut socket = socket(buffers);
        // Before the first frame is processed, so that early clients are not refused.
        socket.listen(port).expect("the socket is new");
        *entry = (port, sockets.add(socket));
    }
    let datagrams = sockets.add(datagram_socket());
    let mut line = 0;
    let mut stack = Stack::new(boot, nic);
    loop {
        stack.turn(&mut sockets, |_, sockets| {
            let mut worked = echo_datagrams(sockets.get_mut(datagrams));
            for (port, handle) in handles {
                let socket = sockets.get_mut::<tcp::Socket>(handle);
                if !socket.is_open() {
                    // The port is not 0, and the socket is closed.
                    let _ = socket.listen(port);
                    continue;
                }
                worked |= match port {
                    ECHO => echo(socket),
                    DISCARD => discard(socket),
                    _ => generate(socket, &mut line),
                };
                // The client has closed, and has received everything.
                if !socket.may_recv() && socket.may_send() && socket.send_queue() == 0 {
                    socket.close();
                    worked = true;
                }
            }
            worked
        });
    }
}

fn datagram_socket() -> udp::Socket<'static> {
    static META: Once<[[udp::PacketMetadata; 16]; 2]> =
        Once::new([[udp::PacketMetadata::EMPTY; 16]; 2]);
    let ([rx, tx], [rx_meta, tx_meta]) = (DATAGRAMS.take(), META.take());
    let mut socket = udp::Socket::new(
        udp::PacketBuffer::new(&mut rx_meta[..], &mut rx[..]),
        udp::PacketBuffer::new(&mut tx_meta[..], &mut tx[..]),
    );
    socket.bind(ECHO).expect("the socket is new");
    socket
}

/// Echo over UDP (RFC 862).
fn echo_datagrams(socket: &mut udp::Socket<'_>) -> bool {
    let mut copy = [0; 1472];
    let mut worked = false;
    while socket.can_send() {
        let Ok((len, from)) = socket.recv_slice(&mut copy) else { break };
        // A datagram without room is lost.
        let _ = socket.send_slice(&copy[..len], from);
        worked = true;
    }
    worked
}

/// Echo (RFC 862).
fn echo(socket: &mut tcp::Socket<'_>) -> bool {
    let mut copy = [0; 4096];
    let mut worked = false;
    while socket.can_recv() && socket.can_send() {
        let room = socket.send_capacity() - socket.send_queue();
        let most = room.min(copy.len());
        let taken = socket.recv_slice(&mut copy[..most]).unwrap_or(0);
        if taken == 0 {
            break;
        }
        // Room was checked above.
        let _ = socket.send_slice(&copy[..taken]);
        worked = true;
    }
    worked
}

/// Discard (RFC 863).
fn discard(socket: &mut tcp::Socket<'_>) -> bool {
    let mut worked = false;
    while socket.can_recv() {
        let taken = socket.recv(|bytes| (bytes.len(), bytes.len()));
        worked |= taken.is_ok_and(|taken| taken > 0);
    }
    worked
}

/// Character generator (RFC 864): lines of 72 printing characters, each shifted by one; input is
/// discarded.
fn generate(socket: &mut tcp::Socket<'_>, first: &mut usize) -> bool {
    const LINE: usize = 74;
    let mut worked = discard(socket);
    // The client has closed and wants no more.
    while socket.may_recv()
        && socket.may_send()
        && socket.send_capacity() - socket.send_queue() >= LINE
    {
        let mut line = [0; LINE];
        for (i, byte) in line[..72].iter_mut().enumerate() {
            *byte = b' ' + ((*first + i) % 95) as u8;
        }
        line[72..].copy_from_slice(b"\r\n");
        if socket.send_slice(&line).is_err() {
            break;
        }
        *first = (*first + 1) % 95;
        worked = true;
    }
    worked
}
