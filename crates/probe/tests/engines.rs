//! Every pair of engines exchanges datagrams at every size and on several queues, with checksums
//! that the kernel accepts.

mod common;

use std::sync::atomic::Ordering;

use common::{
    FAR_PORT, NEAR_PORT, Running, alone, at_once, counter, engines, local, packet, remote, run,
    session, sleeps, tasks, udp, until, xdp,
};
use io::{
    Arrival, Copying, Engine, EngineReport, EngineSpec, RING_ENTRIES, Role, Setup,
    UNALIGNED_FRAME_BYTES, Wait, XdpEngine, XdpMode,
};
use lab::{Pair, PairSpec};
use testkit::engines::udp_counters;
use wire::probe::Header;
use wirepath_probe::role::{Pace, RoleReport, Task};

fn pair_with(mtu_bytes: u32) -> Pair {
    Pair::new(&PairSpec { mtu_bytes, ..PairSpec::default() }).expect("a lab")
}

/// A run with different engines at the two ends.
fn between(
    pair: &Pair,
    near: &EngineSpec,
    far: &EngineSpec,
    load: (Role, Pace, u64),
    payload_bytes: usize,
) -> Result<(RoleReport, RoleReport), String> {
    let (role, pace, count) = load;
    let (near_task, far_task) = tasks(role, near, pace, payload_bytes, Some(count));
    let far_task = Task { engine: far.clone(), ..far_task };
    run(&pair.near, &pair.far, &near_task, &far_task)
}

/// The far end received no more than was sent, without duplicates, reordering or strays.
#[track_caller]
fn adds_up(what: &str, sent: &RoleReport, at: &RoleReport) {
    let arrived = at.arrived;
    assert!(arrived.received_count <= sent.sent_count, "{what}: {arrived:?}");
    assert_eq!(arrived.duplicated_count, Some(0), "{what}: {arrived:?}");
    assert_eq!(arrived.reordered_count, 0, "{what}: {arrived:?}");
    assert_eq!((at.stray_count, at.too_old_count), (0, 0), "{what}");
    for report in [sent, at] {
        let ledger = report.engine.ledger;
        assert!(ledger.is_none_or(|l| l.balances()), "{what}: {ledger:?}");
    }
}

/// No datagram is lost when only one is in flight at a time.
#[track_caller]
fn pings_lose_nothing(
    what: &str,
    pair: &Pair,
    near: &EngineSpec,
    far: &EngineSpec,
    size: usize,
    count: u64,
) {
    let (pinged, echoed) =
        between(pair, near, far, (Role::Ping, Pace::PingPong, count), size).expect(what);
    adds_up(what, &pinged, &echoed);
    adds_up(what, &echoed, &pinged);
    assert_eq!(pinged.sent_count, count, "{what}");
    assert_eq!(echoed.arrived.received_count, count, "{what}");
    assert_eq!(echoed.sent_count, count, "{what}");
    assert_eq!(pinged.arrived.received_count, count, "{what}");
    assert_eq!(pinged.segments["rtt"].len(), count, "{what}");
    assert_eq!(pinged.throughput.payload_bytes, count * size as u64, "{what}");
}

/// Ways to receive on the same sockets: they run with the plain ones, and with themselves.
fn is_way_to_receive(name: &str) -> bool {
    name.contains("epoll") || name.contains("io_uring")
}

#[test]
fn every_pair_of_engines_exchanges_datagrams() {
    let _alone = alone();
    // The sending host segments, as a NIC would: a veth with segmentation offload passes GSO
    // bundles whole, and an engine that bypasses the stack would receive them as one frame.
    fn lab() -> Pair {
        Pair::new(&PairSpec { tso: false, ..PairSpec::default() }).expect("a lab")
    }
    let all = engines();
    let both = all.iter().flat_map(|near| all.iter().map(move |far| [near, far]));
    let pairs: Vec<_> = both
        .filter(|ends| {
            let names = ends.map(|(name, _)| *name);
            names[0] == names[1]
                || names.contains(&"udp")
                || !names.into_iter().any(is_way_to_receive)
        })
        .collect();
    at_once(
        &pairs,
        |ends| ends.iter().all(|end| sleeps(end)),
        lab,
        |pair, [(near_name, near), (far_name, far)]| {
            let what = format!("{near_name} to {far_name}");
            pings_lose_nothing(&what, pair, near, far, 64, 200);
        },
    );
    // Later: a flood fills the queue that a CPU has for all labs. No number of datagrams has to arrive.
    at_once(
        &pairs,
        |_| true,
        lab,
        |pair, [(near_name, near), (far_name, far)]| {
            let what = format!("{near_name} to {far_name}");
            let flood = (Role::Send, Pace::Flood, 20_000);
            let (sent, received) = between(pair, near, far, flood, 64).expect(&what);
            assert_eq!(sent.sent_count, 20_000, "{what}");
            adds_up(&what, &sent, &received);
            assert!(received.arrived.received_count > 0, "{what}: nothing arrived");
            let bytes = received.arrived.received_count * 64;
            assert_eq!(received.throughput.payload_bytes, bytes, "{what}");
        },
    );
}

