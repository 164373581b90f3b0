//! Zero-copy receive of TCP through io_uring (Linux 6.15): whether a driver has it.
//!
//! The device writes payloads into memory of the program, and headers elsewhere. The driver must split them, and
//! must take buffers of others for a queue (memory providers).
//!
//! Source: kernel documentation, networking/iou-zcrx.rst; io_uring/zcrx.c and net/core/netdev_rx_queue.c (6.18).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::layout::{Params, SETUP_DEFER_TASKRUN, SETUP_SINGLE_ISSUER};
use crate::mmap::Mapping;

const SETUP_CQE32: u32 = 1 << 11;
const REGISTER_ZCRX_IFQ: u32 = 32;
const MEM_REGION_TYPE_USER: u32 = 1;
/// A queue that no interface has, so that none is taken. All ones are refused as none.
const NO_QUEUE: u32 = u32::MAX - 1;
const RING_ENTRIES: u32 = 64;
const PAGE_BYTES: usize = 4096;

/// struct io_uring_zcrx_ifq_reg.
#[repr(C)]
#[derive(Default)]
struct IfqReg {
    if_idx: u32,
    if_rxq: u32,
    rq_entries: u32,
    flags: u32,
    area_ptr: u64,
    region_ptr: u64,
    offsets: [u64; 4],
    zcrx_id: u32,
    reserved: u32,
    more_reserved: [u64; 3],
}

/// struct io_uring_zcrx_area_reg.
#[repr(C)]
#[derive(Default)]
struct AreaReg {
    addr: u64,
    len: u64,
    rq_area_token: u64,
    flags: u32,
    dmabuf_fd: u32,
    reserved: [u64; 2],
}

/// struct io_uring_region_desc.
#[repr(C)]
#[derive(Default)]
struct RegionDesc {
    user_addr: u64,
    size: u64,
    flags: u32,
    id: u32,
    mmap_offset: u64,
    reserved: [u64; 4],
}

/// Answer to the question for zero-copy receive.
#[derive(Debug)]
pub enum ZeroCopyReceive {
    /// The driver takes buffers for its queues; header split (`ethtool -G IF tcp-data-split on`) is a setting.
    Offered,
    /// The driver has no queues that take buffers of others.
    NoDriver(io::Error),
    /// The kernel has none: it is older than 6.15, or built without (CONFIG_IO_URING_ZCRX).
    NoKernel(io::Error),
}

/// Registers the interface with a queue that does not exist: the kernel says so last of all, and takes nothing.
///
/// Errors: EPERM without CAP_NET_ADMIN or where io_uring is forbidden; ENODEV without such an interface.
pub fn zero_copy_receive(ifindex: u32) -> io::Result<ZeroCopyReceive> {
    // First with no interface: a kernel that has it looks for the interface.
    let without = register(0);
    match without.raw_os_error() {
        Some(libc::ENODEV) => {}
        Some(libc::EPERM | libc::EACCES) => return Err(without),
        _ => return Ok(ZeroCopyReceive::NoKernel(without)),
    }
    let answer = register(ifindex);
    match answer.raw_os_error() {
        Some(libc::ERANGE) => Ok(ZeroCopyReceive::Offered),
        Some(libc::EOPNOTSUPP) => Ok(ZeroCopyReceive::NoDriver(answer)),
        _ => Err(answer),
    }
}

/// The error of a registration, which cannot succeed.
fn register(ifindex: u32) -> io::Error {
    let mut params = Params {
        flags: SETUP_SINGLE_ISSUER | SETUP_DEFER_TASKRUN | SETUP_CQE32,
        ..Params::default()
    };
    // SAFETY: the call reads and writes one io_uring_params, which has this layout.
    let rc = unsafe { libc::syscall(libc::SYS_io_uring_setup, 8, &raw mut params) };
    if rc < 0 {
        return io::Error::last_os_error();
    }
    // SAFETY: io_uring_setup(2) returned a new descriptor without another owner.
    let ring = unsafe { OwnedFd::from_raw_fd(rc as RawFd) };
    let (refill, area) = match (Mapping::anonymous(2 * PAGE_BYTES), Mapping::anonymous(PAGE_BYTES))
    {
        (Ok(refill), Ok(area)) => (refill, area),
        (Err(error), _) | (_, Err(error)) => return error,
    };
    let region = RegionDesc {
        user_addr: refill.base().as_ptr() as u64,
        size: refill.len_bytes() as u64,
        flags: MEM_REGION_TYPE_USER,
        ..RegionDesc::default()
    };
    let area = AreaReg {
        addr: area.base().as_ptr() as u64,
        len: area.len_bytes() as u64,
        ..AreaReg::default()
    };
    let mut registration = IfqReg {
        if_idx: ifindex,
        if_rxq: NO_QUEUE,
        rq_entries: RING_ENTRIES,
        area_ptr: std::ptr::from_ref(&area) as u64,
        region_ptr: std::ptr::from_ref(&region) as u64,
        ..IfqReg::default()
    };
    // SAFETY: the registration and what it leads to have the kernel's layout and outlive the call; the ring is
    // closed before the memory is unmapped, and nothing was registered.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            REGISTER_ZCRX_IFQ,
            &raw mut registration,
            1,
        )
    };
    drop(ring);
    if rc < 0 { io::Error::last_os_error() } else { io::Error::other("queue 4294967294 was taken") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_no_queues_that_take_buffers_of_others() {
        assert_eq!(
            (size_of::<IfqReg>(), size_of::<AreaReg>(), size_of::<RegionDesc>()),
            (96, 48, 64)
        );
        // SAFETY: a constant C string.
        let lo = unsafe { libc::if_nametoindex(c"lo".as_ptr()) };
        match zero_copy_receive(lo) {
            Ok(ZeroCopyReceive::NoDriver(why)) => {
                assert_eq!(why.raw_os_error(), Some(libc::EOPNOTSUPP));
            }
            Ok(ZeroCopyReceive::NoKernel(why)) => testkit::skip("kernel", why.to_string()),
            Err(why) if why.raw_os_error() == Some(libc::EPERM) => {
                testkit::skip("root", why.to_string());
            }
            other => panic!("{other:?}"),
        }
    }
}
