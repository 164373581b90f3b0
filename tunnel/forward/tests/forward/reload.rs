//! Rules that change while frames pass.

use sys::packet::PacketTx;

use super::*;

const SENDER: [u8; 6] = [0x02, 0xaa, 0xbb, 0xcc, 0, 1];
const RECEIVER: [u8; 6] = [0x02, 0xaa, 0xbb, 0xcc, 0, 9];
const PASS_TIMEOUT: Duration = Duration::from_secs(30);

/// A packet of the tunnel [`VNI`] from the far end to the forwarder.
fn packet(lab: &Triple) -> Vec<u8> {
    let [local, remote] = [THEIRS, OURS].map(|end| end.parse().expect("an address"));
    let back = Tunnel { local, remote, carrier: Carrier::Vxlan { vni: VNI } };
    let suggested = Outer::suggested(&back, lab.far.mac, lab.middle.far_if.mac);
    let encap = Encap::new(back, Outer { mtu_bytes: UNDERLAY_MTU, ..suggested }).expect("valid");
    let frame = [&RECEIVER[..], &SENDER, &[0x88, 0xb5], &[7; 60]].concat();
    let mut buffer = [vec![0; 256], frame].concat();
    let inner = PacketPlace { at: 256, len: buffer.len() - 256 };
    let mark = Mark { flow_hash: 7, sequence: 1 };
    let place = encap.prepend(&mut buffer, inner, mark).expect("it fits");
    buffer[place.at..place.at + place.len].to_vec()
}

#[test]
fn worker_that_was_idle_since_a_reload_takes_nothing_by_the_rules_of_before() {
    let _alone = alone();
    if !has(&["ip"]) {
        return;
    }
    let lab = lab();
    let rules = std::cell::RefCell::new(None);
    let ports = Ports::Xdp(XdpMode::Native);
    let ((), counts) = forwarding_by(
        &lab,
        ports,
        0,
        |spec: &mut ForwarderSpec| {
            let mut other = spec.rules.clone();
            for tunnel in &mut other.decap.tunnels {
                tunnel.carrier = Carrier::Vxlan { vni: VNI + 1 };
            }
            *rules.borrow_mut() = Some(other);
        },
        |forwarder| {
            let tx = lab.far.run(|| PacketTx::open(lab.far.ifindex, 2048, 64).expect("it"));
            let mut tx = tx.expect("the namespace exists");
            let mut worker = Worker::default();
            let packet = packet(&lab);
            let mut pass = |counter: &str| {
                tx.post(1, packet.len(), |slot| slot.copy_from_slice(&packet));
                tx.kick().expect("the link is up");
                let begun = Instant::now();
                while count(&forwarder.counts(), counter) == 0 && begun.elapsed() < PASS_TIMEOUT {
                    forwarder
                        .turn(&mut worker, sys::clock::monotonic_ns())
                        .expect("the links are up");
                }
                tx.reap();
            };
            pass("out_of_tunnels_sent");
            forwarder.reload(rules.take().expect("they were kept"), Fdb::clone);
            pass("unknown_tunnel");
        },
    );
    assert_eq!(count(&counts, "out_of_tunnels_sent"), 1, "{counts:?}");
    assert_eq!(count(&counts, "unknown_tunnel"), 1, "{counts:?}");
}
