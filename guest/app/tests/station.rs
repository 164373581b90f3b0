//! What each switch does, on a device in plain memory.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::Ipv4Addr;
use std::rc::Rc;

use app::station::{POLL_TURNS_MAX, Parts};
use app::{Platform, Station, Switches};
use net::{Identity, Peer, UDP_PAYLOAD_OFFSET};
use observe::dump::{Answer, PORT, Request, What};
use observe::{Counter, Counters, Trace};
use virtio::StartError;
use virtio::fake::{Behaviour, FakeDevice, FakeMemory, FakeRegisters, TX};
use virtio::mmio::{FEATURE_EVENT_IDX, FEATURE_INDIRECT_DESC, FEATURE_RING_PACKED, status};
use virtio::net::POOL_FRAMES;
use wire::{ethernet, icmp, ipv4};

const THEM: Identity = Identity { mac: [2, 0, 0, 0, 0, 1], ip: Ipv4Addr::new(10, 0, 0, 1) };
const US: Identity =
    Identity { mac: [0x52, 0x54, 0, 0x12, 0x34, 0x56], ip: Ipv4Addr::new(10, 0, 0, 2) };

/// What the station asked of its machine.
#[derive(Default)]
struct Asked {
    printed: RefCell<String>,
    delays: Cell<u32>,
    delayed_us: Cell<u32>,
    toggles: Cell<u32>,
    receiver_wakes: Cell<u32>,
    dumper_wakes: Cell<u32>,
    /// The device sends what waits after so many delays.
    sends_after_delays: Cell<u32>,
}

struct FakePlatform {
    asked: Rc<Asked>,
    device: FakeDevice,
}

impl Platform for FakePlatform {
    fn now_ns(&self) -> u64 {
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

struct Bench {
    device: FakeDevice,
    station: Station<FakeRegisters, FakeMemory, FakePlatform>,
    asked: Rc<Asked>,
    counters: &'static Counters,
}

impl Bench {
    fn new(switches: &str) -> Bench {
        Bench::with(switches, Behaviour::default())
    }

    fn with(switches: &str, behaviour: Behaviour) -> Bench {
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
        let station = Station::start(registers, memory, parts).expect("the device is willing");
        Bench { device, station, asked, counters }
    }

    /// Handles interrupts and wakes until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..1000 {
            let wakes = self.asked.receiver_wakes.take();
            if wakes > 0 {
                self.station.woken();
                while self.station.receive_some() {}
            } else if self.device.interrupt_is_up() {
                self.station.on_interrupt();
            } else {
                return;
            }
        }
        panic!("interrupts do not end");
    }

    fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }

    fn assert_no_leak(&mut self) {
        let snapshot = self.station.snapshot(0, 0);
        assert_eq!(snapshot.get(Counter::FramesHeld), 0);
        assert_eq!(snapshot.get(Counter::FramesReceive), snapshot.get(Counter::RxRingFrames));
        let total: u64 = [Counter::FramesFree, Counter::FramesReceive, Counter::FramesTransmit]
            .iter()
            .map(|counter| snapshot.get(*counter))
            .sum();
        assert_eq!(total, POOL_FRAMES as u64);
    }
}

fn ping(sequence: u16) -> Vec<u8> {
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

fn datagram(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; UDP_PAYLOAD_OFFSET];
    frame.extend_from_slice(payload);
    let peer = Peer { mac: US.mac, ip: US.ip, port };
    net::write_datagram(&mut frame, &THEM, 4000, &peer, payload.len()).expect("it fits");
    frame
}

fn pong_sequence(frame: &[u8]) -> u16 {
    let packet = ipv4::Packet::parse(&frame[14..]).expect("it is whole");
    let message = icmp::Packet::parse(packet.payload()).expect("its checksum is right");
    assert_eq!(message.kind(), icmp::Kind::EchoReply);
    message.sequence()
}

/// All 1024 sets of switches.
fn every_arm() -> impl Iterator<Item = String> {
    (0..1 << app::Switch::ALL.len()).map(|word: u32| {
        let on = app::Switch::ALL.iter().filter(|switch| word & 1 << **switch as u8 != 0);
        on.map(|switch| switch.id()).collect::<Vec<_>>().join(",")
    })
}

