//! A small monitor: one processor at privilege level 3, a network card, and a thread for the device.
//!
//! Guests are hostile: what they write into ports, rings and pages is checked by the device
//! model and by guest memory, and a guest that loops or sleeps for ever is stopped by a signal.

#[cfg(target_arch = "x86_64")]
mod backend;
#[cfg(target_arch = "x86_64")]
mod boot;
mod bus;
#[cfg(any(test, fuzzing))]
#[path = "../../../fuzz/bytes.rs"]
mod bytes;
#[cfg(target_arch = "x86_64")]
mod condition;
#[cfg(target_arch = "x86_64")]
mod cost;
#[cfg(target_arch = "x86_64")]
mod counters;
mod counts;
#[cfg(target_arch = "x86_64")]
mod device;
#[cfg(target_arch = "x86_64")]
mod elf;
#[cfg(target_arch = "x86_64")]
mod error;
#[cfg(target_arch = "x86_64")]
mod guest_umem;
#[cfg(target_arch = "x86_64")]
mod jail;
pub mod lance;
#[cfg(target_arch = "x86_64")]
mod moderation;
#[cfg(target_arch = "x86_64")]
mod monitor;
#[cfg(target_arch = "x86_64")]
mod nic;
#[cfg(target_arch = "x86_64")]
mod paced;
#[cfg(target_arch = "x86_64")]
mod pci;
#[cfg(target_arch = "x86_64")]
mod processor;
#[cfg(target_arch = "x86_64")]
mod ring;
#[cfg(target_arch = "x86_64")]
mod shared;
#[cfg(target_arch = "x86_64")]
mod shortcuts;
#[cfg(target_arch = "x86_64")]
mod spec;
#[cfg(target_arch = "x86_64")]
mod switches;
#[cfg(target_arch = "x86_64")]
mod tap;
pub mod virtio;
#[cfg(target_arch = "x86_64")]
mod worker;
#[cfg(target_arch = "x86_64")]
mod xdp;

#[cfg(target_arch = "x86_64")]
pub use backend::{Halves, Receiver, Sender, Silence, Sink};
#[cfg(target_arch = "x86_64")]
pub use condition::Condition;
#[cfg(target_arch = "x86_64")]
pub use condition::FailureReport;
#[cfg(target_arch = "x86_64")]
pub use cost::exit_cost_ns;
#[cfg(target_arch = "x86_64")]
pub use counters::{Exits, Snapshot, Work};
#[cfg(target_arch = "x86_64")]
pub use elf::ImageError;
#[cfg(target_arch = "x86_64")]
pub use error::MonitorError;
#[cfg(target_arch = "x86_64")]
pub use guest_umem::{GuestUmem, GuestUmemWait, guest_umem_backend};
#[cfg(target_arch = "x86_64")]
pub use jail::{Running, start};
#[cfg(target_arch = "x86_64")]
pub use moderation::{MODERATE_FRAMES, MODERATE_TICK_US};
#[cfg(target_arch = "x86_64")]
pub use monitor::{IO_BASE, IRQ_LINE};
#[cfg(target_arch = "x86_64")]
pub use nic::{NicState, VIRTIO_AT};
#[cfg(target_arch = "x86_64")]
pub use paced::PacedSender;
#[cfg(target_arch = "x86_64")]
pub use ring::{RingReceiver, RingSender, ring_backend};
#[cfg(target_arch = "x86_64")]
pub use spec::{GuestEnd, Outcome, Spec, Task};
#[cfg(target_arch = "x86_64")]
pub use switches::{COMBINE_FRAMES, COMBINE_MORE_FRAMES, COMBINE_TICK_US, Switches};
#[cfg(target_arch = "x86_64")]
pub use tap::{TapReceiver, TapSender, tap_backend};
#[cfg(target_arch = "x86_64")]
pub use xdp::{XdpReceiver, XdpSender, xdp_backend};
