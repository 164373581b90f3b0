//! The far end of a lab: opened before the near end, and stopped once arrivals have ceased.

use io::{Local, Remote};
use lab::{End, Pair, Placement, Run, RunCause, local, settle};
use model::PathError;

use crate::role::{self, LiveCounts, RoleReport, Steering, Task};
use crate::watch::InterfaceWatch;

/// UDP port of the far end.
pub(super) const FAR_PORT: u16 = 9000;
/// UDP port of the near end.
pub(super) const NEAR_PORT: u16 = 9001;

/// Local and remote address of each end.
pub(super) fn ends(pair: &Pair) -> ((Local, Remote), (Local, Remote)) {
    let (near, far) = (&pair.near, &pair.far);
    (
        (local(near, near.load_ip(), NEAR_PORT), remote(far, FAR_PORT)),
        (local(far, far.load_ip(), FAR_PORT), remote(near, NEAR_PORT)),
    )
}

fn remote(end: &End, port: u16) -> Remote {
    Remote { mac: end.mac, ip: end.load_ip(), port }
}

/// Runs the far end and, once it is open, `near`; see [`lab::run`].
pub(super) fn with_far<R: Send>(
    pair: &Pair,
    far_task: &Task,
    places: &Placement,
    near: impl FnOnce() -> Result<R, RunCause> + Send,
) -> Result<(R, RoleReport), PathError> {
    let ((_, _), (far_local, _)) = ends(pair);
    let live = LiveCounts::default();
    let run = Run {
        receiver: "far",
        sender: "near",
        received_count: &live.received_count,
        grace: role::ARRIVAL_GRACE,
        grace_max: role::ARRIVAL_GRACE_MAX,
    };
    lab::run(
        &run,
        |signals| {
            settle(&pair.far, &places.far)?;
            let watch = InterfaceWatch::new(far_local.ifindex, &far_local.ifname);
            let mut engine = io::open(&far_task.setup(&far_local, None))?;
            signals.ready();
            let steering = Steering { stop: signals.stop, live: Some(&live), watch };
            Ok(role::run(&mut engine, far_task, steering)?)
        },
        // Pings may be duplicated, so the number of arrivals to expect is unknown.
        || Ok((near()?, u64::MAX)),
    )
}
