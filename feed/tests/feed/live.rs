//! The live commands of the path `feed` between two namespaces: replay on one side, listen and
//! record on the other. Sent and received messages are compared.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{
    Data, LONG, NEAR_IP, Running, Spaces, fail, is_installed, json, run, succeed, until, wirepath,
};
use market::mold;
use marketdata::messages::Digest;
use marketdata::schedule::SendSchedule;
use marketdata::synthetic::{MoldSession, MoldSpec};
use serde_json::Value;
use sys::netns::Netns;

const A: &str = "239.77.1.1:10000";
const B: &str = "239.77.1.2:20000";

/// A `feed listen` in the far namespace that has joined.
fn listen(spaces: &Spaces, args: &[&str]) -> Running {
    let all = [&["feed", "listen", A, "-i", "vb", "--json"], args].concat();
    let mut listener = Running::start(spaces.far(&all));
    listener.await_stderr("Ctrl-C ends");
    listener
}

/// Runs `feed replay` in the near namespace; returns its document.
fn replay(spaces: &Spaces, args: &[&str]) -> Value {
    let all = [&["feed", "replay", "--to", A, "-i", "va", "--pin", "0", "--json"], args].concat();
    json(spaces.near(&all))
}

/// Ends a listener with SIGINT; returns its summary, the last line.
fn summary(listener: Running) -> Value {
    let output = listener.end_by("INT", LONG);
    assert!(output.status.success(), "{}", crate::common::all_text(&output));
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let (last, seconds) = lines.split_last().expect("a summary");
    assert!(seconds.iter().all(|second| second["live"] == true), "{text}");
    assert_eq!(last["command"], "feed listen");
    assert_eq!(last["balanced"], true, "{last}");
    last.clone()
}

fn count(doc: &Value, name: &str) -> u64 {
    doc[name].as_u64().unwrap_or_else(|| panic!("{name} in {doc}"))
}

fn within<R: Send>(namespace: &str, body: impl FnOnce() -> R + Send) -> R {
    let netns = Netns::open(format!("/run/netns/{namespace}")).expect("our namespace");
    netns.run(body).expect("a thread in it")
}

#[test]
fn two_lossy_lines_deliver_their_union_in_order_and_counts_match_the_faults() {
    let spaces = Spaces::new();
    let buffer = ["--receive-buffer", "16777216", "--hold", "5s"];
    let pair = ["--group-b", B, "--from-start", "--digest"];
    let listener = listen(&spaces, &[&pair[..], &buffer].concat());
    // Too few for a second cycle of descriptions, which would not be a restart within the hold.
    let session = ["--synthetic", "--symbols", "200", "--rate", "8000", "-c", "10000"];
    let faults = ["--drop-a", "10%", "--drop-b", "10%", "--duplicate", "1%", "--reorder", "1%"];
    let sent =
        replay(&spaces, &[&["--to-b", B, "--fault-seed", "5"], &session[..], &faults].concat());
    let got = summary(listener);
    let union = &sent["union"];
    for line in 0..2 {
        let (sent, got) = (&sent["lines"][line], &got["lines"][line]);
        let counts = &got["counts"];
        // A datagram overtaken by one of another domain is not reordered.
        assert!(count(sent, "dropped_count") > 800 && count(sent, "reordered_count") > 10);
        assert_eq!(count(got, "dropped_datagram_count"), 0, "{got}");
        assert_eq!(count(got, "datagram_count"), count(sent, "datagram_count"));
        assert_eq!(count(counts, "received_count"), count(sent, "message_count"));
        assert_eq!(count(counts, "repeat_count"), count(sent, "duplicated_count"));
        assert_eq!(count(counts, "reordered_count"), count(sent, "reordered_count"));
        for none in ["late_count", "forgotten_count", "refused_count"] {
            assert_eq!(count(counts, none), 0, "{none}: {got}");
        }
        let told = count(sent, "dropped_count") - count(sent, "dropped_at_end_count");
        assert_eq!(count(got, "missing_count"), told, "{got}");
        assert_eq!(
            count(got, "expected_count"),
            count(got, "brought_count") + count(got, "missing_count")
        );
        let figures = &got["kernel_to_app"];
        assert!(figures["p50_ns"].is_u64(), "{figures}");
        assert!(figures["p99_ns"].is_null() && figures["max_ns"].is_null(), "among the missing");
    }
    assert!(count(union, "lost_count") > 50, "{union}");
    assert_eq!(count(&got, "delivered_count"), count(union, "carried_count"));
    let told = count(union, "lost_count") - count(union, "lost_at_end_count");
    assert_eq!(count(&got, "missing_count"), told);
    assert!(got["match_to_app"]["p50_ns"].is_u64(), "{got}");
    assert!(got["match_to_app"]["max_ns"].is_null(), "a missing message is infinitely late: {got}");
    assert_eq!(got["digests"], union["digests"], "the same messages in the same order");
    assert!(got["digests"].as_object().expect("an object").len() >= 6);
}

