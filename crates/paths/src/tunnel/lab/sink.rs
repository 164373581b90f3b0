//! Where the frames end: an XDP program that counts them and looks at their order.

use host::lab::End;
use io::{DelayCounts, DropCounter, DropCounts, DropSpec};

use crate::path::PathError;

/// The program at the sink's interface; taken off when dropped.
pub(super) struct Sink(DropCounter);

impl Sink {
    /// - `sequence_at`: where in an arriving frame the sequence number lies.
    /// - `session`: of the flow; what the host's own stack sends is told from it by that.
    pub(super) fn open(end: &End, sequence_at: usize, session: u32) -> Result<Sink, PathError> {
        Self::open_with(
            end,
            &DropSpec { sequence_offset: Some(sequence_at), tag: session, ..DropSpec::default() },
        )
    }

    /// The same with a choice of what is looked at.
    pub(super) fn open_with(end: &End, spec: &DropSpec) -> Result<Sink, PathError> {
        let opened = end.run(|| {
            let mut counter = DropCounter::load(spec)?;
            counter.attach(end.ifindex, io::BpfMode::Native)?;
            Ok::<_, io::BpfError>(counter)
        });
        Ok(Sink(opened.map_err(PathError::part)?.map_err(PathError::part)?))
    }

    /// How long frames were on their way until now.
    pub(super) fn delays(&self) -> Result<DelayCounts, PathError> {
        self.0.delays().map_err(PathError::part)
    }

    /// What has arrived until now.
    pub(super) fn counts(&self) -> Result<DropCounts, PathError> {
        self.0.counts().map_err(PathError::part)
    }
}
