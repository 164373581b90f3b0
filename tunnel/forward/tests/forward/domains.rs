//! Each VNI is a broadcast domain of its own, with the VLAN of the port that its tunnel carries.

use std::time::Instant;

use sys::packet::{PacketRx, PacketTx};

use wire::ipv4;

use super::fast::{RECEIVER, SENDER, counter_sum, fast_lab, v4};
use super::*;

const OTHER_VNI: u32 = 43;
/// Frames of each kind in each direction: the rings hold all of them, however late a worker gets a CPU.
const COUNT: usize = 200;
const ROUNDS_MAX: usize = 2000;
const ORIGIN_AT: usize = 60;

/// Origins of frames.
const ORIGINS: usize = 8;
/// VLANs of the two domains.
const VLANS: [u8; 2] = [10, 20];

fn sender(end: &End, ifname: &str) -> PacketTx {
    let opened = end.run(|| {
        let ifindex = net::link_named(ifname).expect("it was created").index;
        PacketTx::open(ifindex, 2048, 64).expect("a packet socket")
    });
    opened.expect("the namespace exists")
}

fn send(tx: &mut PacketTx, frame: &[u8]) {
    tx.post(1, frame.len(), |slot| slot.copy_from_slice(frame));
    tx.kick().expect("the link is up");
    tx.reap();
}

/// Counts a frame of the test by its origin.
fn note(seen: &mut [usize; ORIGINS], untagged: &[u8]) {
    let is_ours = [SENDER, RECEIVER].iter().any(|mac| untagged.get(6..12) == Some(mac));
    if is_ours && let Some(origin) = untagged.get(ORIGIN_AT) {
        seen[usize::from(*origin) % ORIGINS] += 1;
    }
}

/// Receives at the port's other end, by XDP: the kernel's own receivers see no tags.
struct Near<'p> {
    port: wirepath_forward::ports::Port<'p>,
    pool: &'p Pool,
    /// By domain and origin.
    seen: [[usize; ORIGINS]; 2],
}

impl<'p> Near<'p> {
    fn new(lab: &Triple, pool: &'p Pool) -> Self {
        let spec = port(&lab.near, TunnelFrames::All, XdpMode::Native);
        let opened = lab.near.run(|| open_port(pool, &spec, None).expect("the port opens"));
        Near { port: opened.expect("the namespace exists"), pool, seen: [[0; ORIGINS]; 2] }
    }

    fn look(&mut self) {
        let (mut taken, seen) = (Vec::new(), &mut self.seen);
        self.port.rx.rx_take(256, |mut frame, at, len| {
            let bytes = &frame.bytes()[at..at + len];
            let domain = VLANS.iter().position(|vlan| bytes[12..16] == [0x81, 0, 0, *vlan]);
            if let Some(domain) = domain {
                note(&mut seen[domain], &[&bytes[..12], &bytes[16..]].concat());
            }
            taken.push(frame);
        });
        self.pool.give_back(taken.drain(..));
        self.port.rx.rx_post(self.pool, &mut taken, 1);
    }
}

/// Receives behind a tunnel of the kernel.
struct Far {
    rx: PacketRx,
    seen: [usize; ORIGINS],
}

impl Far {
    fn new(lab: &Triple, ifname: &str) -> Self {
        let opened = lab.far.run(|| {
            let ifindex = net::link_named(ifname).expect("it was created").index;
            PacketRx::open_all(ifindex, 4 << 20).expect("a packet socket")
        });
        Far { rx: opened.expect("the namespace exists"), seen: [0; ORIGINS] }
    }

    fn look(&mut self) {
        self.rx.take(256, |bytes, _, _| note(&mut self.seen, bytes));
    }
}

/// A frame of an origin, to the far end's station or from it.
fn frame(origin: u8, is_back: bool, is_group: bool) -> Vec<u8> {
    let mut frame = v4(17, 0, 64, ipv4::DONT_FRAGMENT, 100);
    if is_back {
        frame[..6].copy_from_slice(&SENDER);
        frame[6..12].copy_from_slice(&RECEIVER);
    }
    if is_group {
        frame[..6].fill(0xff);
    }
    // Wherever a tag moves it.
    frame[42..].fill(origin);
    frame
}

fn tagged(frame: &[u8], vlan: u8) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, vlan], &frame[12..]].concat()
}