#[test]
fn every_engine_carries_every_size() {
    let _alone = alone();
    at_once(
        &engines(),
        sleeps,
        || pair_with(1500),
        |pair, (name, engine)| {
            for size in [24, 25, 64, 1460, 1472] {
                let what = format!("{name}, {size} bytes");
                pings_lose_nothing(&what, pair, engine, engine, size, 50);
                pings_lose_nothing(&what, pair, &udp(), engine, size, 50);
                pings_lose_nothing(&what, pair, engine, &udp(), size, 50);
            }
        },
    );
}

#[test]
fn jumbo_datagrams_arrive_whole() {
    let _alone = alone();
    let [skb, native] = [XdpMode::Skb, XdpMode::Native]
        .map(|mode| EngineSpec { multi_buffer: true, ..xdp(mode, Wait::Block, 1) });
    let all = [
        ("udp", udp()),
        ("packet", packet()),
        ("xdp skb, multi-buffer", skb),
        ("xdp native, multi-buffer", native),
    ];
    at_once(
        &all,
        sleeps,
        || pair_with(9000),
        |pair, (near_name, near)| {
            for (far_name, far) in &all {
                for size in [1473, 4000, 8972] {
                    let what = format!("{near_name} to {far_name}, {size} bytes");
                    pings_lose_nothing(&what, pair, near, far, size, 50);
                }
            }
        },
    );
}

#[test]
fn the_kernel_accepts_every_checksum() {
    let _alone = alone();
    at_once(
        &engines(),
        sleeps,
        || (),
        |(), (name, engine)| {
            let pair = pair_with(1500);
            // Kernel sockets receive frames built by the engine, and the engine echoes frames built by
            // the kernel; sizes with and without a padding byte.
            for size in [24, 63, 64, 1472] {
                let what = format!("{name}, {size} bytes");
                pings_lose_nothing(&what, &pair, engine, &udp(), size, 50);
                pings_lose_nothing(&what, &pair, &udp(), engine, size, 50);
            }
            for end in [&pair.near, &pair.far] {
                let counted = udp_counters(end);
                assert_eq!(counted["InCsumErrors"], 0, "{name}: {counted:?}");
                assert!(
                    counted["InDatagrams"] >= 200,
                    "{name}: too few datagrams counted: {counted:?}"
                );
            }
        },
    );
}

#[test]
fn checksums_written_by_the_engine_are_valid_on_the_wire() {
    let _alone = alone();
    use std::time::Duration;
    use wire::frame::{UdpChecksum, verify_checksums};
    for (name, engine) in [
        ("packet", packet()),
        ("xdp skb", xdp(XdpMode::Skb, Wait::Block, 1)),
        ("xdp native", xdp(XdpMode::Native, Wait::Block, 1)),
    ] {
        let pair = pair_with(1500);
        for size in [24, 25, 64, 1471] {
            let opened =
                pair.far.run(|| sys::packet::PacketRx::open(pair.far.ifindex, FAR_PORT, 1 << 20));
            let mut wiretap = opened.expect("the far end").expect("a packet socket");
            // Only the tap receives; no socket is bound to the port.
            let (near, _) = tasks(Role::Send, &engine, Pace::Rate(10_000), size, Some(100));
            let (from, to) = (local(&pair.near, NEAR_PORT), remote(&pair.far, FAR_PORT));
            let sent = Running::start(&pair.near, from, Some(to), near).expect(name).join();
            assert_eq!(sent.ran.expect(name).sent_count, 100);
            let mut seen = 0;
            let all = until(|| {
                let _ = wiretap.wait(Duration::from_millis(1));
                seen += wiretap.take(100, |frame, _, _| {
                    assert_eq!(frame.len(), 42 + size, "{name}");
                    let verified = verify_checksums(frame).expect(name);
                    assert_eq!(verified, UdpChecksum::Valid, "{name}, {size} bytes");
                });
                seen >= 100
            });
            assert!(all && seen == 100, "{name}, {size} bytes: the tap received {seen}");
        }
    }
}

