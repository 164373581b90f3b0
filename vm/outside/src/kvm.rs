//! KVM's events of a machine, by name.

use std::collections::BTreeMap;

use sys::bpf::kvm::{KvmEvent, KvmEvents};

/// Ports and addresses that are named; further ones are summed.
const PLACES_MAX: usize = 16;

/// Kinds of processors above the reason. Source: the kernel's include/linux/kvm_host.h, KVM_ISA.
const INTEL: u64 = 1;
const AMD: u64 = 2;

/// Name of an exit's reason; both makers' reasons of one meaning have one name.
///
/// Source: the kernel's arch/x86/include/uapi/asm/vmx.h and svm.h.
pub(crate) fn reason(detail: u64) -> String {
    let number = detail & u64::from(u32::MAX);
    let name = match (detail >> 32, number) {
        (INTEL, 0) | (AMD, 0x40..=0x5f) => "exception",
        (INTEL, 1) | (AMD, 0x60) => "host_interrupt",
        (INTEL, 7) | (AMD, 0x64) => "interrupt_window",
        (INTEL, 10) | (AMD, 0x72) => "cpuid",
        (INTEL, 12) | (AMD, 0x78) => "halt",
        (INTEL, 18) | (AMD, 0x81) => "hypercall",
        (INTEL, 28) | (AMD, 0x00..=0x1f) => "control_register",
        (INTEL, 30) | (AMD, 0x7b) => "io",
        (INTEL, 31 | 32) | (AMD, 0x7c) => "msr",
        (INTEL, 40) | (AMD, 0x77) => "pause",
        (INTEL, 44..=45 | 56) | (AMD, 0x401..=0x402) => "interrupt_controller",
        (INTEL, 48) => "memory",
        (INTEL, 49) => "device_memory",
        (AMD, 0x400) => "memory",
        (INTEL, 52) => "timer",
        (INTEL, 54) | (AMD, 0x89) => "wbinvd",
        _ => return format!("reason_{number:#x}"),
    };
    name.into()
}

/// Reason for which the kernel left the handling to the process. Source: `<linux/kvm.h>`, KVM_EXIT.
fn process_reason(detail: u64) -> String {
    const INTERRUPTED: i64 = -4;
    match detail as i64 {
        INTERRUPTED => "interrupted".into(),
        errno @ ..0 => format!("error_{}", -errno),
        2 => "io".into(),
        5 => "halt".into(),
        6 => "memory".into(),
        8 => "shutdown".into(),
        10 => "interrupted".into(),
        24 => "system_event".into(),
        number => format!("reason_{number}"),
    }
}

/// Count and time of events with one detail, over all threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventSum {
    pub count: u64,
    pub ns: u64,
}

/// Sums of a kind of event over all threads, by detail.
pub(crate) fn by_detail(events: &KvmEvents, event: KvmEvent) -> BTreeMap<u64, EventSum> {
    let mut sums = BTreeMap::new();
    for sum in events.sums.iter().filter(|sum| sum.event == event) {
        let all: &mut EventSum = sums.entry(sum.detail).or_default();
        all.count = all.count.saturating_add(sum.count);
        all.ns = all.ns.saturating_add(sum.ns);
    }
    sums
}

fn total(events: &KvmEvents, event: KvmEvent) -> EventSum {
    by_detail(events, event).values().fold(EventSum::default(), |all, one| EventSum {
        count: all.count.saturating_add(one.count),
        ns: all.ns.saturating_add(one.ns),
    })
}

/// Adds counts and times to `figures`; those of tracepoints that this kernel lacks are left out.
pub(crate) fn add_to(
    figures: &mut BTreeMap<String, f64>,
    events: &KvmEvents,
    has: impl Fn(&str) -> bool,
) {
    let mut add = |name: String, value: u64| *figures.entry(name).or_insert(0.0) += value as f64;
    if has("kvm_exit") {
        add("outside_exits_count".into(), total(events, KvmEvent::Exit).count);
        for (detail, sum) in by_detail(events, KvmEvent::Exit) {
            add(format!("outside_exits_{}_count", reason(detail)), sum.count);
        }
    }
    if has("kvm_entry") {
        add("outside_exits_ns".into(), total(events, KvmEvent::Exit).ns);
        for (detail, sum) in by_detail(events, KvmEvent::Exit) {
            add(format!("outside_exits_{}_ns", reason(detail)), sum.ns);
        }
    }
    if has("kvm_userspace_exit") {
        let all = total(events, KvmEvent::ToProcess).count;
        add("outside_process_exits_count".into(), all);
        for (detail, sum) in by_detail(events, KvmEvent::ToProcess) {
            add(format!("outside_process_exits_{}_count", process_reason(detail)), sum.count);
        }
    }
    for (tracepoint, name, event) in [
        ("kvm_inj_virq", "outside_injections_count", KvmEvent::Injected),
        ("kvm_set_irq", "outside_interrupt_lines_count", KvmEvent::Line),
        ("kvm_msi_set_irq", "outside_interrupt_messages_count", KvmEvent::Message),
        ("kvm_fast_mmio", "outside_fast_doorbells_count", KvmEvent::Doorbell),
    ] {
        if has(tracepoint) {
            add(name.into(), total(events, event).count);
        }
    }
    if has("kvm_vcpu_wakeup") {
        let (halted, polled) = (total(events, KvmEvent::Halted), total(events, KvmEvent::Polled));
        add("outside_halts_count".into(), halted.count.saturating_add(polled.count));
        add("outside_halts_polled_count".into(), polled.count);
        add("outside_halted_ns".into(), halted.ns.saturating_add(polled.ns));
    }
    for (name, count) in places(events, &has) {
        add(name, count);
    }
}

/// Accesses by port or address, the most frequent ones; the others in a sum.
fn places(events: &KvmEvents, has: impl Fn(&str) -> bool) -> Vec<(String, u64)> {
    let mut places = Vec::new();
    for (tracepoint, kind, way, event) in [
        ("kvm_pio", "port", "read", KvmEvent::PortRead),
        ("kvm_pio", "port", "write", KvmEvent::PortWrite),
        ("kvm_mmio", "memory", "read", KvmEvent::MemoryRead),
        ("kvm_mmio", "memory", "write", KvmEvent::MemoryWrite),
        ("kvm_fast_mmio", "doorbell", "write", KvmEvent::Doorbell),
    ] {
        if has(tracepoint) {
            let all = by_detail(events, event).into_iter();
            places.extend(
                all.map(|(at, sum)| (format!("outside_{kind}_{at:#x}_{way}_count"), sum.count)),
            );
        }
    }
    places.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let others: u64 = places.iter().skip(PLACES_MAX).map(|(_, count)| *count).sum();
    if places.len() > PLACES_MAX {
        places.truncate(PLACES_MAX);
        places.push(("outside_other_places_count".into(), others));
    }
    places
}
