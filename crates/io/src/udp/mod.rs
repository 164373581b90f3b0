//! UDP sockets: one datagram a call, batches, segmentation offload; sleeping or spinning.

mod bind;
mod bundle;
mod epoll;
mod pinned;
mod uring;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use sys::udp::{Batch, SEGMENTS_MAX};
use sys::{socket, udp};
use wire::frame::PAYLOAD_BYTES_MAX;

use crate::engine::{
    Arrival, Echoed, Engine, EngineReport, EngineSpec, Receiving, Role, Setup, Stamps, Wait,
};
use crate::error::IoError;
use crate::frames::answer_in_place;

pub use epoll::EpollEngine;
pub use uring::UringEngine;

pub(crate) use bind::hold_port;
use bind::{bind_all, system_error};
use pinned::Pinned;

/// Longest sleep of a blocking receive, so that its caller can check a stop flag.
pub(crate) const POLL_TIMEOUT: Duration = Duration::from_millis(20);
/// Time without progress after which sending fails.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);

/// UDP sockets as an engine.
#[derive(Debug)]
pub struct UdpEngine {
    /// One socket a flow; only the first receives.
    sockets: Vec<UdpSocket>,
    spec: EngineSpec,
    ifname: String,
    ifindex: u32,
    payload_bytes: usize,
    connected: bool,
    /// One datagram at a time, straight through `recv`.
    single: bool,
    /// One datagram at a time, straight through `send`.
    sends_single: bool,
    buffer: Vec<u8>,
    rx: Option<Batch>,
    tx: Option<Batch>,
    /// In place of `tx`, for each socket: sends by MSG_ZEROCOPY.
    pinned: Vec<Pinned>,
    segments: usize,
    /// Slots of `tx` that are filled and not sent yet.
    unsent: Range<usize>,
    unsent_flow: usize,
    slot_datagrams: Vec<usize>,
    syscall_count: u64,
    refused_count: u64,
    overflow_count: u64,
    received_any: bool,
    down: bool,
    /// The other half reports about the socket.
    is_sending_half: bool,
    /// Runs of slots to return, reused so that no echo allocates.
    runs: Vec<Range<usize>>,
}

impl UdpEngine {
    /// Opens the sockets, bound to the local address and connected when there is a remote.
    pub fn open(setup: &Setup<'_>) -> Result<Self, IoError> {
        UdpEngine::on(setup, bind_all(setup)?)
    }

    /// Opens one socket as two engines: sender, receiver.
    pub(crate) fn open_halves(setup: &Setup<'_>) -> Result<(Self, Self), IoError> {
        let sockets = bind_all(setup)?;
        let again = sockets.iter().map(UdpSocket::try_clone).collect::<io::Result<Vec<_>>>();
        let again = again.map_err(|source| IoError::System {
            what: "dup",
            ifname: setup.local.ifname.clone(),
            source,
        })?;
        let sender = UdpEngine::on(&Setup { role: Role::Send, ..*setup }, sockets)?;
        let receiver = UdpEngine::on(&Setup { role: Role::Receive, ..*setup }, again)?;
        Ok((UdpEngine { is_sending_half: true, ..sender }, receiver))
    }

