//! Sender of frames that have a hash, as those of a driver have.

use std::num::NonZeroU32;

use super::error::BpfError;
use super::link::XdpProgram;
use super::object::{Opened, embedded, shared_types};

mod types {
    super::shared_types!("hasher");
}

/// Sends each frame that an interface receives out of another, with a hash for the receiver at the other end
/// of its wire.
#[derive(Debug)]
pub struct Hasher {
    _program: XdpProgram,
}

impl Hasher {
    /// Takes frames from `from` until dropped. Call it on a thread in the network namespace of both interfaces.
    ///
    /// - `constant`: hash of every frame; `None` for that of its flow.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF and CAP_NET_ADMIN; [`BpfError::Attach`], also on kernels
    /// without tcx (before 6.6).
    pub fn attach(from: u32, to: u32, constant: Option<NonZeroU32>) -> Result<Self, BpfError> {
        let constant = constant.map_or(0, NonZeroU32::get);
        let config = types::config { target_ifindex: to, constant };
        let loaded = Opened::open("hasher", embedded!("hasher"))?.config(&config)?.load()?;
        let mut program = XdpProgram::new(loaded);
        program.attach_tcx("hasher", from)?;
        Ok(Hasher { _program: program })
    }
}
