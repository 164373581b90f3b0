//! Effect of each switch, on a fake device in plain memory.

mod bench;
mod beyond;
mod start;

use std::rc::Rc;

use app::responder::{KernelGauges, POLL_TURNS_MAX, Parts};
use app::{Responder, Switches};
use bench::*;
use net::UDP_PAYLOAD_OFFSET;
use telemetry::dump::{Answer, DumpKind, PORT, Request};
use telemetry::{Counter, Counters, Trace};
use virtio::fake::{Behaviour, FakeDevice, TX};
use virtio::mmio::status;

#[test]
fn every_arm_answers_everything_and_its_counters_add_up() {
    for arm in every_arm() {
        let mut bench = Bench::new(&arm);
        let mut expected = Vec::new();
        for sequence in 0..300 {
            assert!(bench.device.receive(&ping(sequence)), "{arm}: the ring is dry");
            expected.push(sequence);
            // Sometimes several frames wait at once.
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
    for arm in every_arm().step_by(3) {
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
    bench.responder.on_interrupt();
    assert_eq!((bench.asked.delays.get(), bench.asked.delayed_us.get()), (5, 50));
    assert_eq!((bench.count(Counter::TxReaped), bench.count(Counter::TxPolled)), (1, 1));
    let mut bench = Bench::with("quiet,async-tx", late);
    bench.device.receive(&ping(1));
    bench.responder.on_interrupt();
    assert_eq!((bench.asked.delays.get(), bench.responder.driver().tx_posted()), (0, 1));
}

#[test]
fn trap_10_poll_that_times_out_leaves_the_frame_to_the_device() {
    let mut bench =
        Bench::with("quiet", Behaviour { sends_at_once: false, ..Behaviour::default() });
    bench.device.receive(&ping(1));
    bench.responder.on_interrupt();
    assert_eq!(bench.asked.delays.get(), POLL_TURNS_MAX);
    assert_eq!(bench.count(Counter::TxPollTimeouts), 1);
    assert_eq!(bench.count(Counter::TxErrors), 1);
    // A second send gets another frame; both go out unchanged.
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
fn no_tx_interrupt_silences_the_device_about_frames_sent() {
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
fn rx_task_handles_frames_in_the_task_and_without_it_the_interrupt_does() {
    let mut bench = Bench::new("quiet,rx-task");
    bench.device.receive(&ping(1));
    bench.responder.on_interrupt();
    assert_eq!((bench.count(Counter::RxPackets), bench.asked.receiver_wakes.get()), (0, 1));
    bench.settle();
    assert_eq!(bench.count(Counter::TxPackets), 1);
    let mut bench = Bench::new("quiet");
    bench.device.receive(&ping(1));
    bench.responder.on_interrupt();
    assert_eq!((bench.count(Counter::TxPackets), bench.asked.receiver_wakes.get()), (1, 0));
}

#[test]
fn rx_task_is_not_interrupted_while_it_runs() {
    for switches in ["quiet,rx-task", "quiet,rx-task,event-idx"] {
        let mut bench = Bench::new(switches);
        bench.device.receive(&ping(0));
        bench.responder.on_interrupt();
        let before = bench.device.interrupt_count();
        for sequence in 1..10 {
            bench.device.receive(&ping(sequence));
        }
        assert_eq!(bench.device.interrupt_count(), before, "{switches}");
        bench.settle();
        assert_eq!(bench.count(Counter::TxPackets), 10, "{switches}");
        // And enabled again afterwards.
        bench.device.receive(&ping(10));
        assert!(bench.device.interrupt_is_up(), "{switches}");
    }
}

#[test]
fn icmp_in_irq_answers_echoes_in_the_interrupt_and_leaves_the_rest_to_the_task() {
    let mut bench = Bench::new("quiet,async-tx,rx-task,icmp-in-irq");
    bench.device.receive(&ping(1));
    bench.device.receive(&datagram(7, b"later"));
    bench.responder.on_interrupt();
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
        bench.responder.on_interrupt();
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
    for arm in every_arm().filter(|arm| arm.contains("async-tx")).step_by(3) {
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
fn spurious_interrupts_are_counted_and_harmless() {
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
fn device_that_needs_a_reset_gets_one_and_the_responder_continues() {
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
fn invalid_lengths_are_counted_and_not_answered() {
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
fn request_for_counters_is_left_to_the_dump_task_and_answered_correctly() {
    let mut bench = Bench::new("quiet,async-tx");
    for sequence in 0..9 {
        bench.device.receive(&ping(sequence));
        bench.settle();
    }
    let request = Request { kind: DumpKind::Counters, token: 77 };
    bench.device.receive(&datagram(PORT, &request.bytes()));
    bench.settle();
    bench.device.take_sent();
    assert_eq!(bench.asked.dumper_wakes.get(), 1);
    let dump = bench.responder.take_dump().expect("it is queued");
    assert!(bench.responder.take_dump().is_none());
    let snapshot = bench.responder.snapshot(KernelGauges {
        context_switches: 3,
        interrupts_nested: 4,
        ticks: 5,
        ticks_missed: 6,
        tick_late_ns_max: 7,
    });
    assert!(bench.responder.send_counters(&dump, &snapshot));
    let sent = bench.device.take_sent();
    let answer = Answer::parse(&sent[0][UDP_PAYLOAD_OFFSET..]).expect("it is whole");
    let counters = answer.counters().expect("it is about counters");
    assert_eq!((answer.request, counters), (request, snapshot));
    assert_eq!(counters.get(Counter::RxPackets), 10);
    assert_eq!(counters.get(Counter::TxPackets), 9);
    assert_eq!(counters.get(Counter::AnsweredIcmp), 9);
    let of_kernel = [
        Counter::ContextSwitches,
        Counter::InterruptsNested,
        Counter::Ticks,
        Counter::TicksMissed,
        Counter::TickLateNsMax,
    ];
    assert_eq!(of_kernel.map(|gauge| counters.get(gauge)), [3, 4, 5, 6, 7]);
    bench.device.receive(&datagram(PORT, b"nonsense"));
    bench.settle();
    assert_eq!(bench.count(Counter::Ignored), 1);
}

#[test]
fn pin_is_toggled_per_packet_if_configured() {
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
    let mut responder = Responder::start(registers, memory, parts).expect("the device starts");
    device.receive(&ping(1));
    responder.on_interrupt();
    assert_eq!(asked.toggles.get(), 2, "once in, once out");
}
