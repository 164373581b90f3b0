//! Hints of the veth driver about received frames, and requests with sent ones.

use std::os::fd::AsFd;

use wirepath_xdp::{
    Checksum, FrameMemory, ProgramError, Redirect, RxMetadata, SendMetadata, SendRequest,
    SentFrame, Socket, Then, VlanTag, XdpMode, XskError,
};

use crate::lab::{self, Pair, Shape, can_run, send_frame, udp_frame, wait_until};
use crate::tagging::tag_all_sent;
use crate::{PORT, flush, open, open_end, take};

/// First byte of the UDP header behind Ethernet and IPv4 without options.
const UDP_START: usize = 34;

/// The next frames of a socket with their metadata.
fn take_with_metadata(
    program: &Redirect,
    socket: &mut Socket,
    count: usize,
) -> Vec<(Option<RxMetadata>, Vec<u8>)> {
    let key = program.metadata_key().expect("it writes metadata");
    let mut taken = Vec::new();
    wait_until(|| {
        socket.rx_take_with_metadata(key, 64, |metadata, bytes, _| {
            taken.push((metadata, bytes.to_vec()));
            Then::Release
        });
        socket.rx_post();
        taken.len() == count
    });
    taken
}

#[test]
fn hash_and_vlan_tag_of_a_veth_come_in_front_of_the_frame() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let (program, mut socket) = pair.far.run(|| {
        let socket = open("far", FrameMemory::default());
        let index = lab::index_of("far");
        let mut program = Redirect::load_with_metadata(index, 1, false).expect("load");
        program.insert(0, socket.as_fd()).expect("insert");
        let refused = program.attach(index, XdpMode::Skb);
        assert!(matches!(refused, Err(ProgramError::MetadataInSkbMode { .. })), "{refused:?}");
        program.attach(index, XdpMode::Native).expect("attach");
        (program, socket)
    });
    let near_index = pair.near_index;
    let frame = udp_frame(PORT, b"hashed", Shape::default());
    // As many as there are frames and more, so that places are used again.
    for _ in 0..100 {
        let sent = frame.clone();
        pair.near.run(move || send_frame(near_index, &sent));
        let (metadata, bytes) = take_with_metadata(&program, &mut socket, 1).remove(0);
        let metadata = metadata.expect("the program writes it");
        assert_eq!(bytes, frame);
        // Its buffers have no stamp of a device.
        assert_eq!((metadata.stamp_ns, metadata.vlan), (None, None));
        assert_ne!(metadata.hash.expect("of the buffer").value, 0);
    }
    let _tagging = pair.near.run(move || tag_all_sent(near_index, 0x6005));
    let sent = frame.clone();
    pair.near.run(move || send_frame(near_index, &sent));
    let (metadata, bytes) = take_with_metadata(&program, &mut socket, 1).remove(0);
    let vlan = metadata.expect("as before").vlan;
    assert_eq!((vlan, bytes), (Some(VlanTag { protocol: 0x8100, tag: 0x6005 }), frame));
    assert!(socket.ledger().balances(), "{:?}", socket.ledger());
}

#[test]
fn a_frame_without_metadata_has_none_whatever_its_sender_wrote() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let mut far = open_end(&pair.far, "far", XdpMode::Native, FrameMemory::default());
    let index = pair.far_index;
    // A key of a program that is not attached.
    let other = pair.far.run(move || Redirect::load_with_metadata(index, 1, false).expect("load"));
    let key = other.metadata_key().expect("it has one");
    let payload: Vec<u8> = std::iter::repeat_n(key.word().to_ne_bytes(), 150).flatten().collect();
    let near_index = pair.near_index;
    for _ in 0..200 {
        let sent = udp_frame(PORT, &payload, Shape::default());
        pair.near.run(move || send_frame(near_index, &sent));
        let mut found = None;
        wait_until(|| {
            far.socket.rx_take_with_metadata(key, 64, |metadata, _, _| {
                found = Some(metadata);
                Then::Release
            });
            far.socket.rx_post();
            found.is_some()
        });
        assert_eq!(found, Some(None));
    }
}

