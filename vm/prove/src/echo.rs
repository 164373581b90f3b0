//! ICMP echoes by the kernel's stack, as ping(8) sends them.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use model::{PathError, latency_histogram};
use sys::netns::Netns;
use wire::{icmp, ipv4};

/// Largest payload of an echo in a frame of 1514 bytes.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 1472;
const PACKET_BYTES_MAX: usize = 2048;
/// Time for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of looks at the stop flag.
const STOP_INTERVAL: Duration = Duration::from_millis(100);
/// Numbers of echoes, which have 16 bits.
const NUMBERS: usize = 1 << 16;

/// When echoes are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    Every(Duration),
    /// So many are under way at any time.
    Window(usize),
}

/// Echoes of a trial.
#[derive(Debug, Clone)]
pub(crate) struct Echoes {
    pub(crate) sent_count: u64,
    pub(crate) answered_count: u64,
    /// Further answers to the same echo.
    pub(crate) duplicated_count: u64,
    /// Nanoseconds.
    pub(crate) rtt: Histogram<u64>,
    /// From the first echo to the last answer, nanoseconds.
    pub(crate) wall_ns: u64,
    /// True if the last echo was answered.
    pub(crate) is_last_answered: bool,
}

/// Sends echoes to one guest.
#[derive(Debug)]
pub(crate) struct Pinger {
    /// A raw socket, which the standard library reads and writes as one for datagrams.
    socket: UdpSocket,
    id: u16,
    message: Vec<u8>,
    next: u16,
    /// Time of each echo under way, by its number.
    sent: Vec<Option<Instant>>,
}

impl Pinger {
    /// Opens a socket in a namespace, from which the guest is reached.
    ///
    /// - `payload_bytes`: at most [`PAYLOAD_BYTES_MAX`].
    pub(crate) fn open(
        netns: &Netns,
        guest: Ipv4Addr,
        payload_bytes: usize,
    ) -> Result<Self, PathError> {
        let opened = netns.run(|| sys::icmp::open_echo(guest)).map_err(PathError::part)?;
        let socket = UdpSocket::from(opened.map_err(|why| PathError::at("ping socket", why))?);
        let mut message = vec![0; icmp::HEADER_BYTES];
        message.extend((0..payload_bytes.min(PAYLOAD_BYTES_MAX)).map(|at| at as u8));
        let id = std::process::id() as u16;
        Ok(Pinger { socket, id, message, next: 0, sent: vec![None; NUMBERS] })
    }

