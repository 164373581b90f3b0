//! Settings that all namespaces share, and the NUMA node of the device.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, Severity, finding};
use crate::tune::{KnobError, Profile, Target, list_to_cpus};

pub(super) const SETTINGS: Cause = Cause {
    title: "Settings of all namespaces limit buffers, backlogs or busy polling",
    symptom: "bursts are lost although programs ask for large buffers; a program that waits is woken by interrupts",
    evidence: "net.core: rmem_max, wmem_max, netdev_max_backlog, netdev_budget below usual values, busy_poll 0 (judged for a profile)",
    remedy: "sysctl -w with the value of the finding",
    undo: "sysctl -w with the old value",
    references: &["Documentation/admin-guide/sysctl/net.rst"],
    ..Cause::new("host-settings", settings)
};

pub(super) const LOCALITY: Cause = Cause {
    title: "The application's CPU is on another NUMA node than the card",
    symptom: "each packet costs more on a machine with several sockets",
    evidence: "`/sys/class/net/IF/device/numa_node` against the CPU of --app-cpu",
    remedy: "run the application on a CPU of the card's node",
    undo: "taskset -c with the old CPU",
    references: &["Documentation/admin-guide/mm/numaperf.rst"],
    ..Cause::new("locality", locality)
};

/// Knobs that are judged, with the smallest value that raises no finding.
const BUSY: &[&str] = &["busy-poll", "busy-read"];
const ROOM: &[(&str, i64)] = &[("rmem-max", 1 << 20), ("wmem-max", 1 << 20)];
const BACKLOG: &[(&str, i64)] = &[("netdev-max-backlog", 1000), ("netdev-budget", 300)];

fn settings(view: &Evidence, notes: &mut Notes<'_>) {
    let mut host_only = Vec::new();
    let mut number = |knob: &'static str, notes: &mut Notes<'_>| -> Option<i64> {
        // Host settings that the namespace shows but cannot change are not judged.
        let knobs = crate::tune::find(knob)?;
        if let Err(KnobError::HostOnly { .. }) = knobs.probe(&view.system, &Target::Netns) {
            host_only.push(knob);
            return None;
        }
        notes.ask(view.read(knob, &Target::Netns))?.parse().ok()
    };
    for knob in BUSY {
        let now = number(knob, notes);
        if !view.is_for(Profile::Latency) || now != Some(0) {
            continue;
        }
        let name = knob.replace('-', "_");
        notes.find(
            finding(Severity::Info, format!("busy polling is off ({knob})"))
                .read(format!("/proc/sys/net/core/{name}"), "0")
                .because(
                    "a program that waits sleeps until an interrupt wakes it \
                     (Documentation/admin-guide/sysctl/net.rst, busy_poll)",
                )
                .effect("saves a wake-up, if the driver has NAPI")
                .risk("the CPU is busy while programs wait")
                .change(
                    format!("sysctl -w net.core.{name}=50"),
                    format!("sysctl -w net.core.{name}=0"),
                )
                .setting(knob, &Target::Netns, "50"),
        );
    }
    for (knob, least) in ROOM.iter().chain(BACKLOG) {
        let Some(now) = number(knob, notes).filter(|now| now < least) else { continue };
        // The buffers of TCP grow by themselves up to limits of their own.
        let is_of_datagrams = ROOM.iter().any(|(room, _)| *room == *knob);
        if view.profile.is_none() || view.is_for(Profile::Service) && is_of_datagrams {
            continue;
        }
        let name = format!("net.core.{}", knob.replace('-', "_"));
        notes.find(
            finding(Severity::Low, format!("{name} is {now}"))
                .read(format!("/proc/sys/{}", name.replace('.', "/")), now.to_string())
                .because(
                    "a burst that does not fit is dropped \
                     (Documentation/admin-guide/sysctl/net.rst)",
                )
                .effect("programs may use larger buffers, and bursts are not dropped")
                .risk("memory")
                .change(format!("sysctl -w {name}={least}"), format!("sysctl -w {name}={now}"))
                .setting(knob, &Target::Netns, least.to_string()),
        );
    }
    if !host_only.is_empty() {
        notes.fact(format!(
            "host-only and therefore not judged in this namespace: {}",
            host_only.join(", ")
        ));
    }
}

fn locality(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(app) = view.app_cpu else { return };
    for link in view.interfaces() {
        let file = format!("{}/device/numa_node", link.name);
        // -1: the machine or the device has no NUMA node.
        let node = view.system.read_net(&file).ok().and_then(|text| text.parse::<u32>().ok());
        let Some(node) = node else { continue };
        let list = format!("sys/devices/system/node/node{node}/cpulist");
        let Some(text) = view.system.read_host(&list).ok() else { continue };
        let Some(cpus) = list_to_cpus(&text).filter(|cpus| !cpus.contains(&app)) else { continue };
        let near = cpus.first().map_or("none".to_owned(), usize::to_string);
        notes.find(
            finding(Severity::Medium, format!("CPU {app} is far from the memory of {}", link.name))
                .read(format!("/sys/class/net/{file}"), node.to_string())
                .read(format!("/{list}"), text)
                .because(
                    "rings and packets are in the memory of the device's node, and each read crosses to \
                     it (Documentation/admin-guide/mm/numaperf.rst)",
                )
                .effect("reads of packets take less time")
                .risk("the other CPUs may be in use")
                .change(
                    format!("run the application on one of CPUs {near}..., e.g. taskset -c {near}"),
                    format!("taskset -c {app}"),
                ),
        );
    }
}
