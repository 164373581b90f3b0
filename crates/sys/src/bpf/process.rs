//! The process whose threads a program counts (bpf/process.h).

use super::object::is_first_pid_namespace;
use crate::perf::{SoftwareEvent, ThreadEvent};

/// The process as the kernel numbers it, for the programs' configuration; 0 outside of the first process namespace, where
/// [`recognising_events`] tell.
///
/// - `process`: id in the caller's process namespace.
pub(super) fn configured_process(process: u32) -> u32 {
    if is_first_pid_namespace() { process } else { 0 }
}

/// Events for program `switches`, which recognises the process by one of its threads; none in the first process
/// namespace. A thread that has ended recognises nothing.
pub(super) fn recognising_events(threads: &[u32]) -> impl Iterator<Item = SoftwareEvent> {
    let is_needed = !is_first_pid_namespace();
    let threads = threads.iter().filter(move |_| is_needed);
    threads.filter_map(|thread| SoftwareEvent::of_thread(ThreadEvent::ContextSwitch, *thread).ok())
}
