//! Requests of ethtool by ioctl: those that ethtool netlink lacks, on some kernels or on all.
//!
//! Interfaces are those of the calling thread's network namespace. Source: linux/ethtool.h.

mod rules;
mod statistics;

use std::io;
use std::os::fd::AsRawFd;

pub use rules::{FIELDS_BYTES, FlowRule, delete_flow_rule, flow_rules, insert_flow_rule};
pub use statistics::statistics;

use crate::socket::interface_request;

const SIOCETHTOOL: u32 = 0x8946;
const GDRVINFO: u32 = 0x03;
const GLINK: u32 = 0x0a;
const GRXFH: u32 = 0x29;
const SRXFH: u32 = 0x2a;
const GRXFHINDIR: u32 = 0x38;
const SRXFHINDIR: u32 = 0x39;

/// `struct ethtool_drvinfo`, as words, and the bytes of its firmware's version.
const DRVINFO_WORDS: usize = 49;
const FIRMWARE: std::ops::Range<usize> = 68..100;

/// `struct ethtool_rxnfc`, of which the kernel may read and write 192 bytes, as words.
const RXNFC_WORDS: usize = 64;
/// Longest table that is read; drivers have up to 4,096 entries.
const TABLE_MAX: u32 = 1 << 16;

/// Kind of packets with a hash of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowKind {
    Tcp4 = 1,
    Udp4 = 2,
    Tcp6 = 5,
    Udp6 = 6,
}

/// True if the driver of an interface that is up reports a link; `None` if it does not say, or if there
/// is no interface of that index.
///
/// Unlike IFF_RUNNING it is the state of this moment.
pub fn has_carrier(ifindex: u32) -> Option<bool> {
    let mut value = [GLINK, 0];
    call(ifindex, &mut value).ok()?;
    Some(value[1] != 0)
}

/// Version of the firmware, as the driver states it; `None` if it states none.
pub fn firmware(ifindex: u32) -> Option<String> {
    let mut request = [0; DRVINFO_WORDS];
    request[0] = GDRVINFO;
    call(ifindex, &mut request).ok()?;
    let bytes: Vec<u8> = request.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let text = bytes.get(FIRMWARE)?.split(|byte| *byte == 0).next()?;
    let text = String::from_utf8_lossy(text).trim().to_owned();
    (!text.is_empty() && text != "N/A").then_some(text)
}

/// Receive queue of each entry of the table that a packet's hash selects.
///
/// Errors: EOPNOTSUPP if the driver has no table; ENODEV without the interface.
pub fn rss_table(ifindex: u32) -> io::Result<Vec<u32>> {
    let mut size = [GRXFHINDIR, 0];
    call(ifindex, &mut size)?;
    let len = size[1];
    if len == 0 || len > TABLE_MAX {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    let mut request = vec![0; len as usize + 2];
    request[..2].copy_from_slice(&[GRXFHINDIR, len]);
    call(ifindex, &mut request)?;
    Ok(request.split_off(2))
}

/// Sets the table; an empty one asks for the driver's default.
///
/// Errors: EINVAL for another length than that of [`rss_table`], or for a queue that is not used; EPERM
/// without CAP_NET_ADMIN; EOPNOTSUPP; ENODEV.
pub fn set_rss_table(ifindex: u32, table: &[u32]) -> io::Result<()> {
    let mut request = vec![SRXFHINDIR, table.len() as u32];
    request.extend_from_slice(table);
    call(ifindex, &mut request)
}

/// Fields of a packet that its hash covers, as bits `RXH_*`.
///
/// Errors: EOPNOTSUPP if the driver does not say; ENODEV without the interface.
pub fn hash_fields(ifindex: u32, kind: FlowKind) -> io::Result<u64> {
    let mut request = of_hash(GRXFH, kind, 0);
    call(ifindex, &mut request)?;
    Ok(u64::from(request[low()]) | u64::from(request[5 - low()]) << 32)
}

/// Sets the fields that the hash covers.
///
/// Errors: EINVAL or EOPNOTSUPP for fields that the driver cannot hash; EPERM without CAP_NET_ADMIN;
/// ENODEV.
pub fn set_hash_fields(ifindex: u32, kind: FlowKind, fields: u64) -> io::Result<()> {
    call(ifindex, &mut of_hash(SRXFH, kind, fields))
}

/// Index of the lower word of `data`, which has words 2 and 3.
const fn low() -> usize {
    if cfg!(target_endian = "little") { 2 } else { 3 }
}

/// A request whose other fields are zero.
fn rxnfc(command: u32) -> [u32; RXNFC_WORDS] {
    let mut request = [0; RXNFC_WORDS];
    request[0] = command;
    request
}

fn of_hash(command: u32, kind: FlowKind, fields: u64) -> [u32; RXNFC_WORDS] {
    let mut request = rxnfc(command);
    request[1] = kind as u32;
    request[low()] = fields as u32;
    request[5 - low()] = (fields >> 32) as u32;
    request
}

/// Hands a request to the driver, which answers in its place.
///
/// - `request`: as long as the command in its first word lets the kernel write.
fn call(ifindex: u32, request: &mut [u32]) -> io::Result<()> {
    let (fd, mut interface) =
        interface_request(ifindex).ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
    interface.ifr_ifru.ifru_data = request.as_mut_ptr().cast();
    // SAFETY: both requests outlive the call. The kernel writes no more than two words (GLINK), 49 (GDRVINFO), five
    // (GSSET_INFO), a rxnfc, or as many entries of a table or a list as its count announces, for all of
    // which there is room; lists of names and counters have room for four times the largest number.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), SIOCETHTOOL as _, &raw mut interface) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_a_carrier_and_neither_table_nor_hash() {
        // SAFETY: a constant C string.
        let lo = unsafe { libc::if_nametoindex(c"lo".as_ptr()) };
        assert_eq!(has_carrier(lo), Some(true));
        let refused = |result: io::Result<()>| result.unwrap_err().raw_os_error();
        assert_eq!(refused(rss_table(lo).map(drop)), Some(libc::EOPNOTSUPP));
        assert_eq!(refused(hash_fields(lo, FlowKind::Udp4).map(drop)), Some(libc::EOPNOTSUPP));
        assert_eq!(refused(rss_table(u32::MAX).map(drop)), Some(libc::ENODEV));
        assert_eq!(has_carrier(u32::MAX), None);
    }

    #[test]
    fn fields_are_in_the_words_of_data() {
        let request = of_hash(SRXFH, FlowKind::Tcp6, 0x1_0000_00f0);
        let bytes: Vec<u8> = request.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(bytes[4..8], 5_u32.to_ne_bytes());
        assert_eq!(bytes[8..16], 0x1_0000_00f0_u64.to_ne_bytes());
    }
}