#[test]
fn without_loss_latency_is_reported_per_line_and_segment_and_sends_are_stamped() {
    let (spaces, data) = (Spaces::new(), Data::new());
    let listener =
        listen(&spaces, &["--group-b", B, "--from-start", "--receive-buffer", "8388608"]);
    let file = data.file("sent.csv");
    let session = ["--synthetic", "--rate", "4000", "--burst", "10", "-c", "6000"];
    let sent = replay(&spaces, &[&["--to-b", B, "--stamps", &file], &session[..]].concat());
    let got = summary(listener);
    assert_eq!(count(&got, "missing_count"), 0);
    assert_eq!(count(&got, "delivered_count"), 6000);
    for line in 0..2 {
        for segment in ["kernel_to_app", "match_to_app"] {
            let figures = &got["lines"][line][segment];
            assert!(count(figures, "p50_ns") <= count(figures, "max_ns"), "{figures}");
        }
        assert!(count(&got["lines"][line]["kernel_to_app"], "p50_ns") > 0);
    }
    assert!(got["match_to_app"]["p99_ns"].is_u64() && got["clock"]["error_bound_ns"].is_u64());
    assert!(count(&got, "book_count") > 1000, "{got}");
    assert!(sent["lag"]["p99_ns"].is_u64(), "{sent}");
    let rows = std::fs::read_to_string(&file).expect("stamps");
    let rows: Vec<Vec<&str>> = rows.lines().skip(1).map(|row| row.split(',').collect()).collect();
    assert_eq!(rows.len(), 12_000);
    let number = |text: &str| text.parse::<u64>().expect("a number");
    for row in &rows {
        assert!(number(row[4]) >= number(row[3]) && row[2] == "sent", "{row:?}");
        assert!(row[7].contains(": "), "{row:?}");
    }
    // Ten are due at once, 2.5 ms after the previous ten, except for rounding.
    let due = |n: usize| number(rows[2 * n][3]);
    assert_eq!(due(0), due(9));
    assert_eq!(due(10) - due(9), 2_500_000);
}

/// Drop counter of the only UDP socket of a port, from the kernel's table.
fn socket_drops(pid: u32, port_hex: &str) -> u64 {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/udp")).unwrap_or_default();
    let line = table.lines().find(|line| line.contains(&format!(":{port_hex} 00000000:0000")));
    line.and_then(|line| line.split_whitespace().last()?.parse().ok()).unwrap_or(0)
}

#[test]
fn socket_drops_are_counted_in_messages_with_a_remedy() {
    let spaces = Spaces::new();
    let listener = listen(&spaces, &["--from-start"]);
    listener.signal("STOP");
    let session = ["--synthetic", "--rate", "2000", "-c", "8000", "--symbols", "50"];
    let sent = thread::scope(|scope| {
        let sending = scope.spawn(|| replay(&spaces, &session));
        let dropped = until(LONG, || socket_drops(listener.pid(), "2710") > 300);
        listener.signal("CONT");
        assert!(dropped, "no datagram was dropped while the receiver slept");
        sending.join().expect("the replay")
    });
    let got = summary(listener);
    let line = &got["lines"][0];
    let dropped = count(line, "dropped_datagram_count");
    assert!(dropped > 300, "{line}");
    assert_eq!(count(&line["counts"], "received_count") + dropped, count(&sent, "message_count"));
    assert_eq!(count(line, "missing_count"), dropped, "both books say the same: {line}");
    assert_eq!(
        line["dropped_message_count"],
        serde_json::json!({"least": dropped, "most": dropped})
    );
    assert!(line["kernel_to_app"]["max_ns"].is_null(), "{line}");
    let note = got["notes"][0].as_str().expect("a note");
    assert!(note.contains("--receive-buffer") && note.contains("net.core.rmem_max"), "{note}");
}

