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
    if has("kvm_exit") {
        add(figures, "outside_exits_count".into(), total(events, KvmEvent::Exit).count);
        for (detail, sum) in by_detail(events, KvmEvent::Exit) {
            add(figures, format!("outside_exits_{}_count", reason(detail)), sum.count);
        }
    }
    if has("kvm_entry") {
        add(figures, "outside_exits_ns".into(), total(events, KvmEvent::Exit).ns);
        for (detail, sum) in by_detail(events, KvmEvent::Exit) {
            add(figures, format!("outside_exits_{}_ns", reason(detail)), sum.ns);
        }
    }
    if has("kvm_userspace_exit") {
        let all = total(events, KvmEvent::ToProcess).count;
        add(figures, "outside_process_exits_count".into(), all);
        for (detail, sum) in by_detail(events, KvmEvent::ToProcess) {
            add(
                figures,
                format!("outside_process_exits_{}_count", process_reason(detail)),
                sum.count,
            );
        }
    }
    for (tracepoint, name, event) in [
        ("kvm_inj_virq", "outside_injections_count", KvmEvent::Injected),
        ("kvm_set_irq", "outside_interrupt_lines_count", KvmEvent::Line),
        ("kvm_msi_set_irq", "outside_interrupt_messages_count", KvmEvent::Message),
        ("kvm_fast_mmio", "outside_fast_doorbells_count", KvmEvent::Doorbell),
    ] {
        if has(tracepoint) {
            add(figures, name.into(), total(events, event).count);
        }
    }
    if has("kvm_vcpu_wakeup") {
        let (halted, polled) = (total(events, KvmEvent::Halted), total(events, KvmEvent::Polled));
        add(figures, "outside_halts_count".into(), halted.count.saturating_add(polled.count));
        add(figures, "outside_halts_polled_count".into(), polled.count);
        add(figures, "outside_halted_ns".into(), halted.ns.saturating_add(polled.ns));
    }
    for (name, count) in places(events, &has) {
        add(figures, name, count);
    }
}

/// Two reasons may have one name.
fn add(figures: &mut BTreeMap<String, f64>, name: String, value: u64) {
    *figures.entry(name).or_insert(0.0) += value as f64;
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

#[cfg(test)]
mod tests {
    use sys::bpf::kvm::KvmSum;

    use super::*;

    fn sum(thread: u32, event: KvmEvent, detail: u64, count: u64, ns: u64) -> KvmSum {
        KvmSum { thread, event, detail, count, ns }
    }

    fn figures(sums: Vec<KvmSum>, absent: &str) -> BTreeMap<String, f64> {
        let mut figures = BTreeMap::new();
        let events = KvmEvents { sums, ..KvmEvents::default() };
        add_to(&mut figures, &events, |tracepoint| tracepoint != absent);
        figures
    }

    #[test]
    fn exits_of_all_threads_add_up_by_the_name_of_their_reason() {
        let sums = vec![
            sum(1, KvmEvent::Exit, AMD << 32 | 0x7b, 5, 500),
            sum(2, KvmEvent::Exit, AMD << 32 | 0x7b, 1, 100),
            // Both are exceptions.
            sum(2, KvmEvent::Exit, AMD << 32 | 0x41, 2, 20),
            sum(2, KvmEvent::Exit, AMD << 32 | 0x4e, 3, 30),
            sum(2, KvmEvent::Exit, INTEL << 32 | 0x7b, 1, 1),
            sum(1, KvmEvent::ToProcess, 2, 4, 0),
            sum(1, KvmEvent::ToProcess, -4_i64 as u64, 1, 0),
        ];
        let figures = figures(sums, "kvm_entry");
        assert_eq!(figures["outside_exits_count"], 12.0);
        assert_eq!(figures["outside_exits_io_count"], 6.0);
        assert_eq!(figures["outside_exits_exception_count"], 5.0);
        assert_eq!(figures["outside_exits_reason_0x7b_count"], 1.0);
        assert_eq!(figures["outside_process_exits_interrupted_count"], 1.0);
        assert_eq!(figures["outside_process_exits_io_count"], 4.0);
        // Without the event of an entry there are no times.
        assert!(
            figures
                .keys()
                .all(|name| !name.starts_with("outside_exits") || name.ends_with("_count"))
        );
    }

    #[test]
    fn sixteen_places_are_named_and_the_others_summed() {
        let ports = (0..20).map(|port| sum(1, KvmEvent::PortWrite, port, 100 - port, 0)).collect();
        let figures = figures(ports, "");
        let named = figures.keys().filter(|name| name.starts_with("outside_port_")).count();
        assert_eq!(named, 16);
        assert_eq!(figures["outside_port_0x0_write_count"], 100.0);
        assert_eq!(figures["outside_other_places_count"], 84.0 + 83.0 + 82.0 + 81.0);
    }
}
