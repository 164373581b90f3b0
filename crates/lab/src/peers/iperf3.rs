//! iperf3 as a peer for floods, one way, both ways and over TCP, measured by its receivers' reports.

use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Pair;
use crate::adapters::json::{self, Scalar};
use model::{Delivery, Measurement, Throughput};

use super::{
    Finished, PORT, Peer, PeerJob, Traffic, cost, failed, serve, start_client, wait_client,
    why_failed,
};
use crate::Placement;
use model::PathError;

/// Errors of a client whose server does not listen yet, or has not finished with another connection.
const TRANSIENT: [&str; 3] =
    ["Connection refused", "Connection reset by peer", "the server is busy"];
/// Time limit for the start of the server, and for its end after the client's; a busy machine needs seconds.
const SERVER_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for a client, whose load takes one second.
pub(super) const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Option by which it sends and receives several datagrams a call, from 3.21 on.
const GSRO: &str = "--gsro";

pub(super) struct Iperf3 {
    has_gsro: bool,
}

impl Iperf3 {
    pub(super) fn installed() -> Self {
        let help = Command::new("iperf3").arg("--help").output();
        let has_gsro = help.is_ok_and(|help| {
            let text = [help.stdout, help.stderr].concat();
            String::from_utf8_lossy(&text).contains(GSRO)
        });
        Iperf3 { has_gsro }
    }
}

impl Peer for Iperf3 {
    fn trial(
        &mut self,
        pair: &Pair,
        job: &PeerJob,
        places: &Placement,
    ) -> Result<(Measurement, u64), PathError> {
        let (client, served) = run(pair, job, places, self.options(job))?;
        let mut measurement = parsed(job, &client.stdout, &served.stdout)?;
        measurement.costs.insert("near".into(), cost(&client.usage));
        measurement.costs.insert("far".into(), cost(&served.usage));
        let cpu_ns = measurement.cpu_ns();
        Ok((measurement, cpu_ns))
    }

    fn options(&self, job: &PeerJob) -> &'static str {
        if self.has_gsro && job.traffic != Traffic::TcpFlood { GSRO } else { "" }
    }
}

/// The measurement of both ends' JSON reports.
pub(super) fn parsed(
    job: &PeerJob,
    client: &[u8],
    server: &[u8],
) -> Result<Measurement, PathError> {
    match job.traffic {
        Traffic::TcpFlood => parse_tcp(server, job.size_bytes),
        Traffic::BothWays => parse_both_ways(client, server, job.size_bytes),
        // The server sends.
        Traffic::FloodBack => parse(server, client, job.size_bytes),
        _ => parse(client, server, job.size_bytes),
    }
}

/// Client of one second.
pub(super) fn client_command(to: IpAddr, port: u16, job: &PeerJob) -> Command {
    let mut client = Command::new("iperf3");
    client
        .args(["-c", &to.to_string(), "-p", &port.to_string(), "-J"])
        .args(load_args(job.traffic))
        // iperf3 accepts whole seconds only.
        .args(["-t", "1", "-l", &job.size_bytes.to_string()]);
    client
}

fn load_args(traffic: Traffic) -> &'static [&'static str] {
    match traffic {
        Traffic::TcpFlood => &[],
        Traffic::BothWays => &["-u", "-b", "0", "--bidir"],
        Traffic::FloodBack => &["-u", "-b", "0", "-R"],
        _ => &["-u", "-b", "0"],
    }
}

fn start_server(pair: &Pair, places: &Placement) -> Result<sys::child::Child, PathError> {
    let mut server = Command::new("iperf3");
    server.args(["-s", "-1", "-J", "--forceflush", "-p", &PORT.to_string()]);
    serve(pair, places, server)
}

