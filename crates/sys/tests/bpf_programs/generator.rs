//! Frames from the kernel, counted at the other end.

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use wirepath_sys::bpf::{
    BpfError, DropCounter, DropCounts, DropSpec, Flows, Generator, GeneratorCounts, GeneratorMarks,
    HEAD_BYTES_MAX, Heads, PassProgram, XdpMode,
};
use wirepath_sys::clock::monotonic_ns;

use crate::lab::{Pair, Shape, can_run, ip, send_frame, udp_frame, wait_until};

const SEQUENCE_OFFSET: usize = 42;

fn counter_on(pair: &Pair, mode: XdpMode) -> DropCounter {
    let spec = DropSpec { sequence_offset: Some(SEQUENCE_OFFSET), ..DropSpec::default() };
    counter_of(spec, pair, mode)
}

fn counter_of(spec: DropSpec, pair: &Pair, mode: XdpMode) -> DropCounter {
    let index = pair.far_index;
    pair.far.run(move || {
        let mut drops = DropCounter::load(&spec).expect("load");
        drops.attach(index, mode).expect("attach");
        drops
    })
}

#[test]
fn every_frame_sent_is_counted_in_sequence_at_the_other_end() {
    if can_run() {
        count_every_frame();
    }
}

#[test]
#[ignore = "role of a child process"]
fn sends_and_counts() {
    count_every_frame();
}

#[test]
fn frames_are_counted_in_a_container_whose_processes_have_numbers_of_their_own() {
    if !can_run() || !testkit::is_installed("unshare") {
        return;
    }
    let role = testkit::role("generator::sends_and_counts");
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--mount-proc"]).arg(role.get_program()).args(role.get_args());
    let output = unshare.output().expect("unshare started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn count_every_frame() {
    for batch in [1, Generator::BATCH, Generator::BATCH_MAX] {
        let pair = Pair::new();
        let drops = counter_on(&pair, XdpMode::Native);
        let index = pair.near_index;
        let frame = udp_frame(7000, &[0; 18], Shape::default());
        let frame_bytes = frame.len() as u64;
        let generator = pair.near.run(move || {
            let mut generator = Generator::new(&frame, index, SEQUENCE_OFFSET).expect("new");
            assert_eq!(generator.next_sequence(), 0);
            // Two runs: recycled frames must get new numbers, and the numbers go on.
            generator.run(10_000, batch).expect("run");
            generator.run(777, batch).expect("run");
            generator
        });
        let counts = generator.counts();
        assert_eq!(counts.attempted, 10_777);
        assert_eq!(generator.next_sequence(), 10_777);
        let mut seen = DropCounts::default();
        wait_until(|| {
            seen = drops.counts().expect("counts");
            seen.frames == counts.sent
        });
        assert_eq!(seen.frames, counts.sent, "batch {batch}");
        assert_eq!(seen.bytes, counts.sent * frame_bytes, "batch {batch}");
        // A frame that the full ring refused leaves a gap; nothing else may.
        assert!(seen.sequence_breaks <= counts.refused(), "{seen:?} {counts:?}");
        assert!(batch > 1 || counts.refused() == 0, "{counts:?}");
    }
}

#[test]
fn the_time_of_a_run_leaves_out_the_wait_for_its_frames() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let _drops = counter_on(&pair, XdpMode::Native);
    let index = pair.near_index;
    pair.near.run(move || {
        let frame = udp_frame(7000, &[0; 18], Shape::default());
        let mut generator = Generator::new(&frame, index, SEQUENCE_OFFSET).expect("new");
        assert_eq!(generator.run(0, 64).expect("run"), Duration::ZERO);
        assert_eq!(generator.counts(), GeneratorCounts::default());
        // Both by CLOCK_MONOTONIC, one around the other: no matter how fast.
        let began = Instant::now();
        let first = generator.run(1_000, 64).expect("run");
        let (from_ns, to_ns) = generator.sent_ns();
        assert!(
            Duration::from_nanos(to_ns - from_ns) < first,
            "without the batch and the wait before it"
        );
        let before_ns = monotonic_ns();
        let second = generator.run(1_000, 64).expect("run");
        let (from_ns, to_ns) = generator.sent_ns();
        assert!(before_ns <= from_ns && to_ns <= monotonic_ns());
        assert_eq!(Duration::from_nanos(to_ns - from_ns), second);
        assert!(first > Duration::ZERO && second > Duration::ZERO);
        assert!(first + second < began.elapsed());
    });
}

