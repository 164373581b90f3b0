//! Test bench: a responder on a fake device in plain memory, its platform calls, and frames.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::Ipv4Addr;
use std::rc::Rc;

use app::responder::{KernelGauges, Parts};
use app::{Platform, Responder, Switches};
use net::{Identity, Peer, UDP_PAYLOAD_OFFSET};
use telemetry::{Counter, Counters, Trace};
use virtio::fake::{Behaviour, FakeDevice, FakeMemory, FakeRegisters};
use virtio::net::POOL_FRAMES;
use wire::{ethernet, icmp, ipv4};

pub(crate) const THEM: Identity =
    Identity { mac: [2, 0, 0, 0, 0, 1], ip: Ipv4Addr::new(10, 0, 0, 1) };
pub(crate) const US: Identity =
    Identity { mac: [0x52, 0x54, 0, 0x12, 0x34, 0x56], ip: Ipv4Addr::new(10, 0, 0, 2) };

/// Platform calls of the responder.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) printed: RefCell<String>,
    pub(crate) delays: Cell<u32>,
    pub(crate) delayed_us: Cell<u32>,
    pub(crate) toggles: Cell<u32>,
    pub(crate) clock_reads: Cell<u32>,
    pub(crate) receiver_wakes: Cell<u32>,
    pub(crate) dumper_wakes: Cell<u32>,
    /// The device completes waiting sends after this many delays.
    pub(crate) sends_after_delays: Cell<u32>,
}

pub(crate) struct FakePlatform {
    pub(crate) asked: Rc<Asked>,
    pub(crate) device: FakeDevice,
}

impl Platform for FakePlatform {
    fn now_ns(&self) -> u64 {
        self.asked.clock_reads.set(self.asked.clock_reads.get() + 1);
        7
    }
    fn udelay(&self, us: u32) {
        self.asked.delays.set(self.asked.delays.get() + 1);
        self.asked.delayed_us.set(self.asked.delayed_us.get() + us);
        if self.asked.delays.get() == self.asked.sends_after_delays.get() {
            self.device.send_waiting(|_| 0);
        }
    }
    fn print(&self, text: fmt::Arguments<'_>) {
        self.asked.printed.borrow_mut().push_str(&text.to_string());
    }
    fn toggle(&mut self) {
        self.asked.toggles.set(self.asked.toggles.get() + 1);
    }
    fn wake_receiver(&self) {
        self.asked.receiver_wakes.set(self.asked.receiver_wakes.get() + 1);
    }
    fn wake_dumper(&self) {
        self.asked.dumper_wakes.set(self.asked.dumper_wakes.get() + 1);
    }
}

pub(crate) struct Bench {
    pub(crate) device: FakeDevice,
    pub(crate) responder: Responder<FakeRegisters, FakeMemory, FakePlatform>,
    pub(crate) asked: Rc<Asked>,
    pub(crate) counters: &'static Counters,
}

impl Bench {
    pub(crate) fn new(switches: &str) -> Bench {
        Bench::with(switches, Behaviour::default())
    }

    pub(crate) fn with(switches: &str, behaviour: Behaviour) -> Bench {
        let (device, registers, memory) = FakeDevice::new(behaviour);
        let asked = Rc::new(Asked::default());
        let counters: &'static Counters = Box::leak(Box::new(Counters::new()));
        let parts = Parts {
            platform: FakePlatform { asked: asked.clone(), device: device.clone() },
            switches: Switches::parse(switches).expect("they are known"),
            ip: US.ip,
            mac: None,
            gpio: false,
            counters,
            trace: Box::leak(Box::new(Trace::new())),
        };
        let responder = Responder::start(registers, memory, parts).expect("the device starts");
        Bench { device, responder, asked, counters }
    }

    /// Handles interrupts, which are edge triggered, and wake-ups until none is left.
    pub(crate) fn settle(&mut self) {
        for _ in 0..1000 {
            let wakes = self.asked.receiver_wakes.take();
            if wakes > 0 {
                self.responder.woken();
                while self.responder.receive_some() {}
            } else if self.device.take_edge() {
                self.responder.on_interrupt();
            } else if !(self.responder.is_polled() && self.responder.poll()) {
                return;
            }
        }
        panic!("interrupts do not end");
    }

    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }

    pub(crate) fn assert_no_leak(&mut self) {
        let snapshot = self.responder.snapshot(KernelGauges::default());
        assert_eq!(snapshot.get(Counter::FramesHeld), 0);
        assert_eq!(snapshot.get(Counter::FramesReceive), snapshot.get(Counter::RxRingFrames));
        let total: u64 = [Counter::FramesFree, Counter::FramesReceive, Counter::FramesTransmit]
            .iter()
            .map(|counter| snapshot.get(*counter))
            .sum();
        assert_eq!(total, POOL_FRAMES as u64);
    }
}

pub(crate) fn ping(sequence: u16) -> Vec<u8> {
    let mut frame = vec![0; 98];
    let message = &mut frame[34..];
    icmp::Repr { kind: icmp::Kind::EchoRequest, id: 1, sequence }.write(message).expect("it fits");
    let payload_bytes = message.len();
    let ethertype = ethernet::TYPE_IPV4;
    ethernet::Repr { dst: US.mac, src: THEM.mac, ethertype }.write(&mut frame).expect("it fits");
    let packet = ipv4::Repr {
        src: THEM.ip,
        dst: US.ip,
        protocol: ipv4::PROTOCOL_ICMP,
        ttl: 64,
        payload_bytes,
    };
    packet.write(&mut frame[14..]).expect("it fits");
    frame
}

pub(crate) fn datagram(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; UDP_PAYLOAD_OFFSET];
    frame.extend_from_slice(payload);
    let peer = Peer { mac: US.mac, ip: US.ip, port };
    net::write_datagram(&mut frame, &THEM, 4000, &peer, payload.len()).expect("it fits");
    frame
}

pub(crate) fn pong_sequence(frame: &[u8]) -> u16 {
    let packet = ipv4::Packet::parse(&frame[14..]).expect("it is whole");
    let message = icmp::Packet::parse(packet.payload()).expect("its checksum is right");
    assert_eq!(message.kind(), icmp::Kind::EchoReply);
    message.sequence()
}

/// All sets of switches but the last three: size of the rings, trace, and counters.
pub(crate) fn every_arm() -> impl Iterator<Item = String> {
    (0..1 << (app::Switch::ALL.len() - 3)).map(|word: u32| {
        let on = app::Switch::ALL.iter().filter(|switch| word & 1 << **switch as u8 != 0);
        on.map(|switch| switch.id()).collect::<Vec<_>>().join(",")
    })
}
