//! The path.

use model::{Arm, Load, PathError, Session, Support, SwitchId, TypedPath};

use super::loads::GuestLoad;
use super::switches::Switch;
use super::{echo, session, support, switches};

#[derive(Debug, Default, Clone, Copy)]
pub struct Guest;

impl TypedPath for Guest {
    type Switch = Switch;
    type Kind = GuestLoad;

    const NAME: &'static str = "guest";
    const WHAT: &'static str =
        "a virtio-net driver in bare-metal firmware, in QEMU: from an echo to its answer";

    fn ladder(&self, _load: &Load, kind: GuestLoad) -> Vec<SwitchId> {
        let cpu_count = sys::affinity::allowed_cpus().map_or(1, |cpus| cpus.len());
        switches::ladder(kind, cpu_count).into_iter().map(SwitchId::from).collect()
    }

    fn support(&self, arm: &Arm, _load: &Load, kind: GuestLoad) -> Support {
        support::support(arm, kind)
    }

    fn open(&self, load: &Load, kind: GuestLoad) -> Result<Box<dyn Session>, PathError> {
        if load.far.is_some() {
            return Err(PathError::Invalid {
                what: "the guest runs in its own machine".into(),
                remedy: "omit --far".into(),
            });
        }
        if load.size_bytes > echo::BYTES_MAX {
            return Err(PathError::Invalid {
                what: format!("a payload of {} bytes", load.size_bytes),
                remedy: format!("give --size of at most {}", echo::BYTES_MAX),
            });
        }
        Ok(Box::new(session::GuestSession::open(load, kind)?))
    }
}