#[test]
fn the_sequence_check_notices_a_missing_number() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let index = pair.near_index;
    let frame = udp_frame(7000, &[0; 18], Shape::default());
    let pass = {
        let index = pair.far_index;
        pair.far.run(move || {
            let mut pass = PassProgram::load(false).expect("load");
            pass.attach(index, XdpMode::Native).expect("attach");
            pass
        })
    };
    let mut generator = pair.near.run(move || {
        let mut generator = Generator::new(&frame, index, SEQUENCE_OFFSET).expect("new");
        // The counter is not there yet: it will see the first number as 5.
        generator.run(5, 1).expect("run");
        generator
    });
    drop(pass);
    let drops = counter_on(&pair, XdpMode::Native);
    pair.near.run(move || generator.run(5, 1).map(drop)).expect("run");
    let mut seen = DropCounts::default();
    wait_until(|| {
        seen = drops.counts().expect("counts");
        seen.frames == 5
    });
    assert_eq!((seen.frames, seen.sequence_breaks), (5, 1));
}

#[test]
fn frames_without_the_tag_are_strays_and_touch_no_count_of_the_flow() {
    if !can_run() {
        return;
    }
    const TAG: u32 = 0x1234_5678;
    let pair = Pair::new();
    let at = SEQUENCE_OFFSET + 4;
    let spec = DropSpec { sequence_offset: Some(at), tag: TAG, ..DropSpec::default() };
    let drops = counter_of(spec, &pair, XdpMode::Native);
    let index = pair.near_index;
    let mut tagged = [0; 18];
    tagged[..4].copy_from_slice(&TAG.to_be_bytes());
    pair.near.run(move || {
        for payload in [tagged, [0xee; 18]] {
            let frame = udp_frame(7000, &payload, Shape::default());
            let mut generator = Generator::new(&frame, index, SEQUENCE_OFFSET + 4).expect("new");
            generator.run(7, 1).expect("run");
        }
    });
    let mut seen = DropCounts::default();
    wait_until(|| {
        seen = drops.counts().expect("counts");
        seen.frames + seen.strays == 14
    });
    let expected =
        DropCounts { frames: 7, strays: 7, flows: 1, bytes: seen.bytes, ..DropCounts::default() };
    assert_eq!(seen, expected);
}

#[test]
fn frame_that_differs_from_both_heads_in_one_byte_is_counted() {
    if !can_run() {
        return;
    }
    let frame = udp_frame(7000, &[0; 40], Shape::default());
    let udp_head = |port| {
        let mut head = [0; HEAD_BYTES_MAX];
        head.copy_from_slice(&udp_frame(port, &[0; 40], Shape::default())[..HEAD_BYTES_MAX]);
        head
    };
    // The second byte of the destination port.
    const DIFFERS_AT: usize = 37;
    for (versions, len, malformed) in [
        ([udp_head(7000), udp_head(7000)], SEQUENCE_OFFSET, 0),
        ([udp_head(7001), udp_head(7000)], SEQUENCE_OFFSET, 0),
        ([udp_head(7000), udp_head(7001)], SEQUENCE_OFFSET, 0),
        ([udp_head(7001), udp_head(7001)], SEQUENCE_OFFSET, 7),
        ([udp_head(7001), udp_head(7001)], DIFFERS_AT + 1, 7),
        ([udp_head(7001), udp_head(7001)], DIFFERS_AT, 0),
    ] {
        let pair = Pair::new();
        let spec = DropSpec { heads: Some(Heads { versions, len }), ..DropSpec::default() };
        let drops = counter_of(spec, &pair, XdpMode::Native);
        let (index, frame) = (pair.near_index, frame.clone());
        pair.near.run(move || {
            let mut generator = Generator::new(&frame, index, SEQUENCE_OFFSET).expect("new");
            generator.run(7, 1).expect("run");
        });
        let mut seen = DropCounts::default();
        wait_until(|| {
            seen = drops.counts().expect("counts");
            seen.frames == 7
        });
        assert_eq!(seen.malformed, malformed, "{len}");
    }
}

