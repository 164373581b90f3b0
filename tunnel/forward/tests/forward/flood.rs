//! Flooded frames under limits: every copy counts.

use sys::packet::PacketTx;

use super::*;

const SENDER: [u8; 6] = [0x02, 0xaa, 0xbb, 0xcc, 0, 1];
/// With the headers of VXLAN and the overhead, 1,000 bytes.
const FRAME_BYTES: usize = 1000 - 50 - OVERHEAD_BYTES as usize;
const OVERHEAD_BYTES: u16 = 24;
const TUNNELS: u16 = 3;
const COUNT: u64 = 60;
const PASS_TIMEOUT: Duration = Duration::from_secs(30);
/// Nothing is gained during a test: 60 bytes an hour.
const NO_BITS_PER_S: u64 = 1;

/// Two more tunnels of the network, without devices behind them.
fn several(lab: &Triple, spec: &mut ForwarderSpec) {
    let known = *spec.rules.encaps[0].tunnel();
    for last in 3..TUNNELS + 2 {
        let unused = Tunnel { remote: IpAddr::from([10, 99, 0, last as u8]), ..known };
        spec.rules.encaps.push(encap(lab, unused));
        spec.rules.decap.tunnels.push(unused);
    }
}

/// Broadcasts [`COUNT`] frames, of which one in ten is of the first class.
fn broadcast(lab: &Triple, forwarder: &Forwarder<'_>) {
    let tx = lab.near.run(|| PacketTx::open(lab.near.ifindex, 2048, 64).expect("it"));
    let mut tx = tx.expect("the namespace exists");
    for n in 1..=COUNT {
        let service = if n % 10 == 0 { 46 << 2 } else { 0 };
        let mut frame = [&[0xff; 6][..], &SENDER, &[8, 0, 0x45, service]].concat();
        frame.resize(FRAME_BYTES, 0);
        tx.post(1, frame.len(), |slot| slot.copy_from_slice(&frame));
        tx.kick().expect("the link is up");
        tx.reap();
        let begun = Instant::now();
        while passed_count(forwarder) < n && begun.elapsed() < PASS_TIMEOUT {
            thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Frames that the forwarder has flooded or policed.
fn passed_count(forwarder: &Forwarder<'_>) -> u64 {
    let counts = forwarder.counts();
    ["flooded", "policed"].iter().map(|name| fast::counter_sum(&counts, name)).sum()
}

#[test]
fn every_copy_of_a_flooded_frame_waits_in_the_queue_of_its_class_for_the_shaper() {
    let _alone = alone();
    if !has(&["ip"]) {
        return;
    }
    let lab = lab();
    const PASSED: u64 = 20;
    const QUEUED: usize = 15;
    for ports in [Ports::Xdp(XdpMode::Native), Ports::InKernel, Ports::Tcx] {
        let ((), counts) = forwarding_by(
            &lab,
            ports,
            1,
            |spec: &mut ForwarderSpec| {
                several(&lab, spec);
                let queue = QueueSpec { frame_count_max: QUEUED, byte_count_max: 1 << 20 };
                let bucket =
                    TokenBucket::new(NO_BITS_PER_S, PASSED * 1000, sys::clock::monotonic_ns());
                spec.shaper = Some(Shaper::new(Some(bucket), OVERHEAD_BYTES, &[queue, queue]));
                spec.rules.classifier = Classifier::new(1);
                spec.rules.classifier.set_dscp(46, 0);
            },
            |forwarder| {
                broadcast(&lab, forwarder);
                // `None` while the worker has the queues.
                let mut queued = None;
                while queued.is_none() {
                    queued = forwarder.queued();
                }
                assert_eq!(queued, Some(2 * QUEUED), "{ports:?}");
            },
        );
        let copies = COUNT * u64::from(TUNNELS);
        let dropped = copies - PASSED - 2 * QUEUED as u64;
        assert_eq!(count(&counts, "into_tunnels_tail_drop"), dropped, "{ports:?}: {counts:?}");
        assert_eq!(count(&counts, "flooded"), COUNT, "{ports:?}: {counts:?}");
    }
}

#[test]
fn policer_takes_the_price_of_every_copy_and_passes_a_frame_whose_copies_it_cannot_hold() {
    let _alone = alone();
    if !has(&["ip"]) {
        return;
    }
    let lab = lab();
    // Each frame is three; the last one of them is on credit.
    let (burst_bytes, passed) = (10 * FRAME_BYTES as u64, 4);
    for ports in [Ports::Xdp(XdpMode::Native), Ports::InKernel, Ports::Tcx] {
        let ((), counts) = forwarding_by(
            &lab,
            ports,
            1,
            |spec: &mut ForwarderSpec| {
                several(&lab, spec);
                spec.rules.policer =
                    Some(PolicerSpec { rate_bits_per_s: NO_BITS_PER_S, burst_bytes });
            },
            |forwarder| broadcast(&lab, forwarder),
        );
        assert_eq!(count(&counts, "flooded"), passed, "{ports:?}: {counts:?}");
        assert_eq!(fast::counter_sum(&counts, "policed"), COUNT - passed, "{ports:?}: {counts:?}");
    }
}
