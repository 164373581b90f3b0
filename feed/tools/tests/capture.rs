//! Captures: files are read back by the reader and by tshark; damage is reported.

use std::io::Cursor;
use std::net::SocketAddrV4;
use std::process::Command;

use market::twse::Telegrams;
use proptest::prelude::*;
use wirepath_marketdata::capture::{
    CaptureError, CaptureKind, CapturedInterface, Counts, LinkType, Reader, Writer,
};
use wirepath_marketdata::synthetic::{SyntheticSession, SyntheticSpec};

const STAMP_NS: u64 = 1_790_000_000_123_456_789;

fn from() -> SocketAddrV4 {
    "192.0.2.9:40000".parse().expect("an address")
}

fn to() -> SocketAddrV4 {
    "224.0.100.100:10000".parse().expect("an address")
}

/// A pcapng file with these payloads, one nanosecond apart.
fn pcapng(payloads: &[&[u8]]) -> Vec<u8> {
    let interface = CapturedInterface { name: "lab0", link: LinkType::RawIp };
    let mut writer = Writer::new(Vec::new(), &interface, "wirepath test").expect("memory");
    for (n, payload) in payloads.iter().enumerate() {
        writer.datagram(STAMP_NS + n as u64, from(), to(), payload).expect("it fits");
    }
    writer.statistics(STAMP_NS + 1000, payloads.len() as u64 + 5, 5).expect("memory");
    assert_eq!(writer.packets(), payloads.len() as u64);
    writer.into_inner().expect("memory")
}

/// Raw IP packet with a payload, as produced by the writer.
fn raw_ip(payload: &[u8]) -> Vec<u8> {
    let file = pcapng(&[payload]);
    let at = file.windows(4).position(|w| w == [0x45, 0, 0, (28 + payload.len()) as u8]);
    let at = at.expect("the IPv4 header");
    file[at..at + 28 + payload.len()].to_vec()
}

#[derive(Debug, Clone, Copy)]
struct Variant {
    big_endian: bool,
    nanoseconds: bool,
}

/// A pcap file of one packet of a link type.
fn pcap(variant: Variant, link: u32, packet: &[u8]) -> Vec<u8> {
    let word = |value: u32| {
        if variant.big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    };
    let half = |value: u16| {
        if variant.big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    };
    let mut file = Vec::new();
    file.extend(word(if variant.nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }));
    file.extend(half(2));
    file.extend(half(4));
    file.extend([word(0), word(0), word(65_535), word(link)].concat());
    let bytes = packet.len() as u32;
    file.extend([word(1000), word(999), word(bytes), word(bytes)].concat());
    file.extend(packet);
    file
}

fn reader(bytes: &[u8]) -> Result<Reader<Cursor<&[u8]>>, CaptureError> {
    Reader::new("a.pcap", Cursor::new(bytes))
}

/// Capture time and payload.
type Found = (Option<u64>, Vec<u8>);

/// All payloads with their stamps, and the final error.
fn all(bytes: &[u8]) -> (Vec<Found>, Option<CaptureError>, Counts) {
    let mut reader = match reader(bytes) {
        Ok(reader) => reader,
        Err(e) => return (Vec::new(), Some(e), Counts::default()),
    };
    let mut found = Vec::new();
    let mut ended = None;
    loop {
        match reader.next_datagram() {
            Ok(Some(datagram)) => {
                let at = datagram.offset as usize;
                assert_eq!(bytes[at..at + datagram.payload.len()], *datagram.payload, "offset");
                found.push((datagram.stamp_ns, datagram.payload.to_vec()));
            }
            Ok(None) => break,
            Err(e) => {
                ended = Some(e);
            }
        }
    }
    assert!(reader.counts().balances(), "{:?}", reader.counts());
    (found, ended, *reader.counts())
}

#[test]
fn recordings_are_read_back_to_the_nanosecond() {
    let file = pcapng(&[b"one", b"", b"three!!"]);
    let mut reader = reader(&file).expect("our own");
    assert_eq!(reader.kind(), CaptureKind::PcapNg);
    let first = reader.next_datagram().expect("whole").expect("three");
    assert_eq!((first.source, first.destination), (Some(from()), Some(to())));
    assert_eq!((first.number, first.stamp_ns), (1, Some(STAMP_NS)));
    let (found, ended, counts) = all(&file);
    assert!(ended.is_none(), "{ended:?}");
    let payloads: Vec<_> = found.iter().map(|f| f.1.as_slice()).collect();
    assert_eq!(payloads, [&b"one"[..], b"", b"three!!"]);
    assert_eq!(found[2].0, Some(STAMP_NS + 2));
    assert_eq!((counts.packets, counts.datagrams), (3, 3));
}

