//! The card as the back end of another program's virtio device: its registers are written by vhost-user messages.
//!
//! Source: docs/interop/vhost-user.rst of QEMU; arch/um/drivers/vhost_user.h of Linux.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use vm_memory::FileOffset;
use vm_memory::mmap::MmapRegion;
use vmm_sys_util::sock_ctrl_msg::ScmSocket;
use wirepath_vmm::lance::{Bus, NetworkSide, Reception, Sent, Width};
use wirepath_vmm::virtio::{NicOptions, VirtioNet, register as r};
use wirepath_vmm::{OffloadHeader, Offloads, Receiver, Sender, TapReceiver, TapSender};

use crate::memory::SharedMemory;

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_VRING_ENABLE: u32 = 18;
const SET_BACKEND_REQUEST: u32 = 21;
const GET_CONFIG: u32 = 24;

const PROTOCOL_FEATURES: u64 = 1 << 30;
const PROTOCOL_REPLY_ACK: u64 = 1 << 3;
/// Requests by the back end, of which this one makes none: without the feature Linux 6.1 has no interrupt for the device.
const PROTOCOL_BACKEND_REQUEST: u64 = 1 << 5;
const PROTOCOL_CONFIG: u64 = 1 << 9;

const VERSION: u32 = 1;
const REPLY: u32 = 4;
const NEED_REPLY: u32 = 8;

/// Bytes of the largest frame.
const FRAME_BYTES: usize = 1 << 16 | 64;
/// Frames received in one turn.
const BUDGET: usize = 64;

/// A wire over the sending half of a TAP.
struct TapWire<'a>(&'a mut TapSender);

impl NetworkSide for TapWire<'_> {
    fn send(&mut self, frame: &[u8]) -> Sent {
        self.0.send(frame)
    }

    fn send_offloaded(&mut self, header: &OffloadHeader, frame: &[u8]) -> Sent {
        self.0.send_offloaded(header, frame)
    }
}

/// Descriptors of a queue.
#[derive(Default)]
struct Vring {
    kick: Option<File>,
    call: Option<File>,
}

/// The card, its TAP, and the program that drives it.
pub(crate) struct Backend {
    pub(crate) card: VirtioNet,
    tap: (TapSender, TapReceiver),
    memory: Option<SharedMemory>,
    vrings: [Vring; 9],
    /// Socket of this side's requests.
    requests: Option<File>,
    offloads: Offloads,
    frame: Vec<u8>,
    /// Length of a frame that the card has not taken yet.
    held: Option<usize>,
}

fn word(payload: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(payload[at..at + 4].try_into().expect("four bytes"))
}

fn long(payload: &[u8], at: usize) -> u64 {
    u64::from(word(payload, at)) | u64::from(word(payload, at + 4)) << 32
}

impl Backend {
    pub(crate) fn new(options: NicOptions, mut tap: (TapSender, TapReceiver)) -> Self {
        let offloads = Offloads::default();
        tap.0.set_offloads(offloads);
        Backend {
            card: VirtioNet::new([2, b'w', b'p', 0, 0, 9], options),
            tap,
            memory: None,
            vrings: Default::default(),
            requests: None,
            offloads,
            frame: vec![0; FRAME_BYTES],
            held: None,
        }
    }

    /// Serves messages, notifications and frames until the other end closes.
    pub(crate) fn serve(&mut self, socket: &mut UnixStream) -> io::Result<()> {
        loop {
            let (ready, kicked, arrived) = self.wait(socket)?;
            if ready && !self.answer(socket)? {
                return Ok(());
            }
            for queue in kicked {
                if let Some(kick) = &mut self.vrings[queue].kick {
                    kick.read_exact(&mut [0; 8])?;
                }
                self.set(r::QUEUE_NOTIFY, queue as u32);
            }
            if self.card.has_demand() {
                self.set(r::QUEUE_NOTIFY, 1);
            }
            if arrived || self.held.is_some() {
                self.receive()?;
            }
            self.interrupt()?;
        }
    }