/// Runs both ends. Returns the ended client and the ended server.
///
/// - `option`: of the client, which passes it on to the server; empty for none.
fn run(
    pair: &Pair,
    job: &PeerJob,
    places: &Placement,
    option: &str,
) -> Result<(Finished, Finished), PathError> {
    let mut server = start_server(pair, places)?;
    // With -J the server prints no line when it listens, so the client's connection is retried.
    let begun = Instant::now();
    let client = loop {
        let mut client = client_command(pair.far.ip.into(), PORT, job);
        client.args(Some(option).filter(|option| !option.is_empty()));
        let client = start_client(pair, places, client)?;
        let client = wait_client("iperf3", client, CLIENT_TIMEOUT)?;
        match reported_error(&client) {
            None => break client,
            Some(why) if is_transient(&why) && begun.elapsed() < SERVER_TIMEOUT => {
                let ended = server.wait(RETRY_INTERVAL).map_err(PathError::part)?;
                match ended.as_ref().map(reported_error) {
                    None => {}
                    // Its only connection failed.
                    Some(Some(why)) if is_transient(&why) => server = start_server(pair, places)?,
                    Some(why) => {
                        let why = why.unwrap_or_else(|| "no error".into());
                        let text = format!("the server ended during the trial: {why}");
                        return Err(failed("iperf3", text));
                    }
                }
            }
            Some(why) => return Err(failed("iperf3", format!("the client reports: {why}"))),
        }
    };
    let served = server.wait(SERVER_TIMEOUT).map_err(PathError::part)?;
    let served = served.ok_or_else(|| failed("iperf3", "the server did not exit"))?;
    match reported_error(&served) {
        Some(why) => Err(failed("iperf3", format!("the server reports: {why}"))),
        None => Ok((client, served)),
    }
}

fn is_transient(why: &str) -> bool {
    TRANSIENT.iter().any(|transient| why.contains(transient))
}

/// Error of an ended program: that of its JSON report, with which versions before 3.14 exit with status 0 and later
/// ones with 1, or else its exit status.
pub(super) fn reported_error(finished: &Finished) -> Option<String> {
    error_in(&finished.stdout).or_else(|| why_failed(finished))
}

