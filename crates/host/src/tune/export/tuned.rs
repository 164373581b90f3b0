//! A profile of TuneD.
//!
//! Source: the plugins net, sysctl and sysfs of TuneD 2.20 (Debian 12).

use std::collections::BTreeMap;

use super::{ExportedFile, Kept, Setting, Source, file, parameters, take};
use crate::tune::knob::Ethtool;

pub(super) fn write(source: &Source<'_>, settings: &mut Vec<Setting>) -> Option<ExportedFile> {
    let net = take(settings, |kept| match kept {
        Kept::Ethtool { what, words } => {
            let words: Vec<_> =
                parameters(*what, words).map(|(name, value)| format!("{name} {value}")).collect();
            Some(vec![format!("{}={}", option(*what)?, words.join(" "))])
        }
        Kept::NetFile { file, value } if file == "tx_queue_len" => {
            Some(vec![format!("txqueuelen={value}")])
        }
        _ => None,
    });
    let sysctl = take(settings, |kept| match kept {
        Kept::Sysctl { key, value } => Some(vec![format!("{key}={value}")]),
        _ => None,
    });
    let name = source.device.as_ref().map(|device| device.name.clone()).unwrap_or_default();
    let sysfs = take(settings, |kept| match kept {
        Kept::NetFile { file, value } => {
            Some(vec![format!("/sys/class/net/{name}/{file}={value}")])
        }
        Kept::CpuFile { cpu, file, value } => {
            Some(vec![format!("/sys/devices/system/cpu/cpu{cpu}/{file}={value}")])
        }
        Kept::HostFile { path, value } => Some(vec![format!("/{path}={value}")]),
        _ => None,
    });
    let mut options: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in &net {
        let (option, value) = line.split_once('=').expect("written above");
        options.entry(option).or_default().push(value);
    }
    if let Some(features) = options.get_mut("features") {
        features.sort_by_key(|feature| {
            let at = FEATURES.iter().position(|name| feature.split(' ').next() == Some(*name));
            at.unwrap_or(FEATURES.len())
        });
    }
    let net = options.iter().map(|(name, all)| format!("{name}={}", all.join(" ")));
    let net: Vec<_> = match options.is_empty() {
        true => Vec::new(),
        false => std::iter::once(format!("devices={name}")).chain(net).collect(),
    };
    let section = |title: &str, lines: &[String]| match lines {
        [] => String::new(),
        _ => format!("\n[{title}]\n{}\n", lines.join("\n")),
    };
    let body =
        [section("net", &net), section("sysctl", &sysctl), section("sysfs", &sysfs)].concat();
    let text = || {
        let summary = format!("Plan of wirepath tune, profile {}", source.plan.profile);
        format!("{}\n[main]\nsummary={summary}\n{body}", source.title())
    };
    (!body.is_empty()).then(|| file(format!("etc/tuned/{}/tuned.conf", source.label()), text()))
}

/// Order in which ethtool lists features, those of the kernel's own names last: `tuned-adm verify` compares the option
/// with that list as a text.
const FEATURES: [&str; 11] =
    ["rx", "tx", "sg", "tso", "gso", "gro", "lro", "rxvlan", "txvlan", "ntuple", "rxhash"];

/// Option of the net plugin; it holds pairs, so that one option collects several settings.
fn option(what: Ethtool) -> Option<&'static str> {
    match what {
        Ethtool::Features => Some("features"),
        Ethtool::Rings => Some("ring"),
        Ethtool::Channels => Some("channels"),
        // TuneD 2.20 ignores `coalesce` with ethtool 5.15 and newer, because it does not know the CQE mode that is
        // listed beside it.
        Ethtool::Coalescing | Ethtool::Table | Ethtool::HashFields | Ethtool::Rules => None,
    }
}
