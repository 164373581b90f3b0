//! Descriptors of a device's receive rings.

use sys::netns::Netns;

use super::coalescing::within;
use crate::net::NetError;
use crate::net::ethtool;

/// While this lives, an interface's receive rings are large.
#[derive(Debug)]
#[must_use = "the ring is as before when this is dropped"]
pub struct LargeRing {
    netns: Netns,
    index: u32,
    before: u32,
}

impl LargeRing {
    /// Gives the receive rings `descriptors`, or as many as the device can have.
    ///
    /// Errors: [`NetError::Unsupported`] where the driver has no such setting.
    pub fn hold(netns: Netns, index: u32, descriptors: u32) -> Result<Self, NetError> {
        let now = within(&netns, || ethtool::rings(index))?;
        let wanted = descriptors.min(now.rx_max).max(now.rx);
        within(&netns, || ethtool::set_rx_ring(index, wanted))?;
        Ok(LargeRing { netns, index, before: now.rx })
    }
}

impl Drop for LargeRing {
    fn drop(&mut self) {
        // An interface that is gone has nothing to restore.
        let _ = within(&self.netns, || ethtool::set_rx_ring(self.index, self.before));
    }
}
