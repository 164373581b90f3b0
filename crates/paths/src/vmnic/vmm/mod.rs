//! A small monitor: one processor at privilege level 3, a Lance, and a thread for the device.
//!
//! Guests are hostile: what they write into ports, rings and pages is checked by the device
//! model and by guest memory, and a guest that loops or sleeps for ever is stopped by a signal.

mod backend;
mod boot;
mod condition;
mod cost;
mod counters;
mod device;
mod elf;
mod moderation;
mod monitor;
mod paced;
mod pci;
mod processor;
mod ring;
mod switches;
mod tap;
mod worker;
mod xdp;

pub use backend::{Receiver, Sender, Silence, Sink};
pub use condition::Condition;
pub(in crate::vmnic) use condition::Told;
pub use cost::exit_cost_ns;
pub use counters::{Exits, Snapshot, Work};
pub use elf::ImageError;
pub use moderation::{MODERATE_FRAMES, MODERATE_TICK_US};
pub use monitor::{End, IO_BASE, IRQ_LINE, MonitorError, Outcome, Running, Spec, Task, start};
pub use paced::PacedSender;
pub use ring::{RingReceiver, RingSender, ring_backend};
pub use switches::{COMBINE_FRAMES, COMBINE_MORE_FRAMES, COMBINE_TICK_US, Switches};
pub use tap::{TapReceiver, TapSender, tap_backend};
pub use xdp::{XdpReceiver, XdpSender, xdp_backend};
