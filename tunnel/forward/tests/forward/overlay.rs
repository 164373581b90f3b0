//! Semantics of an overlay: sequence numbers by tunnel, addresses that are not forwarded or taken over.

use std::collections::BTreeMap;
use std::time::Instant;

use sys::packet::{PacketRx, PacketTx};
use wirepath_forward::fdb::FdbPort;

use super::*;

const SENDER: [u8; 6] = [0x02, 0xaa, 0xbb, 0xcc, 0, 1];
const KNOWN: [u8; 6] = [0x02, 0xaa, 0xbb, 0xcc, 0, 9];
const UNKNOWN: [u8; 6] = [0x02, 0xaa, 0xbb, 0xcc, 0, 8];
const RESERVED: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0x0e];

fn frame(to: [u8; 6]) -> Vec<u8> {
    [&to[..], &SENDER, &[0x88, 0xb5], &[7; 50]].concat()
}

#[test]
fn sequence_numbers_of_a_tunnel_ascend_whatever_is_flooded_and_reserved_addresses_stay() {
    let _alone = alone();
    if !has(&["ip"]) {
        return;
    }
    let lab = lab();
    for workers in [1, 2] {
        let (seen, counts) = forwarding_with(
            &lab,
            XdpMode::Native,
            workers,
            |spec: &mut ForwarderSpec| {
                let tunnel = |key| Tunnel {
                    local: address(OURS),
                    remote: address(THEIRS),
                    carrier: Carrier::Gretap { key: Some(key) },
                };
                spec.rules.decap.tunnels = vec![tunnel(1), tunnel(2)];
                let numbered = |tunnel: &Tunnel| {
                    let suggested = Outer::suggested(tunnel, lab.middle.far_if.mac, lab.far.mac);
                    let outer = Outer { mtu_bytes: UNDERLAY_MTU, has_sequence: true, ..suggested };
                    Encap::new(*tunnel, outer).expect("valid tunnel")
                };
                spec.rules.encaps = spec.rules.decap.tunnels.iter().map(numbered).collect();
                spec.fdb.add_static(0, KNOWN, FdbPort::Tunnel(1)).expect("there is room");
            },
            |_| {
                let rx = lab.far.run(|| PacketRx::open_all(lab.far.ifindex, 4 << 20).expect("it"));
                let mut rx = rx.expect("the namespace exists");
                let tx = lab.near.run(|| PacketTx::open(lab.near.ifindex, 256, 256).expect("it"));
                let mut tx = tx.expect("the namespace exists");
                for n in 0..90 {
                    let to = [KNOWN, UNKNOWN, KNOWN, [0xff; 6], RESERVED][n % 5];
                    tx.post(1, 64, |slot| slot.copy_from_slice(&frame(to)));
                    tx.kick().expect("the link is up");
                    tx.reap();
                    if n % 7 == 0 {
                        thread::sleep(Duration::from_millis(1));
                    }
                }
                let mut seen: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_secs(5)
                    && seen.values().map(Vec::len).sum::<usize>() < 108
                {
                    rx.take(256, |bytes, _, _| {
                        // Ethernet, IPv4, GRE with key and sequence number, frame.
                        if bytes.len() == 46 + 64 && bytes[52..58] == SENDER {
                            assert_ne!(bytes[46..52], RESERVED);
                            let [key, number] = [38, 42]
                                .map(|at| bytes[at..at + 4].try_into().expect("four bytes"));
                            let numbers = seen.entry(u32::from_be_bytes(key)).or_default();
                            numbers.push(u32::from_be_bytes(number));
                        }
                    });
                    thread::sleep(Duration::from_millis(1));
                }
                seen
            },
        );
        // 36 frames flooded into both tunnels, 36 into the second one; others are the hosts' own.
        for (key, at_least) in [(1, 36), (2, 72)] {
            let numbers = &seen[&key];
            assert!(numbers.len() == at_least, "{key}: {numbers:?} {counts:?}");
            assert!(numbers.is_sorted_by(|a, b| a < b), "{key}: {numbers:?}");
            assert!(numbers[at_least - 1] - numbers[0] < 2 * at_least as u32, "{numbers:?}");
        }
        assert_eq!(count(&counts, "reserved"), 18, "{counts:?}");
    }
}
