//! MSG_ZEROCOPY: sends that keep the caller's pages, and the notifications of their end.
//!
//! Source: kernel documentation, networking/msg_zerocopy.rst.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use crate::socket;

const SO_ZEROCOPY: i32 = 60;
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;

/// Allows sends of the socket to be made without a copy ([`crate::udp::Batch::send_pinned`]).
///
/// UDP has it since Linux 5.0.
pub fn enable(fd: BorrowedFd<'_>) -> io::Result<()> {
    socket::set_int(fd, libc::SOL_SOCKET, SO_ZEROCOPY, 1)
}

/// Sends that the kernel has finished with: their buffers may be written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Number of the first: a socket counts its sends from 0, modulo 2^32.
    pub first: u32,
    /// Number of the last.
    pub last: u32,
    /// The kernel copied them after all.
    pub is_copied: bool,
}

/// The next notification of the socket's error queue; `None` if there is none.
pub fn finished(fd: BorrowedFd<'_>) -> io::Result<Option<Finished>> {
    loop {
        // As u64, for the alignment of its headers.
        let mut control = [0u64; 32];
        // SAFETY: all-zero is a valid msghdr.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the header describes `control`, and both outlive the call.
        let rc = unsafe {
            libc::recvmsg(fd.as_raw_fd(), &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
        };
        if rc < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: the header describes control messages that the kernel wrote.
        let mut at = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
        while let Some(message) = NonNull::new(at) {
            // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR yield only whole headers in the area.
            let cmsg = unsafe { message.read_unaligned() };
            if matches!(
                (cmsg.cmsg_level, cmsg.cmsg_type),
                (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
            ) {
                // SAFETY: the data of a whole header begins right behind it, in the area.
                let value = unsafe { libc::CMSG_DATA(message.as_ptr()) };
                // SAFETY: this message carries a sock_extended_err.
                let error = unsafe { value.cast::<libc::sock_extended_err>().read_unaligned() };
                if error.ee_origin == SO_EE_ORIGIN_ZEROCOPY {
                    return Ok(Some(Finished {
                        first: error.ee_info,
                        last: error.ee_data,
                        is_copied: error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED != 0,
                    }));
                }
            }
            // SAFETY: `at` is a whole header of the control area.
            at = unsafe { libc::CMSG_NXTHDR(&raw const header, at) };
        }
        // Another kind of error: the next message.
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;
    use crate::udp::Batch;

    #[test]
    fn each_send_is_reported_once_and_a_loopback_copies_it() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = receiver.local_addr().unwrap();
        enable(sender.as_fd()).unwrap();
        let mut batch = Batch::new(4, 1000).unwrap();
        for slot in 0..4 {
            batch.set(slot, 1000, Some(to), 0);
        }
        assert_eq!(batch.send_pinned(sender.as_fd(), 0, 4).unwrap(), 4);
        let mut numbers = Vec::new();
        for _ in 0..4 {
            receiver.recv(&mut [0; 1000]).unwrap();
        }
        let done = testkit::until(Duration::from_secs(10), || {
            while let Some(end) = finished(sender.as_fd()).unwrap() {
                assert!(end.is_copied, "loopback has no device to read the pages: {end:?}");
                numbers.extend(end.first..=end.last);
            }
            numbers.len() == 4
        });
        numbers.sort_unstable();
        assert!(done && numbers == [0, 1, 2, 3], "{numbers:?}");
    }
}
