//! Settings of the host: read, planned, changed with a journal, and given back.
mod coalescing;
mod error;
mod knob;
pub(crate) mod knobs;
mod ring;
mod system;
mod target;
mod value;

pub use coalescing::NoCoalescing;
pub use error::KnobError;
pub use knob::{Knob, all, find, targets};
pub use ring::LargeRing;
pub use system::{Place, System};
pub use target::{Scope, Target, is_interface_name};
pub use value::{Format, Value, cpus_to_mask, list_to_cpus, mask_to_cpus};
