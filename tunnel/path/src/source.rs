//! Where the frames come from: flows of one direction from the kernel's live-frame generator.

use std::time::Duration;

use io::{Remote, Template};
use lab::{End, Triple};
use model::Cost;
use sys::bpf::{DropCounts, DropSpec, Flows, Generator, GeneratorMarks};
use sys::clock::monotonic_ns;
use sys::rusage::ThreadUsage;
use wire::frame::{HEADERS_BYTES, UdpMeta, UdpTemplate};
use wire::probe::{FLOW_OFFSET, Header, Kind, SEQUENCE_OFFSET};

use forward::encap::{Encap, Mark, PacketPlace};
use lab::{RunCause, cost_of, local, settle};
use model::PathError;

use crate::topology::{Encapsulation, FORWARDER_IP, SINK_IP};
use crate::traffic::{Traffic, Way};

/// UDP ports of the flow, of the first one if there are several.
const PORTS: (u16, u16) = (9001, 9000);
/// Minimum frames of a run: each run ends with a pause of the kernel.
const FRAMES_MIN: u32 = 20_000;
/// Frames of the first run of a trial whose rate is unknown.
const FRAMES_FIRST: u32 = 50_000;
const FRAMES_MAX: f64 = 20_000_000.0;

/// Size of a batch of frames that leave together, and its duration. With smaller batches the source
/// cannot catch up after a lost time slice.
const BATCH_FRAMES_MIN: f64 = 16.0;
const BATCH_FRAMES_MAX: f64 = 64.0;
const BATCH_LIMIT: Duration = Duration::from_micros(20);
/// Frames of a batch are generated together, so delays are measured on single frames, up to the
/// rate that single frames reach.
const ALONE_PPS_MAX: f64 = 300_000.0;

/// The frame that is sent repeatedly in one direction, and the fields that change.
pub(super) struct Flow {
    pub(super) way: Way,
    frame: Vec<u8>,
    /// Offset of the sequence number.
    sequence_at: usize,
    /// Outer headers of the frame.
    outer_bytes: usize,
    /// The probe's session, just before it.
    session: u32,
    marks: GeneratorMarks,
    /// Of each datagram; `None` if they differ.
    payload_bytes: Option<usize>,
}

/// Report of the source.
#[derive(Debug, Default, Clone)]
pub(super) struct Sent {
    /// Frames accepted by the wire.
    pub(super) sent_count: u64,
    /// Frames generated.
    pub(super) attempted_count: u64,
    /// CLOCK_MONOTONIC nanoseconds when each run began and ended.
    pub(super) runs_ns: Vec<(u64, u64)>,
    /// Time of sending, without pauses between runs.
    pub(super) sending_ns: u64,
    /// Frames a second while sending.
    pub(super) rate_pps: f64,
    pub(super) cost: Cost,
}

impl Flow {
    /// - `size_bytes`: UDP payload, at least the probe's header; 0 if the traffic has its own lengths.
    /// - `encapsulation`: of frames that come out of the tunnel.
    pub(super) fn new(
        lab: &Triple,
        way: Way,
        traffic: &Traffic,
        size_bytes: usize,
        encapsulation: Encapsulation,
    ) -> Result<Flow, PathError> {
        let session = monotonic_ns() as u32 | 1;
        let payload_bytes = traffic.payload_bytes_max(size_bytes);
        let (from, to) = match way {
            Way::Into => (&lab.near, &lab.far),
            Way::OutOf => (&lab.far, &lab.near),
        };
        let from = local(from, from.ip, PORTS.0);
        let remote = Remote { mac: to.mac, ip: to.ip.into(), port: PORTS.1 };
        let template = Template::new(&from, &remote, 0, payload_bytes).map_err(PathError::part)?;
        let mut frame = vec![0; template.frame_bytes()];
        let header =
            Header { kind: Kind::Data, flow: 0, session, sequence: 0, reply: 0, time_ns: 0 };
        // No checksum: IPv4 allows it, and the sequence number changes in every frame.
        let payload = template.build_unchecked(&mut frame, &mut |p| {
            let written = header.write(p);
            debug_assert!(written.is_ok());
        });
        let mut sequence_at = payload.start + SEQUENCE_OFFSET;
        let mut outer_bytes = 0;
        if way == Way::OutOf {
            let encapsulation = encapsulation.at_source();
            let tunnel = encapsulation.tunnel(SINK_IP, FORWARDER_IP);
            let outer = encapsulation.underlay(&tunnel, lab.far.mac, lab.middle.far_if.mac);
            let encap = Encap::new(tunnel, outer).map_err(PathError::part)?;
            outer_bytes = encapsulation.headers_bytes();
            frame = encapsulated(&encap, outer_bytes, &frame, 1)?;
            sequence_at += outer_bytes;
        }
        let flows = (traffic.flow_count > 1).then(|| Flows {
            count: traffic.flow_count,
            offset: sequence_at - SEQUENCE_OFFSET + FLOW_OFFSET,
            port: PORTS.0,
        });
        let marks = GeneratorMarks {
            flows,
            lengths: traffic.lengths.to_vec(),
            into_loopback: traffic.has_hash,
            ..GeneratorMarks::default()
        };
        let payload_bytes = traffic.lengths.is_empty().then_some(payload_bytes);
        Ok(Flow { way, frame, sequence_at, outer_bytes, session, marks, payload_bytes })
    }

