//! Sockets of this machine at the port, with every offload at its default.

use std::fs;

use host::net::{snmp_counter, snmp_table};
use sys::packet::PacketTx;

use super::*;

/// TCP segments and UDP datagrams with a wrong checksum.
fn checksum_errors(space: &Netns) -> u64 {
    let table = space.run(snmp_table).expect("the namespace is there").expect("its counters");
    let count = |protocol| snmp_counter(&table, protocol, "InCsumErrors").expect("a counter");
    count("Tcp") + count("Udp")
}

#[test]
fn sockets_with_all_offloads_are_forwarded_whole_and_after_a_kill_the_stack_has_its_frames() {
    if !is_installed("ip") {
        return;
    }
    let row = Row::with_offloads(1500);
    let data = Data::new();
    let (mut running, plain, behind) = started(&row, &data, "in-kernel");
    running.await_stderr("engine in-kernel: tcx programs at pa and ua");
    udp_echo(&plain, (&behind, BEHIND_IP), 200, 64);
    udp_echo(&behind, (&plain, PLAIN_IP), 200, 1472);
    tcp_stream(&plain, (&behind, BEHIND_IP), 4_000_000);
    tcp_stream(&behind, (&plain, PLAIN_IP), 4_000_000);
    for space in [&plain, &behind] {
        assert_eq!(checksum_errors(space), 0);
    }
    let last = ended(running, "in-kernel");
    for counter in ["fast_into_tunnels", "fast_out_of_tunnels"] {
        assert!(last["frames"][counter].as_u64() > Some(300), "{counter}: {last}");
    }
    for counter in ["fast_super_into_tunnels", "fast_super_out_of_tunnels"] {
        assert!(last["frames"][counter].as_u64() > Some(0), "{counter}: {last}");
    }

    let file = data.file("tunnel.toml");
    let running = row.start(&["--json"], &file);
    udp_echo(&plain, (&behind, BEHIND_IP), 50, 64);
    assert!(!running.end_by("KILL", LONG).status.success());
    let links = || succeed(ip(&["-n", &row.names[1], "link", "show"]));
    assert!(until(LONG, || !links().contains("wpp") && !links().contains("wpu")), "{}", links());
    // A program that stayed would take them.
    let ours = "10.88.0.3";
    succeed(ip(&["-n", &row.names[1], "address", "add", &format!("{ours}/24"), "dev", "pa"]));
    udp_echo(&plain, (&row.space(&row.names[1]), ours), 5, 64);
}

/// Pings, datagrams and streams pass both ways, whole: of a length of their own, as large as can be, and in
/// fragments.
fn exchange(row: &Row, plain: &Netns, behind: &Netns) {
    let ping = |from: &str, to: &str| {
        // Until three are answered: the first may wait for an address on a busy machine.
        let args = ["ping", "-q", "-c", "3", "-i", "0.05", "-w", "20", to];
        succeed(common::enter(from, &args));
    };
    ping(&row.names[0], BEHIND_IP);
    ping(&row.names[2], PLAIN_IP);
    for (from, to) in [(plain, (behind, BEHIND_IP)), (behind, (plain, PLAIN_IP))] {
        for (count, size_bytes) in [(100, 64), (50, 1472), (20, 4000)] {
            udp_echo(from, to, count, size_bytes);
        }
        tcp_stream(from, to, 4_000_000);
    }
    for space in [plain, behind] {
        assert_eq!(checksum_errors(space), 0);
    }
}

#[test]
fn every_engine_finishes_what_sockets_behind_a_veth_leave_to_a_device() {
    if !is_installed("ip") || !is_installed("ping") {
        return;
    }
    for engine in ["in-kernel", "in-kernel-xdp", "xdp", "packet"] {
        let row = Row::with_offloads(1500);
        let data = Data::new();
        let (running, plain, behind) = started(&row, &data, engine);
        exchange(&row, &plain, &behind);
        let last = ended(running, engine);
        let finished = last["frames"]["checksums_finished"].as_u64();
        // A packet socket says which they are, and tcx leaves them to the kernel.
        let is_xdp = ["in-kernel-xdp", "xdp"].contains(&engine);
        assert_eq!(finished > Some(1000), is_xdp, "{engine}: {last}");
    }
}

