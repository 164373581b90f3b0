//! `wirepath tunnel`, apart from its forwarder's own program `tunnel_run`.

#[path = "../common/mod.rs"]
mod common;

mod check;
mod gretap;
mod live;
