//! State shared by the threads of the monitor.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host::kvm::{Event, VirtualMachine};
use sys::clock::ThreadCpuClock;

use super::device::Device;
use super::switches::Switches;

/// State shared by both threads.
pub(super) struct Shared {
    pub(super) machine: Arc<VirtualMachine>,
    pub(super) device: Mutex<Device>,
    pub(super) switches: Switches,
    pub(super) stopping: AtomicBool,
    /// Rung by the kernel for the guest.
    pub(super) doorbell: Event,
    /// Rung by the processor's thread.
    pub(super) wake: Event,
    pub(super) worker_clock: Mutex<Option<ThreadCpuClock>>,
}

impl Shared {
    /// The device, for its own thread. A panic of the other thread does not make it unusable: the
    /// run ends anyway.
    pub(super) fn device(&self) -> MutexGuard<'_, Device> {
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        device.is_guest_waiting = false;
        device
    }

    /// The device, for the processor's thread.
    pub(super) fn device_for_guest(&self) -> MutexGuard<'_, Device> {
        let mut device = self.device();
        device.is_guest_waiting = true;
        device
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Wakes the device's thread.
    pub(super) fn wake(&self) {
        // Fails only if the eventfd counter overflows.
        let _ = self.wake.ring();
    }
}
