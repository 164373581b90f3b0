//! The `storm` load: more datagrams than user space can make, from the kernel's live-frame
//! generator, at a receiver.

use std::time::Duration;

use host::lab::Pair;
use io::clock::monotonic_ns;
use io::rusage::ThreadUsage;
use io::{Generator, Template};
use model::Cost;
use wire::probe::{Header, Kind, SEQUENCE_OFFSET};

use super::role::{RoleReport, Task};
use super::session::{ends, with_far};
use crate::lab::{Placement, settle};
use crate::path::PathError;

/// Frames of one run of the generator: each run ends with a pause of the kernel's, so few runs.
const FRAMES_MIN: u32 = 100_000;

/// Generates for about `trial` at a far end that receives.
pub(super) fn run(
    pair: &Pair,
    far_task: &Task,
    trial: Duration,
    places: &Placement,
) -> Result<(RoleReport, RoleReport), PathError> {
    let ((local, remote), _) = ends(pair);
    with_far(pair, far_task, places, || {
        settle(&pair.near, &places.near)?;
        let template = Template::new(&local, &remote, 0, far_task.payload_bytes)
            .map_err(|e| crate::text::chain(&e))?;
        let mut frame = vec![0; template.frame_bytes()];
        let session = far_task.session.unwrap_or(0);
        let header =
            Header { kind: Kind::Data, flow: 0, session, sequence: 0, reply: 0, time_ns: 0 };
        // No checksum: IPv4 allows it, and the sequence number changes in every frame.
        let payload = template.build_unchecked(&mut frame, &mut |p| {
            let written = header.write(p);
            debug_assert!(written.is_ok());
        });
        let mut generator = Generator::new(&frame, local.ifindex, payload.start + SEQUENCE_OFFSET)
            .map_err(|e| crate::text::chain(&e))?;
        let (begun_ns, begun) = (monotonic_ns(), ThreadUsage::now());
        let until_ns = begun_ns + trial.as_nanos() as u64;
        let mut sending = Duration::ZERO;
        let mut frames = FRAMES_MIN;
        while monotonic_ns() < until_ns {
            sending +=
                generator.run(frames, Generator::BATCH).map_err(|e| crate::text::chain(&e))?;
            // The rest of the time in one go, as far as the rate so far tells.
            let rate = generator.sent() as f64 / sending.as_secs_f64().max(1e-6);
            let left_s = until_ns.saturating_sub(monotonic_ns()) as f64 / 1e9;
            frames = ((rate * left_s) as u32).clamp(FRAMES_MIN, 20_000_000);
        }
        let used = ThreadUsage::now().since(&begun);
        let mut report = RoleReport { sent_count: generator.sent(), ..RoleReport::default() };
        report.wall_ns = monotonic_ns() - begun_ns;
        report.cost = Cost {
            user_ns: used.user_ns,
            system_ns: used.system_ns,
            softirq_ns: None,
            context_switch_count: used.context_switch_count,
            syscall_count: None,
        };
        let attempted = generator.counts().attempted;
        report.engine.counters.push(("generator_attempted_count".into(), attempted));
        report.engine.mode.push(("generator".into(), "live frames".into()));
        Ok(report)
    })
}