#[test]
fn every_arm_answers_everything_and_its_books_close() {
    for arm in every_arm() {
        let mut bench = Bench::new(&arm);
        let mut expected = Vec::new();
        for sequence in 0..300 {
            assert!(bench.device.receive(&ping(sequence)), "{arm}: the ring is dry");
            expected.push(sequence);
            // Sometimes several wait at once.
            if sequence % 7 != 0 {
                bench.settle();
            }
        }
        bench.settle();
        let sent: Vec<u16> =
            bench.device.take_sent().iter().map(|frame| pong_sequence(frame)).collect();
        assert_eq!(sent, expected, "{arm}");
        assert_eq!(bench.count(Counter::RxPackets), 300, "{arm}");
        assert_eq!(bench.count(Counter::RxBytes), 300 * 98, "{arm}");
        assert_eq!(bench.count(Counter::TxPackets), 300, "{arm}");
        assert_eq!(bench.count(Counter::TxErrors) + bench.count(Counter::RxErrors), 0, "{arm}");
        bench.assert_no_leak();
    }
}

#[test]
fn every_arm_survives_a_device_that_sends_late_and_out_of_order() {
    for arm in every_arm() {
        let mut bench =
            Bench::with(&arm, Behaviour { sends_at_once: false, ..Behaviour::default() });
        for turn in 0..20_u16 {
            for sequence in 0..20 {
                bench.device.receive(&ping(turn * 20 + sequence));
            }
            bench.settle();
            let mut pick = usize::from(turn);
            bench.device.send_waiting(|waiting| {
                pick = pick.wrapping_mul(31).wrapping_add(7);
                pick % waiting
            });
            bench.settle();
        }
        let posted = bench.count(Counter::TxPackets);
        let refused = bench.count(Counter::TxRefused);
        assert_eq!(bench.device.take_sent().len() as u64, posted, "{arm}");
        assert_eq!((posted + refused, bench.count(Counter::RxPackets)), (400, 400), "{arm}");
        assert_eq!(refused, 0, "{arm}: 20 at a time fit");
        bench.assert_no_leak();
    }
}

#[test]
fn quiet_prints_nothing_and_without_it_every_packet_is_printed() {
    for (switches, lines) in [("quiet", 0), ("", 2), ("async-tx,rx-task", 2)] {
        let mut bench = Bench::new(switches);
        bench.device.receive(&ping(1));
        bench.settle();
        let printed = bench.asked.printed.borrow();
        assert_eq!(printed.lines().count(), lines, "{switches}: {printed}");
        if lines > 0 {
            assert!(printed.contains("rx packet 1, 98 bytes"), "{printed}");
            assert!(printed.contains("tx packet 1, 98 bytes"), "{printed}");
        }
    }
}

#[test]
fn without_async_tx_each_completion_is_polled_for_in_turns_of_10_us() {
    let late = Behaviour { sends_at_once: false, ..Behaviour::default() };
    let mut bench = Bench::with("quiet", late.clone());
    bench.asked.sends_after_delays.set(5);
    bench.device.receive(&ping(1));
    bench.station.on_interrupt();
    assert_eq!((bench.asked.delays.get(), bench.asked.delayed_us.get()), (5, 50));
    assert_eq!(bench.count(Counter::TxReaped), 1);
    let mut bench = Bench::with("quiet,async-tx", late);
    bench.device.receive(&ping(1));
    bench.station.on_interrupt();
    assert_eq!((bench.asked.delays.get(), bench.station.driver().tx_posted()), (0, 1));
}

#[test]
fn trap_10_poll_that_times_out_leaves_the_frame_to_the_device() {
    let mut bench =
        Bench::with("quiet", Behaviour { sends_at_once: false, ..Behaviour::default() });
    bench.device.receive(&ping(1));
    bench.station.on_interrupt();
    assert_eq!(bench.asked.delays.get(), POLL_TURNS_MAX);
    assert_eq!(bench.count(Counter::TxPollTimeouts), 1);
    assert_eq!(bench.count(Counter::TxErrors), 1);
    // A second one gets another frame; both go out as they were.
    bench.asked.sends_after_delays.set(POLL_TURNS_MAX + 1);
    bench.device.receive(&ping(2));
    bench.settle();
    let sent: Vec<u16> =
        bench.device.take_sent().iter().map(|frame| pong_sequence(frame)).collect();
    assert_eq!(sent, [1, 2]);
    bench.assert_no_leak();
}

