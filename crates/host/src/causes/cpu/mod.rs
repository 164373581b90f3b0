//! CPUs, interrupts and scheduling.

mod clocks;
mod constant_hash;
mod cpu;
mod host;
mod interrupts;
mod isolation;
mod memory;
mod one_cpu;
mod softnet;
mod steering;

use super::Cause;

pub(super) const CAUSES: &[Cause] = &[
    Cause { is_of_forwarding: true, ..Cause::new("receive-steering", steering::receive) },
    Cause { is_of_forwarding: true, ..Cause::new("transmit-steering", steering::transmit) },
    Cause { is_of_forwarding: true, ..Cause::new("flow-hash", steering::flow_hash) },
    constant_hash::CAUSE,
    one_cpu::CAUSE,
    Cause::new("interrupts", interrupts::check),
    Cause { is_of_forwarding: true, ..Cause::new("softnet", softnet::check) },
    Cause::new("host-settings", host::settings),
    Cause::new("locality", host::locality),
    Cause::new("cpu", cpu::check),
    Cause::new("isolation", isolation::check),
    Cause::new("clocks", clocks::check),
    Cause::new("memory", memory::check),
];
