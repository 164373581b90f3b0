//! A path with a narrower link in its middle: the router's report lowers the MTU, and senders are told.

use wire::{checksum, ipv4, udp};

use super::*;

/// The far end of the tunnel behind the router, and the router's address towards us.
const FAR_IP: &str = "10.98.0.2";
const ROUTER_IP: &str = "10.99.0.2";
const NARROW: u32 = 1300;
/// Bytes of VXLAN over IPv4 in an outer packet: IP, UDP, VXLAN and the inner Ethernet header.
const OUTER_BYTES: u32 = 50;

/// A row whose last host is a router, with the kernel's VXLAN device behind a link of 1300 bytes.
struct Routed {
    row: Row,
    far: String,
}

impl Routed {
    fn new() -> Routed {
        let row = Row::new(1500);
        let far = format!("{}r", row.names[2]);
        succeed(ip(&["netns", "add", &far]));
        let routed = Routed { row, far };
        let Routed { row, far } = &routed;
        let [_, ours, router] = &row.names;
        let quiet = "net.ipv6.conf.all.disable_ipv6=1";
        succeed(common::enter(far, &["sysctl", "-qw", quiet]));
        succeed(common::enter(router, &["sysctl", "-qw", "net.ipv4.ip_forward=1"]));
        let in_space = |name: &str, line: &str| {
            let words: Vec<_> = ["-n", name].into_iter().chain(line.split_whitespace()).collect();
            succeed(ip(&words))
        };
        in_space(router, "link delete vx0");
        in_space(router, &format!("link add rf type veth peer name fr netns {far}"));
        in_space(router, "address add 10.98.0.1/24 dev rf");
        in_space(router, &format!("link set rf mtu {NARROW} up"));
        in_space(far, &format!("address add {FAR_IP}/24 dev fr"));
        in_space(far, &format!("link set fr mtu {NARROW} up"));
        in_space(far, "route add default via 10.98.0.1");
        let device =
            format!("type vxlan id 42 local {FAR_IP} remote 10.99.0.1 dstport 4789 dev fr");
        in_space(far, &format!("link add vx0 {device}"));
        in_space(far, "link set vx0 up");
        in_space(far, &format!("address add {BEHIND_IP}/24 dev vx0"));
        in_space(ours, &format!("route add 10.98.0.0/24 via {ROUTER_IP}"));
        for (name, link) in [(far, "vx0"), (far, "fr")] {
            finish_frames(&row.space(name), link);
        }
        routed
    }

    fn config(&self, engine: &str, more: &str) -> String {
        let text = config(engine, "pa", more);
        text.replace(&format!("remote = \"{ROUTER_IP}\""), &format!("remote = \"{FAR_IP}\""))
    }
}

impl Drop for Routed {
    fn drop(&mut self) {
        let _ = ip(&["netns", "delete", &self.far]).output();
    }
}

/// Runs ping in the plain host; returns its output.
fn ping(row: &Row, args: &str) -> String {
    let words: Vec<_> = ["ping"].into_iter().chain(args.split_whitespace()).collect();
    common::all_text(&common::run(common::enter(&row.names[0], &words)))
}

#[test]
fn narrow_link_on_the_path_is_learnt_by_every_engine_and_senders_are_told() {
    if !is_installed("ip") || !is_installed("ping") {
        return;
    }
    for engine in ["in-kernel", "in-kernel-xdp", "xdp", "packet"] {
        let routed = Routed::new();
        let Routed { row, far } = &routed;
        let data = Data::new();
        let file = data.file("tunnel.toml");
        fs::write(&file, routed.config(engine, "")).expect("a file");
        let mut running = row.start(&["--json"], &file);
        let (plain, behind) = (row.space(&row.names[0]), row.space(far));
        udp_echo(&plain, (&behind, BEHIND_IP), 5, 64);
        // The first is lost at the router, the next is answered by us.
        let told = until(LONG, || {
            let said = ping(row, &format!("-M do -s 1300 -c 2 -i 0.3 -W 1 {BEHIND_IP}"));
            let mtu = NARROW - OUTER_BYTES;
            said.contains(&format!("mtu = {mtu}")) || said.contains(&format!("mtu={mtu}"))
        });
        assert!(told, "{engine}: {}", running.stderr());
        running.await_stderr(&format!("{ROUTER_IP} reports that the path to {FAR_IP} carries"));
        tcp_stream(&plain, (&behind, BEHIND_IP), 500_000);
        tcp_stream(&behind, (&plain, PLAIN_IP), 500_000);
        // A reload keeps what was learnt.
        running.signal("HUP");
        running.await_stderr("reloaded: ");
        let output = running.end_by("TERM", LONG);
        let last = last_of(&output.stdout);
        assert_eq!(last["path"]["mtu"]["b"], NARROW, "{engine}: {last}");
        assert_eq!(last["path"]["lowered"], 1, "{engine}: {last}");
        assert_eq!(last["path"]["refused"], 0, "{engine}: {last}");
        assert!(last["drops"]["too_big"].as_u64() > Some(0), "{engine}: {last}");
    }
}

