//! A `.link` file of systemd: settings of the device itself.
//!
//! Source: systemd.link(5), as of version 252 (Debian 12).

use super::{ExportedFile, Kept, Setting, Source, file, parameters, take};
use crate::tune::knob::Ethtool;

pub(super) fn write(source: &Source<'_>, settings: &mut Vec<Setting>) -> Option<ExportedFile> {
    let lines = take(settings, |kept| match kept {
        Kept::Ethtool { what, words } => {
            parameters(*what, words).map(|(name, value)| line(*what, name, value)).collect()
        }
        Kept::NetFile { file, value } if file == "tx_queue_len" => {
            Some(vec![format!("TransmitQueueLength={value}")])
        }
        _ => None,
    });
    if lines.is_empty() {
        return None;
    }
    let (title, device) = (source.title(), source.device());
    let text = format!(
        "{title}\n\
         # Only the first .link file that matches an interface is used. If this host has one for\n\
         # {name} already, move the lines below there. The names are those of 99-default.link.\n\
         [Match]\n\
         MACAddress={address}\n\
         {driver}\n\
         [Link]\n\
         NamePolicy=keep kernel database onboard slot path\n\
         AlternativeNamesPolicy=database onboard slot path\n\
         MACAddressPolicy=persistent\n\
         {lines}\n",
        name = device.name,
        address = device.address,
        driver = device.driver.as_ref().map_or(String::new(), |name| format!("Driver={name}\n")),
        lines = lines.join("\n"),
    );
    Some(file(format!("etc/systemd/network/60-{}.link", source.label()), text))
}

fn line(what: Ethtool, name: &str, value: &str) -> Option<String> {
    let key = match (what, name) {
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
        (Ethtool::Coalescing, "rx-usecs") => return Some(format!("RxCoalesceSec={value}us")),
        (Ethtool::Coalescing, "tx-usecs") => return Some(format!("TxCoalesceSec={value}us")),
        (Ethtool::Coalescing, "rx-frames") => "RxMaxCoalescedFrames",
        (Ethtool::Coalescing, "tx-frames") => "TxMaxCoalescedFrames",
        _ => return None,
    };
    let value = match value {
        "on" => "yes",
        "off" => "no",
        other => other,
    };
    Some(format!("{key}={value}"))
}