#[test]
fn every_variant_of_pcap_is_read() {
    let packet = raw_ip(b"telegram");
    for (big_endian, nanoseconds) in [(false, false), (false, true), (true, false), (true, true)] {
        let file = pcap(Variant { big_endian, nanoseconds }, 101, &packet);
        let (found, ended, _) = all(&file);
        assert!(ended.is_none(), "{ended:?}");
        let stamp = 1000 * 1_000_000_000 + if nanoseconds { 999 } else { 999_000 };
        assert_eq!(found, [(Some(stamp), b"telegram".to_vec())]);
    }
}

#[test]
fn tags_and_cooked_headers_are_skipped() {
    let ip = raw_ip(b"telegram");
    let plain = Variant { big_endian: false, nanoseconds: false };
    let tagged = [&[2; 12][..], &[0x81, 0, 0, 5, 8, 0], &ip].concat();
    let cooked = [&[0; 14][..], &[8, 0], &ip].concat();
    let cooked_v2 = [&[8, 0][..], &[0; 18], &ip].concat();
    for (link, packet) in [(1, tagged), (113, cooked), (276, cooked_v2)] {
        let (found, ended, _) = all(&pcap(plain, link, &packet));
        assert!(ended.is_none(), "{ended:?}");
        assert_eq!(found, [(Some(1_000_000_999_000), b"telegram".to_vec())], "link type {link}");
    }
}

#[test]
fn resolutions_and_offsets_of_pcapng_are_obeyed() {
    let file = pcapng(&[b"telegram"]);
    // The option if_tsresol of one byte, nanoseconds.
    let at = file.windows(5).position(|w| w == [9, 0, 1, 0, 9]).expect("if_tsresol") + 4;
    let micros = {
        let mut f = file.clone();
        f[at] = 6;
        f
    };
    assert_eq!(all(&micros).0[0].0, Some(STAMP_NS.saturating_mul(1000)));
    let binary = {
        let mut f = file.clone();
        f[at] = 0x80 | 20;
        f
    };
    let expected = u128::from(STAMP_NS) * 1_000_000_000 / (1 << 20);
    assert_eq!(all(&binary).0[0].0.map(u128::from), Some(expected.min(u64::MAX.into())));
    let nonsense = {
        let mut f = file.clone();
        f[at] = 77;
        f
    };
    assert!(matches!(all(&nonsense).1, Some(CaptureError::Malformed { number: 1, .. })));
}

#[test]
fn fragments_and_others_are_counted_and_skipped() {
    let plain = Variant { big_endian: false, nanoseconds: false };
    let mut fragment = raw_ip(b"telegram");
    fragment[6] = 0x20;
    let (found, ended, counts) = all(&pcap(plain, 101, &fragment));
    assert!(found.is_empty() && ended.is_none());
    assert_eq!((counts.packets, counts.fragments), (1, 1));
    let (_, ended, counts) = all(&pcap(plain, 147, &fragment));
    assert!(matches!(ended, Some(CaptureError::Link { number: 1, link: 147, .. })));
    assert_eq!(counts.unknown_link, 1);
}

#[test]
fn a_truncated_file_yields_whole_packets_and_an_error_with_its_end() {
    let file = pcapng(&[b"one", b"two", b"three"]);
    let second = file.windows(3).position(|w| w == b"two").expect("there");
    let (found, ended, _) = all(&file[..second + 1]);
    assert_eq!(found.len(), 1);
    let Some(CaptureError::Truncated { file: name, number, offset, end }) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!((name.as_str(), number, end), ("a.pcap", 2, second as u64 + 1));
    assert_eq!(offset, second as u64 - 28 - 28);
}

#[test]
fn every_cut_of_a_file_is_an_error_or_a_shorter_file() {
    let plain = Variant { big_endian: false, nanoseconds: false };
    let classic = pcap(plain, 101, &raw_ip(b"telegram"));
    for file in [pcapng(&[b"one", b"two"]), classic] {
        let whole = all(&file).0;
        for len in 0..file.len() {
            let (found, ended, _) = all(&file[..len]);
            assert_eq!(found, whole[..found.len()]);
            assert!(ended.is_some() || found.len() < whole.len() || len + 100 > file.len());
        }
    }
}

#[test]
fn other_files_are_refused_with_a_remedy() {
    assert!(matches!(reader(b""), Err(CaptureError::Empty { .. })));
    let error = reader(b"GIF89a..").expect_err("no capture");
    let said = error.to_string();
    assert!(said.contains("a.pcap starts with [47, 49") && said.contains("editcap"), "{said}");
    let damaged = {
        let mut f = pcapng(&[b"one"]);
        f[4] = 3;
        f
    };
    assert!(matches!(all(&damaged).1, Some(CaptureError::Malformed { offset: 0, .. })));
}

