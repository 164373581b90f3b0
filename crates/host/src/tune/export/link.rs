//! A `.link` file of systemd: settings of the device itself.
//!
//! Source: systemd.link(5), as of version 252 (Debian 12).

use super::{ExportedFile, Kept, Setting, Source, parameters, take};
use crate::generated::{Line, Plain, line};
use crate::tune::knob::Ethtool;

pub(super) fn write(source: &Source<'_>, settings: &mut Vec<Setting>) -> Option<ExportedFile> {
    let lines = take(settings, |kept| match kept {
        Kept::Ethtool { what, words } => {
            parameters(*what, words).map(|(name, value)| setting(*what, name, value)).collect()
        }
        Kept::NetFile { file, value } if file.as_str() == "tx_queue_len" => {
            Some(vec![line!["TransmitQueueLength=", value]])
        }
        _ => None,
    });
    if lines.is_empty() {
        return None;
    }
    let device = source.device();
    let path = format!("etc/systemd/network/60-{}.link", source.label());
    Some(source.file(path, |text| {
        text.literal(
            "# Only the first .link file that matches an interface is used. If this host has one for",
        )
        .line(&line![
            "# ",
            device.name,
            " already, move the lines below there. The names are those of 99-default.link."
        ])
        .literal("[Match]")
        .line(&line!["MACAddress=", device.address]);
        if let Some(driver) = &device.driver {
            text.line(&line!["Driver=", driver]);
        }
        text.literal(
            "\n[Link]\n\
             NamePolicy=keep kernel database onboard slot path\n\
             AlternativeNamesPolicy=database onboard slot path\n\
             MACAddressPolicy=persistent",
        )
        .lines(&lines);
    }))
}

fn setting(what: Ethtool, name: &Plain, value: &Plain) -> Option<Line> {
    let key = match (what, name.as_str()) {
        (Ethtool::Features, "rx") => "ReceiveChecksumOffload",
        (Ethtool::Features, "tx") => "TransmitChecksumOffload",
        (Ethtool::Features, "tso") => "TCPSegmentationOffload",
        (Ethtool::Features, "gso") => "GenericSegmentationOffload",
        (Ethtool::Features, "gro") => "GenericReceiveOffload",
        (Ethtool::Features, "rx-gro-hw") => "GenericReceiveOffloadHardware",
        (Ethtool::Features, "lro") => "LargeReceiveOffload",
        (Ethtool::Features, "ntuple") => "NTupleFilter",
        (Ethtool::Features, "rxvlan") => "ReceiveVLANCTAGHardwareAcceleration",
        (Ethtool::Features, "txvlan") => "TransmitVLANCTAGHardwareAcceleration",
        (Ethtool::Features, "rx-vlan-filter") => "ReceiveVLANCTAGFilter",
        (Ethtool::Rings, "rx") => "RxBufferSize",
        (Ethtool::Rings, "tx") => "TxBufferSize",
        (Ethtool::Channels, "rx") => "RxChannels",
        (Ethtool::Channels, "tx") => "TxChannels",
        (Ethtool::Channels, "combined") => "CombinedChannels",
        (Ethtool::Coalescing, "adaptive-rx") => "UseAdaptiveRxCoalesce",
        (Ethtool::Coalescing, "adaptive-tx") => "UseAdaptiveTxCoalesce",
        (Ethtool::Coalescing, "rx-usecs") => return Some(line!["RxCoalesceSec=", value, "us"]),
        (Ethtool::Coalescing, "tx-usecs") => return Some(line!["TxCoalesceSec=", value, "us"]),
        (Ethtool::Coalescing, "rx-frames") => "RxMaxCoalescedFrames",
        (Ethtool::Coalescing, "tx-frames") => "TxMaxCoalescedFrames",
        _ => return None,
    };
    Some(match value.as_str() {
        "on" => line![key, "=yes"],
        "off" => line![key, "=no"],
        _ => line![key, "=", value],
    })
}
