//! Load `storm`: the kernel's live-frame generator sends more datagrams than user space can.

use std::time::Duration;

use io::{Local, Remote, Template};
use lab::Pair;
use sys::bpf::Generator;
use sys::clock::monotonic_ns;
use sys::rusage::ThreadUsage;
use wire::probe::{Header, Kind, SEQUENCE_OFFSET};

use super::far_end::{ends, with_far};
use super::role::{RoleReport, Task};
use lab::{Placement, RunCause, cost_of, settle};
use model::PathError;

/// Frames of one run of the generator. The kernel pauses after each run, so runs are long.
const FRAMES_MIN: u32 = 100_000;

/// Sends generated frames to a receiving far end for about `trial`.
pub(super) fn run(
    pair: &Pair,
    far_task: &Task,
    trial: Duration,
    places: &Placement,
) -> Result<(RoleReport, RoleReport), PathError> {
    with_far(pair, far_task, places, || {
        settle(&pair.near, &places.near)?;
        let session = far_task.session.unwrap_or(0);
        Ok(send(pair, session, far_task.payload_bytes, trial)?.0)
    })
}

/// The kernel's live-frame generator for datagrams of a run; each has its sequence number.
pub fn live_frames(
    local: &Local,
    remote: &Remote,
    session: u32,
    payload_bytes: usize,
) -> Result<Generator, RunCause> {
    let template = Template::new(local, remote, 0, payload_bytes)?;
    let mut frame = vec![0; template.frame_bytes()];
    let header = Header { kind: Kind::Data, flow: 0, session, sequence: 0, reply: 0, time_ns: 0 };
    // No checksum: IPv4 allows it, and the sequence number changes in every frame.
    let payload = template.build_unchecked(&mut frame, &mut |p| {
        let written = header.write(p);
        debug_assert!(written.is_ok());
    });
    Ok(Generator::new(&frame, local.ifindex, payload.start + SEQUENCE_OFFSET)?)
}

/// Sends generated frames for about `trial` from a thread in the near end's namespace. Returns the time
/// during which frames were sent, too.
pub(super) fn send(
    pair: &Pair,
    session: u32,
    payload_bytes: usize,
    trial: Duration,
) -> Result<(RoleReport, Duration), RunCause> {
    let ((local, remote), _) = ends(pair);
    let mut generator = live_frames(&local, &remote, session, payload_bytes)?;
    let (begun_ns, begun) = (monotonic_ns(), ThreadUsage::counted());
    let until_ns = begun_ns + trial.as_nanos() as u64;
    let mut sending = Duration::ZERO;
    let mut frames = FRAMES_MIN;
    loop {
        sending += generator.run(frames, Generator::BATCH)?;
        if monotonic_ns() >= until_ns {
            break;
        }
        // Enough frames for the rest of the time, estimated from the rate so far.
        let rate = generator.sent() as f64 / sending.as_secs_f64().max(1e-6);
        let left_s = until_ns.saturating_sub(monotonic_ns()) as f64 / 1e9;
        frames = ((rate * left_s) as u32).clamp(FRAMES_MIN, 20_000_000);
    }
    let used = ThreadUsage::counted().since(&begun);
    let mut report = RoleReport { sent_count: generator.sent(), ..RoleReport::default() };
    report.wall_ns = monotonic_ns() - begun_ns;
    report.cost = cost_of(&used);
    let attempted = generator.counts().attempted;
    report.engine.counters.push(("generator_attempted_count".into(), attempted));
    report.engine.mode.push(("generator".into(), "live frames".into()));
    Ok((report, sending))
}
