//! Captures: reads pcap, pcapng and files of bare telegrams, also compressed by gzip; writes pcapng.
//!
//! `pcap-parser` parses the formats; this module finds the UDP payload in each packet and reports
//! errors with file and offset. `pcap-file` 2.0, which also writes, does neither: it ignores time
//! resolutions of pcapng and exposes no offsets. The writer allocates nothing per packet and needs
//! three kinds of block.

mod error;
mod input;
mod link;
mod reader;
mod record;
mod source;
mod writer;

pub use error::CaptureError;
pub use reader::{CaptureKind, Counts, Datagram, Reader};
pub use writer::{CapturedInterface, LinkType, Writer};
