//! The hidden path `fake`: simulated, so that reports, the store and interruptions can be tested
//! without privileges. Its figures are invented and marked as such.

use std::time::Duration;

use model::{Arm, FakeSource, FakeSwitch, FakeWorld, Load, Measurement};
use model::{PathError, Session, Support, TypedPath};

model::loads! {
    pub(crate) enum FakeLoad {
        Simulated {
            what: "simulated measurements with known effects",
            judged: &["rtt_ns_p50", "cpu_ns_per_packet"],
            size_bytes: 64,
            rate_pps: 0,
            trial: Duration::from_millis(200),
            peers: &["fake-peer"],
        },
    }
}

#[derive(Debug, Default)]
pub(crate) struct Fake;

struct FakeSession(FakeSource, Duration);

impl TypedPath for Fake {
    type Switch = FakeSwitch;
    type Kind = FakeLoad;

    const NAME: &'static str = "fake";
    const WHAT: &'static str = "simulated measurements, to test the harness itself";

    fn support(&self, arm: &Arm, _load: &Load, _kind: FakeLoad) -> Support {
        FakeSource::support(arm)
    }

    fn open(&self, load: &Load, _kind: FakeLoad) -> Result<Box<dyn Session>, PathError> {
        let source = FakeSource::new(FakeWorld::default());
        Ok(Box::new(FakeSession(source, load.trial)))
    }
}

impl Session for FakeSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        // Takes as long as a real trial, so that it can be interrupted.
        std::thread::sleep(self.1);
        Ok(self.0.trial(arm))
    }

    fn nic(&self) -> String {
        "simulated".into()
    }
}
