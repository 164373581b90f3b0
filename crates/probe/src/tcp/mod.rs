//! Loads over TCP in a lab: requests on one connection, a connection per request, bulk.
//!
//! A request is written as programs write it, the header and then the body, so that Nagle's algorithm
//! meets delayed acknowledgements.

mod far;
mod near;
mod stream;

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use lab::{Pair, Placement, Run, settle};
use model::{Arm, Load, PathError, PathSwitch};
use sys::tcp::Timeouts;

use crate::far_end::FAR_PORT;
use crate::role::{ARRIVAL_GRACE, ARRIVAL_GRACE_MAX, RoleReport};
use crate::{ProbeLoad, Switch};

/// Bytes at the end of `tcp-flood` whose digest both ends compare.
const TAIL_BYTES: usize = 1 << 20;
/// Name under which both ends report that digest.
const DIGEST: &str = "tcp_digest";
/// Longest wait for the other end: minutes of silence are a failure.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest sleep of a blocking call, so that `accept` can check for the end of the run.
const POLL_TIMEOUT: Duration = Duration::from_millis(20);
/// Of the sockets of both ends.
const TIMEOUTS: Timeouts = Timeouts { receive: POLL_TIMEOUT, send: STALL_TIMEOUT };

/// Smallest and largest message of the loads, bytes: the header of a request, and a body.
pub(super) const MESSAGE_BYTES: std::ops::RangeInclusive<usize> =
    wire::probe::HEADER_BYTES + 1..=1 << 20;

/// Traffic of the loads over TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TcpTraffic {
    /// Requests and answers on one connection.
    Ping,
    /// A connection, a byte, its answer, and the end of the connection.
    Connect,
    /// Bytes one way, as fast as they go.
    Flood,
}

impl ProbeLoad {
    /// Traffic over TCP; `None` for a load of datagrams.
    pub(super) fn tcp(self) -> Option<TcpTraffic> {
        match self {
            ProbeLoad::TcpPing => Some(TcpTraffic::Ping),
            ProbeLoad::TcpConnect => Some(TcpTraffic::Connect),
            ProbeLoad::TcpFlood => Some(TcpTraffic::Flood),
            _ => None,
        }
    }
}

/// Work of both ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub(super) traffic: TcpTraffic,
    pub(super) message_bytes: usize,
    pub(super) duration: Duration,
    /// Chooses the digested bytes.
    pub(super) seed: u64,
    pub(super) spins: bool,
    pub(super) busy_poll: bool,
    pub(super) nodelay: bool,
    pub(super) quickack: bool,
}

impl Task {
    pub(super) fn new(arm: &Arm, load: &Load, traffic: TcpTraffic, seed: u64) -> Task {
        Task {
            traffic,
            message_bytes: load.size_bytes,
            duration: load.trial,
            seed,
            spins: arm.has(Switch::Spin),
            busy_poll: arm.has(Switch::BusyPoll),
            nodelay: arm.has(Switch::Nodelay),
            quickack: arm.has(Switch::Quickack),
        }
    }
}

/// Returns the reason if an arm is invalid under a load.
pub(super) fn contradiction(arm: &Arm, load: ProbeLoad) -> Option<String> {
    use Switch::{BusyPoll, NoIdleStates, Nodelay, Pin, Quickack, Rps, Spin};
    let Some(traffic) = load.tcp() else {
        let of_tcp = [Nodelay, Quickack].into_iter().find(|switch| arm.has(*switch));
        return of_tcp.map(|id| format!("{id} is a setting of TCP; use --load tcp-ping"));
    };
    let both = [Spin, BusyPoll, NoIdleStates, Pin, Rps, Nodelay, Quickack];
    let other = Switch::ALL.iter().find(|s| arm.has(**s) && !both.contains(s));
    if let Some(id) = other {
        return Some(format!("{} is a setting of the UDP loads; leave it out of {load}", id.id()));
    }
    match traffic {
        TcpTraffic::Connect if arm.has(Nodelay) || arm.has(Quickack) => Some(
            "a connection of tcp-connect carries one byte each way, for which nothing waits: use \
             nodelay and quickack with tcp-ping"
                .into(),
        ),
        TcpTraffic::Flood if arm.has(Nodelay) => Some(
            "tcp-flood fills its segments, and Nagle's algorithm holds back only small ones: use \
             nodelay with tcp-ping"
                .into(),
        ),
        _ => None,
    }
}

