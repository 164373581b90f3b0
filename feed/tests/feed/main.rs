//! `wirepath feed`.

#[path = "../../../crates/cli/tests/common/mod.rs"]
mod common;

mod decode;
mod dissector;
mod foreign;
mod hostile;
mod late;
mod live;
mod receiver;