/// A MoldUDP64 retransmission server with all messages of a session.
fn serve(
    socket: &UdpSocket,
    session: mold::MoldSession,
    messages: &BTreeMap<u64, Vec<u8>>,
    done: &AtomicBool,
) -> u64 {
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a time");
    let (mut request, mut answer) = ([0; 64], [0; 1400]);
    let mut served = 0;
    while !done.load(Ordering::Relaxed) {
        let Ok((len, from)) = socket.recv_from(&mut request) else { continue };
        let wanted = mold::MoldHeader::parse_request(&request[..len]).expect("a request");
        assert_eq!(wanted.session, session);
        let mut writer =
            mold::PacketWriter::new(&mut answer, session, wanted.sequence).expect("it fits");
        let last = wanted.sequence + u64::from(wanted.count);
        for (_, message) in messages.range(wanted.sequence..last) {
            if writer.push(message).is_err() {
                break;
            }
        }
        let len = writer.finish();
        socket.send_to(&answer[..len], from).expect("an answer");
        served += 1;
    }
    served
}

#[test]
fn lost_mold_messages_are_recovered_in_order_up_to_the_heartbeat() {
    const MESSAGES: u64 = 6000;
    let spaces = Spaces::new();
    // The session of the replay: the same seed gives the same bytes.
    let spec = MoldSpec { stocks: 100, schedule: SendSchedule::paced(3000), ..MoldSpec::new(9) };
    let mut session = MoldSession::new(&spec);
    let (mut messages, mut buffer) = (BTreeMap::new(), [0; 1472]);
    while session.sent() < MESSAGES {
        let written = session.datagram(&mut buffer, 3).expect("it fits");
        let packet = mold::MoldPacket::parse(&buffer[..written.bytes]).expect("whole");
        for message in packet.messages().map(|message| message.expect("whole")) {
            messages.insert(message.sequence, message.bytes.to_vec());
        }
    }
    let mut expected = Digest::default();
    messages.iter().for_each(|(sequence, bytes)| expected.add(*sequence, bytes));
    let server = within(&spaces.near, || UdpSocket::bind((NEAR_IP, 18_000)).expect("a socket"));
    let (done, messages) = (Arc::new(AtomicBool::new(false)), messages);
    let serving = thread::spawn({
        let done = done.clone();
        move || serve(&server, spec.session, &messages, &done)
    });
    let address = format!("{NEAR_IP}:18000");
    let args = ["--mold", "--recover", &address, "--from-start", "--digest", "--hold", "10s"];
    let listener = listen(&spaces, &args);
    let datagrams = (MESSAGES / 3).to_string();
    let session = ["--synthetic", "--mold", "--seed", "9", "--symbols", "100", "--rate", "3000"];
    let pace = ["--per-datagram", "3", "-c", &datagrams, "--drop-a", "10%"];
    let sent = replay(&spaces, &[&session[..], &pace].concat());
    assert_eq!(count(&sent, "message_count"), MESSAGES);
    // The last message and the end of the session may be lost; heartbeats repeat them.
    let heartbeat = sender(&spaces);
    let mut bytes = [0; mold::HEADER_BYTES];
    let header = mold::MoldHeader { session: spec.session, sequence: MESSAGES + 1, count: 0 };
    header.write(&mut bytes).expect("it fits");
    for _ in 0..5 {
        heartbeat.send(&bytes).expect("sent");
        thread::sleep(Duration::from_millis(50));
    }
    let got = summary(listener);
    done.store(true, Ordering::Relaxed);
    assert!(serving.join().expect("the server") > 50);
    let dropped = count(&sent["lines"][0], "dropped_count");
    assert!(dropped > 300, "{sent}");
    assert_eq!(count(&got, "delivered_count"), MESSAGES, "{got}");
    assert_eq!((count(&got, "missing_count"), count(&got, "missing_at_end_count")), (0, 0));
    let recovery = &got["recovery"];
    assert_eq!(count(recovery, "recovered_count"), dropped, "{recovery}");
    assert_eq!(count(&recovery["counts"], "first_count"), dropped, "{recovery}");
    assert_eq!(got["digests"]["SYNTHETIC1"], expected.to_string());
    assert_eq!(count(&got, "sessions_ended_count"), 1, "the replay ends its session: {got}");
    // The line lost messages, the delivered stream did not.
    assert!(got["lines"][0]["kernel_to_app"]["max_ns"].is_null(), "{got}");
    assert!(got["match_to_app"]["p50_ns"].is_u64(), "{got}");
}

