//! Market data over multicast: listen, arbitrate, recover, record, replay.
//!
//! The path `feed` measures a receiver built from these parts.

pub mod arbiter;
pub mod books;
pub mod capture;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod json;
pub mod late;
pub mod listen;
pub mod messages;
pub mod pitfalls;
pub mod protocol;
pub mod quality;
pub mod record;
pub mod recovery;
pub mod relative_latency;
pub mod replay;
pub mod schedule;
pub mod sequence_field;
pub mod symbols;
pub mod synthetic;

/// Wireshark dissector of telegrams, in Lua.
pub const TWSE_DISSECTOR: &str = include_str!("dissector/twse.lua");

/// Column where the text of a report's line begins, after its label.
const TEXT_COLUMN: usize = 11;
