//! AF_XDP: frames in a UMEM shared with the kernel, redirected before the stack.

use std::net::UdpSocket;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sys::bpf::PassProgram;
use xdp::{Bind, Frames, Socket, Then};

use crate::engine::{
    Arrival, Copying, Echoed, Engine, EngineReport, EngineSpec, Local, Role, Setup, Wait, XdpMode,
};
use crate::error::IoError;
use crate::frames::{self, Template};
use crate::redirect::Redirect;
use crate::udp::{POLL_TIMEOUT, hold_port};
use crate::xdp_memory::{self, UmemReport};
use crate::xdp_stamps::FrameStamps;

/// Longest wait for a link that the driver resets.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(10);
/// Notifications after which unsent frames are given up.
const FINISH_KICKS: usize = 2000;

/// An AF_XDP socket as an engine.
///
/// Several may share an interface, one a queue, with one UMEM and one XDP program.
#[derive(Debug)]
pub struct XdpEngine {
    // Field order is drop order: the program is detached before the socket closes, so that no frame
    // is redirected to a closed socket.
    filter: Option<Arc<Redirect>>,
    /// In front of zero-copy sockets that only send: Intel's drivers send only with a program.
    _passing: Option<Arc<PassProgram>>,
    socket: Socket,
    templates: Vec<Template>,
    wait: Wait,
    busy_poll: bool,
    /// NAPI instance of the first arrival, if `busy_poll`; 0 if the driver names none.
    napi_id: Option<u32>,
    batch: usize,
    asked: Copying,
    memory: UmemReport,
    mode: XdpMode,
    /// Held by the first engine of a port.
    port: Option<UdpSocket>,
    /// The other half reports about the socket and the program.
    is_sending_half: bool,
    stamps: FrameStamps,
}

impl XdpEngine {
    /// Opens one engine for each of `queues`, sharing a UMEM and, where the role receives, one
    /// XDP program in the requested mode. In the calling thread's network namespace.
    ///
    /// In zero-copy mode the device receives into the UMEM whatever is for the host, too: a socket that
    /// only sends posts frames for that, and a program passes them to the stack.
    pub fn open_port(setup: &Setup<'_>, queues: Range<u32>) -> Result<Vec<Self>, IoError> {
        let (engines, _) = XdpEngine::open_shares(setup, queues, 0)?;
        Ok(engines)
    }

    /// Opens the rings of one socket as two engines: sender, receiver. Each has frames of its own.
    pub(crate) fn open_halves(setup: &Setup<'_>) -> Result<(Self, Self), IoError> {
        let Setup { spec, local, .. } = *setup;
        let receiving = Setup { role: Role::Receive, ..*setup };
        let (mut engines, mut spare) =
            XdpEngine::open_shares(&receiving, local.queue..local.queue + 1, 1)?;
        let (engine, share) = (engines.remove(0), spare.remove(0));
        let (tx, rx) = engine.socket.split(share)?;
        let sender = XdpEngine {
            filter: None,
            _passing: None,
            socket: tx,
            templates: engine.templates.clone(),
            wait: spec.wait,
            busy_poll: false,
            napi_id: None,
            batch: engine.batch,
            asked: Copying::Copy,
            memory: engine.memory,
            mode: engine.mode,
            port: None,
            is_sending_half: true,
            stamps: FrameStamps::Off,
        };
        Ok((sender, XdpEngine { socket: rx, ..engine }))
    }

