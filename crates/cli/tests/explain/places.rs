//! Drops with their places: the program, the rule, the queue, and what only counters see.

use std::net::TcpStream;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use sys::netns::Netns;

use crate::common::{
    FAR_IP, LONG, Running, Spaces, enter, ip, is_installed, succeed, udp_in, until, wirepath,
};
use crate::{drops, ended, explain, receiver, send};

fn netns(name: &str) -> Netns {
    Netns::open(format!("/run/netns/{name}")).expect("a namespace")
}

/// Places of a reason.
fn places<'a>(doc: &'a Value, reason: &str) -> Vec<&'a Value> {
    let rows = doc["drops"].as_array().expect("a list").iter();
    let own = rows.filter(|row| row["reason"] == reason);
    own.flat_map(|row| row["places"].as_array().expect("a list")).collect()
}

fn place<'a>(doc: &'a Value, reason: &str, port: u16) -> &'a Value {
    let found = places(doc, reason).into_iter().find(|place| place["port"] == port);
    found.unwrap_or_else(|| panic!("no {reason} of port {port}: {doc:#}"))
}

fn text<'a>(place: &'a Value, field: &str) -> &'a str {
    place[field].as_str().unwrap_or_else(|| panic!("no {field}: {place:#}"))
}

#[test]
fn closed_ports_and_full_sockets_are_named_with_address_program_and_remedy() {
    let _lab = testkit::alone();
    let spaces = Spaces::new();
    let full = receiver(&spaces, 9996, &["--rcvbuf", "8192"]);
    full.signal("STOP");
    let owner = format!("wirepath (process {})", full.pid());
    let elsewhere = udp_in(&netns(&spaces.far), ("127.0.0.1", 9998));
    let explain = explain(&spaces, &["--samples", "0"]);
    for (port, count) in [("9996", "500"), ("9998", "40"), ("9999", "30")] {
        send(&spaces, port, count, &[]);
    }
    let doc = ended(explain);
    full.signal("CONT");
    full.end_by("INT", LONG);

    let closed = place(&doc, "NO_SOCKET", 9999);
    assert_eq!(closed["count"], 30, "{closed:#}");
    assert_eq!(text(closed, "sentence"), format!("nothing listens on UDP port 9999 of {FAR_IP}"));
    assert_eq!((text(closed, "netns"), text(closed, "interface")), (spaces.far.as_str(), "vb"));
    assert!(text(closed, "remedy").contains("9999"), "{closed:#}");
    let other = text(place(&doc, "NO_SOCKET", 9998), "sentence").to_owned();
    let own = format!("process {}", std::process::id());
    assert!(other.contains("listens on 127.0.0.1:9998 only") && other.contains(&own), "{other}");
    drop(elsewhere);

    let full_socket = place(&doc, "SOCKET_RCVBUFF", 9996);
    let sentence = text(full_socket, "sentence");
    assert!(sentence.contains("UDP port 9996") && sentence.contains(&owner), "{sentence}");
    assert_eq!(text(full_socket, "owner"), owner);
    assert!(text(full_socket, "remedy").contains("SO_RCVBUF"), "{full_socket:#}");
    // The greatest loss is the answer.
    assert!(text(&doc, "headline").contains("UDP port 9996"), "{doc:#}");
}

