//! Captures that are compressed, of another protocol, or of several: `feed decode` and `feed report`.

use std::io::Write;
use std::net::SocketAddrV4;
use std::process::Output;

use crate::common::{Data, all_text, run, succeed, wirepath};
use flate2::Compression;
use flate2::write::GzEncoder;
use market::mold;
use marketdata::capture::{CapturedInterface, LinkType, Writer};
use marketdata::synthetic::{MoldSession, MoldSpec, SyntheticSession, SyntheticSpec};
use serde_json::{Value, json};

const TELEGRAMS: &str = "224.0.100.100:10000";
const MOLD: &str = "233.54.12.111:26477";
const FOREIGN: &str = "239.9.9.9:9999";
/// Payloads of a text protocol.
const FIX: &[u8] = b"8=FIX.4.2\x019=65\x0135=A\x0149=SERVER\x0156=CLIENT\x01";

/// A pcapng file of payloads, a millisecond apart.
fn pcapng(payloads: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let from: SocketAddrV4 = "192.0.2.9:40000".parse().unwrap();
    let interface = CapturedInterface { name: "lab0", link: LinkType::RawIp };
    let mut writer = Writer::new(Vec::new(), &interface, "test").unwrap();
    for (n, (to, payload)) in (0..).zip(payloads) {
        let stamp_ns = 1_790_000_000_000_000_000 + n * 1_000_000;
        writer.datagram(stamp_ns, from, to.parse().unwrap(), payload).unwrap();
    }
    writer.into_inner().unwrap()
}

fn telegrams(count: usize) -> Vec<(&'static str, Vec<u8>)> {
    let mut session =
        SyntheticSession::new(&SyntheticSpec { symbols: 20, ..SyntheticSpec::new(1) });
    let mut buffer = [0; 1400];
    (0..count)
        .map(|_| {
            let written = session.datagram(&mut buffer, 1).unwrap();
            (TELEGRAMS, buffer[..written.bytes].to_vec())
        })
        .collect()
}

/// Packets of a session with this name.
fn mold_packets(session: &[u8; 10], count: usize) -> Vec<(&'static str, Vec<u8>)> {
    let spec = MoldSpec { stocks: 5, session: mold::MoldSession(*session), ..MoldSpec::new(1) };
    let mut session = MoldSession::new(&spec);
    let mut buffer = [0; 1400];
    (0..count)
        .map(|_| {
            let written = session.datagram(&mut buffer, 1).unwrap();
            (MOLD, buffer[..written.bytes].to_vec())
        })
        .collect()
}

fn foreign(count: usize) -> Vec<(&'static str, Vec<u8>)> {
    vec![(FOREIGN, FIX.to_vec()); count]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn feed(command: &str, scratch: &Data, name: &str, content: &[u8]) -> Output {
    let file = scratch.file(name);
    std::fs::write(&file, content).unwrap();
    let json: &[&str] = if command == "report" { &["--json"] } else { &[] };
    run(wirepath(&[&["feed", command, &file], json].concat()))
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("a document")
}

fn errors(lines: &[Value], kind: &str) -> usize {
    lines.iter().filter(|line| line["error"] == kind).count()
}

#[test]
fn mold_with_a_session_of_zeros_is_decoded_and_reported_on() {
    let scratch = Data::new();
    let capture = pcapng(&mold_packets(&[0; 10], 50));
    let output = feed("decode", &scratch, "zeros.pcapng", &capture);
    let found = lines(&output);
    assert!(output.status.success(), "{}", all_text(&output));
    assert_eq!((found.len(), errors(&found, "escape")), (50, 0));
    assert_eq!((&found[0]["session"], &found[1]["type"]), (&json!(""), &json!("R")));
    let report = document(&feed("report", &scratch, "zeros.pcapng", &capture));
    assert_eq!(
        (&report["delivered_count"], &report["domains"][0]["domain"]),
        (&json!(50), &json!("zeros"))
    );
}

#[test]
fn packets_without_a_sequence_are_noted_in_a_report() {
    let scratch = Data::new();
    let mut packets = mold_packets(&[0; 10], 5);
    packets.iter_mut().for_each(|(_, packet)| packet[10..18].fill(0));
    let output = feed("report", &scratch, "unnumbered.pcapng", &pcapng(&packets));
    assert!(output.status.success(), "{}", all_text(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("note: 5 packets have the sequence 0"), "{said}");
}

#[test]
fn a_capture_of_another_protocol_is_called_that_once_with_code_1() {
    let scratch = Data::new();
    let output = feed("decode", &scratch, "fix.pcapng", &pcapng(&foreign(1000)));
    assert_eq!(output.status.code(), Some(1));
    let found = lines(&output);
    assert_eq!((found.len(), errors(&found, "protocol")), (1, 1));
    assert_eq!((&found[0]["destination"], &found[0]["packet"]), (&json!(FOREIGN), &json!(1)));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.matches("another protocol").count(), 1, "{said}");
    assert!(said.contains("1000 datagrams (to 239.9.9.9:9999)"), "{said}");
    let output = feed("report", &scratch, "fix.pcapng", &pcapng(&foreign(1000)));
    assert_eq!(output.status.code(), Some(1));
    let said = all_text(&output);
    assert!(said.contains("1000 datagrams (to 239.9.9.9:9999) are of another protocol"), "{said}");
    // Bytes of a terminal, which begin like a telegram, are not a file of telegrams.
    let output = feed("decode", &scratch, "typescript", b"\x1b[31mred\x1b[0m and so on");
    assert_eq!(output.status.code(), Some(2));
    assert!(all_text(&output).contains("neither pcap"), "{}", all_text(&output));
}

#[test]
fn each_flow_of_a_mixed_capture_has_its_own_protocol() {
    let scratch = Data::new();
    let mut torn = telegrams(1);
    torn[0].1.truncate(20);
    let cut = |mut packet: (&'static str, Vec<u8>)| {
        packet.1.drain(..3);
        packet
    };
    let headless = cut(telegrams(1).remove(0));
    let all = [
        torn.clone(),
        foreign(2),
        telegrams(10),
        vec![headless],
        torn,
        mold_packets(b"SESSION  1", 10),
        foreign(5),
    ];
    let capture = pcapng(&all.concat());
    let output = feed("decode", &scratch, "mixed.pcapng", &capture);
    let found = lines(&output);
    assert!(output.status.success(), "{}", all_text(&output));
    assert_eq!(found.iter().filter(|line| line["market"].is_string()).count(), 10);
    assert_eq!(found.iter().filter(|line| line["session"] == "SESSION  1").count(), 10);
    // Torn telegrams are malformed telegrams, and what is of another protocol is said once.
    assert_eq!(
        (errors(&found, "length"), errors(&found, "escape"), errors(&found, "protocol")),
        (2, 1, 1)
    );
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("7 datagrams (to 239.9.9.9:9999)"), "{said}");
    // Telegrams and MoldUDP64 are not two lines of one feed.
    let output = feed("report", &scratch, "mixed.pcapng", &capture);
    assert_eq!(output.status.code(), Some(2));
    assert!(all_text(&output).contains("carry different protocols"), "{}", all_text(&output));
    let file = scratch.file("mixed.pcapng");
    let text = succeed(wirepath(&["feed", "report", &file, "--from", TELEGRAMS, "--json"]));
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&report["delivered_count"], &report["lines"][0]["malformed_count"]),
        (&json!(10), &json!(3))
    );
}

