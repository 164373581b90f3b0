//! Description of a machine, stored with each result.

use std::collections::BTreeMap;

use host::net::{self, NetError, ethtool};
use model::Machine;

/// Describes this machine, with the interface under test.
pub fn describe_machine(nic: String) -> Machine {
    let found = host::machine::Machine::read();
    let mut notes = BTreeMap::new();
    if found.allowed_cpus.len() < 2 {
        notes.insert("cpus".to_owned(), "only one CPU: both ends share it".to_owned());
    }
    Machine {
        id: found.id(),
        kernel: format!("{} {}", found.kernel_release, found.kernel_version),
        cpu: found.cpu_model.clone(),
        cpus: found.allowed_cpus.len() as u32,
        memory_bytes: found.memory_bytes,
        hypervisor: found.hypervisor.clone(),
        governor: found.governor.clone(),
        nic,
        load_x100: (found.load_average[0] * 100.0) as u32,
        notes,
        far: None,
    }
}

/// An interface of the calling thread's namespace in words, such as `eth1 (ixgbe, 8 queues, MTU 1500)`.
///
/// - `driver`: `None` if it is not known.
pub fn describe_nic(ifindex: u32, driver: Option<&str>) -> Result<String, NetError> {
    let link = net::link(ifindex)?;
    let channels = ethtool::channels(ifindex).map(|channels| channels.rx_queues());
    let queues = channels.unwrap_or(link.rx_queue_count).max(1);
    let queues = if queues == 1 { "1 queue".to_owned() } else { format!("{queues} queues") };
    let driver = driver.map_or(String::new(), |driver| format!("{driver}, "));
    Ok(format!("{} ({driver}{queues}, MTU {})", link.name, link.mtu_bytes))
}

/// Identifies the running kernel: equal for ends on one machine, and different after each boot. `None` if it
/// cannot be read.
///
/// Source: random(4), /proc/sys/kernel/random/boot_id.
pub fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}
