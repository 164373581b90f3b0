//! The sink: an XDP program that counts frames and checks their order.

use std::thread;
use std::time::{Duration, Instant};

use lab::End;
use sys::bpf::{DelayCounts, DropCounter, DropCounts, DropSpec};

use model::PathError;

/// Silence at the sink that ends a trial, and maximum wait for it.
pub(super) const GRACE: Duration = Duration::from_millis(20);
pub(super) const GRACE_MAX: Duration = Duration::from_secs(3);

/// The program at the sink's interface; detached on drop.
pub(super) struct Sink(DropCounter);

impl Sink {
    /// - `spec`: has a tag, which frames of the host's own stack lack.
    pub(super) fn open(end: &End, spec: &DropSpec) -> Result<Sink, PathError> {
        let opened = end.run(|| {
            let mut counter = DropCounter::load(spec)?;
            counter.attach(end.ifindex, sys::bpf::XdpMode::Native)?;
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

    /// Waits until `whole` frames have arrived or no more arrive.
    pub(super) fn drain(&self, whole: u64) -> Result<(), PathError> {
        let begun = Instant::now();
        let mut last = (self.counts()?.frames, begun);
        while begun.elapsed() < GRACE_MAX && last.0 < whole && last.1.elapsed() < GRACE {
            thread::sleep(Duration::from_millis(1));
            let frames = self.counts()?.frames;
            if frames != last.0 {
                last = (frames, Instant::now());
            }
        }
        Ok(())
    }
}
