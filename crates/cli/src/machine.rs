//! Description of the machine, stored with each result.

use std::collections::BTreeMap;

use model::Machine;

/// Describes this machine, with the interface under test.
pub(crate) fn describe(nic: String) -> Machine {
    let found = host::machine::Machine::read();
    let mut notes = BTreeMap::new();
    let model = found.cpu_model.clone();
    if found.allowed_cpus.len() < 2 {
        let what = "only one CPU: both ends share it".to_owned();
        notes.insert("cpus".to_owned(), what);
    }
    Machine {
        id: found.id(),
        kernel: format!("{} {}", found.kernel_release, found.kernel_version),
        cpu: model,
        cpus: found.allowed_cpus.len() as u32,
        memory_bytes: found.memory_bytes,
        hypervisor: found.hypervisor.clone(),
        governor: found.governor.clone(),
        nic,
        load_x100: (found.load_average[0] * 100.0) as u32,
        notes,
    }
}
