//! Frames that the probe's filter takes, misses and passes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use wirepath_sys::bpf::{
    BpfError, FilterCounts, FrameMetadata, ProbeFilterSpec, SocketFilter, XdpMode,
};
use xdp::{Bind, Copying, Frames, Socket, Then};

use crate::lab::{
    FAR_MAC, NEAR_MAC, Pair, Shape, can_run, send_frame, udp_frame, udp6_frame, wait_until,
};

const PORT: u16 = 7000;

const FAR_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2));
const FAR_IPV6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2));

fn spec() -> ProbeFilterSpec<'static> {
    ProbeFilterSpec {
        addresses: &[FAR_IP, FAR_IPV6],
        udp_port: PORT,
        arp_icmp: false,
        vlan_tag: None,
        frags: false,
        queues: 1,
    }
}

fn counts(redirected: u64, passed: u64, map_missed: u64) -> FilterCounts {
    FilterCounts { redirected, passed, map_missed, untagged: 0 }
}

/// The program attached to the far end, and an AF_XDP socket there that is not in its map yet.
fn open(pair: &Pair, spec: ProbeFilterSpec<'static>, mode: XdpMode) -> (SocketFilter, Socket) {
    let ifindex = pair.far_index;
    pair.far.run(move || {
        let mut filter = SocketFilter::for_probe(&spec).expect("load");
        filter.attach(ifindex, mode).expect("attach");
        let frames = Frames::allocate(4096, 64, 1).expect("memory").remove(0);
        let bind = Bind {
            ifindex,
            ifname: "far".into(),
            queue: 0,
            queues: 1,
            copying: Copying::Copy,
            need_wakeup: false,
            multi_buffer: false,
            ring_entries: 64,
            fill_target: 64,
            tx_budget: 64,
        };
        let mut socket = Socket::open(frames, bind, None).expect("socket");
        socket.rx_post();
        (filter, socket)
    })
}

/// The next frames of a socket.
fn take(socket: &mut Socket, count: usize) -> Vec<Vec<u8>> {
    let mut taken = Vec::new();
    wait_until(|| {
        socket.rx_take(64, |bytes, _| {
            taken.push(bytes.to_vec());
            Then::Release
        });
        taken.len() == count
    });
    taken
}

/// The frame with another destination address; its checksums are those of before.
fn to(mut frame: Vec<u8>, destination: [u8; 4]) -> Vec<u8> {
    frame[30..34].copy_from_slice(&destination);
    frame
}

fn wait_for_counts(filter: &SocketFilter, expected: FilterCounts) {
    let mut counts = FilterCounts::default();
    wait_until(|| {
        counts = filter.counts().expect("counts");
        counts == expected
    });
    assert_eq!(counts, expected);
}

#[test]
fn frames_of_the_port_miss_an_empty_map_and_all_others_pass_in_both_modes() {
    if !can_run() {
        return;
    }
    for mode in [XdpMode::Skb, XdpMode::Native] {
        let pair = Pair::new();
        let index = pair.far_index;
        let filter = pair.far.run(move || {
            let mut filter = SocketFilter::for_probe(&spec()).expect("load");
            filter.attach(index, mode).expect("attach");
            filter
        });
        let receiver = pair.far.run(|| UdpSocket::bind(("10.9.0.2", PORT)).expect("bind"));
        pair.near.run(|| {
            let socket = UdpSocket::bind("10.9.0.1:0").expect("bind");
            for port in [PORT, PORT, PORT, PORT + 1, PORT + 1] {
                // A closed port answers by ICMP, which the next send reports: not of interest.
                let _ = socket.send_to(b"hello", ("10.9.0.2", port));
            }
        });
        wait_for_counts(&filter, counts(0, 2, 3));
        // Missed frames reach the stack.
        receiver.set_read_timeout(Some(Duration::from_secs(5))).expect("timeout");
        for _ in 0..3 {
            assert_eq!(receiver.recv(&mut [0; 64]).expect("passed on"), 5);
        }
    }
}

