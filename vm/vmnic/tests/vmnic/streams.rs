//! `nettest` over TCP in every arm: what one end sent is what the other end has, by SHA-256.
//!
//! `WIREPATH_VMNIC_STREAM_BYTES` is the length of each stream; `wirepath vmnic bench streams` does
//! the same with 100 MB.

use model::{Arm, ArmPlan, PathSwitch, Support};
use model::{Load, Path};
use wirepath_vmnic::stream::{StreamDirection, Streamed, run};
use wirepath_vmnic::{Switch, Vmnic};

use crate::guest;

/// Enough for every window and ring to fill and wrap, many times.
const BYTES: u64 = 2_000_000;

fn bytes() -> u64 {
    let variable = std::env::var("WIREPATH_VMNIC_STREAM_BYTES");
    variable.map_or(BYTES, |text| text.parse().expect("a number of bytes"))
}

/// The arms of a plan that differ from each other; none without KVM or an image.
fn arms(plan: &ArmPlan) -> Vec<Arm> {
    if guest::image_beside_us().is_none() {
        return Vec::new();
    }
    let load = Load {
        kind: "tcp".into(),
        size_bytes: 65_536,
        rate_pps: 0,
        trial: std::time::Duration::ZERO,
        ipv6: false,
        vlan_tag: None,
        wire: None,
        far: None,
    };
    let arms =
        model::arms(plan, &model::ids(Switch::SPECS), &[], &mut |arm| Vmnic.support(arm, &load));
    if let Some((_, Support::Unsupported { what, needs })) = arms.first() {
        testkit::skip("kvm", format!("{what}; it needs {needs}"));
        return Vec::new();
    }
    let arms = arms
        .into_iter()
        .filter(|(arm, support)| arm.kind != model::ArmKind::Control && support.is_yes());
    arms.map(|(arm, _)| arm).collect()
}

fn both_ends_agree(arm: &Arm, direction: StreamDirection, asked: u64) -> Streamed {
    let seen = run(arm, direction, asked)
        .unwrap_or_else(|error| panic!("{} {direction:?}: {error:?}", arm.name));
    assert!(seen.is_equal(), "{} {direction:?}: {seen:?}", arm.name);
    assert!((asked..asked + 50_000).contains(&seen.host_bytes), "{} {seen:?}", arm.name);
    // That of nothing at all would be equal too.
    assert_ne!(seen.guest_digest, [0; 32], "{}", arm.name);
    seen
}

#[test]
fn every_rung_of_the_ladder_streams_the_same_bytes_to_both_ends() {
    let mut digests = Vec::new();
    for arm in arms(&ArmPlan::ladder()) {
        for direction in [StreamDirection::ToHost, StreamDirection::ToGuest] {
            digests.push(both_ends_agree(&arm, direction, bytes()).host_digest);
        }
    }
    // Guest and host make the same bytes.
    assert!(digests.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn every_switch_alone_streams_the_same_bytes_to_both_ends() {
    for arm in arms(&ArmPlan::Alone) {
        for direction in [StreamDirection::ToHost, StreamDirection::ToGuest] {
            both_ends_agree(&arm, direction, bytes());
        }
    }
}

/// Bytes that the independent driver moves each way.
const INDEPENDENT_BYTES: u64 = 10_000_000;

#[test]
fn driver_that_is_not_ours_streams_the_same_bytes_to_both_ends_over_every_back_end() {
    if arms(&ArmPlan::List(Vec::new())).is_empty() {
        return;
    }
    let doorbell = Switch::TdmdDoorbell;
    let sets: [&[Switch]; 3] =
        [&[doorbell], &[doorbell, Switch::SharedRing], &[doorbell, Switch::XdpRing, Switch::IrqFd]];
    for switches in sets {
        // A peer of `prove`, which has none of these switches.
        let peer = Arm::peer("virtio-drivers");
        let arm = Arm { switches: switches.iter().copied().collect(), ..peer };
        for direction in [StreamDirection::ToHost, StreamDirection::ToGuest] {
            both_ends_agree(&arm, direction, INDEPENDENT_BYTES);
        }
    }
}