#[test]
fn a_replay_serves_the_messages_that_it_dropped() {
    let spaces = Spaces::new();
    let address = format!("{NEAR_IP}:18000");
    let recover = ["--mold", "--recover", &address, "--from-start", "--digest", "--hold", "60s"];
    let listener = listen(&spaces, &[&recover[..], &["-c", "1500"]].concat());
    let session = ["--synthetic", "--mold", "--seed", "4", "--symbols", "100", "--rate", "2000"];
    let pace = ["-c", "500", "--per-datagram", "3", "--drop-a", "20%", "--serve", &address];
    let to = ["feed", "replay", "--to", A, "-i", "va", "--json"];
    let replay = Running::start(spaces.near(&[&to[..], &session, &pace].concat()));
    // Ends by its count: every message was delivered, whether sent, or served.
    let output = listener.finish(LONG).expect("it ends");
    assert!(output.status.success(), "{}", crate::common::all_text(&output));
    let text = String::from_utf8(output.stdout).expect("text");
    let got: Value = serde_json::from_str(text.lines().last().expect("a summary")).expect("JSON");
    let output = replay.end_by("INT", LONG);
    assert!(output.status.success(), "{}", crate::common::all_text(&output));
    let sent: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let dropped = count(&sent["lines"][0], "dropped_count");
    assert!(dropped > 100, "{sent}");
    assert_eq!(count(&got, "delivered_count"), 1500, "{got}");
    assert_eq!(count(&got, "missing_count"), 0, "{got}");
    assert_eq!(count(&got["recovery"], "recovered_count"), dropped, "{got}");
    assert!(count(&sent["served"], "message_count") >= dropped, "{sent}");
}

#[test]
fn timed_replay_is_counted_and_delivered_in_full() {
    let spaces = Spaces::new();
    let listener = listen(&spaces, &["--from-start", "--digest"]);
    let sent = replay(&spaces, &["--synthetic", "--rate", "1000", "--time", "300ms"]);
    let got = summary(listener);
    assert_eq!(count(&sent, "message_count"), 300, "{sent}");
    assert_eq!(count(&sent["union"], "carried_count"), 300, "{sent}");
    assert_eq!(count(&got, "delivered_count"), 300, "{got}");
    assert_eq!(got["digests"], sent["union"]["digests"]);
}

/// Number of packets that tshark finds in a file, and of malformed ones.
fn tshark(file: &str) -> (usize, usize) {
    let packets = |filter: &str| {
        let mut tshark = Command::new("tshark");
        tshark.args(["-r", file, "-Y", filter, "-T", "fields", "-e", "frame.number"]);
        // It has no dissector for these telegrams, but has others for the same ports.
        tshark.args(["-d", "udp.port==10000,data", "-d", "udp.port==20000,data"]);
        succeed(tshark).lines().count()
    };
    (packets("udp"), packets("_ws.malformed || _ws.short || ip.checksum.status == \"Bad\""))
}

#[test]
fn a_recording_opens_in_tshark_and_replays_to_the_same_messages() {
    if !is_installed("tshark") {
        return;
    }
    // With --late all are late, and all of them are from sockets.
    for mode in [&[][..], &["--late", "1ns"]] {
        let (spaces, data) = (Spaces::new(), Data::new());
        let file = data.file("feed.pcapng");
        let groups = ["--group-b", B, "-i", "vb"];
        let record = [&["feed", "record", A, &file, "--json"], &groups[..], mode].concat();
        let mut recorder = Running::start(spaces.far(&record));
        recorder.await_stderr("recording to ");
        let session = ["--synthetic", "--rate", "4000", "-c", "2000", "--per-datagram", "2"];
        let first = replay(&spaces, &[&["--to-b", B], &session[..]].concat());
        let output = recorder.end_by("INT", LONG);
        let doc: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((count(&doc, "packet_count"), count(&doc, "dropped_count")), (4000, 0), "{doc}");
        assert_eq!(doc["from"], if mode.is_empty() { "frames" } else { "sockets" });
        assert_eq!(tshark(&file), (4000, 0));
        // Late datagrams are in the file, each with its cause, up to those of a second.
        let report = json(wirepath(&["feed", "report", &file, "--json"]));
        assert_eq!(report["late"], doc["late"]);
        if !mode.is_empty() {
            assert_eq!(count(&doc["late"], "count"), 4000, "{doc}");
            assert!(count(&doc["late"]["causes"][0], "count") > 0, "{doc}");
        }
        let listener = listen(
            &spaces,
            &["--group-b", B, "--from-start", "--digest", "--receive-buffer", "8388608"],
        );
        let pair = ["--to-b", B, "--from", A, "--from-b", B, "--speed", "2"];
        let second = replay(&spaces, &[&[file.as_str()], &pair[..]].concat());
        let got = summary(listener);
        assert_eq!(count(&second, "datagram_count"), 4000);
        let elapsed = |doc: &Value| count(doc, "elapsed_ns");
        // A busy machine delays the sends; by this much at most.
        let due = elapsed(&second).saturating_sub(count(&second["lag"], "max_ns"));
        assert!(due * 3 < elapsed(&first) * 2, "twice as fast: {second}");
        assert_eq!(count(&got, "delivered_count"), count(&first["union"], "carried_count"));
        assert_eq!(got["digests"], first["union"]["digests"]);
        // Not overwritten by default.
        let said = fail(spaces.far(&record), 2);
        assert!(said.contains("exists") && said.contains("--overwrite"), "{said}");
    }
}

