//! TAP interfaces: Ethernet frames by read and write.
//!
//! Source: kernel documentation, networking/tuntap.rst.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Bytes in front of each frame of [`Tap::new_offloaded`].
pub const OFFLOAD_HEADER_BYTES: usize = 10;

/// Work that the kernel may leave on the frames that it sends, by [`Tap::set_offloads`]: checksums.
pub const OFFLOAD_CHECKSUM: u32 = libc::TUN_F_CSUM;
/// Segmentation of TCP over IPv4; needs checksums.
pub const OFFLOAD_TCP_V4: u32 = libc::TUN_F_TSO4;
/// Segmentation of TCP over IPv6; needs checksums.
pub const OFFLOAD_TCP_V6: u32 = libc::TUN_F_TSO6;

/// A TAP interface, removed with its last descriptor.
#[derive(Debug)]
pub struct Tap {
    file: File,
    /// Frames have a header in front.
    has_header: bool,
}

impl Tap {
    /// Creates an interface `name` in the calling thread's network namespace. Reads and writes do not
    /// block.
    ///
    /// Errors: `PermissionDenied` without CAP_NET_ADMIN, `NotFound` without the tun module,
    /// `InvalidInput` for a name of more than 15 bytes.
    pub fn new(name: &str) -> io::Result<Self> {
        Self::with(name, libc::IFF_TAP | libc::IFF_NO_PI)
    }

    /// As [`Self::new`], with every offload, as for the card of a virtual machine: frames are read and written
    /// behind a header of [`OFFLOAD_HEADER_BYTES`], which says what was left to a device.
    ///
    /// Source: struct virtio_net_hdr, include/uapi/linux/virtio_net.h.
    pub fn new_offloaded(name: &str) -> io::Result<Self> {
        let tap = Self::with(name, libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR)?;
        tap.set_offloads(OFFLOAD_CHECKSUM | OFFLOAD_TCP_V4 | OFFLOAD_TCP_V6)?;
        Ok(tap)
    }

    /// Sets the work that the kernel may leave on frames that are read; it finishes all other frames itself.
    ///
    /// - `offloads`: a union of [`OFFLOAD_CHECKSUM`] and the others.
    pub fn set_offloads(&self, offloads: u32) -> io::Result<()> {
        // SAFETY: the request takes its argument by value.
        let rc = unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETOFFLOAD as _, offloads) };
        if rc != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// True if frames have a header in front, as those of [`Self::new_offloaded`].
    pub fn has_header(&self) -> bool {
        self.has_header
    }

    /// Creates an interface for another program, which attaches to it by its name. It stays until its namespace is
    /// gone. Errors: as [`Self::new`].
    pub fn create_lasting(name: &str) -> io::Result<()> {
        let tap = Self::new(name)?;
        // SAFETY: the request takes its argument by value.
        let rc = unsafe { libc::ioctl(tap.file.as_raw_fd(), libc::TUNSETPERSIST as _, 1) };
        if rc != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn with(name: &str, flags: libc::c_int) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")?;
        // SAFETY: all-zero is a valid ifreq, a name and a union of plain C types.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.is_empty() || name.len() >= request.ifr_name.len() {
            let what = format!("{name:?} cannot be the name of an interface");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = flags as i16;
        // SAFETY: the request names an interface and outlives the call.
        let rc = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
        let has_header = flags & libc::IFF_VNET_HDR != 0;
        if rc != 0 { Err(io::Error::last_os_error()) } else { Ok(Tap { file, has_header }) }
    }

    /// Reads one frame that the kernel sent, truncated to the buffer; `WouldBlock` if there is none.
    pub fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(into)
    }

    pub fn write(&self, frame: &[u8]) -> io::Result<()> {
        (&self.file).write(frame).map(|_| ())
    }

    /// As [`Self::read`], of an interface whose frames have a header. Returns the length of the frame.
    pub fn read_with_header(
        &self,
        header: &mut [u8; OFFLOAD_HEADER_BYTES],
        frame: &mut [u8],
    ) -> io::Result<usize> {
        let parts = &mut [IoSliceMut::new(header), IoSliceMut::new(frame)];
        let len = (&self.file).read_vectored(parts)?;
        Ok(len.saturating_sub(OFFLOAD_HEADER_BYTES))
    }

    /// As [`Self::write`], to an interface whose frames have a header.
    pub fn write_with_header(
        &self,
        header: &[u8; OFFLOAD_HEADER_BYTES],
        frame: &[u8],
    ) -> io::Result<()> {
        let parts = &[IoSlice::new(header), IoSlice::new(frame)];
        (&self.file).write_vectored(parts).map(|_| ())
    }

    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Tap { file: self.file.try_clone()?, has_header: self.has_header })
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