/// Error of a JSON report.
pub(super) fn error_in(report: &[u8]) -> Option<String> {
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

    /// Jitter of the arrivals at this end, as RFC 1889 has it; `None` if it reports none.
    fn jitter_ns(&self, sum: &str) -> Option<u64> {
        self.number(&format!("/end/{sum}/jitter_ms")).ok().map(|ms| (ms * 1e6) as u64)
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
        let seen = self.number(&format!("/end/{sum}/packets"))?;
        let lost = self.number(&format!("/end/{sum}/lost_packets"))?;
        let received_count = (seen - lost).max(0.0) as u64;
        let reordered_count =
            self.number(&format!("/end/streams/{stream}/udp/out_of_order"))? as u64;
        if received_count > sent_count {
            let end = self.end;
            let why =
                format!("the {end} counted {received_count} arrivals of {sent_count} datagrams");
            return Err(failed("iperf3", why));
        }
        let interval_ns = (self.number(&format!("/end/{sum}/seconds"))? * 1e9) as u64;
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
    measurement.jitter_ns = server.jitter_ns("sum");
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
    let (forth, forth_rate) = server.arrivals("sum_received", 0, forth_count, size_bytes)?;
    let (back, throughput) =
        client.arrivals("sum_received_bidir_reverse", 1, back_count, size_bytes)?;
    let mut measurement = Measurement { wall_ns: throughput.interval_ns, ..Measurement::default() };
    measurement.deliveries.insert("forward".into(), forth);
    measurement.deliveries.insert("return".into(), back);
    measurement.throughput = Some(throughput);
    measurement.enter_rates("forward", forth_rate);
    measurement.enter_rates("return", throughput);
    measurement.jitter_ns = client.jitter_ns("sum_received_bidir_reverse");
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
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use host::child::ChildUsage;

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
    fn reports_of_a_flood_back_are_those_of_the_other_ends() {
        let client = include_bytes!("../../tests/adapters/iperf3-3.12-udp.json");
        let server = include_bytes!("../../tests/adapters/iperf3-3.12-udp-server.json");
        let job = PeerJob { traffic: Traffic::FloodBack, size_bytes: 64, segment: "rtt" };
        // As if the server had been the sender.
        let back = parsed(&job, server, client).unwrap();
        assert_eq!(back.deliveries, parse(client, server, 64).unwrap().deliveries);
        assert!(client_command([10, 0, 0, 2].into(), 9002, &job).get_args().any(|arg| arg == "-R"));
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
        for (direction, expected) in
            [("forward", (40_580, 3500, None)), ("return", (36_350, 4058, None))]
        {
            let books: Delivery = m.deliveries[direction];
            let counts = (books.sent_count, books.received_count, books.duplicated_count);
            assert_eq!(counts, expected, "{direction}");
        }
        assert_eq!(m.throughput.unwrap().received_count, 4058);
        assert!(m.figures["goodput_bps_forward"] > 0.0 && m.figures["goodput_bps_return"] > 0.0);
        assert!(m.jitter_ns > Some(0));
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

    fn ended(report: &[u8], status: i32) -> Finished {
        Finished {
            status: ExitStatus::from_raw(status << 8),
            stdout: report.to_vec(),
            stderr: Vec::new(),
            usage: ChildUsage::default(),
        }
    }

    #[test]
    fn error_of_a_report_is_found_whatever_the_exit_status() {
        let closed = br#"{"end":{},"error":"control socket has closed unexpectedly"}"#;
        let refused = [
            include_bytes!("../../tests/adapters/iperf3-3.12-refused.json").as_slice(),
            include_bytes!("../../tests/adapters/iperf3-3.21-refused.json"),
            include_bytes!("../../tests/adapters/iperf3-3.21-busy.json"),
        ];
        for status in [0, 1] {
            let why = reported_error(&ended(closed, status)).unwrap();
            assert!(
                why == "control socket has closed unexpectedly" && !is_transient(&why),
                "{why}"
            );
            for report in refused {
                let why = reported_error(&ended(report, status)).unwrap();
                assert!(is_transient(&why), "{why}");
            }
        }
        assert_eq!(reported_error(&ended(br#"{"end":{}}"#, 0)), None);
        let silent = reported_error(&ended(b"", 1)).unwrap();
        assert!(silent.contains("exit status: 1"), "{silent}");
    }

    #[test]
    fn datagrams_of_bundles_are_counted_one_by_one() {
        let client = include_bytes!("../../tests/adapters/iperf3-3.21-udp-gsro.json");
        let server = include_bytes!("../../tests/adapters/iperf3-3.21-udp-gsro-server.json");
        let m = parse(client, server, 64).unwrap();
        let delivery = m.deliveries["forward"];
        assert_eq!((delivery.sent_count, delivery.received_count), (1_523_712, 58_880));
        assert_eq!(m.throughput.unwrap().payload_bytes, 58_880 * 64);
    }

    #[test]
    fn reports_of_version_3_21_are_read() {
        let client = include_bytes!("../../tests/adapters/iperf3-3.21-udp.json");
        let server = include_bytes!("../../tests/adapters/iperf3-3.21-udp-server.json");
        let one_way = parse(client, server, 64).unwrap().deliveries["forward"];
        assert_eq!((one_way.sent_count, one_way.received_count), (80_670, 42_848));
        let client = include_bytes!("../../tests/adapters/iperf3-3.21-udp-bidir.json");
        let server = include_bytes!("../../tests/adapters/iperf3-3.21-udp-bidir-server.json");
        let both = parse_both_ways(client, server, 64).unwrap();
        let counts =
            ["forward", "return"].map(|direction| both.deliveries[direction].received_count);
        assert_eq!(counts, [63_907, 21_710]);
        let tcp = include_bytes!("../../tests/adapters/iperf3-3.21-tcp-server.json");
        assert_eq!(parse_tcp(tcp, 65_536).unwrap().throughput.unwrap().payload_bytes, 274_464_768);
    }
}
