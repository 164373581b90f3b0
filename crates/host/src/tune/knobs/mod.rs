//! All knobs, grouped by the kernel interface that they use.

mod access;
mod channels;
mod coalescing;
mod command;
mod cpu;
mod file;
mod irq;
mod napi;
mod offload;
mod qdisc;
mod ring;
mod route;
mod rss;
mod steering;
mod sysctl;
mod tcp;

use super::knob::Knob;

/// The pair of commands; `tune` does not list it as a knob.
pub(super) const COMMAND: &dyn Knob = &command::CommandPair;

/// All knobs, those that disturb others first.
pub(super) fn all() -> Vec<&'static dyn Knob> {
    let mut knobs: Vec<&'static dyn Knob> =
        vec![&channels::Channels, &ring::Rings, &coalescing::Coalescing];
    knobs.extend(offload::OFFLOADS.iter().map(|knob| knob as &dyn Knob));
    // After the offload `ntuple`, which lets the device obey rules.
    knobs.extend([&rss::Table as &dyn Knob, &rss::HashFields, &steering::Rules]);
    knobs.push(&qdisc::RootQdisc);
    knobs.extend(file::FILES.iter().map(|knob| knob as &dyn Knob));
    // After the files, which set all instances of an interface.
    knobs.push(&napi::QueueNapi);
    knobs.push(&irq::Affinity);
    knobs.extend(sysctl::SYSCTLS.iter().chain(tcp::SYSCTLS).map(|knob| knob as &dyn Knob));
    knobs.extend(route::METRICS.iter().map(|knob| knob as &dyn Knob));
    knobs.extend([&cpu::Governor as &dyn Knob, &cpu::IdleStates]);
    knobs.extend(cpu::CHOICES.iter().map(|knob| knob as &dyn Knob));
    // Stable sort: otherwise knobs are applied in the order above.
    knobs.sort_by_key(|knob| !knob.disturbs());
    knobs
}
