//! AF_XDP on drivers without zero-copy: what each of them offers, or the error that says that it does not.

use serde_json::Value;

use crate::common::rig::{FarEnd, Rig};

/// e1000e has no native XDP: its frames go through the kernel's generic hook. vmxnet3 has it.
pub(crate) fn are_those_of_the_page_of_drivers(rig: &Rig) {
    let ping = |card: &str, arm: &str| {
        let far_ip = if card == "intel" { "10.81.0.2" } else { "10.82.0.2" };
        format!("wirepath probe ping {far_ip} --no-peer -i {card} -c 20 --arm {arm} --json")
    };
    let far = FarEnd { rig, inside: "ip netns exec far" };
    far.serve("probe echo -i far", || {
        for (card, arm, used) in [
            ("intel", "bypass", "skb"),
            ("vmx", "bypass", "skb"),
            ("vmx", "bypass+native", "native"),
        ] {
            let document: Value = rig.json(&ping(card, arm));
            let counts = &document["deliveries"]["round-trip"];
            assert_eq!(counts["received_count"], 20, "{card} {arm}: {document}");
            assert_eq!(document["mode"]["near xdp"], format!("{used}, copy"), "{card}: {document}");
        }
        let refused = rig.run(&ping("intel", "bypass+native"));
        assert_eq!(refused.code, 1, "{}", refused.stderr);
        assert!(refused.stderr.contains("use SKB mode"), "{}", refused.stderr);
    });
}
