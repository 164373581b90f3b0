//! Clocks that time stamps come from: the system's, and those of devices.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, Severity, finding};
use crate::net::{NetError, ethtool, xdp_hints};
use crate::tune::Profile;
use sys::uring::{ZeroCopyReceive, zero_copy_receive};

pub(super) const CAUSE: Cause = Cause {
    title: "Time stamps come from a slow or a free-running clock",
    symptom: "programs that stamp packets use much CPU time; one-way delays between hosts are negative or drift",
    evidence: "`current_clocksource` is hpet or acpi_pm; a PTP clock of a card without ptp4l, phc2sys or chronyd (judged for the profile latency)",
    remedy: "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource; ptp4l and phc2sys for the card",
    undo: "write the old source; stop them",
    references: &["Documentation/timers/timekeeping.rst", "Documentation/driver-api/ptp.rst"],
    ..Cause::new("clocks", check)
};

const SOURCE: &str = "sys/devices/system/clocksource/clocksource0";
/// Clock sources that a program reads without a system call.
const QUICK: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];
/// Programs that set a device's clock, or the system's by it.
const KEEPERS: [&str; 4] = ["ptp4l", "phc2sys", "ts2phc", "chronyd"];

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    if !view.is_for(Profile::Latency) {
        return;
    }
    source(view, notes);
    let keepers: Vec<String> = KEEPERS
        .iter()
        .filter_map(|name| Some(format!("{name} ({})", view.process(name)?)))
        .collect();
    devices(view, &keepers, notes);
    hints(view, notes);
    // The kernel's own clock; a recorded machine has none.
    if view.system.place().root.is_none() {
        notes.fact(match sys::clock::host_error_ns() {
            Some(error_ns) => {
                format!("the system's clock is synchronised, within {} us", error_ns / 1000)
            }
            None => {
                "the system's clock is not synchronised: one-way times between hosts do not hold"
                    .to_owned()
            }
        });
    }
}

fn source(view: &Evidence, notes: &mut Notes<'_>) {
    let file = format!("{SOURCE}/current_clocksource");
    // Absent in containers without sysfs.
    let Ok(now) = view.system.read_host(&file) else { return };
    let offered = view.system.read_host(&format!("{SOURCE}/available_clocksource"));
    let offered = offered.unwrap_or_default();
    if QUICK.contains(&now.as_str()) {
        return;
    }
    let quick = QUICK.iter().find(|quick| offered.split_ascii_whitespace().any(|o| o == **quick));
    let change = match quick {
        Some(quick) => format!("echo {quick} > /{file}"),
        None => "see the kernel's log for the reason why tsc is not offered".to_owned(),
    };
    notes.find(
        finding(Severity::Medium, format!("the clock is read from {now}"))
            .read(format!("/{file}"), &now)
            .read(format!("/{SOURCE}/available_clocksource"), offered)
            .because(
                "each reading of the time is a system call or an access to a slow device \
                 (Documentation/timers/timekeeping.rst)",
            )
            .effect("a time stamp takes tens of nanoseconds instead of a microsecond")
            .risk("the kernel leaves tsc when it is not stable")
            .change(change, format!("echo {now} > /{file}")),
    );
}

/// Metadata of frames that the path's drivers name, receive and send stamps among it.
fn hints(view: &Evidence, notes: &mut Notes<'_>) {
    for link in view.interfaces() {
        // A kernel before 6.6 names none.
        if let Ok(hints) = view.system.within(|| xdp_hints(link.index)) {
            notes.fact(format!(
                "metadata of AF_XDP frames that the driver of {} names: {hints}",
                link.name
            ));
        }
        let name = &link.name;
        let asked = view.system.within(|| {
            let what = "asking io_uring for zero-copy receive".to_owned();
            zero_copy_receive(link.index).map_err(|source| NetError::Io { what, source })
        });
        // Without CAP_NET_ADMIN there is no answer.
        if let Ok(answer) = asked {
            notes.fact(match answer {
                ZeroCopyReceive::Offered => {
                    format!("zero-copy receive of TCP by io_uring: {name} offers it")
                }
                ZeroCopyReceive::NoDriver(why) => format!(
                    "zero-copy receive of TCP by io_uring: unsupported, the driver of {name} has no queues with \
                     memory of programs (io_uring_register: {why})"
                ),
                ZeroCopyReceive::NoKernel(why) => format!(
                    "zero-copy receive of TCP by io_uring: unsupported, it needs Linux 6.15 with \
                     CONFIG_IO_URING_ZCRX (io_uring_register: {why})"
                ),
            });
        }
    }
}

/// Clocks of the path's devices, and programs that keep them.
fn devices(view: &Evidence, keepers: &[String], notes: &mut Notes<'_>) {
    for link in view.interfaces() {
        // Not every driver answers; without an answer there is no clock to keep.
        let asked = view.system.within(|| ethtool::timestamping(link.index));
        let Some(clock) = asked.ok().and_then(|stamps| stamps.clock_index) else { continue };
        if !keepers.is_empty() {
            let by = keepers.join(", ");
            notes.fact(format!("clock of {}: /dev/ptp{clock}; {by} runs", link.name));
            continue;
        }
        notes.find(
            finding(Severity::Info, format!("the clock of {} runs by itself", link.name))
                .read("ETHTOOL_A_TSINFO_PHC_INDEX", format!("/dev/ptp{clock}"))
                .read("/proc/*/comm", format!("none of {}", KEEPERS.join(", ")))
                .because(
                    "its time stamps cannot be compared with the system's time, or with those of another \
                     host (Documentation/driver-api/ptp.rst)",
                )
                .effect("hardware stamps become usable for times between wire and program")
                .risk("none if this device's stamps are not used")
                .change(
                    format!("ptp4l -i {0} -m & phc2sys -s {0} -w", link.name),
                    "stop ptp4l and phc2sys",
                ),
        );
    }
}
