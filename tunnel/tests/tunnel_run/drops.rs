//! A frame that is lost is counted with its reason: at the end, by any engine.

use sys::packet::PacketTx;

use super::*;

/// Sends broadcast frames from the plain host.
fn flood(from: &Netns, count: u32) {
    let opened = from.run(|| {
        let index = host::net::link_named("hp").expect("it was made").index;
        PacketTx::open_dropping(index, 2048, 1024)
    });
    let mut sender = opened.expect("the namespace is there").expect("CAP_NET_RAW");
    let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9], &[0x88, 0xb5], &[0; 1000]].concat();
    let mut sent = 0;
    while sent < count {
        sender.reap();
        sent += sender.post(1, frame.len(), |slot| slot.copy_from_slice(&frame)) as u32;
        if sent % 64 == 0 || sender.room() == 0 {
            sender.kick().expect("the link is up");
        }
    }
    until(LONG, || {
        sender.kick().expect("the link is up");
        sender.reap();
        sender.in_flight() == 0
    });
}

/// Drops at the end of a run whose workers do not run while frames arrive.
fn drops_of_a_stopped(engine: &str, count: u32) -> Value {
    let row = Row::new(1500);
    let data = Data::new();
    let (running, plain, behind) = started(&row, &data, engine);
    udp_echo(&plain, (&behind, BEHIND_IP), 2, 64);
    running.signal("STOP");
    flood(&plain, count);
    running.signal("CONT");
    udp_echo(&plain, (&behind, BEHIND_IP), 2, 64);
    let output = running.end_by("TERM", LONG);
    last_of(&output.stdout)["drops"].clone()
}

#[test]
fn frames_that_find_no_room_are_counted_with_the_place() {
    if !is_installed("ip") {
        return;
    }
    // A TAP device as the port holds its sender back instead.
    for (engine, count, reasons) in [
        ("in-kernel", 4_000, &["slow_into_tunnels_full"][..]),
        ("in-kernel-xdp", 16_000, &["port_no_buffer", "port_ring_full"]),
        ("xdp", 16_000, &["port_no_buffer", "port_ring_full"]),
        ("packet", 16_000, &["port_socket_full"]),
    ] {
        let drops = drops_of_a_stopped(engine, count);
        assert!(
            reasons.iter().any(|reason| drops[*reason].as_u64() > Some(0)),
            "{engine}: {drops}"
        );
    }
}

#[test]
fn frames_that_the_kernel_does_not_send_are_named_in_the_last_lines() {
    if !is_installed("ip") {
        return;
    }
    for (engine, is_dead) in [("xdp", true), ("packet", true), ("in-kernel", false)] {
        let row = Row::new(1500);
        let data = Data::new();
        let file = data.file("tunnel.toml");
        fs::write(&file, config(engine, "pa", "")).expect("a file");
        let running = row.start(&[], &file);
        let (plain, behind) = (row.space(&row.names[0]), row.space(&row.names[2]));
        udp_echo(&plain, (&behind, BEHIND_IP), 5, 64);
        if is_dead {
            succeed(ip(&["-n", &row.names[2], "link", "set", "tb", "down"]));
        } else {
            let shaper = "tc qdisc add dev ua root tbf rate 8kbit burst 2000 limit 3000";
            let words: Vec<_> = shaper.split_whitespace().collect();
            succeed(common::enter(&row.names[1], &words));
        }
        flood(&plain, 500);
        thread::sleep(Duration::from_millis(300));
        let output = running.end_by("TERM", LONG);
        let said = common::all_text(&output);
        let dropped = said.lines().find(|line| line.starts_with("dropped: ")).unwrap_or("");
        assert!(dropped.contains("underlay_tx_dropped "), "{engine}: {said}");
    }
}
