use std::io;

#[derive(Debug, thiserror::Error)]
pub enum KvmError {
    #[error(
        "/dev/kvm cannot be opened: load the kvm_intel or kvm_amd module, enable virtualisation \
         in the firmware, or join the group that owns the device"
    )]
    Device(#[source] io::Error),
    #[error("this kernel's KVM offers no {what}")]
    Missing { what: &'static str },
    #[error("{what} failed")]
    Failed {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("{len_bytes} bytes of guest memory cannot be allocated")]
    Memory {
        len_bytes: usize,
        #[source]
        source: vm_memory::mmap::MmapRegionError,
    },
}

impl KvmError {
    /// For `map_err` on calls of the KVM crates.
    pub(super) fn of(what: &'static str) -> impl FnOnce(vmm_sys_util::errno::Error) -> Self {
        move |error| KvmError::Failed { what, source: error.into() }
    }
}