/// Sum of a UDP datagram over IPv4 with its pseudo-header: 0xffff if its checksum is right.
fn udp_sum(frame: &[u8]) -> u16 {
    let udp = &frame[UDP_START..];
    let pseudo = [17, udp.len() as u32];
    let words = frame[26..34].chunks(2).chain(udp.chunks(2));
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)])))
        .chain(pseudo)
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// A frame whose checksum field has the sum of the pseudo-header alone.
fn unfinished(payload: &[u8]) -> Vec<u8> {
    let mut frame = udp_frame(PORT, payload, Shape::default());
    let udp_bytes = frame.len() - UDP_START;
    let mut pseudo = [0; UDP_START + 2];
    pseudo[..UDP_START].copy_from_slice(&frame[..UDP_START]);
    // The datagram as if it were its length alone.
    let sum = udp_sum(&pseudo).wrapping_sub(2) as usize + udp_bytes;
    let sum = ((sum & 0xffff) + (sum >> 16)) as u16;
    frame[UDP_START + 6..UDP_START + 8].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn with_requests() -> FrameMemory {
    let send_metadata = SendMetadata::SoftwareChecksum;
    FrameMemory { send_metadata, ..FrameMemory::default() }
}

#[test]
fn a_checksum_that_the_sender_left_out_is_right_at_the_receiver() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let mut far = open_end(&pair.far, "far", XdpMode::Native, FrameMemory::default());
    let mut near = open_end(&pair.near, "near", XdpMode::Native, with_requests());
    assert_eq!(near.socket.packet_bytes_max(), 2048 - 24);
    for payload in [&b"odd"[..], b"even", &[0xa5; 1400]] {
        let frame = unfinished(payload);
        let checksum = Some(Checksum { start: UDP_START as u16, offset: 6 });
        let request = SendRequest { checksum, ..SendRequest::default() };
        let posted = near.socket.tx_post_request(frame.len(), &request, |slot| {
            slot.copy_from_slice(&frame);
        });
        assert!(posted.expect("it fits").is_some());
        flush(&mut near.socket);
        let arrived = take(&mut far.socket, 1).remove(0);
        assert_eq!(udp_sum(&arrived), 0xffff, "the kernel summed up");
        assert_eq!(arrived[UDP_START + 8..], frame[UDP_START + 8..]);
        // Without the request it stays as it was.
        near.socket.tx_post(1, frame.len(), |slot| slot.copy_from_slice(&frame)).expect("it fits");
        flush(&mut near.socket);
        assert_eq!(take(&mut far.socket, 1), std::slice::from_ref(&frame));
        assert_ne!(udp_sum(&frame), 0xffff);
    }
    assert!(near.socket.ledger().balances(), "{:?}", near.socket.ledger());
}

/// CLOCK_TAI, ns.
fn tai_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid timespec that outlives the call.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_TAI, &mut now) }, 0);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[test]
fn a_stamp_is_between_post_and_reap_and_comes_with_its_frame() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let _far = open_end(&pair.far, "far", XdpMode::Native, FrameMemory::default());
    let mut near = open_end(&pair.near, "near", XdpMode::Native, with_requests());
    let frame = udp_frame(PORT, b"when", Shape::default());
    let stamped = SendRequest { stamp: true, ..SendRequest::default() };
    // More than there are frames.
    for round in 0..100 {
        let is_asked = round % 2 == 0;
        let request = if is_asked { stamped } else { SendRequest::default() };
        let begun_ns = tai_ns();
        let posted = near.socket.tx_post_request(frame.len(), &request, |slot| {
            slot.copy_from_slice(&frame);
        });
        let posted = posted.expect("it fits").expect("there is room");
        near.socket.kick().expect("kick");
        let mut answers: Vec<SentFrame> = Vec::new();
        wait_until(|| {
            near.socket.tx_reap_with(|sent| answers.push(sent));
            !answers.is_empty()
        });
        let [SentFrame { frame, stamp_ns }] = answers[..] else { panic!("{answers:?}") };
        assert_eq!((frame, stamp_ns.is_some()), (posted, is_asked));
        if let Some(stamp_ns) = stamp_ns {
            assert!((begun_ns..=tai_ns()).contains(&stamp_ns), "{begun_ns} {stamp_ns}");
        }
    }
}

#[test]
fn a_request_that_cannot_be_posted_is_refused_with_its_reason() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let mut near = open_end(&pair.near, "near", XdpMode::Native, with_requests());
    let outside = Some(Checksum { start: 40, offset: 19 });
    let request = SendRequest { checksum: outside, ..SendRequest::default() };
    let refused = near.socket.tx_post_request(60, &request, |_| unreachable!());
    assert!(matches!(refused, Err(XskError::Request { .. })), "{refused:?}");
    let refused = near.socket.tx_post_request(2025, &SendRequest::default(), |_| unreachable!());
    assert!(matches!(refused, Err(XskError::TooLong { needed: 2, .. })), "{refused:?}");
    let mut far = open_end(&pair.far, "far", XdpMode::Native, FrameMemory::default());
    let refused = far.socket.tx_post_request(60, &SendRequest::default(), |_| unreachable!());
    let why = refused.expect_err("no room").to_string();
    assert!(why.contains("FrameMemory::send_metadata"), "{why}");
    assert_eq!(near.socket.tx_in_flight() + far.socket.tx_in_flight(), 0);
}
