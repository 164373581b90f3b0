//! `wirepath tunnel run` against the kernel's VXLAN device: both directions, every engine, reload
//! under traffic, a clean end.

#[path = "../../../crates/cli/tests/common/mod.rs"]
mod common;
mod drops;
mod keepalive;
mod local;
mod machine;
mod path;
mod refusals;
mod row;
mod stations;

use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use common::{
    Data, LONG, Running, fail, finish_frames, ip, is_installed, succeed, udp_in, until, wirepath,
};
use host::netns::Netns;
use row::{
    BEHIND_IP, Capture, PLAIN_IP, PORT, Row, config, config_of, ended, last_of, started,
    tcp_stream, udp_echo,
};
use serde_json::Value;

#[test]
fn sockets_on_both_sides_of_our_tunnel_and_the_kernel_s_reach_each_other() {
    if !is_installed("ip") {
        return;
    }
    for engine in ["in-kernel-xdp", "xdp", "packet", "tap"] {
        for mtu in [1500, 9000] {
            let row = Row::new(mtu);
            let data = Data::new();
            let (running, plain, behind) = started(&row, &data, engine);
            let capture = Capture::start(&row, &data);
            udp_echo(&plain, (&behind, BEHIND_IP), 50, 64);
            // As large as the MTU allows: with the headers of IP and UDP.
            let whole = mtu as usize - 28;
            udp_echo(&behind, (&plain, PLAIN_IP), 50, whole);
            udp_echo(&plain, (&behind, BEHIND_IP), 50, whole);
            tcp_stream(&plain, (&behind, BEHIND_IP), 1_500_000);
            tcp_stream(&behind, (&plain, PLAIN_IP), 1_500_000);
            capture.check();
            let last = ended(running, engine);
            for way in ["fast_into_tunnels", "fast_out_of_tunnels"] {
                // Of the 50 small datagrams each way, all but those before the stations were known. Frames
                // of 9000 bytes have several buffers and take the slow path.
                let fast = last["frames"][way].as_u64();
                assert_eq!(fast > Some(40), engine == "in-kernel-xdp", "{way}: {last}");
            }
            let link = succeed(ip(&["-n", &row.names[1], "-d", "link", "show"]));
            assert!(!link.contains("xdp") && !link.contains("lan0"), "{engine}: {link}");
        }
    }
}

#[test]
fn iperf3_runs_through_every_engine_in_both_directions() {
    if !is_installed("ip") || !is_installed("iperf3") {
        return;
    }
    for engine in ["xdp", "packet", "tap"] {
        for mtu in [1500, 9000] {
            let row = Row::new(mtu);
            let data = Data::new();
            let (running, ..) = started(&row, &data, engine);
            let plain = &row.names[if engine == "tap" { 1 } else { 0 }];
            let server = ["iperf3", "--server", "--forceflush"];
            let server = Running::start(common::enter(&row.names[2], &server));
            let of_udp = (mtu - 28).to_string();
            let udp = ["--udp", "--bitrate", "50M", "--length", &of_udp];
            for carrier in [&[][..], &udp] {
                for direction in [&[][..], &["--reverse"]] {
                    let args = ["iperf3", "--client", BEHIND_IP, "--time", "1", "--json"];
                    let args = [&args[..], carrier, direction].concat();
                    let said = iperf3(plain, &args);
                    let got = &said["end"]["sum_received"]["bytes"];
                    let got = got.as_u64().or(said["end"]["sum"]["bytes"].as_u64());
                    assert!(got > Some(1_000_000), "{engine} {mtu} {args:?}: {said}");
                }
            }
            let _ = server.end_by("TERM", LONG);
            let last = ended(running, engine);
            // It ran for seconds, and a kernel answers no keepalive.
            let kept = &last["keepalive"]["b"];
            assert!(kept["sent"].as_u64() > Some(9) && kept["answered"] == 0, "{engine}: {last}");
            assert_eq!(kept["state"], "silent", "{engine}: {last}");
            // Some of its packets were as large as can be: TCP's segments follow the MTU.
            assert_eq!(last["pool"]["frames"], if mtu == 9000 { 8192 } else { 16_384 }, "{last}");
        }
    }
}

/// Report of an iperf3 client; retried while the server does not listen yet or ends the last test.
fn iperf3(space: &str, args: &[&str]) -> Value {
    let mut said = Value::Null;
    until(LONG, || {
        let output = common::run(common::enter(space, args));
        said = serde_json::from_slice(&output.stdout).unwrap_or_default();
        said["error"].is_null() && !said["end"].is_null()
    });
    said
}

