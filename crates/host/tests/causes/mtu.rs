//! Planted causes of the largest packet of a path, and of tunnels.

use wirepath_host::causes::Severity;

use crate::scene::{Scene, named, row, silent};
use crate::udp::{await_above, raw_sender};

/// Starts a server at `b` that answers a small request, and a client at `a` that then sends a lot.
fn transfer(scene: &mut Scene, server: &str) {
    scene.python(
        "b",
        "import socket\ns = socket.socket()\ns.bind(('', 8080))\ns.listen(5)\nprint('ready')\nwhile True:\n    \
         c, _ = s.accept()\n    c.sendall(c.recv(10))\n    while c.recv(100000):\n        pass",
    );
    // Three time-outs take 1.4 s.
    let client = format!(
        "import socket, time\ns = socket.socket()\ns.connect(('{server}', 8080))\ns.sendall(b'hello')\ns.recv(10)\n\
         s.setblocking(False)\nend = time.time() + 1.8\ns.send(b'x' * 20000)\nwhile time.time() < end:\n    \
         time.sleep(0.05)\nprint('ready')\ntime.sleep(60)"
    );
    scene.python("a", &client);
}

/// A path of 1,400 bytes behind the router, whose ICMP messages the sender drops, or not.
fn narrow_path(drops: bool) -> Scene {
    let mut scene = Scene::routed();
    scene.sh("r", "ip link set right mtu 1400");
    if drops {
        scene.sh(
            "a",
            "nft add table ip f; nft add chain ip f c '{ type filter hook input priority 0; }'",
        );
        scene.sh("a", "nft add rule ip f c icmp type destination-unreachable drop");
    }
    transfer(&mut scene, "10.2.0.1");
    scene
}

#[test]
fn path_that_swallows_full_segments_is_named() {
    let report = narrow_path(true).examine("a");
    let words =
        ["python3", "10.2.0.1:8080", "eth0", "tcp_mtu_probing=1", "InDestUnreachs", "pmtu 1500"];
    let found = named(&report, "pmtu-black-hole", Severity::High, &words);
    silent(&narrow_path(false).examine("a"), "pmtu-black-hole");
    row("pmtu-black-hole", "a narrow router, and a rule that drops ICMP", "doctor", found);
}

/// A VXLAN between `a` and `b`, whose ends are 10.9.0.1 and 10.9.0.2.
fn tunnel(scene: &Scene, far: &str, mtu: u32) {
    let ends = [("a", "10.1.0.1", far, 1), ("b", far, "10.1.0.1", 2)];
    for (netns, own, other, last) in ends {
        scene.sh(
            netns,
            &format!("ip link add vx type vxlan id 7 local {own} remote {other} dstport 4789"),
        );
        scene.sh(
            netns,
            &format!("ip addr add 10.9.0.{last}/24 dev vx; ip link set vx mtu {mtu} up"),
        );
    }
}

#[test]
fn segments_that_do_not_fit_the_path_of_a_tunnel_are_named() {
    let tunnelled = |drops: bool| {
        let mut scene = Scene::routed();
        scene.sh("r", "ip link set right mtu 1400");
        tunnel(&scene, "10.2.0.1", 1450);
        if drops {
            scene.sh("b", "nft add table ip f; nft add chain ip f c '{ type filter hook prerouting priority -450; }'");
            scene.sh("b", "nft add rule ip f c ip frag-off '&' 0x3fff != 0 drop");
        }
        transfer(&mut scene, "10.9.0.2");
        scene
    };
    let report = tunnelled(true).examine("a");
    let words = ["10.9.0.2:8080", "tunnel vx", "ip link set vx mtu", "maxseg size set rt mtu"];
    let found = named(&report, "tunnel-mss", Severity::High, &words);
    assert!(!report.findings.iter().any(|one| one.cause == "pmtu-black-hole"), "{report:#?}");
    silent(&tunnelled(false).examine("a"), "tunnel-mss");
    row("tunnel-mss", "VXLAN over a narrow link whose fragments are dropped", "doctor", found);
}

/// Python that sends datagrams which may not be cut, whatever it is told.
fn stubborn(to: &str, bytes: usize) -> String {
    format!(
        "import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.setsockopt(0, 10, 3)\n\
         print('ready')\nwhile True:\n    try:\n        s.sendto(b'x' * {bytes}, ('{to}', 9000))\n    \
         except OSError:\n        pass\n    time.sleep(0.005)"
    )
}

const READER: &str = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('', 9000))\n\
                      print('ready')\nwhile True:\n    s.recv(9000)";

