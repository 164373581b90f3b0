//! Faults are exactly those configured, in both directions.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use wirepath_sys::bpf::{BpfError, Fault, FaultCounts, FaultFilter, FaultSpec};

use crate::lab::{Namespace, Shape, can_run, index_of, ip, send_frame, udp_frame, wait_until};

const PORT: u16 = 7000;

fn fault(every: u32, phase: u32) -> Option<Fault> {
    Some(Fault { every, phase })
}

/// `near` – `middle` – `far`, a filter for each direction in the middle.
struct Wire {
    near: Namespace,
    far: Namespace,
    middle: Namespace,
    near_index: u32,
    forth: FaultFilter,
    back: FaultFilter,
}

impl Wire {
    fn new(forth: FaultSpec, back: FaultSpec) -> Self {
        let [near, middle, far] = [(); 3].map(|()| Namespace::new());
        let (near_task, far_task) = (near.task, far.task);
        let (forth, back) = middle.run(move || {
            ip("link add left type veth peer name near");
            ip("link add right type veth peer name far");
            ip(&format!("link set near netns {near_task}"));
            ip(&format!("link set far netns {far_task}"));
            ip("link set left up");
            ip("link set right up");
            let (left, right) = (index_of("left"), index_of("right"));
            let mut forth = FaultFilter::load(&forth).expect("load");
            let mut back = FaultFilter::load(&back).expect("load");
            forth.attach(left, right).expect("attach");
            back.attach(right, left).expect("attach");
            (forth, back)
        });
        let near_index = near.run(|| {
            ip("link set near address 02:00:00:00:00:01");
            ip("addr add 10.9.0.1/24 dev near");
            ip("link set near up");
            index_of("near")
        });
        far.run(|| {
            ip("link set far address 02:00:00:00:00:02");
            ip("addr add 10.9.0.2/24 dev far");
            ip("link set far up");
        });
        // No static neighbours: ARP must be forwarded.
        Wire { near, far, middle, near_index, forth, back }
    }

    fn near_socket(&self) -> UdpSocket {
        self.near.run(|| UdpSocket::bind("10.9.0.1:0").expect("bind"))
    }

    fn far_socket(&self) -> UdpSocket {
        let socket = self.far.run(|| UdpSocket::bind(("10.9.0.2", PORT)).expect("bind"));
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("timeout");
        socket
    }
}

/// Datagram `n`: its number, then bytes that follow from it, of a length that does too.
fn datagram(n: u32, len: impl Fn(u32) -> usize) -> Vec<u8> {
    let mut bytes = n.to_be_bytes().to_vec();
    bytes.extend((4..len(n)).map(|at| (n as usize * 31 + at * 7) as u8));
    bytes
}

/// Reads `count` datagrams, checks every byte of each, and returns their numbers.
fn receive(socket: &UdpSocket, count: usize, len: impl Fn(u32) -> usize) -> Vec<u32> {
    let mut buffer = [0; 4096];
    let numbers = (0..count)
        .map(|at| {
            let got = loop {
                match socket.recv(&mut buffer) {
                    // With a timeout set, a stopped and continued process sees this.
                    Err(why) if why.kind() == ErrorKind::Interrupted => {}
                    got => break got.unwrap_or_else(|why| panic!("datagram {at}: {why}")),
                }
            };
            let n = u32::from_be_bytes(buffer[..4].try_into().expect("four bytes"));
            assert_eq!(buffer[..got], datagram(n, &len), "datagram {n}, as number {at}");
            n
        })
        .collect();
    socket.set_nonblocking(true).expect("mode");
    assert!(socket.recv(&mut buffer).is_err(), "more than {count} datagrams");
    socket.set_nonblocking(false).expect("mode");
    numbers
}

/// Oracle: datagrams of `0..count` that the far end must see.
fn expected(spec: &FaultSpec, count: u32) -> (Vec<u32>, FaultCounts) {
    let hits = |fault: Option<Fault>, n| fault.is_some_and(|f| n % f.every == f.phase);
    let mut out = Vec::new();
    let mut counts = FaultCounts { seen: count.into(), ..FaultCounts::default() };
    let mut kept = None;
    for n in 0..count {
        if hits(spec.drop, n) {
            counts.dropped += 1;
            continue;
        }
        if kept.is_none() && hits(spec.reorder, n) {
            kept = Some(n);
            continue;
        }
        if hits(spec.duplicate, n) {
            counts.duplicated += 1;
            out.push(n);
        }
        out.push(n);
        if let Some(kept) = kept.take() {
            counts.reordered += 1;
            out.push(kept);
        }
    }
    counts.held = kept.is_some().into();
    (out, counts)
}

