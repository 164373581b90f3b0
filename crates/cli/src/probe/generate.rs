//! `wirepath probe generate`: the kernel's live-frame generator.

use std::fmt::Write;
use std::time::{Duration, Instant};

use host::text::chain;
use house::context::Context;
use house::{console, privileges, signals};
use io::{Local, Remote};
use lab::{Pair, PairSpec};
use probe::endpoint::{self, Choice};
use probe::random_session;
use remote::Failure;
use schemars::JsonSchema;
use serde::Serialize;
use sys::bpf::{DropCounter, DropSpec, Generator};
use sys::capability::Capability;
use wire::probe::SEQUENCE_OFFSET;

use super::args::GenerateArgs;
use super::summary::si;

/// Duration of one run of the generator. The kernel pauses after each, so not too short, and cannot
/// be stopped during one, so not too long.
const RUN_INTERVAL: Duration = Duration::from_millis(500);
/// Frames of the first run, which sets the length of the others, and of the longest.
const FRAMES_MIN: u32 = 20_000;
const FRAMES_MAX: u32 = 5_000_000;

/// Result of a generator.
struct Generated {
    sent: u64,
    attempted: u64,
    sending: Duration,
    counted: Option<(u64, u64)>,
}

/// Document of `probe generate --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct GenerateDocument {
    schema: u32,
    command: &'static str,
    size_bytes: usize,
    sent_count: u64,
    attempted_count: u64,
    sending_ns: u64,
    sent_pps: f64,
    counted_at_far_end: Option<u64>,
    sequence_break_count: Option<u64>,
}

pub(crate) fn run(context: &Context, args: &GenerateArgs) -> Result<(), Failure> {
    let made = match args.to {
        Some(to) => {
            let choice = Choice { ifname: args.interface.clone(), queue: 0, port: 9001 };
            let (local, remote) = endpoint::towards(to.into(), args.port, &choice)?;
            generate(args, &local, &remote).map_err(Failure::failed)?
        }
        None => in_lab(args)?,
    };
    let pps = made.sent as f64 / made.sending.as_secs_f64().max(1e-9);
    if context.json {
        return console::json(&GenerateDocument {
            schema: house::context::DOCUMENT,
            command: "probe generate",
            size_bytes: args.size,
            sent_count: made.sent,
            attempted_count: made.attempted,
            sending_ns: made.sending.as_nanos() as u64,
            sent_pps: pps,
            counted_at_far_end: made.counted.map(|c| c.0),
            sequence_break_count: made.counted.map(|c| c.1),
        });
    }
    let mut out = format!(
        "sent {} frames of {} byte payloads in {:.3} s of sending: {}pps from one thread\n",
        made.sent,
        args.size,
        made.sending.as_secs_f64(),
        si(pps)
    );
    if made.attempted > made.sent {
        let _ = writeln!(out, "the interface refused {}", made.attempted - made.sent);
    }
    if let Some((frames, breaks)) = made.counted {
        let _ = writeln!(out, "far end's XDP program counted {frames}, sequence breaks {breaks}");
    }
    console::text(&out)
}

/// Sends to a counting XDP_DROP at the other end of a temporary veth pair.
fn in_lab(args: &GenerateArgs) -> Result<Generated, Failure> {
    let pair = Pair::new(&PairSpec::default())?;
    let local = Local {
        ifindex: pair.near.ifindex,
        ifname: pair.near.ifname.clone(),
        mtu_bytes: pair.near.mtu_bytes,
        queue: 0,
        queues: 1,
        mac: pair.near.mac,
        ip: pair.near.ip.into(),
        addresses: Vec::new(),
        port: 9001,
    };
    let remote = Remote { mac: pair.far.mac, ip: pair.far.ip.into(), port: args.port };
    let spec = DropSpec {
        sequence_offset: Some(wire::frame::HEADERS_BYTES + SEQUENCE_OFFSET),
        ..DropSpec::default()
    };
    let dropping = pair
        .far
        .run(|| {
            let mut counter = DropCounter::load(&spec)?;
            counter.attach(pair.far.ifindex, io::XdpMode::Native)?;
            Ok::<_, sys::bpf::BpfError>(counter)
        })?
        .map_err(|e| Failure::from_chain(&e))?;
    let made = pair.near.run(|| generate(args, &local, &remote))?.map_err(Failure::failed)?;
    let counts = dropping.counts().map_err(|e| Failure::from_chain(&e))?;
    Ok(Generated { counted: Some((counts.frames, counts.sequence_breaks)), ..made })
}

/// Number of frames that fill `time`, given that `frames` took `took`.
fn frames_for(time: Duration, frames: u32, took: Duration) -> u32 {
    let fit = f64::from(frames) * time.as_secs_f64() / took.as_secs_f64().max(1e-9);
    (fit as u32).clamp(FRAMES_MIN, FRAMES_MAX)
}

fn generate(args: &GenerateArgs, local: &Local, remote: &Remote) -> Result<Generated, String> {
    let session = random_session().map_err(|e| e.to_string())?;
    let mut generator =
        probe::live_frames(local, remote, session, args.size).map_err(|e| chain(&*e))?;
    privileges::keep_only(&[Capability::Bpf, Capability::NetAdmin])?;
    let begun = Instant::now();
    let mut sending = Duration::ZERO;
    let mut frames = FRAMES_MIN;
    while begun.elapsed() < args.time && !signals::stop_requested() {
        let took = generator.run(frames, Generator::BATCH).map_err(|e| chain(&e))?;
        sending += took;
        let left = args.time.saturating_sub(begun.elapsed());
        frames = frames_for(RUN_INTERVAL.min(left), frames, took);
    }
    let counts = generator.counts();
    Ok(Generated { sent: counts.sent, attempted: counts.attempted, sending, counted: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_as_long_as_the_time_that_is_left() {
        let ms = Duration::from_millis;
        assert_eq!(frames_for(ms(500), 20_000, ms(10)), 1_000_000);
        assert_eq!(frames_for(ms(50), 1_000_000, ms(500)), 100_000);
        assert_eq!(frames_for(ms(500), 20_000, ms(10_000)), FRAMES_MIN, "a slow target");
        assert_eq!(frames_for(ms(500), 20_000, Duration::ZERO), FRAMES_MAX);
        assert_eq!(frames_for(Duration::ZERO, 20_000, ms(1)), FRAMES_MIN);
    }
}