#[test]
fn frames_of_a_tunnel_that_leave_in_fragments_are_named() {
    let tunnelled = |mtu| {
        let mut scene = Scene::pair();
        tunnel(&scene, "10.1.0.2", mtu);
        scene.python("b", READER);
        // IP_PMTUDISC_OMIT: the sender cuts at the MTU of the tunnel alone.
        let sender =
            stubborn("10.9.0.2", 1450).replace("s.setsockopt(0, 10, 3)", "s.setsockopt(0, 10, 5)");
        scene.python("a", &sender);
        scene
    };
    let scene = tunnelled(1500);
    await_above(&scene, "a", "nstat -asz IpFragCreates | awk 'END { print $2 }'", 10);
    let report = scene.examine("a");
    let words = ["fragments a second", "tunnel vx", "FragCreates", "ip link set vx mtu 1420"];
    let found = named(&report, "tunnel-mss", Severity::Medium, &words);
    silent(&tunnelled(1450).examine("a"), "tunnel-mss");
    row("tunnel-mss", "VXLAN of MTU 1500 over Ethernet", "doctor", found);
}

/// A sender that does not obey, behind a bridge of the router or not, and a way out of this MTU.
fn way_out(mtu: u32, bridged: bool) -> Scene {
    let mut scene = Scene::routed();
    if bridged {
        scene.sh(
            "r",
            "ip link add br0 type bridge; ip link set left master br0; ip addr flush dev left",
        );
        scene.sh("r", "ip addr add 10.1.0.254/24 dev br0; ip link set br0 up");
    }
    scene.sh("r", &format!("ip link set right mtu {mtu}; ip route add default via 10.2.0.1"));
    scene.python("b", READER);
    scene.python("a", &stubborn("10.2.0.1", 1450));
    scene
}

#[test]
fn bridge_with_a_larger_mtu_than_the_way_out_is_named() {
    let report = way_out(1400, true).examine("r");
    let words = [
        "br0 (MTU 1500)",
        "right (MTU 1400)",
        "FragFails",
        "ip link set br0 mtu 1400",
        "ip link set br0 mtu 1500",
    ];
    let found = named(&report, "inner-mtu", Severity::High, &words);
    silent(&way_out(1500, true).examine("r"), "inner-mtu");
    row("inner-mtu", "bridge of 1500, way out of 1400", "doctor", found);
}

#[test]
fn packets_that_are_refused_as_too_large_are_named() {
    let report = way_out(1400, false).examine("r");
    let words = ["too large for the next link", "do not obey", "FragFails", "right 1400"];
    let found = named(&report, "frag-fails", Severity::High, &words);
    silent(&way_out(1500, false).examine("r"), "frag-fails");
    let scene = way_out(1400, false);
    scene.sh(
        "r",
        "nft add table ip f; nft add chain ip f c '{ type filter hook output priority 0; }'",
    );
    scene.sh("r", "nft add rule ip f c icmp type destination-unreachable drop");
    named(
        &scene.examine("r"),
        "frag-fails",
        Severity::High,
        &["a rule of this host drops", "OutDiscards"],
    );
    row("frag-fails", "a sender that does not obey; a rule that drops ICMP", "doctor", found);
}

#[test]
fn wrong_checksums_out_of_a_tunnel_are_named_with_it() {
    let sent = |is_right| {
        let mut scene = Scene::pair();
        tunnel(&scene, "10.1.0.2", 1450);
        scene.python("b", READER);
        scene.python("a", &raw_sender("10.9.0.1", "10.9.0.2", is_right));
        scene
    };
    let report = sent(false).examine("b");
    let words = ["tunnel vx", "UdpInCsumErrors", "ethtool -K vx tx-checksum-ip-generic off"];
    let found = named(&report, "tunnel-csum", Severity::High, &words);
    assert!(!report.findings.iter().any(|one| one.cause == "checksum"), "{report:#?}");
    silent(&sent(true).examine("b"), "tunnel-csum");
    row("tunnel-csum", "a wrong sum inside a VXLAN", "doctor", found);
}

#[test]
fn packets_that_no_policy_of_ipsec_fits_are_named() {
    let sent = |has_policy: bool| {
        let mut scene = Scene::pair();
        if has_policy {
            scene.sh(
                "b",
                "ip xfrm policy add src 10.1.0.1 dst 10.1.0.2 dir in tmpl src 10.1.0.1 dst 10.1.0.2 proto esp mode transport",
            );
        }
        scene.python("b", READER);
        scene.python("a", &stubborn("10.1.0.2", 100));
        scene
    };
    let report = sent(true).examine("b");
    let found = named(
        &report,
        "xfrm",
        Severity::High,
        &["XfrmInTmplMismatch", "template", "ip xfrm state"],
    );
    assert!(!report.findings.iter().any(|one| one.cause == "socket-filter"), "{report:#?}");
    silent(&sent(false).examine("b"), "xfrm");
    row("xfrm", "a policy that wants ESP, datagrams in clear", "doctor", found);
}
