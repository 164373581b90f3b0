//! iperf3 as a peer for floods, one way, both ways and over TCP, measured by its receivers' reports.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::Pair;
use crate::adapters::json::{self, Scalar};
use model::{Delivery, Measurement, Throughput};

use super::{Finished, Job, PORT, Peer, Traffic, cost, failed, finish_client, serve, start_client};
use crate::Placement;
use model::PathError;

/// Error of a client whose server does not listen.
const REFUSED: &str = "Connection refused";
/// Time limit for the start of the server, and for its end after the client's; a busy machine needs seconds.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Iperf3;

impl Peer for Iperf3 {
    fn trial(
        &mut self,
        pair: &Pair,
        job: &Job,
        places: &Placement,
    ) -> Result<(Measurement, u64), PathError> {
        let (client, served) = run(pair, job, places)?;
        let mut measurement = match job.traffic {
            Traffic::TcpFlood => parse_tcp(&served.stdout, job.size_bytes)?,
            Traffic::BothWays => parse_both_ways(&client.stdout, &served.stdout, job.size_bytes)?,
            _ => parse(&client.stdout, &served.stdout, job.size_bytes)?,
        };
        measurement.costs.insert("near".into(), cost(&client.usage));
        measurement.costs.insert("far".into(), cost(&served.usage));
        let cpu_ns = measurement.cpu_ns();
        Ok((measurement, cpu_ns))
    }
}

fn load_args(traffic: Traffic) -> &'static [&'static str] {
    match traffic {
        Traffic::TcpFlood => &[],
        Traffic::BothWays => &["-u", "-b", "0", "--bidir"],
        _ => &["-u", "-b", "0"],
    }
}

/// Runs both ends. Returns the ended client and the ended server.
fn run(pair: &Pair, job: &Job, places: &Placement) -> Result<(Finished, Finished), PathError> {
    let port = PORT.to_string();
    let mut server = Command::new("iperf3");
    server.args(["-s", "-1", "-J", "--forceflush", "-p", &port]);
    let mut server = serve(pair, places, server)?;
    // With -J the server prints no line when it listens; a refused connection is retried.
    let begun = Instant::now();
    let client = loop {
        let mut client = Command::new("iperf3");
        client
            .args(["-c", &pair.far.ip.to_string(), "-p", &port, "-J"])
            .args(load_args(job.traffic))
            // iperf3 accepts whole seconds only.
            .args(["-t", "1", "-l", &job.size_bytes.to_string()]);
        let client = start_client(pair, places, client)?;
        let client = finish_client("iperf3", client, Duration::from_secs(60))?;
        match error_of(&client.stdout) {
            None => break client,
            Some(why) if why.contains(REFUSED) && begun.elapsed() < PATIENCE => {
                let pause = Duration::from_millis(20);
                if server.wait(pause).map_err(PathError::part)?.is_some() {
                    return Err(failed("iperf3", "the server ended during the trial"));
                }
            }
            Some(why) => return Err(failed("iperf3", format!("the client reports: {why}"))),
        }
    };
    let served = server.wait(PATIENCE).map_err(PathError::part)?;
    let served = served.ok_or_else(|| failed("iperf3", "the server did not exit"))?;
    match error_of(&served.stdout) {
        Some(why) => Err(failed("iperf3", format!("the server reports: {why}"))),
        None => Ok((client, served)),
    }
}

/// Error in a JSON report. With it, the exit status is 0 all the same.
fn error_of(report: &[u8]) -> Option<String> {
    match json::scalar(report, "/error") {
        Ok(Scalar::Text(error)) => Some(error),
        _ => None,
    }
}

struct Report<'a> {
    end: &'static str,
    json: &'a [u8],
}

impl Report<'_> {
    fn number(&self, pointer: &str) -> Result<f64, PathError> {
        json::number(self.json, pointer).map_err(|why| {
            failed("iperf3", format!("{pointer} of the {}'s report: {why}", self.end))
        })
    }

    /// Arrivals at this end.
    ///
    /// - `sum`: name of the sum of its direction.
    /// - `stream`: place of its stream.
    fn arrivals(
        &self,
        sum: &str,
        stream: usize,
        sent_count: u64,
        size_bytes: usize,
    ) -> Result<(Delivery, Throughput), PathError> {
        let number = |name| self.number(&format!("/end/{sum}/{name}"));
        let seen = number("packets")?;
        let received_count = (seen - number("lost_packets")?).max(0.0) as u64;
        let reordered_count =
            self.number(&format!("/end/streams/{stream}/udp/out_of_order"))? as u64;
        if received_count > sent_count {
            let end = self.end;
            let why =
                format!("the {end} counted {received_count} arrivals of {sent_count} datagrams");
            return Err(failed("iperf3", why));
        }
        let interval_ns = (number("seconds")? * 1e9) as u64;
        // iperf3 subtracts duplicates from losses, so its report determines neither.
        let delivery =
            Delivery { sent_count, received_count, duplicated_count: None, reordered_count };
        let payload_bytes = received_count.saturating_mul(size_bytes as u64);
        Ok((delivery, Throughput { interval_ns, received_count, payload_bytes }))
    }
}