#[test]
fn headers_are_walked_by_their_lengths() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let (near_index, far_index) = (pair.near_index, pair.far_index);
    let plain = Shape::default();
    let ours = [
        udp_frame(PORT, b"x", plain),
        udp_frame(PORT, b"x", Shape { vlan_tags: 1, ..plain }),
        udp_frame(PORT, b"x", Shape { option_words: 10, ..plain }),
        // "Don't fragment" is not a fragment.
        udp_frame(PORT, b"x", Shape { fragment: 0x4000, ..plain }),
        udp6_frame(PORT, b"x", 17, &[]),
        [
            &udp6_frame(PORT, b"x", 17, &[])[..12],
            &[0x81, 0, 0, 5],
            &udp6_frame(PORT, b"x", 17, &[])[12..],
        ]
        .concat(),
    ];
    let mut short_header = udp_frame(PORT, b"x", plain);
    short_header[14] = 0x44;
    let mut version_6 = udp_frame(PORT, b"x", plain);
    version_6[14] = 0x65;
    let mut tcp = udp_frame(PORT, b"x", plain);
    tcp[23] = 6;
    let mut other_address = udp6_frame(PORT, b"x", 17, &[]);
    other_address[53] = 3;
    let mut version_4 = udp6_frame(PORT, b"x", 17, &[]);
    version_4[14] = 0x45;
    let others = [
        other_address,
        version_4,
        udp6_frame(PORT + 1, b"x", 17, &[]),
        udp6_frame(PORT, b"x", 17, &[])[..61].to_vec(),
        // Hop-by-hop options, destination options, a fragment, an echo request, TCP.
        udp6_frame(PORT, b"x", 0, &[17, 0, 1, 4, 0, 0, 0, 0]),
        udp6_frame(PORT, b"x", 60, &[17, 0, 1, 4, 0, 0, 0, 0]),
        udp6_frame(PORT, b"x", 44, &[17, 0, 0, 1, 0, 0, 0, 9]),
        udp6_frame(PORT, b"x", 58, &[]),
        udp6_frame(PORT, b"x", 6, &[]),
        // The IPv4 address in the form in which the program has it.
        {
            let mut mapped = udp6_frame(PORT, b"x", 17, &[]);
            mapped[38..54].copy_from_slice(&Ipv4Addr::new(10, 9, 0, 2).to_ipv6_mapped().octets());
            mapped[53] = 3;
            mapped
        },
        to(udp_frame(PORT, b"x", plain), [10, 9, 0, 3]),
        to(udp_frame(PORT, b"x", plain), [192, 0, 2, 1]),
        udp_frame(PORT, b"x", Shape { vlan_tags: 2, ..plain }),
        udp_frame(PORT, b"x", Shape { fragment: 0x2000, ..plain }),
        udp_frame(PORT, b"x", Shape { fragment: 0x0010, ..plain }),
        udp_frame(PORT, b"x", plain)[..40].to_vec(),
        udp_frame(PORT, b"x", plain)[..15].to_vec(),
        short_header,
        version_6,
        tcp,
    ];
    let filter = pair.far.run(move || {
        let mut filter = SocketFilter::for_probe(&spec()).expect("load");
        filter.attach(far_index, XdpMode::Native).expect("attach");
        filter
    });
    let expected = counts(0, others.len() as u64, ours.len() as u64);
    pair.near.run(move || {
        for frame in ours.iter().chain(&others) {
            send_frame(near_index, frame);
        }
    });
    wait_for_counts(&filter, expected);
}

