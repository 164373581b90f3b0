//! Independent decoders agree with ours on every field.

use std::fs::File;
use std::io::BufWriter;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;

use market::mold::MoldPacket;
use wirepath_marketdata::capture::{CapturedInterface, LinkType, Writer};
use wirepath_marketdata::synthetic::{MoldSession, MoldSpec};

const PORT: u16 = 26_400;
const PACKETS: usize = 300;

fn packets() -> Vec<Vec<u8>> {
    let mut session = MoldSession::new(&MoldSpec { stocks: 50, ..MoldSpec::new(11) });
    let mut buffer = [0; 1400];
    (0..PACKETS)
        .map(|n| {
            let written = match n % 50 {
                49 => session.heartbeat(&mut buffer),
                _ => session.datagram(&mut buffer, 1 + n % 20),
            };
            buffer[..written.expect("it fits").bytes].to_vec()
        })
        .collect()
}

/// Session, sequence and count of a packet, and length and sequence of each of its messages, as
/// tshark prints them.
fn ours(packet: &[u8]) -> String {
    let parsed = MoldPacket::parse(packet).expect("ours");
    let header = parsed.header();
    let messages: Vec<_> = parsed.messages().map(|m| m.expect("whole")).collect();
    let list = |each: &dyn Fn(&market::mold::Message<'_>) -> String| {
        messages.iter().map(each).collect::<Vec<_>>().join(",")
    };
    format!(
        "{}\t{}\t{}\t{}\t{}",
        String::from_utf8_lossy(&header.session.0),
        header.sequence,
        messages.len(),
        list(&|m| m.bytes.len().to_string()),
        list(&|m| m.sequence.to_string())
    )
}

#[test]
fn tshark_finds_the_same_messages_in_generated_packets() {
    if !testkit::is_installed("tshark") {
        return;
    }
    let packets = packets();
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("mold.pcapng");
    let file = BufWriter::new(File::create(&path).expect("a file"));
    let interface = CapturedInterface { name: "made-up", link: LinkType::RawIp };
    let mut writer = Writer::new(file, &interface, "test").expect("begun");
    let from = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 9), 40_000);
    let to = SocketAddrV4::new(Ipv4Addr::new(233, 54, 12, 111), PORT);
    for (n, packet) in packets.iter().enumerate() {
        writer.datagram(1_790_000_000_000_000_000 + n as u64, from, to, packet).expect("written");
    }
    writer.flush().expect("flushed");
    drop(writer);

    let shown = Command::new("tshark")
        .arg("-r")
        .arg(&path)
        .args(["-d", &format!("udp.port=={PORT},moldudp64"), "-T", "fields"])
        .args(["-e", "moldudp64.session", "-e", "moldudp64.sequence", "-e", "moldudp64.count"])
        .args(["-e", "moldudp64.msglen", "-e", "moldudp64.msgseq"])
        .output()
        .expect("tshark runs");
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let shown = String::from_utf8(shown.stdout).expect("text");
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), PACKETS);
    for (line, packet) in lines.iter().zip(&packets) {
        assert_eq!(*line, ours(packet));
    }
}

/// Fields of a message as one line, to compare decoders.
fn told(kind: u8, locate: u16, timestamp: u64, rest: &dyn std::fmt::Debug) -> String {
    format!("{} {locate} {timestamp} {rest:?}", char::from(kind))
}

fn told_by_us(bytes: &[u8]) -> String {
    use market::itch::{Body, Message};
    let message = Message::parse(bytes).expect("ours");
    let rest: &dyn std::fmt::Debug = match &message.body {
        Body::SystemEvent(_) => &(),
        Body::StockDirectory(d) => &(d.stock.as_str().to_owned(), u64::from(d.round_lot)),
        Body::AddOrder(o) => &(o.reference, o.shares, o.stock.as_str().to_owned(), o.price.0),
        Body::OrderExecuted(e) => &(e.reference, e.shares, e.match_number),
        Body::OrderCancel(c) => &(c.reference, c.shares),
        Body::OrderDelete(d) => &d.reference,
        Body::OrderReplace(r) => &(r.original, r.new, r.shares, r.price.0),
        Body::Trade(t) => &(t.reference, t.shares, t.stock.as_str().to_owned(), t.price.0),
        other => panic!("not made: {other:?}"),
    };
    told(bytes[0], message.locate, message.timestamp.0, rest)
}

fn decoded_by_itchy(message: &itchy::Message) -> String {
    use itchy::Body;
    let name = |stock: &str| stock.trim_end().to_owned();
    let rest: &dyn std::fmt::Debug = match &message.body {
        Body::SystemEvent { .. } => &(),
        Body::StockDirectory(d) => &(name(&d.stock), u64::from(d.round_lot_size)),
        Body::AddOrder(o) => &(o.reference, o.shares, name(&o.stock), u64::from(o.price.raw())),
        Body::OrderExecuted { reference, executed, match_number }
        | Body::OrderExecutedWithPrice { reference, executed, match_number, .. } => {
            &(*reference, *executed, *match_number)
        }
        Body::OrderCancelled { reference, cancelled } => &(*reference, *cancelled),
        Body::DeleteOrder { reference } => reference,
        Body::ReplaceOrder(r) => {
            &(r.old_reference, r.new_reference, r.shares, u64::from(r.price.raw()))
        }
        Body::NonCrossTrade(t) => {
            &(t.reference, t.shares, name(&t.stock), u64::from(t.price.raw()))
        }
        other => panic!("not made: {other:?}"),
    };
    told(message.tag, message.stock_locate, message.timestamp, rest)
}

#[test]
fn itchy_decodes_generated_messages_to_the_same_fields() {
    let packets = packets();
    let messages: Vec<&[u8]> = packets
        .iter()
        .flat_map(|packet| MoldPacket::parse(packet).expect("ours").messages())
        .map(|message| message.expect("whole").bytes)
        .collect();
    // It reads files, in which each message follows its length.
    let mut file = Vec::new();
    for message in &messages {
        file.extend((message.len() as u16).to_be_bytes());
        file.extend(*message);
    }
    let read: Vec<String> = itchy::MessageStream::from_reader(&file[..])
        .map(|message| decoded_by_itchy(&message.expect("it reads it")))
        .collect();
    let said: Vec<String> = messages.iter().map(|bytes| told_by_us(bytes)).collect();
    assert_eq!(read, said);
    // Orders that are added, executed, cancelled, deleted and replaced, and the directory.
    for kind in ["S", "R", "A", "E", "X", "D", "U"] {
        assert!(said.iter().any(|line| line.starts_with(kind)), "{kind} is never made");
    }
}
