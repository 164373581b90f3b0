//! Steering of packets to CPUs and queues.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::causes::links::{BUSY_PER_S, by_traffic};
use crate::net::{Link, ethtool};
use crate::tune::{Profile, Target, cpus_to_mask, mask_to_cpus};

pub(super) const RECEIVE: Cause = Cause {
    title: "RPS hands packets to the wrong CPUs, to one, or to none",
    symptom: "one CPU is busy with packets and others are idle, or each packet costs the wake-up of another CPU",
    evidence: "`/sys/class/net/IF/queues/rx-*/rps_cpus`",
    remedy: "write a mask of CPUs, or 0 for latency",
    undo: "write the old mask",
    references: &["Documentation/networking/scaling.rst"],
    is_of_forwarding: true,
    ..Cause::new("receive-steering", receive)
};

pub(super) const TRANSMIT: Cause = Cause {
    title: "Some CPUs have no transmit queue of their own",
    symptom: "CPUs wait for the lock of a transmit queue",
    evidence: "`/sys/class/net/IF/queues/tx-*/xps_cpus` leave out CPUs",
    remedy: "a queue for each CPU",
    undo: "write the old masks",
    references: &["Documentation/networking/scaling.rst (XPS)"],
    is_of_forwarding: true,
    ..Cause::new("transmit-steering", transmit)
};

pub(super) const FLOW_HASH: Cause = Cause {
    title: "The card gives no hash of flows",
    symptom: "some CPU time for each packet with RPS or many transmit queues",
    evidence: "`ethtool -k`: receive-hashing off and not fixed",
    remedy: "ethtool -K IF rxhash on",
    undo: "ethtool -K IF rxhash off",
    references: &["Documentation/networking/scaling.rst"],
    is_of_forwarding: true,
    ..Cause::new("flow-hash", flow_hash)
};

const RPS: &str = "RPS hands each packet to a CPU chosen by its flow and wakes that CPU; all \
                   packets of one flow go to one CPU (Documentation/networking/scaling.rst)";

fn receive(view: &Evidence, notes: &mut Notes<'_>) {
    let online = view.system.online_cpus();
    for link in view.interfaces() {
        let queues = view.system.queues(&link.name, "rx").unwrap_or_default();
        for queue in &queues {
            let target = Target::RxQueue(link.name.clone(), *queue);
            let Some(mask) = notes.ask(view.read("rps-cpus", &target)) else { continue };
            let cpus = mask_to_cpus(&mask).unwrap_or_default();
            let file = format!("/sys/class/net/{}/queues/rx-{queue}/rps_cpus", link.name);
            let off = view.in_sysfs(&format!("echo 0 > {file}"));
            let undo = view.in_sysfs(&format!("echo {mask} > {file}"));
            if view.is_for(Profile::Latency) && !cpus.is_empty() {
                notes.find(
                    finding(
                        Severity::Medium,
                        format!("RPS on {target} adds a wake-up to each packet"),
                    )
                    .read(&file, &mask)
                    .because(RPS)
                    .effect("saves waking another CPU for each packet")
                    .change(&off, &undo)
                    .setting("rps-cpus", &target, "0"),
                );
            } else if cpus.len() == 1 && online.len() > 1 {
                let all = cpus_to_mask(&online);
                let Some(window) = notes.window(view) else { return };
                let found = finding(
                    by_traffic(window, &link.name, BUSY_PER_S),
                    format!("RPS of {target} passes all packets to CPU {}", cpus[0]),
                );
                notes.find(
                    counted(view, link, found)
                        .read(&file, &mask)
                        .read("/sys/devices/system/cpu/online", format!("{} CPUs", online.len()))
                        .because(RPS)
                        .effect("flows spread over the CPUs, or one hand-over less for each packet")
                        .risk("packets of different flows may overtake each other")
                        .change(
                            format!(
                                "{}   (or 0 to switch it off)",
                                view.in_sysfs(&format!("echo {all} > {file}"))
                            ),
                            &undo,
                        )
                        .setting("rps-cpus", &target, &all),
                );
            }
        }
        let overworked = view.on_one_cpu(link.index).filter(|_| !view.is_for(Profile::Latency));
        let is_judged = view.is_for(Profile::Forwarding) || overworked.is_some();
        if is_judged && queues.len() == 1 && online.len() > 1 {
            let target = Target::RxQueue(link.name.clone(), 0);
            let mask = view.read("rps-cpus", &target).unwrap_or_default();
            // Others hand frames over within the CPU that a wire brought them to.
            let is_wire =
                link.kind.is_none() || overworked.is_some() && link.kind.as_deref() == Some("veth");
            if is_wire && mask_to_cpus(&mask).is_some_and(|cpus| cpus.is_empty()) {
                let file = format!("/sys/class/net/{}/queues/rx-0/rps_cpus", link.name);
                let severity =
                    overworked.map_or(Severity::Low, |(_, cpu)| view.one_cpu_severity(cpu));
                let what = format!("{} has one receive queue and no RPS", link.name);
                notes.find(
                    counted(view, link, finding(severity, what))
                        .read(&file, mask)
                        .because(RPS)
                        .effect("many flows use many CPUs; a single flow gains nothing")
                        .risk("packets of different flows may overtake each other")
                        .change(
                            view.in_sysfs(&format!("echo {} > {file}", cpus_to_mask(&online))),
                            view.in_sysfs(&format!("echo 0 > {file}")),
                        )
                        .setting("rps-cpus", &target, cpus_to_mask(&online)),
                );
            }
        }
    }
}

