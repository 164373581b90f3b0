//! Labs, knobs and checks on the host.

pub mod lab;
pub mod net;
