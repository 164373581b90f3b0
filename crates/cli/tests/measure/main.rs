//! `wirepath probe measure` and `wirepath tunnel measure`.

#[path = "../common/mod.rs"]
mod common;

mod probe;
mod tunnel;
