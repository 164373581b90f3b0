//! Frames that the kernel leaves behind with the back end, with nothing sent after them.

use std::io::{PipeWriter, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};

use guest_pages::Mode;
use lab::{Pair, PairSpec};
use vmm::lance::Sent;
use vmm::{GuestTask, Receiver, Sender, Switches};

use crate::guest;

/// Hands frames over when it is asked a second time: a socket without memory, until there is some. Each frame that
/// it hands over is a byte in the pipe.
struct Reluctant {
    handed: PipeWriter,
    left_count: u64,
    /// A frame came since it was last asked to hand over.
    is_fresh: bool,
}

impl Sender for Reluctant {
    fn send(&mut self, _: &[u8]) -> Sent {
        self.left_count += 1;
        self.is_fresh = true;
        Sent::Taken
    }

    fn flush(&mut self) {
        if !std::mem::take(&mut self.is_fresh) {
            let frames = vec![0; std::mem::take(&mut self.left_count) as usize];
            self.handed.write_all(&frames).unwrap();
        }
    }

    fn unsent_count(&self) -> u64 {
        self.left_count
    }

    fn call_count(&self) -> u64 {
        0
    }
}

/// One frame, then nothing.
struct Once(Option<Vec<u8>>);

impl Receiver for Once {
    fn receive(&mut self, into: &mut [u8]) -> std::io::Result<Option<usize>> {
        Ok(self.0.take().map(|frame| {
            into[..frame.len()].copy_from_slice(&frame);
            frame.len()
        }))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn call_count(&self) -> u64 {
        0
    }
}

const GUEST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// ARP request for [`GUEST`].
fn question() -> Vec<u8> {
    let (mac, ip) = ([2, 0, 0, 0, 0, 1], [10, 77, 0, 1]);
    let mut frame = vec![0xff; 6];
    frame.extend(mac);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(mac);
    frame.extend(ip);
    frame.extend([0; 6]);
    frame.extend(GUEST.octets());
    frame.resize(60, 0);
    frame
}

#[test]
fn what_the_kernel_left_behind_goes_out_although_nothing_is_sent_after_it() {
    for switches in [Switches::default(), Switches { tdmd_doorbell: true, ..Switches::default() }] {
        let (mut reader, handed) = std::io::pipe().unwrap();
        let task = GuestTask { mode: Mode::Echo, ip: GUEST, ..GuestTask::send(1514, 0) };
        let started = guest::start(task, switches, || {
            // The monitor closes what it inherits.
            let sender = Reluctant { handed: handed.try_clone()?, left_count: 0, is_fresh: false };
            guest::halves(sender, Once(Some(question())))
        });
        let Some(running) = started else { return };
        let is_handed = sys::poll::readable(&[reader.as_fd()], guest::GUEST_TIMEOUT)
            .is_ok_and(|ready| ready != 0);
        let (outcome, _) = running.stop().unwrap();
        drop(handed);
        let mut frames = Vec::new();
        reader.read_to_end(&mut frames).unwrap();
        let sent_count = outcome.total.nic.tx_frame_count;
        assert!(is_handed && frames.len() == 1 && sent_count == 1, "{switches:?} {outcome:?}");
        assert_eq!(outcome.condition.unsent_count, 0);
    }
}

/// A lab whose far end takes whatever comes, and a sending ring on its near end.
fn with_ring(body: impl FnOnce(&mut sys::packet::PacketTx, &mut dyn FnMut() -> u64) + Send) {
    let lab = Pair::new(&PairSpec::default()).expect("the test runs as root");
    let sysfs = lab.far.sysfs().unwrap();
    let path = format!("class/net/{}/statistics/rx_packets", lab.far.ifname);
    let mut arrived = || sysfs.read(&path).unwrap().trim().parse().unwrap();
    lab.near
        .run(|| {
            let ifindex = lab.near.ifindex;
            let mut ring = sys::packet::PacketTx::open_dropping(ifindex, 4096, 16).unwrap();
            body(&mut ring, &mut arrived);
        })
        .unwrap();
}

fn post(ring: &mut sys::packet::PacketTx, len_bytes: usize) {
    let posted = ring.post(1, len_bytes, |slot| {
        slot.fill(0);
        slot[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    });
    assert_eq!(posted, 1);
}

#[test]
fn ring_tells_what_the_kernel_has_not_taken() {
    with_ring(|ring, _| {
        for count in 1..=3 {
            post(ring, 100);
            assert_eq!(ring.requested(), count);
        }
        assert!(ring.kick().unwrap());
        assert_eq!(ring.requested(), 0);
    });
}

#[test]
fn frame_that_is_too_long_for_the_wire_holds_up_none_behind_it() {
    with_ring(|ring, arrived| {
        let before = arrived();
        post(ring, 2000);
        post(ring, 100);
        let _ = ring.kick();
        assert_eq!((ring.requested(), arrived() - before), (0, 1));
    });
}
