//! sockperf as a peer: `ping-pong`, or `under-load` for schedules.

use std::collections::VecDeque;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::Pair;
use crate::adapters::{Figure, FigureError, Reason};
use model::{Delivery, Measurement};

use super::{
    Child, PORT, Peer, PeerJob, Traffic, cost, failed, finish_client, serve, start_client,
};
use crate::Placement;
use model::PathError;

/// Number of trials whose programs are started in advance.
const AHEAD: usize = 2;
/// Part of a run that its client excludes from the report, before and after the reported part.
const EXCLUDED_TIME: Duration = Duration::from_millis(450);
/// Reported part of a ping-pong run: as long as the other trials, and enough for a 99th percentile.
const REPORTED_TIME: Duration = Duration::from_millis(250);

/// Message of a client that got no answer; its exit status is 0.
const SILENT: &str = "No messages were received from the server";

/// The client sleeps two seconds before each test. The programs of later trials are therefore
/// started in advance and paused, so that the sleep passes while other arms run, even when the last
/// arm of a block is the first of the next. A block takes two seconds less, so an experiment has
/// more blocks.
#[derive(Default)]
pub(super) struct Sockperf {
    next: VecDeque<PausedPair>,
    started_count: usize,
}

/// A server and a client that have not started to measure.
struct PausedPair {
    server: Child,
    client: Child,
}

impl PausedPair {
    fn new(pair: &Pair, job: &PeerJob, places: &Placement, port: u16) -> Result<Self, PathError> {
        let (ip, port) = (pair.far.ip.to_string(), port.to_string());
        let size = job.size_bytes.to_string();
        let mut server = Command::new("sockperf");
        server.args(["server", "-i", &ip, "-p", &port]);
        // Under load its client has two threads; three spinners on two CPUs would measure the
        // scheduler's time slice.
        let spins = job.traffic == Traffic::PingPong;
        if spins {
            server.arg("--nonblocked");
        }
        let server = serve(pair, places, server)?;
        // The server prints this line when it listens; without the line, continue after the timeout.
        server.wait_for_stdout("Warmup stage", Duration::from_millis(300));
        let mut client = Command::new("sockperf");
        if let Traffic::Open { rate_pps, burst } = job.traffic {
            let (rate, burst) = (rate_pps.to_string(), burst.to_string());
            client.args(["under-load", "--reply-every", "1", "--mps", &rate, "--burst", &burst]);
        } else {
            client.arg("ping-pong");
        }
        if job.segment == "rtt" {
            client.arg("--full-rtt");
        }
        client
            .args(["-i", &ip, "-p", &port, "-m", &size])
            // sockperf accepts whole seconds only.
            .args(["-t", "1"]);
        let any = Placement::default();
        let places = if spins { places } else { &any };
        if spins {
            client.arg("--nonblocked");
        }
        let client = start_client(pair, places, client)?;
        Ok(PausedPair { server, client })
    }

    /// Pauses both programs once the client's sleep has started.
    fn park(self) -> Self {
        self.client.wait_for_stdout("Warmup stage", Duration::from_secs(1));
        // A client paused before it sleeps would sleep after it resumes.
        thread::sleep(Duration::from_millis(20));
        self.client.pause();
        self.server.pause();
        self
    }

    fn cpu_ns(&self) -> u64 {
        self.server.cpu_ns().unwrap_or(0) + self.client.cpu_ns().unwrap_or(0)
    }
}

impl Sockperf {
    fn start(
        &mut self,
        pair: &Pair,
        job: &PeerJob,
        places: &Placement,
    ) -> Result<PausedPair, PathError> {
        // Paused servers listen already, so each needs its own port.
        self.started_count += 1;
        let port = PORT + (self.started_count % (AHEAD + 1)) as u16;
        Ok(PausedPair::new(pair, job, places, port)?.park())
    }
}

impl Peer for Sockperf {
    fn trial(
        &mut self,
        pair: &Pair,
        job: &PeerJob,
        places: &Placement,
    ) -> Result<(Measurement, u64), PathError> {
        let started = match self.next.pop_front() {
            Some(started) => started,
            None => self.start(pair, job, places)?,
        };
        let before_ns = started.cpu_ns();
        let PausedPair { mut server, mut client } = started;
        server.resume();
        client.resume();
        if job.traffic == Traffic::PingPong
            && client.wait_for_stdout("Starting test", Duration::from_secs(5))
        {
            // One second, the minimum, is longer than a ping-pong needs.
            thread::sleep(EXCLUDED_TIME + REPORTED_TIME);
            client.interrupt();
        }
        let client = finish_client("sockperf", client, Duration::from_secs(20))?;
        // Without its server a ping-pong client reports the time before as if it were all.
        if let Some(ended) = server.wait(Duration::ZERO).map_err(PathError::part)? {
            let why = format!("the server ended during the trial: {}", ended.status);
            return Err(failed("sockperf", why));
        }
        let served = server.stop().map_err(PathError::part)?;
        // The CPU time is not reported as a cost: it includes warm-up and idle spinning but the
        // message count does not, so the cost per packet would be too high.
        let mut cpu_ns = cost(&client.usage).cpu_ns() + cost(&served.usage).cpu_ns() - before_ns;
        let measurement = parse(&String::from_utf8_lossy(&client.stdout), job.segment)?;
        // A failed start is retried, and reported, at the next trial.
        while self.next.len() < AHEAD {
            let Ok(started) = self.start(pair, job, places) else { break };
            cpu_ns += started.cpu_ns();
            self.next.push_back(started);
        }
        Ok((measurement, cpu_ns))
    }
}