#[test]
fn order_books_of_a_live_feed_are_those_of_its_recording() {
    for protocol in [&["--mold"][..], &[]] {
        let (spaces, data) = (Spaces::new(), Data::new());
        let file = data.file("feed.pcapng");
        let groups = [A, "--group-b", B, "-i", "vb"];
        let record = [&["feed", "record", A, &file], &groups[1..]].concat();
        let mut recorder = Running::start(spaces.far(&record));
        recorder.await_stderr("recording to ");
        let books = ["--group-b", B, "--from-start", "--books", "3"];
        let patient = ["--receive-buffer", "8388608", "--hold", "5s"];
        let listener = listen(&spaces, &[&books[..], &patient, protocol].concat());
        // Each line has what the other has lost.
        let lossy = ["--to-b", B, "--drop-a", "10%", "--fault-seed", "3"];
        let session = ["--synthetic", "--symbols", "40", "--rate", "4000", "-c", "3000"];
        replay(&spaces, &[&lossy[..], &session, protocol].concat());
        let live = summary(listener)["books"].clone();
        assert!(recorder.end_by("INT", LONG).status.success());
        let report = json(wirepath(&["feed", "report", &file, "--books", "3", "--json"]));
        assert_eq!(live, report["books"], "{protocol:?}");
        assert_eq!(live["shown"].as_array().map(Vec::len), Some(3), "{live}");
        let is_of_orders = !protocol.is_empty();
        assert_eq!(live["live_order_count"].as_u64() > Some(100), is_of_orders, "{live}");
        assert_eq!(live["unknown_order_count"].as_u64().unwrap_or(0), 0, "{live}");
    }
}

/// Response of a server in a namespace to a request line.
fn ask(namespace: &str, address: &str, request: &str) -> String {
    ask_for(namespace, address, request, "*/*")
}

/// The same to a client that accepts certain types.
fn ask_for(namespace: &str, address: &str, request: &str, accept: &str) -> String {
    let mut stream = within(namespace, || TcpStream::connect(address).expect("it listens"));
    stream.set_read_timeout(Some(LONG)).expect("a time");
    let head = format!(
        "{request} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn only_metrics_are_served_while_listening() {
    let spaces = Spaces::new();
    let listener = listen(&spaces, &["--listen", "0", "--top", "3"]);
    let said = listener.stderr();
    let address = said.split("http://").nth(1).and_then(|rest| rest.split('/').next());
    let address = address.unwrap_or_else(|| panic!("{said}"));
    assert!(address.starts_with("127.0.0.1:"), "on loopback by default: {said}");
    replay(&spaces, &["--synthetic", "--rate", "2000", "-c", "1000"]);
    let row = "\nwirepath_feed_messages_total{line=\"A\"} 1000\n";
    let mut page = String::new();
    let seen = until(LONG, || {
        page = ask(&spaces.far, address, "GET /metrics");
        page.contains(row)
    });
    assert!(seen, "{page}");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("version=0.0.4"), "{page}");
    assert!(page.contains("wirepath_feed_delivered_total 1000\n"), "{page}");
    let latency = "wirepath_feed_latency_seconds{segment=\"kernel_to_app\",line=\"A\",quantile=";
    assert!(page.contains(latency), "{page}");
    // A server that prefers OpenMetrics gets it.
    let accept = "application/openmetrics-text;version=1.0.0,*/*;q=0.1";
    let open = ask_for(&spaces.far, address, "GET /metrics", accept);
    assert!(open.contains("Content-Type: application/openmetrics-text; version=1.0.0;"), "{open}");
    assert!(open.contains("# TYPE wirepath_feed_messages counter\n") && open.ends_with("# EOF\n"));
    assert!(open.contains("# UNIT wirepath_feed_latency_seconds seconds\n"), "{open}");
    assert!(ask(&spaces.far, address, "GET /").starts_with("HTTP/1.1 404"));
    assert!(ask(&spaces.far, address, "POST /metrics").starts_with("HTTP/1.1 405"));
    let got = summary(listener);
    assert_eq!(count(&got, "delivered_count"), 1000);
}