fn check_both_directions(forth: FaultSpec, back: FaultSpec, len: fn(u32) -> usize) {
    const COUNT: u32 = 503;
    let wire = Wire::new(forth, back);
    let (near, far) = (wire.near_socket(), wire.far_socket());
    let near_address = near.local_addr().expect("address");

    near.set_read_timeout(Some(Duration::from_secs(10))).expect("timeout");
    run(&forth, COUNT, len, (&near, ([10, 9, 0, 2], PORT).into()), &far);
    assert_eq!(wire.forth.counts().expect("counts"), expected(&forth, COUNT).1);
    run(&back, COUNT, len, (&far, near_address), &near);
    assert_eq!(wire.back.counts().expect("counts"), expected(&back, COUNT).1);
}

/// Sends `count` datagrams and checks what arrives, in bouts that fit a receive buffer.
fn run(
    spec: &FaultSpec,
    count: u32,
    len: fn(u32) -> usize,
    (from, address): (&UdpSocket, SocketAddr),
    to: &UdpSocket,
) {
    let (numbers, _) = expected(spec, count);
    let (mut sent, mut received) = (0, 0);
    while sent < count {
        let bout = sent..count.min(sent + 20);
        for n in bout.clone() {
            from.send_to(&datagram(n, len), address).expect("send");
        }
        sent = bout.end;
        let due = expected(spec, sent).0.len();
        assert_eq!(receive(to, due - received, len), numbers[received..due]);
        received = due;
    }
}

#[test]
fn drops_duplicates_and_swaps_are_exact_in_both_directions() {
    if !can_run() {
        return;
    }
    let forth = FaultSpec {
        udp_port: PORT,
        drop: fault(25, 5),
        duplicate: fault(25, 15),
        reorder: fault(25, 20),
    };
    // Other numbers on the way back, and faults that fall upon each other.
    let back = FaultSpec {
        udp_port: PORT,
        drop: fault(7, 0),
        duplicate: fault(3, 1),
        reorder: fault(5, 4),
    };
    check_both_directions(forth, back, |_| 64);
}

#[test]
fn swapped_datagrams_of_different_lengths_arrive_whole() {
    if !can_run() {
        return;
    }
    let spec = FaultSpec { udp_port: 0, reorder: fault(2, 0), ..FaultSpec::default() };
    // Shorter before longer and longer before shorter, up to a whole MTU.
    check_both_directions(spec, spec, |n| [8, 1472, 4, 333, 900, 17, 1472][n as usize % 7]);
}

#[test]
fn every_datagram_due_for_a_swap_swaps_in_pairs() {
    if !can_run() {
        return;
    }
    let spec = FaultSpec { udp_port: PORT, reorder: fault(1, 0), ..FaultSpec::default() };
    check_both_directions(spec, FaultSpec::default(), |_| 100);
}

#[test]
fn other_ports_and_protocols_are_forwarded_untouched() {
    if !can_run() {
        return;
    }
    let all = FaultSpec { udp_port: PORT + 1, drop: fault(1, 0), ..FaultSpec::default() };
    let wire = Wire::new(all, all);
    let (near, far) = (wire.near_socket(), wire.far_socket());
    for n in 0..20 {
        near.send_to(&datagram(n, |_| 50), ("10.9.0.2", PORT)).expect("send");
    }
    assert_eq!(receive(&far, 20, |_| 50), (0..20).collect::<Vec<_>>());
    let pinged = wire.near.run(|| {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("10.9.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        (listener, address, |mut stream: std::net::TcpStream| {
            stream.write_all(b"ping").expect("write");
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).expect("read");
            answer
        })
    });
    let (listener, address, talk) = pinged;
    let client = wire.far.run(move || std::net::TcpStream::connect(address).expect("connect"));
    let (server, _) = listener.accept().expect("accept");
    let echo = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut client, mut bytes) = (client, [0; 4]);
        client.read_exact(&mut bytes).expect("read");
        client.write_all(&bytes).expect("write");
    });
    assert_eq!(&talk(server), b"ping");
    echo.join().expect("echoed");
    let counts = wire.forth.counts().expect("counts");
    assert_eq!(counts, FaultCounts::default());
    // The rule itself works: the other port loses everything.
    near.send_to(b"gone", ("10.9.0.2", PORT + 1)).expect("send");
    wait_until(|| wire.forth.counts().expect("counts").seen == 1);
    assert_eq!(wire.forth.counts().expect("counts").dropped, 1);
}

#[test]
fn a_datagram_kept_at_the_end_of_traffic_is_reported_as_held() {
    if !can_run() {
        return;
    }
    let spec = FaultSpec { udp_port: PORT, reorder: fault(10, 9), ..FaultSpec::default() };
    let wire = Wire::new(spec, FaultSpec::default());
    let (near, far) = (wire.near_socket(), wire.far_socket());
    for n in 0..10 {
        near.send_to(&datagram(n, |_| 20), ("10.9.0.2", PORT)).expect("send");
    }
    assert_eq!(receive(&far, 9, |_| 20), (0..9).collect::<Vec<_>>());
    wait_until(|| wire.forth.counts().expect("counts").held == 1);
    let counts = wire.forth.counts().expect("counts");
    assert_eq!((counts.held, counts.reordered), (1, 0));
    near.send_to(&datagram(10, |_| 20), ("10.9.0.2", PORT)).expect("send");
    assert_eq!(receive(&far, 2, |_| 20), [10, 9]);
    let counts = wire.forth.counts().expect("counts");
    assert_eq!((counts.held, counts.reordered), (0, 1));
}