#[test]
fn no_frame_crosses_from_one_vni_into_another_and_tags_follow_the_domain() {
    let _alone = alone();
    if !has(&["ip"]) {
        return;
    }
    let lab = fast_lab();
    let far_mac = mac(&lab.far);
    lab.far
        .run(|| {
            ip(&format!(
                "link add vx1 type vxlan id {OTHER_VNI} local {THEIRS} remote {OURS} dstport 4789 \
                 dev wp-far"
            ));
            ip(&format!("link set vx1 address {far_mac} mtu 1500 up"));
        })
        .expect("the namespace exists");
    for ports in [Ports::Xdp(XdpMode::Native), Ports::InKernel] {
        let near_pool = Pool::allocate(2048, 4096).expect("8 MiB are available");
        let ((sent, [from_far, from_near]), counts) = forwarding_by(
            &lab,
            ports,
            1,
            |spec: &mut ForwarderSpec| {
                let first = *spec.rules.encaps[0].tunnel();
                let second = Tunnel { carrier: Carrier::Vxlan { vni: OTHER_VNI }, ..first };
                spec.rules.encaps.push(encap(&lab, second));
                spec.rules.decap.tunnels.push(second);
                spec.rules.vlans = vec![Some(10), Some(20)];
            },
            |forwarder| exchange(&lab, &near_pool, forwarder),
        );
        // While the slow path has more to do than it can, frames of new stations are dropped.
        let held = counter_sum(&counts, "seam_dropped");
        assert!(held == 0 || ports == Ports::InKernel);
        let mut arrived = 0;
        for domain in 0..2 {
            let other = 1 - domain;
            let context = format!("{ports:?}: {from_far:?} {from_near:?} {counts:?}");
            // Origins 0 and 1 are the VLANs of the port, 2 and 3 the hosts behind the tunnels.
            for own in [from_near[domain][domain], from_far[domain][2 + domain]] {
                assert!((1..=sent).contains(&own), "{context}");
                arrived += own;
            }
            assert_eq!(from_near[domain][other], 0, "crossed: {context}");
            assert_eq!(from_far[domain][2 + other], 0, "crossed: {context}");
            assert_eq!(from_near[domain][5], 0, "of no domain: {context}");
        }
        assert_eq!(from_far[1][6], 0, "crossed by the tag inside: {ports:?}");
        assert!(arrived + held as usize >= 4 * sent, "{arrived} of {sent}: {counts:?}");
        assert!(count(&counts, "other_vlan") >= COUNT as u64, "{counts:?}");
        assert!(ports != Ports::InKernel || is_fast(&counts), "{counts:?}");
    }
}

/// The programs have forwarded in both directions.
fn is_fast(counts: &[(&str, u64)]) -> bool {
    ["fast_into_tunnels", "fast_out_of_tunnels"].iter().all(|way| counter_sum(counts, way) > 0)
}

type Seen = [[usize; ORIGINS]; 2];

/// Sends frames of both domains in both directions, until the programs forward them if there are programs.
/// Returns how many of each kind, and those received at the port and behind the tunnels, by domain and
/// origin.
fn exchange(lab: &Triple, pool: &Pool, forwarder: &Forwarder<'_>) -> (usize, [Seen; 2]) {
    let has_programs = forwarder.counts().iter().any(|(name, _)| *name == "fast_into_tunnels");
    let mut near = Near::new(lab, pool);
    let mut far = ["vx0", "vx1"].map(|name| Far::new(lab, name));
    let mut near_tx = sender(&lab.near, "wp-near");
    let mut far_tx = ["vx0", "vx1"].map(|name| sender(&lab.far, name));
    let mut sent = 0;
    while sent < COUNT || (has_programs && sent < ROUNDS_MAX && !is_fast(&forwarder.counts())) {
        let n = sent;
        sent += 1;
        let is_group = n % 8 == 0;
        for domain in 0..2 {
            let own = frame(domain as u8, false, is_group);
            send(&mut near_tx, &tagged(&own, VLANS[domain]));
            send(&mut far_tx[domain], &frame(2 + domain as u8, true, is_group));
        }
        // Of no domain, and of the first one with the tag of the second inside.
        send(&mut near_tx, &frame(5, false, false));
        send(&mut near_tx, &tagged(&frame(5, false, true), 30));
        send(&mut far_tx[0], &tagged(&frame(6, true, false), VLANS[1]));
        thread::sleep(Duration::from_micros(if n < COUNT { 300 } else { 20_000 }));
        near.look();
        far.iter_mut().for_each(Far::look);
    }
    let begun = Instant::now();
    loop {
        near.look();
        far.iter_mut().for_each(Far::look);
        let arrived: usize =
            (0..2).map(|domain| far[domain].seen[domain] + near.seen[domain][2 + domain]).sum();
        let held = counter_sum(&forwarder.counts(), "seam_dropped") as usize;
        let is_whole = arrived + held >= 4 * sent;
        if is_whole || begun.elapsed() > Duration::from_secs(60) {
            return (sent, [near.seen, far.map(|far| far.seen)]);
        }
        thread::sleep(Duration::from_millis(1));
    }
}
