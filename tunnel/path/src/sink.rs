//! The sink: a program that counts frames and checks their order.

use std::thread;
use std::time::{Duration, Instant};

use host::net::ethtool::Feature;
use lab::End;
use sys::bpf::{DelayCounts, DropCounter, DropCounts, DropSpec};

use model::PathError;

/// Silence at the sink that ends a trial, and maximum wait for it.
pub(super) const SILENCE_GRACE: Duration = Duration::from_millis(20);
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_secs(3);

/// How the sink takes frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intake {
    /// XDP in the driver: no socket buffer is built for a frame that comes without one.
    Xdp,
    /// tcx: of every frame a socket buffer.
    ///
    /// - `polls`: GRO is on. A veth receives XDP frames only while it polls; one that receives socket buffers
    ///   is cheaper without it.
    Skb { polls: bool },
}

impl Intake {
    /// Name in the results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Intake::Xdp => "native XDP",
            Intake::Skb { polls: true } => "tcx, GRO on",
            Intake::Skb { polls: false } => "tcx, GRO off",
        }
    }
}

/// The program at the sink's interface; detached on drop.
pub(super) struct Sink(DropCounter);

impl Sink {
    /// - `spec`: has a tag, which frames of the host's own stack lack.
    pub(super) fn open(end: &End, spec: &DropSpec, intake: Intake) -> Result<Sink, PathError> {
        if let Intake::Skb { polls } = intake {
            end.set_feature(Feature::GRO, polls).map_err(PathError::part)?;
        }
        let opened = end.run(|| {
            let mut counter = DropCounter::load(spec)?;
            match intake {
                Intake::Xdp => counter.attach(end.ifindex, sys::bpf::XdpMode::Native)?,
                Intake::Skb { .. } => counter.attach_tcx(end.ifindex)?,
            }
            Ok::<_, sys::bpf::BpfError>(counter)
        });
        Ok(Sink(opened.map_err(PathError::part)?.map_err(PathError::part)?))
    }

    /// Delays of frames so far.
    pub(super) fn delays(&self) -> Result<DelayCounts, PathError> {
        self.0.delays().map_err(PathError::part)
    }

    /// Arrivals so far.
    pub(super) fn counts(&self) -> Result<DropCounts, PathError> {
        self.0.counts().map_err(PathError::part)
    }

    /// Arrivals so far, by the CPU of the program.
    pub(super) fn frames_by_cpu(&self) -> Result<Vec<u64>, PathError> {
        self.0.frames_by_cpu().map_err(PathError::part)
    }

    /// Waits until `whole` frames have arrived or no more arrive.
    pub(super) fn drain(&self, whole: u64) -> Result<(), PathError> {
        let begun = Instant::now();
        let mut last = (self.counts()?.frames, begun);
        while begun.elapsed() < SILENCE_TIMEOUT
            && last.0 < whole
            && last.1.elapsed() < SILENCE_GRACE
        {
            thread::sleep(Duration::from_millis(1));
            let frames = self.counts()?.frames;
            if frames != last.0 {
                last = (frames, Instant::now());
            }
        }
        Ok(())
    }
}
