//! Changes on a GRETAP forwarder, each a switch, proved through it.

use serde_json::Value;

use crate::common::rig::Rig;

/// The scene of test program `forwarder`, whose tunnel is a GRETAP here.
const SCENE: [(&str, &str); 3] = [
    ("appliance.sh", include_str!("../forwarder/scene/appliance.sh")),
    ("tun.sh", include_str!("../forwarder/scene/tun.sh")),
    // The guest has no address translation.
    ("hooks.nft", "table ip hooks { chain forward { type filter hook forward priority 0; }; }\n"),
];

/// Links, rules and routes of the forwarder, without numbers that a new interface gets.
const STATE: &str = "ip netns exec ap sh -c \"ip -o link show | sed 's/^[0-9]*: //; s/@.*mtu/mtu/; s/link.*//'; \
                     nft list ruleset; ip route; cat tun.conf; ls /sys/class/net/tun0/queues\"\n";

pub(super) fn changes_on_a_gretap_forwarder_are_proved_through_it(rig: &Rig) {
    for (name, text) in SCENE {
        let from = rig.put(name, text);
        rig.succeed(&format!("mkdir -p /scene && cp {from} /scene/{name}"));
    }
    // The capture and the hash need programs that this guest does not have.
    rig.succeed("cd /scene && printf 'exit 0' >hash.sh && printf 'exit 0' >capture.sh");
    let begin = "cd /scene\nexport TUNNEL=gretap SRC=src AP=ap STA=sta\n";
    rig.succeed(&format!("{begin}sed -i '/tc qdisc/d' appliance.sh\nsh appliance.sh"));
    let before = rig.succeed(&format!("{begin}{STATE}"));
    let document = rig.json(&format!(
        "{begin}wirepath prove command --near netns:src --far netns:sta --at ap=netns:ap --load udp:1400@500/4 \
         --switch ap/lan0:rps-cpus=3 --switch 'ap:queues=on:sh tun.sh queues 2|off:sh tun.sh queues 1' \
         --switch 'ap:headroom=on:sh tun.sh order late|off:sh tun.sh order early' \
         --switch 'ap:hooks=on:nft flush ruleset|off:nft -f hooks.nft' \
         --time 60s --max-blocks 6 --no-history --json"
    ));
    assert_eq!(rig.succeed(&format!("{begin}{STATE}")), before);
    let arms = document["arms"].as_array().expect("arms");
    assert_eq!(arms.len(), 6, "two baselines and four rungs: {document:#}");
    for arm in arms {
        assert!(arm["not_effective"].as_array().is_none_or(Vec::is_empty), "{arm:#}");
        assert_eq!(arm["failures"], Value::Array(Vec::new()), "{arm:#}");
    }
    rig.succeed("ip netns delete src; ip netns delete ap; ip netns delete sta; rm -r /scene");
}
