//! Counters that wake whoever polls them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use vmm_sys_util::eventfd::EventFd;

use super::KvmError;

/// An eventfd: the kernel, or whoever calls, adds to it; reading takes all.
#[derive(Debug)]
pub struct Event {
    pub(super) fd: EventFd,
}

impl Event {
    /// One that is 0; reads never wait.
    pub fn new() -> Result<Self, KvmError> {
        let fd = EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)
            .map_err(|source: io::Error| KvmError::Failed { what: "eventfd", source })?;
        Ok(Event { fd })
    }

    /// Adds one.
    pub fn ring(&self) -> Result<(), KvmError> {
        self.fd.write(1).map_err(|source| KvmError::Failed { what: "write to an eventfd", source })
    }

    /// Takes all that was added since the last time; 0 when nothing was.
    pub fn take(&self) -> u64 {
        // The one error that a valid descriptor has is that there is nothing.
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
