//! How long a device gathers packets before it interrupts.

use sys::netns::Netns;

use crate::net::NetError;
use crate::net::ethtool::{self, Coalesce};

/// While this lives, an interface interrupts for every packet that it receives.
#[derive(Debug)]
#[must_use = "coalescing is as before when this is dropped"]
pub struct NoCoalescing {
    netns: Netns,
    index: u32,
    before: Coalesce,
}

impl NoCoalescing {
    /// Switches the gathering of received packets off, adaptive or not.
    ///
    /// Errors: [`NetError::Unsupported`] where the driver has no such setting.
    pub fn hold(netns: Netns, index: u32) -> Result<Self, NetError> {
        let before = within(&netns, || ethtool::coalesce(index))?;
        let wanted = Coalesce {
            rx_us: before.rx_us.map(|_| 0),
            rx_frames: before.rx_frames.map(|_| 1),
            is_adaptive_rx: before.is_adaptive_rx.map(|_| false),
            ..Coalesce::default()
        };
        within(&netns, || ethtool::set_rx_coalesce(index, &wanted))?;
        Ok(NoCoalescing { netns, index, before })
    }
}

impl Drop for NoCoalescing {
    fn drop(&mut self) {
        // An interface that is gone has nothing to restore.
        let _ = within(&self.netns, || ethtool::set_rx_coalesce(self.index, &self.before));
    }
}

/// Asks in a namespace; its errors as those of the request.
pub(super) fn within<T: Send>(
    netns: &Netns,
    ask: impl FnOnce() -> Result<T, NetError> + Send,
) -> Result<T, NetError> {
    netns.run(ask).map_err(|error| NetError::Io {
        what: "entering the interface's namespace".into(),
        source: std::io::Error::other(error),
    })?
}
