//! Accesses that need not leave the guest: the kernel collects them or rings a bell.

use host::kvm::KvmError;

use super::nic::{Nic, VIRTIO_AT};
use super::shared::Shared;
use crate::lance::{RAP_WORD, RDP, Width, csr0};
use crate::virtio::{RX, TX, register};

/// Value that the guest writes to CSR0 to start transmission: TDMD and INEA.
const KICK: u16 = csr0::TDMD | csr0::INEA;
/// Address of a virtio card's doorbell.
const NOTIFY_AT: u64 = VIRTIO_AT + register::QUEUE_NOTIFY as u64;

/// Accesses that are registered with the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shortcuts {
    /// Port whose writes it collects.
    pub(super) rap: Option<u16>,
    /// Port whose demands ring the bell.
    doorbell: Option<u16>,
    /// Notifications of a virtio card ring it.
    notify: bool,
}

impl Shortcuts {
    /// Shortcuts that are right in the device's present state.
    fn wanted(shared: &Shared) -> Self {
        let device = shared.device_for_guest();
        let switches = &shared.switches;
        let lance = match &device.nic {
            Nic::Lance(lance) => lance,
            Nic::Virtio(card) => {
                let notify = switches.tdmd_doorbell && card.can_transmit();
                return Shortcuts { notify, ..Shortcuts::default() };
            }
        };
        // Only the 16-bit layout has shortcuts: it is what the drivers use.
        let base = lance
            .pci
            .io_base()
            .filter(|&base| base <= u16::MAX - 31 && lance.port(RAP_WORD, Width::Word).is_some());
        Shortcuts {
            rap: base.filter(|_| switches.rap_in_kernel).map(|base| base + u16::from(RAP_WORD)),
            doorbell: base
                .filter(|_| switches.tdmd_doorbell && lance.can_transmit())
                .map(|base| base + u16::from(RDP)),
            notify: false,
        }
    }

    /// Tells the kernel which accesses need not leave the guest now.
    pub(super) fn update(&mut self, shared: &Shared) -> Result<(), KvmError> {
        let wanted = Self::wanted(shared);
        let (machine, doorbell) = (&shared.machine, &shared.doorbell);
        if wanted.rap != self.rap {
            if let Some(port) = self.rap.take() {
                machine.uncoalesce(port, 2)?;
            }
            if let Some(port) = wanted.rap {
                machine.coalesce(port, 2)?;
                self.rap = Some(port);
            }
        }
        if wanted.doorbell != self.doorbell {
            if let Some(port) = self.doorbell.take() {
                machine.detach_doorbell(doorbell, port, KICK)?;
            }
            if let Some(port) = wanted.doorbell {
                machine.attach_doorbell(doorbell, port, KICK)?;
                self.doorbell = Some(port);
            }
        }
        if wanted.notify != self.notify {
            // New buffers only wake the thread, which then offers the frame that it holds.
            for (event, queue) in [(doorbell, TX), (&shared.wake, RX)] {
                if wanted.notify {
                    machine.attach_notify(event, NOTIFY_AT, queue.into())?;
                } else {
                    machine.detach_notify(event, NOTIFY_AT, queue.into())?;
                }
            }
            self.notify = wanted.notify;
        }
        Ok(())
    }
}