    /// As [`Self::open_port`]; also returns `spare_count` further shares of the UMEM.
    fn open_shares(
        setup: &Setup<'_>,
        queues: Range<u32>,
        spare_count: u32,
    ) -> Result<(Vec<Self>, Vec<Frames>), IoError> {
        let Setup { spec, role, local, payload_bytes, .. } = *setup;
        let multi_buffer = spec.multi_buffer;
        let frame_bytes = spec.packet_frame_bytes(local.ip, payload_bytes);
        // A received frame has the kernel's headroom of 256 bytes in front.
        let room = spec.frame_bytes as usize - 256;
        if frame_bytes > room && !multi_buffer {
            return Err(IoError::PayloadSize {
                payload_bytes,
                why: format!("makes a frame of {frame_bytes} bytes; a UMEM frame holds {room}"),
                remedy: "use --frame-bytes 4096, or --multi-buffer for jumbo frames".into(),
            });
        }
        let mut shares =
            xdp_memory::allocate(spec, local, queues.len() as u32 + spare_count)?.into_iter();
        let had_carrier = sys::ethtool::has_carrier(local.ifindex) == Some(true);
        let stamps = FrameStamps::new(spec, local)?;
        let mut filter = if role.receives() {
            Some(Redirect::open(spec.xsk_map.as_deref(), || stamps.load(spec, local))?)
        } else {
            None
        };
        let first_queue = queues.start;
        let mut sockets: Vec<Socket> = Vec::with_capacity(queues.len());
        for queue in queues {
            let Some(frames) = shares.next() else { break };
            let bind = Bind {
                ifindex: local.ifindex,
                ifname: local.ifname.clone(),
                queue,
                queues: local.queues,
                copying: spec.copying,
                need_wakeup: spec.need_wakeup,
                multi_buffer,
                ring_entries: spec.ring_entries(),
                fill_target: match role {
                    Role::Send if spec.copying == Copying::Copy => 0,
                    Role::Send => spec.frames / 4,
                    Role::Receive => spec.frames,
                    Role::Echo | Role::Ping => spec.frames / 2,
                },
                tx_budget: spec.ring_entries(),
            };
            let socket = Socket::open(frames, bind, sockets.first())?;
            if spec.busy_poll {
                let sends = role.sends() || spare_count > 0;
                let is_preferred = !(socket.is_zero_copy() && sends);
                let set = sys::socket::set_busy_poll(socket.as_fd(), is_preferred);
                set.map_err(|source| IoError::System {
                    what: sys::socket::BUSY_POLL,
                    ifname: local.ifname.clone(),
                    source,
                })?;
            }
            sockets.push(socket);
        }
        // Before the program: it must not take datagrams from another program that has the port.
        let mut port = role.receives().then(|| hold_port(local, local.port)).transpose()?;
        if let Some(filter) = filter.as_mut() {
            let sockets = (first_queue..).zip(sockets.iter().map(AsFd::as_fd));
            filter.start(local.ifindex, spec.xdp_mode, sockets)?;
        }
        let filter = filter.map(Arc::new);
        // A program that is attached already serves as well.
        let has_program = filter.is_some() || spec.xsk_map.is_some();
        let only_sends = !has_program && sockets.iter().any(Socket::is_zero_copy);
        let passing = only_sends.then(|| attach_passing(spec, local)).transpose()?.map(Arc::new);
        if had_carrier {
            wait_for_carrier(local, CARRIER_TIMEOUT)?;
        }
        let memory = UmemReport::new(spec, sockets.first());
        let mut engines = Vec::with_capacity(sockets.len());
        for socket in sockets {
            engines.push(XdpEngine {
                filter: filter.clone(),
                _passing: passing.clone(),
                socket,
                templates: Template::for_flows(setup, role == Role::Ping)?,
                wait: spec.wait,
                busy_poll: spec.busy_poll,
                napi_id: None,
                batch: spec.batch.max(1),
                asked: spec.copying,
                memory,
                mode: spec.xdp_mode,
                port: port.take(),
                is_sending_half: false,
                stamps,
            });
        }
        Ok((engines, shares.collect()))
    }

    /// True if a packet waits in the RX ring.
    pub(crate) fn is_ready(&mut self) -> bool {
        self.socket.rx_ready()
    }

    /// Makes the driver poll, if it needs that or busy polling is on; true if a packet waits then.
    pub(crate) fn prompt(&mut self) -> bool {
        // Without a NAPI instance there is nothing to poll, and the call costs as much.
        let polls = self.busy_poll && self.napi_id != Some(0);
        if polls || self.socket.fill_needs_wakeup() {
            self.socket.poll_device();
        }
        self.is_ready()
    }

    /// Waits by spinning, busy polling or sleeping, as configured.
    fn wait(&mut self) -> Result<(), IoError> {
        if self.is_ready() || self.prompt() || self.wait == Wait::Spin {
            return Ok(());
        }
        Ok(self.socket.wait(POLL_TIMEOUT)?)
    }

    /// Reads the NAPI instance, which the kernel stores in the socket with the first arrival.
    fn arrived(&mut self) {
        if self.busy_poll && self.napi_id.is_none() {
            self.napi_id = Some(sys::socket::incoming_napi_id(self.socket.as_fd()).unwrap_or(0));
        }
    }