#[test]
fn the_rule_of_the_firewall_that_drops_is_named_at_each_hook() {
    let _lab = testkit::alone();
    if !is_installed("nft") {
        return;
    }
    let spaces = Spaces::new();
    let far = "table inet f {\nchain in {\ntype filter hook input priority 0\n\
               ct state established accept\nudp dport 9001 drop\n\
               udp dport { 9002, 9003 } jump own\n}\nchain own {\nreject\n}\n}\n";
    succeed(enter(&spaces.far, &["nft", far]));
    let near = "table ip g {\nchain out {\ntype filter hook output priority 0; policy drop\n\
                udp dport != 9004 accept\n}\n}\n";
    succeed(enter(&spaces.near, &["nft", near]));
    let explain = explain(&spaces, &["--samples", "0"]);
    for (port, count) in [("9001", "20"), ("9002", "30"), ("9003", "10")] {
        send(&spaces, port, count, &[]);
    }
    let sender = udp_in(&netns(&spaces.near), ("0.0.0.0", 0));
    for _ in 0..15 {
        // The sender is told of its own firewall's refusal.
        assert!(sender.send_to(&[0], (FAR_IP, 9004)).is_err());
    }
    let doc = ended(explain);
    assert_eq!(drops(&doc, "NETFILTER_DROP"), 75, "{doc:#}");
    let by_rule = |chain: &str| {
        let mut own = places(&doc, "NETFILTER_DROP").into_iter();
        let found = own.find(|place| place["rules"][0]["chain"] == chain);
        found.unwrap_or_else(|| panic!("no drop by {chain}: {doc:#}"))
    };
    for (space, family, table, chain, count) in [
        (&spaces.far, "inet", "f", "in", 20),
        (&spaces.far, "inet", "f", "own", 40),
        (&spaces.near, "ip", "g", "out", 15),
    ] {
        let place = by_rule(chain);
        assert_eq!((&place["count"], text(place, "netns")), (&count.into(), space.as_str()));
        assert_eq!(place["rules"].as_array().map(Vec::len), Some(1), "{place:#}");
        let rule = &place["rules"][0];
        assert_eq!((&rule["family"], &rule["table"]), (&family.into(), &table.into()));
        let sentence = text(place, "sentence");
        match rule["handle"].as_u64() {
            None => assert!(chain == "out" && sentence.contains("policy"), "{sentence}"),
            Some(handle) => {
                let listed =
                    succeed(enter(space, &["nft", "-a", "list", "chain", family, table, chain]));
                let line = listed.lines().find(|line| line.ends_with(&format!("handle {handle}")));
                let verdict = if chain == "own" { "reject" } else { "udp dport 9001 drop" };
                assert!(line.is_some_and(|line| line.contains(verdict)), "{handle}: {listed}");
                let delete = format!("nft delete rule {family} {table} {chain} handle {handle}");
                assert!(text(place, "remedy").contains(&delete), "{place:#}");
            }
        }
    }
}

#[test]
fn a_scan_of_ports_is_counted_whole_in_few_rows() {
    let _lab = testkit::alone();
    let spaces = Spaces::new();
    let sender = udp_in(&netns(&spaces.near), ("0.0.0.0", 0));
    sender.send_to(&[0], (FAR_IP, 9999)).expect("a route");
    let explain = explain(&spaces, &["--samples", "0"]);
    let scan = 20_000..23_000;
    for port in scan.clone() {
        // Refused ports come back as errors of later calls.
        while sender.send_to(&[0], (FAR_IP, port)).is_err() {}
        if port % 50 == 0 {
            thread::sleep(Duration::from_millis(5));
        }
    }
    let doc = ended(explain);
    let seen = drops(&doc, "NO_SOCKET") + drops(&doc, "CPU_BACKLOG");
    assert_eq!(seen, scan.len() as u64, "{doc:#}");
    let listed = places(&doc, "NO_SOCKET");
    assert!(!listed.is_empty() && listed.len() <= 8, "{doc:#}");
    // The row for all ports has the most.
    assert!(text(listed[0], "sentence").contains("many"), "{doc:#}");
    assert!(!doc["missing"].to_string().contains("too many kinds"), "{doc:#}");
}

#[test]
fn refused_connections_that_are_no_packets_are_counted_beside_the_drops() {
    let _lab = testkit::alone();
    let spaces = Spaces::new();
    let server = "import socket, time\ns = socket.socket()\ns.bind(('0.0.0.0', 8080))\ns.listen(1)\n\
                  print('ready', flush=True)\ntime.sleep(600)";
    let mut command = enter(&spaces.far, &["python3", "-c", server]);
    command.stdin(Stdio::null());
    let server = Running::start(command);
    assert!(until(LONG, || server.stdout().contains("ready")), "{}", server.stderr());
    let explain = explain(&spaces, &["--samples", "0"]);
    let at = format!("{FAR_IP}:8080").parse().expect("an address");
    let attempts = 40;
    for _ in 0..attempts {
        let connect = || TcpStream::connect_timeout(&at, Duration::from_millis(20));
        // Those that are accepted stay in the queue.
        if let Ok(Ok(stream)) = netns(&spaces.near).run(connect) {
            std::mem::forget(stream);
        }
    }
    let doc = ended(explain);
    let rows = doc["counters"].as_array().expect("a list").iter();
    let row = rows.clone().find(|row| row["reason"] == "TCP_LISTEN_OVERFLOW");
    let row = row.unwrap_or_else(|| panic!("no row: {doc:#}"));
    let refused = row["grown"]["TcpExtListenOverflows"].as_u64().expect("a count");
    assert!(refused >= attempts - 2, "{row:#}");
    assert!(row["count"].as_u64() > row["seen_count"].as_u64(), "{row:#}");
    let sentence = text(row, "sentence");
    assert!(sentence.contains("TCP port 8080") && sentence.contains("python3"), "{sentence}");
    server.end_by("KILL", LONG);
}

