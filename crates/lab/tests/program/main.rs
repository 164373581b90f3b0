//! Foreign programs: they become ready, end, are counted, and leave nothing behind, with a control group
//! and without.

mod common;
mod end;
mod kill;
mod ready;
mod sampling;
mod start;
mod usage;