#[test]
fn datagrams_of_a_vlan_cross_with_its_tag_and_their_echoes_return_with_it() {
    let _alone = alone();
    const COUNT: u64 = 50;
    for ipv6 in [false, true] {
        let pair = Pair::new(&PairSpec { ipv6, ..PairSpec::default() }).expect("a lab");
        for mode in [XdpMode::Skb, XdpMode::Native] {
            let spec = xdp(mode, Wait::Block, 1);
            // Tags of the near and of the far end, and the datagrams that the near one and the far one get without.
            for (near, far, untagged) in [
                (Some(0x6007), Some(7), [0, 0]),
                (Some(0x6007), None, [0, 0]),
                (None, Some(7), [0, COUNT]),
            ] {
                let what = format!("{mode:?}, IPv6 {ipv6}: {near:?} to {far:?}");
                let [near, far] =
                    [near, far].map(|vlan_tag| EngineSpec { vlan_tag, ..spec.clone() });
                let load = (Role::Ping, Pace::PingPong, COUNT);
                let (pinged, echoed) = between(&pair, &near, &far, load, 64).expect(&what);
                for (report, untagged) in [&pinged, &echoed].into_iter().zip(untagged) {
                    assert_eq!(report.arrived.received_count, COUNT, "{what}");
                    assert_eq!(counter(report, "xdp_redirected_count"), COUNT, "{what}");
                    assert_eq!(counter(report, "xdp_untagged_count"), untagged, "{what}");
                    assert!(report.engine.ledger.is_some_and(|l| l.balances()), "{what}");
                }
            }
            let load = (Role::Send, Pace::Rate(1000), COUNT);
            let [near, far] = [7, 8].map(|tag| EngineSpec { vlan_tag: Some(tag), ..spec.clone() });
            let (sent, other) = between(&pair, &near, &far, load, 64).expect("it runs");
            let counts = (sent.sent_count, other.arrived.received_count);
            assert_eq!(counts, (COUNT, 0), "{mode:?}, IPv6 {ipv6}: another VLAN");
        }
    }
}

#[test]
fn queues_that_share_a_umem_lose_no_datagram() {
    let _alone = alone();
    const FLOWS: usize = 32;
    const COUNT: u64 = 3_200;
    for mode in [XdpMode::Skb, XdpMode::Native] {
        let pair = Pair::new(&PairSpec { queues: 2, ..PairSpec::default() }).expect("a lab");
        // One thread polls both: it must not sleep on one queue while the other fills.
        let spec = xdp(mode, Wait::Spin, 64);
        let opened = pair.far.run(|| {
            let at = local(&pair.far, FAR_PORT);
            XdpEngine::open_port(&Setup::receive(&spec, &at, 64), 0..2)
        });
        let mut port = opened.expect("the far end").expect("both queues");
        assert_eq!(port.len(), 2);
        // The kernel spreads its own sockets' flows over a veth's queues by their hash.
        let (near, _) = tasks(Role::Send, &udp(), Pace::Rate(20_000), 64, Some(COUNT));
        let near = Task { flows: FLOWS, ..near };
        let wanted = near.session;
        let (from, to) = (local(&pair.near, NEAR_PORT), remote(&pair.far, FAR_PORT));
        let sending = Running::start(&pair.near, from, Some(to), near).expect("the near end");
        let mut arrived = [vec![0_u32; FLOWS], vec![0_u32; FLOWS]];
        let all = until(|| {
            for (engine, arrived) in port.iter_mut().zip(&mut arrived) {
                let taken = engine.rx_take(&mut |arrival: Arrival<'_>| {
                    let header = Header::parse(arrival.payload).expect("a probe datagram");
                    assert_eq!(Some(header.session), wanted);
                    arrived[usize::from(header.flow)] += 1;
                });
                taken.expect("open");
            }
            arrived.iter().flatten().map(|n| u64::from(*n)).sum::<u64>() >= COUNT
        });
        let sent = sending.join().ran.expect("the near end");
        assert_eq!(sent.sent_count, COUNT);
        assert!(all, "{mode:?}: {arrived:?}");
        for flow in 0..FLOWS {
            let per_queue = [arrived[0][flow], arrived[1][flow]];
            let each = COUNT as u32 / FLOWS as u32;
            assert_eq!(per_queue.iter().sum::<u32>(), each, "{mode:?}, flow {flow}: {arrived:?}");
            assert!(per_queue.contains(&0), "{mode:?}: flow {flow} changed queues: {arrived:?}");
        }
        // A veth records the queue of a packet only for native XDP; in SKB mode all belong to the
        // first queue.
        let used = arrived.iter().filter(|queue| queue.iter().any(|n| *n > 0)).count();
        assert_eq!(used, if mode == XdpMode::Native { 2 } else { 1 }, "{mode:?}: {arrived:?}");
        for (n, engine) in port.iter_mut().enumerate() {
            let report = engine.finish();
            let ledger = report.ledger.expect("a ledger");
            assert!(ledger.balances(), "{mode:?}: {ledger:?}");
            assert_eq!(ledger.frame_count, u64::from(spec.frames));
            let missed = report.counters.iter().find(|(n, _)| n == "xdp_map_missed_count");
            // The program is shared: the first engine reports about it.
            assert_eq!(missed.map(|(_, n)| *n), (n == 0).then_some(0), "{mode:?}");
        }
    }
}

