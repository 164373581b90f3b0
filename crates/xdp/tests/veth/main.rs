//! Sockets and programs of the crate on a veth pair, between namespaces made for each test.
#![expect(
    unsafe_code,
    reason = "namespaces and raw sockets for the set-up, one reason at each block"
)]

#[path = "../../src/program/bpf.rs"]
#[allow(dead_code, reason = "the crate's own system calls, for a program of the tests")]
mod bpf;
mod external;
mod instructions;
#[path = "../../../sys/tests/bpf_programs/lab.rs"]
#[allow(dead_code, reason = "the lab of another crate's tests; these use a part of it")]
mod lab;
mod metadata;
mod tagging;

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;

use wirepath_xdp::{
    Bind, Copying, FrameMemory, Frames, ProgramError, Redirect, Socket, Then, XdpMode, XskError,
};

use lab::{Namespace, Pair, Shape, can_run, send_frame, udp_frame, wait_until};

const PORT: u16 = 7000;

/// Queue 0 of an interface, in copy mode and with small rings.
fn bind(ifname: &str) -> Bind {
    let bind = Bind::to_queue(ifname, 0).expect("it is there");
    let copying = Copying::Copy;
    Bind { copying, ring_entries: 64, fill_target: 32, tx_budget: 64, ..bind }
}

/// A socket with 64 frames on an interface of this thread's namespace.
fn open(ifname: &str, memory: FrameMemory) -> Socket {
    let frames = Frames::allocate_in(memory, 2048, 64, 1).expect("memory").remove(0);
    Socket::open(frames, bind(ifname), None).expect("socket")
}

/// A socket and a program that passes all frames of its queue to it.
struct End {
    // Dropped first.
    program: Redirect,
    socket: Socket,
}

fn open_end(space: &Namespace, ifname: &'static str, mode: XdpMode, memory: FrameMemory) -> End {
    space.run(move || {
        let socket = open(ifname, memory);
        let mut program = Redirect::load(1, false).expect("load");
        program.insert(0, socket.as_fd()).expect("insert");
        program.attach(lab::index_of(ifname), mode).expect("attach");
        End { program, socket }
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
        socket.rx_post();
        taken.len() == count
    });
    taken
}

/// Sends what was posted, and waits until it was reaped.
fn flush(socket: &mut Socket) {
    socket.kick().expect("kick");
    wait_until(|| {
        socket.tx_reap();
        socket.tx_in_flight() == 0
    });
    assert_eq!(socket.tx_in_flight(), 0);
}

#[test]
fn a_frame_goes_to_the_socket_and_back_by_the_program_of_the_crate() {
    if !can_run() {
        return;
    }
    for mode in [XdpMode::Skb, XdpMode::Native] {
        let pair = Pair::new();
        let mut far = open_end(&pair.far, "far", mode, FrameMemory::default());
        let mut near = open_end(&pair.near, "near", mode, FrameMemory::default());
        let frame = udp_frame(PORT, b"there and back", Shape::default());
        let post = |slot: &mut [u8]| slot.copy_from_slice(&frame);
        assert_eq!(near.socket.tx_post(1, frame.len(), post).expect("it fits"), 1);
        flush(&mut near.socket);
        wait_until(|| far.socket.rx_take(64, |_, _| Then::Send) == 1);
        flush(&mut far.socket);
        assert_eq!(take(&mut near.socket, 1), [frame], "{mode}");
        for socket in [&near.socket, &far.socket] {
            assert!(socket.ledger().balances(), "{:?}", socket.ledger());
        }
    }
}

#[test]
fn frames_of_a_queue_without_a_socket_and_after_the_program_go_to_the_stack() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let receiver = pair.far.run(|| UdpSocket::bind(("10.9.0.2", PORT)).expect("bind"));
    receiver.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let near_index = pair.near_index;
    let send = |payload: &'static [u8]| {
        let frame = udp_frame(PORT, payload, Shape::default());
        pair.near.run(move || send_frame(near_index, &frame));
        let mut into = [0; 16];
        let len = receiver.recv(&mut into).expect("it arrives");
        assert_eq!(&into[..len], payload);
    };
    let mut program = pair.far.run(|| {
        let mut program = Redirect::load(1, false).expect("load");
        program.attach(lab::index_of("far"), XdpMode::Native).expect("attach");
        let second =
            Redirect::load(1, false).expect("load").attach(lab::index_of("far"), XdpMode::Native);
        assert!(matches!(second, Err(ProgramError::AlreadyAttached { .. })), "{second:?}");
        program
    });
    send(b"no socket");
    program.detach();
    send(b"no program");
}

#[test]
fn sockets_of_shares_of_one_umem_send_and_receive_unaligned_frames() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let unaligned = FrameMemory { unaligned: true, ..FrameMemory::default() };
    let (mut far, mut second) = pair.far.run(move || {
        let mut shares = Frames::allocate_in(unaligned, 2112, 64, 2).expect("memory");
        let second_share = shares.pop().expect("two");
        let socket = Socket::open(shares.remove(0), bind("far"), None).expect("socket");
        // The second sends only: one of the interface's queue has the fill ring.
        let (sender, socket) = socket.split(second_share).expect("split");
        let mut program = Redirect::load(1, false).expect("load");
        program.insert(0, socket.as_fd()).expect("insert");
        program.attach(lab::index_of("far"), XdpMode::Native).expect("attach");
        (End { program, socket }, sender)
    });
    let mut near = open_end(&pair.near, "near", XdpMode::Native, FrameMemory::default());
    let frame = udp_frame(PORT, b"unaligned", Shape::default());
    let sent = frame.clone();
    let near_index = pair.near_index;
    pair.near.run(move || send_frame(near_index, &sent));
    assert_eq!(take(&mut far.socket, 1), std::slice::from_ref(&frame));
    assert!(far.socket.offset_count > 0, "the address had an offset");
    second.tx_post(1, frame.len(), |slot| slot.copy_from_slice(&frame)).expect("it fits");
    flush(&mut second);
    assert_eq!(take(&mut near.socket, 1), [frame]);
    drop((far.program, near.program));
}

#[test]
fn errors_name_the_interface_and_the_remedy() {
    if !can_run() {
        return;
    }
    assert!(Bind::to_queue("no-such", 0).unwrap_err().to_string().contains("no-such"));
    let pair = Pair::new();
    pair.far.run(|| {
        let frames = || Frames::allocate(2048, 16, 1).expect("memory").remove(0);
        let no_queue = Bind { queue: 7, ..bind("far") };
        let error = Socket::open(frames(), no_queue, None).expect_err("one queue");
        assert!(matches!(error, XskError::NoQueue { queue: 7, queues: 1, .. }), "{error}");
        let zero_copy = Bind { copying: Copying::RequireZeroCopy, ..bind("far") };
        let error = Socket::open(frames(), zero_copy, None).expect_err("a veth has none");
        assert!(error.to_string().contains("allow copy mode"), "{error}");
        let gone = Redirect::load_with_metadata(u32::MAX >> 1, 1, false).expect_err("no interface");
        assert!(matches!(gone, ProgramError::NoInterface { .. }), "{gone}");
    });
}