#[test]
fn frames_that_do_not_fit_are_dropped_and_counted_by_reason() {
    if !is_installed("ip") {
        return;
    }
    for engine in ["xdp", "packet"] {
        let row = Row::new(9000);
        let data = Data::new();
        let file = data.file("tunnel.toml");
        // The hosts send up to 9000 bytes; the tunnel is told of less, in either direction.
        let small = config_of(engine, "pa", 4000, "");
        fs::write(&file, &small).expect("a file");
        let running = row.start(&["--json"], &file);
        let (plain, behind) = (row.space(&row.names[0]), row.space(&row.names[2]));
        let dropped_before = testkit::backlog_drop_count();
        udp_echo(&plain, (&behind, BEHIND_IP), 5, 3972);
        // Up to what a frame of the pool holds a reason is given; beyond, it is only counted.
        let sent: [(_, _, &[usize]); 2] =
            [(&plain, BEHIND_IP, &[4500, 8972]), (&behind, PLAIN_IP, &[4500, 8972])];
        for (from, to, sizes) in sent {
            from.run(|| {
                let socket = UdpSocket::bind(("0.0.0.0", 0)).expect("a socket");
                // IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE: whatever MTU it is told, it sends whole.
                sys::socket::set_int(socket.as_fd(), 0, 10, 3).expect("a socket");
                for size in sizes {
                    for _ in 0..20 {
                        socket.send_to(&vec![0; *size], (to, PORT)).expect("it is sent");
                    }
                }
            })
            .expect("the namespace is there");
        }
        udp_echo(&plain, (&behind, BEHIND_IP), 5, 3972);
        let output = running.end_by("TERM", LONG);
        let last = last_of(&output.stdout);
        // A flood of another program has the kernel drop some on their way.
        let dropped = testkit::backlog_drop_count() - dropped_before;
        let has = |count: &Value, sent: u64| {
            count.as_u64().is_some_and(|count| count <= sent && count + dropped >= sent)
        };
        assert!(has(&last["frames"]["too_big"], 20), "{engine}: {last}");
        assert!(last["frames"]["too_big_answered_v4"].as_u64() > Some(0), "{engine}: {last}");
        assert!(has(&last["frames"]["inner_too_big"], 20), "{engine}: {last}");
        assert!(has(&last["pool"]["oversized"], 40), "{engine}: {last}");
        assert_eq!(last["pool"]["misnamed"], 0, "{engine}: {last}");
    }
}

