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
use model::{
    Arm, ArmKind, Load, LoadKind, LoadWords, Path, PathError, PathLoad, ReplayRequest, Session,
    Support, SwitchId, TypedPath,
};
use serde::{Deserialize, Serialize};

pub use exchange::{SERVICE, serve_exchange};
pub use recording::RecordingError;
pub use switches::Switch;

use lab::peers;

model::loads! {
    /// Schedules of the published quotes.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum FeedLoad {
        Burst {
            what: "bursts of 100 quotes, 5 µs apart, timed from each due time",
            judged: JUDGED,
            size_bytes: 0,
            rate_pps: 2_000,
            trial: Duration::from_millis(600),
            peers: &["sockperf"],
        },
        Paced {
            what: "quotes on a fixed schedule, timed from each due time",
            judged: JUDGED,
            size_bytes: 0,
            rate_pps: 2_000,
            trial: Duration::from_millis(600),
            peers: &["sockperf"],
        },
        Surge {
            what: "bursts of 1,000 quotes at full speed: capacity of the buffers",
            judged: &["lost_count", "cpu_ns_per_packet"],
            size_bytes: 0,
            rate_pps: 20_000,
            trial: Duration::from_millis(400),
            peers: &[],
        },
    }
}

const JUDGED: &[&str] = &["schedule_to_app_ns_p50", "schedule_to_app_ns_p99", "cpu_ns_per_packet"];

/// The path.
#[derive(Debug, Default, Clone, Copy)]
pub struct Feed;

impl TypedPath for Feed {
    type Switch = Switch;
    type Kind = FeedLoad;

    const NAME: &'static str = "feed";
    const WHAT: &'static str =
        "a multicast receiver of exchange quotes: from the schedule to the application";

    fn ladder(&self, load: &Load, kind: FeedLoad) -> Vec<SwitchId> {
        rungs(load, Some(kind))
    }

    fn load_words(&self, _kind: FeedLoad) -> LoadWords {
        LoadWords { noun: "quote", baseline: "plain receiver" }
    }

    fn support(&self, arm: &Arm, load: &Load, kind: FeedLoad) -> Support {
        supported(arm, load, kind.kind())
    }

    fn open(&self, load: &Load, kind: FeedLoad) -> Result<Box<dyn Session>, PathError> {
        Ok(Box::new(session::FeedSession::open(load, kind, None)?))
    }

    fn replaying(&self, replay: &ReplayRequest) -> Result<Box<dyn Path>, PathError> {
        let sequence = replay.sequence.parse().map_err(|error| PathError::Invalid {
            what: host::text::chain(&error),
            remedy: "give another --sequence".into(),
        })?;
        Ok(Box::new(ReplayedFeed { file: replay.file.clone(), sequence }))
    }
}

fn rungs(load: &Load, kind: Option<FeedLoad>) -> Vec<SwitchId> {
    let cpu_count = sys::affinity::allowed_cpus().map_or(1, |cpus| cpus.len());
    let rungs = switches::ladder(kind, load.far.is_none(), cpu_count);
    rungs.into_iter().map(SwitchId::from).collect()
}

fn supported(arm: &Arm, load: &Load, kind: &LoadKind) -> Support {
    if load.far.is_some() {
        return support::between_two_ends(arm);
    }
    if arm.kind == ArmKind::Peer {
        return peers::support(&arm.name, kind);
    }
    support::support(arm)
}

model::loads! {
    /// The load of a capture.
    pub enum ReplayLoad {
        Replay {
            what: "the begin of a capture with its own timing, timed from each due time",
            judged: JUDGED,
            size_bytes: 0,
            rate_pps: 0,
            trial: Duration::from_secs(1),
            peers: &[],
        },
    }
}

/// The path with a capture as its load: payloads of any protocol with a sequence number.
#[derive(Debug, Clone)]
pub struct ReplayedFeed {
    pub file: PathBuf,
    pub sequence: SequenceField,
}

impl TypedPath for ReplayedFeed {
    type Switch = Switch;
    type Kind = ReplayLoad;

    const NAME: &'static str = Feed::NAME;
    const WHAT: &'static str = Feed::WHAT;

    fn ladder(&self, load: &Load, _kind: ReplayLoad) -> Vec<SwitchId> {
        rungs(load, None)
    }

    fn load_words(&self, _kind: ReplayLoad) -> LoadWords {
        LoadWords { noun: "packet", baseline: "plain receiver" }
    }

    fn support(&self, arm: &Arm, load: &Load, kind: ReplayLoad) -> Support {
        supported(arm, load, kind.kind())
    }

    fn open(&self, load: &Load, _kind: ReplayLoad) -> Result<Box<dyn Session>, PathError> {
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
        Ok(Box::new(session::FeedSession::open(load, FeedLoad::Paced, Some(recording))?))
    }
}
