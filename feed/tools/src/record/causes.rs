//! Causes of late datagrams, found by another thread and written beside the datagrams.

use std::io::Write;
use std::mem;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::time::Duration;

use host::interruptions::{Cause, CauseKind, Trace};
use sys::clock;

use crate::capture::{CaptureError, Writer};
use crate::late::{LateList, LateReport, Note, Now};

/// Late datagrams with their causes.
pub(super) struct Explained {
    list: LateList,
    causes: Vec<Cause>,
    /// Kernel events not traced since the start.
    lost_count: u64,
}

/// Late datagrams of a recording.
#[derive(Debug)]
pub(super) struct Causes {
    over_ns: u64,
    list: LateList,
    /// CLOCK_REALTIME of the last datagram's reading.
    read_ns: u64,
    asked: SyncSender<LateList>,
    explained: Receiver<Explained>,
    report: LateReport,
}

impl Causes {
    /// Notes the limit in the recording. [`explain`] needs the other two.
    pub(super) fn new(
        late: Duration,
        writer: &mut Writer<impl Write>,
    ) -> Result<(Self, Receiver<LateList>, Sender<Explained>), CaptureError> {
        let over_ns = late.as_nanos() as u64;
        let (asked, to_explain) = sync_channel(1);
        let (explained_in, explained) = channel();
        writer.note(&Note::Over { at_ns: clock::realtime_ns(), over_ns })?;
        let report = LateReport::new(over_ns);
        let list = LateList::default();
        let causes = Causes { over_ns, list, read_ns: 0, asked, explained, report };
        Ok((causes, to_explain, explained_in))
    }

    /// Notes a datagram if it is late.
    #[inline]
    pub(super) fn note(&mut self, stamp_ns: u64, now: Now) {
        self.list.note(self.over_ns, stamp_ns, now, self.read_ns > stamp_ns);
        self.read_ns = now.real_ns;
    }

    /// Asks for the causes of what was late, and writes those that are known. Never waits.
    pub(super) fn step(&mut self, writer: &mut Writer<impl Write>) -> Result<(), CaptureError> {
        while let Ok(explained) = self.explained.try_recv() {
            self.write(explained, writer)?;
        }
        if !self.list.datagrams.is_empty()
            && let Err(TrySendError::Full(list)) = self.asked.try_send(mem::take(&mut self.list))
        {
            self.list = list;
        }
        Ok(())
    }

    /// Writes the rest.
    pub(super) fn end(
        mut self,
        writer: &mut Writer<impl Write>,
    ) -> Result<LateReport, CaptureError> {
        let (none, _) = sync_channel(0);
        // Fails only if the other thread has panicked.
        let _ = mem::replace(&mut self.asked, none).send(mem::take(&mut self.list));
        while let Ok(explained) = self.explained.recv() {
            self.write(explained, writer)?;
        }
        writer.note(&self.report.counts(clock::realtime_ns()))?;
        Ok(self.report)
    }

    fn write(
        &mut self,
        explained: Explained,
        writer: &mut Writer<impl Write>,
    ) -> Result<(), CaptureError> {
        let Explained { list, causes, lost_count } = explained;
        let mut causes = causes.into_iter();
        let mut written = Ok(());
        self.report.add(&list, lost_count, |late| {
            let cause = causes.next().unwrap_or(Cause::plain(CauseKind::Unknown));
            let waited_ns = late.delay.end_ns - late.delay.begin_ns;
            if written.is_ok() {
                let (stamp_ns, cause) = (late.stamp_ns, cause.clone());
                written = writer.note(&Note::Late { stamp_ns, waited_ns, cause });
            }
            cause
        });
        written
    }
}

/// Finds causes until the recording ends.
pub(super) fn explain(trace: &Trace, asked: &Receiver<LateList>, explained: &Sender<Explained>) {
    while let Ok(list) = asked.recv() {
        let causes = list.datagrams.iter().map(|late| trace.cause(&late.delay)).collect();
        // Fails only if the recording has failed.
        let _ = explained.send(Explained { list, causes, lost_count: trace.lost_count() });
    }
}