#[test]
fn a_packet_whose_source_is_elsewhere_is_named_with_the_route_that_would_be_used() {
    let _lab = testkit::alone();
    let spaces = Spaces::new();
    let (near, far) = (spaces.near.as_str(), spaces.far.as_str());
    succeed(ip(&["-n", near, "address", "add", "10.88.0.1/32", "dev", "va"]));
    succeed(ip(&["-n", far, "route", "add", "10.88.0.0/24", "dev", "lo"]));
    for of in ["all", "vb"] {
        let strict = format!("net.ipv4.conf.{of}.rp_filter=1");
        succeed(enter(far, &["sysctl", "-qw", &strict]));
    }
    // A question for the address would come from that source too, and would be dropped.
    let link = spaces.far_link();
    let mac = link.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next());
    let known = ["neigh", "replace", FAR_IP, "lladdr", mac.expect("an address"), "dev", "va"];
    succeed(ip(&[&["-n", near], &known[..]].concat()));
    let sender = udp_in(&netns(near), ("10.88.0.1", 0));
    let explain = explain(&spaces, &["--samples", "0"]);
    for _ in 0..50 {
        sender.send_to(&[0], (FAR_IP, 9000)).expect("a route");
    }
    let doc = ended(explain);
    assert_eq!(drops(&doc, "IP_RPFILTER"), 50, "{doc:#}");
    let place = places(&doc, "IP_RPFILTER")[0];
    let sentence = text(place, "sentence");
    for part in ["10.88.0.1", "vb", "leads to lo"] {
        assert!(sentence.contains(part), "{part}: {sentence}");
    }
    assert!(text(place, "remedy").contains("net.ipv4.conf.vb.rp_filter=2"), "{place:#}");
    assert!(text(place, "undo").contains("rp_filter=1"), "{place:#}");
}

#[test]
fn the_text_begins_with_the_answer_and_each_drop_has_a_remedy() {
    let _lab = testkit::alone();
    let spaces = Spaces::new();
    let args =
        ["explain", "--duty", "100", "--time", "60s", "--samples", "0", "--netns", &spaces.far];
    let mut explain = Running::start(wirepath(&args));
    explain.await_stderr("tracing packets");
    send(&spaces, "9999", "50", &[]);
    let output = explain.end_by("INT", LONG);
    let text = String::from_utf8(output.stdout).expect("text");
    let first = text.lines().next().unwrap_or_default();
    let answer =
        format!("50 of 50 packets are lost: nothing listens on UDP port 9999 of {FAR_IP}.");
    assert!(first == answer || first.contains("nothing listens on UDP port 9999"), "{text}");
    assert!(
        text.lines().any(|line| line.trim_start().starts_with("do: start the program")),
        "{text}"
    );
}

#[test]
fn a_cause_is_named_when_it_begins_and_when_it_ends() {
    let _lab = testkit::alone();
    let spaces = Spaces::new();
    let args =
        ["explain", "--watch", "--json", "--duty", "100", "--time", "300s", "--samples", "0"];
    let mut watch = Running::start(wirepath(&[&args[..], &["--netns", &spaces.far]].concat()));
    watch.await_stderr("tracing packets");
    let events = |watch: &Running, event: &str| -> Vec<Value> {
        let lines = watch.stdout();
        let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line"));
        all.filter(|one| one["event"] == event && one["sentence"].to_string().contains("9999"))
            .collect()
    };
    let sender = udp_in(&netns(&spaces.near), ("0.0.0.0", 0));
    assert!(
        until(2 * LONG, || {
            let _refused = sender.send_to(&[0], (FAR_IP, 9999));
            !events(&watch, "begin").is_empty()
        }),
        "{}",
        watch.stdout()
    );
    let begun = &events(&watch, "begin")[0];
    assert_eq!(text(begun, "netns"), spaces.far);
    assert!(begun["per_second"].as_f64() > Some(0.0), "{begun:#}");
    assert!(until(2 * LONG, || !events(&watch, "end").is_empty()), "{}", watch.stdout());
    let ended = &events(&watch, "end")[0];
    assert_eq!(ended["cause"], begun["cause"], "{ended:#}");
    assert!(
        ended["count"].as_u64() > Some(0) && ended["lasted_ns"].as_u64() > Some(0),
        "{ended:#}"
    );
    let output = watch.end_by("INT", LONG);
    assert!(output.status.success(), "{output:?}");
}
