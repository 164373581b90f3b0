//! Receive time stamps of a NIC: switched on for a run, and as before after it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

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
/// A process that was forked for it sets the former configuration when this value is dropped, and also
/// when its owner is killed or has given up its capabilities.
#[derive(Debug)]
pub struct HardwareStamps {
    keeper: Option<Keeper>,
}

impl HardwareStamps {
    /// Makes the driver stamp every packet that arrives, on an interface of the calling thread's network
    /// namespace.
    ///
    /// Errors: EOPNOTSUPP without hardware stamps, ERANGE if the driver stamps some packets only; EPERM
    /// without CAP_NET_ADMIN.
    pub fn hold(ifindex: u32) -> io::Result<Self> {
        let gone = || io::Error::from_raw_os_error(libc::ENODEV);
        let (fd, mut request) = socket::interface_request(ifindex).ok_or_else(gone)?;
        let mut before = Config::default();
        call(&fd, &mut request, SIOCGHWTSTAMP, &mut before)?;
        if before.rx_filter == HWTSTAMP_FILTER_ALL {
            return Ok(HardwareStamps { keeper: None });
        }
        // Before the change: a kill in between restores what is there already.
        let keeper = Keeper::start(fd.as_raw_fd(), request, before)?;
        let mut config = Config { rx_filter: HWTSTAMP_FILTER_ALL, ..before };
        call(&fd, &mut request, SIOCSHWTSTAMP, &mut config)?;
        // The driver answers with the filter that it took.
        match config.rx_filter {
            HWTSTAMP_FILTER_ALL => Ok(HardwareStamps { keeper: Some(keeper) }),
            _ => Err(io::Error::from_raw_os_error(libc::ERANGE)),
        }
    }

    /// False if they were on before.
    pub fn changes(&self) -> bool {
        self.keeper.is_some()
    }
}

fn call(fd: &OwnedFd, request: &mut libc::ifreq, what: u32, config: &mut Config) -> io::Result<()> {
    request.ifr_ifru.ifru_data = std::ptr::from_mut(config).cast();
    // SAFETY: the request names an interface and leads to a hwtstamp_config; both outlive the call.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), what as _, std::ptr::from_mut(request)) };
    if rc != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A forked process that waits for the end of its owner.
#[derive(Debug)]
struct Keeper {
    /// The owner's end of a pipe: its last close is the signal.
    pipe: Option<OwnedFd>,
    pid: libc::pid_t,
}

impl Keeper {
    fn start(socket: RawFd, mut request: libc::ifreq, mut before: Config) -> io::Result<Keeper> {
        let mut ends = [0; 2];
        // SAFETY: the array has room for both descriptors.
        let rc = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
        if rc != 0 {
            return Err(io::Error::last_os_error());
        }
        let [reading, writing] = ends.map(|fd| {
            // SAFETY: pipe2(2) returned new descriptors without another owner.
            unsafe { OwnedFd::from_raw_fd(fd) }
        });
        request.ifr_ifru.ifru_data = (&raw mut before).cast();
        // SAFETY: the child makes system calls only and never returns.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        if pid == 0 {
            restore_when_alone(socket, &mut request, reading.as_raw_fd(), writing.as_raw_fd());
        }
        Ok(Keeper { pipe: Some(writing), pid })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.pipe = None;
        // SAFETY: the process is a child of this one that is waited for only here.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

/// The child's life: allocation and locks of the parent's other threads are not touched.
fn restore_when_alone(
    socket: RawFd,
    request: &mut libc::ifreq,
    reading: RawFd,
    writing: RawFd,
) -> ! {
    // A signal of the terminal is for the owner, which ends in its own time.
    // SAFETY: no memory is involved.
    unsafe { libc::setsid() };
    // SAFETY: the child's own copy, which would keep the pipe open.
    unsafe { libc::close(writing) };
    let mut byte = 0u8;
    loop {
        // SAFETY: one byte may be written to `byte`.
        let got = unsafe { libc::read(reading, (&raw mut byte).cast(), 1) };
        let error = io::Error::last_os_error().raw_os_error();
        if got >= 0 || error != Some(libc::EINTR) {
            break;
        }
    }
    // SAFETY: the request names an interface and leads to the former configuration in the child's copy
    // of its parent's stack.
    unsafe { libc::ioctl(socket, SIOCSHWTSTAMP as _, std::ptr::from_mut(request)) };
    // SAFETY: ends the child without running the parent's destructors.
    unsafe { libc::_exit(0) }
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

    #[test]
    fn the_keeper_ends_with_its_owner() {
        // SAFETY: all-zero is a valid ifreq: it names no interface, so the request fails.
        let request = unsafe { std::mem::zeroed() };
        let fd = socket::open(libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap();
        let keeper = Keeper::start(fd.as_raw_fd(), request, Config::default()).unwrap();
        let process = format!("/proc/{}", keeper.pid);
        assert!(std::path::Path::new(&process).exists());
        drop(keeper);
        assert!(!std::path::Path::new(&process).exists());
    }
}
