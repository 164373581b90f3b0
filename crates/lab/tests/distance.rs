//! A wire with distance carries real traffic with the delay, rate, buffer and losses that were asked for.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write, stdout};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use model::Measurement;
use sys::child::{Child, ChildPlace};
use sys::netns::Netns;
use sys::packet_port::{PacketPort, PortHeader};
use sys::{socket, tcp};
use testkit::LONG;
use wirepath_lab::{DistantPair, End, PairSpec, WireReport, WireTrials};

fn lab(wire: &str) -> DistantPair {
    lab_of(&PairSpec::default(), wire)
}

fn lab_of(spec: &PairSpec, wire: &str) -> DistantPair {
    DistantPair::new(spec, &wire.parse().unwrap()).unwrap()
}

/// A socket with room for everything that a test sends.
fn udp_at(end: &End) -> UdpSocket {
    let ip = end.load_ip();
    let socket = end.run(|| UdpSocket::bind((ip, 0)).unwrap()).unwrap();
    socket::set_receive_buffer(socket.as_fd(), 16 << 20).unwrap();
    socket
}

/// Datagrams that arrive until none has for a while after the first: their first four bytes.
fn numbers(socket: &UdpSocket) -> Vec<u32> {
    let mut all = Vec::new();
    let mut buffer = [0; 2048];
    socket.set_read_timeout(Some(LONG)).unwrap();
    while socket.recv(&mut buffer).is_ok() {
        socket.set_read_timeout(Some(Duration::from_millis(800))).unwrap();
        all.push(u32::from_be_bytes(*buffer.first_chunk().unwrap()));
    }
    all
}

/// Sends numbered datagrams from near to far; returns those that arrived, in order, and the wire's counts.
fn send_datagrams(
    lab: &DistantPair,
    (count, size_bytes): (u32, usize),
    seed: u64,
) -> (Vec<u32>, WireReport) {
    let (near, far) = (udp_at(&lab.ends.near), udp_at(&lab.ends.far));
    near.connect(far.local_addr().unwrap()).unwrap();
    lab.wire.begin(seed).unwrap();
    let mut datagram = vec![0; size_bytes];
    for number in 0..count {
        datagram[..4].copy_from_slice(&number.to_be_bytes());
        near.send(&datagram).unwrap();
    }
    let arrived = numbers(&far);
    (arrived, lab.wire.report().unwrap())
}

/// Sends bytes from near to far over a new connection; returns those that arrived, and the time.
fn send_bytes(lab: &DistantPair, control: &str, bytes: &[u8]) -> (Vec<u8>, Duration) {
    let at: IpAddr = lab.ends.far.load_ip();
    let listener = lab.ends.far.run(|| TcpListener::bind((at, 9000)).unwrap()).unwrap();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut got = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
            got
        });
        let begun = Instant::now();
        let mut sender = lab.ends.near.run(|| TcpStream::connect((at, 9000)).unwrap()).unwrap();
        tcp::set_congestion_control(sender.as_fd(), control).unwrap();
        sender.write_all(bytes).unwrap();
        drop(sender);
        (receiver.join().unwrap(), begun.elapsed())
    })
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn tcp_arrives_whole_and_no_faster_than_the_wire() {
    let lab = lab("delay=5ms,rate=100mbit,buffer=4bdp");
    let sent = bytes(4_000_000);
    lab.wire.begin(1).unwrap();
    let (got, took) = send_bytes(&lab, "reno", &sent);
    assert!(got == sent);
    let WireReport { forward, .. } = lab.wire.report().unwrap();
    // 4 MB in segments of 1448 bytes with 90 bytes around each are 340 ms.
    assert!(took > Duration::from_millis(340), "{took:?}");
    assert_eq!((forward.lost_count, forward.uncut_count), (0, 0));
    assert!(forward.data_segment_count >= 2_763, "segments, not super-frames: {forward:?}");
}

#[test]
fn a_round_trip_takes_twice_the_delay() {
    let lab = lab("delay=10ms,rate=100mbit");
    let (near, far) = (udp_at(&lab.ends.near), udp_at(&lab.ends.far));
    near.connect(far.local_addr().unwrap()).unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    near.set_read_timeout(Some(LONG)).unwrap();
    far.set_read_timeout(Some(LONG)).unwrap();
    let mut buffer = [0; 64];
    let rtts: Vec<Duration> = (0..30)
        .map(|_| {
            let begun = Instant::now();
            near.send(b"there").unwrap();
            far.recv(&mut buffer).unwrap();
            far.send(b"back").unwrap();
            near.recv(&mut buffer).unwrap();
            begun.elapsed()
        })
        .collect();
    let least = rtts.iter().min().unwrap();
    assert!(rtts.iter().all(|rtt| *rtt >= Duration::from_millis(20)), "{rtts:?}");
    assert!(*least < Duration::from_millis(22), "{rtts:?}");
}

