//! Exits of the guest by handler and cause, and its idle time by three measures.
//!
//! The process counts the exits that reach it. The kernel counts all of them, and handles the rest itself; the
//! causes of those are known from what it left: recorded writes, doorbells, and the guest's own counts.

use guest_pages::report;
use model::total;
use vmm::Snapshot;

/// Exits by cause.
type Causes = Vec<(&'static str, u64)>;

/// Exits that reached the process. Their sum is that of all.
fn to_process(seen: &Snapshot) -> Causes {
    let exits = &seen.exits;
    let (device, demand) = (exits.device_count(), exits.demand_count);
    let address = total([exits.rap_read_count, exits.rap_write_count]);
    let status = total([exits.csr_read_counts[0], exits.csr_write_counts[0]]);
    // A Lance is demanded by CSR0, a virtio card by one of its other registers.
    let status = status.saturating_sub(demand);
    let interrupted = exits.interrupted_count;
    vec![
        ("process_exits_address_register_per_packet", address),
        ("process_exits_status_register_per_packet", status),
        ("process_exits_demand_per_packet", demand),
        (
            "process_exits_other_register_per_packet",
            device.saturating_sub(total([address, status, demand])),
        ),
        ("process_exits_interrupted_per_packet", interrupted),
        (
            "process_exits_other_per_packet",
            exits.count().saturating_sub(total([device, interrupted])),
        ),
    ]
}

/// Exits that the kernel handled; none where it does not count them. Their sum is that of all, as far as the
/// counts are of the same moment.
fn to_kernel(seen: &Snapshot) -> Causes {
    let Some(&all) = seen.kernel.get("exits") else { return Vec::new() };
    let [interrupts, halts] =
        ["irq_exits", "halt_exits"].map(|name| seen.kernel.get(name).copied().unwrap_or(0));
    let causes = [
        ("kernel_exits_recorded_per_packet", seen.exits.coalesced_count),
        ("kernel_exits_doorbell_per_packet", seen.work.doorbell_count),
        ("kernel_exits_controller_per_packet", seen.report[report::PIC_ACCESSES]),
        ("kernel_exits_host_interrupt_per_packet", interrupts),
        ("kernel_exits_halt_per_packet", halts),
    ];
    let handled = all.saturating_sub(seen.exits.count());
    let other = handled.saturating_sub(total(causes.map(|(_, count)| count)));
    let sums = [("kernel_exits_per_packet", handled), ("kernel_exits_other_per_packet", other)];
    causes.into_iter().chain(sums).collect()
}

/// Counts of the book that are divided by the number of frames.
pub(super) fn per_packet(seen: &Snapshot) -> Causes {
    let switches = ("vcpu_context_switches_per_packet", seen.vcpu.context_switch_count);
    to_process(seen).into_iter().chain(to_kernel(seen)).chain([switches]).collect()
}

/// Share of a whole, 1.0 at most.
fn share(part: u64, whole: u64) -> f64 {
    (part as f64 / whole.max(1) as f64).min(1.0)
}

/// Idle share of the measured part: by the guest's clock, by the CPU time of the vCPU's thread, and by the time
/// that the kernel had it halted, polling included.
pub(super) fn idle_shares(seen: &Snapshot) -> Vec<(&'static str, f64)> {
    let counted = &seen.report;
    let by_guest = share(counted[report::IDLE_TICKS], counted[report::TOTAL_TICKS]);
    let by_thread = 1.0 - share(seen.vcpu.cpu_ns(), seen.at_ns);
    let mut shares = vec![("guest_share_idle", by_guest), ("vcpu_share_idle", by_thread)];
    let halted = ["halt_wait_ns", "halt_poll_success_ns", "halt_poll_fail_ns"];
    let halted: Vec<u64> =
        halted.iter().filter_map(|name| seen.kernel.get(*name).copied()).collect();
    if !halted.is_empty() {
        shares.push(("kernel_share_halted", share(total(halted), seen.at_ns)));
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(causes: &Causes) -> u64 {
        causes.iter().map(|(_, count)| count).sum()
    }

    fn count(causes: &Causes, name: &str) -> u64 {
        let name = format!("{name}_per_packet");
        causes.iter().find(|cause| cause.0 == name).expect(&name).1
    }

    #[test]
    fn causes_of_a_lance_add_up() {
        let mut seen = Snapshot::default();
        let exits = &mut seen.exits;
        (exits.rap_read_count, exits.rap_write_count) = (1, 6);
        (exits.csr_read_counts[0], exits.csr_write_counts[0]) = (2, 3);
        (exits.csr_write_counts[4], exits.demand_count) = (4, 1);
        (exits.interrupted_count, exits.stray_count, exits.signal_count) = (5, 7, 2);
        let causes = to_process(&seen);
        assert_eq!(sum(&causes), seen.exits.count());
        assert_eq!(count(&causes, "process_exits_status_register"), 4);
        assert_eq!(count(&causes, "process_exits_other_register"), 4);
        assert_eq!(count(&causes, "process_exits_other"), 9);
    }

    #[test]
    fn causes_of_a_virtio_card_add_up() {
        let mut seen = Snapshot::default();
        (seen.exits.other_device_count, seen.exits.demand_count) = (10, 4);
        let causes = to_process(&seen);
        assert_eq!(sum(&causes), 10);
        assert_eq!(count(&causes, "process_exits_demand"), 4);
        assert_eq!(count(&causes, "process_exits_other_register"), 6);
    }

    #[test]
    fn kernel_has_the_exits_that_the_process_has_not() {
        let mut seen = Snapshot::default();
        assert!(to_kernel(&seen).is_empty(), "this kernel counts nothing");
        seen.kernel = [("exits", 30), ("irq_exits", 3), ("halt_exits", 2)]
            .map(|(name, count)| (name.to_owned(), count))
            .into();
        seen.exits.other_device_count = 10;
        (seen.exits.coalesced_count, seen.work.doorbell_count) = (4, 1);
        seen.report[report::PIC_ACCESSES] = 5;
        let causes = to_kernel(&seen);
        assert_eq!(count(&causes, "kernel_exits"), 20);
        assert_eq!(count(&causes, "kernel_exits_other"), 5);
        assert_eq!(sum(&causes), 20 + 20);
    }

    #[test]
    fn three_measures_of_idle_time_are_shares() {
        let mut seen = Snapshot { at_ns: 1000, ..Snapshot::default() };
        (seen.vcpu.user_ns, seen.vcpu.system_ns) = (100, 150);
        (seen.report[report::IDLE_TICKS], seen.report[report::TOTAL_TICKS]) = (1, 2);
        assert_eq!(idle_shares(&seen), [("guest_share_idle", 0.5), ("vcpu_share_idle", 0.75)]);
        seen.kernel =
            [("halt_wait_ns".to_owned(), 600), ("halt_poll_fail_ns".to_owned(), 900)].into();
        assert_eq!(idle_shares(&seen)[2], ("kernel_share_halted", 1.0));
    }
}
