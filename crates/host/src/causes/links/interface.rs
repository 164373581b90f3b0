//! Settings of an interface: queues, rings, interrupts, offloads, XDP and queueing discipline.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::{AttachedMode, ethtool};
use crate::tune::{Profile, Target};

pub(super) const CHANNELS: Cause = Cause {
    title: "The interface uses fewer queues than it has and the host has CPUs",
    symptom: "one CPU is busy with packets and others are idle",
    evidence: "`ethtool -l IF`: current below maximum; `/sys/devices/system/cpu/online`",
    remedy: "ethtool -L IF combined N (or rx N, tx N)",
    undo: "ethtool -L IF with the old numbers",
    references: &["Documentation/networking/scaling.rst"],
    is_of_forwarding: true,
    ..Cause::new("channels", channels)
};

pub(super) const COALESCING: Cause = Cause {
    title: "The card delays its interrupts (moderation)",
    symptom: "the smallest latency is about that of rx-usecs, and it varies with the load",
    evidence: "`ethtool -c IF`: rx-usecs above 0, adaptive-rx on (judged for the profile latency)",
    remedy: "ethtool -C IF adaptive-rx off rx-usecs 0",
    undo: "ethtool -C IF with the old values",
    references: &["ethtool(8), -C", "https://github.com/Mellanox/sockperf/issues/21"],
    ..Cause::new("coalescing", coalescing)
};

pub(super) const NAPI: Cause = Cause {
    title: "Packets wait for a NAPI thread, for a timer, or for interrupts that are deferred",
    symptom: "latency has a floor of tens of microseconds that interrupts alone do not explain",
    evidence: "`/sys/class/net/IF/threaded`, gro_flush_timeout, napi_defer_hard_irqs (judged for the profile \
               latency)",
    remedy: "write 0 to the file",
    undo: "write the old value",
    references: &["Documentation/networking/napi.rst"],
    ..Cause::new("napi", napi)
};

pub(super) const XDP: Cause = Cause {
    title: "An XDP program runs in generic mode, on socket buffers",
    symptom: "XDP is slower than the stack without it, or an XDP program sees merged or copied packets",
    evidence: "`ip link`: xdpgeneric (IFLA_XDP_SKB_PROG_ID)",
    remedy: "attach it in native mode, or detach it: ip link set IF xdpgeneric off",
    undo: "attach it again with the program that attached it",
    reasons: &["XDP"],
    references: &["bpf(2), XDP_FLAGS_SKB_MODE"],
    is_of_forwarding: true,
    ..Cause::new("xdp", xdp)
};

pub(super) const QDISC: Cause = Cause {
    title: "The send queue is too short for a burst, or a real card has none",
    symptom: "bursts lose packets on the way out, at any average rate",
    evidence: "`tc qdisc`: pfifo or pfifo_fast with fewer than 64 packets, tx_queue_len of 0 or 1, noqueue at a \
               real card",
    remedy: "tc qdisc replace dev IF root pfifo limit 1000; ip link set IF txqueuelen 1000",
    undo: "the old limit",
    counters: &["tx_dropped"],
    references: &["tc-pfifo(8)", "net/core/dev.c, __dev_queue_xmit"],
    is_of_forwarding: true,
    ..Cause::new("qdisc", qdisc)
};

fn channels(view: &Evidence, notes: &mut Notes<'_>) {
    let cpus = view.system.online_cpus().len() as u32;
    if view.is_for(Profile::Latency) {
        return;
    }
    let Some(window) = notes.window(view) else { return };
    let is_wanted = view.is_for(Profile::Throughput) || view.is_for(Profile::Forwarding);
    for link in view.interfaces() {
        // Nearly every veth has one queue of several: without packets it costs nothing.
        if !is_wanted && super::by_traffic(window, &link.name, super::BUSY_PER_S) == Severity::Low {
            continue;
        }
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

fn coalescing(view: &Evidence, notes: &mut Notes<'_>) {
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
        let Some(window) = notes.window(view) else { return };
        // A request and its answer each second wait as long as those of a busy host.
        let severity = super::by_traffic(window, &link.name, 2.0);
        notes.find(
            finding(severity, format!("{} delays interrupts", link.name))
                .read(format!("ethtool coalescing of {}", link.name), before.clone())
                .because("a packet waits that long before the CPU is notified (ethtool(8), -C)")
                .effect("up to that much less latency")
                .risk("more interrupts, and more CPU time at high rates")
                .change(format!("{command} {quick}"), format!("{command} {before}"))
                .setting("coalescing", &Target::Interface(link.name.clone()), planned),
        );
    }
}

fn napi(view: &Evidence, notes: &mut Notes<'_>) {
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

fn xdp(view: &Evidence, notes: &mut Notes<'_>) {
    for link in view.interfaces() {
        for attached in link.xdp.iter().filter(|attached| attached.mode == AttachedMode::Skb) {
            let command = format!("{}ip link set {}", view.prefix(), link.name);
            let Some(window) = notes.window(view) else { return };
            notes.find(
                finding(
                    super::by_traffic(window, &link.name, super::BUSY_PER_S),
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
const BURST: u64 = 64;

fn qdisc(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    for qdisc in window.after.qdiscs.iter().filter(|qdisc| qdisc.is_root()) {
        let Some(link) = view.on_path(qdisc.interface) else { continue };
        let name = &link.name;
        if qdisc.kind == "noqueue" && link.kind.is_none() && !link.is_loopback {
            without_queue(view, window, name, notes);
            continue;
        }
        // The queue of a TUN or TAP device is behind this one: its reader's.
        if !qdisc.kind.starts_with("pfifo") || link.kind.as_deref() == Some("tun") {
            continue;
        }
        let length = notes.ask(view.read("tx-queue-len", &Target::Interface(name.clone())));
        let length: u64 = length.and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
        let limit = qdisc.own("limit").filter(|_| qdisc.kind == "pfifo").unwrap_or(length);
        if limit >= BURST {
            continue;
        }
        let dropped = window.link(name, "tx_dropped");
        let command = format!("{}tc qdisc", view.prefix());
        notes.find(
            finding(dropped.severity(), format!("{name} has a send queue of only {limit} packets"))
                .seen(without_losses(dropped))
                .read(format!("/sys/class/net/{name}/statistics/tx_dropped"), dropped.evidence())
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

/// Confidence in a setting that has lost as much as that, perhaps nothing.
fn without_losses(lost: Losses) -> Confidence {
    if lost.total == 0 { Confidence::SetUp } else { lost.confidence() }
}

/// A real card whose frames are dropped when its ring is full.
fn without_queue(view: &Evidence, window: &Window, name: &str, notes: &mut Notes<'_>) {
    let dropped = window.link(name, "tx_dropped");
    let command = format!("{}tc qdisc replace dev {name} root", view.prefix());
    notes.find(
        finding(dropped.severity(), format!("the card {name} has no send queue (noqueue)"))
            .seen(without_losses(dropped))
            .read(format!("RTM_GETQDISC of {name}"), "noqueue")
            .read(format!("/sys/class/net/{name}/statistics/tx_dropped"), dropped.evidence())
            .because("a frame that finds the ring full is dropped instead of waiting (net/core/dev.c, __dev_queue_xmit)")
            .effect("bursts are sent without loss")
            .risk("a little CPU time for each packet")
            .change(format!("{command} fq_codel"), format!("{command} noqueue")),
    );
}
