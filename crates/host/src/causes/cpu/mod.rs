//! CPUs, interrupts and scheduling.

mod c_states;
mod capture_ring;
mod cfs;
mod clocks;
mod constant_hash;
mod host;
mod interrupts;
mod irq_place;
mod irq_rate;
mod isolation;
mod memory;
mod one_cpu;
mod power;
mod queues_on_one_cpu;
mod reorder_cpu;
mod softnet;
mod steering;

use super::Cause;
use super::evidence::Evidence;
use crate::tune::Target;

pub(super) const CAUSES: &[Cause] = &[
    softnet::CAUSE,
    one_cpu::CAUSE,
    queues_on_one_cpu::CAUSE,
    constant_hash::CAUSE,
    irq_place::CAUSE,
    irq_rate::CAUSE,
    interrupts::CAUSE,
    c_states::CAUSE,
    cfs::CAUSE,
    capture_ring::CAUSE,
    reorder_cpu::CAUSE,
    steering::RECEIVE,
    steering::TRANSMIT,
    steering::FLOW_HASH,
    host::SETTINGS,
    host::LOCALITY,
    power::CAUSE,
    isolation::CAUSE,
    clocks::CAUSE,
    memory::CAUSE,
];

/// A setting of the machine's first namespace, such as `net/core/netdev_budget`; `None` if it cannot be read.
fn host_number(view: &Evidence, file: &str) -> Option<u64> {
    let read = |path: &std::path::Path| std::fs::read_to_string(path);
    view.system.sysctl(&Target::Host, file, read).ok()?.trim().parse().ok()
}
