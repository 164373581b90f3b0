//! Cost of a packet outside the kernel: building, parsing and updating checksums.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use wirepath_wire::checksum;
use wirepath_wire::frame::{HEADERS_BYTES, Received, RestSum, UdpMeta, UdpTemplate};
use wirepath_wire::probe::{Header, Kind};

const PAYLOADS_BYTES: [usize; 2] = [64, 1460];
const META: UdpMeta = UdpMeta {
    src_mac: [2, 0, 0, 0, 0, 1],
    dst_mac: [2, 0, 0, 0, 0, 2],
    src_ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
    dst_ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
    src_port: 9000,
    dst_port: 9001,
};
const PING: Header =
    Header { kind: Kind::Ping, flow: 0, session: 1, sequence: 0, reply: 0, time_ns: 1 };

/// A template and one of its frames with a probe header and a checksum.
fn ping(payload_bytes: usize) -> (UdpTemplate, Vec<u8>) {
    let template = UdpTemplate::new(META, payload_bytes).expect("it is small enough");
    let mut frame = vec![0xa5; template.frame_bytes()];
    template.write_into(&mut frame).expect("it fits");
    PING.write(&mut frame[HEADERS_BYTES..]).expect("it fits");
    template.fill_checksum(&mut frame).expect("it fits");
    (template, frame)
}

fn frame_build(c: &mut Criterion) {
    let mut group = c.benchmark_group("frame_build");
    for size in PAYLOADS_BYTES {
        let (template, mut frame) = ping(size);
        let rest = RestSum::of(&frame[HEADERS_BYTES..]);
        let mut header = PING;
        group.throughput(Throughput::Elements(1));
        // As the engines send: the headers are in the frame already.
        group.bench_function(BenchmarkId::new("per_packet", size), |b| {
            b.iter(|| {
                header.sequence = header.sequence.wrapping_add(1);
                let frame = black_box(&mut frame[..]);
                let written = header.write(&mut frame[HEADERS_BYTES..]);
                (written, template.fill_checksum_from(frame, rest))
            });
        });
        group.bench_function(BenchmarkId::new("headers_and_full_checksum", size), |b| {
            b.iter(|| {
                header.sequence = header.sequence.wrapping_add(1);
                let frame = black_box(&mut frame[..]);
                let headers = template.write_into(frame);
                let written = header.write(&mut frame[HEADERS_BYTES..]);
                (headers, written, template.fill_checksum(frame))
            });
        });
    }
    group.finish();
}

fn frame_parse(c: &mut Criterion) {
    let mut group = c.benchmark_group("frame_parse");
    for size in PAYLOADS_BYTES {
        let (_, mut frame) = ping(size);
        let frame_bytes = frame.len();
        group.throughput(Throughput::Elements(1));
        // As the engines receive.
        group.bench_function(BenchmarkId::new("headers_and_probe", size), |b| {
            b.iter(|| {
                let received = Received::parse(black_box(&mut frame[..]), frame_bytes);
                received.map(|mut received| Header::parse(received.payload_mut()))
            });
        });
    }
    group.finish();
}

fn checksum_incremental(c: &mut Criterion) {
    let mut group = c.benchmark_group("checksum_incremental");
    for size in PAYLOADS_BYTES {
        let (template, mut frame) = ping(size);
        let rest = RestSum::of(&frame[HEADERS_BYTES..]);
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("from_rest", size), |b| {
            b.iter(|| template.fill_checksum_from(black_box(&mut frame[..]), rest));
        });
        let (mut reply, frame_bytes) = (0u32, frame.len());
        group.bench_function(BenchmarkId::new("echo_in_place", size), |b| {
            b.iter(|| {
                reply = reply.wrapping_add(1);
                let frame = black_box(&mut frame[..]);
                Received::parse(frame, frame_bytes)?.answer_probe(Kind::Pong, reply)
            });
        });
        // The work that the two above save.
        group.bench_function(BenchmarkId::new("full_sum", size), |b| {
            b.iter(|| checksum::sum(black_box(&frame[HEADERS_BYTES..])));
        });
    }
    group.finish();
}

criterion_group!(benches, frame_build, frame_parse, checksum_incremental);
criterion_main!(benches);
