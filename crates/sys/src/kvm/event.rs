//! Eventfds.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use vmm_sys_util::eventfd::EventFd;

use super::KvmError;

/// An eventfd: the kernel or a caller adds to it; reading resets it.
#[derive(Debug)]
pub struct Event {
    pub(super) fd: EventFd,
}

impl Event {
    /// An eventfd of value 0 that never blocks.
    pub fn new() -> Result<Self, KvmError> {
        let fd = EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)
            .map_err(|source: io::Error| KvmError::Failed { what: "eventfd", source })?;
        Ok(Event { fd })
    }

    pub fn ring(&self) -> Result<(), KvmError> {
        self.fd.write(1).map_err(|source| KvmError::Failed { what: "write to an eventfd", source })
    }

    /// Returns and resets the sum; 0 if nothing was added.
    pub fn take(&self) -> u64 {
        // The only error of a valid descriptor is WouldBlock.
        self.fd.read().unwrap_or(0)
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as `self`, which the result borrows.
        unsafe { BorrowedFd::borrow_raw(self.fd.as_raw_fd()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_add_up_until_taken() {
        let event = Event::new().unwrap();
        assert_eq!(event.take(), 0);
        event.ring().unwrap();
        event.ring().unwrap();
        assert_eq!((event.take(), event.take()), (2, 0));
    }
}