#[test]
fn flows_are_accounted_for_separately() {
    let _alone = alone();
    let pair = pair_with(1500);
    for (name, engine) in engines() {
        let (near, far) = tasks(Role::Send, &engine, Pace::Rate(10_000), 64, Some(800));
        let (near, far) = (Task { flows: 8, ..near }, Task { flows: 8, ..far });
        let (sent, received) = run(&pair.near, &pair.far, &near, &far).expect(name);
        adds_up(name, &sent, &received);
        assert_eq!(received.arrived.received_count, 800, "{name}");
        assert_eq!(received.expected_count, 800, "{name}");
    }
}

#[test]
fn datagrams_of_another_run_are_counted_only_as_strays() {
    let _alone = alone();
    let pair = pair_with(1500);
    for (name, engine) in engines() {
        let (near, far) = tasks(Role::Send, &engine, Pace::Rate(10_000), 64, Some(100));
        let far = Task { session: Some(session()), ..far };
        let (sent, received) = run(&pair.near, &pair.far, &near, &far).expect(name);
        assert_eq!(sent.sent_count, 100, "{name}");
        assert_eq!(received.stray_count, 100, "{name}");
        assert_eq!(counter(&received, "stray_count"), 100, "{name}");
        assert_eq!(received.arrived.received_count, 0, "{name}");
    }
}

#[test]
fn an_end_without_a_session_accepts_any_sender() {
    let _alone = alone();
    let pair = pair_with(1500);
    for (name, engine) in engines() {
        let (_, far) = tasks(Role::Send, &engine, Pace::Flood, 64, None);
        let far = Task { session: None, ..far };
        let at = local(&pair.far, FAR_PORT);
        let receiving = Running::start(&pair.far, at, None, far).expect(name);
        let mut total = 0;
        for count in [300, 100] {
            let (near, _) = tasks(Role::Send, &engine, Pace::Rate(10_000), 64, Some(count));
            let (from, to) = (local(&pair.near, NEAR_PORT), remote(&pair.far, FAR_PORT));
            let sent = Running::start(&pair.near, from, Some(to), near).expect(name).join();
            assert_eq!(sent.ran.expect(name).sent_count, count, "{name}");
            total += count;
            let seen = || receiving.live.received_count.load(Ordering::Relaxed);
            assert!(until(|| seen() == total), "{name}: received {} of {total}", seen());
        }
        let received = receiving.stop().ran.expect(name);
        // The report covers the second sender only.
        assert_eq!(received.arrived.received_count, 100, "{name}");
        assert_eq!(received.stray_count, 0, "{name}");
    }
}

/// Unaligned frames of a size, in rings of four times the length.
fn unaligned(spec: EngineSpec, frame_bytes: u32) -> EngineSpec {
    let ring_entries = Some(4 * RING_ENTRIES);
    EngineSpec { unaligned_chunks: true, frame_bytes, ring_entries, frames: 16_384, ..spec }
}

fn without_effect(report: &EngineReport) -> Vec<&str> {
    report.not_effective.iter().map(|(switch, _)| switch.as_str()).collect()
}

