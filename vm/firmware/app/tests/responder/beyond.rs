//! Later switches: packed rings, indirect descriptors, batches, poll mode.

use std::rc::Rc;

use app::responder::{KernelGauges, Parts};
use app::{Responder, Switches};
use telemetry::dump::{DumpKind, PORT, Request};
use telemetry::{Counter, Counters, Trace};
use virtio::StartError;
use virtio::fake::{Behaviour, FakeDevice};
use virtio::mmio::{FEATURE_EVENT_IDX, FEATURE_INDIRECT_DESC, FEATURE_RING_PACKED};

use super::bench::{Bench, FakePlatform, US, datagram, every_arm, ping, pong_sequence};

#[test]
fn features_are_negotiated_and_a_device_without_them_is_refused() {
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
        let refused = Responder::start(registers, memory, parts).err();
        assert_eq!(refused, Some(StartError::FeatureMissing { feature: name, offered }));
    }
}

/// Receive modes, in either kind of ring.
const WAYS: [&str; 6] = [
    "quiet,async-tx",
    "quiet,async-tx,rx-task",
    "quiet,async-tx,rx-task,icmp-in-irq",
    "quiet,async-tx,lazy-reap,event-idx,packed",
    "quiet,async-tx,lazy-reap,rx-task,event-idx,packed",
    "quiet,async-tx,icmp-in-irq,packed,indirect",
];

#[test]
fn batching_notifies_once_a_pass_and_without_it_for_every_frame() {
    for way in WAYS {
        for (more, times) in [("", 40), (",batching", 3)] {
            let mut bench = Bench::new(&format!("{way}{more}"));
            for sequence in 0..40 {
                assert!(bench.device.receive(&ping(sequence)));
            }
            let before = bench.responder.driver().notify_stats();
            bench.settle();
            let stats = bench.responder.driver().notify_stats();
            let shown = stats.tx_shown_count - before.tx_shown_count;
            // 40 frames are passes of 16, 16 and 8.
            assert_eq!(shown, times, "{way}{more}: answers");
            assert_eq!(stats.rx_shown_count - before.rx_shown_count, times, "{way}{more}: buffers");
            assert_eq!(
                bench.responder.snapshot(KernelGauges::default()).get(Counter::RxPasses),
                3,
                "{way}{more}"
            );
            let sent: Vec<u16> =
                bench.device.take_sent().iter().map(|frame| pong_sequence(frame)).collect();
            assert_eq!(sent, (0..40).collect::<Vec<u16>>(), "{way}{more}");
            bench.assert_no_leak();
        }
    }
}

#[test]
fn batching_does_not_change_polling_for_each_frame() {
    let mut bench = Bench::new("quiet,batching");
    for sequence in 0..40 {
        assert!(bench.device.receive(&ping(sequence)));
    }
    let before = bench.responder.driver().notify_stats();
    bench.settle();
    let stats = bench.responder.driver().notify_stats();
    assert_eq!(stats.tx_shown_count - before.tx_shown_count, 40);
    assert_eq!(stats.rx_shown_count - before.rx_shown_count, 3);
    assert_eq!(bench.count(Counter::TxPollTimeouts), 0);
}

#[test]
fn batching_rings_when_the_ring_is_full_before_it_refuses_a_frame() {
    for way in ["quiet,async-tx,batching", "quiet,async-tx,no-tx-interrupt,packed,batching"] {
        let small = Behaviour { queue_frames_max: 4, sends_at_once: false, ..Behaviour::default() };
        let mut bench = Bench::with(way, small);
        for sequence in 0..2 {
            assert!(bench.device.receive(&ping(sequence)));
        }
        bench.settle();
        assert_eq!(bench.responder.driver().tx_posted(), 2);
        // Two are with the device. Of four more, two fill the ring: unless the device is notified
        // of them before the ring is found full, it can send none.
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
    bench.responder.announce();
    assert_eq!(bench.device.take_sent().len(), 1);
    let request = Request { kind: DumpKind::Counters, token: 1 };
    bench.device.receive(&datagram(PORT, &request.bytes()));
    bench.settle();
    let dump = bench.responder.take_dump().expect("it is queued");
    let snapshot = bench.responder.snapshot(KernelGauges::default());
    assert!(bench.responder.send_counters(&dump, &snapshot));
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
        assert_eq!(
            bench.responder.snapshot(KernelGauges::default()).get(Counter::TxTables),
            tables,
            "{switches}"
        );
        assert_eq!(bench.count(Counter::TxPackets), 9, "{switches}");
    }
}

