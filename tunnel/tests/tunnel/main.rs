//! `wirepath tunnel`, apart from its forwarder's own program `tunnel_run`.

#[path = "../../../crates/cli/tests/common/mod.rs"]
mod common;

mod check;
mod config_file;
mod gretap;
mod live;