#[test]
fn without_lazy_reap_each_completion_interrupts_and_with_it_only_arrivals_reap() {
    let late = Behaviour { sends_at_once: false, ..Behaviour::default() };
    for (switches, reaped_at_once) in [("quiet,async-tx", 1), ("quiet,async-tx,lazy-reap", 0)] {
        let mut bench = Bench::with(switches, late.clone());
        bench.device.receive(&ping(1));
        bench.settle();
        bench.device.send_waiting(|_| 0);
        assert!(bench.device.interrupt_is_up());
        bench.settle();
        assert_eq!(bench.count(Counter::TxReaped), reaped_at_once, "{switches}");
        bench.device.receive(&ping(2));
        bench.settle();
        assert_eq!(bench.count(Counter::TxReaped), 1, "{switches}");
    }
}

#[test]
fn no_tx_interrupt_has_the_device_be_silent_about_frames_sent() {
    for (switches, interrupts) in [
        ("quiet,async-tx", 200),
        ("quiet,async-tx,no-tx-interrupt", 100),
        ("quiet,async-tx,event-idx", 200),
        ("quiet,async-tx,no-tx-interrupt,event-idx", 100),
    ] {
        let late = Behaviour { sends_at_once: false, ..Behaviour::default() };
        let mut bench = Bench::with(switches, late);
        for sequence in 0..100 {
            bench.device.receive(&ping(sequence));
            bench.settle();
            bench.device.send_waiting(|_| 0);
            bench.settle();
        }
        assert_eq!(bench.device.interrupt_count(), interrupts, "{switches}");
    }
}

#[test]
fn rx_task_leaves_the_frame_to_the_task_and_without_it_the_interrupt_answers() {
    let mut bench = Bench::new("quiet,rx-task");
    bench.device.receive(&ping(1));
    bench.station.on_interrupt();
    assert_eq!((bench.count(Counter::RxPackets), bench.asked.receiver_wakes.get()), (0, 1));
    bench.settle();
    assert_eq!(bench.count(Counter::TxPackets), 1);
    let mut bench = Bench::new("quiet");
    bench.device.receive(&ping(1));
    bench.station.on_interrupt();
    assert_eq!((bench.count(Counter::TxPackets), bench.asked.receiver_wakes.get()), (1, 0));
}

#[test]
fn rx_task_is_not_interrupted_while_it_works() {
    for switches in ["quiet,rx-task", "quiet,rx-task,event-idx"] {
        let mut bench = Bench::new(switches);
        bench.device.receive(&ping(0));
        bench.station.on_interrupt();
        let before = bench.device.interrupt_count();
        for sequence in 1..10 {
            bench.device.receive(&ping(sequence));
        }
        assert_eq!(bench.device.interrupt_count(), before, "{switches}");
        bench.settle();
        assert_eq!(bench.count(Counter::TxPackets), 10, "{switches}");
        // And armed again after.
        bench.device.receive(&ping(10));
        assert!(bench.device.interrupt_is_up(), "{switches}");
    }
}

#[test]
fn features_are_negotiated_and_a_device_without_them_is_refused_not_papered_over() {
    for (switch, bit, name) in [
        ("event-idx", FEATURE_EVENT_IDX, "VIRTIO_F_EVENT_IDX"),
        ("packed", FEATURE_RING_PACKED, "VIRTIO_F_RING_PACKED"),
        ("indirect", FEATURE_INDIRECT_DESC, "VIRTIO_F_INDIRECT_DESC"),
    ] {
        assert_ne!(Bench::new(switch).device.chosen() & bit, 0);
        assert_eq!(Bench::new("").device.chosen() & bit, 0);
        let offered = Behaviour::default().offered & !bit;
        let (device, registers, memory) =
            FakeDevice::new(Behaviour { offered, ..Behaviour::default() });
        let parts = Parts {
            platform: FakePlatform { asked: Rc::default(), device },
            switches: Switches::parse(switch).expect("it is known"),
            ip: US.ip,
            mac: None,
            gpio: false,
            counters: Box::leak(Box::new(Counters::new())),
            trace: Box::leak(Box::new(Trace::new())),
        };
        let refused = Station::start(registers, memory, parts).err();
        assert_eq!(refused, Some(StartError::FeatureMissing { feature: name, offered }));
    }
}

