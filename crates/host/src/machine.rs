//! Facts about the machine, recorded with every measurement.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

/// Facts about the machine, as far as they can be read without privileges.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineFacts {
    /// Release of the kernel, such as `6.18.4`.
    pub kernel_release: String,
    /// Build of the kernel, such as `#1 SMP PREEMPT_DYNAMIC`.
    pub kernel_version: String,
    pub cpu_model: String,
    pub allowed_cpus: Vec<usize>,
    pub memory_bytes: u64,
    /// Hypervisor; `None` on bare metal.
    pub hypervisor: Option<String>,
    /// Frequency governor of the first allowed CPU; `None` if the frequency cannot be set.
    pub governor: Option<String>,
    /// Mean number of runnable tasks over 1, 5 and 15 minutes.
    pub load_average: [f64; 3],
}

impl MachineFacts {
    pub fn read() -> Self {
        let allowed_cpus = sys::affinity::allowed_cpus().unwrap_or_default();
        let first = allowed_cpus.first().copied().unwrap_or(0);
        let cpuinfo = text("/proc/cpuinfo").unwrap_or_default();
        let governor = format!("/sys/devices/system/cpu/cpu{first}/cpufreq/scaling_governor");
        MachineFacts {
            kernel_release: text("/proc/sys/kernel/osrelease").unwrap_or_default(),
            kernel_version: text("/proc/sys/kernel/version").unwrap_or_default(),
            cpu_model: cpu_model(&cpuinfo),
            memory_bytes: memory_bytes(&text("/proc/meminfo").unwrap_or_default()),
            hypervisor: hypervisor(&cpuinfo),
            governor: text(governor),
            load_average: load_average(&text("/proc/loadavg").unwrap_or_default()),
            allowed_cpus,
        }
    }

    /// Identifies this machine in its current state: results with the same id are comparable.
    ///
    /// Twelve hexadecimal digits of a hash over all fields except the load. Memory counts in whole GiB,
    /// because the kernel's reservation differs from boot to boot. Host name and serial number are not
    /// included.
    pub fn id(&self) -> String {
        const GIB: u64 = 1 << 30;
        let governor = self.governor.as_deref().unwrap_or("-");
        let hypervisor = self.hypervisor.as_deref().unwrap_or("-");
        let facts = format!(
            "{}\n{}\n{}\n{:?}\n{}\n{hypervisor}\n{governor}",
            self.kernel_release,
            self.kernel_version,
            self.cpu_model,
            self.allowed_cpus,
            self.memory_bytes.div_ceil(GIB),
        );
        let digest = Sha256::digest(facts);
        digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Reads a file without surrounding white space; `None` if it is empty or not readable.
fn text(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// x86 names the model; Arm gives numbers for the maker and the part.
fn cpu_model(cpuinfo: &str) -> String {
    if let Some(name) = field(cpuinfo, "model name") {
        return name.to_owned();
    }
    match (field(cpuinfo, "CPU implementer"), field(cpuinfo, "CPU part")) {
        (Some(maker), Some(part)) => format!("{maker}:{part}"),
        _ => std::env::consts::ARCH.to_owned(),
    }
}

fn memory_bytes(meminfo: &str) -> u64 {
    let kib = field(meminfo, "MemTotal").and_then(|value| value.split(' ').next()?.parse().ok());
    kib.unwrap_or(0_u64) * 1024
}

fn load_average(loadavg: &str) -> [f64; 3] {
    let mut parts = loadavg.split(' ').map(|part| part.parse().unwrap_or(0.0));
    std::array::from_fn(|_| parts.next().unwrap_or(0.0))
}

/// Returns the hypervisor by its signature, or else by the vendor in the firmware of a virtual CPU.
fn hypervisor(cpuinfo: &str) -> Option<String> {
    if let Some(kind) = text("/sys/hypervisor/type") {
        return Some(kind);
    }
    let is_virtual = field(cpuinfo, "flags")
        .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    if !is_virtual {
        return None;
    }
    let named = cpuid_signature().or_else(|| text("/sys/class/dmi/id/sys_vendor"));
    Some(named.unwrap_or_else(|| "unnamed".to_owned()))
}

/// Twelve letters in EBX, ECX and EDX of leaf 0x4000_0000, such as `KVMKVMKVM`.
///
/// Source: the kernel's Documentation/virt/kvm/x86/cpuid.rst. Valid only if CPUID reports a
/// hypervisor.
#[cfg(target_arch = "x86_64")]
fn cpuid_signature() -> Option<String> {
    let leaf = std::arch::x86_64::__cpuid(0x4000_0000);
    let letters = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat();
    let name: String = letters
        .iter()
        .map(|&letter| char::from(letter))
        .take_while(|letter| letter.is_ascii_graphic() || *letter == ' ')
        .collect();
    // The signatures fill twelve letters; people know the products by shorter names.
    let name = match name.trim() {
        "" => return None,
        "KVMKVMKVM" => "KVM",
        "Microsoft Hv" => "Hyper-V",
        "VMwareVMware" => "VMware",
        "XenVMMXenVMM" => "Xen",
        "TCGTCGTCGTCG" => "QEMU TCG",
        "bhyve bhyve" => "bhyve",
        other => other,
    };
    Some(name.to_owned())
}

#[cfg(not(target_arch = "x86_64"))]
fn cpuid_signature() -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_the_facts_that_every_machine_has() {
        let machine = MachineFacts::read();
        assert!(!machine.kernel_release.is_empty() && !machine.kernel_version.is_empty());
        assert!(!machine.cpu_model.is_empty() && !machine.allowed_cpus.is_empty());
        assert!(machine.memory_bytes > 1 << 20);
    }

    #[test]
    fn the_id_follows_the_facts_but_not_the_load() {
        let machine = MachineFacts::read();
        let id = machine.id();
        assert_eq!(id.len(), 12);
        let busier = MachineFacts { load_average: [99.0; 3], ..machine.clone() };
        assert_eq!(busier.id(), id);
        let rebooted = MachineFacts { memory_bytes: machine.memory_bytes - 1, ..machine.clone() };
        assert_eq!(rebooted.id(), id);
        let slower = MachineFacts { governor: Some("powersave".into()), ..machine.clone() };
        assert_ne!(slower.id(), id);
        let other = MachineFacts { kernel_release: "0".into(), ..machine };
        assert_ne!(other.id(), id);
    }

    #[test]
    fn the_files_of_both_architectures_are_understood() {
        let x86 = "processor\t: 0\nmodel name\t: Some CPU @ 2GHz\nflags\t\t: fpu sse\n";
        assert_eq!(cpu_model(x86), "Some CPU @ 2GHz");
        assert_eq!(hypervisor(x86), text("/sys/hypervisor/type"));
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(cpu_model(arm), "0x41:0xd0c");
        assert_eq!(memory_bytes("MemTotal:       16384 kB\nMemFree: 1 kB\n"), 16 << 20);
        assert_eq!(load_average("0.50 1.25 2.00 3/400 5"), [0.5, 1.25, 2.0]);
    }
}
