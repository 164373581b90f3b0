//! Path `probe`: packet I/O engines side by side.

mod accounting;
pub mod endpoint;
mod far_end;
mod far_peers;
pub mod load;
mod measure;
mod mtu;
mod path;
pub mod peer;
mod remote;
pub mod role;
mod session;
mod storm;
mod support;
mod switches;
mod tcp;
mod verbs;
mod vlan;
mod watch;
mod xdp_tools;

pub use accounting::{ROUND_TRIP, measurement, not_suspended, received_from};
pub use far_peers::{FarPeers, answer_peers};
pub use measure::RateSession;
pub use mtu::Mtus;
pub use path::{Probe, ProbeLoad, between};
pub use session::random_session;
pub use storm::live_frames;
pub use switches::{ArmError, Switch, engine_spec, parse_arm};
pub use vlan::in_vlan;
pub use watch::InterfaceWatch;