#[test]
fn unaligned_frames_carry_every_size_and_their_addresses_have_offsets() {
    let _alone = alone();
    // Native mode without fragments is refused above a page.
    let (pair, large) = (pair_with(1500), pair_with(9000));
    for mode in [XdpMode::Skb, XdpMode::Native] {
        for (size, frame_bytes) in
            [(24, 2112), (64, 2048), (1472, 2112), (1000, 3008), (1472, 4032)]
        {
            let spec = unaligned(xdp(mode, Wait::Block, 64), frame_bytes);
            let what = format!("{mode:?}, {size} bytes in {frame_bytes}");
            pings_lose_nothing(&what, &pair, &spec, &spec, size, 50);
            pings_lose_nothing(&what, &pair, &udp(), &spec, size, 50);
        }
        // Packets of several frames.
        let jumbo = EngineSpec {
            multi_buffer: true,
            ..unaligned(xdp(mode, Wait::Block, 1), UNALIGNED_FRAME_BYTES)
        };
        pings_lose_nothing(&format!("{mode:?}, jumbo"), &large, &jumbo, &jumbo, 8972, 50);
        let spec = unaligned(xdp(mode, Wait::Block, 64), UNALIGNED_FRAME_BYTES);
        let load = (Role::Send, Pace::Flood, 20_000);
        let (sent, received) = between(&pair, &spec, &spec, load, 64).expect("a flood");
        adds_up("unaligned flood", &sent, &received);
        assert_eq!(counter(&received, "xdp_rx_invalid_count"), 0);
        assert_eq!(counter(&sent, "xdp_tx_invalid_count"), 0);
        assert!(!without_effect(&received.engine).contains(&"unaligned-chunks"));
        let umem = received.engine.mode.iter().find(|(name, _)| name == "umem");
        assert_eq!(umem.expect("a mode").1, "unaligned, pages, rings of 8192");
    }
    let spec = EngineSpec {
        copying: Copying::PreferZeroCopy,
        ..unaligned(xdp(XdpMode::Native, Wait::Block, 1), 2112)
    };
    testkit::engines::refused(testkit::engines::open_far(&pair, &spec), &["without zero-copy"]);
}

#[test]
fn a_long_ring_has_an_effect_only_if_more_waits_than_a_short_one_holds() {
    let _alone = alone();
    let pair = pair_with(1500);
    for (count, effective) in [(500, false), (3_000, true)] {
        let spec = unaligned(xdp(XdpMode::Native, Wait::Spin, 64), UNALIGNED_FRAME_BYTES);
        let at = local(&pair.far, FAR_PORT);
        let opened = pair.far.run(|| XdpEngine::open_port(&Setup::receive(&spec, &at, 64), 0..1));
        let mut port = opened.expect("the far end").expect("a queue");
        let (near, _) = tasks(Role::Send, &udp(), Pace::Rate(50_000), 64, Some(count));
        let (from, to) = (local(&pair.near, NEAR_PORT), remote(&pair.far, FAR_PORT));
        let sending = Running::start(&pair.near, from, Some(to), near).expect("the near end");
        assert_eq!(sending.join().ran.expect("sent").sent_count, count);
        let mut taken = 0;
        let all = until(|| {
            taken += port[0].rx_take(&mut |_: Arrival<'_>| {}).expect("open");
            taken as u64 >= count
        });
        assert!(all, "{taken} of {count} arrived");
        let report = port[0].finish();
        let none = without_effect(&report);
        assert_eq!(!none.contains(&"big-rings"), effective, "{count}: {report:?}");
        assert!(report.ledger.expect("a ledger").balances());
    }
}

/// Never changes the machine: without reserved pages the refusal is the result.
#[test]
fn huge_pages_hold_the_umem_or_are_refused_with_the_way_to_reserve_them() {
    let _alone = alone();
    let pair = pair_with(1500);
    let spec = EngineSpec { huge_pages: true, ..xdp(XdpMode::Native, Wait::Block, 1) };
    match testkit::engines::open_far(&pair, &spec) {
        Ok(engine) => {
            drop(engine);
            pings_lose_nothing("huge pages", &pair, &spec, &spec, 64, 50);
        }
        Err(why) => {
            let parts = ["8388608 bytes needs 4 free huge pages", "nr_hugepages"];
            testkit::engines::says(&why, &parts);
        }
    }
}
