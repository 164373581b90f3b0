//! A small kernel: fixed-priority preemptive tasks, counting semaphores, message queues, delays.
//!
//! Concepts follow µC/OS-II: 64 tasks of unique priorities, 0 the most urgent; the most urgent
//! ready task runs; an interrupt that readies a more urgent task ends in a context switch.
//! Priorities are never inherited.
//!
//! - [`scheduler`]: all decisions, as a state machine without hardware, tested on the host.
//! - `system`: the one running instance, on a bare machine: calls for tasks and interrupts.
//! - `arch`: context switch and interrupt masking: the only `unsafe`.
#![no_std]

#[cfg(test)]
extern crate std;

#[cfg(target_os = "none")]
mod arch;
mod bitmap;
pub mod scheduler;
#[cfg(target_os = "none")]
pub mod system;

pub use scheduler::{Overflow, PRIORITIES, Priority, TimedOut};
