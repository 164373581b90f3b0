//! `wirepath probe generate`: the kernel's live-frame generator.

use std::fmt::Write;
use std::time::{Duration, Instant};

use host::lab::{Pair, PairSpec};
use host::text::chain;
use io::capability::Capability;
use io::{DropCounter, DropSpec, Generator, Local, Remote, Template};
use paths::probe::endpoint::{self, Choice};
use paths::probe::seed;
use wire::probe::{Header, Kind, SEQUENCE_OFFSET};

use crate::args::{Cli, GenerateArgs};
use crate::end::Failure;
use crate::summary::si;
use crate::{console, rights, stop};

/// How long a run of the generator should take: the kernel pauses after each, so not too short,
/// and hears no wish to end before, so not too long.
const RUN: Duration = Duration::from_millis(500);
/// Frames of the first run, from which the others' are reckoned, and of the longest.
const FRAMES_MIN: u32 = 20_000;
const FRAMES_MAX: u32 = 5_000_000;

/// What a generator did.
struct Made {
    sent: u64,
    attempted: u64,
    sending: Duration,
    counted: Option<(u64, u64)>,
}

pub(crate) fn run(cli: &Cli, args: &GenerateArgs) -> Result<(), Failure> {
    let made = match args.to {
        Some(to) => {
            let choice = Choice { ifname: args.interface.clone(), queue: 0, port: 9001 };
            let (local, remote) =
                endpoint::towards(to, args.port, &choice).map_err(|e| Failure::of(&e))?;
            generate(args, &local, &remote).map_err(Failure::failed)?
        }
        None => in_lab(args)?,
    };
    let pps = made.sent as f64 / made.sending.as_secs_f64().max(1e-9);
    if cli.json {
        let doc = serde_json::json!({
            "schema": model::SCHEMA,
            "command": "probe generate",
            "size_bytes": args.size,
            "sent_count": made.sent,
            "attempted_count": made.attempted,
            "sending_ns": made.sending.as_nanos() as u64,
            "sent_pps": pps,
            "counted_at_far_end": made.counted.map(|c| c.0),
            "sequence_break_count": made.counted.map(|c| c.1),
        });
        return console::text(&format!("{doc:#}"));
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

/// Into a counting XDP_DROP at the other end of a veth pair of our own.
fn in_lab(args: &GenerateArgs) -> Result<Made, Failure> {
    let pair = Pair::new(&PairSpec::default()).map_err(|e| Failure::of(&e))?;
    let local = Local {
        ifindex: pair.near.ifindex,
        ifname: pair.near.ifname.clone(),
        mtu_bytes: pair.near.mtu_bytes,
        queue: 0,
        queues: 1,
        mac: pair.near.mac,
        ip: pair.near.ip,
        port: 9001,
    };
    let remote = Remote { mac: pair.far.mac, ip: pair.far.ip, port: args.port };
    let spec = DropSpec {
        sequence_offset: Some(wire::frame::HEADERS_BYTES + SEQUENCE_OFFSET),
        ..DropSpec::default()
    };
    let dropping = pair
        .far
        .run(|| {
            let mut counter = DropCounter::load(&spec)?;
            counter.attach(pair.far.ifindex, sys_mode())?;
            Ok::<_, io::BpfError>(counter)
        })
        .map_err(|e| Failure::of(&e))?
        .map_err(|e| Failure::of(&e))?;
    let made = pair
        .near
        .run(|| generate(args, &local, &remote))
        .map_err(|e| Failure::of(&e))?
        .map_err(Failure::failed)?;
    let counts = dropping.counts().map_err(|e| Failure::of(&e))?;
    Ok(Made { counted: Some((counts.frames, counts.sequence_breaks)), ..made })
}

/// Frames that fill `time` when `frames` took so long.
fn frames_for(time: Duration, frames: u32, took: Duration) -> u32 {
    let fit = f64::from(frames) * time.as_secs_f64() / took.as_secs_f64().max(1e-9);
    (fit as u32).clamp(FRAMES_MIN, FRAMES_MAX)
}

fn sys_mode() -> sys::bpf::XdpMode {
    sys::bpf::XdpMode::Native
}

fn generate(args: &GenerateArgs, local: &Local, remote: &Remote) -> Result<Made, String> {
    let template = Template::new(local, remote, 0, args.size).map_err(|e| chain(&e))?;
    let mut frame = vec![0; template.frame_bytes()];
    let session = seed();
    let header = Header { kind: Kind::Data, flow: 0, session, sequence: 0, reply: 0, time_ns: 0 };
    let mut written = Ok(());
    let payload = template.build_unchecked(&mut frame, &mut |p| written = header.write(p));
    written.map_err(|e| e.to_string())?;
    let mut generator = Generator::new(&frame, local.ifindex, payload.start + SEQUENCE_OFFSET)
        .map_err(|e| chain(&e))?;
    rights::keep(&[Capability::Bpf, Capability::NetAdmin])?;
    let begun = Instant::now();
    let mut sending = Duration::ZERO;
    let mut frames = FRAMES_MIN;
    while begun.elapsed() < args.duration && !stop::asked() {
        let took = generator.run(frames, Generator::BATCH).map_err(|e| chain(&e))?;
        sending += took;
        let left = args.duration.saturating_sub(begun.elapsed());
        frames = frames_for(RUN.min(left), frames, took);
    }
    let counts = generator.counts();
    Ok(Made { sent: counts.sent, attempted: counts.attempted, sending, counted: None })
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
