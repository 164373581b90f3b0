//! An interface with several receive queues: each has a socket, and every flow keeps its order.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::Instant;

use super::*;

const QUEUES: u32 = 4;
const FLOWS: usize = 64;
/// Datagrams of a flow.
const PER_FLOW: u32 = 32;
/// Of these, sent before any is awaited.
const BURST: u32 = 4;
const RECEIVE_BYTES: i32 = 4 << 20;

#[test]
fn flows_over_four_queues_keep_their_order_and_use_every_queue() {
    let _alone = alone();
    if !has(&["ip"]) {
        return;
    }
    let lab = lab_with_queues(QUEUES);
    let known =
        format!("neigh replace 10.77.0.2 lladdr {} dev wp-near nud permanent", mac(&lab.far));
    lab.near.run(|| ip(&known)).expect("the namespace exists");
    for lanes in [1, 8] {
        let ((seen, queues), counts) = forwarding_with(
            &lab,
            XdpMode::Native,
            2,
            |spec| spec.order.lanes = lanes,
            |forwarder| {
                let seen = exchange(&lab);
                (seen, forwarder.queue_frames())
            },
        );
        assert_eq!(seen.len(), FLOWS, "{counts:?}");
        for numbers in seen.values() {
            assert!(numbers.iter().copied().eq(0..PER_FLOW), "{numbers:?} {counts:?}");
        }
        let [port, _] = &queues;
        assert_eq!(port.len(), QUEUES as usize);
        assert!(port.iter().all(|frames| *frames > 0), "{port:?}");
        let sent = FLOWS as u64 * u64::from(PER_FLOW);
        assert!(port.iter().sum::<u64>() >= sent, "{port:?}");
    }
}

fn bound(address: &str, port: u16) -> UdpSocket {
    UdpSocket::bind((address, port)).expect("the address is there")
}

/// Sends datagrams of all flows in turn. Returns the numbers that arrived, by flow.
fn exchange(lab: &Triple) -> BTreeMap<u16, Vec<u32>> {
    let receiver = lab.far.run(|| bound("10.77.0.2", 9)).expect("the namespace exists");
    let (level, option) = (1, 33);
    // SOL_SOCKET and SO_RCVBUFFORCE, asm-generic/socket.h.
    sys::socket::set_int(receiver.as_fd(), level, option, RECEIVE_BYTES).expect("it is root");
    receiver.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
    let senders: Vec<UdpSocket> = lab
        .near
        .run(|| (0..FLOWS).map(|_| bound("0.0.0.0", 0)).collect())
        .expect("the namespace exists");
    let mut seen: BTreeMap<u16, Vec<u32>> = BTreeMap::new();
    let mut take = || {
        let mut bytes = [0; 4];
        if let Ok((_, from)) = receiver.recv_from(&mut bytes) {
            seen.entry(from.port()).or_default().push(u32::from_be_bytes(bytes));
        }
        seen.values().map(Vec::len).sum::<usize>()
    };
    let begun = Instant::now();
    for n in 0..PER_FLOW {
        for sender in &senders {
            sender.send_to(&n.to_be_bytes(), ("10.77.0.2", 9)).expect("a route");
        }
        // Several of each flow are under way at a time, and no more than the queues hold.
        let due = FLOWS * (n + 1) as usize;
        while (n + 1) % BURST == 0 && take() < due && begun.elapsed() < Duration::from_secs(60) {}
    }
    seen
}
