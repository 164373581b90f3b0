//! Suspension of a NIC's interrupts while an application polls.

use std::io;

use sys::keeper::{self, Claim, Owner};
use thiserror::Error;

use crate::net::{
    NapiSettings, NetError, napi_instances, napi_message, napi_settings_are_offered, set_napi,
};

/// Interrupts are suspended for at most 20 ms after epoll found events by busy polling. Without events, the
/// queue is polled twice, 200 µs apart, before its interrupt is enabled.
///
/// Source: the kernel's Documentation/networking/napi.rst, IRQ suspension: the timeout of the suspension
/// is far above that of the deferral.
pub const SUSPENDED: NapiSettings = NapiSettings {
    defer_hard_irqs: 2,
    gro_flush_timeout_ns: 200_000,
    irq_suspend_timeout_ns: 20_000_000,
};

/// The interrupt stays off, and the queue is polled every 200 µs, between the polls of a busy-polling application.
///
/// SO_PREFER_BUSY_POLL has no effect without both settings. It cannot be set on an AF_XDP socket that sends in
/// zero-copy mode (see [`sys::socket::set_busy_poll`]), so the count never runs out instead.
///
/// Source: the kernel's net/core/dev.c, napi_complete_done.
pub const DEFERRED: NapiSettings = NapiSettings {
    defer_hard_irqs: i32::MAX as u32,
    gro_flush_timeout_ns: 200_000,
    irq_suspend_timeout_ns: 0,
};

#[derive(Debug, Error)]
pub enum IrqSuspendError {
    #[error(transparent)]
    Net(#[from] NetError),
    #[error("{interface} has no NAPI instance: there is no interrupt to suspend")]
    NoNapi { interface: String },
    #[error("{interface} did not take the settings of NAPI instance {id}")]
    NotTaken { interface: String, id: u32 },
    #[error(
        "another run defers or suspends interrupts of {interface} in another way, or is that of another user; let it end"
    )]
    Taken { interface: String },
    #[error("cannot start the process that restores the settings of {interface}")]
    Keeper {
        interface: String,
        #[source]
        source: io::Error,
    },
}

/// While this lives, interrupts of an interface are suspended as long as epoll finds events by busy polling.
///
/// A forked process restores the former settings when the last value for the interface is dropped, in any
/// process, and also when its owner is killed or has given up its capabilities.
#[derive(Debug)]
#[must_use = "the former settings are restored when this is dropped"]
pub struct IrqSuspend {
    ids: Vec<u32>,
    _owner: Owner,
}

impl IrqSuspend {
    /// Succeeds if the kernel offers it and this process may set it. Errors: Linux before 6.13, or no
    /// CAP_NET_ADMIN.
    pub fn probe() -> Result<(), IrqSuspendError> {
        Ok(napi_settings_are_offered()?)
    }

    /// Sets all NAPI instances of an interface of the calling thread's network namespace, and reads them
    /// back.
    pub fn hold(ifindex: u32, interface: &str) -> Result<Self, IrqSuspendError> {
        Self::hold_settings(ifindex, interface, &SUSPENDED)
    }

    /// As [`Self::hold`], with [`DEFERRED`]: for sockets that poll their queue themselves.
    pub fn defer(ifindex: u32, interface: &str) -> Result<Self, IrqSuspendError> {
        Self::hold_settings(ifindex, interface, &DEFERRED)
    }

    fn hold_settings(
        ifindex: u32,
        interface: &str,
        settings: &NapiSettings,
    ) -> Result<Self, IrqSuspendError> {
        let broken = |source| IrqSuspendError::Keeper { interface: interface.to_owned(), source };
        let kind = if settings.irq_suspend_timeout_ns > 0 { 1 } else { 2 };
        let claim =
            keeper::claim(&format!("napi-{ifindex}"), kind).map_err(|e| match e.kind() {
                io::ErrorKind::ResourceBusy => {
                    IrqSuspendError::Taken { interface: interface.to_owned() }
                }
                _ => broken(e),
            })?;
        let before = napi_instances(ifindex)?;
        if before.is_empty() {
            return Err(IrqSuspendError::NoNapi { interface: interface.to_owned() });
        }
        let owner = match claim {
            Claim::Joined(owner) => owner,
            Claim::New(place) => {
                let restore = before.iter().map(|napi| napi_message(napi.id, &napi.settings));
                let restore = restore.collect::<Result<Vec<_>, _>>()?;
                // Before the change: a kill in between restores the settings that are still there.
                place.sends_at_end(libc::NETLINK_GENERIC, &restore).map_err(broken)?
            }
        };
        let ids: Vec<u32> = before.iter().map(|napi| napi.id).collect();
        // Also as a later owner: the first may not have come so far.
        for id in &ids {
            set_napi(*id, settings)?;
        }
        let now = napi_instances(ifindex)?;
        match ids
            .iter()
            .find(|id| !now.iter().any(|napi| napi.id == (**id) && napi.settings == *settings))
        {
            None => Ok(IrqSuspend { ids, _owner: owner }),
            Some(&id) => Err(IrqSuspendError::NotTaken { interface: interface.to_owned(), id }),
        }
    }

    pub fn napi_ids(&self) -> &[u32] {
        &self.ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_without_interrupts_is_refused_with_the_reason() {
        // Loopback has no NAPI instance.
        match IrqSuspend::hold(1, "lo") {
            Err(IrqSuspendError::Net(error)) => testkit::skip("kernel", error.to_string()),
            held => assert!(matches!(held, Err(IrqSuspendError::NoNapi { .. })), "{held:?}"),
        }
    }
}
