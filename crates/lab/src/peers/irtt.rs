//! irtt as a peer for load `paced`: every round trip of its report, timed by its client.

use std::process::Command;
use std::time::Duration;

use model::{Delivery, Measurement, PathError};
use serde::Deserialize;

use super::{PORT, Peer, PeerJob, Traffic, cost, failed, finish_client, serve, start_client};
use crate::{Pair, Placement};

/// Sending part of a run: as long as a trial of the load, and enough for a 99th percentile at its rate.
const SEND_TIME: Duration = Duration::from_millis(250);
/// Share of the due datagrams below which a report is of another load.
const SENT_SHARE_MIN: f64 = 0.98;

pub(super) struct Irtt;

impl Peer for Irtt {
    fn trial(
        &mut self,
        pair: &Pair,
        job: &PeerJob,
        places: &Placement,
    ) -> Result<(Measurement, u64), PathError> {
        let Traffic::Open { rate_pps, burst: 1 } = job.traffic else {
            return Err(failed("irtt", "it sends single datagrams on a schedule, nothing else"));
        };
        let to = format!("{}:{PORT}", pair.far.ip);
        let mut server = Command::new("irtt");
        // 0: no limit, in place of 100 datagrams a second and of small ones.
        server.args(["server", "-b", &to, "-i", "0", "-d", "0", "-l", "0"]);
        let server = serve(pair, places, server)?;
        // Without the line the client repeats its first request.
        server.wait_for_stdout("[ListenerStart]", Duration::from_secs(20));
        let mut client = Command::new("irtt");
        let interval = format!("{}ns", 1_000_000_000 / rate_pps.max(1));
        let (sending, size) = (format!("{}ms", SEND_TIME.as_millis()), job.size_bytes.to_string());
        client.args(["client", "-i", &interval, "-d", &sending, "-l", &size, "-q", "-o", "-"]);
        // The server's stamps would make datagrams of 60 bytes at least.
        client.args(["--stats=none", "--tstamp=none", &to]);
        let client = start_client(pair, places, client)?;
        let client = finish_client("irtt", client, Duration::from_secs(60))?;
        let served = server.stop().map_err(PathError::part)?;
        // Not a cost: it includes the start of both programs, in which no datagram is sent.
        let cpu_ns = cost(&client.usage).cpu_ns() + cost(&served.usage).cpu_ns();
        let m = parse(&client.stdout)?;
        check_rate(&m, rate_pps)?;
        Ok((m, cpu_ns))
    }
}

#[derive(Deserialize)]
struct Report {
    stats: Stats,
    round_trips: Vec<RoundTrip>,
}

#[derive(Deserialize)]
struct Stats {
    /// Nanoseconds.
    duration: u64,
    packets_sent: u64,
    packets_received: u64,
    duplicates: u64,
    /// Answers that arrived after one to a later datagram.
    late_packets: u64,
}

#[derive(Deserialize)]
struct RoundTrip {
    delay: Delay,
}

#[derive(Deserialize)]
struct Delay {
    /// Nanoseconds; absent if no answer arrived.
    rtt: Option<u64>,
}

/// Converts the JSON report. Losses are of round trips: their direction is not known.
fn parse(report: &[u8]) -> Result<Measurement, PathError> {
    let Report { stats, round_trips } = serde_json::from_slice(report)
        .map_err(|why| failed("irtt", format!("its report: {why}")))?;
    let mut latencies = model::latency_histogram();
    round_trips
        .iter()
        .filter_map(|trip| trip.delay.rtt)
        .for_each(|rtt_ns| latencies.saturating_record(rtt_ns.max(1)));
    if latencies.is_empty() {
        return Err(failed("irtt", "no datagram was answered"));
    }
    let received_count = stats.packets_received.saturating_add(stats.duplicates);
    let delivery = Delivery {
        sent_count: stats.packets_sent,
        received_count,
        duplicated_count: Some(stats.duplicates),
        reordered_count: stats.late_packets,
    };
    if !delivery.balances() {
        let what = format!("{received_count} answers to {} datagrams", stats.packets_sent);
        return Err(failed("irtt", format!("its report has {what}")));
    }
    let mut m = Measurement { wall_ns: stats.duration.max(1), ..Measurement::default() };
    m.deliveries.insert("round-trip".into(), delivery);
    m.segments.insert("rtt".into(), latencies);
    Ok(m)
}

/// Errors: the client skipped datagrams that were due, so that its round trips are those of a lower rate.
fn check_rate(m: &Measurement, rate_pps: u64) -> Result<(), PathError> {
    let due = rate_pps as f64 * SEND_TIME.as_secs_f64();
    let sent_count: u64 = m.deliveries.values().map(|books| books.sent_count).sum();
    if sent_count as f64 >= (due * SENT_SHARE_MIN).floor() {
        return Ok(());
    }
    let why = format!("it sent {sent_count} of {due:.0} datagrams that were due; lower --rate");
    Err(failed("irtt", why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_of_version_0_9_0_has_every_round_trip() {
        let m = parse(include_bytes!("../../tests/adapters/irtt-0.9.0.json")).unwrap();
        let latencies = &m.segments["rtt"];
        assert_eq!(latencies.len(), 4);
        // Within the histogram's three digits.
        assert!(
            latencies.min().abs_diff(46_889) < 50 && latencies.max().abs_diff(27_968_356) < 28_000
        );
        assert_eq!(m.deliveries["round-trip"].lost_count(), 0);
        assert!(m.costs.is_empty() && m.throughput.is_none(), "absent, not 0");
    }

    /// A report of two datagrams, the first without an answer.
    fn report(sent: u64, received: u64) -> String {
        format!(
            r#"{{"stats":{{"duration":1000,"packets_sent":{sent},"packets_received":{received},
            "duplicates":0,"late_packets":0}},"round_trips":[{{"lost":"true","delay":{{}}}},
            {{"lost":"false","delay":{{"rtt":5000}}}}]}}"#
        )
    }

    #[test]
    fn lost_datagram_is_lost_and_has_no_latency() {
        let m = parse(report(2, 1).as_bytes()).unwrap();
        assert_eq!(m.deliveries["round-trip"].lost_count(), 1);
        assert_eq!(m.segments["rtt"].len(), 1);
    }

    #[test]
    fn invalid_report_is_an_error_wherever_it_is_cut() {
        let whole = report(2, 1);
        for len in 0..whole.len() {
            assert!(parse(&whole.as_bytes()[..len]).is_err(), "{}", &whole[..len]);
        }
        for (report, expected) in [
            (report(1, 5), "5 answers to 1 datagrams"),
            (report(2, 0).replace(r#""rtt":5000"#, ""), "no datagram"),
        ] {
            let error = parse(report.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    fn measured(sent: u64) -> Measurement {
        parse(report(sent, 1).as_bytes()).unwrap()
    }

    #[test]
    fn schedule_that_was_not_kept_is_refused_with_the_remedy() {
        assert!(
            check_rate(&measured(2500), 10_000).is_ok()
                && check_rate(&measured(2450), 10_000).is_ok()
        );
        let error = check_rate(&measured(169), 10_000).unwrap_err().to_string();
        assert!(error.contains("169 of 2500") && error.contains("--rate"), "{error}");
    }
}
