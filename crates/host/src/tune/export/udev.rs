//! udev rules: sysfs attributes of interfaces and CPUs, and calls of ethtool and tc.
//!
//! Source: udev(7); `$name` is the interface's name after it was renamed.

use super::{ExportedFile, Kept, Setting, Source, file, take};

pub(super) fn write(source: &Source<'_>, settings: &mut Vec<Setting>) -> Option<ExportedFile> {
    let mut rules = Vec::new();
    // Channels first in a plan: they reset the attributes of queues. RUN comes after all attributes
    // in udev, so an attribute of a queue is written by a program too.
    let net = take(settings, |kept| match kept {
        Kept::Ethtool { what, words } => {
            let words: Vec<_> =
                words.iter().map(|(name, value)| format!("{name} {value}")).collect();
            Some(vec![run(&format!(
                "/usr/sbin/ethtool {} $name {}",
                what.option(),
                words.join(" ")
            ))])
        }
        Kept::Qdisc { words } => {
            Some(vec![run(&format!("/usr/sbin/tc qdisc replace dev $name root {words}"))])
        }
        Kept::NetFile { file, value } if file.starts_with("queues/") => {
            Some(vec![run(&format!("/bin/sh -c 'echo {value} >/sys/class/net/$name/{file}'"))])
        }
        Kept::NetFile { file, value } => Some(vec![format!("ATTR{{{file}}}=\"{value}\"")]),
        _ => None,
    });
    if !net.is_empty() {
        let device = source.device();
        let address = &device.address;
        // Set by 80-net-setup-link.rules for virtual devices too, which have no DRIVERS.
        let driver = device
            .driver
            .as_ref()
            .map_or(String::new(), |driver| format!("ENV{{ID_NET_DRIVER}}==\"{driver}\", "));
        let matches = format!(
            "ACTION==\"add\", SUBSYSTEM==\"net\", ATTR{{address}}==\"{address}\", {driver}"
        );
        rules.extend(net.iter().map(|action| format!("{matches}{action}")));
    }
    rules.extend(take(settings, |kept| match kept {
        Kept::CpuFile { cpu, file, value } => Some(vec![format!(
            "ACTION==\"add\", SUBSYSTEM==\"cpu\", KERNEL==\"cpu{cpu}\", ATTR{{{file}}}=\"{value}\""
        )]),
        _ => None,
    }));
    let text = || format!("{}\n{}\n", source.title(), rules.join("\n"));
    (!rules.is_empty())
        .then(|| file(format!("etc/udev/rules.d/90-{}.rules", source.label()), text()))
}

fn run(command: &str) -> String {
    format!("RUN+=\"{command}\"")
}
