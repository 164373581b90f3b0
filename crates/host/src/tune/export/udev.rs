//! udev rules: sysfs attributes of interfaces and CPUs, and calls of ethtool and tc.
//!
//! Source: udev(7); `$name` is the interface's name after it was renamed.

use super::{ExportedFile, Kept, Setting, Source, take};
use crate::generated::{Line, line};

pub(super) fn write(source: &Source<'_>, settings: &mut Vec<Setting>) -> Option<ExportedFile> {
    let mut rules = Vec::new();
    // Channels first in a plan: they reset the attributes of queues. RUN comes after all attributes
    // in udev, so an attribute of a queue is written by a program too.
    let net = take(settings, |kept| match kept {
        Kept::Ethtool { what, words } => {
            let words: Vec<_> = words.iter().map(|(name, value)| line![name, " ", value]).collect();
            let words = Line::joined(&words, " ");
            Some(vec![line!["RUN+=\"/usr/sbin/ethtool ", what.option(), " $name ", words, "\""]])
        }
        Kept::Qdisc { words } => {
            Some(vec![line!["RUN+=\"/usr/sbin/tc qdisc replace dev $name root ", words, "\""]])
        }
        Kept::NetFile { file, value } if file.as_str().starts_with("queues/") => Some(vec![line![
            "RUN+=\"/bin/sh -c 'echo ",
            value,
            " >/sys/class/net/$name/",
            file,
            "'\""
        ]]),
        Kept::NetFile { file, value } => Some(vec![line!["ATTR{", file, "}=\"", value, "\""]]),
        _ => None,
    });
    if !net.is_empty() {
        let device = source.device();
        // Set by 80-net-setup-link.rules for virtual devices too, which have no DRIVERS.
        let driver = device
            .driver
            .as_ref()
            .map_or(Line::default(), |driver| line!["ENV{ID_NET_DRIVER}==\"", driver, "\", "]);
        let matches = line![
            "ACTION==\"add\", SUBSYSTEM==\"net\", ATTR{address}==\"",
            device.address,
            "\", ",
            driver
        ];
        rules.extend(net.iter().map(|action| line![matches, action]));
    }
    rules.extend(take(settings, |kept| match kept {
        Kept::CpuFile { cpu, file, value } => Some(vec![line![
            "ACTION==\"add\", SUBSYSTEM==\"cpu\", KERNEL==\"cpu",
            *cpu,
            "\", ATTR{",
            file,
            "}=\"",
            value,
            "\""
        ]]),
        _ => None,
    }));
    let path = format!("etc/udev/rules.d/90-{}.rules", source.label());
    (!rules.is_empty()).then(|| source.file(path, |text| _ = text.lines(&rules)))
}
