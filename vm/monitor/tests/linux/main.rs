//! The card under Linux's own driver: offloads, mergeable buffers and several pairs of queues.
#![cfg(target_arch = "x86_64")]

mod guest;
mod memory;
mod vhost_user;

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use guest::Guest;
use lab::TapEnd;
use vhost_user::Backend;
use wirepath_vmm::lance::Counters;
use wirepath_vmm::tap_backend;
use wirepath_vmm::virtio::NicOptions;

/// Length of the stream in either direction: `seq 1 LAST`.
const LAST: u32 = 1_000_000;
const SEND_PORT: u16 = 5001;
const RECEIVE_PORT: u16 = 5002;
const DATAGRAM_PORT: u16 = 5003;
const DATAGRAMS: usize = 200;
/// Limit for a connection of the guest on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Use that a guest made of a card.
struct Seen {
    /// Output of its script.
    said: String,
    counters: Counters,
    /// Bytes that its streams carried to the host.
    streams: Vec<Vec<u8>>,
    datagrams: usize,
}

fn numbers() -> Vec<u8> {
    (1..=LAST).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

/// Accepts `count` streams of the guest, and returns what each carried.
fn accept_streams(listener: &TcpListener, count: usize) -> Vec<Vec<u8>> {
    let streams = (0..count).map(|_| listener.accept().expect("the guest connects").0);
    let readers: Vec<_> = streams
        .map(|mut stream| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                stream.set_read_timeout(Some(TIMEOUT)).expect("a limit");
                stream.read_to_end(&mut bytes).expect("a whole stream");
                bytes
            })
        })
        .collect();
    readers.into_iter().map(|reader| reader.join().expect("no panic")).collect()
}

/// Runs `script` in a guest whose card has these options, with `streams` streams to the host. `None` if there is no guest
/// or no lab here.
fn run(options: NicOptions, script: &str, streams: usize) -> Option<Seen> {
    let folder = guest::folder()?;
    let end = match TapEnd::new_offloaded() {
        Ok(end) => end,
        Err(why) => {
            testkit::skip("netns", format!("{why}"));
            return None;
        }
    };
    let work = tempfile::tempdir().expect("a folder");
    let path = work.path().join("card");
    let listener = UnixListener::bind(&path).expect("a socket");
    let tap = tap_backend(&end.tap).expect("a TAP");
    let server = std::thread::spawn(move || {
        let mut backend = Backend::new(options, tap);
        let (mut socket, _) = listener.accept().expect("the guest connects");
        backend.serve(&mut socket).expect("messages and frames");
        assert_eq!(backend.card.fault(), None);
        backend.card.counters
    });
    let host = &end.host.netns;
    let bind = || {
        let send = TcpListener::bind((end.host.ip, SEND_PORT)).expect("a port");
        let receive = TcpListener::bind((end.host.ip, RECEIVE_PORT)).expect("a port");
        (send, receive, UdpSocket::bind((end.host.ip, DATAGRAM_PORT)).expect("a port"))
    };
    let (send, receive, datagrams) = host.run(bind).expect("the lab");
    let guest = Guest::start(&folder, &path, work.path(), script);
    let sender = std::thread::spawn(move || {
        let accepted = receive.accept();
        accepted.map(|(mut stream, _)| stream.write_all(&numbers()))
    });
    let receiver = std::thread::spawn(move || accept_streams(&send, streams));
    let said = guest.output();
    datagrams.set_nonblocking(true).expect("a socket");
    let mut buffer = [0; 2048];
    let datagrams = std::iter::from_fn(|| datagrams.recv(&mut buffer).ok()).count();
    // A script that failed has made no connection.
    assert!(said.contains("all sent"), "{said}");
    let streams = receiver.join().expect("no panic");
    // A guest without use for it closes at once; one that has use for it prints its sum.
    let _ = sender.join().expect("no panic").expect("a connection");
    drop(guest);
    Some(Seen { said, counters: server.join().expect("no panic"), streams, datagrams })
}

/// Sends a stream and small datagrams, and receives a stream whose sum the console has.
fn traffic() -> String {
    format!(
        "ip link set eth0 up\nethtool -k eth0\nethtool -l eth0\n\
         for i in 1 2 3 4 5; do ping -c 1 -W 1 10.77.0.1 > /dev/null && break; done\n\
         seq 1 {LAST} > /dev/tcp/10.77.0.1/{SEND_PORT}\n\
         echo received $(sha256sum < /dev/tcp/10.77.0.1/{RECEIVE_PORT})\n\
         for i in $(seq {DATAGRAMS}); do echo datagram > /dev/udp/10.77.0.1/{DATAGRAM_PORT}; done\n\
         echo all sent\n"
    )
}