/// Ways to receive, in either ring.
const WAYS: [&str; 6] = [
    "quiet,async-tx",
    "quiet,async-tx,rx-task",
    "quiet,async-tx,rx-task,icmp-in-irq",
    "quiet,async-tx,lazy-reap,event-idx,packed",
    "quiet,async-tx,lazy-reap,rx-task,event-idx,packed",
    "quiet,async-tx,icmp-in-irq,packed,indirect",
];

#[test]
fn batching_tells_the_device_once_a_pass_and_without_it_of_every_frame() {
    for way in WAYS {
        for (more, times) in [("", 40), (",batching", 3)] {
            let mut bench = Bench::new(&format!("{way}{more}"));
            for sequence in 0..40 {
                assert!(bench.device.receive(&ping(sequence)));
            }
            let before = bench.station.driver().told();
            bench.settle();
            let told = bench.station.driver().told();
            let shown = told.tx_shown_count - before.tx_shown_count;
            // 40 frames are passes of 16, 16 and 8.
            assert_eq!(shown, times, "{way}{more}: answers");
            assert_eq!(told.rx_shown_count - before.rx_shown_count, times, "{way}{more}: buffers");
            assert_eq!(bench.station.snapshot(0, 0).get(Counter::RxPasses), 3, "{way}{more}");
            let sent: Vec<u16> =
                bench.device.take_sent().iter().map(|frame| pong_sequence(frame)).collect();
            assert_eq!(sent, (0..40).collect::<Vec<u16>>(), "{way}{more}");
            bench.assert_no_leak();
        }
    }
}

#[test]
fn batching_leaves_who_polls_to_poll_for_each_frame() {
    let mut bench = Bench::new("quiet,batching");
    for sequence in 0..40 {
        assert!(bench.device.receive(&ping(sequence)));
    }
    let before = bench.station.driver().told();
    bench.settle();
    let told = bench.station.driver().told();
    assert_eq!(told.tx_shown_count - before.tx_shown_count, 40);
    assert_eq!(told.rx_shown_count - before.rx_shown_count, 3);
    assert_eq!(bench.count(Counter::TxPollTimeouts), 0);
}

#[test]
fn batching_rings_for_a_full_ring_before_it_gives_a_frame_up() {
    for way in ["quiet,async-tx,batching", "quiet,async-tx,no-tx-interrupt,packed,batching"] {
        let small = Behaviour { queue_frames_max: 4, sends_at_once: false, ..Behaviour::default() };
        let mut bench = Bench::with(way, small);
        for sequence in 0..2 {
            assert!(bench.device.receive(&ping(sequence)));
        }
        bench.settle();
        assert_eq!(bench.station.driver().tx_posted(), 2);
        // Two are with the device. Of four more, two fill the ring: were the device not told of
        // them before the ring is found full, it could not send any.
        bench.device.behave(|behaviour| behaviour.sends_at_once = true);
        for sequence in 2..6 {
            assert!(bench.device.receive(&ping(sequence)));
        }
        bench.settle();
        assert_eq!(bench.count(Counter::TxRefused), 0, "{way}");
        let sent = bench.device.take_sent();
        let sent: Vec<u16> = sent.iter().map(|frame| pong_sequence(frame)).collect();
        assert_eq!(sent, [0, 1, 2, 3, 4, 5], "{way}");
        bench.assert_no_leak();
    }
}