/// Converts the JSON reports of both ends. Sent datagrams are counted by the client, all else by the
/// server.
fn parse(client: &[u8], server: &[u8], size_bytes: usize) -> Result<Measurement, PathError> {
    let client = Report { end: "client", json: client };
    let server = Report { end: "server", json: server };
    let sent_count = client.number("/end/sum/packets")? as u64;
    let (delivery, throughput) = server.arrivals("sum", 0, sent_count, size_bytes)?;
    let mut measurement = Measurement { wall_ns: throughput.interval_ns, ..Measurement::default() };
    measurement.deliveries.insert("forward".into(), delivery);
    measurement.throughput = Some(throughput);
    Ok(measurement)
}

/// Converts the JSON reports of both ends of a `--bidir` run, whose second stream returns. The rate is
/// that of arrivals at the client, as in a load of echoes.
fn parse_both_ways(
    client: &[u8],
    server: &[u8],
    size_bytes: usize,
) -> Result<Measurement, PathError> {
    let client = Report { end: "client", json: client };
    let server = Report { end: "server", json: server };
    let forth_count = client.number("/end/sum_sent/packets")? as u64;
    let back_count = server.number("/end/sum_sent_bidir_reverse/packets")? as u64;
    let (forth, _) = server.arrivals("sum_received", 0, forth_count, size_bytes)?;
    let (back, throughput) =
        client.arrivals("sum_received_bidir_reverse", 1, back_count, size_bytes)?;
    let mut measurement = Measurement { wall_ns: throughput.interval_ns, ..Measurement::default() };
    measurement.deliveries.insert("forward".into(), forth);
    measurement.deliveries.insert("return".into(), back);
    measurement.throughput = Some(throughput);
    Ok(measurement)
}

/// Converts the server's JSON report of a TCP run. A packet is a write of `size_bytes`, as in the other
/// arms of the load.
fn parse_tcp(server: &[u8], size_bytes: usize) -> Result<Measurement, PathError> {
    let server = Report { end: "server", json: server };
    let payload_bytes = server.number("/end/sum_received/bytes")? as u64;
    let interval_ns = (server.number("/end/sum_received/seconds")? * 1e9) as u64;
    let received_count = payload_bytes / (size_bytes as u64).max(1);
    let throughput = Throughput { interval_ns, received_count, payload_bytes };
    Ok(Measurement { wall_ns: interval_ns, throughput: Some(throughput), ..Measurement::default() })
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
    fn both_directions_of_a_bidir_run_have_their_own_books() {
        let client = include_bytes!("../../tests/adapters/iperf3-3.12-udp-bidir.json");
        let server = include_bytes!("../../tests/adapters/iperf3-3.12-udp-bidir-server.json");
        let m = parse_both_ways(client, server, 64).unwrap();
        let counts = |direction| {
            let books: Delivery = m.deliveries[direction];
            (books.sent_count, books.received_count, books.duplicated_count)
        };
        assert_eq!(counts("forward"), (40_580, 3500, None));
        assert_eq!(counts("return"), (36_350, 4058, None));
        assert_eq!(m.throughput.unwrap().received_count, 4058);
        assert!(m.segments.is_empty(), "it measures no round trip");
    }

    #[test]
    fn bytes_of_a_tcp_run_are_those_that_its_server_received() {
        let server = include_bytes!("../../tests/adapters/iperf3-3.12-tcp-server.json");
        let m = parse_tcp(server, 65_536).unwrap();
        let seen = m.throughput.unwrap();
        assert_eq!((seen.payload_bytes, seen.received_count), (2_108_817_408, 32_178));
        assert!(m.deliveries.is_empty(), "TCP has no datagrams to lose");
        assert!(parse_tcp(b"{}", 64).is_err());
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
