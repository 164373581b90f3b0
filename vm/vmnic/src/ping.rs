//! Echoes back to back between a socket of the host and the guest: the price of a switch in latency.
//!
//! The host decides what is measured: a datagram to the discard port begins the measured part, and
//! another ends it.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use guest_pages::Mode;
use hdrhistogram::Histogram;
use lab::End;
use model::{Arm, PathError, latency_histogram};
use sys::rusage::ThreadUsage;
use vmm::GuestTask;

use super::qemu;
use super::run_guest::{BOOT_TIMEOUT, RING_LOG2, Ran, run_guest, spec};
use super::topology::{BackEnd, Topology, Wire};
use host::text::chain;

/// RFC 862.
const ECHO_PORT: u16 = 7;
/// RFC 863.
const DISCARD_PORT: u16 = 9;
/// Echoes before the measured part: addresses are resolved, pages are faulted in.
const WARM_UP: u32 = 16;
/// Time limit of an answer; a guest that boots answers the first echoes later.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// A series of echoes, as the host saw it.
#[derive(Debug)]
pub(super) struct Pinged {
    pub(super) sent_count: u64,
    /// Round trips in nanoseconds, of the echoes that were answered.
    pub(super) rtt: Histogram<u64>,
    pub(super) wall_ns: u64,
    pub(super) usage: ThreadUsage,
}

/// Parameters of the load.
pub(super) struct Ping {
    pub(super) size_bytes: usize,
    pub(super) trial: Duration,
}

impl Ping {
    /// Echoes of a guest with the switches of an arm.
    pub(super) fn through(
        &self,
        ends: &Topology,
        image: &[u8],
        arm: &Arm,
    ) -> Result<(Ran, Pinged, &'static str), PathError> {
        let back_end = BackEnd::new(arm);
        let Wire { far, guest_ip, mode } = ends.wire(back_end);
        let (ran, pinged) = self.between(far, guest_ip, |task, patience| {
            run_guest(&spec(image, arm, task), |ram| ends.open(back_end, Some(ram)), patience)
        })?;
        Ok((ran, pinged, mode))
    }

    /// Echoes of the guest on QEMU's device.
    pub(super) fn through_qemu(
        &self,
        card: qemu::QemuCard,
        ends: &Topology,
        image: &[u8],
    ) -> Result<(qemu::Ran, Pinged), PathError> {
        let (tap, guest_ip) = ends.tap();
        self.between(ends.far(BackEnd::Tap), guest_ip, |task, patience| {
            qemu::run(card, image, &task, tap, patience)
        })
    }

    /// Sends echoes from `far` to a guest that `run` runs.
    fn between<G>(
        &self,
        far: &End,
        guest_ip: Ipv4Addr,
        run: impl FnOnce(GuestTask, Duration) -> Result<G, PathError>,
    ) -> Result<(G, Pinged), PathError> {
        let task = GuestTask {
            mode: Mode::Echo,
            tx_ring_log2: RING_LOG2,
            rx_ring_log2: RING_LOG2,
            ip: guest_ip,
            peer_ip: far.ip,
            ..GuestTask::send(self.size_bytes as u64, 0)
        };
        let socket = far.run(|| connect(guest_ip)).map_err(PathError::part)?;
        let socket = socket.map_err(PathError::part)?;
        let (ran, pinged) = thread::scope(|scope| {
            let pinging = scope.spawn(|| self.run(&socket, guest_ip));
            (run(task, self.trial + BOOT_TIMEOUT), pinging.join())
        });
        let pinged = pinged
            .map_err(|_| PathError::at("host", "panicked"))
            .and_then(|pinged| pinged.map_err(|e| PathError::at("host", chain(&e))));
        match (ran, pinged) {
            (Ok(ran), Ok(pinged)) => Ok((ran, pinged)),
            // A guest that failed answers nothing.
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        }
    }

    fn run(&self, socket: &UdpSocket, guest_ip: Ipv4Addr) -> io::Result<Pinged> {
        let mut echo = Echo { socket, sent: vec![0; self.size_bytes], number: 0 };
        let begun = Instant::now();
        let mut answered_count = 0;
        while answered_count < WARM_UP {
            answered_count += u32::from(echo.once()?.is_some());
            if begun.elapsed() > BOOT_TIMEOUT {
                let why = format!("{answered_count} of {WARM_UP} echoes were answered");
                return Err(io::Error::new(ErrorKind::TimedOut, why));
            }
        }
        // Begins the measured part in the guest.
        socket.send_to(&[], (guest_ip, DISCARD_PORT))?;
        let mut rtt = latency_histogram();
        let (usage, begun) = (ThreadUsage::now(), Instant::now());
        let mut sent_count = 0;
        while begun.elapsed() < self.trial {
            sent_count += 1;
            if let Some(took) = echo.once()? {
                rtt.saturating_record(took.as_nanos() as u64);
            }
        }
        let (wall_ns, usage) =
            (begun.elapsed().as_nanos() as u64, ThreadUsage::now().since(&usage));
        socket.send_to(&[], (guest_ip, DISCARD_PORT))?;
        Ok(Pinged { sent_count, rtt, wall_ns, usage })
    }
}

fn connect(guest_ip: Ipv4Addr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((guest_ip, ECHO_PORT))?;
    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    Ok(socket)
}

struct Echo<'a> {
    socket: &'a UdpSocket,
    sent: Vec<u8>,
    number: u32,
}

impl Echo<'_> {
    /// Sends the next echo and waits for its answer. Returns the round trip; `None` if there was no
    /// answer in time.
    fn once(&mut self) -> io::Result<Option<Duration>> {
        self.number += 1;
        let number = self.number.to_be_bytes();
        let len = number.len().min(self.sent.len());
        self.sent[..len].copy_from_slice(&number[..len]);
        let mut answer = [0; 1514];
        let begun = Instant::now();
        self.socket.send(&self.sent)?;
        loop {
            match self.socket.recv(&mut answer) {
                // An answer to an earlier echo is late.
                Ok(len) if answer[..len] != self.sent[..] => {}
                Ok(_) => return Ok(Some(begun.elapsed())),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::HostUnreachable => {
                        return Ok(None);
                    }
                    ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
            if begun.elapsed() > ANSWER_TIMEOUT {
                return Ok(None);
            }
        }
    }
}