#[test]
fn virtual_machine_with_offloads_is_served_or_refused_with_the_remedy() {
    if !is_installed("ip") || !is_installed("ping") {
        return;
    }
    for engine in ["in-kernel", "packet", "xdp", "in-kernel-xdp"] {
        let row = Row::with_offloads(1500);
        let data = Data::new();
        let _machine = machine::Machine::instead_of_the_veth(&row);
        if engine.ends_with("xdp") {
            let file = data.file("tunnel.toml");
            fs::write(&file, config(engine, "pa", "")).expect("a file");
            for more in [&["--check"][..], &[]] {
                let args = [env!("CARGO_BIN_EXE_wirepath"), "tunnel", "run", &file];
                let said = fail(common::enter(&row.names[1], &[&args[..], more].concat()), 3);
                for word in ["pa is the TAP device", "\"in-kernel\"", "\"packet\"", "vnet_hdr=off"]
                {
                    assert!(said.contains(word), "{word}: {said}");
                }
            }
            continue;
        }
        let (running, plain, behind) = started(&row, &data, engine);
        exchange(&row, &plain, &behind);
        ended(running, engine);
    }
}

#[test]
fn super_frame_larger_than_the_policer_s_bucket_passes_on_credit() {
    if !is_installed("ip") {
        return;
    }
    let row = Row::with_offloads(1500);
    let data = Data::new();
    let file = data.file("tunnel.toml");
    let limit = "[qos]\npolice_kbps = 10000000\npolice_burst_bytes = 2000\n";
    fs::write(&file, config("in-kernel", "pa", limit)).expect("a file");
    let running = row.start(&["--json"], &file);
    let (plain, behind) = (row.space(&row.names[0]), row.space(&row.names[2]));
    tcp_stream(&plain, (&behind, BEHIND_IP), 300_000);
    let output = running.end_by("TERM", LONG);
    let last = last_of(&output.stdout);
    assert!(last["frames"]["fast_super_into_tunnels"].as_u64() > Some(0), "{last}");
}

#[test]
fn tag_that_the_kernel_took_off_decides_on_the_tunnel() {
    if !is_installed("ip") {
        return;
    }
    let row = Row::with_offloads(1500);
    let data = Data::new();
    let file = data.file("tunnel.toml");
    fs::write(&file, config("in-kernel", "pa", "vlan = 7\n")).expect("a file");
    let running = row.start(&["--json"], &file);
    let (plain, behind) = (row.space(&row.names[0]), row.space(&row.names[2]));
    let link = |space: &Netns, name| {
        space.run(|| host::net::link_named(name)).expect("it exists").expect("it was made")
    };
    let ifindex = link(&plain, "hp").index;
    let mac = |space, name| link(space, name).mac.expect("it is Ethernet");
    let (from, to) = (mac(&plain, "hp"), mac(&behind, "vx0"));
    let receiver = udp_in(&behind, (BEHIND_IP, PORT));
    receiver.set_nonblocking(true).expect("a socket");
    let mut sender = plain.run(|| PacketTx::open_dropping(ifindex, 256, 64));
    let sender = sender.as_mut().expect("it exists").as_mut().expect("a socket");
    let mut bytes = [0; 64];
    let arrived = until(LONG, || {
        [8, 7].into_iter().for_each(&mut |tag: u8| {
            let frame = [&to[..], &from, &[0x81, 0, 0, tag, 8, 0], &datagram(tag)].concat();
            sender.post(1, frame.len(), |slot| slot.copy_from_slice(&frame));
            sender.kick().expect("it sends");
            sender.reap();
        });
        receiver.recv(&mut bytes).is_ok()
    });
    assert!(arrived, "{}", running.stderr());
    assert_eq!(bytes[0], 7, "the other VLAN has no tunnel");
    let output = running.end_by("TERM", LONG);
    let last = last_of(&output.stdout);
    assert!(last["frames"]["other_vlan"].as_u64() > Some(0), "{last}");
}

/// An IPv4 packet with a datagram to the host behind the tunnel, whose first byte is `mark`.
fn datagram(mark: u8) -> Vec<u8> {
    let mut packet = vec![
        0x45, 0, 0, 60, 0, 1, 0, 0, 64, 17, 0, 0, 10, 88, 0, 1, 10, 88, 0, 2, 0, 9, 0, 0, 0, 40, 0,
        0, mark,
    ];
    packet[22..24].copy_from_slice(&PORT.to_be_bytes());
    packet.resize(60, 0);
    let sum = wire::checksum::finish(wire::checksum::sum(&packet[..20]));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}
