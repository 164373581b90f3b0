//! A socket over memory of the caller.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use wirepath_xdp::mmap::Mapping;
use wirepath_xdp::{ExternalMemory, ExternalSocket, FrameMemory, Redirect, XdpMode, XskError};

use crate::lab::{self, Pair, Shape, can_run, send_frame, udp_frame, wait_until};
use crate::{PORT, bind};

const LEN_BYTES: usize = 64 * 1024;
const FRAME_BYTES_MAX: u32 = 1514;

#[derive(Clone)]
struct Memory(Arc<Mapping>);

// SAFETY: whole pages, mapped as long as any clone lives; the test reads them by raw pointers.
unsafe impl ExternalMemory for Memory {
    fn address(&self) -> *mut u8 {
        self.0.base().as_ptr()
    }

    fn len_bytes(&self) -> usize {
        self.0.len_bytes()
    }
}

impl Memory {
    fn read(&self, range: Range<usize>) -> Vec<u8> {
        // SAFETY: `at` checked the place, and the kernel has no frame there any more.
        range.map(|n| unsafe { self.0.at(n, 1).read_volatile() }).collect()
    }

    fn write(&self, from: usize, bytes: &[u8]) {
        for (n, byte) in bytes.iter().enumerate() {
            // SAFETY: `at` checked the place, and the kernel has no frame there yet.
            unsafe { self.0.at(from + n, 1).write_volatile(*byte) };
        }
    }
}

#[test]
fn frames_are_received_and_sent_where_the_caller_has_them() {
    if !can_run() {
        return;
    }
    let pair = Pair::new();
    let memory = Memory(Arc::new(Mapping::anonymous(LEN_BYTES).expect("memory")));
    let umem = memory.clone();
    let (_program, mut socket) = pair.far.run(move || {
        let too_long = ExternalSocket::open(umem.clone(), 3841, &bind("far"));
        assert!(matches!(too_long, Err(XskError::System { .. })));
        let socket = ExternalSocket::open(umem, FRAME_BYTES_MAX, &bind("far")).expect("socket");
        let mut program = Redirect::load(1, false).expect("load");
        program.insert(0, socket.as_fd()).expect("insert");
        program.attach(lab::index_of("far"), XdpMode::Native).expect("attach");
        (program, socket)
    });
    // Behind a header of 12 bytes, at no multiple of anything.
    let places = [4096 + 12, 8191, LEN_BYTES as u64 - u64::from(FRAME_BYTES_MAX)];
    for place in places {
        assert!(socket.rx_post(place), "{place}");
    }
    for outside in [0, 533, LEN_BYTES as u64 - 1000, u64::MAX, u64::MAX - 100] {
        assert!(!socket.rx_post(outside), "{outside}");
        assert!(outside < 1000 || !socket.tx_post(outside, 1514), "{outside}");
    }
    for (n, place) in places.into_iter().enumerate() {
        let frame = udp_frame(PORT, &[n as u8; 700], Shape::default());
        let (sent, near_index) = (frame.clone(), pair.near_index);
        pair.near.run(move || send_frame(near_index, &sent));
        let mut arrived = None;
        wait_until(|| {
            arrived = socket.rx_take();
            arrived.is_some()
        });
        assert_eq!(arrived, Some((place, frame.len() as u32)));
        let place = place as usize;
        assert_eq!(memory.read(place..place + frame.len()), frame);
    }
    // Back from another place.
    let answer = udp_frame(PORT, b"answer", Shape::default());
    memory.write(777, &answer);
    let memory = FrameMemory::default();
    let mut near = crate::open_end(&pair.near, "near", XdpMode::Native, memory);
    assert!(socket.tx_post(777, answer.len() as u32));
    socket.kick().expect("kick");
    assert_eq!(crate::take(&mut near.socket, 1), [answer]);
    assert_eq!((socket.tx_reap(), socket.sending_count()), (Some(777), 0));
}