#[test]
fn poll_mode_answers_without_a_receive_interrupt() {
    for way in ["", "quiet,async-tx,no-tx-interrupt,event-idx", "async-tx,lazy-reap,packed"] {
        let mut bench = Bench::new(&format!("{way},no-tx-interrupt,poll-mode"));
        let before = bench.device.interrupt_count();
        for sequence in 0..300 {
            assert!(bench.device.receive(&ping(sequence)));
            assert!(!bench.device.interrupt_is_up(), "{way}");
            assert!(bench.responder.poll(), "{way}: one has come");
            assert!(!bench.responder.poll(), "{way}: and no other");
        }
        assert_eq!(bench.device.interrupt_count(), before, "{way}");
        assert_eq!(bench.device.take_sent().len(), 300, "{way}");
        bench.assert_no_leak();
    }
}

#[test]
fn poll_mode_stays_polled_after_a_restart() {
    let mut bench = Bench::new("quiet,async-tx,no-tx-interrupt,poll-mode");
    bench.device.set_status(virtio::mmio::status::DEVICE_NEEDS_RESET);
    bench.device.raise_interrupt(2);
    bench.settle();
    assert_eq!(bench.count(Counter::Restarts), 1);
    let before = bench.device.interrupt_count();
    assert!(bench.device.receive(&ping(1)));
    bench.settle();
    assert_eq!(bench.device.interrupt_count(), before);
    assert_eq!(bench.device.take_sent().len(), 1);
}

#[test]
fn rx_budget_ends_the_interrupt_after_a_pass_and_the_task_takes_the_rest() {
    for way in
        WAYS.into_iter().filter(|way| !way.contains("rx-task") || way.contains("icmp-in-irq"))
    {
        for (more, in_interrupt) in [("", 40), (",rx-budget", 16)] {
            let mut bench = Bench::new(&format!("{way}{more}"));
            for sequence in 0..40 {
                assert!(bench.device.receive(&ping(sequence)));
            }
            assert!(bench.device.take_edge());
            bench.responder.on_interrupt();
            assert_eq!(bench.count(Counter::RxPackets), in_interrupt, "{way}{more}");
            let handovers = u64::from(in_interrupt < 40);
            assert_eq!(bench.count(Counter::RxHandovers), handovers, "{way}{more}");
            if handovers > 0 {
                // No frame raises an interrupt until the task is done, and another interrupt leaves the
                // ring to it.
                bench.device.raise_interrupt(1);
                bench.responder.on_interrupt();
                assert!(bench.device.receive(&ping(40)));
                assert!(!bench.device.interrupt_is_up(), "{way}{more}");
                assert_eq!(bench.count(Counter::RxPackets), 16, "{way}{more}");
            } else {
                assert!(bench.device.receive(&ping(40)));
            }
            bench.settle();
            assert!(bench.device.receive(&ping(41)), "{way}{more}");
            assert!(bench.device.interrupt_is_up(), "{way}{more}: never armed again");
            bench.settle();
            let sent = bench.device.take_sent();
            let sent: Vec<u16> = sent.iter().map(|frame| pong_sequence(frame)).collect();
            assert_eq!(sent, (0..42).collect::<Vec<u16>>(), "{way}{more}");
            bench.assert_no_leak();
        }
    }
}

#[test]
fn ring_64_refuses_the_65th_frame_in_flight_and_without_it_the_257th() {
    for kind in ["", ",packed"] {
        for (more, frames) in [("", 256), (",ring-64", 64)] {
            let late = Behaviour { sends_at_once: false, ..Behaviour::default() };
            let mut bench = Bench::with(&format!("quiet,async-tx{kind}{more}"), late);
            assert_eq!(bench.responder.driver().ring_frames(), (frames, frames));
            for sequence in 0..300 {
                assert!(bench.device.receive(&ping(sequence)));
                bench.settle();
            }
            assert_eq!(bench.count(Counter::TxRefused), 300 - u64::from(frames), "{kind}{more}");
        }
    }
}