    fn on(setup: &Setup<'_>, sockets: Vec<UdpSocket>) -> Result<Self, IoError> {
        let Setup { spec, role, local, remote, payload_bytes, .. } = *setup;
        let first = sockets[0].as_fd();
        if let Some(bytes) = spec.receive_buffer_bytes {
            socket::set_receive_buffer(first, bytes).map_err(system_error(local, "SO_RCVBUF"))?;
        }
        if spec.busy_poll {
            socket::set_busy_poll(first, true).map_err(system_error(local, socket::BUSY_POLL))?;
        }
        if spec.stamps != Stamps::Off {
            udp::set_receive_stamps(first, spec.stamps)
                .map_err(system_error(local, "SO_TIMESTAMPING"))?;
        }
        if spec.fragments {
            let is_ipv6 = local.ip.is_ipv6();
            for socket in &sockets {
                udp::allow_fragments(socket.as_fd(), is_ipv6)
                    .map_err(system_error(local, "IP_MTU_DISCOVER"))?;
            }
        }
        udp::set_overflow_count(first).map_err(system_error(local, "SO_RXQ_OVFL"))?;
        let single = spec.batch <= 1 && !spec.gso && spec.stamps == Stamps::Off;
        let batch = spec.batch.max(1);
        let segments = if spec.gso {
            SEGMENTS_MAX.min(PAYLOAD_BYTES_MAX / payload_bytes.max(1)).max(1)
        } else {
            1
        };
        let (mut rx, mut tx, mut pinned) = (None, None, Vec::new());
        let posts = role == Role::Send || role == Role::Ping;
        let slots = spec.burst().div_ceil(segments);
        if spec.zero_copy_send && posts {
            for socket in &sockets {
                let sends = Pinned::new(socket.as_fd(), slots, segments * payload_bytes);
                pinned.push(sends.map_err(system_error(local, "SO_ZEROCOPY"))?);
            }
        }
        if !single {
            let memory = system_error(local, "allocating buffers");
            if role.receives() {
                if spec.gso {
                    udp::set_gro(first).map_err(system_error(local, "UDP_GRO"))?;
                }
                let slot_bytes = if spec.gso { 65_536 } else { payload_bytes.max(64) };
                rx = Some(Batch::new(batch, slot_bytes).map_err(&memory)?);
            }
            if posts && pinned.is_empty() {
                tx = Some(Batch::new(slots, segments * payload_bytes).map_err(&memory)?);
            }
        }
        Ok(UdpEngine {
            slot_datagrams: vec![0; slots],
            sockets,
            ifname: local.ifname.clone(),
            ifindex: local.ifindex,
            payload_bytes,
            connected: remote.is_some(),
            single,
            sends_single: single && pinned.is_empty(),
            buffer: vec![0; payload_bytes.max(2048)],
            rx,
            tx,
            pinned,
            segments,
            unsent: 0..0,
            unsent_flow: 0,
            syscall_count: 0,
            refused_count: 0,
            overflow_count: 0,
            received_any: false,
            down: false,
            is_sending_half: false,
            runs: Vec::with_capacity(batch),
            spec: spec.clone(),
        })
    }

    fn system(&self, what: &'static str, source: io::Error) -> IoError {
        match source.raw_os_error() {
            Some(socket::ENETDOWN) => IoError::LinkDown { ifname: self.ifname.clone() },
            Some(socket::ENODEV) => IoError::Gone { ifname: self.ifname.clone() },
            _ => IoError::System { what, ifname: self.ifname.clone(), source },
        }
    }

    /// True if a failed send may be retried. Counts "port unreachable", which is about an earlier
    /// datagram.
    fn passing(&mut self, error: &io::Error) -> bool {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                self.refused_count += 1;
                true
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => true,
            _ => match error.raw_os_error() {
                Some(socket::ENOBUFS) => true,
                Some(socket::ENETDOWN | socket::ENETUNREACH) => {
                    // The link or its route is down and may come back.
                    self.down = true;
                    std::thread::sleep(Duration::from_millis(1));
                    true
                }
                _ => false,
            },
        }
    }

    fn send_single(
        &mut self,
        flow: usize,
        want: usize,
        fill: &mut impl FnMut(&mut [u8]),
    ) -> Result<usize, IoError> {
        for _ in 0..want {
            fill(&mut self.buffer[..self.payload_bytes]);
            let begun = Instant::now();
            loop {
                self.syscall_count += 1;
                match self.sockets[flow].send(&self.buffer[..self.payload_bytes]) {
                    Ok(_) => break,
                    Err(e) if self.passing(&e) => self.check_stall(begun)?,
                    Err(e) => return Err(self.system("send", e)),
                }
            }
        }
        Ok(want)
    }

    fn check_stall(&self, begun: Instant) -> Result<(), IoError> {
        if begun.elapsed() > STALL_TIMEOUT {
            // For a deleted interface the stack reports only that there is no route.
            if self.down && self.ifindex != 0 && socket::is_up(self.ifindex).is_none() {
                return Err(IoError::Gone { ifname: self.ifname.clone() });
            }
            if self.down {
                return Err(IoError::LinkDown { ifname: self.ifname.clone() });
            }
            let waited_ms = STALL_TIMEOUT.as_millis() as u64;
            return Err(IoError::Stalled { ifname: self.ifname.clone(), waited_ms });
        }
        Ok(())
    }

    /// Sends filled slots; returns the number of datagrams sent.
    fn flush(&mut self) -> Result<usize, IoError> {
        let mut gone = 0;
        let begun = Instant::now();
        while let (false, Some(tx)) = (self.unsent.is_empty(), self.tx.as_mut()) {
            self.syscall_count += 1;
            let fd = self.sockets[self.unsent_flow].as_fd();
            match tx.send(fd, self.unsent.start, self.unsent.len()) {
                Ok(slots) => {
                    let went = self.unsent.start..self.unsent.start + slots;
                    gone += self.slot_datagrams[went].iter().sum::<usize>();
                    self.unsent.start += slots;
                }
                Err(e) if self.passing(&e) => self.check_stall(begun)?,
                Err(e) => return Err(self.system("sendmmsg", e)),
            }
        }
        Ok(gone)
    }

    /// Counts drops that the kernel reported with a datagram.
    fn count_overflow(&mut self, overflow_count: Option<u32>) {
        if let Some(overflow) = overflow_count {
            self.overflow_count = self.overflow_count.max(u64::from(overflow));
        }
    }

    /// Sends one datagram to its sender.
    fn send_back(&mut self, payload: &[u8], to: SocketAddr) -> Result<(), IoError> {
        let begun = Instant::now();
        loop {
            self.syscall_count += 1;
            match self.sockets[0].send_to(payload, to) {
                Ok(_) => return Ok(()),
                Err(e) if self.passing(&e) => self.check_stall(begun)?,
                Err(e) => return Err(self.system("sendto", e)),
            }
        }
    }

    /// Sends filled slots of a batch.
    fn send_run(&mut self, batch: &mut Batch, mut run: Range<usize>) -> Result<(), IoError> {
        let begun = Instant::now();
        while !run.is_empty() {
            self.syscall_count += 1;
            match batch.send(self.sockets[0].as_fd(), run.start, run.len()) {
                Ok(slots) => run.start += slots,
                Err(e) if self.passing(&e) => self.check_stall(begun)?,
                Err(e) => return Err(self.system("sendmmsg", e)),
            }
        }
        Ok(())
    }

    fn receive_batch(&mut self) -> Result<usize, IoError> {
        let Some(rx) = self.rx.as_mut() else { return Ok(0) };
        self.syscall_count += 1;
        match rx.receive(self.sockets[0].as_fd(), self.spec.wait == Wait::Block) {
            Ok(count) => {
                self.received_any |= count > 0;
                Ok(count)
            }
            Err(e) if self.passing(&e) => Ok(0),
            Err(e) => Err(self.system("recvmmsg", e)),
        }
    }
}