#[test]
fn reload_under_traffic_loses_nothing_and_a_wrong_file_changes_nothing() {
    if !is_installed("ip") {
        return;
    }
    const COUNT: u32 = 3000;
    let row = Row::new(1500);
    let data = Data::new();
    let file = data.file("tunnel.toml");
    let plain_config = config("xdp", "pa", "");
    // Other queues, another tunnel without a remote end, a static address.
    let more = "[[tunnel]]\nname = \"c\"\ncarrier = \"vxlan\"\nvni = 7\nremote = \"10.99.0.2\"\n\
                vlan = 9\n\
                [[static]]\nmac = \"02:00:00:00:00:0c\"\ntunnel = \"c\"\n\
                [[qos.class]]\ndscp = [46]\n[[qos.class]]\n";
    let rich_config = config("xdp", "pa", more);
    fs::write(&file, &plain_config).expect("a file");
    let mut running = row.start(&["--json"], &file);
    let (plain, behind) = (row.space(&row.names[0]), row.space(&row.names[2]));
    udp_echo(&plain, (&behind, BEHIND_IP), 5, 64);
    let got = AtomicU32::new(0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            behind.enter().expect("the namespace is there");
            let socket = UdpSocket::bind((BEHIND_IP, PORT)).expect("the address is there");
            socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
            let mut bytes = [0; 64];
            while !stop.load(Ordering::Relaxed) {
                match socket.recv(&mut bytes) {
                    Ok(_) => {
                        got.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
                }
            }
        });
        let sender = scope.spawn(|| {
            plain.enter().expect("the namespace is there");
            let socket = UdpSocket::bind(("0.0.0.0", 0)).expect("a socket");
            socket.connect((BEHIND_IP, PORT)).expect("a route");
            thread::sleep(Duration::from_millis(100));
            for n in 0..COUNT {
                socket.send(&[0; 64]).expect("a listener");
                if n % 4 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let mut reloads = 0;
        while !sender.is_finished() {
            let text = if reloads % 2 == 0 { &rich_config } else { &plain_config };
            fs::write(&file, text).expect("a file");
            running.signal("HUP");
            reloads += 1;
            let told = until(LONG, || running.stderr().matches("reloaded: ").count() >= reloads);
            assert!(told, "{}", running.stderr());
        }
        assert!(reloads > 3, "{reloads}");
        until(LONG, || got.load(Ordering::Relaxed) >= COUNT);
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(got.load(Ordering::Relaxed), COUNT, "{}", running.stderr());
    fs::write(&file, plain_config.replace("vni = 42", "vni = 99999999")).expect("a file");
    running.signal("HUP");
    running.await_stderr("not reloaded: ");
    fs::write(&file, plain_config.replace("workers = 2", "workers = 1")).expect("a file");
    running.signal("HUP");
    running.await_stderr("workers can change only at a start");
    udp_echo(&plain, (&behind, BEHIND_IP), 5, 64);
    let output = running.end_by("TERM", LONG);
    assert!(output.status.success(), "{}", common::all_text(&output));
    assert_eq!(last_of(&output.stdout)["frames"]["into_tunnels_tail_drop"], 0);
}

/// A raw socket of IP protocol 47, GRE.
fn gre_in(space: &Netns) -> UdpSocket {
    const AF_INET: i32 = 2;
    const SOCK_RAW: i32 = 3;
    let opened = space.run(|| sys::socket::open(AF_INET, SOCK_RAW, 47));
    UdpSocket::from(opened.expect("the namespace is there").expect("CAP_NET_RAW"))
}

#[test]
fn traffic_that_is_no_configured_tunnel_s_reaches_the_host_while_it_runs() {
    if !is_installed("ip") {
        return;
    }
    let row = Row::new(1500);
    let data = Data::new();
    let [_, ours, theirs] = &row.names;
    succeed(ip(&["-n", ours, "address", "add", "10.99.0.9/24", "dev", "ua"]));
    let (running, plain, behind) = started(&row, &data, "xdp");
    let (host, other) = (row.space(ours), row.space(theirs));
    // The tunnel's own frame, as far as a filter by port can tell.
    let of_tunnel = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &[0; 64]].concat();
    let sender = udp_in(&other, ("10.99.0.2", 0));
    for (what, at, payload) in [
        ("VXLAN's port of another address", ("10.99.0.9", 4789), &of_tunnel[..]),
        ("like DNS", ("10.99.0.1", 53), &[0; 40]),
    ] {
        let receiver = udp_in(&host, at);
        assert_eq!(common::arrived_of_50(&sender, &receiver, at, payload), 50, "{what}");
    }
    // Ethernet over GRE, and IPv4 over GRE: no such tunnel is configured.
    let (from, to) = (gre_in(&other), gre_in(&host));
    for kind in [[0x65, 0x58], [0x08, 0x00]] {
        let packet = [&[0, 0][..], &kind, &[0; 64]].concat();
        let arrived = common::arrived_of_50(&from, &to, ("10.99.0.1", 0), &packet);
        assert_eq!(arrived, 50, "GRE of type {kind:?}");
    }
    // Another VNI between the same hosts, of the kernel's device at both ends.
    for (space, link, local, remote, inner) in [
        (ours, "ua", "10.99.0.1", "10.99.0.2", "10.43.0.1/24"),
        (theirs, "tb", "10.99.0.2", "10.99.0.1", "10.43.0.2/24"),
    ] {
        let mut args = vec!["-n", space, "link", "add", "vx43", "type", "vxlan", "id", "43"];
        args.extend(["local", local, "remote", remote, "dstport", "4789", "dev", link]);
        succeed(ip(&args));
        succeed(ip(&["-n", space, "address", "add", inner, "dev", "vx43"]));
        succeed(ip(&["-n", space, "link", "set", "vx43", "up"]));
    }
    let ends = [(&host, "10.43.0.1"), (&other, "10.43.0.2")];
    for (from, to) in [(ends[0], ends[1]), (ends[1], ends[0])] {
        let (sender, at) = (udp_in(from.0, (from.1, 0)), (to.1, PORT));
        let receiver = udp_in(to.0, at);
        let arrived = common::arrived_of_50(&sender, &receiver, at, b"another network");
        assert_eq!(arrived, 50, "from {}", from.1);
    }
    // And the tunnel's own frames are still taken.
    udp_echo(&plain, (&behind, BEHIND_IP), 400, 64);
    ended(running, "xdp");
}

#[test]
fn engine_is_chosen_and_told_and_a_veth_that_takes_no_frames_is_left_to_af_xdp() {
    if !is_installed("ip") {
        return;
    }
    let row = Row::new(1500);
    let data = Data::new();
    let file = data.file("tunnel.toml");
    fs::write(&file, config("in-kernel-xdp", "pa", "")).expect("a file");
    let (plain, behind) = (row.space(&row.names[0]), row.space(&row.names[2]));
    row.set_gro(&row.names[2], "tb", false);
    let mut running = row.start(&["--json"], &file);
    running.await_stderr("engine in-kernel: ");
    running.await_stderr("pa is a veth: ");
    udp_echo(&plain, (&behind, BEHIND_IP), 400, 64);
    running.await_stderr("ua takes no frames from XDP programs");
    // However it ends, no program stays.
    let output = running.end_by("KILL", LONG);
    assert!(!output.status.success());
    let link = succeed(ip(&["-n", &row.names[1], "-d", "link", "show"]));
    assert!(!link.contains("xdp"), "{link}");
    row.set_gro(&row.names[2], "tb", true);
    let running = row.start(&["--json"], &file);
    udp_echo(&plain, (&behind, BEHIND_IP), 400, 64);
    let last = ended(running, "in-kernel-xdp");
    assert!(last["frames"]["fast_into_tunnels"].as_u64() > Some(100), "{last}");
}
