//! iperf3 as a peer for load `flood`: `iperf3 -u -b 0`, measured by its receiver's report.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::Pair;
use crate::adapters::json::{self, Scalar};
use model::{Delivery, Measurement, Throughput};

use super::{Job, PORT, Peer, cost, failed, finish_client, serve, start_client};
use crate::Placement;
use model::PathError;

/// Error of a client whose server does not listen.
const REFUSED: &str = "Connection refused";
/// Time limit for the start of the server.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct Iperf3;

impl Peer for Iperf3 {
    fn trial(
        &mut self,
        pair: &Pair,
        job: &Job,
        places: &Placement,
    ) -> Result<(Measurement, u64), PathError> {
        let port = PORT.to_string();
        let mut server = Command::new("iperf3");
        server.args(["-s", "-1", "-J", "--forceflush", "-p", &port]);
        let mut server = serve(pair, places, server)?;
        // With -J the server prints no line when it listens; a refused connection is retried.
        let begun = Instant::now();
        let client = loop {
            let mut client = Command::new("iperf3");
            client
                .args(["-c", &pair.far.ip.to_string(), "-p", &port, "-u", "-b", "0", "-J"])
                // iperf3 accepts whole seconds only.
                .args(["-t", "1", "-l", &job.size_bytes.to_string()]);
            let client = start_client(pair, places, client)?;
            let client = finish_client("iperf3", client, Duration::from_secs(20))?;
            match error_of(&client.stdout) {
                None => break client,
                Some(why) if why.contains(REFUSED) && begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Some(why) => return Err(failed("iperf3", format!("the client reports: {why}"))),
            }
        };
        let served = server.wait(Duration::from_secs(2)).map_err(PathError::part)?;
        let served = served.ok_or_else(|| failed("iperf3", "the server did not exit"))?;
        if let Some(why) = error_of(&served.stdout) {
            return Err(failed("iperf3", format!("the server reports: {why}")));
        }
        let mut measurement = parse(&client.stdout, &served.stdout, job.size_bytes)?;
        measurement.costs.insert("near".into(), cost(&client.usage));
        measurement.costs.insert("far".into(), cost(&served.usage));
        let cpu_ns = measurement.cpu_ns();
        Ok((measurement, cpu_ns))
    }
}

/// Error in a JSON report. With it, the exit status is 0 all the same.
fn error_of(report: &[u8]) -> Option<String> {
    match json::scalar(report, "/error") {
        Ok(Scalar::Text(error)) => Some(error),
        _ => None,
    }
}

/// Converts the JSON reports of both ends. Sent datagrams are counted by the client, all else by the
/// server. iperf3 subtracts duplicates from losses, so its report determines neither.
fn parse(client: &[u8], server: &[u8], size_bytes: usize) -> Result<Measurement, PathError> {
    let number = |end: &str, report: &[u8], pointer: &str| {
        json::number(report, pointer)
            .map_err(|why| failed("iperf3", format!("{pointer} of the {end}'s report: {why}")))
    };
    let sent_count = number("client", client, "/end/sum/packets")? as u64;
    let seconds = number("server", server, "/end/sum/seconds")?;
    let seen = number("server", server, "/end/sum/packets")?;
    let lost = number("server", server, "/end/sum/lost_packets")?;
    let received_count = (seen - lost).max(0.0) as u64;
    let reordered_count = number("server", server, "/end/streams/0/udp/out_of_order")? as u64;
    if received_count > sent_count {
        let why = format!("the server counted {received_count} arrivals of {sent_count} datagrams");
        return Err(failed("iperf3", why));
    }
    let interval_ns = (seconds * 1e9) as u64;
    let mut measurement = Measurement { wall_ns: interval_ns, ..Measurement::default() };
    measurement.deliveries.insert(
        "forward".into(),
        Delivery { sent_count, received_count, duplicated_count: None, reordered_count },
    );
    let payload_bytes = received_count.saturating_mul(size_bytes as u64);
    measurement.throughput = Some(Throughput { interval_ns, received_count, payload_bytes });
    Ok(measurement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_reports_become_one_measurement() {
        let client = br#"{"end":{"sum":{"packets":1000,"lost_packets":0,"seconds":1.0}}}"#;
        let server = br#"{"end":{"sum":{"packets":990,"lost_packets":90,"seconds":0.5},
            "streams":[{"udp":{"out_of_order":3}}]}}"#;
        let m = parse(client, server, 64).unwrap();
        let throughput = m.throughput.unwrap();
        assert_eq!((throughput.received_count, throughput.interval_ns), (900, 500_000_000));
        assert_eq!(throughput.payload_bytes, 57_600);
        assert_eq!(m.deliveries["forward"].lost_count(), 100);
        assert_eq!(m.deliveries["forward"].duplicated_count, None, "its report has no such count");
        assert_eq!(m.deliveries["forward"].reordered_count, 3);
    }

    #[test]
    fn reports_of_version_3_12_are_read() {
        let client = include_bytes!("../../tests/adapters/iperf3-3.12-udp.json");
        let server = include_bytes!("../../tests/adapters/iperf3-3.12-udp-server.json");
        let m = parse(client, server, 64).unwrap();
        let delivery = m.deliveries["forward"];
        assert_eq!((delivery.sent_count, delivery.received_count), (162_920, 81_388));
        assert_eq!(m.throughput.unwrap().interval_ns, 1_004_176_000);
    }

    #[test]
    fn counts_of_the_largest_size_are_read_without_overflow() {
        let client = br#"{"end":{"sum":{"packets":1e300}}}"#;
        let server = br#"{"end":{"sum":{"packets":1e300,"lost_packets":0,"seconds":1e300},
            "streams":[{"udp":{"out_of_order":1e300}}]}}"#;
        let m = parse(client, server, 64).unwrap();
        assert_eq!(m.deliveries["forward"].received_count, u64::MAX);
        assert_eq!(m.throughput.unwrap().payload_bytes, u64::MAX);
    }

    #[test]
    fn a_missing_figure_is_an_error_that_names_it() {
        let error = parse(b"{}", b"{}", 64).unwrap_err().to_string();
        assert!(error.contains("/end/sum/packets"), "{error}");
        assert!(parse(b"iperf3: error", b"{}", 64).is_err());
        let client = br#"{"end":{"sum":{"packets":10}}}"#;
        let server = br#"{"end":{"sum":{"packets":20,"lost_packets":0,"seconds":1.0},
            "streams":[{"udp":{"out_of_order":0}}]}}"#;
        let error = parse(client, server, 64).unwrap_err().to_string();
        assert!(error.contains("20 arrivals of 10 datagrams"), "{error}");
        let unordered = br#"{"end":{"sum":{"packets":9,"lost_packets":0,"seconds":1.0}}}"#;
        let error = parse(client, unordered, 64).unwrap_err().to_string();
        assert!(error.contains("out_of_order"), "{error}");
    }

    #[test]
    fn error_of_a_report_is_found_whatever_the_exit_status() {
        let report = br#"{"end":{},"error":"control socket has closed unexpectedly"}"#;
        assert_eq!(error_of(report).as_deref(), Some("control socket has closed unexpectedly"));
        assert_eq!(error_of(br#"{"end":{}}"#), None);
    }
}
