//! Socket addresses of either IP version, as the kernel reads and writes them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Bytes of a `sockaddr_in`.
const V4_BYTES: usize = 16;
/// Bytes of a `sockaddr_in6`.
const V6_BYTES: usize = 28;

/// A `sockaddr_in` or `sockaddr_in6`, with padding behind it.
///
/// Source: include/uapi/linux/in.h and in6.h.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct RawAddress([u8; 32]);

impl RawAddress {
    /// Bytes that the kernel reads.
    pub(crate) fn len_bytes(&self) -> libc::socklen_t {
        if self.family() == libc::AF_INET6 {
            V6_BYTES as libc::socklen_t
        } else {
            V4_BYTES as libc::socklen_t
        }
    }

    /// Address of which the kernel wrote `written_bytes`; 0.0.0.0:0 if that is no address of IP.
    pub(crate) fn written(&self, written_bytes: usize) -> SocketAddr {
        let RawAddress(bytes) = self;
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match self.family() {
            libc::AF_INET if written_bytes >= V4_BYTES => (Ipv4Addr::from(word(4)), port).into(),
            libc::AF_INET6 if written_bytes >= V6_BYTES => {
                let mut ip = [0; 16];
                ip.copy_from_slice(&bytes[8..24]);
                let (flow, scope) = (u32::from_be_bytes(word(4)), u32::from_ne_bytes(word(24)));
                SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope).into()
            }
            _ => (IpAddr::from(Ipv4Addr::UNSPECIFIED), 0).into(),
        }
    }

    fn family(&self) -> i32 {
        u16::from_ne_bytes([self.0[0], self.0[1]]).into()
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        let mut bytes = [0; 32];
        let family = if address.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
        bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) => bytes[4..8].copy_from_slice(&v4.ip().octets()),
            SocketAddr::V6(v6) => {
                bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            }
        }
        RawAddress(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_kernel() {
        assert_eq!(
            (V4_BYTES, V6_BYTES),
            (size_of::<libc::sockaddr_in>(), size_of::<libc::sockaddr_in6>())
        );
        assert_eq!(std::mem::offset_of!(libc::sockaddr_in, sin_addr), 4);
        assert_eq!(std::mem::offset_of!(libc::sockaddr_in6, sin6_addr), 8);
        assert_eq!(std::mem::offset_of!(libc::sockaddr_in6, sin6_scope_id), 24);
    }

    #[test]
    fn addresses_of_both_versions_are_read_as_they_were_written() {
        for text in ["192.0.2.7:9000", "[2001:db8::7]:9001", "[fe80::1%3]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let raw = RawAddress::from(address);
            assert_eq!(raw.written(raw.len_bytes() as usize), address);
            let none = SocketAddr::from(([0, 0, 0, 0], 0));
            assert_eq!(raw.written(raw.len_bytes() as usize - 1), none, "cut");
        }
    }
}
