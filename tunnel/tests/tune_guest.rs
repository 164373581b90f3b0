//! `wirepath tunnel run` with real cards as its port, and over the kernel's WireGuard and IPsec.
//! A module of the test program `tune_guest`, which has the guest.

use crate::common::rig::{FarEnd, Rig};

/// A host behind the kernel's VXLAN device, in namespace `behind`, and the underlay to it. The veth takes frames
/// that XDP redirects.
const FAR_END: &str = "
ip netns add behind
ip link add wan0 type veth peer name k0 netns behind
ip address add 10.99.0.1/24 dev wan0
ip link set wan0 mtu 1600 up
ip -n behind link set lo up
ip -n behind link set k0 mtu 1600 up
ip -n behind address add 10.99.0.2/24 dev k0
ip netns exec behind ethtool -K k0 gro on
ip -n behind link add vx0 type vxlan id 42 local 10.99.0.2 remote 10.99.0.1 dstport 4789 dev k0
ip -n behind link set vx0 up
ip -n behind address add 10.50.0.2/24 dev vx0
";

/// Starts the forwarder in a namespace, or in none, and waits until it forwards.
fn start(rig: &Rig, inside: &str, config: &str) {
    let file = rig.put("tunnel.toml", config);
    rig.succeed(&format!(
        "{inside} wirepath tunnel run {file} >/tmp/run.out 2>/tmp/run.err &
         echo $! >/tmp/run.pid
         n=0
         until grep -q 'tunnel b: ' /tmp/run.err; do
             n=$((n + 1)); [ $n -lt 300 ] || {{ cat /tmp/run.err >&2; exit 9; }}
             sleep 0.1
         done"
    ));
}

/// Ends the forwarder; returns its messages and its summary.
fn end(rig: &Rig) -> String {
    rig.succeed(
        "pid=$(cat /tmp/run.pid)
         kill $pid
         while [ -e /proc/$pid ]; do sleep 0.1; done
         cat /tmp/run.err /tmp/run.out",
    )
}