#[test]
fn losses_are_the_same_in_two_trials_of_a_seed_and_counted_to_the_segment() {
    let lab = lab("delay=2ms,rate=1gbit,buffer=4mb,loss=5%");
    const COUNT: u32 = 3_000;
    let [first, second, other] = [7, 7, 8].map(|seed| {
        let (arrived, report) = send_datagrams(&lab, (COUNT, 200), seed);
        assert!(arrived.is_sorted(), "order");
        let lost: BTreeSet<u32> = (0..COUNT).filter(|number| !arrived.contains(number)).collect();
        assert_eq!(report.forward.lost_count, lost.len() as u64, "{report:?}");
        assert_eq!(report.forward.data_segment_count, u64::from(COUNT));
        lost
    });
    assert_eq!(first, second);
    assert!(first != other && (75..300).contains(&first.len()), "{}", first.len());
}

/// Cubic and Reno send different amounts; what both have sent is lost alike.
#[test]
fn super_frames_that_lose_segments_are_cut_and_every_byte_arrives() {
    for ipv6 in [false, true] {
        let spec = PairSpec { ipv6, ..PairSpec::default() };
        let lab = lab_of(&spec, "delay=1ms,rate=500mbit,loss=1%");
        let sent = bytes(6_000_000);
        let counts = ["reno", "cubic"].map(|control| {
            lab.wire.begin(5).unwrap();
            let (got, _) = send_bytes(&lab, control, &sent);
            assert!(got == sent, "over IPv6: {ipv6}, {control}");
            lab.wire.report().unwrap().forward
        });
        for count in &counts {
            assert!(count.lost_count > 10 && count.uncut_count == 0, "{count:?}");
        }
        let [less, more] = if counts[0].data_segment_count < counts[1].data_segment_count {
            counts
        } else {
            [counts[1], counts[0]]
        };
        let more_sent = more.data_segment_count - less.data_segment_count;
        assert!(less.lost_count <= more.lost_count, "{counts:?}");
        assert!(more.lost_count - less.lost_count <= more_sent, "{counts:?}");
    }
}

#[test]
fn super_frames_of_udp_lose_single_datagrams() {
    const UDP_SEGMENT: i32 = 103;
    const SOL_UDP: i32 = 17;
    let lab = lab("delay=2ms,rate=100mbit,buffer=4mb,loss=10%");
    let (near, far) = (udp_at(&lab.ends.near), udp_at(&lab.ends.far));
    near.connect(far.local_addr().unwrap()).unwrap();
    socket::set_int(near.as_fd(), SOL_UDP, UDP_SEGMENT, 1_000).unwrap();
    lab.wire.begin(2).unwrap();
    for frame in 0..50_u32 {
        let mut datagrams = vec![0; 9_500];
        for (at, datagram) in datagrams.chunks_mut(1_000).enumerate() {
            datagram[..4].copy_from_slice(&(frame * 10 + at as u32).to_be_bytes());
        }
        near.send(&datagrams).unwrap();
    }
    let arrived = numbers(&far);
    let WireReport { forward, .. } = lab.wire.report().unwrap();
    assert_eq!((forward.data_segment_count, forward.uncut_count), (500, 0));
    assert!(arrived.is_sorted() && (20..100).contains(&forward.lost_count), "{forward:?}");
    assert_eq!(arrived.len() as u64 + forward.lost_count, 500);
}

#[test]
fn a_full_buffer_drops_what_comes_last() {
    let lab = lab("delay=5ms,rate=1mbit,buffer=20kb,mark=5kb");
    let (arrived, report) = send_datagrams(&lab, (200, 1_400), 1);
    // Of 1466 bytes on the wire 13 fit; more have left only if the sender was slow.
    assert_eq!(arrived[..13], (0..13).collect::<Vec<u32>>());
    assert!(arrived.len() < 50, "{}", arrived.len());
    assert_eq!(report.forward.queue_drop_count + arrived.len() as u64, 200);
    assert_eq!(report.forward.marked_count, 0, "none of them has ECN");
}

#[test]
fn a_queue_above_the_threshold_marks_in_place_of_a_drop() {
    const IP_TOS: i32 = 1;
    let lab = lab("delay=2ms,rate=10mbit,buffer=1mb,mark=20kb");
    let (near, far) = (udp_at(&lab.ends.near), udp_at(&lab.ends.far));
    near.connect(far.local_addr().unwrap()).unwrap();
    socket::set_int(near.as_fd(), 0, IP_TOS, 2).unwrap();
    lab.wire.begin(1).unwrap();
    (0..100_u32)
        .for_each(|number| drop(near.send(&[&number.to_be_bytes()[..], &[0; 996]].concat())));
    assert_eq!(numbers(&far).len(), 100, "the checksums of marked headers are right");
    let WireReport { forward, .. } = lab.wire.report().unwrap();
    assert!((50..100).contains(&forward.marked_count), "{forward:?}");
}

