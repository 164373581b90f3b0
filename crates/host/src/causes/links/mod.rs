//! Interfaces, their queues and wires.

mod copies;
mod interface;
mod shaper;
mod taps;

pub(super) use interface::offloads;

use super::Cause;

pub(super) const CAUSES: &[Cause] = &[
    copies::CAUSE,
    Cause { is_of_forwarding: true, ..Cause::new("channels", interface::channels) },
    Cause { is_of_forwarding: true, ..Cause::new("rings", interface::rings) },
    Cause::new("coalescing", interface::coalescing),
    Cause::new("napi", interface::napi),
    Cause { is_of_forwarding: true, ..Cause::new("xdp", interface::xdp) },
    Cause { is_of_forwarding: true, ..Cause::new("qdisc", interface::qdisc) },
    Cause { is_of_forwarding: true, ..Cause::new("shaper", shaper::check) },
    Cause { is_of_forwarding: true, ..Cause::new("taps", taps::check) },
];