/// Pings, datagrams and streams pass between two namespaces both ways, and none has a wrong checksum.
///
/// - `ends`: command that enters each, its interface and its address.
fn exchange(rig: &Rig, ends: [(&'static str, &str, &str); 2]) {
    for [(near, ..), (far, far_if, far_ip)] in [ends, [ends[1], ends[0]]] {
        rig.succeed(&format!("{near} ping -q -c 5 -i 0.05 -W 10 {far_ip}"));
        FarEnd { rig, inside: far }.serve(&format!("probe echo -i {far_if}"), || {
            let ping = format!("{near} wirepath probe ping {far_ip} --no-peer -c 20 --json");
            let document = rig.json(&ping);
            let received = &document["deliveries"]["round-trip"]["received_count"];
            assert_eq!(received, 20, "{document}");
        });
        rig.succeed(&format!(
            "[ -e /tmp/sent ] || dd if=/dev/urandom of=/tmp/sent bs=64k count=16 2>/dev/null
             [ -e /tmp/open ] || mkfifo /tmp/open
             exec 3<>/tmp/open
             {far} nc -l -p 7000 >/tmp/got <&3 &
             n=0
             until {far} grep -hq ':1B58 .* 0A ' /proc/net/tcp /proc/net/tcp6; do
                 n=$((n + 1)); [ $n -lt 100 ] || exit 9
                 sleep 0.1
             done
             {near} nc -w 60 {far_ip} 7000 </tmp/sent
             wait $!
             cmp /tmp/sent /tmp/got"
        ));
    }
    for (inside, ..) in ends {
        let errors = rig.succeed(&format!(
            "{inside} awk '/^(Tcp|Udp):/ {{
                 if (!($1 in names)) {{ names[$1] = $0; next }}
                 split(names[$1], name)
                 for (n = 2; n <= NF; n++) if (name[n] == \"InCsumErrors\") print $n
             }}' /proc/net/snmp"
        ));
        assert_eq!(errors.split_whitespace().collect::<Vec<_>>(), ["0", "0"], "{inside}");
    }
}

/// Frames of a card's hosts go through every engine that its driver allows: e1000e has no native XDP, vmxnet3
/// has, and virtio-net may leave checksums to the host.
pub(crate) fn carries_what_hosts_behind_real_cards_send(rig: &Rig) {
    let config = |engine: &str, port: &str| {
        format!(
            "engine = \"{engine}\"\n[order]\nstuck_after_us = 5000000\n\
             [port]\ninterface = \"{port}\"\n\
             [underlay]\ninterface = \"wan0\"\naddress = \"10.99.0.1\"\nmtu = 1600\n\
             [[tunnel]]\nname = \"b\"\ncarrier = \"vxlan\"\nvni = 42\nremote = \"10.99.0.2\"\n"
        )
    };
    rig.succeed(FAR_END);
    rig.succeed("ip -n far address add 10.50.0.1/24 dev far");
    let behind = ("ip netns exec behind", "vx0", "10.50.0.2");
    let sender = ("ip netns exec far", "far", "10.50.0.1");
    for (engine, port, said) in [
        ("auto", "vmx", "engine in-kernel: XDP programs at vmx and wan0"),
        ("xdp", "vmx", "tunnel b: "),
        ("xdp", "intel", "intel: no XDP support in the driver"),
        ("packet", "intel", "tunnel b: "),
    ] {
        start(rig, "", &config(engine, port));
        exchange(rig, [sender, behind]);
        let text = end(rig);
        assert!(text.contains(said), "{engine} {port}: {text}");
    }
    rig.succeed(
        "ip -n far address delete 10.50.0.1/24 dev far
         ip link set wan0 netns far
         ip -n far address add 10.99.0.1/24 dev wan0
         ip -n far link set wan0 up
         ip address add 10.50.0.1/24 dev intel",
    );
    for engine in ["xdp", "packet"] {
        start(rig, "ip netns exec far", &config(engine, "far"));
        exchange(rig, [("", "intel", "10.50.0.1"), behind]);
        end(rig);
    }
    rig.succeed(
        "ip address delete 10.50.0.1/24 dev intel
         ip netns delete behind",
    );
}

/// Namespaces of both tunnels' ends, as tunnel/docs/tunnel.md makes them: `inner` and `near` here, `there` behind `far`,
/// whose end is the kernel's. Between the hosts are real cards.
const NAMESPACES: &str = r#"
printf '#!/usr/bin/sh\nexec /xdp-tools/ld-linux-x86-64.so.2 --library-path /xdp-tools /xdp-tools/wg "$@"\n' >/usr/bin/wg
chmod +x /usr/bin/wg
ip netns add inner
ip netns add near
ip netns add there
ip link add lan0 netns near type veth peer name i0 netns inner
ip -n inner address add 10.50.0.1/24 dev i0
ip -n inner link set i0 up
ip link add wan0 netns near type veth peer name tun0
ip -n near address add 10.9.1.2/30 dev wan0
ip address add 10.9.1.1/30 dev tun0
ip -n near link set lan0 up
ip -n near link set wan0 up
ip link set tun0 up
ip -n near route add default via 10.9.1.1
sysctl -qw net.ipv4.ip_forward=1
ip -n far link add wan0 netns there type veth peer name tun0
ip -n there address add 10.9.2.2/30 dev wan0
ip -n far address add 10.9.2.1/30 dev tun0
ip -n there link set wan0 up
ip -n far link set tun0 up
ip -n there route add default via 10.9.2.1
ip netns exec far sysctl -qw net.ipv4.ip_forward=1
ip -n there link add vx0 type vxlan id 42 local 10.9.2.2 remote 10.9.1.2 dstport 4789
ip -n there link set vx0 mtu 1370 up
ip -n there address add 10.50.0.2/24 dev vx0
cat >/tmp/wire <<'END'
table netdev wire {
    chain out {
        type filter hook egress device "far" priority 0;
        udp dport 4789 counter
        udp dport 51820 counter
        ip protocol esp counter
    }
}
END
ip netns exec far nft -f /tmp/wire
"#;

const CONFIG: &str = r#"
[port]
interface = "lan0"

[underlay]
interface = "wan0"
address = "10.9.1.2"
mtu = 1420

[[tunnel]]
name = "b"
carrier = "vxlan"
vni = 42
remote = "10.9.2.2"
"#;

const WIREGUARD: &str = "
umask 077
wg genkey >/tmp/site-a.key
wg genkey >/tmp/site-b.key
a=$(wg pubkey </tmp/site-a.key) b=$(wg pubkey </tmp/site-b.key)
ip link add wg0 type wireguard
wg set wg0 listen-port 51820 private-key /tmp/site-a.key peer $b endpoint 10.81.0.2:51820 allowed-ips 10.9.2.0/30
ip link set wg0 up
ip route add 10.9.2.0/30 dev wg0
ip -n far link add wg0 type wireguard
ip netns exec far wg set wg0 listen-port 51820 private-key /tmp/site-b.key peer $a endpoint 10.81.0.1:51820 allowed-ips 10.9.1.0/30
ip -n far link set wg0 up
ip -n far route add 10.9.1.0/30 dev wg0
";
const NO_WIREGUARD: &str = "ip link delete wg0\nip -n far link delete wg0\n";

const IPSEC: &str = "
key() { echo 0x$(od -An -vtx1 -N20 /dev/urandom | tr -d ' \\n'); }
out=$(key) in=$(key)
states() {
    $1 ip xfrm state add src 10.81.0.1 dst 10.81.0.2 proto esp spi 0x1001 reqid 1 mode tunnel aead 'rfc4106(gcm(aes))' $out 128
    $1 ip xfrm state add src 10.81.0.2 dst 10.81.0.1 proto esp spi 0x1002 reqid 1 mode tunnel aead 'rfc4106(gcm(aes))' $in 128
}
states ''
states 'ip netns exec far'
ip xfrm policy add src 10.9.1.0/30 dst 10.9.2.0/30 dir out tmpl src 10.81.0.1 dst 10.81.0.2 proto esp reqid 1 mode tunnel
ip xfrm policy add src 10.9.2.0/30 dst 10.9.1.0/30 dir fwd tmpl src 10.81.0.2 dst 10.81.0.1 proto esp reqid 1 mode tunnel
ip route add 10.9.2.0/30 via 10.81.0.2
ip -n far xfrm policy add src 10.9.2.0/30 dst 10.9.1.0/30 dir out tmpl src 10.81.0.2 dst 10.81.0.1 proto esp reqid 1 mode tunnel
ip -n far xfrm policy add src 10.9.1.0/30 dst 10.9.2.0/30 dir fwd tmpl src 10.81.0.1 dst 10.81.0.2 proto esp reqid 1 mode tunnel
ip -n far route add 10.9.1.0/30 via 10.81.0.1
";

/// Packets that the far host's card has sent: VXLAN in clear, WireGuard, ESP.
fn on_the_wire(rig: &Rig) -> [u64; 3] {
    let text = rig.succeed("ip netns exec far nft list chain netdev wire out");
    let counts: Vec<u64> = text
        .lines()
        .filter_map(|line| {
            line.split_once("counter packets ")?.1.split_whitespace().next()?.parse().ok()
        })
        .collect();
    counts.try_into().unwrap_or_else(|counts| panic!("{counts:?}: {text}"))
}

pub(crate) fn goes_encrypted_through_wireguard_and_ipsec_of_the_kernel(rig: &Rig) {
    rig.succeed(NAMESPACES);
    let ends =
        [("ip netns exec inner", "i0", "10.50.0.1"), ("ip netns exec there", "vx0", "10.50.0.2")];
    for (setup, kind) in [(WIREGUARD, 1), (IPSEC, 2)] {
        rig.succeed(setup);
        start(rig, "ip netns exec near", CONFIG);
        let before = on_the_wire(rig);
        exchange(rig, ends);
        let after = on_the_wire(rig);
        end(rig);
        for other in 0..3 {
            let is_used = after[other] > before[other] + 50;
            assert_eq!(is_used, other == kind, "{kind}: {before:?} {after:?}");
        }
        assert_eq!(after[0], 0, "in clear");
        if kind == 1 {
            rig.succeed(NO_WIREGUARD);
        }
    }
    rig.succeed(
        "ip xfrm policy flush
         ip xfrm state flush
         ip netns exec far sh -c 'ip xfrm policy flush; ip xfrm state flush; nft flush ruleset'
         for name in inner near there; do ip netns delete $name; done",
    );
}
