//! Admission of near ends: handshakes are few, and one near end measures at a time.

use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Maximum number of concurrent handshakes, in total and per address; further connections are
/// closed, or the oldest of an address that has several.
const HANDSHAKES_MAX: usize = 32;
const HANDSHAKES_PER_ADDRESS_MAX: usize = 8;

/// Admission of near ends.
#[derive(Debug, Default)]
pub(super) struct Desk {
    /// A near end is measuring.
    is_busy: AtomicBool,
    /// Number of the next handshake.
    next: AtomicU64,
    /// Handshakes in progress, the oldest first.
    waiting: Mutex<Vec<Waiting>>,
    /// Connections refused since the last report, and the latest with its reason.
    away: Mutex<(u64, String)>,
}

impl Desk {
    /// Reserves a handshake slot; `None` if the limits are reached.
    ///
    /// If all are taken, the address that has most gives up its oldest, so that a crowd of few addresses
    /// keeps no other out.
    pub(super) fn place_for(&self, from: IpAddr, stream: &TcpStream) -> Option<Place<'_>> {
        let from = host_of(from);
        let mut waiting = self.waiting.lock().expect("no panic while it is locked");
        let count_of = |waiting: &[Waiting], ip| waiting.iter().filter(|w| w.from == ip).count();
        let own = count_of(&waiting, from);
        if own >= HANDSHAKES_PER_ADDRESS_MAX {
            return None;
        }
        if waiting.len() >= HANDSHAKES_MAX {
            let counts = waiting.iter().map(|w| count_of(&waiting, w.from));
            let most = counts.max().filter(|most| *most > own + 1)?;
            let at = waiting.iter().position(|w| count_of(&waiting, w.from) == most)?;
            // Its thread reads the end of the connection.
            let _ = waiting.remove(at).stream.shutdown(Shutdown::Both);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        waiting.push(Waiting { number, from, stream: stream.try_clone().ok()? });
        Some(Place { desk: self, number })
    }

    pub(super) fn turn_away(&self, from: SocketAddr, why: &str) {
        let mut away = self.away.lock().expect("no panic while it is locked");
        *away = (away.0 + 1, format!("{from}: {why}"));
    }

    /// Report of connections refused since the last report.
    pub(super) fn turned_away(&self) -> Option<String> {
        let mut away = self.away.lock().expect("no panic while it is locked");
        let (count, last) = std::mem::take(&mut *away);
        match count {
            0 => None,
            1 => Some(last),
            _ => Some(format!("{count} connections refused, the last {last}")),
        }
    }

    /// Reserves the right to measure, released on drop; `None` if it is taken.
    pub(super) fn turn(&self) -> Option<Turn<'_>> {
        // Two runs at once would measure each other.
        (!self.is_busy.swap(true, Ordering::AcqRel)).then_some(Turn(self))
    }
}

/// The address that stands for a host: one of IPv6 has all those of its network of 64 bits.
fn host_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        ip => ip,
    }
}

/// A handshake in progress.
#[derive(Debug)]
struct Waiting {
    number: u64,
    from: IpAddr,
    stream: TcpStream,
}

pub(super) struct Place<'a> {
    desk: &'a Desk,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.desk.waiting.lock().expect("no panic while it is locked");
        waiting.retain(|w| w.number != self.number);
    }
}

pub(super) struct Turn<'a>(&'a Desk);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.is_busy.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener};
    use std::time::Duration;

    use super::*;

    #[test]
    fn crowd_of_few_addresses_keeps_no_other_out() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("bound");
        let desk = Desk::default();
        let ip = |n: usize| IpAddr::V4(Ipv4Addr::new(192, 0, 2, n as u8));
        let connect = || {
            let near = TcpStream::connect(at).expect("it listens");
            near.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
            (near, listener.accept().expect("it connected").0)
        };
        let (mut near, far): (Vec<_>, Vec<_>) = (0..HANDSHAKES_MAX).map(|_| connect()).unzip();
        let each = HANDSHAKES_PER_ADDRESS_MAX;
        let mut places: Vec<_> = far
            .iter()
            .enumerate()
            .map(|(n, stream)| desk.place_for(ip(n / each), stream).expect("there is room"))
            .collect();
        let (_one, stream) = connect();
        assert!(desk.place_for(ip(0), &stream).is_none(), "no more of one address");
        // The oldest of the crowd is closed for it.
        places.push(desk.place_for(ip(100), &stream).expect("it gets in"));
        assert_eq!(near[0].read(&mut [0]).expect("closed"), 0);
        assert!(desk.waiting.lock().expect("no panic").len() == HANDSHAKES_MAX);
        drop(places);
        let own = |n: u16| IpAddr::from([0xfd00, 0, 0, 1, 0, 0, 0, n]);
        let places: Vec<_> =
            far.iter().zip(1..).map_while(|(s, n)| desk.place_for(own(n), s)).collect();
        assert_eq!(places.len(), each, "one network of IPv6");
        assert!(desk.place_for([0xfd00, 0, 0, 2, 0, 0, 0, 1].into(), &stream).is_some());
        drop(places);
        assert!(desk.waiting.lock().expect("no panic").is_empty());
        let spread: Vec<_> =
            far.iter().enumerate().map(|(n, s)| desk.place_for(ip(n), s)).collect();
        assert!(spread.iter().all(Option::is_some));
        assert!(desk.place_for(ip(200), &stream).is_none(), "one each: no crowd");
    }
}