#[test]
fn packets_that_routers_may_fragment_are_as_large_as_before() {
    if !is_installed("ip") || !is_installed("ping") {
        return;
    }
    let routed = Routed::new();
    let Routed { row, .. } = &routed;
    let data = Data::new();
    let file = data.file("tunnel.toml");
    fs::write(&file, routed.config("in-kernel-xdp", "dont_fragment = \"inherit\"\n"))
        .expect("a file");
    let mut running = row.start(&["--json"], &file);
    let told = until(LONG, || {
        ping(row, &format!("-M do -s 1400 -c 2 -i 0.3 -W 1 {BEHIND_IP}")).contains("mtu")
    });
    assert!(told, "{}", running.stderr());
    running.await_stderr("reports that the path");
    // Another sender's packet, without "don't fragment": the router cuts it, the kernel's device joins it.
    let whole = ping(row, &format!("-M dont -s 1400 -c 3 -i 0.2 -W 5 {BEHIND_IP}"));
    assert!(whole.contains(" 3 received") || whole.contains(" 0% packet loss"), "{whole}");
    running.end_by("TERM", LONG);
}

/// "Fragmentation needed" about a packet of the tunnel.
fn report(mtu: u16, packet_bytes: u16, vni: u8) -> Vec<u8> {
    let mut quoted = vec![0; 20 + 16];
    quoted[0] = 0x45;
    quoted[ipv4::TOTAL_OFFSET..][..2].copy_from_slice(&packet_bytes.to_be_bytes());
    quoted[ipv4::FRAGMENT_OFFSET..][..2].copy_from_slice(&ipv4::DONT_FRAGMENT.to_be_bytes());
    quoted[ipv4::PROTOCOL_OFFSET] = ipv4::PROTOCOL_UDP;
    quoted[ipv4::SRC_OFFSET..][..8].copy_from_slice(&[10, 99, 0, 1, 10, 99, 0, 2]);
    quoted[20 + udp::SRC_PORT_OFFSET..][..2].copy_from_slice(&50_000_u16.to_be_bytes());
    quoted[20 + udp::DST_PORT_OFFSET..][..2].copy_from_slice(&4789_u16.to_be_bytes());
    quoted[28..].copy_from_slice(&[8, 0, 0, 0, 0, 0, vni, 0]);
    let [high, low] = mtu.to_be_bytes();
    let mut message = [&[3, 4, 0, 0, 0, 0, high, low][..], &quoted].concat();
    let sum = checksum::checksum(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    message
}

#[test]
fn forged_report_is_refused_unless_such_a_packet_was_sent_and_stops_at_the_minimum() {
    if !is_installed("ip") {
        return;
    }
    const ICMP: i32 = 1;
    let row = Row::new(1500);
    let data = Data::new();
    let (mut running, plain, behind) = started(&row, &data, "in-kernel-xdp");
    let other = row.space(&row.names[2]);
    let opened = other.run(|| sys::socket::open(2, 3, ICMP));
    let forger = UdpSocket::from(opened.expect("the namespace is there").expect("CAP_NET_RAW"));
    let send = |message: &[u8]| {
        assert_eq!(forger.send_to(message, ("10.99.0.1", 0)).expect("a route"), message.len());
    };
    let path = |running: &Running| {
        let said = running.stdout();
        // The last line may not be whole yet.
        let whole = said.rfind('\n').map_or("", |end| &said[..end]);
        last_of(whole.as_bytes())["path"].clone()
    };
    assert!(until(LONG, || running.stdout().ends_with('\n')), "it reports its state");
    // Nothing larger than 200 bytes was sent.
    udp_echo(&plain, (&behind, BEHIND_IP), 20, 64);
    let refused = until(LONG, || {
        send(&report(1000, 1500, 42));
        thread::sleep(Duration::from_millis(200));
        path(&running)["refused"].as_u64() > Some(0)
    });
    assert!(refused, "{}", path(&running));
    // Of another network, and broken: not about a packet of ours.
    send(&report(1000, 1500, 43));
    let mut broken = report(1000, 1500, 42);
    broken[2] ^= 1;
    send(&broken);
    assert_eq!(path(&running)["mtu"]["b"], 1600);
    // An attacker that knows of a packet in flight gets down to the minimum, and no further.
    let lowered = until(LONG, || {
        udp_echo(&plain, (&behind, BEHIND_IP), 5, 1400);
        send(&report(68, 1450, 42));
        running.stderr().contains("carries packets of 626 bytes")
    });
    assert!(lowered, "{}", running.stderr());
    running.await_stderr("carries packets of 626 bytes");
    let output = running.end_by("TERM", LONG);
    let last = last_of(&output.stdout);
    assert_eq!((&last["path"]["mtu"]["b"], &last["path"]["lowered"]), (&626.into(), &1.into()));
}