/// True if the guest's `ethtool -k` has a feature on.
fn has(seen: &Seen, feature: &str) -> bool {
    let line = seen.said.lines().find(|line| line.trim().starts_with(&format!("{feature}:")));
    line.unwrap_or_else(|| panic!("no {feature}: {}", seen.said)).contains(": on")
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Both streams are whole.
fn assert_whole(seen: &Seen) {
    let expected = numbers();
    assert!(seen.streams == [expected.clone()], "the guest's stream");
    assert!(seen.said.contains(&format!("received {}", sha256(&expected))), "{}", seen.said);
}

const ALL: NicOptions =
    NicOptions { event_idx: true, segmentation: true, mergeable: true, ..NicOptions::PLAIN };

#[test]
fn segments_pass_whole_and_fill_merged_buffers_in_both_kinds_of_rings() {
    for packed in [false, true] {
        let Some(seen) = run(NicOptions { packed, ..ALL }, &traffic(), 1) else { return };
        assert_whole(&seen);
        assert!(has(&seen, "tcp-segmentation-offload") && has(&seen, "tx-checksumming"));
        let counters = &seen.counters;
        testkit::note(&format!("packed {packed}: {counters:?}"));
        let stream_bytes = numbers().len() as u64;
        // Frames of a wire would be 1,448 bytes of the stream each.
        let wire_frames = stream_bytes / 1448;
        assert!(counters.tx_super_frame_count > 0, "{counters:?}");
        assert!(counters.tx_frame_count < wire_frames, "{counters:?}");
        assert!(counters.rx_super_frame_count > 0, "{counters:?}");
        assert!(counters.rx_merged_frame_count > 0, "{counters:?}");
        assert!(counters.rx_merged_buffer_count > counters.rx_merged_frame_count, "{counters:?}");
        assert!(counters.tx_checksum_left_count > counters.tx_super_frame_count, "{counters:?}");
        assert_eq!(counters.tx_bad_header_count + counters.tx_dropped_count, 0, "{counters:?}");
        assert_eq!(counters.rx_malformed_count + counters.rx_missed_count, 0, "{counters:?}");
    }
}

#[test]
fn card_without_offloads_has_a_driver_without_them() {
    let Some(seen) = run(NicOptions::PLAIN, &traffic(), 1) else { return };
    assert_whole(&seen);
    assert!(!has(&seen, "tcp-segmentation-offload") && !has(&seen, "tx-checksumming"));
    let counters = &seen.counters;
    let work = [
        counters.tx_super_frame_count,
        counters.tx_checksum_left_count,
        counters.rx_super_frame_count,
        counters.rx_checksum_left_count,
        counters.rx_merged_frame_count,
        counters.tx_other_pair_count,
        counters.rx_malformed_count,
    ];
    assert_eq!(work, [0; 7], "{counters:?}");
    assert!(counters.tx_frame_count > numbers().len() as u64 / 1460, "{counters:?}");
}

#[test]
fn checksums_alone_leave_frames_as_long_as_the_wire_s() {
    let options = NicOptions { checksum: true, ..NicOptions::PLAIN };
    let Some(seen) = run(options, &traffic(), 1) else { return };
    assert_whole(&seen);
    assert!(has(&seen, "tx-checksumming") && !has(&seen, "tcp-segmentation-offload"));
    let counters = &seen.counters;
    assert!(counters.tx_checksum_left_count > 0 && counters.rx_checksum_left_count > 0);
    assert_eq!(counters.tx_super_frame_count + counters.rx_super_frame_count, 0, "{counters:?}");
}

#[test]
fn small_datagrams_leave_nothing_to_cut_and_need_one_buffer() {
    let script = format!(
        "ip link set eth0 up\nethtool -k eth0\n\
         for i in 1 2 3 4 5; do ping -c 1 -W 1 10.77.0.1 > /dev/null && break; done\n\
         for i in $(seq {DATAGRAMS}); do echo datagram > /dev/udp/10.77.0.1/{DATAGRAM_PORT}; done\n\
         echo > /dev/tcp/10.77.0.1/{RECEIVE_PORT}\necho all sent\n"
    );
    let Some(seen) = run(ALL, &script, 0) else { return };
    assert!(has(&seen, "tcp-segmentation-offload"));
    let counters = &seen.counters;
    assert_eq!(seen.datagrams, DATAGRAMS, "{counters:?}");
    assert_eq!(counters.tx_super_frame_count, 0, "{counters:?}");
    assert!(counters.tx_checksum_left_count >= DATAGRAMS as u64, "{counters:?}");
}

#[test]
fn both_pairs_of_queues_carry_frames() {
    let flows = 12;
    let flow = format!("seq 1 {LAST} > /dev/tcp/10.77.0.1/{SEND_PORT} &\n");
    let script = format!(
        "ip link set eth0 up\nethtool -L eth0 combined 2\nethtool -l eth0\n\
         for i in 1 2 3 4 5; do ping -c 1 -W 1 10.77.0.1 > /dev/null && break; done\n\
         {}wait\necho > /dev/tcp/10.77.0.1/{RECEIVE_PORT}\necho all sent\n",
        flow.repeat(flows)
    );
    for packed in [false, true] {
        let options = NicOptions { pairs: 2, packed, ..ALL };
        let Some(seen) = run(options, &script, flows) else { return };
        let combined = seen.said.lines().filter(|line| line.starts_with("Combined:"));
        let combined: Vec<_> = combined.filter_map(|line| line.split_whitespace().last()).collect();
        assert_eq!(combined, ["2", "2"], "{}", seen.said);
        let expected = numbers();
        assert!(seen.streams.iter().all(|stream| *stream == expected));
        let counters = &seen.counters;
        testkit::note(&format!("pairs, packed {packed}: {counters:?}"));
        let (tx, rx) = (counters.tx_other_pair_count, counters.rx_other_pair_count);
        assert!(0 < tx && tx < counters.tx_frame_count, "{counters:?}");
        assert!(0 < rx && rx < counters.rx_frame_count, "{counters:?}");
        assert!(counters.control_command_count > 0, "{counters:?}");
    }
}