#[test]
fn arp_and_icmp_are_taken_only_when_asked() {
    if !can_run() {
        return;
    }
    for (arp_icmp, expected) in [(false, counts(0, 3, 0)), (true, counts(0, 1, 2))] {
        let pair = Pair::new();
        let (near_index, far_index) = (pair.near_index, pair.far_index);
        let filter = pair.far.run(move || {
            let spec = ProbeFilterSpec { udp_port: 0, arp_icmp, ..spec() };
            let mut filter = SocketFilter::for_probe(&spec).expect("load");
            filter.attach(far_index, XdpMode::Native).expect("attach");
            filter
        });
        pair.near.run(move || {
            let mut icmp = udp_frame(0, &[0; 32], Shape::default());
            icmp[23] = 1;
            send_frame(near_index, &icmp);
            // Port 0 stands for no UDP, not for a datagram to port 0.
            send_frame(near_index, &udp_frame(0, b"x", Shape::default()));
            let mut arp = [FAR_MAC, NEAR_MAC].concat();
            arp.extend([0x08, 0x06]);
            arp.resize(60, 0);
            send_frame(near_index, &arp);
        });
        wait_for_counts(&filter, expected);
    }
}

#[test]
fn frames_of_the_port_go_to_the_socket_of_their_queue_once_it_is_there() {
    if !can_run() {
        return;
    }
    for mode in [XdpMode::Skb, XdpMode::Native] {
        let pair = Pair::new();
        let near_index = pair.near_index;
        let (filter, mut socket) = open(&pair, spec(), mode);
        let ours = udp_frame(PORT, b"to the socket", Shape::default());
        let other = udp_frame(PORT + 1, b"to the stack", Shape::default());
        let send = |frames: Vec<Vec<u8>>| {
            pair.near.run(move || frames.iter().for_each(|frame| send_frame(near_index, frame)));
        };
        send(vec![ours.clone()]);
        wait_for_counts(&filter, counts(0, 0, 1));

        filter.insert_socket(0, socket.as_fd()).expect("insert");
        send(vec![ours.clone(), other.clone(), ours.clone(), ours.clone()]);
        wait_for_counts(&filter, counts(3, 1, 1));
        assert_eq!(take(&mut socket, 3), [&ours[..]; 3]);
    }
}

#[test]
fn frames_of_a_vlan_are_taken_as_they_are_and_those_without_a_tag_with_its_tag() {
    if !can_run() {
        return;
    }
    let of_5 = Shape { vlan_tags: 1, ..Shape::default() };
    let tagged =
        |tag: [u8; 2], frame: &[u8]| [&frame[..12], &[0x81, 0], &tag, &frame[12..]].concat();
    let plain = [udp_frame(PORT, b"x", Shape::default()), udp6_frame(PORT, b"x", 17, &[])];
    for mode in [XdpMode::Skb, XdpMode::Native] {
        let pair = Pair::new();
        let near_index = pair.near_index;
        let spec = ProbeFilterSpec { vlan_tag: Some(0x6005), ..spec() };
        let (filter, mut socket) = open(&pair, spec, mode);
        filter.insert_socket(0, socket.as_fd()).expect("insert");
        let frames = [
            udp_frame(PORT, b"x", of_5),
            tagged([0xe0, 5], &plain[0]),
            plain[0].clone(),
            plain[1].clone(),
            // Of another VLAN, port, and number of tags.
            tagged([0x60, 6], &plain[0]),
            udp_frame(PORT + 1, b"x", of_5),
            udp_frame(PORT + 1, b"x", Shape::default()),
            udp_frame(PORT, b"x", Shape { vlan_tags: 2, ..of_5 }),
        ];
        let sent = frames.clone();
        pair.near.run(move || sent.iter().for_each(|frame| send_frame(near_index, frame)));
        wait_for_counts(&filter, FilterCounts { untagged: 2, ..counts(4, 4, 0) });
        let expected = [
            frames[0].clone(),
            frames[1].clone(),
            tagged([0x60, 5], &plain[0]),
            tagged([0x60, 5], &plain[1]),
        ];
        assert_eq!(take(&mut socket, 4), expected);
    }
}

