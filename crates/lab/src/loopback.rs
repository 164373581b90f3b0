//! One namespace for both ends.

use host::netns::Netns;

use crate::end::quiet_netns;
use crate::error::LabError;

/// A namespace that has nothing but a loopback, which is up.
///
/// Needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
pub fn loopback() -> Result<Netns, LabError> {
    quiet_netns()
}
