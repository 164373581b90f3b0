//! Numbers and structures of the kernel's include/uapi/linux/io_uring.h (6.1).

use crate::address::RawAddress;
use crate::udp::CONTROL_BYTES;

pub(super) const SETUP_CQSIZE: u32 = 1 << 3;
pub(super) const SETUP_R_DISABLED: u32 = 1 << 6;
pub(super) const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
pub(super) const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
pub(super) const FEAT_SINGLE_MMAP: u32 = 1 << 0;
pub(super) const FEAT_EXT_ARG: u32 = 1 << 8;
pub(super) const OFF_SQES: i64 = 0x1000_0000;
pub(super) const OP_RECVMSG: u8 = 10;
pub(super) const SQE_BUFFER_SELECT: u8 = 1 << 5;
pub(super) const RECV_MULTISHOT: u16 = 1 << 1;
pub(super) const CQE_BUFFER: u32 = 1 << 0;
pub(super) const CQE_MORE: u32 = 1 << 1;
pub(super) const CQE_BUFFER_SHIFT: u32 = 16;
pub(super) const ENTER_GETEVENTS: u32 = 1 << 0;
pub(super) const ENTER_EXT_ARG: u32 = 1 << 3;
pub(super) const REGISTER_ENABLE_RINGS: u32 = 12;
pub(super) const REGISTER_PBUF_RING: u32 = 22;
pub(super) const REGISTER_SYNC_CANCEL: u32 = 24;
pub(super) const CANCEL_ANY: u32 = 1 << 2;

pub(super) const SQE_BYTES: usize = 64;
pub(super) const CQE_BYTES: usize = 16;

/// Offsets of a ring's fields in its mapping, bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Offsets {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) ring_mask: u32,
    pub(super) ring_entries: u32,
    /// Flags of the submission ring; overflow counter of the completion ring.
    pub(super) fifth: u32,
    /// Dropped counter of the submission ring; entries of the completion ring.
    pub(super) sixth: u32,
    /// Array of the submission ring; flags of the completion ring.
    pub(super) seventh: u32,
    pub(super) reserved: u32,
    pub(super) user_addr: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Params {
    pub(super) sq_entries: u32,
    pub(super) cq_entries: u32,
    pub(super) flags: u32,
    pub(super) sq_thread_cpu: u32,
    pub(super) sq_thread_idle: u32,
    pub(super) features: u32,
    pub(super) wq_fd: u32,
    pub(super) reserved: [u32; 3],
    pub(super) sq: Offsets,
    pub(super) cq: Offsets,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Sqe {
    pub(super) opcode: u8,
    pub(super) flags: u8,
    pub(super) ioprio: u16,
    pub(super) fd: i32,
    pub(super) off: u64,
    pub(super) addr: u64,
    pub(super) len: u32,
    pub(super) op_flags: u32,
    pub(super) user_data: u64,
    pub(super) buf_group: u16,
    pub(super) personality: u16,
    pub(super) file_index: u32,
    pub(super) reserved: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Cqe {
    pub(super) _user_data: u64,
    pub(super) res: i32,
    pub(super) flags: u32,
}

/// Bytes of the address, the length and the number of a [`Buf`].
pub(super) const BUF_FIELDS: usize = 14;

/// An entry of the ring of buffers. The last field of the first one is the ring's tail.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Buf {
    pub(super) addr: u64,
    pub(super) len: u32,
    pub(super) bid: u16,
    pub(super) tail: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct BufReg {
    pub(super) ring_addr: u64,
    pub(super) ring_entries: u32,
    pub(super) bgid: u16,
    pub(super) flags: u16,
    pub(super) reserved: [u64; 3],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct SyncCancel {
    pub(super) addr: u64,
    pub(super) fd: i32,
    pub(super) flags: u32,
    pub(super) timeout_s: i64,
    pub(super) timeout_ns: i64,
    pub(super) reserved: [u64; 4],
}

#[repr(C)]
pub(super) struct GetEvents {
    pub(super) sigmask: u64,
    pub(super) sigmask_bytes: u32,
    pub(super) min_wait_us: u32,
    pub(super) timeout: u64,
}

/// Beginning of a buffer that a datagram was written to.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RecvmsgOut {
    pub(super) name_bytes: u32,
    pub(super) control_bytes: u32,
    pub(super) _payload_bytes: u32,
    pub(super) _flags: u32,
}

/// Fields in front of the payload: their number of bytes is fixed by the message header.
pub(super) const NAME_BYTES: usize = size_of::<RawAddress>();
pub(super) const FRONT_BYTES: usize = size_of::<RecvmsgOut>() + NAME_BYTES + CONTROL_BYTES;