#[test]
fn messages_that_are_not_itch_have_their_sequence_and_body() {
    let scratch = Data::new();
    let mut buffer = [0; 200];
    let mut writer =
        mold::PacketWriter::new(&mut buffer, mold::MoldSession(*b"OTHER     "), 7).unwrap();
    writer.push(b"\x01binary").unwrap();
    writer.push(b"zz").unwrap();
    let len = writer.finish();
    let output =
        feed("decode", &scratch, "other.pcapng", &pcapng(&[(MOLD, buffer[..len].to_vec())]));
    let found = lines(&output);
    assert!(output.status.success(), "{}", all_text(&output));
    assert_eq!((&found[0]["sequence"], &found[0]["body"]), (&json!(7), &json!("0162696e617279")));
    assert_eq!((&found[1]["sequence"], &found[1]["body"]), (&json!(8), &json!("7a7a")));
    assert!(found.iter().all(|line| line["error"].is_null() && line["undecoded"].is_string()));
    assert!(all_text(&output).contains("2 messages in MoldUDP64 are not of ITCH 5.0"));
}

#[test]
fn a_compressed_capture_is_read_and_a_torn_one_gives_what_it_has() {
    let scratch = Data::new();
    let capture = pcapng(&telegrams(2000));
    let packed = gzip(&capture);
    let output = feed("decode", &scratch, "a.pcapng.gz", &packed);
    assert!(output.status.success(), "{}", all_text(&output));
    let plain = feed("decode", &scratch, "a.pcapng", &capture);
    assert_eq!((output.stdout.len() > 100_000, &output.stdout), (true, &plain.stdout));
    let report = document(&feed("report", &scratch, "a.pcapng.gz", &packed));
    assert_eq!(report["delivered_count"], 2000);

    let torn = &packed[..packed.len() / 2];
    let output = feed("decode", &scratch, "torn.gz", torn);
    assert_eq!(output.status.code(), Some(1));
    let found = lines(&output);
    assert!((500..1500).contains(&found.len()), "{}", found.len());
    assert_eq!((errors(&found, "capture"), errors(&found, "escape")), (1, 0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("torn.gz is torn"));
    let output = feed("report", &scratch, "torn.gz", torn);
    assert_eq!(output.status.code(), Some(1));
    let report = document(&output);
    let whole = found.len() as u64 - 1;
    assert_eq!((&report["delivered_count"], &report["balanced"]), (&json!(whole), &json!(true)));
    let note = report["notes"][0].as_str().unwrap_or_default();
    assert!(note.contains("not read to its end"), "{report}");

    let output =
        feed("decode", &scratch, "a.zst", &[0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(output.status.code(), Some(2));
    assert!(all_text(&output).contains("unzstd"), "{}", all_text(&output));
}

#[test]
fn a_report_of_a_recording_says_nothing_of_this_hosts_clock() {
    let scratch = Data::new();
    let file = scratch.file("a.pcapng");
    std::fs::write(&file, pcapng(&telegrams(300))).unwrap();
    let text = succeed(wirepath(&["feed", "report", &file]));
    assert!(text.contains("relative to the fastest message"), "{text}");
    assert!(!text.contains("host clock"), "{text}");
    let report: Value =
        serde_json::from_str(&succeed(wirepath(&["feed", "report", &file, "--json"]))).unwrap();
    assert!(report["clock"]["host_error_ns"].is_null(), "{report}");
}
