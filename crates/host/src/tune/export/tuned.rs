//! A profile of TuneD.
//!
//! Source: the plugins net, sysctl and sysfs of TuneD 2.20 (Debian 12).

use std::collections::BTreeMap;

use super::{ExportedFile, Kept, Setting, Source, parameters, take, take_parts};
use crate::generated::{Line, Plain, Text, line};
use crate::tune::knob::Ethtool;

pub(super) fn write(source: &Source<'_>, settings: &mut Vec<Setting>) -> Option<ExportedFile> {
    let mut options: BTreeMap<&str, (&'static str, Vec<Line>)> = BTreeMap::new();
    let net = take_parts(settings, |kept| match kept {
        Kept::Ethtool { what, words } => {
            let words: Vec<_> =
                parameters(*what, words).map(|(name, value)| line![name, " ", value]).collect();
            Some(vec![(option(*what)?, Line::joined(&words, " "))])
        }
        Kept::NetFile { file, value } if file.as_str() == "tx_queue_len" => {
            Some(vec![("txqueuelen", line![value])])
        }
        _ => None,
    });
    for (option, value) in net {
        options.entry(option).or_insert((option, Vec::new())).1.push(value);
    }
    if let Some((_, features)) = options.get_mut("features") {
        features.sort_by_key(|feature| {
            let first = feature.as_str().split(' ').next();
            FEATURES.iter().position(|name| first == Some(*name)).unwrap_or(FEATURES.len())
        });
    }
    let sysctl = take(settings, |kept| match kept {
        Kept::Sysctl { key, value } => Some(vec![line![key, "=", value]]),
        _ => None,
    });
    let name = source.device.as_ref().map(|device| &device.name);
    let sysfs = take(settings, |kept| match kept {
        Kept::NetFile { file, value } => {
            Some(vec![line!["/sys/class/net/", name?, "/", file, "=", value]])
        }
        Kept::CpuFile { cpu, file, value } => {
            Some(vec![line!["/sys/devices/system/cpu/cpu", *cpu, "/", file, "=", value]])
        }
        Kept::HostFile { path, value } => Some(vec![line!["/", path, "=", value]]),
        _ => None,
    });
    let mut net = Vec::new();
    if let Some(name) = name.filter(|_| !options.is_empty()) {
        net.push(line!["devices=", name]);
        let each = options.values().map(|(name, all)| line![*name, "=", Line::joined(all, " ")]);
        net.extend(each);
    }
    if net.is_empty() && sysctl.is_empty() && sysfs.is_empty() {
        return None;
    }
    let path = format!("etc/tuned/{}/tuned.conf", source.label());
    Some(source.file(path, |text| {
        text.literal("[main]");
        match Plain::word(&source.plan.profile) {
            Some(profile) => text.line(&line!["summary=Plan of wirepath tune, profile ", profile]),
            None => text.literal("summary=Plan of wirepath tune"),
        };
        section(text, "\n[net]", &net);
        section(text, "\n[sysctl]", &sysctl);
        section(text, "\n[sysfs]", &sysfs);
    }))
}

fn section(text: &mut Text, title: &'static str, lines: &[Line]) {
    if !lines.is_empty() {
        text.literal(title).lines(lines);
    }
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
