//! Encapsulation and decapsulation: written headers, accepted frames, and reasons for drops.

mod headers;
mod refused;

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use proptest::prelude::*;
use wire::frame::{UdpChecksum, verify_checksums};
use wire::{ethernet, flow, gre, ipv4, ipv6};
use wirepath_forward::decap::{Decap, DecapSpec, DropReason, Inner};
use wirepath_forward::encap::{Encap, EncapDrop, HEADERS_BYTES_MAX, Mark, PacketPlace};
use wirepath_forward::fuzzing::{
    self, ENDS_V4, ENDS_V6, INNER_BYTES_MAX, MEND, NO_CHECKSUM_V6, TUNNEL_SHIFT,
};
use wirepath_forward::spec::{Carrier, Field, Outer, Tunnel, TunnelError};

const MARK: Mark = Mark { flow_hash: 0x8000_0000, sequence: 0x0102_0304 };

/// Offsets of the outer headers of a frame over IPv4.
const IP: usize = 14;
const UDP: usize = 34;
const VXLAN: usize = 42;

fn tunnel(v6: bool, carrier: Carrier) -> Tunnel {
    // Towards the endpoint of the fuzz target.
    let (remote, local): (IpAddr, IpAddr) = if v6 {
        (ENDS_V6.0.into(), ENDS_V6.1.into())
    } else {
        (ENDS_V4.0.into(), ENDS_V4.1.into())
    };
    Tunnel { local, remote, carrier }
}

fn outer(tunnel: &Tunnel) -> Outer {
    Outer { mtu_bytes: 9000, ..Outer::suggested(tunnel, [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]) }
}

/// Encapsulates a frame.
fn encapsulated(tunnel: Tunnel, outer: Outer, frame: &[u8]) -> Vec<u8> {
    let encap = Encap::new(tunnel, outer).expect("valid tunnel");
    let mut buffer = vec![0xcc; HEADERS_BYTES_MAX];
    buffer.extend(frame);
    let place = PacketPlace { at: HEADERS_BYTES_MAX, len: frame.len() };
    let whole = encap.prepend(&mut buffer, place, MARK).expect("it fits");
    buffer[whole.at..].to_vec()
}

fn vxlan(frame: &[u8]) -> Vec<u8> {
    let tunnel = tunnel(false, Carrier::Vxlan { vni: 42 });
    encapsulated(tunnel, outer(&tunnel), frame)
}

fn vxlan_v6(frame: &[u8]) -> Vec<u8> {
    let tunnel = tunnel(true, Carrier::Vxlan { vni: 42 });
    encapsulated(tunnel, outer(&tunnel), frame)
}

fn gretap(frame: &[u8]) -> Vec<u8> {
    let tunnel = tunnel(false, Carrier::Gretap { key: Some(7) });
    let rules = Outer { has_checksum: true, has_sequence: true, ..outer(&tunnel) };
    encapsulated(tunnel, rules, frame)
}

fn receiver() -> Decap {
    Decap::new(DecapSpec {
        tunnels: fuzzing::tunnels(),
        inner_bytes_max: INNER_BYTES_MAX,
        ..DecapSpec::default()
    })
}

fn open(frame: &mut [u8]) -> Result<Inner, DropReason> {
    let len = frame.len();
    receiver().open(frame, PacketPlace { at: 0, len })
}

/// An inner frame: UDP from 192.168.0.1 to 192.168.0.2 with this class of service.
fn plain(service: u8, payload_bytes: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa, 0x08, 0x00];
    let mut header = [0; 20];
    ipv4::Repr {
        src: [192, 168, 0, 1].into(),
        dst: [192, 168, 0, 2].into(),
        protocol: 17,
        ttl: 9,
        payload_bytes: 8 + payload_bytes,
    }
    .write(&mut header)
    .expect("it fits");
    header[1] = service;
    header[10..12].fill(0);
    let sum = wire::checksum::checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend([0x10, 0, 0x20, 0]);
    frame.extend((8 + payload_bytes as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend((0..payload_bytes).map(|i| i as u8));
    frame
}

fn arp() -> Vec<u8> {
    [&[0xff; 6][..], &[2; 6], &[0x08, 0x06], &[0x55; 46]].concat()
}

/// Recomputes the IPv4 checksum of the outer header.
fn mend_ip(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    let sum = wire::checksum::checksum(&frame[IP..UDP]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// The frame with other bytes at an offset.
fn patched(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}
