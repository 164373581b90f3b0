//! Encrypted tunnels: one flow over two workers stays in order, and both ends agree on every byte.

use std::sync::Arc;
use std::time::Instant;

use sys::packet::{PacketRx, PacketTx};
use wirepath_forward::esp::{
    Association, Framing, Key, Protection, Receiver, ReplayWindow, Sender, UDP_PORT,
};

use super::*;

const SENDER: [u8; 6] = [0x02, 0xaa, 0xbb, 0xcc, 0, 1];
const RECEIVER: [u8; 6] = [0x02, 0xaa, 0xbb, 0xcc, 0, 9];
const FRAME_BYTES: usize = 1400;
/// The rings hold all of them, however late a worker gets a CPU.
const COUNT: u32 = 900;
const INTO_SPI: u32 = 0x1001;
const OUT_OF_SPI: u32 = 0x1002;
const LONG: Duration = Duration::from_secs(30);

/// Numbered, with other bytes in each.
fn frame(to: [u8; 6], from: [u8; 6], number: u32) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[0x88, 0xb5], &number.to_be_bytes()].concat();
    frame.extend((frame.len()..FRAME_BYTES).map(|at| (at as u32 ^ number.wrapping_mul(31)) as u8));
    frame
}

fn tunnel() -> Tunnel {
    let address = |text: &str| text.parse::<IpAddr>().expect("valid address");
    Tunnel { local: address(OURS), remote: address(THEIRS), carrier: Carrier::Vxlan { vni: VNI } }
}

/// Encryption of one end.
fn association(
    send_spi: u32,
    receive_spi: u32,
    from: &str,
    to: &str,
    framing: Framing,
) -> Arc<Association> {
    let key = |spi: u32| Key::new(spi, &[spi as u8; 16], [9; 4], true).expect("16 bytes");
    let ends = (from.parse().expect("an address"), to.parse().expect("an address"));
    let window = ReplayWindow::new(16_384, 0);
    Arc::new(Association {
        sender: Sender::new(key(send_spi), framing, 1, u64::MAX),
        receiver: Receiver::new(key(receive_spi), framing, ends, window),
    })
}

/// Frames that the far end received and decrypted, in their order.
fn received(rx: &mut PacketRx, far: &Protection) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let begun = Instant::now();
    while frames.len() < COUNT as usize && begun.elapsed() < LONG {
        rx.take(256, |bytes, _, _| {
            let whole = Place { at: 0, len: bytes.len() };
            // Other packets and frames are those of the hosts themselves.
            if let Some((plain, 0)) = far.open(bytes, whole).expect("no packet is refused") {
                let frame = &bytes[plain.at + 50..plain.at + plain.len];
                frames.extend((frame[6..12] == SENDER).then(|| frame.to_vec()));
            }
        });
        thread::sleep(Duration::from_millis(1));
    }
    frames
}

#[test]
fn encrypted_flow_over_two_workers_arrives_in_order_and_whole() {
    let _alone = alone();
    if !has(&["ip"]) {
        return;
    }
    let lab = lab();
    let sent: Vec<Vec<u8>> = (0..COUNT).map(|n| frame(RECEIVER, SENDER, n)).collect();
    for framing in [Framing::Udp { port: UDP_PORT }, Framing::Ip] {
        let ours = association(INTO_SPI, OUT_OF_SPI, THEIRS, OURS, framing);
        let theirs = association(OUT_OF_SPI, INTO_SPI, OURS, THEIRS, framing);
        let far = Protection::new(vec![Some(theirs)]);
        let encrypted = |spec: &mut ForwarderSpec| spec.rules.associations = vec![Some(ours)];
        let (frames, counts) = forwarding_with(&lab, XdpMode::Native, 2, encrypted, |_| {
            let rx = lab.far.run(|| PacketRx::open_all(lab.far.ifindex, 16 << 20).expect("it"));
            let mut rx = rx.expect("the namespace exists");
            let tx = lab.near.run(|| PacketTx::open(lab.near.ifindex, 2048, 1024).expect("it"));
            let mut tx = tx.expect("the namespace exists");
            for frame in &sent {
                tx.post(1, frame.len(), |slot| slot.copy_from_slice(frame));
            }
            tx.kick().expect("the link is up");
            received(&mut rx, &far)
        });
        let number = |frame: &Vec<u8>| u32::from_be_bytes(frame[14..18].try_into().expect("four"));
        let numbers: Vec<_> = frames.iter().map(number).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{framing:?}: {numbers:?}");
        assert!(frames == sent, "{framing:?}: {} of {COUNT} {counts:?}", frames.len());
        for bad in ["esp_no_room", "esp_unreserved", "esp_exhausted"] {
            assert_eq!(count(&counts, bad), 0, "{counts:?}");
        }
    }
}

/// A packet from the far end to the forwarder, encrypted or in clear.
fn packet(lab: &Triple, number: u32, sender: Option<&Sender>) -> Vec<u8> {
    let back = Tunnel { local: tunnel().remote, remote: tunnel().local, ..tunnel() };
    let suggested = Outer::suggested(&back, lab.far.mac, lab.middle.far_if.mac);
    let encap = Encap::new(back, Outer { mtu_bytes: UNDERLAY_MTU, ..suggested }).expect("valid");
    let mut buffer = vec![0; 256];
    buffer.extend(frame(SENDER, RECEIVER, number));
    let inner = Place { at: 256, len: FRAME_BYTES };
    let mark = Mark { flow_hash: 7, sequence: number };
    let mut place = encap.prepend(&mut buffer, inner, mark).expect("it fits");
    if let Some(sender) = sender {
        buffer.extend([0; 64]);
        place = sender.seal(&mut buffer, place, number.into()).expect("there is room");
    }
    buffer[place.at..place.at + place.len].to_vec()
}