#[test]
fn paced_frames_keep_their_rate_and_tell_how_long_they_were_on_their_way() {
    if !can_run() {
        return;
    }
    const RATE_PPS: f64 = 2_000.0;
    let pair = Pair::new();
    let stamp_at = SEQUENCE_OFFSET + 4;
    let spec = DropSpec {
        sequence_offset: Some(SEQUENCE_OFFSET),
        stamp_offset: Some(stamp_at),
        ..DropSpec::default()
    };
    let drops = counter_of(spec, &pair, XdpMode::Native);
    let index = pair.near_index;
    // The first frame goes alone, so that 98 gaps are in the longer part; none is shorter.
    let paced_s_min = 97.0 / RATE_PPS;
    let frame_count = pair.near.run(move || {
        let frame = udp_frame(7000, &[0; 18], Shape::default());
        let stamped = |at| {
            let marks = GeneratorMarks { stamp_offset: Some(at), ..GeneratorMarks::default() };
            Generator::of_marks(&frame, index, SEQUENCE_OFFSET, &marks)
        };
        let mut generator = stamped(stamp_at).expect("new");
        generator.set_rate(RATE_PPS);
        let took = generator.run(100, 1).expect("run");
        assert!(took.as_secs_f64() >= paced_s_min, "{took:?}");
        assert!(stamped(frame.len() - 7).is_err());
        // Full speed again without a rate: a paced run can never be this short, and a busy machine
        // stretches some runs only.
        generator.set_rate(0.0);
        let mut frame_count = 100;
        let is_fast = (0..20).any(|_| {
            frame_count += 100;
            generator.run(100, 1).expect("run").as_secs_f64() < paced_s_min
        });
        assert!(is_fast, "20 runs without a rate were paced");
        frame_count
    });
    wait_until(|| drops.counts().expect("counts").frames == frame_count);
    let delays = drops.delays().expect("delays");
    assert_eq!(delays.frame_count(), frame_count);
    let half_ns = delays.quantile_ns(0.5).expect("there are some");
    assert!((1..1_000_000_000).contains(&half_ns), "{half_ns}");
    assert!(delays.quantile_ns(1.0) >= Some(half_ns));
}

#[test]
fn flows_and_lengths_take_turns_and_the_stack_accepts_each_datagram() {
    if !can_run() {
        return;
    }
    const LENGTHS: [u16; 3] = [60, 590, 1514];
    let pair = Pair::new();
    let (near, far) = (pair.near_index, pair.far_index);
    let (socket, _pass) = pair.far.run(move || {
        let socket = UdpSocket::bind("10.9.0.2:7000").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
        let mut pass = PassProgram::load(false).expect("load");
        pass.attach(far, XdpMode::Native).expect("attach");
        (socket, pass)
    });
    pair.near.run(move || {
        let frame = udp_frame(7000, &[0; 1472], Shape::default());
        let flows = Some(Flows { count: 4, offset: SEQUENCE_OFFSET + 4, port: 5000 });
        let marks =
            GeneratorMarks { flows, lengths: LENGTHS.to_vec(), ..GeneratorMarks::default() };
        let mut generator =
            Generator::of_marks(&frame, near, SEQUENCE_OFFSET, &marks).expect("new");
        // Recycled frames too.
        for _ in 0..3 {
            generator.run(12, 4).expect("run");
        }
    });
    let mut seen: Vec<(u32, u8, u16, usize)> = (0..36)
        .map(|_| {
            let mut payload = [0; 2048];
            let (bytes, from) = socket.recv_from(&mut payload).expect("a datagram");
            let number = u32::from_be_bytes(payload[..4].try_into().expect("four bytes"));
            (number, payload[4], from.port(), bytes)
        })
        .collect();
    seen.sort_unstable();
    for (number, seen) in (0..36_u32).zip(seen) {
        let flow = number % 4;
        let bytes = usize::from(LENGTHS[number as usize % 3]) - 42;
        assert_eq!(seen, (number, flow as u8, 5000 + flow as u16, bytes));
    }
}