#[test]
fn swaps_between_frames_with_and_without_a_finished_checksum_arrive() {
    if !can_run() {
        return;
    }
    let spec = FaultSpec { udp_port: PORT, reorder: fault(2, 0), ..FaultSpec::default() };
    let wire = Wire::new(spec, FaultSpec::default());
    let (near, far) = (wire.near_socket(), wire.far_socket());
    let index = wire.near_index;
    // The socket leaves its checksum to the hardware; the raw frame has none,
    // or a right one, and nothing behind it that would complete it.
    let raw = |n: u32, checksum: bool| {
        let mut frame = udp_frame(PORT, &datagram(n, |_| 40), Shape::default());
        if checksum {
            let sum = udp_checksum(&frame);
            frame[40..42].copy_from_slice(&sum.to_be_bytes());
        }
        wire.near.run(move || send_frame(index, &frame));
    };
    let socket = |n: u32| {
        near.send_to(&datagram(n, |_| 40), ("10.9.0.2", PORT)).expect("send");
    };
    // The two of a pair are sent from different threads, and so may be processed on different
    // CPUs: the second waits until the filter has the first, the next pair until both arrived.
    let pair = |first: u32, one: &dyn Fn(u32), other: &dyn Fn(u32)| {
        one(first);
        wait_until(|| wire.forth.counts().expect("counts").seen == u64::from(first) + 1);
        other(first + 1);
        assert_eq!(receive(&far, 2, |_| 40), [first + 1, first]);
    };
    let finished = |n| raw(n, true);
    let absent = |n| raw(n, false);
    pair(0, &socket, &finished);
    pair(2, &finished, &socket);
    pair(4, &absent, &socket);
    pair(6, &finished, &absent);
    assert_eq!(wire.forth.counts().expect("counts").reordered, 4);
    // The same where the hardware, here the stack in its place, completes them.
    wire.middle.run(|| {
        let out = std::process::Command::new("ethtool").args(["-K", "right", "tx", "off"]).output();
        match out {
            Ok(out) => assert!(out.status.success(), "{out:?}"),
            Err(why) => testkit::skip("ethtool", why),
        }
    });
    pair(8, &finished, &socket);
    pair(10, &socket, &absent);
    pair(12, &socket, &socket);
}

/// Of a frame by [`udp_frame`] without tags and options.
fn udp_checksum(frame: &[u8]) -> u16 {
    let udp = &frame[34..];
    let mut sum: u32 = 17 + udp.len() as u32;
    for pair in frame[26..34].chunks(2).chain(udp.chunks(2)) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[test]
fn super_packets_go_through_whole_and_are_counted_apart() {
    use std::os::fd::AsRawFd;
    if !can_run() {
        return;
    }
    let spec = FaultSpec { udp_port: PORT, drop: fault(1, 0), ..FaultSpec::default() };
    let wire = Wire::new(spec, FaultSpec::default());
    let (near, far) = (wire.near_socket(), wire.far_socket());
    let segment_bytes: libc::c_int = 100;
    // SAFETY: the value lives through the call and is given with its size.
    let answer = unsafe {
        libc::setsockopt(
            near.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const segment_bytes).cast(),
            size_of_val(&segment_bytes) as u32,
        )
    };
    assert_eq!(answer, 0);
    let bytes: Vec<u8> = (0..10).flat_map(|n| datagram(n, |_| 100)).collect();
    near.send_to(&bytes, ("10.9.0.2", PORT)).expect("send");
    assert_eq!(receive(&far, 10, |_| 100), (0..10).collect::<Vec<_>>());
    let counts = wire.forth.counts().expect("counts");
    assert_eq!(counts, FaultCounts { gso_passed: 1, ..FaultCounts::default() });
}

#[test]
fn senseless_faults_and_interfaces_are_refused() {
    for (every, phase) in [(0, 0), (5, 5)] {
        let spec = FaultSpec { drop: fault(every, phase), ..FaultSpec::default() };
        let refused = FaultFilter::load(&spec).expect_err("never comes");
        assert!(matches!(refused, BpfError::Invalid { .. }), "{refused:?}");
    }
    let namespace = Namespace::new();
    namespace.run(|| {
        let mut filter = FaultFilter::load(&FaultSpec::default()).expect("load");
        for (from, to) in [(1, 4_000), (4_000, 1)] {
            let refused = filter.attach(from, to).expect_err("nothing there");
            assert!(matches!(refused, BpfError::NoInterface { .. }), "{refused:?}");
        }
    });
}
