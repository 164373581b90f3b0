//! An interface in messages.

use std::ffi::CStr;
use std::fmt;
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

const UNKNOWN: &str = "?";

/// An interface of this thread's network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    pub index: u32,
    /// Name; `?` if it could not be read.
    pub name: String,
    /// MTU in bytes, if it could be read.
    pub mtu_bytes: Option<u32>,
}

impl Interface {
    /// Reads name and MTU; never fails, because error messages need it.
    ///
    /// Source: netdevice(7), SIOCGIFNAME and SIOCGIFMTU.
    pub fn read(index: u32) -> Self {
        let name = name_of(index);
        let mtu_bytes = name.as_deref().and_then(mtu_of);
        Interface { index, name: name.unwrap_or_else(|| UNKNOWN.into()), mtu_bytes }
    }

    /// True if this namespace has no interface of that index.
    pub(super) fn is_unknown(&self) -> bool {
        self.name == UNKNOWN
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (index {}", self.name, self.index)?;
        if let Some(mtu) = self.mtu_bytes {
            write!(f, ", MTU {mtu}")?;
        }
        f.write_str(")")
    }
}

fn name_of(index: u32) -> Option<String> {
    let mut name = [0_u8; libc::IF_NAMESIZE];
    // SAFETY: the buffer has IF_NAMESIZE bytes, as the call demands.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) };
    if found.is_null() {
        return None;
    }
    Some(CStr::from_bytes_until_nul(&name).ok()?.to_string_lossy().into_owned())
}

fn mtu_of(name: &str) -> Option<u32> {
    let socket = UdpSocket::bind("127.0.0.1:0").or_else(|_| UdpSocket::bind("0.0.0.0:0")).ok()?;
    // SAFETY: ifreq is plain bytes and pointers-free as used here; zero is a valid value.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the kernel reads ifr_name and writes ifr_mtu of `request`, which outlives the call.
    let answer =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
    if answer != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so ifr_mtu is the member that was written.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).ok()
}
