//! The trait of a house, and the common ground of commands: the terminal, signals, privileges, metrics, and arguments.
//!
//! A house is a product of its own in the tree: libraries, a path or two, commands, manual and tests. It uses the core
//! and no other house. The program takes in a [`House`] by one line of `crates/cli/src/houses.rs`.

pub mod args;
mod command;
pub mod console;
pub mod context;
pub mod document;
pub mod findings;
pub mod http;
pub mod metrics;
pub mod next;
pub mod notes;
pub mod place;
pub mod privileges;
pub mod receive_stamps;
pub mod signals;

pub use command::{Command, House, HouseCommand, HouseService, RunCommand};
