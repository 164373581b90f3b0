//! Errors of AF_XDP sockets, with the option of the command line that helps.

use std::error::Error;
use std::fmt;

use xdp::XskError;

/// An error of an AF_XDP socket; its text ends with the option that helps, if there is one.
#[derive(Debug)]
pub struct SocketError(pub XskError);

impl SocketError {
    fn option(&self) -> Option<&'static str> {
        match &self.0 {
            XskError::ZeroCopyRefused { .. } => Some("drop --require-zero-copy"),
            XskError::QueueBusy { .. } | XskError::NoQueue { .. } => Some("-q QUEUE"),
            XskError::NoMultiBuffer { .. } => Some("drop --multi-buffer, lower --size"),
            XskError::NoAfXdp => Some("no switch bypass"),
            XskError::Permission { .. } => Some(
                "setcap cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon+ep $(command -v wirepath)",
            ),
            XskError::Memory { .. } => Some(
                "setcap cap_ipc_lock,cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon+ep $(command -v \
                 wirepath)",
            ),
            _ => None,
        }
    }
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        self.option().map_or(Ok(()), |option| write!(f, " ({option})"))
    }
}

impl Error for SocketError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

impl From<XskError> for crate::IoError {
    fn from(error: XskError) -> Self {
        crate::IoError::Xsk(SocketError(error))
    }
}