#[test]
fn a_huge_block_is_an_error_at_once() {
    let mut file = pcapng(&[]);
    file.extend([6, 0, 0, 0, 0xf0, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    assert!(matches!(all(&file).1, Some(CaptureError::Malformed { number: 1, .. })));
}

#[test]
fn a_file_of_telegrams_is_cut_between_them() {
    let mut session = SyntheticSession::new(&SyntheticSpec::new(5));
    let mut file = Vec::new();
    let mut buffer = [0; 200];
    for n in 0..4000 {
        let bytes = session.telegram(&mut buffer).expect("room");
        file.extend(&buffer[..bytes]);
        if n == 1000 {
            file.extend(b"rubbish");
        }
    }
    let mut reader = reader(&file).expect("telegrams");
    assert_eq!(reader.kind(), CaptureKind::Telegrams);
    let (mut telegrams, mut errors, mut next) = (0, 0, 0);
    while let Some(run) = reader.next_datagram().expect("memory") {
        assert_eq!(run.offset, next);
        next += run.payload.len() as u64;
        for telegram in Telegrams::new(run.payload) {
            match telegram {
                Ok(_) => telegrams += 1,
                Err(error) => {
                    errors += 1;
                    assert_eq!(error.skipped_bytes, 7);
                }
            }
        }
    }
    assert_eq!((telegrams, errors, next), (4000, 1, file.len() as u64));
    assert!(reader.counts().packets > 3);
}

#[test]
fn telegrams_after_long_garbage_are_not_split() {
    let mut session = SyntheticSession::new(&SyntheticSpec::new(6));
    let mut buffer = [0; 200];
    for rubbish_bytes in [75_400, 75_480, 75_530, 150_000] {
        let mut file = vec![0xee; rubbish_bytes];
        for _ in 0..20 {
            let bytes = session.telegram(&mut buffer).expect("room");
            file.extend(&buffer[..bytes]);
        }
        let mut reader = Reader::or_telegrams("late", Cursor::new(&file)).expect("memory");
        let (mut telegrams, mut skipped) = (0, 0);
        while let Some(run) = reader.next_datagram().expect("memory") {
            for telegram in Telegrams::new(run.payload) {
                match telegram {
                    Ok(_) => telegrams += 1,
                    Err(error) => skipped += error.skipped_bytes,
                }
            }
        }
        assert_eq!((telegrams, skipped), (20, rubbish_bytes));
    }
}

#[test]
fn tshark_reads_what_we_write() {
    if !testkit::is_installed("tshark") {
        return;
    }
    let dir = std::env::temp_dir().join(format!("wirepath-capture-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let file = dir.join("recorded.pcapng");
    std::fs::write(&file, pcapng(&[b"one", b"\x1btwo"])).expect("a file");
    let output = Command::new("tshark")
        .args(["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-T", "fields"])
        .args(["-e", "frame.time_epoch", "-e", "ip.src", "-e", "udp.dstport", "-e", "data.data"])
        .args(["-e", "udp.checksum.status", "-e", "ip.checksum.status"])
        .args(["-e", "frame.interface_name", "-d", "udp.port==10000,data", "-r"])
        .arg(&file)
        .output()
        .expect("tshark");
    std::fs::remove_dir_all(&dir).expect("our own folder");
    let said = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.len(), 2, "{said}{}", String::from_utf8_lossy(&output.stderr));
    let [stamp, ip, port, data, udp_sum, ip_sum, name] = lines[0][..] else {
        panic!("{said}");
    };
    // Newer versions print the time of day in ISO 8601, older ones seconds since 1970.
    assert!(stamp.ends_with(".123456789") || stamp.contains(".123456789"), "{stamp}");
    assert_eq!((ip, port, data, name), ("192.0.2.9", "10000", "6f6e65", "lab0"));
    assert!(["1", "Good"].contains(&udp_sum) && ["1", "Good"].contains(&ip_sum), "{said}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn damaged_files_never_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        classic: bool,
    ) {
        let plain = Variant { big_endian: false, nanoseconds: true };
        let mut file = if classic {
            pcap(plain, 101, &raw_ip(b"telegram"))
        } else {
            pcapng(&[b"one", b"two", b"three"])
        };
        for (at, byte) in flips {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if let Ok(mut reader) = Reader::new("flipped", Cursor::new(&file)) {
            let mut errors = 0;
            loop {
                match reader.next_datagram() {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => errors += 1,
                }
                prop_assert!(errors <= 2, "an error ends it, but for an unknown link type");
            }
            prop_assert!(reader.counts().balances());
        }
    }

    #[test]
    fn any_bytes_behind_any_magic_never_panic(
        magic in prop::sample::select(vec![
            vec![0x0a, 0x0d, 0x0d, 0x0a], vec![0xd4, 0xc3, 0xb2, 0xa1],
            vec![0xa1, 0xb2, 0x3c, 0x4d], vec![0x34, 0xcd, 0xb2, 0xa1], vec![0x1b],
        ]),
        rest in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let file = [magic, rest].concat();
        if let Ok(mut reader) = Reader::new("noise", Cursor::new(&file)) {
            let mut steps = 0;
            while !matches!(reader.next_datagram(), Ok(None)) {
                steps += 1;
                prop_assert!(steps < 1000);
            }
        }
    }
}