#[test]
fn announcements_and_dumps_do_not_wait_for_a_pass() {
    let mut bench = Bench::new("quiet,async-tx,batching");
    bench.station.announce();
    assert_eq!(bench.device.take_sent().len(), 1);
    let request = Request { what: What::Counters, token: 1 };
    bench.device.receive(&datagram(PORT, &request.bytes()));
    bench.settle();
    let dump = bench.station.take_dump().expect("it waits");
    let snapshot = bench.station.snapshot(0, 0);
    assert!(bench.station.send_counters(&dump, &snapshot));
    assert_eq!(bench.device.take_sent().len(), 1);
}

#[test]
fn indirect_sends_every_frame_as_a_table_and_without_it_none() {
    for (switches, tables) in [
        ("quiet,async-tx,indirect", 9),
        ("quiet,packed,indirect", 9),
        ("quiet,icmp-in-irq,indirect", 9),
        ("quiet,async-tx,packed", 0),
        ("", 0),
    ] {
        let mut bench = Bench::new(switches);
        for sequence in 0..9 {
            bench.device.receive(&ping(sequence));
            bench.settle();
        }
        assert_eq!(bench.station.snapshot(0, 0).get(Counter::TxTables), tables, "{switches}");
        assert_eq!(bench.count(Counter::TxPackets), 9, "{switches}");
    }
}

#[test]
fn icmp_in_irq_answers_echoes_in_the_interrupt_and_leaves_the_rest_to_the_task() {
    let mut bench = Bench::new("quiet,async-tx,rx-task,icmp-in-irq");
    bench.device.receive(&ping(1));
    bench.device.receive(&datagram(7, b"later"));
    bench.station.on_interrupt();
    assert_eq!(bench.count(Counter::AnsweredInPlace), 1);
    assert_eq!((bench.count(Counter::TxPackets), bench.count(Counter::AnsweredUdp)), (1, 0));
    assert_eq!(bench.asked.receiver_wakes.get(), 1);
    bench.settle();
    assert_eq!((bench.count(Counter::TxPackets), bench.count(Counter::AnsweredUdp)), (2, 1));
    bench.assert_no_leak();
    let mut bench = Bench::new("quiet,async-tx,rx-task");
    bench.device.receive(&ping(1));
    bench.settle();
    assert_eq!(bench.count(Counter::AnsweredInPlace), 0);
}

#[test]
fn icmp_in_irq_loses_nothing_when_the_task_is_far_behind() {
    for more in ["", ",event-idx"] {
        let mut bench = Bench::new(&format!("quiet,async-tx,rx-task,icmp-in-irq{more}"));
        for _ in 0..200 {
            assert!(bench.device.receive(&datagram(7, b"wait")));
        }
        bench.station.on_interrupt();
        bench.settle();
        assert_eq!(bench.count(Counter::AnsweredUdp), 200, "{more}");
        bench.device.receive(&datagram(7, b"one more"));
        assert!(bench.device.interrupt_is_up(), "{more}: never armed again");
        bench.settle();
        bench.assert_no_leak();
    }
}

#[test]
fn full_transmit_ring_refuses_and_recovers_in_every_asynchronous_arm() {
    for arm in every_arm().filter(|arm| arm.contains("async-tx")) {
        let late = Behaviour { sends_at_once: false, ..Behaviour::default() };
        let mut bench = Bench::with(&arm, late);
        for sequence in 0..300 {
            assert!(bench.device.receive(&ping(sequence)), "{arm}: receive stalls");
            bench.settle();
        }
        assert_eq!(bench.device.owned_count(TX), 256, "{arm}");
        assert_eq!(bench.count(Counter::TxRefused), 44, "{arm}");
        assert_eq!(bench.count(Counter::TxErrors), 44, "{arm}");
        bench.device.send_waiting(|_| 0);
        bench.settle();
        for sequence in 0..300 {
            bench.device.receive(&ping(sequence));
            bench.settle();
            bench.device.send_waiting(|_| 0);
            bench.settle();
        }
        assert_eq!(bench.count(Counter::TxRefused), 44, "{arm}: it never recovers");
        bench.assert_no_leak();
    }
}

