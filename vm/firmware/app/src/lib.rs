//! The echo responder without its board: configuration and switches.
//!
//! `main.rs` runs it on a board under the kernel; tests run it on a fake device in plain memory.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod config;
pub mod responder;
pub mod switches;

pub use config::{Config, ConfigError};
pub use responder::{Platform, Responder};
pub use switches::{Switch, Switches};
