//! Metadata of single frames: what the device found out about a received one, and what it is asked to do with
//! one to be sent.

mod receive;
mod send;

pub use receive::{MetadataKey, RxHash, RxMetadata, VlanTag};
pub use send::{Checksum, SendMetadata, SendRequest, SentFrame};

pub(crate) use receive::{RX_METADATA_BYTES, field, place};
pub(crate) use send::Requests;
