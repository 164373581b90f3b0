//! AF_PACKET with TPACKET_V3: frames in rings shared with the kernel, beside the stack.

use std::net::UdpSocket;
use std::time::Duration;

use sys::packet::{PacketRx, PacketTx};
use wire::frame::Received;

use crate::engine::{Arrival, Echoed, Engine, EngineReport, Role, Setup, Stamps, Wait};
use crate::error::IoError;
use crate::frames::{self, Template};
use crate::udp::{POLL_TIMEOUT, hold_port};

/// Memory of the receive ring.
const RX_RING_BYTES: usize = 4 << 20;
/// Slots of the send ring.
const TX_SLOTS: usize = 1024;
/// Times that a full send ring is pushed before an echo is dropped.
const ECHO_TRIES: usize = 64;

/// TPACKET_V3 rings as an engine.
///
/// The stack sees every received frame too; the port is held by a socket that swallows them.
#[derive(Debug)]
pub struct PacketEngine {
    rx: Option<PacketRx>,
    tx: Option<PacketTx>,
    templates: Vec<Template>,
    wait: Wait,
    batch: usize,
    ifname: String,
    stamps: bool,
    stash: Vec<u8>,
    echo_lengths: Vec<usize>,
    echo_dropped_count: u64,
    spin_count: u64,
    _port: Option<UdpSocket>,
}

impl PacketEngine {
    /// Opens the rings that the role needs.
    pub fn open(setup: &Setup<'_>) -> Result<Self, IoError> {
        let port = hold_port(setup.local, setup.local.port)?;
        PacketEngine::with_port(setup, Some(port))
    }

    /// Opens the two rings as engines of their own: sender, receiver.
    pub(crate) fn open_halves(setup: &Setup<'_>) -> Result<(Self, Self), IoError> {
        let receiver = PacketEngine::open(&Setup { role: Role::Receive, ..*setup })?;
        let sender = PacketEngine::with_port(&Setup { role: Role::Send, ..*setup }, None)?;
        Ok((sender, receiver))
    }

    /// - `port`: held by another engine if `None`.
    fn with_port(setup: &Setup<'_>, port: Option<UdpSocket>) -> Result<Self, IoError> {
        let Setup { spec, role, local, payload_bytes, .. } = *setup;
        let templates = Template::for_flows(setup, false)?;
        let frame_bytes = spec.packet_frame_bytes(local.ip, payload_bytes);
        let open_rx = if local.ip.is_ipv6() { PacketRx::open_v6 } else { PacketRx::open };
        let rx = role
            .receives()
            .then(|| open_rx(local.ifindex, local.port, RX_RING_BYTES))
            .transpose()
            .map_err(|e| IoError::packet(e, "a packet receive ring", &local.ifname))?;
        let tx = role
            .sends()
            .then(|| PacketTx::open(local.ifindex, frame_bytes.max(60), TX_SLOTS))
            .transpose()
            .map_err(|e| IoError::packet(e, "a packet send ring", &local.ifname))?;
        let batch = spec.batch.max(1);
        Ok(PacketEngine {
            rx,
            tx,
            templates,
            wait: spec.wait,
            batch,
            ifname: local.ifname.clone(),
            stamps: spec.stamps != Stamps::Off,
            // Frames to return are copied here first: the rings of the two directions differ.
            stash: vec![0; if role == Role::Echo { batch * frame_bytes } else { 0 }],
            echo_lengths: Vec::with_capacity(batch),
            echo_dropped_count: 0,
            spin_count: 0,
            _port: port,
        })
    }

    fn system(&self, what: &'static str, source: std::io::Error) -> IoError {
        IoError::packet(source, what, &self.ifname)
    }

    /// Waits for a block; returns true if one may be ready.
    fn wait(&mut self) -> Result<bool, IoError> {
        let Some(rx) = self.rx.as_mut() else { return Ok(false) };
        if rx.ready() {
            return Ok(true);
        }
        if self.wait == Wait::Spin {
            self.spin_count += 1;
            return Ok(false);
        }
        let waited = rx.wait(POLL_TIMEOUT);
        waited.map_err(|e| self.system("poll", e))?;
        Ok(true)
    }
}

