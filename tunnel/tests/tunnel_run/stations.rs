//! A site that forges addresses, and the others.

use sys::packet::PacketTx;

use super::*;

/// Sends a frame from each of many addresses into the tunnel, from its far end.
fn forge(row: &Row, count: u32) {
    let space = row.space(&row.names[2]);
    let opened = space.run(|| {
        let index = host::net::link_named("vx0").expect("it was made").index;
        PacketTx::open_dropping(index, 256, 1024)
    });
    let mut sender = opened.expect("the namespace is there").expect("CAP_NET_RAW");
    for n in 0..count {
        let [a, b, c, d] = n.to_be_bytes();
        let frame = [&[0xff; 6][..], &[2, 0x66, a, b, c, d], &[0x88, 0xb5], &[0; 46]].concat();
        until(LONG, || {
            sender.reap();
            sender.post(1, frame.len(), |slot| slot.copy_from_slice(&frame)) == 1
        });
        if n % 32 == 31 {
            sender.kick().expect("the link is up");
            // As fast as a slow path can learn them.
            thread::sleep(Duration::from_millis(1));
        }
    }
    sender.kick().expect("the link is up");
}

#[test]
fn site_that_forges_addresses_takes_the_fast_path_from_no_new_station_of_another() {
    if !is_installed("ip") {
        return;
    }
    for engine in ["in-kernel", "in-kernel-xdp"] {
        let row = Row::new(1500);
        let data = Data::new();
        let file = data.file("tunnel.toml");
        fs::write(&file, config(engine, "pa", "[fdb]\nentries = 64\n")).expect("a file");
        let running = row.start(&["--json"], &file);
        let (plain, behind) = (row.space(&row.names[0]), row.space(&row.names[2]));
        udp_echo(&plain, (&behind, BEHIND_IP), 5, 64);
        forge(&row, 3_000);
        // A new station at the port.
        succeed(ip(&["-n", &row.names[0], "link", "set", "hp", "address", "02:00:00:00:77:01"]));
        udp_echo(&plain, (&behind, BEHIND_IP), 400, 64);
        let output = running.end_by("TERM", LONG);
        let last = last_of(&output.stdout);
        let count = |name: &str| last["frames"][name].as_u64().expect("a counter");
        // Its frames are forwarded by the programs, except for the first.
        assert!(count("fast_into_tunnels") > 300, "{engine}: {last}");
        assert!(count("unlearnt") > 1000, "the forged ones beyond the share: {engine}: {last}");
        assert!(last["addresses"].as_u64() <= Some(64), "{engine}: {last}");
    }
}
