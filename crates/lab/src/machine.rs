//! Description of a machine, stored with each result.

use std::collections::BTreeMap;
use std::fs;

use host::net::{self, NetError, ethtool};
use host::text::printable;
use model::Machine;

/// Describes this machine, with the interface under test.
pub fn describe_machine(nic: String) -> Machine {
    let found = host::machine::MachineFacts::read();
    let mut notes = BTreeMap::new();
    if found.allowed_cpus.len() < 2 {
        notes.insert("cpus".to_owned(), "only one CPU: both ends share it".to_owned());
    }
    let [enabled, stat] = ["/proc/sys/kernel/sched_autogroup_enabled", "/proc/self/stat"]
        .map(|file| fs::read_to_string(file).unwrap_or_default());
    if let Some(note) = idle_nice(&enabled, &stat) {
        notes.insert("nice".to_owned(), note);
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

/// Warning of a niceness that the scheduler applies within the session alone; `None` if there is no reason.
///
/// - `enabled`: the file sched_autogroup_enabled of the kernel's settings.
/// - `stat`: /proc/self/stat. Source: proc_pid_stat(5), field 19.
fn idle_nice(enabled: &str, stat: &str) -> Option<String> {
    // The name before the bracket may have blanks.
    let (_, fields) = stat.rsplit_once(')')?;
    let nice: i8 = fields.split_whitespace().nth(16)?.parse().ok()?;
    (enabled.trim() == "1" && nice != 0).then(|| {
        format!(
            "{nice} has no effect against other sessions, because sched_autogroup is on; write it to \
             /proc/self/autogroup of the shell that starts wirepath, or set \
             kernel.sched_autogroup_enabled to 0"
        )
    })
}

/// An interface of the calling thread's namespace in words, such as `eth1 (ixgbe, firmware 0x80000d95, 8 queues, MTU 1500)`.
///
/// - `driver`: `None` if it is not known.
pub fn describe_nic(ifindex: u32, driver: Option<&str>) -> Result<String, NetError> {
    let link = net::link(ifindex)?;
    let channels = ethtool::channels(ifindex).map(|channels| channels.rx_queues());
    let queues = channels.unwrap_or(link.rx_queue_count).max(1);
    let queues = if queues == 1 { "1 queue".to_owned() } else { format!("{queues} queues") };
    let driver = driver.map_or(String::new(), |driver| format!("{driver}, "));
    let firmware = sys::ethtool::firmware(ifindex).map_or(String::new(), |version| {
        // A comma and a parenthesis part the facts of this text.
        let version = printable(&version, FIRMWARE_LEN_MAX).replace([',', '(', ')'], " ");
        format!("firmware {}, ", version.trim())
    });
    Ok(format!("{} ({driver}{firmware}{queues}, MTU {})", link.name, link.mtu_bytes))
}

/// Identifies the running kernel: equal for ends on one machine, and different after each boot. `None` if it
/// cannot be read.
///
/// Source: random(4), /proc/sys/kernel/random/boot_id.
pub fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// Longest version of an interface's firmware, letters.
const FIRMWARE_LEN_MAX: usize = 32;
/// Longest text of a far machine's description, letters.
const FACT_LEN_MAX: usize = 200;
const NOTE_COUNT_MAX: usize = 20;

fn fact(text: String) -> String {
    printable(&text, FACT_LEN_MAX)
}

/// A machine as a far end describes it, with short and printable texts: the far end may send any.
pub fn machine_of_far_end(machine: Machine) -> Machine {
    let notes = machine.notes.into_iter().take(NOTE_COUNT_MAX);
    Machine {
        id: fact(machine.id),
        kernel: fact(machine.kernel),
        cpu: fact(machine.cpu),
        hypervisor: machine.hypervisor.map(fact),
        governor: machine.governor.map(fact),
        nic: fact(machine.nic),
        notes: notes.map(|(name, value)| (fact(name), fact(value))).collect(),
        far: None,
        ..machine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_far_machine_are_short_and_printable() {
        let long = "x".repeat(10_000);
        let theirs = Machine {
            kernel: "6.18\x1b[2J\n".into(),
            cpu: long.clone(),
            notes: (0..100).map(|n| (n.to_string(), long.clone())).collect(),
            far: Some(Box::default()),
            ..Machine::default()
        };
        let machine = machine_of_far_end(theirs);
        assert_eq!((&*machine.kernel, machine.cpu.len()), ("6.18[2J", FACT_LEN_MAX));
        assert_eq!((machine.notes.len(), machine.far), (NOTE_COUNT_MAX, None));
    }

    fn stat(nice: i8) -> String {
        format!("7 (a b) c) S 1 7 7 0 -1 4194304 9 0 0 0 1 2 0 0 20 {nice} 1 0 99 1000 20")
    }

    #[test]
    fn nice_that_autogroup_makes_useless_is_said() {
        assert!(idle_nice("1\n", &stat(-20)).is_some_and(|note| note.starts_with("-20 has no")));
        assert!(idle_nice("1\n", &stat(19)).is_some());
        for (enabled, stat) in [("1\n", stat(0)), ("0\n", stat(-20)), ("", stat(-20))] {
            assert_eq!(idle_nice(enabled, &stat), None, "{enabled:?} {stat}");
        }
        assert_eq!(idle_nice("1", "damaged"), None);
        // This process's own file has the field.
        let own = fs::read_to_string("/proc/self/stat").expect("it is there");
        assert!(idle_nice("1", &own).is_none_or(|note| note.contains("has no effect")));
    }
}
