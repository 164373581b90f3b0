//! Bridged frames that pass the firewall of IP.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, FRAMES_MIN};
use crate::causes::finding::{Confidence, Notes, Severity, finding};

const SETTINGS: [&str; 3] =
    ["bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables"];

pub(super) const CAUSE: Cause = Cause {
    title: "Bridged frames pass IP's firewall hooks without any rule there",
    symptom: "a bridge forwards fewer frames after a firewall or container tool loaded br_netfilter",
    evidence: "net.bridge.bridge-nf-call-iptables, functions hooked into the bridge, and their runs, counted by the \
               observer (`doctor --observe 5s`)",
    remedy: "`sysctl -w net.bridge.bridge-nf-call-iptables=0`, and ip6tables and arptables alike",
    undo: "`sysctl -w net.bridge.bridge-nf-call-iptables=1`",
    references: &[
        "Documentation/networking/ip-sysctl.rst (bridge-nf-call-iptables)",
        "https://wiki.libvirt.org/Net.bridge.bridge-nf-call_and_sysctl.conf.html",
    ],
    is_of_forwarding: true,
    ..Cause::new("bridge-netfilter", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let is_on = |name: &str| evidence.sysctl(&format!("net/bridge/{name}")).as_deref() == Some("1");
    let on: Vec<&str> = SETTINGS.into_iter().filter(|name| is_on(name)).collect();
    let Some(bridge) = evidence.interfaces().find(|link| link.kind.as_deref() == Some("bridge"))
    else {
        return;
    };
    let ports = evidence.details.values().filter(|port| port.master == Some(bridge.index)).count();
    // Rules want these frames: container networks depend on it.
    let Some(rules) = notes.section(evidence.rules()) else { return };
    let chains = &rules.chains;
    let has_rules = chains.iter().any(|chain| !chain.rules.is_empty() && chain.family != "bridge");
    if on.is_empty() || ports < 2 || has_rules {
        return;
    }
    let hooks = evidence.observed.iter().flat_map(|observed| &observed.hooks);
    let hooks: Vec<_> = hooks.filter(|hook| hook.family == "bridge").collect();
    // A frame may run a hook again: br_netfilter takes it back.
    let frames = hooks.iter().map(|hook| hook.runs_count).min().unwrap_or(0);
    let functions: u64 = hooks.iter().map(|hook| hook.functions_count).sum();
    if evidence.observed.is_some() && frames < FRAMES_MIN {
        return;
    }
    let commands = |value: u32| {
        let set = on.iter().map(|name| format!("net.bridge.{name}={value}"));
        format!("{}sysctl -w {}", evidence.prefix(), set.collect::<Vec<_>>().join(" "))
    };
    let mut found = finding(
        Severity::Low,
        format!("frames of bridge {} pass IP's firewall, which has no rule", bridge.name),
    )
    .because(
        "br_netfilter takes each bridged frame for a routed one and back, at five hooks \
         (Documentation/networking/ip-sysctl.rst)",
    )
    .effect("saves the functions of br_netfilter for each frame")
    .risk("container networks (Docker, Kubernetes) and firewalls of virtual machines need it once they have rules")
    .change(commands(0), commands(1));
    for name in &on {
        found = found.read(format!("/proc/sys/net/bridge/{name}"), "1");
    }
    for hook in &hooks {
        found = found.read("runs of hooks (observer)", hook.text());
    }
    if functions > 0 {
        let each = functions as f64 / frames as f64;
        found.severity = Severity::Medium;
        found = found.seen(Confidence::Now).costs(format!(
            "{functions} functions for {frames} frames in the window: {each:.1} a frame"
        ));
    }
    notes.find(found);
}
