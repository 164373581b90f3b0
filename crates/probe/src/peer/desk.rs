//! Admission of near ends: handshakes are few, and one near end measures at a time.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use host::slots::{SlotAdmission, SlotOrigin, Slots};

/// Maximum number of concurrent handshakes. Each further connection closes the oldest of the largest crowd.
const HANDSHAKES_MAX: usize = 32;
/// Those that are finished but for the welcome, which no newcomer closes.
const KNOWN_MAX: usize = 16;

/// Handshakes in progress, by number; the value is the connection.
type Handshakes = Slots<u64, IpAddr, TcpStream>;

/// Admission of near ends.
#[derive(Debug)]
pub(super) struct Desk {
    /// A near end is measuring.
    is_busy: AtomicBool,
    /// Number of the next handshake.
    next: AtomicU64,
    handshakes: Mutex<Handshakes>,
    /// Connections refused since the last report, and the latest with its reason.
    away: Mutex<(u64, String)>,
}

impl Desk {
    pub(super) fn new() -> Self {
        Desk {
            is_busy: AtomicBool::new(false),
            next: AtomicU64::new(0),
            handshakes: Mutex::new(Slots::new(HANDSHAKES_MAX, KNOWN_MAX)),
            away: Mutex::default(),
        }
    }

    /// Reserves a handshake slot, and closes another connection for it if all are taken. The flag is true then.
    ///
    /// Errors: no descriptor is left.
    pub(super) fn place_for(
        &self,
        from: IpAddr,
        stream: &TcpStream,
    ) -> io::Result<(Place<'_>, bool)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let stream = stream.try_clone()?;
        match self.handshakes().insert(number, SlotOrigin::from(from), stream) {
            SlotAdmission::Free => Ok((Place { desk: self, number }, false)),
            SlotAdmission::Displaced(_, stream) => {
                // Its thread reads the end of the connection.
                let _ = stream.shutdown(Shutdown::Both);
                Ok((Place { desk: self, number }, true))
            }
            SlotAdmission::Refused(_) => Err(io::Error::other("too many handshakes at once")),
        }
    }

    /// The table is whole after each of its calls, also after a panic of their caller.
    fn handshakes(&self) -> MutexGuard<'_, Handshakes> {
        self.handshakes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn turn_away(&self, from: SocketAddr, why: &str) {
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        *away = (away.0 + 1, format!("{from}: {why}"));
    }

    /// Report of connections refused since the last report.
    pub(super) fn turned_away(&self) -> Option<String> {
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
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

/// The slot of a handshake in progress, released on drop.
pub(super) struct Place<'a> {
    desk: &'a Desk,
    number: u64,
}

impl Place<'_> {
    /// The near end answered as one of ours, with the secret if there is one: no newcomer closes it.
    pub(super) fn prove(&self) {
        self.desk.handshakes().prove(&self.number);
    }

    /// True if the connection was closed for a newcomer.
    pub(super) fn is_lost(&self) -> bool {
        self.desk.handshakes().get(&self.number).is_none()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.desk.handshakes().remove(&self.number);
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
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    /// Connections to one listener: their near ends, and far ends.
    fn connections(count: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        (0..count)
            .map(|_| {
                let near = TcpStream::connect(address).expect("it listens");
                near.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
                (near, listener.accept().expect("it connected").0)
            })
            .unzip()
    }

    #[test]
    fn silent_connections_from_an_address_each_keep_no_other_out() {
        let desk = Desk::new();
        let (mut near, far) = connections(HANDSHAKES_MAX + 3);
        let mut strangers = (100..).map(|n| IpAddr::from([192, 0, 2, n]));
        let mut places: Vec<_> = far[..HANDSHAKES_MAX]
            .iter()
            .map(|stream| desk.place_for(strangers.next().expect("endless"), stream))
            .map(|place| place.expect("a descriptor"))
            .collect();
        assert!(places.iter().all(|(_, displaced)| !displaced));
        let [first, second, third] = [0, 1, 2].map(|n| &far[HANDSHAKES_MAX + n]);
        // One of their own network, too: the oldest is closed for it.
        let honest = desk.place_for([192, 0, 2, 1].into(), first).expect("a descriptor");
        assert!(honest.1 && places[0].0.is_lost() && !places[1].0.is_lost());
        assert_eq!(near[0].read(&mut [0]).expect("closed"), 0);
        // The stranger that returns displaces its like.
        drop(places.remove(0));
        let returned = desk.place_for([192, 0, 2, 100].into(), second).expect("a descriptor");
        assert!(returned.1 && places[0].0.is_lost() && !honest.0.is_lost());
        // A near end that is known stays, even if it has the largest crowd.
        honest.0.prove();
        let (_others, more) = connections(2 * HANDSHAKES_MAX);
        for stream in more.iter().chain([third]) {
            places.push(desk.place_for([192, 0, 2, 1].into(), stream).expect("a descriptor"));
        }
        assert!(!honest.0.is_lost() && desk.handshakes().len() == HANDSHAKES_MAX);
        drop((places, honest, returned));
        assert!(desk.handshakes().is_empty());
    }
}
