//! Waiting for one socket in epoll, with the busy polling of an epoll instance.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::socket::Readiness;

/// An epoll instance that watches one descriptor, level-triggered.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    /// Watches `of` for arrivals. Errors of the descriptor are always reported.
    pub fn of(of: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: epoll_create1(2) returned a new descriptor without another owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: both descriptors are open, and the event outlives the call.
        let rc = unsafe {
            libc::epoll_ctl(fd.as_raw_fd(), libc::EPOLL_CTL_ADD, of.as_raw_fd(), &raw mut event)
        };
        if rc != 0 { Err(io::Error::last_os_error()) } else { Ok(Epoll { fd }) }
    }

    /// Waits at most `timeout`, rounded up to milliseconds. A signal ends the wait early with nothing
    /// ready.
    pub fn wait(&self, timeout: Duration) -> io::Result<Readiness> {
        let timeout_ms = timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: there is room for one event, and it outlives the call.
        let rc = unsafe { libc::epoll_wait(self.fd.as_raw_fd(), &raw mut event, 1, timeout_ms) };
        if rc < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
            event.events = 0;
        }
        let events = event.events as i32;
        Ok(Readiness {
            readable: events & libc::EPOLLIN != 0,
            writable: events & libc::EPOLLOUT != 0,
            failed: events & (libc::EPOLLERR | libc::EPOLLHUP) != 0,
        })
    }

    /// Makes each wait poll the device queue of the watched socket itself: for up to 50 µs a wait, 64
    /// packets a poll, preferred to the queue's interrupts. Has no effect while the socket knows no
    /// NAPI instance ([`incoming_napi_id`](crate::socket::incoming_napi_id)).
    ///
    /// Source: ioctl_eventpoll(2), EPIOCSPARAMS, Linux 6.9. Before it, ENOTTY.
    pub fn set_busy_poll(&self) -> io::Result<()> {
        let wanted = BusyPoll { usecs: 50, budget: 64, is_preferred: true };
        // SAFETY: all-zero is a valid epoll_params, integers.
        let mut params: libc::epoll_params = unsafe { std::mem::zeroed() };
        params.busy_poll_usecs = wanted.usecs;
        params.busy_poll_budget = wanted.budget;
        params.prefer_busy_poll = wanted.is_preferred.into();
        // SAFETY: the request reads one epoll_params, which outlives the call.
        let rc = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::EPIOCSPARAMS, &raw const params) };
        if rc != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The busy polling in effect.
    pub fn busy_poll(&self) -> io::Result<BusyPoll> {
        // SAFETY: all-zero is a valid epoll_params, integers.
        let mut params: libc::epoll_params = unsafe { std::mem::zeroed() };
        // SAFETY: the request writes one epoll_params, which outlives the call.
        let rc = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::EPIOCGPARAMS, &raw mut params) };
        if rc != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(BusyPoll {
            usecs: params.busy_poll_usecs,
            budget: params.busy_poll_budget,
            is_preferred: params.prefer_busy_poll != 0,
        })
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Busy polling of an epoll instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyPoll {
    /// Longest time of polling a wait, microseconds.
    pub usecs: u32,
    /// Most packets a poll.
    pub budget: u16,
    /// The queue's own interrupts are deferred meanwhile.
    pub is_preferred: bool,
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn an_arrival_ends_the_wait_and_stays_ready_until_it_is_read() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let epoll = Epoll::of(receiver.as_fd()).unwrap();
        assert!(!epoll.wait(Duration::ZERO).unwrap().readable);
        sender.send_to(b"x", receiver.local_addr().unwrap()).unwrap();
        for _ in 0..2 {
            assert!(epoll.wait(Duration::from_secs(60)).unwrap().readable);
        }
        receiver.recv(&mut [0; 8]).unwrap();
        assert!(!epoll.wait(Duration::ZERO).unwrap().readable);
    }

    #[test]
    fn busy_polling_is_set_and_read_back() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let epoll = Epoll::of(socket.as_fd()).unwrap();
        match epoll.set_busy_poll() {
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => {
                testkit::skip("kernel", "EPIOCSPARAMS needs Linux 6.9");
            }
            set => {
                set.unwrap();
                let wanted = BusyPoll { usecs: 50, budget: 64, is_preferred: true };
                assert_eq!(epoll.busy_poll().unwrap(), wanted);
            }
        }
    }
}
