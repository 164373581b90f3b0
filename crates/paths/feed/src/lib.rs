//! Path `feed`: a multicast market-data receiver that shows where each microsecond goes.

mod accounting;
mod error;
mod exchange;
mod interrupts;
mod publisher;
mod receiver;
mod recording;
mod script;
mod session;
mod support;
mod switches;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use marketdata::sequence_field::SequenceField;
use model::{Arm, ArmKind, PathSwitch, Support, SwitchSpec};

pub use exchange::{SERVICE, serve_exchange};
pub use recording::RecordingError;
pub use switches::Switch;

use lab::peers;
use model::{Load, LoadKind, Path, PathError, Session};

static LOADS: [LoadKind; 3] = [
    LoadKind {
        name: "burst",
        what: "bursts of 100 quotes, 5 µs apart, timed from each due time",
        judged: JUDGED,
        size_bytes: 0,
        rate_pps: 2_000,
        trial: Duration::from_millis(600),
        peers: &["sockperf"],
    },
    LoadKind {
        name: "paced",
        what: "quotes on a fixed schedule, timed from each due time",
        judged: JUDGED,
        size_bytes: 0,
        rate_pps: 2_000,
        trial: Duration::from_millis(600),
        peers: &["sockperf"],
    },
    LoadKind {
        name: "surge",
        what: "bursts of 1,000 quotes at full speed: capacity of the buffers",
        judged: &["lost_count", "cpu_ns_per_packet"],
        size_bytes: 0,
        rate_pps: 20_000,
        trial: Duration::from_millis(400),
        peers: &[],
    },
];

const JUDGED: &[&str] = &["schedule_to_app_ns_p50", "schedule_to_app_ns_p99", "cpu_ns_per_packet"];

/// The path.
#[derive(Debug, Default, Clone, Copy)]
pub struct Feed;

impl Path for Feed {
    fn name(&self) -> &'static str {
        "feed"
    }

    fn what(&self) -> &'static str {
        "a multicast receiver of exchange quotes: from the schedule to the application"
    }

    fn switches(&self) -> &'static [SwitchSpec] {
        Switch::SPECS
    }

    fn loads(&self) -> &'static [LoadKind] {
        &LOADS
    }

    fn support(&self, arm: &Arm, load: &Load) -> Support {
        if load.far.is_some() {
            return support::between_two_ends(arm);
        }
        if arm.kind == ArmKind::Peer {
            return peers::support(&arm.name, &load.kind, &LOADS);
        }
        support::support(arm)
    }

    fn open(&self, load: &Load) -> Result<Box<dyn Session>, PathError> {
        Ok(Box::new(session::FeedSession::open(load, None)?))
    }
}

static REPLAY: [LoadKind; 1] = [LoadKind {
    name: "replay",
    what: "the begin of a capture with its own timing, timed from each due time",
    judged: JUDGED,
    size_bytes: 0,
    rate_pps: 0,
    trial: Duration::from_secs(1),
    peers: &[],
}];

/// The path with a capture as its load: payloads of any protocol with a sequence number.
#[derive(Debug, Clone)]
pub struct ReplayedFeed {
    pub file: PathBuf,
    pub sequence: SequenceField,
}

impl Path for ReplayedFeed {
    fn name(&self) -> &'static str {
        Feed.name()
    }

    fn what(&self) -> &'static str {
        Feed.what()
    }

    fn switches(&self) -> &'static [SwitchSpec] {
        Feed.switches()
    }

    fn loads(&self) -> &'static [LoadKind] {
        &REPLAY
    }

    fn support(&self, arm: &Arm, load: &Load) -> Support {
        Feed.support(arm, load)
    }

    fn open(&self, load: &Load) -> Result<Box<dyn Session>, PathError> {
        if load.far.is_some() {
            return Err(PathError::Invalid {
                what: "a capture is replayed in a lab only".into(),
                remedy: "omit --far, or --replay and --sequence".into(),
            });
        }
        let read = recording::Recording::read(&self.file, self.sequence, load.trial);
        let recording = read.map_err(|error| PathError::Invalid {
            what: host::text::chain(&error),
            remedy: "give another --replay or --sequence".into(),
        })?;
        Ok(Box::new(session::FeedSession::open(load, Some(recording))?))
    }
}