    /// Bytes of the longest inner frame from its Ethernet header on.
    pub(super) fn frame_bytes(&self) -> usize {
        self.frame.len() - self.outer_bytes
    }

    /// A frame as the source sends it.
    pub(super) fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Specification of its sink.
    ///
    /// - `encapsulation`: whose outer headers the forwarder adds or takes away; `None` if it forwards frames as they
    ///   are.
    pub(super) fn seen_behind(&self, encapsulation: Option<Encapsulation>) -> DropSpec {
        let at = self.sequence_at_sink(encapsulation);
        DropSpec {
            sequence_offset: Some(at),
            tag: self.session,
            flow_offset: self.marks.flows.map(|_| at - SEQUENCE_OFFSET + FLOW_OFFSET),
            ..DropSpec::default()
        }
    }

    fn sequence_at_sink(&self, encapsulation: Option<Encapsulation>) -> usize {
        match (self.way, encapsulation) {
            (_, None) => self.sequence_at,
            (Way::Into, Some(encapsulation)) => self.sequence_at + encapsulation.headers_bytes(),
            (Way::OutOf, Some(_)) => self.sequence_at - self.outer_bytes,
        }
    }

    /// UDP payload of the frames that a sink has counted.
    pub(super) fn payload_bytes_sum(
        &self,
        arrived: &DropCounts,
        encapsulation: Option<Encapsulation>,
    ) -> u64 {
        match self.payload_bytes {
            Some(bytes) => arrived.frames * bytes as u64,
            None => {
                let headers_bytes = self.sequence_at_sink(encapsulation) - SEQUENCE_OFFSET;
                arrived.bytes.saturating_sub(arrived.frames * headers_bytes as u64)
            }
        }
    }

    /// Its source at an end, on the calling thread, which ends with it.
    pub(super) fn source(&self, end: &End, cpus: &[usize]) -> Result<Source, RunCause> {
        settle(end, cpus)?;
        let (frame, sequence_at) = (&self.frame, self.sequence_at);
        Ok(Source(Generator::of_marks(frame, end.ifindex, sequence_at, &self.marks)?))
    }
}

/// A flow that is ready to be sent.
pub(super) struct Source(Generator);

impl Source {
    /// Sends for about `trial`.
    ///
    /// - `rate_pps`: frames a second; 0 for as many as the interface takes.
    /// - `rate_hint_pps`: rate of the last trial of this kind; then one run is enough.
    pub(super) fn send(
        self,
        trial: Duration,
        rate_pps: f64,
        rate_hint_pps: Option<f64>,
    ) -> Result<Sent, RunCause> {
        let Source(mut generator) = self;
        let begun = ThreadUsage::counted();
        let mut sent = Sent::default();
        let mut sending = Duration::ZERO;
        generator.set_rate(rate_pps);
        let is_flood = rate_pps == 0.0;
        let frames_min = if is_flood { FRAMES_MIN } else { 1 };
        let mut rate = if is_flood { rate_hint_pps } else { Some(rate_pps) };
        while sending < trial.mul_f64(0.9) {
            let frames = match rate {
                None => FRAMES_FIRST,
                Some(rate) => {
                    let left_s = (trial.saturating_sub(sending)).as_secs_f64();
                    ((rate * left_s).min(FRAMES_MAX) as u32).max(frames_min)
                }
            };
            let before = generator.counts().attempted;
            let took = generator.run(frames, batch_frames(rate_pps, false))?;
            sent.runs_ns.push(generator.sent_ns());
            sending += took;
            let made = (generator.counts().attempted - before) as f64;
            rate = Some(made / took.as_secs_f64().max(1e-6));
        }
        let used = ThreadUsage::counted().since(&begun);
        sent.cost = cost_of(&used);
        sent.rate_pps = generator.counts().attempted as f64 / sending.as_secs_f64().max(1e-6);
        sent.sending_ns = sending.as_nanos() as u64;
        sent.sent_count = generator.sent();
        sent.attempted_count = generator.counts().attempted;
        Ok(sent)
    }
}