#[test]
fn only_the_given_source_is_received_and_silence_is_explained() {
    let spaces = Spaces::new();
    let other = listen(&spaces, &["--source", "10.77.0.9", "--silence", "1s"]);
    let session = ["--synthetic", "--rate", "1000", "-c", "500"];
    replay(&spaces, &session);
    let mut other = other;
    other.await_stderr("note: ");
    let said = other.stderr();
    assert!(said.contains("nothing from 239.77.1.1:10000 on vb"), "{said}");
    assert!(said.contains("--source 10.77.0.9"), "{said}");
    assert_eq!(count(&summary(other), "delivered_count"), 0);
    let mut right = listen(&spaces, &["--source", NEAR_IP, "--silence", "1s"]);
    replay(&spaces, &session);
    right.await_stderr("after 500 datagrams");
    assert_eq!(count(&summary(right), "delivered_count"), 500);
}

#[test]
fn reverse_path_filter_is_detected() {
    let spaces = Spaces::new();
    let set = |namespace: &str, args: &[&str]| succeed(crate::common::enter(namespace, args));
    set(&spaces.far, &["sysctl", "-qw", "net.ipv4.conf.vb.rp_filter=1"]);
    // The sender's address is on another network: strict filtering drops it.
    set(&spaces.near, &["ip", "address", "flush", "dev", "va"]);
    set(&spaces.near, &["ip", "address", "add", "10.99.0.1/24", "dev", "va"]);
    let mut listener = listen(&spaces, &["--silence", "1s"]);
    replay(&spaces, &["--synthetic", "--rate", "1000", "-c", "300"]);
    listener.await_stderr("rp_filter");
    assert_eq!(count(&summary(listener), "delivered_count"), 0);
}

#[test]
fn datagrams_of_the_group_that_this_host_drops_are_not_called_others() {
    if !is_installed("nft") {
        return;
    }
    let session = ["--synthetic", "--rate", "1000", "-c", "300"];
    for (hook, said_of_it) in
        [("input", "behind routing, by chain"), ("prerouting", "before routing, by chain")]
    {
        let spaces = Spaces::new();
        let rules = format!(
            "add table ip feed; add chain ip feed drops {{ type filter hook {hook} priority 0; }}; \
             add rule ip feed drops udp dport 10000 drop"
        );
        succeed(crate::common::enter(&spaces.far, &["nft", &rules]));
        let mut listener = listen(&spaces, &["--silence", "1s"]);
        replay(&spaces, &session);
        listener.await_stderr("note: ");
        let said = listener.stderr();
        assert!(
            said.contains(
                "of its datagrams or more reached vb: 239.77.1.1:10000 is dropped by this host"
            ),
            "{said}"
        );
        assert!(said.contains(said_of_it) && !said.contains("other packets"), "{said}");
        assert!(
            said.contains("chain ip feed drops: rule with handle")
                && said.contains("nft insert rule ip feed drops"),
            "{said}"
        );
        assert_eq!(count(&summary(listener), "delivered_count"), 0);
    }
    // A rule that comes while the group is received.
    let spaces = Spaces::new();
    let mut listener = listen(&spaces, &["--silence", "1s"]);
    replay(&spaces, &session);
    let rules = "add table ip feed; add chain ip feed drops { type filter hook input priority 0; }; \
                 add rule ip feed drops udp dport 10000 drop";
    succeed(crate::common::enter(&spaces.far, &["nft", rules]));
    replay(&spaces, &["--synthetic", "--rate", "500", "-c", "2000"]);
    listener.await_stderr("note: ");
    let said = listener.stderr();
    assert!(said.contains("after 300 datagrams, although"), "{said}");
    assert!(said.contains("rule at input"), "{said}");
    assert_eq!(count(&summary(listener), "delivered_count"), 300);
}

#[test]
fn datagrams_of_another_port_are_named() {
    let spaces = Spaces::new();
    let to = ["feed", "replay", "--to", "239.77.1.1:10001", "-i", "va", "--json"];
    let session = ["--synthetic", "--rate", "1000", "-c", "300"];
    let mut listener = listen(&spaces, &["--silence", "1s"]);
    succeed(spaces.near(&[&to[..], &session].concat()));
    listener.await_stderr("give 239.77.1.1:10001");
    assert_eq!(count(&summary(listener), "delivered_count"), 0);
}

