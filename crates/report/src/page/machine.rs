//! The machine and the method in words.

use model::{Machine, Outcome};

use crate::answer::percent;
use crate::{units, wording};

fn load_average(machine: &Machine) -> String {
    let load_x100 = machine.load_x100;
    format!("{}.{:02}", load_x100 / 100, load_x100 % 100)
}

pub(super) fn machine(m: &Machine) -> Vec<(String, String)> {
    let mut items = vec![
        ("Kernel".to_string(), m.kernel.clone()),
        ("CPU".into(), m.cpu.clone()),
        ("CPUs used".into(), m.cpus.to_string()),
        ("Memory".into(), units::bytes(m.memory_bytes)),
        ("Interface".into(), m.nic.clone()),
        ("Hypervisor".into(), m.hypervisor.clone().unwrap_or_else(|| "none seen".into())),
        ("Governor".into(), m.governor.clone().unwrap_or_else(|| "none".into())),
        ("Load at the start".into(), format!("{} over one minute", load_average(m))),
        ("Machine id".into(), m.id.clone()),
    ];
    items.extend(m.notes.clone());
    items.extend(m.far.as_deref().map(|far| ("Far end".into(), far_line(far))));
    items
}

/// Parts of a line that the near and the far end share.
fn parts(m: &Machine) -> Vec<String> {
    let mut parts = vec![format!("kernel {}", m.kernel), m.cpu.clone()];
    parts.extend([units::plural(m.cpus, "CPU"), units::bytes(m.memory_bytes), m.nic.clone()]);
    parts.push(m.hypervisor.as_ref().map_or("no hypervisor seen".into(), |h| format!("under {h}")));
    parts.extend(m.governor.as_ref().map(|governor| format!("governor {governor}")));
    parts
}

fn joined(mut parts: Vec<String>) -> String {
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

/// The machine of the far end, of a run between two hosts.
fn far_line(m: &Machine) -> String {
    let mut parts = parts(m);
    parts.push(format!("machine id {}", m.id));
    joined(parts)
}

pub(super) fn machine_line(m: &Machine) -> String {
    let mut parts = parts(m);
    parts.push(format!("load {}", load_average(m)));
    parts.extend(m.notes.iter().map(|(name, value)| format!("{name} {value}")));
    parts.extend(m.far.as_deref().map(|far| format!("far end: {}", far_line(far))));
    joined(parts)
}

pub(super) fn method(outcome: &Outcome) -> String {
    let trials: u32 = outcome.arms.iter().map(|arm| arm.trials).sum();
    let arms = outcome.arms.iter().filter(|arm| arm.trials > 0).count();
    let settling =
        if outcome.schedule.settle { ", each after a settling trial of its arm" } else { "" };
    let starts = super::starts(&outcome.trust.starts, outcome.blocks);
    let starts = starts.map_or(String::new(), |starts| format!("; {starts}"));
    format!(
        "{} of {}, interleaved with seed {}; resolution {}; {}{settling} in {}; ended as {}{starts}",
        units::plural(outcome.blocks, "block"),
        units::plural(arms, "arm"),
        outcome.seed,
        percent(outcome.resolve - 1.0),
        units::plural(trials, "trial"),
        units::duration_ms(outcome.wall_ms),
        wording::ended(outcome.ended),
    )
}