#[test]
fn interrupts_for_nothing_are_counted_and_harmless() {
    for arm in every_arm() {
        let mut bench = Bench::new(&arm);
        for _ in 0..10 {
            bench.device.raise_interrupt(1);
            bench.settle();
        }
        assert_eq!(bench.count(Counter::InterruptsIdle), 10, "{arm}");
        assert_eq!(bench.count(Counter::RxWakes), 0, "{arm}");
    }
}

#[test]
fn device_that_needs_a_reset_gets_one_and_the_station_goes_on() {
    for arm in [
        "",
        "quiet,async-tx,lazy-reap,rx-task,no-tx-interrupt,event-idx",
        "packed",
        "quiet,async-tx,rx-task,event-idx,packed,indirect,batching",
    ] {
        let mut bench = Bench::new(arm);
        bench.device.receive(&ping(1));
        bench.settle();
        bench.device.set_status(status::DEVICE_NEEDS_RESET);
        bench.device.raise_interrupt(2);
        bench.settle();
        assert_eq!(bench.count(Counter::Restarts), 1, "{arm}");
        bench.device.forge_index(0, 1000);
        bench.device.raise_interrupt(1);
        bench.settle();
        assert_eq!(bench.count(Counter::Restarts), 2, "{arm}");
        bench.device.receive(&ping(2));
        bench.settle();
        let sent = bench.device.take_sent();
        assert_eq!(sent.last().map(|frame| pong_sequence(frame)), Some(2), "{arm}");
        bench.assert_no_leak();
    }
}

#[test]
fn wrong_lengths_are_counted_and_not_answered() {
    let mut bench = Bench::new("quiet");
    for len in [0, 5, 5000] {
        let id = bench.device.take_available(0).expect("it is there");
        bench.device.complete(0, id, len);
    }
    bench.settle();
    assert_eq!((bench.count(Counter::RxErrors), bench.count(Counter::RxPackets)), (3, 0));
    assert!(bench.device.take_sent().is_empty());
    bench.assert_no_leak();
}

#[test]
fn question_for_the_counters_is_left_to_the_dumper_and_answered_with_what_is_true() {
    let mut bench = Bench::new("quiet,async-tx");
    for sequence in 0..9 {
        bench.device.receive(&ping(sequence));
        bench.settle();
    }
    let request = Request { what: What::Counters, token: 77 };
    bench.device.receive(&datagram(PORT, &request.bytes()));
    bench.settle();
    bench.device.take_sent();
    assert_eq!(bench.asked.dumper_wakes.get(), 1);
    let dump = bench.station.take_dump().expect("it waits");
    assert!(bench.station.take_dump().is_none());
    let snapshot = bench.station.snapshot(3, 4);
    assert!(bench.station.send_counters(&dump, &snapshot));
    let sent = bench.device.take_sent();
    let answer = Answer::parse(&sent[0][UDP_PAYLOAD_OFFSET..]).expect("it is whole");
    let counters = answer.counters().expect("it is about counters");
    assert_eq!((answer.request, counters), (request, snapshot));
    assert_eq!(counters.get(Counter::RxPackets), 10);
    assert_eq!(counters.get(Counter::TxPackets), 9);
    assert_eq!(counters.get(Counter::AnsweredIcmp), 9);
    assert_eq!(
        (counters.get(Counter::ContextSwitches), counters.get(Counter::InterruptsNested)),
        (3, 4)
    );
    bench.device.receive(&datagram(PORT, b"nonsense"));
    bench.settle();
    assert_eq!(bench.count(Counter::Ignored), 1);
}

#[test]
fn pin_is_toggled_per_packet_when_asked_for() {
    let (device, registers, memory) = FakeDevice::new(Behaviour::default());
    let asked = Rc::new(Asked::default());
    let parts = Parts {
        platform: FakePlatform { asked: asked.clone(), device: device.clone() },
        switches: Switches::default(),
        ip: US.ip,
        mac: None,
        gpio: true,
        counters: Box::leak(Box::new(Counters::new())),
        trace: Box::leak(Box::new(Trace::new())),
    };
    let mut station = Station::start(registers, memory, parts).expect("the device is willing");
    device.receive(&ping(1));
    station.on_interrupt();
    assert_eq!(asked.toggles.get(), 2, "once in, once out");
}