/// A socket of the near namespace that sends to the group.
fn sender(spaces: &Spaces) -> UdpSocket {
    let group: SocketAddrV4 = A.parse().expect("an address");
    within(&spaces.near, || {
        let link = host::net::link_named("va").expect("our link");
        io::multicast::sender(group, link.index, "va", 1).expect("a sender")
    })
}

#[test]
fn invented_sessions_do_not_silence_the_real_one_and_are_noted() {
    const MESSAGES: u64 = 200;
    let spaces = Spaces::new();
    let listener = listen(&spaces, &["--from-start"]);
    let socket = sender(&spaces);
    let mut buffer = [0; 1472];
    let mut send = |session: &[u8; 10], sequence: u64| {
        let mut writer =
            mold::PacketWriter::new(&mut buffer, mold::MoldSession(*session), sequence)
                .expect("it fits");
        // A system event.
        writer.push(b"S\0\0\0\0\0\0\0\0\0\0O").expect("it fits");
        let len = writer.finish();
        socket.send(&buffer[..len]).expect("sent");
        // The receive buffer holds a few hundred.
        thread::sleep(Duration::from_micros(500));
    };
    let invented =
        |n: u64| -> [u8; 10] { format!("FORGED{n:04}").into_bytes().try_into().expect("ten") };
    (0..300).for_each(|n| send(&invented(n), 1));
    for sequence in 1..=MESSAGES {
        send(b"REALDAY001", sequence);
        send(&invented(300 + sequence), 1);
    }
    let got = summary(listener);
    let domains = got["domains"].as_array().expect("domains");
    let real = domains.iter().find(|domain| domain["domain"] == "REALDAY001").expect("it is there");
    assert_eq!(count(real, "delivered_count"), MESSAGES, "{got}");
    assert_eq!(count(&got, "delivered_count"), 300 + 2 * MESSAGES);
    assert_eq!((count(&got, "missing_count"), domains.len()), (0, 64));
    assert_eq!(count(&got, "displaced_domain_count"), 300 + MESSAGES + 1 - 64);
    let notes = got["notes"].to_string();
    assert!(notes.contains("more than 64 sessions"), "{notes}");
}

#[test]
fn another_protocol_is_named_once_with_code_1_and_mold_is_detected() {
    let spaces = Spaces::new();
    let listener = listen(&spaces, &[]);
    let socket = sender(&spaces);
    for _ in 0..20 {
        socket.send(b"8=FIX.4.2 and so on").expect("sent");
    }
    let output = listener.end_by("INT", LONG);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.matches("note: another protocol: none of").count(), 1, "{said}");
    assert!(said.contains("nothing that arrived"), "{said}");
    let listener = listen(&spaces, &["--from-start"]);
    let sent = replay(&spaces, &["--synthetic", "--mold", "--rate", "1000", "-c", "300"]);
    let got = summary(listener);
    assert_eq!(count(&got, "delivered_count"), count(&sent, "message_count"));
    assert_eq!(got["domains"][0]["domain"], "SYNTHETIC1");
}

#[test]
fn match_times_of_bursts_are_the_intended_send_times() {
    let spaces = Spaces::new();
    let data = Data::new();
    let (file, stamps) = (data.file("bursts.pcapng"), data.file("stamps.csv"));
    let record = ["feed", "record", A, "-i", "vb", "--json", "--time", "30s", &file];
    let mut recorder = Running::start(spaces.far(&record));
    recorder.await_stderr("Ctrl-C ends");
    let session = ["--synthetic", "--rate", "2000", "--burst", "20", "--per-datagram", "2"];
    replay(&spaces, &[&session[..], &["-c", "300", "--stamps", &stamps]].concat());
    assert!(recorder.end_by("INT", LONG).status.success());
    let text = std::fs::read_to_string(&stamps).expect("stamps");
    let intended: Vec<u64> = (text.lines().skip(1))
        .map(|row| row.split(',').nth(3).expect("a column").parse().expect("nanoseconds"))
        .collect();
    let decoded = succeed(wirepath(&["feed", "decode", &file]));
    let mut compared = 0;
    for line in decoded.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let (Some(time), Some(packet)) = (line["match_time"].as_str(), line["packet"].as_u64())
        else {
            continue;
        };
        let fields: Vec<f64> =
            time.split(':').map(|field| field.parse().expect("digits")).collect();
        let since_nine_us = ((fields[1] * 60.0 + fields[2]) * 1e6).round() as u64;
        let due_us = (intended[packet as usize - 1] - intended[0]) / 1000;
        assert_eq!((fields[0], since_nine_us), (9.0, due_us), "packet {packet}");
        compared += 1;
    }
    assert!(compared > 500, "{compared}");
}

