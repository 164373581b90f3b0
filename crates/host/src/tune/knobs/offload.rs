//! Offloads: work on packets that the device does for the stack, or the stack does in bulk.

use super::access::Access;
use crate::net::ethtool::{self, Offload as State};
use crate::tune::error::KnobError;
use crate::tune::knob::{About, Ethtool, Kept, Knob};
use crate::tune::system::System;
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Value, ValueFormat};

/// One offload. Some depend on others (segmentation on scatter-gather and checksums), so changing one
/// may change others.
///
/// Source: ethtool(8), `-K`; Documentation/networking/netdev-features.rst.
#[derive(Debug)]
pub(super) struct Offload {
    about: About,
    /// The kernel's name for it.
    feature: &'static str,
    /// ethtool's name for it, which NetworkManager and TuneD share.
    name: &'static str,
}

const fn offload(
    id: &'static str,
    feature: &'static str,
    name: &'static str,
    what: &'static str,
) -> Offload {
    let about = About { id, what, scope: Scope::Interface, format: ValueFormat::Switch };
    Offload { about, feature, name }
}

pub(super) static OFFLOADS: &[Offload] = &[
    offload("rx-checksum", "rx-checksum", "rx", "the device checks checksums of what it receives"),
    offload("tx-checksum", "tx-checksum-ip-generic", "tx", "the device fills in checksums"),
    offload("sg", "tx-scatter-gather", "sg", "frames go out from several pieces of memory"),
    offload(
        "gso",
        "tx-generic-segmentation",
        "gso",
        "large packets are cut late, before the driver",
    ),
    offload("tso", "tx-tcp-segmentation", "tso", "the device cuts large TCP packets"),
    offload(
        "udp-gso",
        "tx-udp-segmentation",
        "tx-udp-segmentation",
        "the device cuts large UDP packets",
    ),
    offload("gro", "rx-gro", "gro", "arrivals of one flow are merged"),
    offload("hw-gro", "rx-gro-hw", "rx-gro-hw", "the device merges arrivals of one flow"),
    offload(
        "gro-list",
        "rx-gro-list",
        "rx-gro-list",
        "arrivals of one flow are chained, for forwarding",
    ),
    offload(
        "udp-gro-forwarding",
        "rx-udp-gro-forwarding",
        "rx-udp-gro-forwarding",
        "forwarded UDP is merged too",
    ),
    offload("lro", "rx-lro", "lro", "the device merges TCP so that it cannot be taken apart again"),
    offload("rx-hash", "rx-hashing", "rxhash", "the device gives each flow's hash"),
    offload("ntuple", "rx-ntuple-filter", "ntuple", "rules steer flows to queues"),
    offload("rx-vlan", "rx-vlan-hw-parse", "rxvlan", "the device takes VLAN tags off"),
    offload("tx-vlan", "tx-vlan-hw-insert", "txvlan", "the device puts VLAN tags in"),
    offload(
        "rx-vlan-filter",
        "rx-vlan-filter",
        "rx-vlan-filter",
        "the device drops VLANs that no interface has",
    ),
    offload(
        "udp-tunnel-tso",
        "tx-udp_tnl-segmentation",
        "tx-udp_tnl-segmentation",
        "the device cuts large packets inside VXLAN and Geneve",
    ),
    offload(
        "udp-tunnel-tso-checksum",
        "tx-udp_tnl-csum-segmentation",
        "tx-udp_tnl-csum-segmentation",
        "and fills in the outer UDP checksum of each",
    ),
    offload(
        "gre-tso",
        "tx-gre-segmentation",
        "tx-gre-segmentation",
        "the device cuts large packets inside GRE",
    ),
    offload(
        "gre-tso-checksum",
        "tx-gre-csum-segmentation",
        "tx-gre-csum-segmentation",
        "and fills in the GRE checksum of each",
    ),
    offload(
        "rx-udp-tunnel-port",
        "rx-udp_tunnel-port-offload",
        "rx-udp_tunnel-port-offload",
        "the device looks into tunnels at the UDP ports of this host",
    ),
];

impl Offload {
    fn now(&self, system: &System, target: &Target) -> Result<(u32, State), KnobError> {
        let access = Access::new(self, system, target);
        let (index, offloads) = access.get(ethtool::offloads)?;
        Ok((index, offloads.get(self.feature).copied().ok_or_else(|| access.not_offered())?))
    }
}

impl Knob for Offload {
    fn about(&self) -> &About {
        &self.about
    }

    fn read_at(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        let (_, state) = self.now(system, target)?;
        Ok(Value::new(if state.is_on { "on" } else { "off" }).expect("one short line"))
    }

    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        let (index, _) = self.now(system, target)?;
        let wanted = [(self.feature, value.as_str() == "on")];
        Access::new(self, system, target).change(value, || ethtool::set_features(index, &wanted))
    }

    fn kept(&self, _: &Target, value: &Value) -> Vec<Kept> {
        let words = vec![(self.name.to_owned(), value.to_string())];
        vec![Kept::Ethtool { what: Ethtool::Features, words }]
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        let (_, state) = self.now(system, target)?;
        let access = Access::new(self, system, target);
        if !state.is_offered {
            return Err(access.needing("a driver that can switch it").not_offered());
        }
        // The kernel offers GSO on every interface, and turns it off again without scatter-gather.
        if self.about.id == "gso" && !state.is_on {
            let scattered = OFFLOADS.iter().find(|offload| offload.about.id == "sg");
            let scattered = scattered.map(|offload| offload.now(system, target)).transpose();
            if !scattered.is_ok_and(|sg| sg.is_some_and(|(_, sg)| sg.is_on || sg.is_offered)) {
                return Err(access.needing("scatter-gather").not_offered());
            }
        }
        access.may_configure()
    }

    fn disturbs(&self) -> bool {
        true
    }
}