    /// Waits for a message, notifications of queues, or a frame.
    fn wait(&self, socket: &UnixStream) -> io::Result<(bool, Vec<usize>, bool)> {
        let kicks = self.vrings.iter().enumerate();
        let kicks: Vec<(usize, BorrowedFd<'_>)> = kicks
            .filter_map(|(queue, vring)| Some((queue, vring.kick.as_ref()?.as_fd())))
            .collect();
        let mut fds = vec![socket.as_fd()];
        fds.extend(kicks.iter().map(|(_, fd)| *fd));
        // A frame that waits for a buffer is not asked for again.
        fds.extend(self.tap.1.fd().filter(|_| self.held.is_none()));
        let timeout = Duration::from_millis(if self.card.has_demand() { 1 } else { 200 });
        let ready = sys::poll::readable_set(&fds, timeout)?;
        let kicked = (1..).zip(&kicks).filter(|(bit, _)| ready >> bit & 1 != 0);
        let kicked = kicked.map(|(_, (queue, _))| *queue).collect();
        Ok((ready & 1 != 0, kicked, ready >> (1 + kicks.len()) != 0))
    }

    fn set(&mut self, offset: u16, value: u32) {
        let Some(memory) = &self.memory else { return };
        let mut wire = TapWire(&mut self.tap.0);
        self.card.write(&mut Bus { memory, wire: &mut wire }, offset, Width::Dword, value);
        let accepted = self.card.accepted_offloads();
        if accepted != self.offloads {
            self.offloads = accepted;
            self.tap.0.set_offloads(accepted);
        }
    }

    fn get(&self, offset: u16) -> u32 {
        self.card.read(offset, Width::Dword)
    }

    fn receive(&mut self) -> io::Result<()> {
        let Some(memory) = &self.memory else { return Ok(()) };
        for _ in 0..BUDGET {
            let len = match self.held.take() {
                Some(len) => len,
                None => match self.tap.1.receive(&mut self.frame)? {
                    Some(len) => len,
                    None => break,
                },
            };
            let header = self.tap.1.header();
            if self.card.receive(memory, &header, &self.frame[..len]) == Reception::Off {
                self.held = Some(len);
                break;
            }
        }
        Ok(())
    }

    /// The card has one line: every queue is told.
    fn interrupt(&mut self) -> io::Result<()> {
        if self.card.irq() {
            self.set(r::INTERRUPT_ACK, 3);
            for vring in &mut self.vrings {
                if let Some(call) = &mut vring.call {
                    call.write_all(&1u64.to_ne_bytes())?;
                }
            }
        }
        Ok(())
    }

    /// Answers a message; false if the other end has closed.
    fn answer(&mut self, socket: &mut UnixStream) -> io::Result<bool> {
        let mut header = [0; 12];
        let (len, file) = socket.recv_with_fd(&mut header).map_err(io::Error::from)?;
        if len == 0 {
            return Ok(false);
        }
        socket.read_exact(&mut header[len..])?;
        let [request, flags, size] = [0, 4, 8].map(|at| word(&header, at));
        let mut payload = vec![0; size as usize];
        socket.read_exact(&mut payload)?;
        let reply = self.obey(request, &mut payload, file)?;
        let reply = reply.or((flags & NEED_REPLY != 0).then(|| vec![0; 8]));
        if let Some(reply) = reply {
            let mut message = Vec::new();
            for field in [request, VERSION | REPLY, reply.len() as u32] {
                message.extend(field.to_le_bytes());
            }
            message.extend(reply);
            socket.write_all(&message)?;
        }
        Ok(true)
    }

    /// Executes a message. Returns the reply of one that has one.
    fn obey(
        &mut self,
        request: u32,
        payload: &mut [u8],
        file: Option<File>,
    ) -> io::Result<Option<Vec<u8>>> {
        match request {
            GET_FEATURES => return Ok(Some(self.offered().to_le_bytes().into())),
            GET_PROTOCOL_FEATURES => {
                let features = PROTOCOL_REPLY_ACK | PROTOCOL_BACKEND_REQUEST | PROTOCOL_CONFIG;
                return Ok(Some(features.to_le_bytes().into()));
            }
            SET_FEATURES => self.choose(long(payload, 0) & !PROTOCOL_FEATURES),
            SET_MEM_TABLE => {
                assert_eq!(word(payload, 0), 1, "one region");
                let [guest_at, size, _, offset] = [8, 16, 24, 32].map(|at| long(payload, at));
                let file = file.expect("a region has a file");
                let region = MmapRegion::from_file(FileOffset::new(file, offset), size as usize);
                self.memory = Some(SharedMemory::new(guest_at, region.expect("a mapping")));
            }
            SET_VRING_NUM => self.set_queue(word(payload, 0), &[(r::QUEUE_NUM, word(payload, 4))]),
            SET_VRING_ADDR => {
                let [descriptors, used, available] = [8, 16, 24].map(|at| long(payload, at));
                let parts = [
                    (r::QUEUE_DESC_LOW, r::QUEUE_DESC_HIGH, descriptors),
                    (r::QUEUE_DRIVER_LOW, r::QUEUE_DRIVER_HIGH, available),
                    (r::QUEUE_DEVICE_LOW, r::QUEUE_DEVICE_HIGH, used),
                ];
                let writes =
                    parts.map(|(low, high, at)| [(low, at as u32), (high, (at >> 32) as u32)]);
                self.set_queue(word(payload, 0), writes.as_flattened());
            }
            SET_VRING_KICK => self.vrings[usize::from(payload[0])].kick = file,
            SET_VRING_CALL => self.vrings[usize::from(payload[0])].call = file,
            SET_VRING_ENABLE => {
                self.set_queue(word(payload, 0), &[(r::QUEUE_READY, word(payload, 4))]);
                self.set(r::STATUS, 15);
            }
            SET_BACKEND_REQUEST => self.requests = file,
            GET_CONFIG => {
                let (offset, size) = (word(payload, 0), word(payload, 4));
                for at in 0..size {
                    let offset = r::CONFIG + (offset + at) as u16;
                    payload[12 + at as usize] = self.card.read(offset, Width::Byte) as u8;
                }
                return Ok(Some(payload.to_vec()));
            }
            _ => {}
        }
        Ok(None)
    }

    fn offered(&mut self) -> u64 {
        // Registers need memory behind them, and there is none yet.
        let memory = SharedMemory::nothing();
        let mut wire = TapWire(&mut self.tap.0);
        let mut bus = Bus { memory: &memory, wire: &mut wire };
        let halves = [0, 1].map(|half| {
            self.card.write(&mut bus, r::DEVICE_FEATURES_SEL, Width::Dword, half);
            self.card.read(r::DEVICE_FEATURES, Width::Dword)
        });
        u64::from(halves[0]) | u64::from(halves[1]) << 32 | PROTOCOL_FEATURES
    }

    fn choose(&mut self, features: u64) {
        self.memory.get_or_insert_with(SharedMemory::nothing);
        self.set(r::STATUS, 0);
        self.set(r::STATUS, 3);
        for (half, bits) in [(0, features as u32), (1, (features >> 32) as u32)] {
            self.set(r::DRIVER_FEATURES_SEL, half);
            self.set(r::DRIVER_FEATURES, bits);
        }
        self.set(r::STATUS, 11);
        assert_eq!(self.get(r::STATUS), 11, "features {features:#x}");
    }

    fn set_queue(&mut self, queue: u32, writes: &[(u16, u32)]) {
        self.set(r::QUEUE_SEL, queue);
        for (register, value) in writes {
            self.set(*register, *value);
        }
    }
}