/// A frame in a tunnel's headers.
///
/// - `headers_bytes`: theirs.
pub(super) fn encapsulated(
    encap: &Encap,
    headers_bytes: usize,
    inner: &[u8],
    flow_hash: u32,
) -> Result<Vec<u8>, PathError> {
    let mut frame = vec![0; headers_bytes];
    frame.extend_from_slice(inner);
    let place = PacketPlace { at: headers_bytes, len: inner.len() };
    encap
        .prepend(&mut frame, place, Mark { flow_hash, sequence: 0 })
        .map_err(|reason| PathError::at("source", format!("a frame does not fit: {reason:?}")))?;
    Ok(frame)
}

/// The frame check sequence, which a veth leaves out.
const FCS_BYTES: usize = 4;
/// Payload of a [`SmallFlow`]: tag, sequence number, time.
const TAG_BYTES: usize = 4;
const STAMP_AT: usize = TAG_BYTES + 4;
const MARKS_BYTES: usize = STAMP_AT + 8;

/// One flow of frames from 64 bytes on, too small for the probe's header.
pub(super) struct SmallFlow {
    frame: Vec<u8>,
    tag: u32,
}

impl SmallFlow {
    /// - `size_bytes`: of a frame, its check sequence counted.
    pub(super) fn new(lab: &Triple, size_bytes: usize) -> Result<SmallFlow, PathError> {
        let sizes = HEADERS_BYTES + MARKS_BYTES + FCS_BYTES
            ..=HEADERS_BYTES + crate::topology::PAYLOAD_BYTES_MAX + FCS_BYTES;
        if !sizes.contains(&size_bytes) {
            return Err(PathError::Invalid {
                what: format!("a frame of {size_bytes} bytes"),
                remedy: format!("give {} to {}", sizes.start(), sizes.end()),
            });
        }
        let meta = UdpMeta {
            src_mac: lab.near.mac,
            dst_mac: lab.far.mac,
            src_ip: lab.near.ip.into(),
            dst_ip: lab.far.ip.into(),
            src_port: PORTS.0,
            dst_port: PORTS.1,
        };
        let mut frame = vec![0; size_bytes - FCS_BYTES];
        let template =
            UdpTemplate::new(meta, frame.len() - HEADERS_BYTES).map_err(PathError::part)?;
        template.write_into(&mut frame).map_err(PathError::part)?;
        let tag = monotonic_ns() as u32 | 1;
        frame[HEADERS_BYTES..HEADERS_BYTES + TAG_BYTES].copy_from_slice(&tag.to_be_bytes());
        Ok(SmallFlow { frame, tag })
    }

    /// Generator of its frames, for a thread in the source's namespace.
    pub(super) fn generator(&self, ifindex: u32) -> Result<Generator, sys::bpf::BpfError> {
        let (sequence_at, stamp_at) = (HEADERS_BYTES + TAG_BYTES, HEADERS_BYTES + STAMP_AT);
        let marks = GeneratorMarks { stamp_offset: Some(stamp_at), ..GeneratorMarks::default() };
        Generator::of_marks(&self.frame, ifindex, sequence_at, &marks)
    }

    /// Specification of a sink behind `headers_bytes` of outer headers.
    pub(super) fn seen_behind(&self, headers_bytes: usize) -> DropSpec {
        let at = headers_bytes + HEADERS_BYTES;
        DropSpec {
            sequence_offset: Some(at + TAG_BYTES),
            tag: self.tag,
            stamp_offset: Some(at + STAMP_AT),
            ..DropSpec::default()
        }
    }
}

/// Frames generated and sent together at a rate.
pub(super) fn batch_frames(rate_pps: f64, is_alone: bool) -> u32 {
    match rate_pps {
        0.0 => Generator::BATCH,
        rate if is_alone && rate <= ALONE_PPS_MAX => 1,
        rate => (rate * BATCH_LIMIT.as_secs_f64()).clamp(BATCH_FRAMES_MIN, BATCH_FRAMES_MAX) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_last_no_longer_than_they_may_and_delays_are_of_single_frames() {
        assert_eq!(batch_frames(0.0, false), Generator::BATCH);
        assert_eq!((batch_frames(1_000.0, false), batch_frames(2_000_000.0, false)), (16, 40));
        assert_eq!((batch_frames(9e9, false), batch_frames(200_000.0, true)), (64, 1));
    }
}
