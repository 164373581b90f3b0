//! The echo station, apart from the board it runs on: configuration, and what each switch does.
//!
//! `main.rs` puts it on a board under the kernel; tests put it on a device in plain memory.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod config;
pub mod station;
pub mod switches;

pub use config::{Config, ConfigError};
pub use station::{Platform, Station};
pub use switches::{Switch, Switches};
