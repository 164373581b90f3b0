//! Cost of encapsulation and decapsulation of a frame, without I/O.
//!
//! `cargo bench -p wirepath-forward --bench encap`

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use wire::flow;
use wirepath_forward::decap::{Decap, DecapSpec};
use wirepath_forward::encap::{Encap, HEADERS_BYTES_MAX, Mark, PacketPlace};
use wirepath_forward::fdb::{Fdb, FdbPort, FdbSpec};
use wirepath_forward::spec::{Carrier, Outer, Tunnel};

const SIZES: [usize; 4] = [64, 512, 1024, 1518];
/// Frame offset: room for the longest headers, aligned as frames in a ring are.
const AT: usize = 256;

fn tunnel(carrier: Carrier, v6: bool) -> Tunnel {
    let ends = if v6 { ["fd00::1", "fd00::2"] } else { ["10.0.0.1", "10.0.0.2"] };
    let [local, remote] = ends.map(|end| end.parse().expect("valid address"));
    Tunnel { local, remote, carrier }
}

fn encap(tunnel: Tunnel, has_checksum: bool) -> Encap {
    let outer = Outer::suggested(&tunnel, [2; 6], [4; 6]);
    Encap::new(tunnel, Outer { mtu_bytes: 9000, has_checksum, ..outer }).expect("valid tunnel")
}

/// A buffer with a UDP frame at [`AT`].
fn buffer(len: usize) -> Vec<u8> {
    let mut buffer = vec![0x5a; AT + len];
    let header = [
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0,
        192, 168, 0, 1, 192, 168, 0, 2, 0x10, 0, 0x20, 0,
    ];
    buffer[AT..AT + header.len()].copy_from_slice(&header);
    let total = (len as u16 - 14).to_be_bytes();
    buffer[AT + 16..AT + 18].copy_from_slice(&total);
    buffer
}

fn prepend(c: &mut Criterion) {
    const { assert!(HEADERS_BYTES_MAX <= AT) };
    let vxlan = Carrier::Vxlan { vni: 42 };
    let kinds = [
        ("vxlan", encap(tunnel(vxlan, false), false)),
        ("gretap_key", encap(tunnel(Carrier::Gretap { key: Some(7) }, false), false)),
        ("vxlan_v6_without_checksum", encap(tunnel(vxlan, true), false)),
        ("vxlan_v6_with_checksum", encap(tunnel(vxlan, true), true)),
    ];
    let mut group = c.benchmark_group("prepend");
    for (name, encap) in &kinds {
        for len in SIZES {
            let mut buffer = buffer(len);
            let mut hash = 1u32;
            group.bench_function(BenchmarkId::new(*name, len), |b| {
                b.iter(|| {
                    hash = hash.wrapping_mul(0x9e37_79b9);
                    let mark = Mark { flow_hash: hash, sequence: hash };
                    encap.prepend(black_box(&mut buffer), PacketPlace { at: AT, len }, mark)
                });
            });
        }
    }
    group.finish();
}

fn open(c: &mut Criterion) {
    let mut group = c.benchmark_group("open");
    for (name, carrier) in
        [("vxlan", Carrier::Vxlan { vni: 42 }), ("gretap_key", Carrier::Gretap { key: Some(7) })]
    {
        let there = tunnel(carrier, false);
        let here = Tunnel { local: there.remote, remote: there.local, carrier };
        let decap = Decap::new(DecapSpec { tunnels: vec![here], ..DecapSpec::default() });
        for len in [64, 1518] {
            let mut buffer = buffer(len);
            let mark = Mark { flow_hash: 1, sequence: 1 };
            let whole = encap(there, false)
                .prepend(&mut buffer, PacketPlace { at: AT, len }, mark)
                .expect("it fits");
            group.bench_function(BenchmarkId::new(name, len), |b| {
                b.iter(|| decap.open(black_box(&mut buffer), whole).expect("it is right"));
            });
        }
    }
    group.finish();
}

fn flow_hash(c: &mut Criterion) {
    let buffer = buffer(64);
    let frame = &buffer[AT..];
    let toeplitz = flow::Toeplitz::new(&flow::TOEPLITZ_KEY);
    let mut group = c.benchmark_group("flow_hash");
    group.bench_function("crc32c", |b| b.iter(|| flow::tuple(black_box(frame)).crc32c()));
    group.bench_function("toeplitz", |b| {
        b.iter(|| flow::tuple(black_box(frame)).toeplitz(&toeplitz));
    });
    group.finish();
}

fn mac(n: u32) -> [u8; 6] {
    let [a, b, c, d] = n.to_be_bytes();
    [2, 0, a, b, c, d]
}

fn fdb(c: &mut Criterion) {
    let mut fdb = Fdb::new(FdbSpec { entry_count_max: 4096, ageing_ns: u64::MAX, seed: 1 });
    (0..1000).for_each(|n| {
        fdb.learn(0, mac(n), FdbPort::Local(0), 0);
    });
    let mut group = c.benchmark_group("fdb");
    let mut n = 0;
    group.bench_function("lookup_of_1000", |b| {
        b.iter(|| {
            n = (n + 7) % 1000;
            fdb.lookup(0, black_box(mac(n)), 1)
        });
    });
    group.bench_function("learn_of_1000", |b| {
        b.iter(|| {
            n = (n + 7) % 1000;
            fdb.learn(0, black_box(mac(n)), FdbPort::Local(0), 1)
        });
    });
    group.finish();
}

criterion_group!(benches, prepend, open, flow_hash, fdb);
criterion_main!(benches);
