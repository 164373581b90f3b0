//! Distribution of arrivals to receive queues by the device: its table of queues, and the fields it hashes.

use sys::ethtool as ioctl;
pub use sys::ethtool::FlowKind;

use super::error::{NetError, ask};

/// Receive queue of each entry of the table.
pub fn rss_table(index: u32) -> Result<Vec<u32>, NetError> {
    ask(format!("reading the table of queues of interface {index}"), |_| {
        Ok(ioctl::rss_table(index)?)
    })
}

/// Sets the table; an empty one asks for the driver's default.
pub fn set_rss_table(index: u32, table: &[u32]) -> Result<(), NetError> {
    ask(format!("setting the table of queues of interface {index}"), |_| {
        Ok(ioctl::set_rss_table(index, table)?)
    })
}

/// Fields that the hash of such packets covers, as bits `RXH_*` of linux/ethtool.h.
pub fn hash_fields(index: u32, kind: FlowKind) -> Result<u64, NetError> {
    ask(format!("reading the hash fields of interface {index}"), |_| {
        Ok(ioctl::hash_fields(index, kind)?)
    })
}

pub fn set_hash_fields(index: u32, kind: FlowKind, fields: u64) -> Result<(), NetError> {
    ask(format!("setting the hash fields of interface {index}"), |_| {
        Ok(ioctl::set_hash_fields(index, kind, fields)?)
    })
}