#[test]
fn order_is_counted_within_each_flow() {
    if !can_run() {
        return;
    }
    const FLOW_AT: usize = SEQUENCE_OFFSET + 4;
    let pair = Pair::new();
    let index = pair.far_index;
    let counters = [Some(FLOW_AT), None].map(|flow_offset| {
        pair.far.run(move || {
            let sequence_offset = Some(SEQUENCE_OFFSET);
            let spec = DropSpec { sequence_offset, flow_offset, ..DropSpec::default() };
            DropCounter::load(&spec).expect("load")
        })
    });
    // Number and flow: 7 is late over all, and in order within its flow; 4 is late in both.
    let frames = [(5_u32, 0_u8), (9, 1), (7, 0), (4, 0)];
    for (mut drops, (reordered, flows)) in counters.into_iter().zip([(1, 2), (2, 1)]) {
        let drops = pair.far.run(move || {
            drops.attach(index, XdpMode::Native).expect("attach");
            drops
        });
        let near = pair.near_index;
        pair.near.run(move || {
            for (number, flow) in frames {
                let payload = [&number.to_be_bytes()[..], &[flow], &[0; 13]].concat();
                send_frame(near, &udp_frame(7000, &payload, Shape::default()));
            }
        });
        let mut seen = DropCounts::default();
        wait_until(|| {
            seen = drops.counts().expect("counts");
            seen.frames == 4
        });
        assert_eq!((seen.frames, seen.reordered, seen.flows), (4, reordered, flows), "{seen:?}");
    }
}

#[test]
fn a_peer_with_neither_xdp_nor_gro_is_refused_at_once_with_the_remedy() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let index = pair.near_index;
    let frame = udp_frame(7000, &[0; 18], Shape::default());
    pair.near.run(move || {
        let mut generator = Generator::new(&frame, index, SEQUENCE_OFFSET).expect("new");
        let refused = generator.run(1_000_000, 64).expect_err("the peer does not poll");
        assert!(matches!(refused, BpfError::TargetRefuses { .. }), "{refused:?}");
        assert!(refused.to_string().contains("near (index"), "{refused}");
        assert!(refused.to_string().contains("gro on"), "{refused}");
        // Noticed after one batch.
        assert_eq!(generator.counts().attempted, 64);
        assert_eq!(generator.counts().refused(), 64);
    });
}

#[test]
fn a_target_that_is_down_is_refused() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let _drops = counter_on(&pair, XdpMode::Native);
    let index = pair.near_index;
    let frame = udp_frame(7000, &[0; 18], Shape::default());
    pair.near.run(move || {
        ip("link set near down");
        let mut generator = Generator::new(&frame, index, SEQUENCE_OFFSET).expect("new");
        let refused = generator.run(1_000, 64).expect_err("down");
        assert!(matches!(refused, BpfError::TargetRefuses { .. }), "{refused:?}");
    });
}

#[test]
fn senseless_parameters_are_refused() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let index = pair.near_index;
    pair.near.run(move || {
        let frame = udp_frame(7000, &[0; 18], Shape::default());
        for (template, offset) in [(&frame[..45], 42), (&frame[..10], 0), (&frame[..], usize::MAX)]
        {
            let refused = Generator::new(template, index, offset).expect_err("does not fit");
            assert!(matches!(refused, BpfError::Invalid { .. }), "{refused:?}");
        }
        let refused = Generator::new(&frame, 4_000, 42).expect_err("nothing there");
        assert!(matches!(refused, BpfError::NoInterface { .. }), "{refused:?}");

        let refused = |marks: GeneratorMarks| {
            let refused = Generator::of_marks(&frame, index, 42, &marks).expect_err("does not fit");
            assert!(matches!(refused, BpfError::Invalid { .. }), "{refused:?}");
        };
        for lengths in [vec![45], vec![61], vec![60; 17]] {
            refused(GeneratorMarks { lengths, ..GeneratorMarks::default() });
        }
        for (count, offset, port) in [(0, 46, 5000), (257, 46, 5000), (2, 60, 5000), (2, 46, 65535)]
        {
            let flows = Some(Flows { count, offset, port });
            refused(GeneratorMarks { flows, ..GeneratorMarks::default() });
        }

        let mut generator = Generator::new(&frame, index, 42).expect("new");
        for batch in [0, 257] {
            let refused = generator.run(1, batch).expect_err("no such batch");
            assert!(matches!(refused, BpfError::Invalid { .. }), "{refused:?}");
        }
        let long = vec![0; 4_096];
        let mut generator = Generator::new(&long, index, 42).expect("new");
        let refused = generator.run(1, 1).expect_err("longer than a page");
        assert!(matches!(refused, BpfError::Run { .. }), "{refused:?}");
    });
}
