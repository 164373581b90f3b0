//! XDP program that passes every frame.

use super::XdpMode;
use super::error::BpfError;
use super::link::XdpProgram;
use super::object::{Opened, embedded};

/// XDP program that passes every frame to the stack.
///
/// A veth drops frames that XDP redirects to it unless its peer uses NAPI, which an XDP program on
/// the peer enables (GRO does too). This is the smallest such program.
#[derive(Debug)]
pub struct PassProgram {
    program: XdpProgram,
}

impl PassProgram {
    /// Loads the program, for frames of more than one buffer when `frags`; nothing is attached yet.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF and CAP_NET_ADMIN, [`BpfError::Load`] otherwise.
    pub fn load(frags: bool) -> Result<Self, BpfError> {
        let loaded = Opened::open("pass", embedded!("pass"))?.frags(frags).load()?;
        Ok(PassProgram { program: XdpProgram::new(loaded) })
    }

    /// Attaches the program to an interface until [`Self::detach`], drop or the end of the process.
    /// Call it on a thread in the interface's network namespace.
    ///
    /// # Errors
    /// See [`BpfError`]; each names the interface and the remedy.
    pub fn attach(&mut self, ifindex: u32, mode: XdpMode) -> Result<(), BpfError> {
        self.program.attach(ifindex, mode)
    }

    /// Detaches the program, if it is attached.
    pub fn detach(&mut self) {
        self.program.detach();
    }
}
