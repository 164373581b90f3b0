//! The task that answers.

use alloc::vec;

use board_virt::timer;
use smoltcp::iface::{Config, Interface, PollResult, SocketSet};
use smoltcp::socket::udp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpCidr};

use super::card::{Card, Shared};

const ECHO: u16 = 7;
/// Datagrams that a socket buffers.
const DATAGRAMS: usize = 64;
const PREFIX_BITS: u8 = 24;

fn now() -> Instant {
    Instant::from_micros((timer::now_ns() / 1000) as i64)
}

/// Sleeps until the card interrupts, then polls the stack until it is idle.
pub(super) fn run(_: usize) {
    let wake = critical_section::with(|cs| super::WAKE.borrow(cs).get()).expect("it was made");
    let ip = critical_section::with(|cs| super::ADDRESS.borrow(cs).get()).expect("it was set");
    let mac = EthernetAddress(super::with_card(|card| Card::mac(card)));
    let mut interface = Interface::new(Config::new(mac.into()), &mut Shared, now());
    interface.update_ip_addrs(|addresses| {
        addresses.push(IpCidr::new(ip.into(), PREFIX_BITS)).expect("the first of them");
    });
    let buffer = || {
        let entries = vec![udp::PacketMetadata::EMPTY; DATAGRAMS];
        udp::PacketBuffer::new(entries, vec![0; DATAGRAMS * 1472])
    };
    let mut echo = udp::Socket::new(buffer(), buffer());
    echo.bind(ECHO).expect("the port is free");
    let mut sockets = SocketSet::new(vec![]);
    let echo = sockets.add(echo);
    loop {
        while interface.poll(now(), &mut Shared, &mut sockets) == PollResult::SocketStateChanged {
            answer(sockets.get_mut::<udp::Socket<'_>>(echo));
        }
        let _ = wake.pend(0);
    }
}

/// Echoes received datagrams.
fn answer(socket: &mut udp::Socket<'_>) {
    while socket.can_recv() && socket.can_send() {
        let Ok((payload, from)) = socket.recv() else { return };
        let payload = payload.to_vec();
        // A datagram without room in the buffer is lost.
        let _sent = socket.send_slice(&payload, from);
    }
}
