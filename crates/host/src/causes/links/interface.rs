//! Settings of an interface: queues, rings, interrupts, offloads, XDP and queueing discipline.

use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, Severity, finding};
use crate::net::{self, AttachedMode, ethtool};
use crate::tune::{Profile, Target};

pub(super) fn channels(view: &Evidence, notes: &mut Notes<'_>) {
    let cpus = view.system.online_cpus().len() as u32;
    if view.is_for(Profile::Latency) {
        return;
    }
    for link in view.interfaces() {
        let channels = view.system.within(|| ethtool::channels(link.index));
        let Some(now) = notes.ask(channels) else { continue };
        for (kind, used, most) in [
            ("rx", now.rx, now.rx_max),
            ("tx", now.tx, now.tx_max),
            ("combined", now.combined, now.combined_max),
        ] {
            let wanted = most.min(cpus);
            if most == 0 || used >= wanted || (kind != "combined" && now.combined_max > 0) {
                continue;
            }
            let command = format!("{}ethtool -L {} {kind}", view.prefix(), link.name);
            notes.find(
                finding(
                    Severity::Low,
                    format!("{} uses {used} of {most} {kind} queues", link.name),
                )
                .read(format!("ethtool channels of {}", link.name), format!("{kind} {used}"))
                .read("/sys/devices/system/cpu/online", format!("{cpus} CPUs"))
                .because(
                    "each queue is served by one CPU at a time \
                         (Documentation/networking/scaling.rst)",
                )
                .effect("flows use more CPUs; a single flow gains nothing")
                .risk("steering of the queues is reset")
                .change(format!("{command} {wanted}"), format!("{command} {used}"))
                .setting(
                    "channels",
                    &Target::Interface(link.name.clone()),
                    format!("{kind}={wanted}"),
                ),
            );
        }
    }
}

pub(in crate::causes) fn offloads(view: &Evidence, notes: &mut Notes<'_>) {
    if !view.is_for(Profile::Throughput) {
        return;
    }
    for link in view.interfaces() {
        let offloads = view.system.within(|| ethtool::offloads(link.index));
        let Some(offloads) = notes.ask(offloads) else { continue };
        for (feature, short, effect) in [
            ("rx-gro", "gro", "the stack processes many packets of a flow at once"),
            ("tx-generic-segmentation", "gso", "large packets cross the stack in one piece"),
            ("tx-tcp-segmentation", "tso", "the device splits large TCP packets"),
        ] {
            if offloads.get(feature).is_none_or(|state| state.is_on || !state.is_offered) {
                continue;
            }
            let command = format!("{}ethtool -K {} {short}", view.prefix(), link.name);
            notes.find(
                finding(Severity::Medium, format!("{short} is off on {}", link.name))
                    .read(format!("ethtool features of {}", link.name), format!("{feature} off"))
                    .because(
                        "each packet has the same cost in the stack, whatever its size \
                         (Documentation/networking/segmentation-offloads.rst)",
                    )
                    .effect(effect)
                    .change(format!("{command} on"), format!("{command} off"))
                    .setting(short, &Target::Interface(link.name.clone()), "on"),
            );
        }
    }
}

pub(super) fn rings(view: &Evidence, notes: &mut Notes<'_>) {
    for link in view.interfaces() {
        let rings = view.system.within(|| ethtool::rings(link.index));
        let Some(rings) = notes.ask(rings) else { continue };
        let counters = ["rx_missed_errors", "rx_fifo_errors", "rx_over_errors"];
        for counter in counters {
            let file = format!("{}/statistics/{counter}", link.name);
            let count = view.system.read_net(&file).ok().and_then(|text| text.parse::<u64>().ok());
            let Some(count) = count.filter(|count| *count > 0) else { continue };
            if rings.rx >= rings.rx_max {
                continue;
            }
            let command = format!("{}ethtool -G {} rx", view.prefix(), link.name);
            notes.find(
                finding(
                    Severity::High,
                    format!("{} has dropped packets for lack of descriptors", link.name),
                )
                .read(format!("/sys/class/net/{file}"), count.to_string())
                .read("ethtool rings", format!("rx {} of {}", rings.rx, rings.rx_max))
                .because(
                    "a burst that arrives while the CPU is busy must fit the ring \
                         (Documentation/networking/statistics.rst)",
                )
                .effect("longer bursts are received without loss")
                .risk("the link goes down briefly; more cache is used")
                .change(format!("{command} {}", rings.rx_max), format!("{command} {}", rings.rx))
                .setting(
                    "rings",
                    &Target::Interface(link.name.clone()),
                    format!("rx={}", rings.rx_max),
                ),
            );
        }
    }
}

