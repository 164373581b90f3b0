//! Settings are changed as planned and given back bit for bit, however it ends.

mod apply;
mod bench;
mod held;
mod host_wide;
mod kill;
mod profile;