#[test]
fn no_trace_records_nothing_and_reads_no_clock() {
    for way in WAYS {
        for (more, is_traced) in [("", true), (",no-trace", false)] {
            let mut bench = Bench::new(&format!("{way}{more}"));
            for sequence in 0..40 {
                assert!(bench.device.receive(&ping(sequence)));
                bench.settle();
            }
            assert_eq!(bench.asked.clock_reads.get() > 0, is_traced, "{way}{more}");
            let snapshot = bench.responder.snapshot(KernelGauges::default());
            assert_eq!(snapshot.get(Counter::TraceRecorded) > 0, is_traced, "{way}{more}");
            assert_eq!(snapshot.get(Counter::TxPackets), 40, "{way}{more}");
        }
    }
}

#[test]
fn print_trace_counters_and_nothing_are_each_a_set_of_switches() {
    for way in WAYS.map(|way| way.trim_start_matches("quiet,")) {
        for (more, lines, is_traced, packets) in [
            ("", 80, true, 40),
            ("quiet", 0, true, 40),
            ("quiet,no-trace", 0, false, 40),
            ("quiet,no-trace,no-counters", 0, false, 0),
        ] {
            let mut bench = Bench::new(&format!("{way},{more}"));
            for sequence in 0..40 {
                assert!(bench.device.receive(&ping(sequence)));
                bench.settle();
            }
            assert_eq!(bench.device.take_sent().len(), 40, "{way},{more}");
            assert_eq!(bench.asked.printed.borrow().lines().count(), lines, "{way},{more}");
            let snapshot = bench.responder.snapshot(KernelGauges::default());
            assert_eq!(snapshot.get(Counter::TraceRecorded) > 0, is_traced, "{way},{more}");
            let counted = [
                Counter::RxPackets,
                Counter::TxPackets,
                Counter::AnsweredIcmp,
                Counter::TxReaped,
                Counter::Interrupts,
            ];
            for counter in counted {
                let is_counted = snapshot.get(counter) > 0;
                assert_eq!(is_counted, packets > 0, "{way},{more}: {}", counter.name());
            }
            assert_eq!(snapshot.get(Counter::RxPackets), packets, "{way},{more}");
            bench.assert_no_leak();
        }
    }
}

#[test]
fn no_counters_leaves_out_every_count_of_packets_and_reads_no_clock_for_one() {
    for arm in every_arm().step_by(31) {
        let mut bench = Bench::new(&format!("{arm},quiet,no-trace,no-counters"));
        for sequence in 0..40 {
            assert!(bench.device.receive(&ping(sequence)), "{arm}");
            if sequence % 7 != 0 {
                bench.settle();
            }
        }
        bench.settle();
        assert_eq!(bench.device.take_sent().len(), 40, "{arm}");
        assert_eq!(bench.asked.clock_reads.get(), 0, "{arm}");
        let snapshot = bench.responder.snapshot(KernelGauges::default());
        let counted = Counter::ALL.iter().filter(|counter| counter.is_per_packet());
        let counted: Vec<&str> =
            counted.filter(|one| snapshot.get(**one) > 0).map(|one| one.name()).collect();
        assert_eq!(counted, [""; 0], "{arm}");
    }
}

#[test]
fn no_counters_counts_errors_and_frames_refused() {
    let late = Behaviour { sends_at_once: false, ..Behaviour::default() };
    let mut bench = Bench::with("quiet,async-tx,ring-64,no-counters", late);
    for sequence in 0..70 {
        assert!(bench.device.receive(&ping(sequence)));
        bench.settle();
    }
    assert_eq!((bench.count(Counter::TxRefused), bench.count(Counter::TxErrors)), (6, 6));
    assert_eq!(bench.count(Counter::RxPackets), 0);
}
