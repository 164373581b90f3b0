//! `wirepath feed decode`: vectors, captures, damage, pipes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddrV4;
use std::process::{Command, Stdio};

use crate::common::{Data, fail, run, succeed, wirepath};
use marketdata::capture::{CapturedInterface, LinkType, Writer};
use marketdata::synthetic::{MoldSession, MoldSpec, SyntheticSession, SyntheticSpec};
use serde_json::{Value, json};

const QUOTE: &str = "1b011301060400004567323333302020090415061278d600000001642300009950000000\
    12340000995000000002500000990000000001750000985000000004770000975000000006690000970000000001\
    250001000000000000800001005000000006750001015000000004607b0d0a";
const UPPER_LIMIT: &str = "1b008601060400064323323030322020102733165041d0a0000001192100001385000000\
    19210000138500000005400000138000000002300000137500000000720000137000000000690000136500000000\
    819c0d0a";
const LOWER_LIMIT: &str = "1b0086010604000412343135303420200950232715348a44000000065000001150000000001\
    7000011500000000070000011550000000035000011600000000046000011650000000028000011700000000019460\
    d0a";
const HALTED: &str =
    "1b00410106040000832531333031202009451903301780810000001558000033500000000000b90d0a";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
        .collect()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

fn from() -> SocketAddrV4 {
    "192.0.2.9:40000".parse().unwrap()
}

fn to() -> SocketAddrV4 {
    "224.0.100.100:10000".parse().unwrap()
}

fn pcapng(payloads: &[Vec<u8>]) -> Vec<u8> {
    let interface = CapturedInterface { name: "lab0", link: LinkType::RawIp };
    let mut writer = Writer::new(Vec::new(), &interface, "test").unwrap();
    for (n, payload) in payloads.iter().enumerate() {
        writer.datagram(1_000_000_007 + n as u64, from(), to(), payload).unwrap();
    }
    writer.into_inner().unwrap()
}

/// The same as pcap, with Ethernet and a VLAN tag in front.
fn pcap(payload: &[u8]) -> Vec<u8> {
    let file = pcapng(&[payload.to_vec()]);
    let at = file.windows(2).position(|w| w == [0x45, 0]).unwrap();
    let packet =
        [&[2; 12][..], &[0x81, 0, 0, 5, 8, 0], &file[at..at + 28 + payload.len()]].concat();
    let mut file = bytes("d4c3b2a1020004000000000000000000ffff000001000000");
    for word in [1, 7, packet.len() as u32, packet.len() as u32] {
        file.extend(word.to_le_bytes());
    }
    [file, packet].concat()
}

fn decode(scratch: &Data, name: &str, content: &[u8]) -> Command {
    let file = scratch.file(name);
    std::fs::write(&file, content).unwrap();
    wirepath(&["feed", "decode", &file])
}

#[test]
fn the_vectors_decode_to_the_right_fields() {
    let scratch = Data::new();
    let all = [QUOTE, UPPER_LIMIT, LOWER_LIMIT, HALTED].map(bytes).concat();
    let found = lines(&succeed(decode(&scratch, "vectors.twse", &all)));
    assert_eq!(found.len(), 4);
    let level = |price: &str, quantity: u64| json!({ "price": price, "quantity": quantity });
    let quote = &found[0];
    assert_eq!(quote["business"], 1);
    assert_eq!(quote["market"], "TWSE");
    assert_eq!((&quote["format"], &quote["version"]), (&json!(6), &json!(4)));
    assert_eq!(quote["sequence"], 4567);
    assert_eq!(quote["symbol"], "2330");
    assert_eq!(quote["match_time"], "09:04:15.061278");
    assert_eq!(quote["trade"], level("99.50", 1234));
    assert_eq!(quote["bids"][0], level("99.50", 250));
    assert_eq!(quote["bids"].as_array().unwrap().len(), 5);
    assert_eq!(quote["asks"][2], level("101.50", 460));
    assert_eq!(quote["cumulative_volume"], 16_423);
    assert_eq!(quote["limit"], json!({ "trade": null, "bid": null, "ask": null, "halt": null }));
    assert_eq!((&quote["packet"], &quote["offset"]), (&json!(1), &json!(0)));
    let limit = &found[1];
    assert_eq!(limit["symbol"], "2002");
    assert_eq!(limit["limit"]["trade"], "up");
    assert_eq!(limit["asks"], json!([]));
    assert_eq!(limit["offset"], 113);
    assert_eq!(found[2]["symbol"], "1504");
    assert_eq!(
        (&found[2]["limit"]["trade"], &found[2]["limit"]["ask"]),
        (&json!("down"), &json!("down"))
    );
    assert_eq!((&found[2]["bids"], &found[2]["asks"][4]), (&json!([]), &level("11.70", 19)));
    assert_eq!(found[2]["status"]["continuous"], false);
    let halted = &found[3];
    assert_eq!(halted["trade"], level("33.50", 0));
    assert_eq!(halted["limit"]["halt"], "down");
    assert_eq!((&halted["bids"], &halted["asks"]), (&json!([]), &json!([])));
}

#[test]
fn both_kinds_of_capture_give_stamps_and_addresses() {
    let scratch = Data::new();
    let both = [bytes(QUOTE), bytes(HALTED)].concat();
    let found = lines(&succeed(decode(&scratch, "a.pcapng", &pcapng(&[both, bytes(LOWER_LIMIT)]))));
    assert_eq!(found.len(), 3);
    assert_eq!(found[1]["symbol"], "1301");
    assert_eq!((&found[1]["packet"], &found[2]["packet"]), (&json!(1), &json!(2)));
    assert_eq!(found[2]["captured_ns"], 1_000_000_008);
    assert_eq!(found[2]["source"], "192.0.2.9:40000");
    assert_eq!(found[2]["destination"], "224.0.100.100:10000");
    let found = lines(&succeed(decode(&scratch, "a.pcap", &pcap(&bytes(QUOTE)))));
    assert_eq!(found[0]["captured_ns"], 1_000_007_000);
    assert_eq!(found[0]["offset"], 24 + 16 + 18 + 28);
}