fn ends(received_count: &AtomicU64) -> Run<'_> {
    let (grace, grace_max) = (ARRIVAL_GRACE, ARRIVAL_GRACE_MAX);
    Run { receiver: "far", sender: "near", received_count, grace, grace_max }
}

/// Runs one trial; returns the reports of the near and the far end.
pub(super) fn run(
    pair: &Pair,
    task: &Task,
    places: &Placement,
) -> Result<(RoleReport, RoleReport), PathError> {
    let received_count = AtomicU64::new(0);
    let to = SocketAddr::new(pair.far.load_ip(), FAR_PORT);
    let (mut near, mut far) = lab::run(
        &ends(&received_count),
        |signals| {
            settle(&pair.far, &places.far)?;
            far::serve(task, to, signals, &received_count)
        },
        || {
            settle(&pair.near, &places.near)?;
            let report = near::run(task, to)?;
            let sent_count = report.sent_count;
            Ok((report, sent_count))
        },
    )?;
    check(task, &near, &far)?;
    // A digest is no count: counters are added up over the trials.
    for report in [&mut near, &mut far] {
        report.engine.counters.retain(|(name, _)| name != DIGEST);
    }
    Ok((near, far))
}

fn counter(report: &RoleReport, name: &str) -> Option<u64> {
    report.engine.counters.iter().find(|(n, _)| n == name).map(|(_, count)| *count)
}