#[test]
fn packets_of_the_other_end_are_decrypted_and_others_are_counted_by_reason() {
    let _alone = alone();
    if !has(&["ip"]) {
        return;
    }
    let lab = lab();
    for (framing, udp_port) in
        [(Framing::Udp { port: UDP_PORT }, Some(UDP_PORT)), (Framing::Ip, None)]
    {
        let ours = association(INTO_SPI, OUT_OF_SPI, THEIRS, OURS, framing);
        let theirs = association(OUT_OF_SPI, INTO_SPI, OURS, THEIRS, framing);
        let encrypted = |spec: &mut ForwarderSpec| spec.rules.associations = vec![Some(ours)];
        let is_ours = |bytes: &[u8]| bytes.get(6..12) == Some(&RECEIVER[..]);
        let (frames, counts) =
            forwarding_by(&lab, Ports::Xdp(XdpMode::Native), 2, encrypted, |forwarder| {
                let id = |carrier| TunnelId { local: tunnel().local, carrier };
                let esp = TunnelCarrier::Esp { spi: OUT_OF_SPI, udp_port };
                let [_, Some(filter)] = forwarder.filters() else {
                    panic!("the underlay has a filter")
                };
                // The clear one so that its drop is seen.
                let ids = [id(esp), id(tunnel().carrier.into())];
                filter.set_tunnels(&ids).expect("there is room");
                let rx =
                    lab.near.run(|| PacketRx::open_all(lab.near.ifindex, 16 << 20).expect("it"));
                let mut rx = rx.expect("the namespace exists");
                let tx = lab.far.run(|| PacketTx::open(lab.far.ifindex, 2048, 1024).expect("it"));
                let mut tx = tx.expect("the namespace exists");
                let mut send = |bytes: &[u8]| {
                    tx.post(1, bytes.len(), |slot| slot.copy_from_slice(bytes));
                    tx.kick().expect("the link is up");
                    tx.reap();
                };
                for number in 0..COUNT / 3 {
                    let good = packet(&lab, number, Some(&theirs.sender));
                    send(&good);
                    match number {
                        10 => send(&good),
                        20 => send(&packet(&lab, number, None)),
                        30 => {
                            let mut bad = packet(&lab, COUNT, Some(&theirs.sender));
                            bad[100] ^= 1;
                            send(&bad);
                        }
                        _ => {}
                    }
                }
                let mut frames = Vec::new();
                let begun = Instant::now();
                while frames.len() < COUNT as usize / 3 && begun.elapsed() < LONG {
                    rx.take(256, |bytes, _, _| {
                        frames.extend(is_ours(bytes).then(|| bytes.to_vec()))
                    });
                    thread::sleep(Duration::from_millis(1));
                }
                frames
            });
        let sent: Vec<_> = (0..COUNT / 3).map(|number| frame(SENDER, RECEIVER, number)).collect();
        assert!(frames == sent, "{} frames {counts:?}", frames.len());
        for reason in ["esp_replayed", "esp_clear", "esp_bad_tag"] {
            assert_eq!(count(&counts, reason), 1, "{reason} {counts:?}");
        }
    }
}

#[test]
fn worker_that_was_idle_since_a_reload_takes_nothing_in_clear() {
    let _alone = alone();
    if !has(&["ip"]) {
        return;
    }
    let lab = lab();
    let framing = Framing::Udp { port: UDP_PORT };
    let ours = association(INTO_SPI, OUT_OF_SPI, THEIRS, OURS, framing);
    let rules = std::cell::RefCell::new(None);
    let keep = |spec: &mut ForwarderSpec| {
        let associations = vec![Some(ours)];
        *rules.borrow_mut() = Some(RulesSpec { associations, ..spec.rules.clone() });
    };
    let ports = Ports::Xdp(XdpMode::Native);
    let ((), counts) = forwarding_by(&lab, ports, 0, keep, |forwarder| {
        let tx = lab.far.run(|| PacketTx::open(lab.far.ifindex, 2048, 64).expect("it"));
        let mut tx = tx.expect("the namespace exists");
        let mut worker = Worker::default();
        let mut pass = |number: u32, counter: &str| {
            let clear = packet(&lab, number, None);
            tx.post(1, clear.len(), |slot| slot.copy_from_slice(&clear));
            tx.kick().expect("the link is up");
            let begun = Instant::now();
            while count(&forwarder.counts(), counter) == 0 && begun.elapsed() < LONG {
                forwarder.turn(&mut worker, sys::clock::monotonic_ns()).expect("the links are up");
            }
            tx.reap();
        };
        pass(0, "out_of_tunnels_sent");
        forwarder.reload(rules.take().expect("they were kept"), Fdb::clone);
        pass(1, "esp_clear");
    });
    assert_eq!(count(&counts, "out_of_tunnels_sent"), 1, "{counts:?}");
    assert_eq!(count(&counts, "esp_clear"), 1, "{counts:?}");
}