#[test]
fn malformed_telegrams_are_objects_and_parsing_resumes() {
    let scratch = Data::new();
    let mut bad = bytes(QUOTE);
    bad[40] ^= 1;
    let all = [bytes(HALTED), bad, bytes(LOWER_LIMIT)].concat();
    let output = run(decode(&scratch, "bad.pcapng", &pcapng(&[all])));
    assert!(output.status.success());
    let found = lines(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(found.len(), 3);
    assert_eq!(found[1]["error"], "checksum");
    assert_eq!(found[1]["packet"], 1);
    assert_eq!(found[1]["skipped_bytes"], 113);
    let start = found[0]["offset"].as_u64().unwrap();
    assert_eq!(found[1]["offset"], start + 41);
    assert_eq!(found[1]["field_offset"], start + 41 + 110);
    assert_eq!(found[2]["symbol"], "1504");
    assert!(String::from_utf8_lossy(&output.stderr).contains("1 malformed, 2 decoded"));
}

#[test]
fn a_truncated_capture_gives_what_is_whole_an_error_object_and_code_1() {
    let scratch = Data::new();
    let whole = pcapng(&[bytes(QUOTE), bytes(HALTED)]);
    let output = run(decode(&scratch, "cut.pcapng", &whole[..whole.len() - 10]));
    assert_eq!(output.status.code(), Some(1));
    let found = lines(&String::from_utf8(output.stdout).unwrap());
    assert_eq!((found.len(), &found[0]["symbol"]), (2, &json!("2330")));
    assert_eq!(found[1]["error"], "capture");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("cut.pcapng ends at offset") && said.contains("packet 2"), "{said}");
}

#[test]
fn standard_input_is_decoded() {
    let mut command = wirepath(&["feed", "decode", "-"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdin.write_all(&pcapng(&[bytes(QUOTE)])).unwrap();
    // Output does not wait for the end of the input.
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(lines(&line)[0]["symbol"], "2330");
    drop(stdin);
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line.lines().count(), 1);
    assert!(child.wait().unwrap().success());
}

#[test]
fn unknown_input_is_refused_with_a_remedy_unless_declared_as_telegrams() {
    let scratch = Data::new();
    let said = fail(decode(&scratch, "garbage", b"GIF89a, not a capture"), 2);
    assert!(said.contains("starts with") && said.contains("--format twse"), "{said}");
    assert!(fail(decode(&scratch, "empty", b""), 2).contains("is empty"));
    let missing = fail(wirepath(&["feed", "decode", "/nonexistent/capture"]), 2);
    assert!(missing.contains("cannot open /nonexistent/capture"), "{missing}");

    let file = scratch.file("late");
    std::fs::write(&file, [b"rubbish".to_vec(), bytes(QUOTE)].concat()).unwrap();
    let found = lines(&succeed(wirepath(&["feed", "decode", &file, "--format", "twse"])));
    assert_eq!((&found[0]["error"], &found[0]["skipped_bytes"]), (&json!("escape"), &json!(7)));
    assert_eq!(found[1]["symbol"], "2330");
}

#[test]
fn itch_in_mold_is_distinguished_from_telegrams_and_decoded() {
    let scratch = Data::new();
    let mut session = MoldSession::new(&MoldSpec { stocks: 5, ..MoldSpec::new(1) });
    let mut buffer = [0; 1400];
    let mut payloads = vec![bytes(QUOTE)];
    let written = session.heartbeat(&mut buffer).unwrap();
    payloads.push(buffer[..written.bytes].to_vec());
    for _ in 0..200 {
        let written = session.datagram(&mut buffer, 20).unwrap();
        payloads.push(buffer[..written.bytes].to_vec());
    }
    let written = session.end(&mut buffer, session.sent() + 1).unwrap();
    payloads.push(buffer[..written.bytes].to_vec());
    let found = lines(&succeed(decode(&scratch, "both.pcapng", &pcapng(&payloads))));
    assert_eq!(found.len() as u64, session.sent() + 3);
    assert_eq!(found[0]["symbol"], "2330");
    assert_eq!(found[1]["event"], "heartbeat");
    assert_eq!((&found[2]["type"], &found[2]["sequence"]), (&json!("S"), &json!(1)));
    assert_eq!((&found[3]["type"], &found[3]["stock"]), (&json!("R"), &json!("S00001")));
    let add = found.iter().find(|line| line["type"] == "A").unwrap();
    assert!(add["price"].as_str().unwrap().contains('.') && add["side"].is_string());
    assert_eq!(add["session"], "SYNTHETIC1");
    for letter in ["E", "X", "D", "U", "P"] {
        assert!(found.iter().any(|line| line["type"] == letter), "{letter}");
    }
    assert_eq!(found.last().unwrap()["event"], "end_of_session");
    assert!(found.iter().all(|line| line["error"].is_null()));
}

#[test]
fn a_closed_pipe_is_a_clean_end() {
    let scratch = Data::new();
    let mut session = SyntheticSession::new(&SyntheticSpec::new(1));
    let mut buffer = [0; 1400];
    let payloads: Vec<Vec<u8>> = (0..5000)
        .map(|_| {
            let written = session.datagram(&mut buffer, 8).unwrap();
            buffer[..written.bytes].to_vec()
        })
        .collect();
    let mut child = decode(&scratch, "long.pcapng", &pcapng(&payloads)).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 1000]).unwrap();
    drop(stdout);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    assert_eq!(said, "");
}