#[test]
fn metadata_comes_with_frames_of_the_probe_and_their_vlan() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let (near_index, far_index) = (pair.near_index, pair.far_index);
    let key = xdp::MetadataKey::random().expect("random numbers");
    for metadata in [FrameMetadata::Stamp(key), FrameMetadata::Hints(key, far_index)] {
        let spec = ProbeFilterSpec { vlan_tag: Some(0x6005), ..spec() };
        let (mut filter, mut socket) = open(&pair, spec, XdpMode::Native);
        filter.detach();
        let filter = pair.far.run(move || {
            let mut filter = SocketFilter::for_probe_with(&spec, Some(metadata)).expect("load");
            filter.attach(far_index, XdpMode::Native).expect("attach");
            filter
        });
        filter.insert_socket(0, socket.as_fd()).expect("insert");
        let frame = udp_frame(PORT, b"x", Shape::default());
        let other = udp_frame(PORT + 1, b"x", Shape::default());
        // The program puts the tag in: the metadata moves with the frame's first byte.
        let tagged = [&frame[..12], &[0x81, 0, 0x60, 5], &frame[12..]].concat();
        let sent = [other, frame];
        pair.near.run(move || sent.iter().for_each(|frame| send_frame(near_index, frame)));
        let mut taken = Vec::new();
        wait_until(|| {
            socket.rx_take_with_metadata(key, 64, |found, bytes, _| {
                taken.push((found, bytes.to_vec()));
                Then::Release
            });
            !taken.is_empty()
        });
        let (found, bytes) = taken.remove(0);
        let found = found.expect("the program writes it");
        let is_stamp = metadata == FrameMetadata::Stamp(key);
        assert_eq!((found.stamp_ns.is_some(), found.hash.is_some()), (is_stamp, !is_stamp));
        assert_eq!((bytes, taken.len()), (tagged, 0));
    }
}

#[test]
fn a_queue_outside_the_map_is_refused_by_name() {
    let filter = SocketFilter::for_probe(&ProbeFilterSpec { queues: 2, ..spec() }).expect("load");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let refused = filter.insert_socket(2, socket.as_fd()).expect_err("outside");
    assert!(matches!(refused, BpfError::NoQueue { queue: 2, queues: 2 }), "{refused}");
    let refused = filter.insert_socket(1, socket.as_fd()).expect_err("no AF_XDP socket");
    assert!(matches!(refused, BpfError::Map { .. }), "{refused}");
}

#[test]
fn a_filter_for_no_address_or_too_many_is_refused() {
    for addresses in [&[][..], &[FAR_IP; 17]] {
        let refused = SocketFilter::for_probe(&ProbeFilterSpec { addresses, ..spec() });
        let why = refused.expect_err("none").to_string();
        assert!(why.contains(&format!("this interface has {}", addresses.len())), "{why}");
    }
    SocketFilter::for_probe(&ProbeFilterSpec { addresses: &[FAR_IP; 16], ..spec() }).expect("load");
}

#[test]
fn a_filter_for_all_takes_every_frame() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let (near_index, far_index) = (pair.near_index, pair.far_index);
    let filter = pair.far.run(move || {
        let mut filter = SocketFilter::for_all(1).expect("load");
        filter.attach(far_index, XdpMode::Native).expect("attach");
        filter
    });
    pair.near.run(move || {
        send_frame(near_index, &udp_frame(PORT, b"x", Shape::default()));
        send_frame(near_index, &udp6_frame(PORT, b"x", 17, &[]));
        send_frame(near_index, &[[0xff; 6], NEAR_MAC].concat().repeat(2));
    });
    wait_for_counts(&filter, counts(0, 0, 3));
}

#[test]
fn a_filter_for_no_queue_is_refused() {
    let refused =
        SocketFilter::for_probe(&ProbeFilterSpec { queues: 0, ..spec() }).expect_err("none");
    assert!(matches!(refused, BpfError::Invalid { .. }), "{refused}");
}
