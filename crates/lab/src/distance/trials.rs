//! Trials of an experiment over a wire with distance.

use std::net::IpAddr;

use host::netns::Netns;
use model::{Measurement, PathError};
use sys::tcp;

use super::{DistantWire, WireReport};

/// Runs of a trial whose wire was late, all together.
const ATTEMPTS: u32 = 3;

/// Gives the trials of a block the same losses, and runs a trial again whose wire was late.
#[derive(Debug)]
pub struct WireTrials {
    wire: DistantWire,
    /// Of the experiment.
    seed: u64,
    block: u64,
}

impl WireTrials {
    pub fn new(wire: DistantWire) -> Self {
        WireTrials { wire, seed: 0, block: 0 }
    }

    pub fn wire(&self) -> &DistantWire {
        &self.wire
    }

    /// See [`model::Session::seed`].
    pub fn seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    /// See [`model::Session::begin_block`].
    pub fn begin_block(&mut self) {
        self.block += 1;
    }

    /// Seed of the losses of this block.
    fn losses(&self) -> u64 {
        // The generator mixes its key; nearby seeds give unrelated losses.
        self.seed.rotate_left(32) ^ self.block
    }

    /// Begins the losses of a trial anew, at the start of its load.
    pub fn begin(&self) -> Result<(), PathError> {
        self.wire.begin(self.losses()).map_err(PathError::part)
    }

    /// Runs a trial over the wire, and adds the wire's counts to its measurement. One over a late wire does not count and
    /// is run again.
    ///
    /// - `ends`: of the connections, near and far, with their addresses.
    /// - `trial`: calls [`Self::begin`] at the start of its load, or leaves it at the start of the trial.
    ///
    /// Errors: those of the trial; the wire was late each time.
    pub fn around<R>(
        &self,
        ends: [(&Netns, IpAddr); 2],
        mut trial: impl FnMut() -> Result<R, PathError>,
        measurement: impl Fn(&mut R) -> &mut Measurement,
    ) -> Result<R, PathError> {
        let control = congestion_control(ends);
        let mut fault = String::new();
        for _ in 0..ATTEMPTS {
            self.begin()?;
            let mut ran = trial()?;
            let report = self.wire.report().map_err(PathError::part)?;
            if let Some(why) = report.fault(self.wire.spec()) {
                fault = why;
                continue;
            }
            let m = measurement(&mut ran);
            record(&report, m);
            m.mode.insert("tcp_congestion_control".to_owned(), control);
            return Ok(ran);
        }
        Err(PathError::Invalid {
            what: format!("{fault}, in {ATTEMPTS} runs of a trial"),
            remedy: "leave the machine alone, or give the wire a longer delay or a lower rate"
                .to_owned(),
        })
    }
}

/// Congestion control of new connections of both ends that name none.
fn congestion_control([near, far]: [(&Netns, IpAddr); 2]) -> String {
    /// Nothing has to listen there.
    const PORT: u16 = 9;
    let towards = |netns: &Netns, ip: IpAddr| {
        let read = netns.run(|| tcp::congestion_control_towards((ip, PORT).into()));
        read.ok().and_then(Result::ok).unwrap_or_else(|| "unknown".to_owned())
    };
    let (of_near, of_far) = (towards(near.0, far.1), towards(far.0, near.1));
    if of_near == of_far { of_near } else { format!("near {of_near}, far {of_far}") }
}

fn record(report: &WireReport, m: &mut Measurement) {
    let WireReport { forward, back } = report;
    let sum = |count: fn(&super::WireCounts) -> u64| count(forward) + count(back);
    let counts = [
        ("wire_segment_count", sum(|counts| counts.data_segment_count)),
        ("wire_loss_count", sum(|counts| counts.lost_count)),
        ("wire_queue_drop_count", sum(|counts| counts.queue_drop_count)),
        ("wire_mark_count", sum(|counts| counts.marked_count)),
    ];
    m.counters.extend(counts.map(|(name, count)| (name.to_owned(), count)));
    let late = [
        ("wire_late_ns_p50", forward.late_ns_p50.max(back.late_ns_p50)),
        ("wire_late_ns_p99", forward.late_ns_p99.max(back.late_ns_p99)),
    ];
    m.figures.extend(late.map(|(name, late_ns)| (name.to_owned(), late_ns as f64)));
}
