//! `smoltcp` on the driver: answers ARP and ICMP echoes, and UDP echoes on port 7. No heap.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

#[cfg(target_os = "none")]
mod firmware;

/// The host build is empty.
#[cfg(not(target_os = "none"))]
fn main() {}

#[cfg(target_os = "none")]
mod stack {
    use core::cell::Cell;
    use core::net::Ipv4Addr;

    use board_virt::tree::Machine;
    use board_virt::{Place, console, timer};
    use critical_section::Mutex;
    use kernel::system::Semaphore;
    use smoltcp::iface::{Config, Interface, PollResult, SocketSet, SocketStorage};
    use smoltcp::socket::udp;
    use smoltcp::time::Instant;
    use smoltcp::wire::{EthernetAddress, IpCidr};

    use super::firmware::{self, Net};

    const ECHO: u16 = 7;
    const PREFIX_BITS: u8 = 24;
    /// Datagrams that a socket buffers each way, of the longest that a frame holds.
    const DATAGRAMS: usize = 2;
    const DATAGRAM_BYTES: usize = 1472;

    board_virt::entry!(main);

    static CARD: Place<Net> = Place::new();
    static STARTED: Mutex<Cell<Option<(&mut Net, Ipv4Addr)>>> = Mutex::new(Cell::new(None));
    static WAKE: Mutex<Cell<Option<Semaphore>>> = Mutex::new(Cell::new(None));

    fn main(machine: Machine) -> ! {
        let (config, card) = firmware::start(&machine, on_interrupt);
        let mac = firmware::mac(&card);
        critical_section::with(|cs| {
            STARTED.borrow(cs).set(Some((CARD.put(card), config.ip)));
            WAKE.borrow(cs).set(Some(Semaphore::new(0)));
        });
        firmware::run(&config, mac, "smoltcp", serve)
    }

    /// Only wakes the task: the card raises no other interrupt until the task acknowledges it.
    fn on_interrupt() {
        if let Some(wake) = critical_section::with(|cs| WAKE.borrow(cs).get()) {
            // The semaphore's counter cannot overflow here.
            let _ = wake.post();
        }
    }

    fn now() -> Instant {
        Instant::from_micros((timer::now_ns() / 1000) as i64)
    }

    fn serve(_: usize) {
        let started = critical_section::with(|cs| STARTED.borrow(cs).take());
        let (card, ip) = started.expect("set before the start");
        let wake =
            critical_section::with(|cs| WAKE.borrow(cs).get()).expect("set before the start");
        let mac = EthernetAddress(firmware::mac(card));
        let mut interface = Interface::new(Config::new(mac.into()), card, now());
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(ip.into(), PREFIX_BITS)).expect("it is the first");
        });
        let mut entries = [[udp::PacketMetadata::EMPTY; DATAGRAMS]; 2];
        let mut payloads = [[0; DATAGRAMS * DATAGRAM_BYTES]; 2];
        let ([entries_in, entries_out], [payload_in, payload_out]) = (&mut entries, &mut payloads);
        let mut echo = udp::Socket::new(
            udp::PacketBuffer::new(&mut entries_in[..], &mut payload_in[..]),
            udp::PacketBuffer::new(&mut entries_out[..], &mut payload_out[..]),
        );
        echo.bind(ECHO).expect("the port is free");
        let mut storage = [SocketStorage::EMPTY; 1];
        let mut sockets = SocketSet::new(&mut storage[..]);
        let echo = sockets.add(echo);
        loop {
            if let Err(error) = card.acknowledge() {
                console::print(format_args!("wirepath-guest: restart failed: {error}\n"));
            }
            while interface.poll(now(), card, &mut sockets) == PollResult::SocketStateChanged {
                answer(sockets.get_mut::<udp::Socket<'_>>(echo));
            }
            let _ = wake.pend(0);
        }
    }

    /// Echoes received datagrams.
    fn answer(socket: &mut udp::Socket<'_>) {
        let mut payload = [0; DATAGRAM_BYTES];
        while socket.can_recv() && socket.can_send() {
            let Ok((len, from)) = socket.recv_slice(&mut payload) else { return };
            // A datagram without room in the buffer is lost.
            let _sent = socket.send_slice(&payload[..len], from);
        }
    }
}
