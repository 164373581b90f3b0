//! The five commands of bpf(2) that a program in front of sockets needs.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::instructions::Instruction;

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_LINK_DETACH: libc::c_long = 34;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
/// Bytes of the verifier's log.
const LOG_BYTES: usize = 64 * 1024;

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    _padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    ifindex: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
struct LinkDetach {
    link: u32,
}

/// A program to be loaded.
pub(super) struct Program<'a> {
    pub(super) instructions: &'a [Instruction],
    /// BPF_PROG_TYPE_….
    pub(super) kind: u32,
    pub(super) attach_type: u32,
    pub(super) flags: u32,
    /// Interface that it is bound to; 0 for none.
    pub(super) ifindex: u32,
}

/// - `attributes`: a C struct without padding that the kernel does not expect; its pointers lead to memory of
///   the lengths that it says.
fn call<T>(command: libc::c_long, attributes: &T) -> io::Result<i32> {
    // SAFETY: pointer and length describe `attributes`; the callers in this file promise the rest.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the call that returned it made a new descriptor without another owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd() as u32
}

/// A map of AF_XDP sockets by queue.
pub(super) fn create_socket_map(entries: u32) -> io::Result<OwnedFd> {
    let map_type = BPF_MAP_TYPE_XSKMAP;
    call(BPF_MAP_CREATE, &MapCreate { map_type, key_bytes: 4, value_bytes: 4, entries, flags: 0 })
        .map(owned)
}

/// Sets an entry of a map with keys and values of 32 bits.
pub(super) fn update(map: BorrowedFd<'_>, key: u32, value: u32) -> io::Result<()> {
    let attributes = MapUpdate {
        map: number(map),
        _padding: 0,
        key: std::ptr::from_ref(&key) as u64,
        value: std::ptr::from_ref(&value) as u64,
        flags: 0,
    };
    call(BPF_MAP_UPDATE_ELEM, &attributes).map(|_| ())
}

/// Loads a program. Errors: with the verifier's log, which may be empty.
pub(super) fn load(program: &Program<'_>) -> Result<OwnedFd, (io::Error, String)> {
    let mut name = [0; 16];
    name[..8].copy_from_slice(b"wirepath");
    let mut attributes = ProgramLoad {
        kind: program.kind,
        instruction_count: program.instructions.len() as u32,
        instructions: program.instructions.as_ptr() as u64,
        // The text of the program is under GPL-2.0-only, too: functions of the kernel ask for it.
        license: c"GPL".as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel_version: 0,
        flags: program.flags,
        name,
        ifindex: program.ifindex,
        attach_type: program.attach_type,
    };
    let error = match call(BPF_PROG_LOAD, &attributes) {
        Ok(fd) => return Ok(owned(fd)),
        Err(error) => error,
    };
    // Again for its log, which costs time and memory.
    let mut log = vec![0_u8; LOG_BYTES];
    attributes.log_level = 1;
    attributes.log_bytes = LOG_BYTES as u32;
    attributes.log = log.as_mut_ptr() as u64;
    let _ = call(BPF_PROG_LOAD, &attributes);
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    Err((error, String::from_utf8_lossy(&log[..end]).trim().to_owned()))
}

/// Attaches a program to an interface; closing the link detaches it.
pub(super) fn attach(
    program: BorrowedFd<'_>,
    ifindex: u32,
    attach_type: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let attributes = LinkCreate { program: number(program), ifindex, attach_type, flags };
    call(BPF_LINK_CREATE, &attributes).map(owned)
}

/// Detaches the program of a link, also while a forked process holds a copy of the descriptor.
pub(super) fn detach(link: BorrowedFd<'_>) {
    // A failure (the interface is gone) leaves nothing attached either.
    let _ = call(BPF_LINK_DETACH, &LinkDetach { link: number(link) });
}
