//! The far end of a lab: opened before the near end, and stopped once arrivals have ceased.

use io::{Local, Remote};
use lab::{Cause, End, Pair, Placement, Run, local, settle};
use model::PathError;

use crate::role::{self, Live, RoleReport, Steering, Task};
use crate::watch::Watch;

/// UDP port of the far end.
pub(super) const FAR_PORT: u16 = 9000;
/// UDP port of the near end.
pub(super) const NEAR_PORT: u16 = 9001;

/// Local and remote address of each end.
pub(super) fn ends(pair: &Pair) -> ((Local, Remote), (Local, Remote)) {
    let local = |end: &End, port| local(end, end.load_ip(), port);
    let remote = |end: &End, port| Remote { mac: end.mac, ip: end.load_ip(), port };
    (
        (local(&pair.near, NEAR_PORT), remote(&pair.far, FAR_PORT)),
        (local(&pair.far, FAR_PORT), remote(&pair.near, NEAR_PORT)),
    )
}

/// Runs the far end and, once it is open, `near`; see [`lab::run`].
pub(super) fn with_far<R: Send>(
    pair: &Pair,
    far_task: &Task,
    places: &Placement,
    near: impl FnOnce() -> Result<R, Cause> + Send,
) -> Result<(R, RoleReport), PathError> {
    let ((_, _), (far_local, _)) = ends(pair);
    let live = Live::default();
    let run = Run {
        receiver: "far",
        sender: "near",
        received_count: &live.received_count,
        grace: role::GRACE,
        grace_max: role::GRACE_MAX,
    };
    lab::run(
        &run,
        |signals| {
            settle(&pair.far, &places.far)?;
            let watch = Watch::new(far_local.ifindex, &far_local.ifname);
            let mut engine = io::open(&far_task.setup(&far_local, None))?;
            signals.ready();
            let steering = Steering { stop: signals.stop, live: Some(&live), watch };
            Ok(role::run(&mut engine, far_task, steering)?)
        },
        // Pings may be duplicated, so the number of arrivals to expect is unknown.
        || Ok((near()?, u64::MAX)),
    )
}
