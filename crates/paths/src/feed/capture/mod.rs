//! Captures: pcap, pcapng and files of bare telegrams are read, pcapng is written.
//!
//! The formats are parsed by `pcap-parser`; this module finds the UDP payload in each packet
//! and says where in which file something is wrong. Writing is our own: a recorder may not
//! allocate per packet, and three kinds of block are all it takes.

mod error;
mod link;
mod reader;
mod record;
mod source;
mod writer;

pub use error::CaptureError;
pub use reader::{Counts, Datagram, Kind, Reader};
pub use writer::{Interface, LinkType, Writer};
