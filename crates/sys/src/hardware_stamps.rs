//! Receive time stamps of a NIC: switched on for a run, and as before after it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::keeper::{self, Claim, Owner};
use crate::socket;

const SIOCSHWTSTAMP: u32 = 0x89b0;
const SIOCGHWTSTAMP: u32 = 0x89b1;
/// Every packet is stamped.
const HWTSTAMP_FILTER_ALL: i32 = 1;

/// struct hwtstamp_config of linux/net_tstamp.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Config {
    flags: i32,
    tx_type: i32,
    rx_filter: i32,
}

/// Keeps the receive stamps of an interface on.
///
/// A process that was forked for it sets the former configuration when the last value for the interface is
/// dropped, in any process, and also when its owner is killed or has given up its capabilities.
#[derive(Debug)]
pub struct HardwareStamps {
    owner: Option<Owner>,
}

impl HardwareStamps {
    /// Makes the driver stamp every packet that arrives, on an interface of the calling thread's network
    /// namespace.
    ///
    /// Errors: EOPNOTSUPP without hardware stamps, ERANGE if the driver stamps some packets only; EPERM
    /// without CAP_NET_ADMIN.
    pub fn hold(ifindex: u32) -> io::Result<Self> {
        let (fd, mut request) = socket::interface_request(ifindex)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        let claim = keeper::claim(&format!("stamps-{ifindex}"), 1)?;
        let mut before = Config::default();
        call(&fd, &mut request, SIOCGHWTSTAMP, &mut before)?;
        let is_on = before.rx_filter == HWTSTAMP_FILTER_ALL;
        let owner = match claim {
            Claim::New(_) if is_on => None,
            Claim::Joined(owner) => Some(owner),
            // Before the change: a kill in between restores what is there already.
            Claim::New(place) => Some(place.keep(fd.as_fd(), || restore(&fd, request, before))?),
        };
        if is_on {
            return Ok(HardwareStamps { owner });
        }
        let mut config = Config { rx_filter: HWTSTAMP_FILTER_ALL, ..before };
        call(&fd, &mut request, SIOCSHWTSTAMP, &mut config)?;
        // The driver answers with the filter that it took.
        match config.rx_filter {
            HWTSTAMP_FILTER_ALL => Ok(HardwareStamps { owner }),
            _ => Err(io::Error::from_raw_os_error(libc::ERANGE)),
        }
    }

    /// False if they were on before any owner came.
    pub fn changes(&self) -> bool {
        self.owner.is_some()
    }
}

fn call(fd: &OwnedFd, request: &mut libc::ifreq, what: u32, config: &mut Config) -> io::Result<()> {
    request.ifr_ifru.ifru_data = std::ptr::from_mut(config).cast();
    // SAFETY: the request names an interface and leads to a hwtstamp_config; both outlive the call.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), what as _, std::ptr::from_mut(request)) };
    if rc != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes a system call only: it runs in a forked process.
fn restore(fd: &OwnedFd, mut request: libc::ifreq, mut before: Config) {
    request.ifr_ifru.ifru_data = (&raw mut before).cast();
    // SAFETY: the request names an interface and leads to the former configuration, which outlives the call.
    unsafe { libc::ioctl(fd.as_raw_fd(), SIOCSHWTSTAMP as _, &raw mut request) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_without_hardware_stamps_is_refused_and_nothing_is_left() {
        // SAFETY: a constant C string.
        let lo = unsafe { libc::if_nametoindex(c"lo".as_ptr()) };
        let refused = HardwareStamps::hold(lo).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP), "{refused}");
        let absent = HardwareStamps::hold(u32::MAX).unwrap_err();
        assert_eq!(absent.raw_os_error(), Some(libc::ENODEV), "{absent}");
    }
}