    /// Sends an echo. One that the stack refuses, as without an answer to its request for the address, counts as sent
    /// and is lost.
    fn send(&mut self) -> io::Result<()> {
        let (kind, sequence) = (icmp::Kind::EchoRequest, self.next);
        let header = icmp::Repr { kind, id: self.id, sequence };
        header.write(&mut self.message).map_err(io::Error::other)?;
        self.next = self.next.wrapping_add(1);
        self.sent[usize::from(sequence)] = Some(Instant::now());
        match self.socket.send(&self.message) {
            Err(error) if !is_unreachable(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Number of the next answer; `None` if none has come by `until`, or after a while, so that the caller looks at its
    /// stop flag.
    fn receive(&self, until: Instant) -> io::Result<Option<u16>> {
        let until = until.min(Instant::now() + STOP_INTERVAL);
        let mut packet = [0; PACKET_BYTES_MAX];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if sys::poll::readable(&[self.socket.as_fd()], left)? == 0 && left.is_zero() {
                return Ok(None);
            }
            match self.socket.recv(&mut packet) {
                Ok(len) => {
                    if let Some(number) = self.answered(&packet[..len]) {
                        return Ok(Some(number));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if is_unreachable(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The number of an answer to this socket's echoes with the same payload.
    fn answered(&self, packet: &[u8]) -> Option<u16> {
        let packet = ipv4::Packet::parse(packet).ok()?;
        let message = icmp::Packet::parse(packet.payload()).ok()?;
        let is_own = message.kind() == icmp::Kind::EchoReply && message.id() == self.id;
        let is_whole = message.payload() == &self.message[icmp::HEADER_BYTES..];
        (is_own && is_whole).then(|| message.sequence())
    }

    /// Sends echoes for a time, and waits for their answers. At a fixed pace their number is fixed, too.
    ///
    /// Errors: interrupted.
    pub(crate) fn run(
        &mut self,
        pace: Pace,
        time: Duration,
        stop: &AtomicBool,
    ) -> Result<Echoes, PathError> {
        self.sent.fill(None);
        self.echoes(pace, time, stop).map_err(|why| PathError::at("ping", why))
    }

    fn echoes(&mut self, pace: Pace, time: Duration, stop: &AtomicBool) -> io::Result<Echoes> {
        let mut rtt = latency_histogram();
        let (mut sent_count, mut duplicated_count, mut under_way) = (0, 0, 0);
        let begun = Instant::now();
        let (end, mut due, mut last_answer, mut progress) = (begun + time, begun, begun, begun);
        let mut last_sent = None;
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
            }
            let now = Instant::now();
            let goes_on = match pace {
                Pace::Every(interval) => sent_count < planned_count(time, interval),
                Pace::Window(_) => now < end,
            };
            if goes_on {
                let is_due = match pace {
                    Pace::Every(_) => now >= due,
                    Pace::Window(window) => under_way < window,
                };
                if is_due {
                    last_sent = Some(self.next);
                    self.send()?;
                    (sent_count, under_way, progress) = (sent_count + 1, under_way + 1, now);
                    if let Pace::Every(interval) = pace {
                        due += interval;
                    }
                    continue;
                }
            } else if under_way == 0 || now > progress + ANSWER_TIMEOUT {
                break;
            }
            if now > progress + ANSWER_TIMEOUT {
                // Those are lost.
                (under_way, progress) = (0, now);
                continue;
            }
            let until = match pace {
                Pace::Every(_) if goes_on => due,
                _ => progress + ANSWER_TIMEOUT,
            };
            let Some(number) = self.receive(until)? else { continue };
            let came = Instant::now();
            match self.sent[usize::from(number)].take() {
                Some(sent) => {
                    rtt.saturating_record((came - sent).as_nanos() as u64);
                    under_way = under_way.saturating_sub(1);
                    (last_answer, progress) = (came, came);
                }
                None => duplicated_count += 1,
            }
        }
        Ok(Echoes {
            sent_count,
            answered_count: rtt.len(),
            duplicated_count,
            rtt,
            wall_ns: (last_answer - begun).as_nanos() as u64,
            is_last_answered: last_sent
                .is_some_and(|number| self.sent[usize::from(number)].is_none()),
        })
    }

    /// Sends an echo at each interval until one is answered. Returns the time of the answer.
    ///
    /// - `check`: called in between; its error ends the wait.
    pub(crate) fn until_answer(
        &mut self,
        interval: Duration,
        check: &mut dyn FnMut() -> Result<(), PathError>,
    ) -> Result<Instant, PathError> {
        self.sent.fill(None);
        loop {
            check()?;
            self.send().map_err(|why| PathError::at("ping", why))?;
            let until = Instant::now() + interval;
            let came = self.receive(until).map_err(|why| PathError::at("ping", why))?;
            if came.is_some_and(|number| self.sent[usize::from(number)].is_some()) {
                return Ok(Instant::now());
            }
        }
    }
}

/// Echoes of a time at a pace, at least one.
fn planned_count(time: Duration, interval: Duration) -> u64 {
    (time.as_nanos().div_ceil(interval.as_nanos().max(1)) as u64).max(1)
}

/// True for errors of a guest that is not there yet, or no longer.
fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable};
    let kind = error.kind();
    [HostUnreachable, NetworkDown, NetworkUnreachable].contains(&kind)
        || error.raw_os_error() == Some(sys::socket::ENOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    static RUNS: AtomicBool = AtomicBool::new(false);

    /// The kernel of a namespace answers at its loopback.
    fn pinger() -> (Netns, Pinger) {
        let port = lab::TapPort::new("wp-tap0").expect("the test runs as root");
        let netns = port.netns.try_clone().unwrap();
        let pinger = Pinger::open(&netns, Ipv4Addr::LOCALHOST, 56).unwrap();
        (netns, pinger)
    }

    #[test]
    fn echoes_are_paced_or_kept_under_way_and_all_are_answered() {
        let (_netns, mut pinger) = pinger();
        let every = Pace::Every(Duration::from_millis(5));
        let paced = pinger.run(every, Duration::from_millis(48), &RUNS).unwrap();
        assert_eq!((paced.sent_count, paced.answered_count), (10, 10));
        let flood = pinger.run(Pace::Window(16), Duration::from_millis(20), &RUNS).unwrap();
        assert_eq!(flood.sent_count, flood.answered_count);
        assert!(flood.sent_count > 16 && flood.duplicated_count == 0 && flood.is_last_answered);
    }

    #[test]
    fn echoes_of_others_and_damaged_answers_do_not_count() {
        let (netns, mut pinger) = pinger();
        let packet = |id: u16, payload: &[u8]| {
            let mut message = vec![0; icmp::HEADER_BYTES];
            message.extend_from_slice(payload);
            let reply = icmp::Repr { kind: icmp::Kind::EchoReply, id, sequence: 7 };
            reply.write(&mut message).unwrap();
            let mut packet = vec![0; ipv4::HEADER_BYTES_MIN];
            packet.extend_from_slice(&message);
            let (src, dst) = (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
            let (protocol, payload_bytes) = (ipv4::PROTOCOL_ICMP, message.len());
            let header = ipv4::Repr { src, dst, protocol, ttl: ipv4::TTL, payload_bytes };
            header.write(&mut packet).unwrap();
            packet
        };
        let payload = pinger.message[icmp::HEADER_BYTES..].to_vec();
        let mut bent = packet(pinger.id, &payload);
        assert_eq!(pinger.answered(&bent), Some(7));
        *bent.last_mut().unwrap() ^= 1;
        assert_eq!(pinger.answered(&bent), None);
        assert_eq!(pinger.answered(&packet(pinger.id ^ 1, &payload)), None);
        assert_eq!(pinger.answered(&packet(pinger.id, &payload[1..])), None);
        assert_eq!(pinger.answered(&[]), None);
        let other = Pinger::open(&netns, Ipv4Addr::LOCALHOST, 56).unwrap();
        pinger.id ^= 1;
        pinger.send().unwrap();
        let until = Instant::now() + Duration::from_millis(20);
        assert_eq!(other.receive(until).unwrap(), None);
    }

    #[test]
    fn guest_that_is_not_there_loses_all_and_a_stop_ends_the_wait() {
        let port = lab::TapPort::new("wp-tap0").expect("the test runs as root");
        port.configure(Ipv4Addr::new(10, 9, 0, 1), None).unwrap();
        let mut pinger = Pinger::open(&port.netns, Ipv4Addr::new(10, 9, 0, 2), 56).unwrap();
        let every = Pace::Every(Duration::from_millis(10));
        let echoes = pinger.run(every, Duration::from_millis(15), &RUNS).unwrap();
        assert_eq!((echoes.sent_count, echoes.answered_count), (2, 0));
        let stopped = AtomicBool::new(true);
        let error = pinger.run(every, Duration::from_secs(60), &stopped).unwrap_err();
        assert!(error.to_string().contains("ping"), "{error}");
    }
}
