//! Settings are changed as planned and restored bit for bit, whatever ends the process.

mod apply;
mod bench;
mod commands;
mod effects;
mod exports;
mod host_wide;
mod identity;
mod inside;
mod kill;
mod profile;
mod routes;
mod scoped;