    /// True if arrivals have shown that the driver has no NAPI instance to poll.
    pub(crate) fn has_no_napi(&self) -> bool {
        self.busy_poll && self.napi_id == Some(0)
    }

    /// Ends the polling of a queue without arrivals, as another of the same driver has shown that there is
    /// nothing to poll.
    pub(crate) fn stop_polling(&mut self) {
        self.napi_id.get_or_insert(0);
    }

    /// Makes the kernel send posted frames: each call moves a limited number, so it may take
    /// several.
    fn kick(&mut self) -> Result<(), IoError> {
        for _ in 0..self.socket.bound_to().ring_entries / 32 {
            if self.socket.kick()? || self.socket.tx_pending() == 0 {
                break;
            }
            self.socket.tx_reap();
        }
        Ok(())
    }

    /// Frames by owner.
    pub fn ledger(&self) -> xdp::LedgerBalance {
        self.socket.ledger()
    }
}

fn attach_passing(spec: &EngineSpec, local: &Local) -> Result<PassProgram, IoError> {
    let mut program = PassProgram::load(spec.multi_buffer)?;
    program.attach(local.ifindex, spec.xdp_mode)?;
    Ok(program)
}

/// Waits for the link of an interface whose driver resets it for an XDP program or a zero-copy socket:
/// igb takes 3 s. Frames sent before are lost. A driver may report its link before it tells the kernel, which sends
/// nothing until then.
fn wait_for_carrier(local: &Local, most: Duration) -> Result<(), IoError> {
    let begun = Instant::now();
    let mut was_reset = false;
    loop {
        let has_link = sys::ethtool::has_carrier(local.ifindex) != Some(false);
        was_reset |= !has_link;
        let is_silent = was_reset && sys::socket::is_running(local.ifindex) == Some(false);
        if has_link && !is_silent {
            return Ok(());
        }
        if begun.elapsed() > most {
            let waited_ms = most.as_millis() as u64;
            return Err(IoError::NoCarrier { ifname: local.ifname.clone(), waited_ms });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl AsFd for XdpEngine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Engine for XdpEngine {
    fn rx_post(&mut self) {
        self.socket.rx_post();
    }

    fn rx_take(&mut self, each: &mut impl FnMut(Arrival<'_>)) -> Result<usize, IoError> {
        self.wait()?;
        let taken = self.stamps.take(&mut self.socket, self.batch, each);
        if taken > 0 {
            self.arrived();
            self.socket.rx_post();
        }
        Ok(taken)
    }

    fn nap(&mut self, timeout: Duration) -> Result<(), IoError> {
        Ok(self.socket.wait(timeout)?)
    }

    fn tx_post(
        &mut self,
        flow: usize,
        want: usize,
        fill: &mut impl FnMut(&mut [u8]),
    ) -> Result<usize, IoError> {
        let template = self.templates.get(flow).ok_or(IoError::NoRemote)?;
        let want = want.min(self.batch);
        let len = template.frame_bytes();
        let posted = self.socket.tx_post(want, len, |frame| template.build(frame, fill))?;
        self.kick()?;
        // After the kick, so that reclaiming does not delay the frames.
        self.socket.tx_reap();
        Ok(posted)
    }

    fn tx_reap(&mut self) -> usize {
        self.socket.tx_reap()
    }

    fn echo(
        &mut self,
        answer: &mut impl FnMut(&mut Arrival<'_>) -> Option<u32>,
    ) -> Result<Echoed, IoError> {
        self.wait()?;
        let full_before = self.socket.tx_full_count;
        let mut turned = 0;
        let taken = self.socket.rx_take(self.batch, |frame, frame_bytes| {
            let turn = frames::turn_around(frame, frame_bytes, None, answer);
            turned += usize::from(turn);
            if turn { Then::Send } else { Then::Release }
        });
        if taken > 0 {
            self.arrived();
            self.kick()?;
            self.socket.tx_reap();
            self.socket.rx_post();
        }
        let refused = (self.socket.tx_full_count - full_before) as usize;
        Ok(Echoed { taken, returned: turned - refused })
    }

    fn finish(&mut self) -> EngineReport {
        let mut report = EngineReport::default();
        for _ in 0..FINISH_KICKS {
            self.socket.tx_reap();
            if self.socket.tx_in_flight() == 0 || self.socket.kick().is_err() {
                break;
            }
            std::thread::yield_now();
        }
        self.socket.tx_reap();
        // A frame that the kernel took from the TX ring has left, completed or not.
        report.unsent_count = self.socket.tx_pending() as u64;
        report.syscall_count = self.socket.wakeup_count;
        report.ledger = Some(self.socket.ledger());
        if self.is_sending_half {
            return report;
        }
        let zero_copy = self.socket.is_zero_copy();
        let copying = if zero_copy { "zero-copy" } else { "copy" };
        let program = self.filter.as_ref().and_then(|filter| filter.program());
        let mode = match (program, self.mode) {
            (Some(program), _) => format!("by {program}"),
            (None, XdpMode::Native) => "native".into(),
            (None, XdpMode::Skb) => "skb".into(),
        };
        report.mode.push(("xdp".into(), format!("{mode}, {copying}")));
        if self.asked == Copying::PreferZeroCopy && !zero_copy {
            let ifname = &self.socket.bound_to().ifname;
            report.not_effective.push((
                "zero-copy".into(),
                format!("{ifname} refused zero-copy; XDP_OPTIONS says copy mode is in use"),
            ));
        }
        self.memory.report(&self.socket, self.filter.is_some(), &mut report);
        if let Some(napi) = self.napi_id {
            report.mode.push(("napi id".into(), napi.to_string()));
            if napi == 0 {
                report.not_effective.push((
                    "busy-poll".into(),
                    "the socket's SO_INCOMING_NAPI_ID is 0, so there is nothing to poll; do not \
                     defer interrupts for it, packets would wait for the timer"
                        .into(),
                ));
            }
        }
        if let Ok(s) = self.socket.statistics() {
            let counters = [
                ("xdp_rx_dropped_count", s.rx_dropped_count),
                ("xdp_rx_ring_full_count", s.rx_ring_full_count),
                ("xdp_fill_ring_empty_count", s.fill_ring_empty_count),
                ("xdp_rx_invalid_count", s.rx_invalid_descriptor_count),
                ("xdp_tx_invalid_count", s.tx_invalid_descriptor_count),
            ];
            report.counters.extend(counters.map(|(name, n)| (name.to_owned(), n)));
        }
        if self.socket.tx_full_count > 0 {
            report.counters.push(("echo_dropped_count".into(), self.socket.tx_full_count));
        }
        // All engines of a port share the program.
        let filter = self.filter.as_ref().filter(|_| self.port.is_some());
        if let Some(counts) = filter.and_then(|f| f.counts()) {
            report.counters.push(("xdp_redirected_count".into(), counts.redirected));
            report.counters.push(("xdp_passed_count".into(), counts.passed));
            report.counters.push(("xdp_map_missed_count".into(), counts.map_missed));
            if counts.untagged > 0 {
                report.counters.push(("xdp_untagged_count".into(), counts.untagged));
            }
        }
        // Datagrams of the port that reached no AF_XDP socket: the queue has no socket, or no
        // program (a veth does not attach it to queues that are added later).
        if let Some(Ok(n)) = self.port.as_ref().map(|p| sys::socket::drop_count(p.as_fd())) {
            report.counters.push(("xdp_bypassed_count".into(), n));
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use lab::{End, Pair, PairSpec};

    use super::*;

    #[test]
    fn a_link_is_waited_for_and_reported_if_it_does_not_come_back() {
        let _alone = testkit::alone();
        let pair = Pair::new(&PairSpec::default()).expect("a lab");
        let End { ifindex, ifname, mac, ip, .. } = &pair.far;
        let (ifindex, ifname) = (*ifindex, ifname.clone());
        let (mtu_bytes, queue, queues, port) = (1500, 0, 1, 9000);
        let (mac, ip, addresses) = (*mac, (*ip).into(), Vec::new());
        let local = Local { ifindex, ifname, mtu_bytes, queue, queues, mac, ip, addresses, port };
        let wait = |most| pair.far.run(|| wait_for_carrier(&local, most)).expect("the lab");
        wait(Duration::ZERO).expect("it has a link");
        // The far end of a veth loses its link with the near end.
        pair.near.set_up(false).expect("down");
        let why = wait(Duration::from_millis(20)).expect_err("no link").to_string();
        assert!(why.contains("wp-far lost its link") && why.contains("20 ms"), "{why}");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                pair.near.set_up(true).expect("up");
            });
            wait(Duration::from_secs(20)).expect("it comes back");
        });
    }
}