/// Adds the counts of the observer, if one CPU handled all frames.
fn counted(view: &Evidence, link: &Link, found: Finding) -> Finding {
    match view.one_cpu_cost(link.index).zip(view.on_one_cpu(link.index)) {
        None => found,
        Some((cost, (received, cpu))) => {
            Finding { severity: found.severity.max(view.one_cpu_severity(cpu)), ..found }
                .seen(Confidence::Now)
                .costs(cost)
                .read(format!("received frames (observer): {}", link.name), received.text())
        }
    }
}

fn transmit(view: &Evidence, notes: &mut Notes<'_>) {
    let online = view.system.online_cpus();
    for link in view.interfaces() {
        let queues = view.system.queues(&link.name, "tx").unwrap_or_default();
        if queues.len() < 2 || online.len() < 2 {
            continue;
        }
        let mut masks = Vec::new();
        for queue in queues {
            let target = Target::TxQueue(link.name.clone(), queue);
            masks.extend(notes.ask(view.read("xps-cpus", &target)));
        }
        let served: Vec<Vec<usize>> =
            masks.iter().map(|mask| mask_to_cpus(mask).unwrap_or_default()).collect();
        let is_set = served.iter().any(|cpus| !cpus.is_empty());
        let unserved: Vec<usize> = online
            .iter()
            .copied()
            .filter(|cpu| !served.iter().any(|cpus| cpus.contains(cpu)))
            .collect();
        if is_set && !unserved.is_empty() {
            let files = format!("/sys/class/net/{}/queues/tx-*/xps_cpus", link.name);
            notes.find(
                finding(
                    Severity::Low,
                    format!("no transmit queue of {} belongs to CPU {}", link.name, unserved[0]),
                )
                .read(&files, masks.join(" "))
                .because(
                    "a CPU without a queue of its own shares one with others, and waits for \
                     its lock (Documentation/networking/scaling.rst, XPS)",
                )
                .effect("less waiting for the queue's lock")
                .change(
                    "wirepath tune plan --profile throughput plans a queue for each CPU",
                    format!("write {} back to {files}", masks.join(" ")),
                ),
            );
        }
    }
}

fn flow_hash(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    for link in view.interfaces() {
        // Without packets it costs nothing.
        if view.profile.is_none() && by_traffic(window, &link.name, BUSY_PER_S) == Severity::Low {
            continue;
        }
        let offloads = view.system.within(|| ethtool::offloads(link.index));
        let Some(offloads) = notes.ask(offloads) else { continue };
        let Some(hash) = offloads.get("rx-hashing") else { continue };
        let queues = view.system.queues(&link.name, "rx").unwrap_or_default().len();
        if hash.is_offered && !hash.is_on && queues > 1 {
            notes.find(
                finding(Severity::Low, format!("{} does not provide flow hashes", link.name))
                    .read(format!("ethtool features of {}", link.name), "rx-hashing off")
                    .because(
                        "without it the kernel computes a hash of each packet for RPS and for \
                         transmit queues (Documentation/networking/scaling.rst)",
                    )
                    .effect("saves some CPU time for each packet")
                    .change(
                        format!("{}ethtool -K {} rxhash on", view.prefix(), link.name),
                        format!("{}ethtool -K {} rxhash off", view.prefix(), link.name),
                    )
                    .setting("rx-hash", &Target::Interface(link.name.clone()), "on"),
            );
        }
    }
}
