//! The hidden path `fake`: a simulated one, so that reports, the store and interruptions can be
//! tried without privileges. Its figures are made up and say so.

use std::time::Duration;

use model::{Arm, FAKE_SWITCHES, FakeSource, FakeWorld, Measurement, Support, Switch};
use paths::{Load, LoadKind, Path, PathError, Session};

static LOADS: [LoadKind; 1] = [LoadKind {
    name: "simulated",
    what: "made-up measurements with known effects",
    judged: &["rtt_ns_p50", "cpu_ns_per_packet"],
    trial: Duration::from_millis(200),
    peers: &["fake-peer"],
}];

/// The path.
#[derive(Debug, Default)]
pub(crate) struct Fake;

struct FakeSession(FakeSource, Duration);

impl Path for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn what(&self) -> &'static str {
        "simulated measurements, to test the harness itself"
    }

    fn switches(&self) -> &'static [Switch] {
        FAKE_SWITCHES
    }

    fn loads(&self) -> &'static [LoadKind] {
        &LOADS
    }

    fn support(&self, arm: &Arm, _load: &Load) -> Support {
        FakeSource::support(arm)
    }

    fn open(&self, load: &Load) -> Result<Box<dyn Session>, PathError> {
        let source = FakeSource::new(FakeWorld::default());
        Ok(Box::new(FakeSession(source, load.trial)))
    }
}

impl Session for FakeSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        // As long as a real one, so that it can be interrupted.
        std::thread::sleep(self.1);
        Ok(self.0.trial(arm))
    }

    fn nic(&self) -> String {
        "simulated".into()
    }
}