#[test]
fn past_the_stack_both_lines_are_counted_apart_and_every_datagram_is_stamped() {
    let spaces = Spaces::new();
    for mode in ["skb", "native"] {
        let pair = ["--group-b", B, "--from-start", "--digest", "--hold", "30s"];
        let listener = listen(&spaces, &[&pair[..], &["--engine", "xdp", "--mode", mode]].concat());
        let session = ["--synthetic", "--symbols", "50", "--rate", "2000", "-c", "1000"];
        let faults = ["--drop-a", "10%", "--fault-seed", "3"];
        let sent = replay(&spaces, &[&["--to-b", B], &session[..], &faults].concat());
        let got = summary(listener);
        for line in 0..2 {
            let (sent, got) = (&sent["lines"][line], &got["lines"][line]);
            assert_eq!(count(got, "datagram_count"), count(sent, "datagram_count"), "{mode}");
            assert_eq!(count(got, "dropped_datagram_count"), 0, "{mode}: {got}");
            assert_eq!(count(got, "unstamped_count"), 0, "{mode}: {got}");
            assert!(count(&got["kernel_to_app"], "p50_ns") > 0, "{mode}: {got}");
        }
        assert!(count(&sent["lines"][0], "dropped_count") > 50, "{sent}");
        assert_eq!(got["digests"], sent["union"]["digests"], "{mode}");
        // Nothing stays on the interface.
        let link =
            succeed(crate::common::ip(&["-n", &spaces.far, "-details", "link", "show", "vb"]));
        assert!(!link.contains("xdp"), "{link}");
    }
}

#[test]
fn invalid_arguments_are_refused_with_a_remedy() {
    let spaces = Spaces::new();
    let listen =
        |args: &[&str], code| fail(spaces.far(&[&["feed", "listen"], args].concat()), code);
    let said = listen(&["10.77.0.1:9", "-i", "vb"], 2);
    assert!(said.contains("10.77.0.1 is not a multicast group"), "{said}");
    let said = listen(&[A, "-i", "nowhere0"], 2);
    assert!(said.contains("nowhere0"), "{said}");
    let said = listen(&[A], 2);
    assert!(said.contains("-i"), "{said}");
    let said = listen(&[A, "--group-b", A, "-i", "vb"], 2);
    assert!(said.contains("equals the first group"), "{said}");
    let said = listen(&[A, "-i", "vb", "--recover", "10.77.0.1:1"], 2);
    assert!(said.contains("--mold"), "{said}");
    let said = listen(&[A, "-i", "vb", "--stamps", "hardware"], 3);
    assert!(said.contains("vb takes no hardware receive time stamps"), "{said}");
    let recorded = ["feed", "record", A, "-i", "vb", "--stamps", "hardware", "/dev/null"];
    let said = fail(spaces.far(&recorded), 3);
    assert!(said.contains("--stamps software"), "{said}");
    let said = listen(&[A, "-i", "vb", "--engine", "xdp", "--busy-poll"], 2);
    assert!(said.contains("--busy-poll is an option of UDP sockets"), "{said}");
    let said = listen(&[A, "-i", "vb", "--mode", "native"], 2);
    assert!(said.contains("--engine xdp"), "{said}");
    let said = listen(&[A, "-i", "vb", "--source", "239.1.1.1"], 1);
    assert!(said.contains("--source"), "{said}");
    for to in ["192.0.2.1:9", "10.77.0.255:9", "255.255.255.255:9"] {
        let said = fail(spaces.near(&["feed", "replay", "--synthetic", "--to", to, "-i", "va"]), 2);
        assert!(said.contains(to) && said.contains("va"), "{said}");
    }
    // Without an interface, nothing is sent.
    let said = fail(spaces.near(&["feed", "replay", "--synthetic", "--to", A]), 2);
    assert!(said.contains("--interface"), "{said}");
    let silent = ["feed", "listen", A, "-i", "vb", "--time", "1s"];
    let output = run(spaces.far(&silent));
    let said = crate::common::all_text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("nothing arrived from 239.77.1.1:10000 on vb"), "{said}");
    succeed(crate::common::ip(&["-n", &spaces.far, "link", "set", "vb", "down"]));
    let said = listen(&[A, "-i", "vb"], 1);
    assert!(said.contains("vb is down") && said.contains("ip link set vb up"), "{said}");
}
