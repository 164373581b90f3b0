//! Path `feed`: a multicast market-data receiver that shows where each microsecond goes.

pub mod arbiter;
mod books;
mod capabilities;
pub mod capture;
pub mod excess;
pub mod json;
pub mod listen;
pub mod messages;
mod publisher;
mod receiver;
pub mod record;
pub mod recovery;
pub mod replay;
pub mod schedule;
mod script;
mod session;
mod switches;
pub mod symbols;
pub mod synthetic;
mod traps;

use std::time::Duration;

use model::{Arm, ArmKind, Support, Switch};

pub use switches::SWITCHES;

use crate::path::{Load, LoadKind, Path, PathError, Session};
use crate::peers;

static LOADS: [LoadKind; 3] = [
    LoadKind {
        name: "burst",
        what: "bursts of 100 quotes, 5 µs apart, timed from when each was due",
        judged: JUDGED,
        size_bytes: 0,
        rate_pps: 2_000,
        trial: Duration::from_millis(600),
        peers: &["sockperf"],
    },
    LoadKind {
        name: "paced",
        what: "quotes on a fixed schedule, timed from when each was due",
        judged: JUDGED,
        size_bytes: 0,
        rate_pps: 2_000,
        trial: Duration::from_millis(600),
        peers: &["sockperf"],
    },
    LoadKind {
        name: "surge",
        what: "bursts of 1,000 quotes as fast as the exchange can: what the buffers hold",
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

    fn switches(&self) -> &'static [Switch] {
        &SWITCHES
    }

    fn loads(&self) -> &'static [LoadKind] {
        &LOADS
    }

    fn support(&self, arm: &Arm, load: &Load) -> Support {
        if arm.kind == ArmKind::Peer {
            return peers::support(&arm.name, &load.kind, &LOADS);
        }
        capabilities::support(arm)
    }

    fn open(&self, load: &Load) -> Result<Box<dyn Session>, PathError> {
        if load.far.is_some() {
            return Err(PathError::Invalid {
                what: "the feed is proved in a lab of its own".into(),
                remedy: "leave --peer out; between hosts use feed replay and feed listen".into(),
            });
        }
        Ok(Box::new(session::FeedSession::open(load)?))
    }
}
