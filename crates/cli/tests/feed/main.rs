//! `wirepath feed`.

#[path = "../common/mod.rs"]
mod common;

mod decode;
mod dissector;
mod foreign;
mod live;
mod noise;