/// Errors: what arrived is not what was sent.
fn check(task: &Task, near: &RoleReport, far: &RoleReport) -> Result<(), PathError> {
    for name in ["tcp_payload_bytes", DIGEST] {
        let (sent, arrived) = (counter(near, name), counter(far, name));
        if sent != arrived {
            let what = format!("{name} of the near end is {sent:?}, of the far end {arrived:?}");
            return Err(PathError::Part(what.into()));
        }
    }
    if task.traffic != TcpTraffic::Flood && near.sent_count != near.arrived.received_count {
        let answered = near.arrived.received_count;
        let what = format!("{} requests had {answered} answers", near.sent_count);
        return Err(PathError::Part(what.into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::thread;

    use model::{Measurement, PathLoad, Session};
    use testkit::alone;

    use super::*;
    use crate::session::LabSession;

    fn trial(kind: ProbeLoad, arm: &[Switch], time: Duration) -> Measurement {
        trial_over(false, kind, arm, time)
    }

    fn trial_over(ipv6: bool, kind: ProbeLoad, arm: &[Switch], time: Duration) -> Measurement {
        let load = Load { ipv6, ..testkit::arms::load(&crate::Probe, kind.name(), time) };
        let arm = Arm::with(arm.iter().copied());
        assert_eq!(contradiction(&arm, kind), None);
        LabSession::open(&load, kind).expect("a lab").trial(&arm).expect("it runs")
    }

    #[test]
    fn every_request_is_answered_and_counted_at_both_ends() {
        let _alone = alone();
        for load in [ProbeLoad::TcpPing, ProbeLoad::TcpConnect] {
            let arms = [&[][..], &[Switch::Spin], &[Switch::Pin, Switch::Rps]];
            for (ipv6, arm) in arms.map(|arm| (false, arm)).into_iter().chain([(true, arms[1])]) {
                let m = trial_over(ipv6, load, arm, Duration::from_millis(150));
                let (forward, back) = (m.deliveries["forward"], m.deliveries["return"]);
                assert!(forward.sent_count > 1, "{load} {arm:?}: {m:?}");
                assert_eq!(forward.received_count, forward.sent_count, "{load} {arm:?}");
                assert_eq!(back.received_count, forward.sent_count, "{load} {arm:?}");
                let timed = m.segments.values().map(|s| s.len()).sum::<u64>();
                assert_eq!(timed, forward.sent_count, "{load} {arm:?}");
                assert!(m.counters.contains_key("near_tcp_retransmit_count"), "{:?}", m.counters);
            }
        }
    }

    #[test]
    fn bulk_arrives_whole_with_its_digest() {
        let _alone = alone();
        let arms = [&[][..], &[Switch::Spin], &[Switch::Quickack]];
        for (ipv6, arm) in arms.map(|arm| (false, arm)).into_iter().chain([(true, arms[0])]) {
            let m = trial_over(ipv6, ProbeLoad::TcpFlood, arm, Duration::from_millis(100));
            let forward = m.deliveries["forward"];
            assert_eq!(forward.received_count, forward.sent_count, "{arm:?}");
            assert!(m.counters["near_tcp_payload_bytes"] > TAIL_BYTES as u64, "{arm:?}");
            assert!(!m.counters.keys().any(|name| name.contains("digest")), "{:?}", m.counters);
        }
    }

    #[test]
    fn end_of_a_connection_may_come_after_the_end_of_the_run() {
        let load = testkit::arms::load(&crate::Probe, "tcp-ping", Duration::from_millis(1));
        for arm in [&[][..], &[Switch::Spin]] {
            let task = Task::new(&Arm::with(arm.iter().copied()), &load, TcpTraffic::Ping, 1);
            let at = SocketAddr::from(([127, 77, 0, 2], FAR_PORT));
            let received_count = AtomicU64::new(0);
            let ran = lab::run(
                &ends(&received_count),
                |on| far::serve(&task, at, on, &received_count),
                || {
                    let mut tcp = TcpStream::connect(at)?;
                    let mut message = vec![1; task.message_bytes];
                    tcp.write_all(&message)?;
                    tcp.read_exact(&mut message)?;
                    let closing = thread::spawn(move || {
                        thread::sleep(Duration::from_millis(300));
                        drop(tcp);
                    });
                    Ok((closing, 1))
                },
            );
            let (closing, far) = ran.expect("a late end is accepted");
            closing.join().expect("it closes");
            assert_eq!(far.sent_count, 1, "{arm:?}");
        }
    }

    fn flooded(bytes: u64, digest: u64) -> RoleReport {
        let mut report = RoleReport::default();
        let counters = [("tcp_payload_bytes".into(), bytes), (DIGEST.into(), digest)];
        report.engine.counters.extend(counters);
        report
    }

    /// Delayed acknowledgements, and requests.
    fn delayed(arm: &[Switch]) -> (u64, u64) {
        let m = trial(ProbeLoad::TcpPing, arm, Duration::from_millis(500));
        assert!(m.not_effective.is_empty(), "{:?}", m.not_effective);
        (m.counters["far_tcp_delayed_ack_count"], m.deliveries["forward"].sent_count)
    }

    fn refusal(switch: Switch, load: ProbeLoad) -> String {
        contradiction(&Arm::with([switch]), load).expect("refused")
    }

    #[test]
    fn a_flood_whose_end_differs_fails_the_trial() {
        let load = testkit::arms::load(&crate::Probe, "tcp-flood", Duration::from_millis(1));
        let task = Task::new(&Arm::baseline(), &load, TcpTraffic::Flood, 1);
        assert!(check(&task, &flooded(7, 1), &flooded(7, 1)).is_ok());
        for far in [flooded(6, 1), flooded(7, 2)] {
            let why = check(&task, &flooded(7, 1), &far).unwrap_err().to_string();
            assert!(why.contains("of the near end is Some("), "{why}");
        }
    }

    #[test]
    fn a_request_of_two_writes_waits_for_a_delayed_acknowledgement_unless_a_switch_acts() {
        let _alone = alone();
        let (waits, requests) = delayed(&[]);
        assert!(waits * 2 > requests, "{waits} delayed of {requests}");
        for arm in [Switch::Nodelay, Switch::Quickack] {
            let (waits, requests) = delayed(&[arm]);
            assert!(waits * 10 < requests, "{arm}: {waits} delayed of {requests}");
        }
    }

    #[test]
    fn switches_of_the_other_protocol_are_refused_with_the_remedy() {
        assert!(refusal(Switch::Nodelay, ProbeLoad::Ping).contains("--load tcp-ping"));
        assert!(refusal(Switch::Bypass, ProbeLoad::TcpPing).contains("UDP loads"));
        assert!(refusal(Switch::Nodelay, ProbeLoad::TcpFlood).contains("tcp-ping"));
        assert!(refusal(Switch::Quickack, ProbeLoad::TcpConnect).contains("tcp-ping"));
        assert_eq!(contradiction(&Arm::with([Switch::Quickack]), ProbeLoad::TcpFlood), None);
    }
}
