use std::io;

/// Why a virtual machine could not be made or run.
#[derive(Debug, thiserror::Error)]
pub enum KvmError {
    /// There is no KVM, or it is not for us.
    #[error(
        "/dev/kvm cannot be opened: load the kvm_intel or kvm_amd module, enable virtualisation \
         in the firmware, or join the group that owns the device"
    )]
    Device(#[source] io::Error),
    /// The kernel's KVM lacks something.
    #[error("this kernel's KVM offers no {what}")]
    Missing {
        /// What is missing.
        what: &'static str,
    },
    /// A call failed.
    #[error("{what} failed")]
    Failed {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// Guest memory could not be allocated.
    #[error("{len_bytes} bytes of guest memory cannot be allocated")]
    Memory {
        /// How much was asked for.
        len_bytes: usize,
        /// Why not.
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
