//! Limits of a cloud or a hypervisor.

mod allowance;
mod balloon;
mod steal;

use super::Cause;
use super::evidence::Evidence;

pub(super) const CAUSES: &[Cause] = &[allowance::CAUSE, steal::CAUSE, balloon::CAUSE];

/// Maker and model of a virtual machine, as its firmware says: `Amazon EC2 c5n.large`.
fn machine(view: &Evidence) -> Option<String> {
    let read = |name: &str| view.system.read_host(&format!("sys/class/dmi/id/{name}")).ok();
    let words: Vec<String> = ["sys_vendor", "product_name"].into_iter().filter_map(read).collect();
    let text = crate::text::printable(&words.join(" "), 80);
    (!text.trim().is_empty()).then_some(text)
}