impl Engine for PacketEngine {
    fn rx_take(&mut self, each: &mut impl FnMut(Arrival<'_>)) -> Result<usize, IoError> {
        if !self.wait()? {
            return Ok(0);
        }
        let (stamps, Some(rx)) = (self.stamps, self.rx.as_mut()) else { return Ok(0) };
        Ok(rx.take(self.batch, |frame, _, stamp_ns| {
            let frame_bytes = frame.len();
            if let Ok(mut received) = Received::parse(frame, frame_bytes) {
                each(frames::arrival(&mut received, stamps.then_some(stamp_ns)));
            }
        }))
    }

    fn nap(&mut self, timeout: Duration) -> Result<(), IoError> {
        let waited = self.rx.as_mut().map_or(Ok(()), |rx| rx.wait(timeout));
        waited.map_err(|e| self.system("poll", e))
    }

    fn tx_post(
        &mut self,
        flow: usize,
        want: usize,
        fill: &mut impl FnMut(&mut [u8]),
    ) -> Result<usize, IoError> {
        let Some(tx) = self.tx.as_mut() else { return Err(IoError::NoRemote) };
        let template = self.templates.get(flow).ok_or(IoError::NoRemote)?;
        tx.reap();
        let len = template.frame_bytes();
        let posted = tx.post(want.min(self.batch), len, |frame| template.build(frame, fill));
        let kicked = tx.kick();
        kicked.map_err(|e| self.system("sendto", e))?;
        Ok(posted)
    }

    fn tx_reap(&mut self) -> usize {
        self.tx.as_mut().map_or(0, PacketTx::reap)
    }

    fn echo(
        &mut self,
        answer: &mut impl FnMut(&mut Arrival<'_>) -> Option<u32>,
    ) -> Result<Echoed, IoError> {
        if !self.wait()? {
            return Ok(Echoed::default());
        }
        let stamps = self.stamps;
        let (Some(rx), Some(tx)) = (self.rx.as_mut(), self.tx.as_mut()) else {
            return Ok(Echoed::default());
        };
        self.echo_lengths.clear();
        let (stash, lengths) = (&mut self.stash, &mut self.echo_lengths);
        let mut used = 0;
        let taken = rx.take(self.batch, |frame, _, stamp_ns| {
            let stamp_ns = stamps.then_some(stamp_ns);
            let len = frame.len();
            let room = used + len <= stash.len();
            if room && frames::turn_around(frame, len, stamp_ns, answer) {
                stash[used..used + len].copy_from_slice(frame);
                used += len;
                lengths.push(len);
            }
        });
        let mut returned = 0;
        let mut from = 0;
        for &len in &self.echo_lengths {
            let frame = &self.stash[from..from + len];
            from += len;
            let mut tries = 0;
            while tx.post(1, len, |slot| slot.copy_from_slice(frame)) == 0 && tries < ECHO_TRIES {
                // The ring is full: let the kernel drain it, then retry.
                let _ = tx.kick();
                tx.reap();
                tries += 1;
            }
            if tries < ECHO_TRIES {
                returned += 1;
            } else {
                self.echo_dropped_count += 1;
            }
        }
        if returned > 0 {
            let kicked = tx.kick();
            tx.reap();
            kicked.map_err(|e| self.system("sendto", e))?;
        }
        Ok(Echoed { taken, returned })
    }

    fn finish(&mut self) -> EngineReport {
        let mut report = EngineReport::default();
        if let Some(tx) = self.tx.as_mut() {
            for _ in 0..1000 {
                tx.reap();
                if tx.in_flight() == 0 || tx.kick().is_err() {
                    break;
                }
                std::thread::yield_now();
            }
            tx.reap();
            report.unsent_count = tx.in_flight() as u64 + tx.refused_count;
            report.syscall_count += tx.kick_count;
            report.counters.push(("packet_tx_refused_count".into(), tx.refused_count));
        }
        if let Some(rx) = self.rx.as_mut() {
            report.syscall_count += rx.wait_count;
            if let Ok(statistics) = rx.statistics() {
                report.counters.push(("packet_ring_drop_count".into(), statistics.drop_count));
            }
        }
        if self.echo_dropped_count > 0 {
            report.counters.push(("echo_dropped_count".into(), self.echo_dropped_count));
        }
        report.mode.push(("packet".into(), "TPACKET_V3".into()));
        report
    }
}