impl AsFd for UdpEngine {
    /// The socket that receives.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sockets[0].as_fd()
    }
}

impl Engine for UdpEngine {
    fn rx_take(&mut self, each: &mut impl FnMut(Arrival<'_>)) -> Result<usize, IoError> {
        if self.single {
            self.syscall_count += 1;
            return match self.sockets[0].recv(&mut self.buffer) {
                Ok(payload_bytes) => {
                    self.received_any = true;
                    let payload = &mut self.buffer[..payload_bytes];
                    each(Arrival { payload, payload_bytes, stamp_ns: None });
                    Ok(1)
                }
                Err(e) if self.passing(&e) => Ok(0),
                Err(e) => Err(self.system("recv", e)),
            };
        }
        let count = self.receive_batch()?;
        let Some(rx) = self.rx.as_mut() else { return Ok(0) };
        let mut datagrams = 0;
        for slot in 0..count {
            let received = rx.received(slot);
            if let Some(overflow) = received.overflow_count {
                self.overflow_count = self.overflow_count.max(u64::from(overflow));
            }
            datagrams += bundle::take(received, each);
        }
        Ok(datagrams)
    }

    fn nap(&mut self, timeout: Duration) -> Result<(), IoError> {
        // Pending notifications would end each wait at once.
        self.reap_pinned()?;
        self.syscall_count += 1;
        let ready = socket::wait(self.sockets[0].as_fd(), false, timeout);
        ready.map(|_| ()).map_err(|e| self.system("poll", e))
    }

    fn tx_post(
        &mut self,
        flow: usize,
        want: usize,
        fill: &mut impl FnMut(&mut [u8]),
    ) -> Result<usize, IoError> {
        if !self.connected {
            return Err(IoError::NoRemote);
        }
        if self.sends_single {
            return self.send_single(flow, want, fill);
        }
        if !self.pinned.is_empty() {
            return self.send_pinned(flow, want, fill);
        }
        let gone = self.flush()?;
        let Some(tx) = self.tx.as_mut() else { return Ok(gone) };
        let (size, segments) = (self.payload_bytes, self.segments);
        let mut left = want;
        let mut slots = 0;
        while left > 0 && slots < tx.slots() {
            let count = left.min(segments);
            for part in tx.payload(slots)[..count * size].chunks_mut(size) {
                fill(part);
            }
            let segment = if count > 1 { size as u16 } else { 0 };
            tx.set(slots, count * size, None, segment);
            self.slot_datagrams[slots] = count;
            left -= count;
            slots += 1;
        }
        self.unsent = 0..slots;
        self.unsent_flow = flow;
        Ok(gone + self.flush()?)
    }

    fn echo(
        &mut self,
        answer: &mut impl FnMut(&mut Arrival<'_>) -> Option<u32>,
    ) -> Result<Echoed, IoError> {
        let mut echoed = Echoed::default();
        if self.single {
            self.syscall_count += 1;
            let (payload_bytes, from) = match self.sockets[0].recv_from(&mut self.buffer) {
                Ok(got) => got,
                Err(e) if self.passing(&e) => return Ok(echoed),
                Err(e) => return Err(self.system("recvfrom", e)),
            };
            echoed.taken = 1;
            self.received_any = true;
            let payload = &mut self.buffer[..payload_bytes];
            let mut arrival = Arrival { payload, payload_bytes, stamp_ns: None };
            let Some(reply) = answer(&mut arrival) else { return Ok(echoed) };
            answer_in_place(arrival.payload, reply);
            let begun = Instant::now();
            loop {
                self.syscall_count += 1;
                match self.sockets[0].send_to(&self.buffer[..payload_bytes], from) {
                    Ok(_) => break,
                    Err(e) if self.passing(&e) => self.check_stall(begun)?,
                    Err(e) => return Err(self.system("sendto", e)),
                }
            }
            echoed.returned = 1;
            return Ok(echoed);
        }
        let count = self.receive_batch()?;
        let Some(rx) = self.rx.as_mut() else { return Ok(echoed) };
        // Replies are sent in place; a run ends at a datagram without reply.
        let mut run = 0..0;
        self.runs.clear();
        for slot in 0..count {
            let mut received = rx.received(slot);
            let (from, len, segment) =
                (received.from, received.bytes.len(), received.segment_bytes.max(1));
            let (datagrams, ours) = bundle::answer(&mut received, answer);
            echoed.taken += datagrams;
            if ours {
                let cut = if len > segment { segment as u16 } else { 0 };
                rx.set(slot, len, Some(from), cut);
                run.end = slot + 1;
                echoed.returned += datagrams;
            } else {
                if !run.is_empty() {
                    self.runs.push(run);
                }
                run = slot + 1..slot + 1;
            }
        }
        if !run.is_empty() {
            self.runs.push(run);
        }
        let Some(mut rx) = self.rx.take() else { return Ok(echoed) };
        let sent = (0..self.runs.len()).try_for_each(|n| {
            let run = self.runs[n].clone();
            self.send_run(&mut rx, run)
        });
        self.rx = Some(rx);
        sent?;
        Ok(echoed)
    }

    fn finish(&mut self) -> EngineReport {
        let mut report = EngineReport { syscall_count: self.syscall_count, ..Default::default() };
        if self.spec.busy_poll && self.spec.receiving != Receiving::Direct {
            report.not_effective.push((
                "busy-poll".into(),
                "epoll and io_uring wait without SO_BUSY_POLL; use epoll-busy-poll in its place"
                    .into(),
            ));
        } else if self.spec.busy_poll && self.received_any {
            let napi = socket::incoming_napi_id(self.sockets[0].as_fd()).unwrap_or(0);
            report.mode.push(("napi id".into(), napi.to_string()));
            if napi == 0 {
                report.not_effective.push((
                    "busy-poll".into(),
                    "the socket's SO_INCOMING_NAPI_ID is 0: this driver tells no NAPI instance, \
                     so there is nothing to poll"
                        .into(),
                ));
            }
        }
        report.unsent_count = self.slot_datagrams[self.unsent.clone()].iter().sum::<usize>() as u64;
        if !self.pinned.is_empty() {
            self.finish_pinned(&mut report);
        }
        if self.is_sending_half {
            return report;
        }
        // Drops after the last datagram were not reported with one.
        let dropped = socket::drop_count(self.sockets[0].as_fd()).unwrap_or(0);
        self.overflow_count = self.overflow_count.max(dropped);
        report.counters.push(("socket_overflow_count".into(), self.overflow_count));
        if self.refused_count > 0 {
            report.counters.push(("port_unreachable_count".into(), self.refused_count));
        }
        if let Some(asked) = self.spec.receive_buffer_bytes {
            // The kernel doubles the request and caps it.
            let bytes = socket::receive_buffer(self.sockets[0].as_fd()).unwrap_or(0);
            report.mode.push(("receive buffer".into(), format!("{bytes} bytes")));
            if bytes < asked * 2 {
                report.not_effective.push((
                    "big-rcvbuf".into(),
                    format!(
                        "the kernel gave {bytes} bytes for {asked} asked: run with CAP_NET_ADMIN, \
                         or sysctl net.core.rmem_max={asked}"
                    ),
                ));
            }
        }
        report
    }
}