const PERCENTILES: [(f64, &str); 4] = [
    (0.50, r"p50_us=re:percentile 50\.000 = +(\S+)"),
    (0.90, r"p90_us=re:percentile 90\.000 = +(\S+)"),
    (0.99, r"p99_us=re:percentile 99\.000 = +(\S+)"),
    (0.999, r"p999_us=re:percentile 99\.900 = +(\S+)"),
];

fn count(report: &str, figure: &'static str) -> Result<f64, PathError> {
    let taken = Figure::fixed(figure).take(report.as_bytes());
    taken.map_err(|why| failed("sockperf", why.to_string()))
}

/// Converts sockperf's report. Its percentiles cover messages sent in the "valid" part of the run,
/// in microseconds: whole round trips with `--full-rtt`, otherwise half of one.
fn parse(text: &str, segment: &str) -> Result<Measurement, PathError> {
    if text.contains(SILENT) {
        return Err(failed("sockperf", SILENT));
    }
    let (_, valid) = text
        .split_once("[Valid Duration]")
        .ok_or_else(|| failed("sockperf", "the report has no [Valid Duration]"))?;
    let sent = count(valid, r"sent_count=re:SentMessages=(\d+)")?;
    let received = count(valid, r"received_count=re:ReceivedMessages=(\d+)")?;
    let dropped = count(valid, r"dropped_count=re:# dropped messages = (\d+)")?;
    let duplicated = count(valid, r"duplicated_count=re:# duplicated messages = (\d+)")?;
    let reordered = count(valid, r"reordered_count=re:# out-of-order messages = (\d+)")?;
    let wall_ns = count(valid, r"run_ns=re:RunTime=(\S+ sec)")? as u64;
    let mut measurement = Measurement { wall_ns, ..Measurement::default() };
    // sockperf counts messages in flight at the end neither as sent nor as lost.
    measurement.deliveries.insert(
        "forward".into(),
        Delivery {
            sent_count: (received - duplicated + dropped).min(sent).max(0.0) as u64,
            received_count: received as u64,
            duplicated_count: Some(duplicated as u64),
            reordered_count: reordered as u64,
        },
    );
    let mut quantiles = Vec::new();
    for (quantile, figure) in PERCENTILES {
        match Figure::fixed(figure).take(valid.as_bytes()) {
            Ok(us) => quantiles.push((quantile, us * 1000.0)),
            Err(FigureError { reason: Reason::NoMatch { .. }, .. }) => {}
            Err(why) => return Err(failed("sockperf", why.to_string())),
        }
    }
    if quantiles.is_empty() {
        return Err(failed("sockperf", "the report has no percentiles"));
    }
    measurement.reported.insert(segment.into(), quantiles);
    Ok(measurement)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
sockperf: [Total Run] RunTime=1.000 sec; Warm up time=400 msec; SentMessages=140000; ReceivedMessages=139999
sockperf: ========= Printing statistics for Server No: 0
sockperf: [Valid Duration] RunTime=0.550 sec; SentMessages=100000; ReceivedMessages=100000
sockperf: ====> avg-rtt=5.480 (std-dev=1.2)
sockperf: # dropped messages = 2; # duplicated messages = 1; # out-of-order messages = 3
sockperf: ---> percentile 99.900 =   23.400
sockperf: ---> percentile 99.000 =    4.600
sockperf: ---> percentile 90.000 =    4.100
sockperf: ---> percentile 50.000 =    3.900
";

    #[test]
    fn a_report_becomes_a_measurement_in_nanoseconds() {
        let m = parse(REPORT, "rtt").unwrap();
        assert_eq!(m.wall_ns, 550_000_000);
        let quantiles = &m.reported["rtt"];
        assert_eq!(quantiles[0], (0.5, 3900.0));
        assert_eq!(quantiles[3], (0.999, 23_400.0));
        let delivery = m.deliveries["forward"];
        assert_eq!((delivery.duplicated_count, delivery.reordered_count), (Some(1), 3));
    }

    #[test]
    fn a_report_of_version_3_7_is_read() {
        let report = include_str!("../../tests/adapters/sockperf-3.7-ping-pong.txt");
        let m = parse(report, "rtt").unwrap();
        assert_eq!(m.deliveries["forward"].sent_count, 43_832);
        assert_eq!(m.reported["rtt"][1], (0.9, 7325.0));
    }

    fn error(text: &str) -> String {
        parse(text, "rtt").unwrap_err().to_string()
    }

    #[test]
    fn an_invalid_report_is_an_error() {
        assert!(parse("sockperf: ERROR: no messages", "rtt").is_err());
        let silent = format!("sockperf: Test ended\nsockperf: {SILENT}. Is the server down?\n");
        assert!(error(&silent).contains("No messages were received"));
        let uncounted = REPORT.replace("# dropped messages = 2; ", "");
        assert!(error(&uncounted).contains("# dropped messages"));
        let damaged = REPORT.replace("4.600", "nan");
        assert!(error(&damaged).contains("\"nan\" is not a number"), "{}", error(&damaged));
    }
}