pub(super) fn coalescing(view: &Evidence, notes: &mut Notes<'_>) {
    if !view.is_for(Profile::Latency) {
        return;
    }
    for link in view.interfaces() {
        let now = view.system.within(|| ethtool::coalesce(link.index));
        let Some(now) = notes.ask(now) else { continue };
        let rx_us = now.rx_us.unwrap_or(0);
        let is_adaptive = now.is_adaptive_rx == Some(true);
        if rx_us == 0 && !is_adaptive {
            continue;
        }
        let command = format!("{}ethtool -C {}", view.prefix(), link.name);
        // A driver refuses the whole command for a parameter that it does not support.
        let quick =
            [now.is_adaptive_rx.map(|_| "adaptive-rx off"), now.rx_us.map(|_| "rx-usecs 0")];
        let planned =
            [now.is_adaptive_rx.map(|_| "adaptive-rx=off"), now.rx_us.map(|_| "rx-usecs=0")];
        let planned = planned.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let before = [
            now.is_adaptive_rx.map(|on| format!("adaptive-rx {}", if on { "on" } else { "off" })),
            now.rx_us.map(|us| format!("rx-usecs {us}")),
        ];
        let [quick, before] = [
            quick.into_iter().flatten().collect::<Vec<_>>().join(" "),
            before.into_iter().flatten().collect::<Vec<_>>().join(" "),
        ];
        notes.find(
            finding(Severity::Medium, format!("{} delays interrupts", link.name))
                .read(format!("ethtool coalescing of {}", link.name), before.clone())
                .because("a packet waits that long before the CPU is notified (ethtool(8), -C)")
                .effect("up to that much less latency")
                .risk("more interrupts, and more CPU time at high rates")
                .change(format!("{command} {quick}"), format!("{command} {before}"))
                .setting("coalescing", &Target::Interface(link.name.clone()), planned),
        );
    }
}

pub(super) fn napi(view: &Evidence, notes: &mut Notes<'_>) {
    if !view.is_for(Profile::Latency) {
        return;
    }
    for link in view.interfaces() {
        let target = Target::Interface(link.name.clone());
        for (knob, file, what, why, effect) in [
            (
                "threaded-napi",
                "threaded",
                "runs NAPI in threads",
                "a kernel thread has to be woken for each batch \
                 (Documentation/networking/napi.rst, threaded NAPI)",
                "saves a wake-up",
            ),
            (
                "gro-flush-timeout",
                "gro_flush_timeout",
                "holds merged packets until a timer",
                "packets wait for others to merge with until the timer, in nanoseconds, expires \
                 (Documentation/networking/napi.rst, software IRQ coalescing)",
                "up to that much less latency",
            ),
            (
                "napi-defer-hard-irqs",
                "napi_defer_hard_irqs",
                "keeps interrupts off after empty polls",
                "the device's interrupt stays off while a timer polls in its place \
                 (Documentation/networking/napi.rst, software IRQ coalescing)",
                "packets are processed when they arrive",
            ),
        ] {
            let Some(value) = notes.ask(view.read(knob, &target)) else { continue };
            if value == "0" {
                continue;
            }
            let path = format!("/sys/class/net/{}/{file}", link.name);
            notes.find(
                finding(Severity::Low, format!("{} {what}", link.name))
                    .read(&path, &value)
                    .because(why)
                    .effect(effect)
                    .risk("more CPU time at high rates")
                    .change(
                        view.in_sysfs(&format!("echo 0 > {path}")),
                        view.in_sysfs(&format!("echo {value} > {path}")),
                    )
                    .setting(knob, &target, "0"),
            );
        }
    }
}

pub(super) fn xdp(view: &Evidence, notes: &mut Notes<'_>) {
    for link in view.interfaces() {
        for attached in link.xdp.iter().filter(|attached| attached.mode == AttachedMode::Skb) {
            let command = format!("{}ip link set {}", view.prefix(), link.name);
            notes.find(
                finding(
                    Severity::Medium,
                    format!("an XDP program runs in generic mode on {}", link.name),
                )
                .read(
                    format!("IFLA_XDP_SKB_PROG_ID of {}", link.name),
                    format!("program {} (`bpftool prog show id {0}`)", attached.program_id),
                )
                .because(
                    "the frame already has a socket buffer, which is linearised and gets \
                         headroom, by a copy if necessary (bpf(2), XDP_FLAGS_SKB_MODE)",
                )
                .effect("saves the copy, and the program if it is not needed")
                .risk("its owner may need it: ask first, or attach it in native mode")
                .change(
                    format!("{command} xdpgeneric off"),
                    "attach it again with the program that attached it",
                ),
            );
        }
    }
}

/// Packets that one interrupt may deliver.
const BURST: u32 = 64;

pub(super) fn qdisc(view: &Evidence, notes: &mut Notes<'_>) {
    for link in view.interfaces() {
        let Some(qdisc) = notes.ask(view.system.within(|| net::root_qdisc(link.index))).flatten()
        else {
            continue;
        };
        let name = &link.name;
        let length = notes.ask(view.read("tx-queue-len", &Target::Interface(name.clone())));
        let length: u32 = length.and_then(|text| text.parse().ok()).unwrap_or(u32::MAX);
        let limit = match (qdisc.kind.as_str(), qdisc.limit) {
            ("pfifo", Some(limit)) => limit,
            ("pfifo_fast", _) => length,
            _ => continue,
        };
        if limit >= BURST {
            continue;
        }
        let command = format!("{}tc qdisc", view.prefix());
        notes.find(
            finding(Severity::Medium, format!("{name} has a send queue of only {limit} packets"))
                .read(format!("RTM_GETQDISC of {name}"), format!("{} limit {limit}", qdisc.kind))
                .read(format!("/sys/class/net/{name}/tx_queue_len"), length.to_string())
                .because("a burst from one interrupt does not fit and is dropped (tc-pfifo(8))")
                .effect("bursts are sent without loss")
                .risk("a longer queue may add latency")
                .change(
                    format!("{command} replace dev {name} root pfifo limit 1000"),
                    format!("{command} replace dev {name} root {} limit {limit}", qdisc.kind),
                ),
        );
    }
}