#[test]
fn jitter_keeps_the_order_unless_it_may_change_it() {
    for (wire, keeps) in [
        ("delay=10ms,rate=100mbit,buffer=1mb,jitter=5ms", true),
        ("delay=10ms,rate=100mbit,buffer=1mb,jitter=5ms,reorder", false),
    ] {
        let (arrived, _) = send_datagrams(&lab(wire), (300, 500), 1);
        assert_eq!((arrived.len(), arrived.is_sorted()), (300, keeps), "{wire}");
    }
}

#[test]
fn frames_of_a_vlan_keep_their_tag() {
    let lab = lab("delay=2ms,rate=100mbit");
    let port = |end: &End| end.run(|| PacketPort::open(end.ifindex, 1 << 20).unwrap()).unwrap();
    let (near, far) = (port(&lab.ends.near), port(&lab.ends.far));
    let header = PortHeader { checksum: None, segments: None, has_ecn: false, header_bytes: 0 };
    let addresses = [lab.ends.far.mac, lab.ends.near.mac].concat();
    // An EtherType for experiments.
    let rest = [&[0x88, 0xb5][..], &[0x5a; 60]].concat();
    let tagged = [&addresses[..], &[0x81, 0x00, 0x60, 0x05], &rest].concat();
    near.send([&header.write(), &tagged]).unwrap();
    let mut room = vec![0; 4096];
    let mut got = None;
    assert!(testkit::until(LONG, || {
        got = far.receive(&mut room).unwrap();
        got.is_some()
    }));
    let got = got.unwrap();
    assert_eq!(got.vlan, Some([0x81, 0x00, 0x60, 0x05]));
    assert_eq!(room[PortHeader::BYTES..got.len_bytes], [&addresses[..], &rest].concat());
}

/// Child process of the next test, which kills it.
#[test]
#[ignore = "role of a child process"]
fn holds_a_wire_until_killed() {
    let lab = lab("delay=20ms,rate=100mbit");
    let near = lab.ends.near.netns.as_fd().as_raw_fd();
    writeln!(stdout(), "holding {near} {}.", lab.wire.pid()).unwrap();
    thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_killed_owner_leaves_no_wire_and_no_namespace() {
    let role = testkit::role("holds_a_wire_until_killed");
    let mut child = Child::spawn(role, &ChildPlace::default()).unwrap();
    assert!(child.wait_for_stdout(".\n", LONG), "{:?}", child.wait(Duration::ZERO));
    let said = String::from_utf8(child.stdout_so_far()).unwrap();
    let (_, said) = said.split_once("holding ").unwrap();
    let (fd, rest) = said.split_once(' ').unwrap();
    let wire = format!("/proc/{}", rest.split('.').next().unwrap());
    let netns = Netns::open(format!("/proc/{}/fd/{fd}", child.pid())).unwrap();
    let inode = netns.inode().unwrap();
    drop(netns);
    assert!(Path::new(&wire).exists() && testkit::is_netns_held(inode));
    let killed = Command::new("kill").args(["-9", &child.pid().to_string()]).status().unwrap();
    assert!(killed.success());
    child.wait(LONG).unwrap().expect("killed");
    assert!(testkit::until(LONG, || !is_running(&wire) && !testkit::is_netns_held(inode)));
}

/// False for a process that has ended and was not waited for.
fn is_running(process: &str) -> bool {
    let stat = fs::read_to_string(format!("{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn each_end_forgets_what_connections_before_have_learned() {
    let lab = lab("delay=2ms,rate=100mbit");
    for end in [&lab.ends.near, &lab.ends.far] {
        let read = || fs::read_to_string("/proc/sys/net/ipv4/tcp_no_metrics_save").unwrap();
        assert_eq!(end.run(read).unwrap().trim(), "1");
    }
}

#[test]
fn trials_of_a_block_have_the_same_losses_and_name_the_congestion_control() {
    let DistantPair { ends, wire } = lab("delay=100ms,rate=1gbit,buffer=4mb,loss=5%");
    let mut trials = WireTrials::new(wire);
    trials.seed(9);
    let namespaces = [&ends.near, &ends.far].map(|end| (&end.netns, end.load_ip()));
    let (near, far) = (udp_at(&ends.near), udp_at(&ends.far));
    near.connect(far.local_addr().unwrap()).unwrap();
    let trial = |trials: &WireTrials| {
        let ran = trials.around(
            namespaces,
            || {
                (0..1_000_u32).for_each(|number| drop(near.send(&number.to_be_bytes())));
                Ok((numbers(&far), Measurement::default()))
            },
            |(_, m)| m,
        );
        ran.unwrap()
    };
    trials.begin_block();
    let (first, m) = trial(&trials);
    assert_eq!(trial(&trials).0, first);
    trials.begin_block();
    assert_ne!(trial(&trials).0, first, "each block has losses of its own");
    assert_eq!(m.counters["wire_segment_count"], 1_000);
    assert_eq!(m.counters["wire_loss_count"], 1_000 - first.len() as u64);
    let default = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    assert_eq!(m.mode["tcp_congestion_control"], default.trim());
}
