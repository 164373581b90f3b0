//! Metadata of single frames that a driver has for XDP programs and AF_XDP sockets, by netdev generic netlink.
//!
//! Source: the kernel's Documentation/netlink/specs/netdev.yaml, dev-get.

use std::fmt;

use netlink_bindings::netdev::{Request, XdpRxMetadata, XskFlags};

use super::error::{NetError, ask};

/// Names of the fields, as `--stamps` and the documentation have them; first those of received frames.
const NAMES: [&str; 6] =
    ["rx-timestamp", "rx-hash", "rx-vlan", "tx-timestamp", "tx-checksum", "launch-time"];

/// Metadata that a driver names. Naming is no promise: a veth names receive stamps, and its frames have none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct XdpHints {
    /// Stamp of the arrival (`bpf_xdp_metadata_rx_timestamp`).
    pub rx_stamp: bool,
    /// Hash of addresses and ports.
    pub rx_hash: bool,
    /// VLAN tag that the device took off.
    pub rx_vlan: bool,
    /// Stamp of the sending, of AF_XDP in zero-copy mode.
    pub tx_stamp: bool,
    /// Checksum by the device, of AF_XDP in zero-copy mode.
    pub tx_checksum: bool,
    /// Earliest time of sending, of AF_XDP in zero-copy mode.
    pub launch_time: bool,
}

impl XdpHints {
    fn has(&self) -> [bool; 6] {
        let XdpHints { rx_stamp, rx_hash, rx_vlan, tx_stamp, tx_checksum, launch_time } = *self;
        [rx_stamp, rx_hash, rx_vlan, tx_stamp, tx_checksum, launch_time]
    }
}

/// `rx-hash, rx-vlan; not rx-timestamp, …`.
impl fmt::Display for XdpHints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (there, absent): (Vec<_>, Vec<_>) =
            NAMES.into_iter().zip(self.has()).partition(|(_, has)| *has);
        let [there, absent] =
            [there, absent].map(|some| some.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        if there.is_empty() {
            return f.write_str("none");
        }
        f.write_str(&there.join(", "))?;
        if absent.is_empty() { Ok(()) } else { write!(f, "; not {}", absent.join(", ")) }
    }
}

/// Metadata that the driver of an interface of the calling thread's network namespace names.
///
/// Errors: [`NetError::Unsupported`] before Linux 6.6, which does not name it.
pub fn xdp_hints(ifindex: u32) -> Result<XdpHints, NetError> {
    let what = "naming the metadata of XDP frames (Linux 6.6)";
    let found = ask(what, |socket| {
        let mut request = Request::new().op_dev_get_do();
        request.encode().push_ifindex(ifindex);
        let mut reply = socket.request(&request)?;
        let reply = reply.recv_one()?;
        let received = reply.get_xdp_rx_metadata_features().ok();
        Ok(received.map(|received| (received, reply.get_xsk_features().unwrap_or(0))))
    });
    let bits = match found {
        Err(error) if error.is_not_found() => None,
        found => found?,
    };
    let Some((received, sent)) = bits else {
        return Err(NetError::Unsupported { what: what.to_owned() });
    };
    Ok(hints_named(received, sent))
}

fn hints_named(received: u64, sent: u64) -> XdpHints {
    XdpHints {
        rx_stamp: received & XdpRxMetadata::Timestamp as u64 != 0,
        rx_hash: received & XdpRxMetadata::Hash as u64 != 0,
        rx_vlan: received & XdpRxMetadata::VlanTag as u64 != 0,
        tx_stamp: sent & XskFlags::TxTimestamp as u64 != 0,
        tx_checksum: sent & XskFlags::TxChecksum as u64 != 0,
        launch_time: sent & XskFlags::TxLaunchTimeFifo as u64 != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_of_the_kernel_is_one_field() {
        for (n, name) in NAMES.into_iter().enumerate() {
            let bits = if n < 3 { (1 << n, 0) } else { (0, 1 << (n - 3)) };
            let text = hints_named(bits.0, bits.1).to_string();
            assert!(text.starts_with(&format!("{name}; not ")), "{text}");
        }
        assert_eq!(hints_named(0, 0).to_string(), "none");
        assert_eq!(hints_named(7, 7).to_string(), NAMES.join(", "));
    }
}
