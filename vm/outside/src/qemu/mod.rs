//! Trace events of QEMU, as its log back end writes them.

mod book;
mod line;
mod log;
mod reader;

use std::path::Path;

pub(crate) use book::{Book, Stages};
pub use book::{CardCounts, LogCounts};
pub(crate) use log::TraceLog;
#[cfg(any(test, fuzzing))]
pub(crate) use reader::LogReader;

/// Events by pattern, so that QEMU gives no warning of one that it does not have.
const EVENTS: [&str; 11] = [
    "virtio_queue_notify*",
    "virtio_notify*",
    "virtio_set_status*",
    "virtqueue_pop*",
    "virtqueue_fill*",
    "virtio_mmio_setting_irq*",
    "pl011_write*",
    "serial_write*",
    "pl061_set_output*",
    "pcnet_isr_change*",
    "e1000e_irq_*notify*",
];

/// Arguments with which QEMU writes the events that are counted to `log`, each with its time. An event costs the
/// thread that has it 1 to 2 µs.
///
/// Give each machine a file of its own; it grows by about 80 bytes an event, and is emptied after each watch.
pub fn qemu_arguments(log: &Path) -> Vec<String> {
    let mut arguments: Vec<String> = ["-msg", "timestamp=on", "-D"].map(str::to_owned).into();
    arguments.push(log.display().to_string());
    for event in EVENTS {
        arguments.extend(["-trace".to_owned(), format!("enable={event}")]);
    }
    arguments
}
