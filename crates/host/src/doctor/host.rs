//! Settings of the machine that all namespaces share, and where the device's memory is.

use super::{Notes, Scene, Severity, finding};
use crate::tune::{KnobError, Profile, Target, list_to_cpus};

/// Knobs that are judged, with the least value that raises no word.
const BUSY: &[&str] = &["busy-poll", "busy-read"];
const ROOM: &[(&str, i64)] = &[("rmem-max", 1 << 20), ("wmem-max", 1 << 20)];
const BACKLOG: &[(&str, i64)] = &[("netdev-max-backlog", 1000), ("netdev-budget", 300)];

pub(super) fn settings(scene: &Scene, notes: &mut Notes<'_>) {
    let mut host_only = Vec::new();
    let mut number = |knob: &'static str, notes: &mut Notes<'_>| -> Option<i64> {
        // What the namespace shows of the host's but cannot change is not its fault.
        let knobs = crate::tune::find(knob)?;
        if let Err(KnobError::HostOnly { .. }) = knobs.probe(&scene.system, &Target::Netns) {
            host_only.push(knob);
            return None;
        }
        notes.ask(scene.read(knob, &Target::Netns))?.parse().ok()
    };
    for knob in BUSY {
        let now = number(knob, notes);
        if !scene.is_for(Profile::Latency) || now != Some(0) {
            continue;
        }
        let name = knob.replace('-', "_");
        notes.find(
            finding(Severity::Info, format!("nobody asks the device while waiting ({knob})"))
                .read(format!("/proc/sys/net/core/{name}"), "0")
                .because(
                    "a program that waits sleeps until an interrupt wakes it \
                     (Documentation/admin-guide/sysctl/net.rst, busy_poll)",
                )
                .effect("a wake-up less, where the driver has NAPI")
                .risk("the CPU is busy while programs wait")
                .change(
                    format!("sysctl -w net.core.{name}=50"),
                    format!("sysctl -w net.core.{name}=0"),
                ),
        );
    }
    for (knob, least) in ROOM.iter().chain(BACKLOG) {
        let Some(now) = number(knob, notes).filter(|now| now < least) else { continue };
        if scene.profile.is_none() {
            continue;
        }
        let name = format!("net.core.{}", knob.replace('-', "_"));
        notes.find(
            finding(Severity::Low, format!("{name} is {now}"))
                .read(format!("/proc/sys/{}", name.replace('.', "/")), now.to_string())
                .because(
                    "a burst that finds no room is dropped \
                     (Documentation/admin-guide/sysctl/net.rst)",
                )
                .effect("programs may ask for room, and bursts are kept")
                .risk("memory")
                .change(format!("sysctl -w {name}={least}"), format!("sysctl -w {name}={now}")),
        );
    }
    if !host_only.is_empty() {
        notes.fact(format!(
            "host-only, and so not judged in this namespace: {}",
            host_only.join(", ")
        ));
    }
}

pub(super) fn locality(scene: &Scene, notes: &mut Notes<'_>) {
    let Some(app) = scene.app_cpu else { return };
    for link in scene.interfaces() {
        let file = format!("{}/device/numa_node", link.name);
        // -1 is a machine, or a device, without nodes.
        let node = scene.system.read_net(&file).ok().and_then(|text| text.parse::<u32>().ok());
        let Some(node) = node else { continue };
        let list = format!("sys/devices/system/node/node{node}/cpulist");
        let Some(text) = scene.system.read_host(&list).ok() else { continue };
        let Some(cpus) = list_to_cpus(&text).filter(|cpus| !cpus.contains(&app)) else { continue };
        let near = cpus.first().map_or("none".to_owned(), usize::to_string);
        notes.find(
            finding(Severity::Medium, format!("CPU {app} is far from the memory of {}", link.name))
                .read(format!("/sys/class/net/{file}"), node.to_string())
                .read(format!("/{list}"), text)
                .because(
                    "rings and packets lie in the device's node, and each read of them crosses to \
                     it (Documentation/admin-guide/mm/numaperf.rst)",
                )
                .effect("reads of packets take less time")
                .risk("the other CPUs may be taken")
                .change(
                    format!("run the application on one of CPUs {near}..., e.g. taskset -c {near}"),
                    format!("taskset -c {app}"),
                ),
        );
    }
}
