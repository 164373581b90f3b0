//! `explain --perfetto`: times of single packets as a trace for <https://ui.perfetto.dev>.
//!
//! The file holds a message `Trace` of Perfetto. Of its schema only the messages that are written are
//! declared here, with the numbers of their fields.
//!
//! Source: perfetto, protos/perfetto/trace/perfetto_trace.proto.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use host::explain::{SLICES_MAX, Slice, Slices};
use host::output_file::ReservedFile;
use prost::Message;
use remote::Failure;
use sys::clock;

/// `BuiltinClock`: the clocks of a trace.
const REALTIME: u32 = 1;
const MONOTONIC: u32 = 3;
const BOOTTIME: u32 = 6;

/// `TrackEvent.Type`.
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;

/// The only sequence of packets.
const SEQUENCE: u32 = 1;

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(message, optional, tag = "6")]
    clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(uint32, optional, tag = "58")]
    timestamp_clock_id: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    clocks: Vec<Clock>,
}

#[derive(Clone, PartialEq, Message)]
struct Clock {
    #[prost(uint32, optional, tag = "1")]
    clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    timestamp: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, optional, tag = "9")]
    r#type: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
}

/// A file for a trace, reserved before the rights to create it are dropped.
pub(super) struct TraceFile {
    path: PathBuf,
    file: ReservedFile,
}

impl TraceFile {
    /// Errors: the file cannot be created.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        Ok(TraceFile { path: path.to_owned(), file: ReservedFile::create(path)? })
    }

    /// Writes the trace. Returns a line that says how much of it there is.
    ///
    /// Errors: the file cannot be written.
    pub(super) fn write(self, slices: &Slices) -> Result<String, Failure> {
        let placed = slices.in_rows();
        let mut trace = Vec::new();
        write(&placed, &mut trace).expect("memory takes all");
        self.file.write(&trace)?;
        let mut said = format!("wrote {} slices to {}", placed.len(), self.path.display());
        if slices.lost_count > 0 {
            said += &format!(
                "; {} more are missing (it holds at most {SLICES_MAX}): lower --duty or --time, or raise \
                 --timed-one-in",
                slices.lost_count
            );
        }
        Ok(said)
    }
}

fn write(slices: &[Slice], out: &mut impl Write) -> io::Result<()> {
    // A trace is the concatenation of traces of one packet.
    let mut put = |packet: TracePacket| {
        let trusted_packet_sequence_id = Some(SEQUENCE);
        let packet = vec![TracePacket { trusted_packet_sequence_id, ..packet }];
        out.write_all(&Trace { packet }.encode_to_vec())
    };
    put(clocks())?;
    let tracks: BTreeSet<(bool, usize)> =
        slices.iter().map(|slice| (slice.is_wake_up, slice.row)).collect();
    tracks.into_iter().try_for_each(|(is_wake_up, row)| put(track(is_wake_up, row)))?;
    // Of one row, a slice ends before the next begins, in the file too.
    for slice in slices {
        put(begin(slice))?;
        put(end(slice))?;
    }
    Ok(())
}

/// The same moment on the clock of the slices, that of other traces, and that of the calendar.
fn clocks() -> TracePacket {
    let clocks = [
        (MONOTONIC, clock::monotonic_ns()),
        (BOOTTIME, clock::boottime_ns()),
        (REALTIME, clock::realtime_ns()),
    ]
    .map(|(id, now)| Clock { clock_id: Some(id), timestamp: Some(now) })
    .into();
    TracePacket { clock_snapshot: Some(ClockSnapshot { clocks }), ..TracePacket::default() }
}

/// Tracks of one name are shown as one, with as many rows as are needed.
fn track(is_wake_up: bool, row: usize) -> TracePacket {
    let name = if is_wake_up { "wake-ups of readers" } else { "packets" };
    let track_descriptor = Some(TrackDescriptor {
        uuid: Some(track_uuid(is_wake_up, row)),
        name: Some(name.to_owned()),
        parent_uuid: None,
    });
    TracePacket { track_descriptor, ..TracePacket::default() }
}

/// Never 0, which is the track of no descriptor.
fn track_uuid(is_wake_up: bool, row: usize) -> u64 {
    (row as u64 + 1) * 2 + u64::from(is_wake_up)
}

fn begin(slice: &Slice) -> TracePacket {
    let cpu = DebugAnnotation { name: Some("cpu".into()), uint_value: Some(slice.cpu.into()) };
    let event = TrackEvent {
        r#type: Some(SLICE_BEGIN),
        categories: vec!["packet".into()],
        name: Some(slice.name.into()),
        debug_annotations: vec![cpu],
        ..TrackEvent::default()
    };
    on_track(slice, slice.begin_ns, event)
}

fn end(slice: &Slice) -> TracePacket {
    let event = TrackEvent { r#type: Some(SLICE_END), ..TrackEvent::default() };
    on_track(slice, slice.end_ns, event)
}

fn on_track(slice: &Slice, at_ns: u64, event: TrackEvent) -> TracePacket {
    let track_uuid = Some(track_uuid(slice.is_wake_up, slice.row));
    TracePacket {
        timestamp: Some(at_ns),
        timestamp_clock_id: Some(MONOTONIC),
        track_event: Some(TrackEvent { track_uuid, ..event }),
        ..TracePacket::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slice_begins_and_ends_on_a_track_that_is_declared() {
        let slice = |begin_ns, row, is_wake_up| Slice {
            name: "GRO",
            begin_ns,
            end_ns: begin_ns + 5,
            cpu: 1,
            is_wake_up,
            row,
        };
        let slices = [slice(10, 0, false), slice(12, 1, false), slice(12, 0, true)];
        let mut out = Vec::new();
        write(&slices, &mut out).unwrap();
        let packets = Trace::decode(&out[..]).unwrap().packet;
        let tracks: Vec<u64> =
            packets.iter().filter_map(|packet| packet.track_descriptor.as_ref()?.uuid).collect();
        assert_eq!(tracks, [2, 4, 3]);
        let events: Vec<_> = packets
            .iter()
            .filter_map(|packet| {
                let event = packet.track_event.as_ref()?;
                Some((packet.timestamp?, event.r#type?, event.track_uuid?))
            })
            .collect();
        assert_eq!(
            events,
            [(10, 1, 2), (15, 2, 2), (12, 1, 4), (17, 2, 4), (12, 1, 3), (17, 2, 3)]
        );
    }

    #[test]
    fn a_trace_with_missing_slices_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let write = |slices: &Slices| TraceFile::create(&path).unwrap().write(slices).unwrap();
        assert!(write(&Slices::default()).starts_with("wrote 0 slices to "));
        let mut some_lost = Slices::default();
        some_lost.lost_count += 3;
        let said = write(&some_lost);
        assert!(said.contains("3 more are missing"), "{said}");
        let error = TraceFile::create(Path::new("/no/such/trace")).err().unwrap();
        assert!(error.text().contains("/no/such/trace"), "{}", error.text());
    }
}
