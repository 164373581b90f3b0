//! Command lines of machines.

use std::path::Path;

use host::net::Mac;
use report::quoted;

use crate::check::{CheckedArm, Monitor, Qemu};
use crate::image::Architecture;

/// Interfaces that a machine attaches to.
pub(crate) const TAPS: [&str; 2] = ["wp-tap0", "wp-tap1"];
/// The console is the standard output of a machine.
const CONSOLE: &str = "/dev/stdout";

/// Line for `sh -c` that starts an arm's machine.
///
/// - `monitor`: socket on which QEMU's monitor is expected.
/// - `trace`: file of QEMU's trace events; `None` if they are not wanted.
pub(crate) fn command_line(arm: &CheckedArm, monitor: &Path, trace: Option<&Path>) -> String {
    match &arm.monitor {
        Monitor::Qemu(qemu) => qemu_line(arm, qemu, monitor, trace),
        Monitor::Other(command) => filled(arm, command),
    }
}

fn qemu_line(arm: &CheckedArm, qemu: &Qemu, monitor: &Path, trace: Option<&Path>) -> String {
    let (machine, card) = match qemu.architecture {
        Some(Architecture::Aarch64) => {
            ("-M virt,gic-version=3 -cpu cortex-a57", "virtio-net-device")
        }
        // No boot from the network.
        Some(Architecture::X86_64) => ("", "virtio-net-pci,romfile="),
        None => ("", ""),
    };
    let mut words = vec![format!("exec {} {machine}", quoted(&qemu.emulator))];
    // An accelerator of the user's would only be the last choice.
    let names_accelerator =
        ["-accel", "-enable-kvm"].iter().any(|word| qemu.options.contains(word));
    if qemu.architecture == Some(Architecture::X86_64) && !names_accelerator {
        words.push("-accel kvm -accel tcg".into());
    }
    words.extend(qemu.machine.iter().map(|machine| format!("-M {}", quoted(machine))));
    words.push("-nodefaults -no-user-config -display none -no-reboot".into());
    words.extend(lab::qemu::NAMED_THREADS.map(str::to_owned));
    words.push(format!("-serial file:{CONSOLE}"));
    let card = qemu.card.as_deref().unwrap_or(card);
    for ((number, mac), tap) in arm.macs.iter().enumerate().zip(TAPS) {
        let wire = format!("tap,id=wire{number},ifname={tap},script=no,downscript=no");
        let device = format!("{card},netdev=wire{number},mac={}", mac_text(mac));
        words.push(format!("-netdev {wire} -device {}", quoted(&device)));
    }
    words.push(format!("-qmp {}", quoted(&format!("unix:{}", monitor.display()))));
    words.extend(arm.image.iter().map(|image| format!("-kernel {}", quoted_path(image))));
    words.extend(arm.append.iter().map(|append| format!("-append {}", quoted(append))));
    let trace = trace.map(outside::qemu_arguments).unwrap_or_default();
    words.extend(trace.iter().map(|word| quoted(word)));
    // Last, so that they prevail.
    words.push(qemu.options.clone());
    words.join(" ")
}

/// A command with its placeholders filled, each as one word of the shell.
fn filled(arm: &CheckedArm, command: &str) -> String {
    let [mac, mac2] = [0, 1].map(|at| arm.macs.get(at).map(mac_text).unwrap_or_default());
    let image = arm.image.as_deref().map(quoted_path).unwrap_or_default();
    [
        ("{tap}", TAPS[0].to_owned()),
        ("{tap2}", TAPS[1].to_owned()),
        ("{mac}", mac),
        ("{mac2}", mac2),
        ("{image}", image),
        ("{console}", CONSOLE.to_owned()),
        // Last, as it may be any text.
        ("{append}", quoted(arm.append.as_deref().unwrap_or_default())),
    ]
    .iter()
    .fold(command.to_owned(), |line, (name, value)| line.replace(name, value))
}

fn quoted_path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

fn mac_text(mac: &Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(monitor: Monitor) -> CheckedArm {
        CheckedArm {
            name: "a".into(),
            monitor,
            image: Some("/x/my kernel.elf".into()),
            append: Some("quiet ip='1'".into()),
            text_bytes: None,
            macs: vec![[0x52, 0x54, 0, 0, 0, 1], [0x52, 0x54, 0, 0, 0, 2]],
        }
    }

    #[test]
    fn line_of_qemu_has_a_wire_a_card_and_the_user_s_options_last() {
        let qemu = Qemu {
            emulator: "qemu-system-aarch64".into(),
            architecture: Some(Architecture::Aarch64),
            machine: None,
            card: Some("virtio-net-device,packed=on".into()),
            options: "-smp 4 -m 2G".into(),
        };
        let line = command_line(&arm(Monitor::Qemu(qemu)), Path::new("/s/m"), None);
        assert!(line.starts_with("exec qemu-system-aarch64 -M virt,gic-version=3"), "{line}");
        assert!(line.contains("ifname=wp-tap1,script=no"), "{line}");
        assert!(line.contains("virtio-net-device,packed=on,netdev=wire1,mac=52:54:00:00:00:02"));
        assert!(line.contains("-kernel '/x/my kernel.elf' -append 'quiet ip="), "{line}");
        assert!(line.ends_with(" -smp 4 -m 2G"), "{line}");
        let pc = |options: &str| {
            let (machine, card, architecture) = (None, None, Some(Architecture::X86_64));
            let (emulator, options) = ("qemu-system-x86_64".into(), options.into());
            let qemu = Qemu { emulator, architecture, machine, card, options };
            command_line(&arm(Monitor::Qemu(qemu)), Path::new("/s/m"), None)
        };
        assert!(pc("").contains("-accel kvm -accel tcg"));
        assert_eq!(pc("-accel tcg").matches("-accel").count(), 1);
    }

    #[test]
    fn placeholders_of_another_monitor_become_words_of_the_shell() {
        let command =
            "vmm --net tap={tap},mac={mac} --net tap={tap2} -k {image} -c {append} > {console}";
        let line = command_line(&arm(Monitor::Other(command.into())), Path::new("/s/m"), None);
        assert_eq!(
            line,
            "vmm --net tap=wp-tap0,mac=52:54:00:00:00:01 --net tap=wp-tap1 -k '/x/my kernel.elf' \
             -c 'quiet ip='\\''1'\\''' > /dev/stdout"
        );
    }
}
