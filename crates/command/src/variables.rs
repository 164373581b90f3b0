//! Variables that all commands of an experiment get.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::At;
use crate::turn::TrialTurn;

/// Longest name of an interface, bytes.
///
/// Source: IFNAMSIZ of include/uapi/linux/if.h, without the zero.
const IFNAME_BYTES_MAX: usize = 15;

/// An end of the wire, as commands know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WireEnd {
    pub(crate) ip: IpAddr,
    /// Interface under test, or the loopback.
    pub(crate) interface: String,
}

impl WireEnd {
    /// An end whose interface's name comes from another host: empty if it is none.
    pub(crate) fn reported(ip: IpAddr, interface: String) -> Self {
        let is_name = interface.len() <= IFNAME_BYTES_MAX
            && interface.chars().all(|c| c.is_ascii_graphic() && c != '/');
        WireEnd { ip, interface: if is_name { interface } else { String::new() } }
    }
}

/// Variables of a command.
///
/// - `own`: end at which it runs.
pub(crate) fn variables(
    own: At,
    near: &WireEnd,
    far: &WireEnd,
    turn: &TrialTurn,
) -> Vec<(String, String)> {
    let here = if own == At::Near { near } else { far };
    // For built-in feeds and loads; it is there as long as this process, also if its file was replaced.
    let program = format!("/proc/{}/exe", std::process::id());
    [
        ("WIREPATH", program),
        ("WIREPATH_NEAR", near.ip.to_string()),
        ("WIREPATH_FAR", far.ip.to_string()),
        ("WIREPATH_INTERFACE", here.interface.clone()),
        ("WIREPATH_NEAR_INTERFACE", near.interface.clone()),
        ("WIREPATH_FAR_INTERFACE", far.interface.clone()),
        ("WIREPATH_PORT", turn.port.to_string()),
        ("WIREPATH_ARM", turn.variable.clone()),
        ("WIREPATH_TRIAL", turn.number.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}
