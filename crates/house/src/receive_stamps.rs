//! Receive time stamps of a NIC, for commands that read them.

use io::Stamps;
use remote::Failure;
use sys::hardware_stamps::HardwareStamps;

use crate::console;

/// Switches the NIC's receive stamps on until the guard drops, and says so. Does nothing for other stamps.
///
/// Errors: the NIC has none, or stamps PTP alone; without this check they would be missing silently.
pub fn hold(stamps: Stamps, ifindex: u32, ifname: &str) -> Result<Option<HardwareStamps>, Failure> {
    if stamps != Stamps::Hardware {
        return Ok(None);
    }
    let offer = host::net::ethtool::timestamping(ifindex).ok();
    let unsupported = |what: &str| {
        Err(Failure::Unsupported(format!(
            "{ifname} {what}; use --stamps software, or another NIC (ethtool -T {ifname})"
        )))
    };
    if !offer.is_some_and(|t| t.hardware_rx) {
        return unsupported("takes no hardware receive time stamps");
    }
    if !offer.is_some_and(|t| t.hardware_rx_all) {
        return unsupported("stamps PTP packets on arrival, and no others");
    }
    let held = HardwareStamps::hold(ifindex).map_err(|e| {
        Failure::failed(format!(
            "cannot switch the receive stamps of {ifname} on: {e}; it needs CAP_NET_ADMIN"
        ))
    })?;
    if held.changes() {
        console::say(&format!("receive stamps of {ifname} are on until the end of this run"));
    }
    Ok(Some(held))
}
