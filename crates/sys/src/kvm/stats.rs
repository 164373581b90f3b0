//! The kernel's counters of a processor, through its statistics descriptor.
//!
//! Source: kernel documentation, virt/kvm/api.rst, KVM_GET_STATS_FD.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

use kvm_ioctls::VcpuFd;

use super::KvmError;

/// `_IO(KVMIO, 0xce)`.
const KVM_GET_STATS_FD: libc::c_ulong = 0xaece;
/// Bytes of the header and of a descriptor without its name.
const HEADER_BYTES: usize = 24;
const DESCRIPTOR_BYTES: usize = 16;
/// Limit of descriptors, above that of any kernel, against a malformed header.
const COUNT_MAX: usize = 4096;

#[derive(Debug)]
pub struct VcpuStatistics {
    file: File,
    /// Name and offset of each counter that is one number.
    counters: Vec<(String, u64)>,
}

impl VcpuStatistics {
    pub(super) fn open(vcpu: &VcpuFd) -> Result<Self, KvmError> {
        // SAFETY: the call takes no argument and returns a new descriptor.
        let fd = unsafe { libc::ioctl(vcpu.as_raw_fd(), KVM_GET_STATS_FD as _, 0) };
        if fd < 0 {
            let source = io::Error::last_os_error();
            return Err(KvmError::Failed { what: "KVM_GET_STATS_FD", source });
        }
        // SAFETY: the call returned a new descriptor without another owner.
        let file = unsafe { File::from_raw_fd(fd) };
        let counters = describe(&file)
            .map_err(|source| KvmError::Failed { what: "reading KVM statistics", source })?;
        Ok(VcpuStatistics { file, counters })
    }

    /// All counters by the kernel's name (`exits`, `io_exits`, `halt_exits`, ...).
    pub fn read(&self) -> Result<BTreeMap<String, u64>, KvmError> {
        self.counters
            .iter()
            .map(|&(ref name, at)| {
                let mut word = [0; 8];
                self.file.read_exact_at(&mut word, at)?;
                Ok((name.clone(), u64::from_ne_bytes(word)))
            })
            .collect::<io::Result<_>>()
            .map_err(|source| KvmError::Failed { what: "reading KVM statistics", source })
    }
}

fn describe(file: &File) -> io::Result<Vec<(String, u64)>> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0)?;
    let word = |i: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|k| header[4 * i + k]));
    let (name_bytes, count) = (word(1) as usize, word(2) as usize);
    let (descriptors, values) = (u64::from(word(4)), u64::from(word(5)));
    if count > COUNT_MAX || name_bytes > 256 {
        return Err(io::Error::other(format!("{count} counters with names of {name_bytes} bytes")));
    }
    let size = DESCRIPTOR_BYTES + name_bytes;
    let mut counters = Vec::with_capacity(count);
    for i in 0..count {
        let mut bytes = vec![0; size];
        file.read_exact_at(&mut bytes, descriptors + (i * size) as u64)?;
        // flags u32, exponent i16, size u16, offset u32, bucket size u32, name.
        let len = u16::from_ne_bytes([bytes[6], bytes[7]]);
        let offset = u32::from_ne_bytes([8, 9, 10, 11].map(|k| bytes[k]));
        let name = bytes[DESCRIPTOR_BYTES..].split(|&byte| byte == 0).next().unwrap_or_default();
        if len == 1 {
            let name = String::from_utf8_lossy(name).into_owned();
            counters.push((name, values + u64::from(offset)));
        }
    }
    Ok(counters)
}
