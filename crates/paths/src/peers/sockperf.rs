//! sockperf as a peer: `ping-pong`, or `under-load` for schedules.

use std::collections::VecDeque;
use std::process::Command;
use std::thread;
use std::time::Duration;

use host::lab::Pair;
use model::{Delivery, Measurement};

use super::{Child, Job, PORT, Peer, Traffic, cost, failed, finish_client, serve, start_client};
use crate::lab::Placement;
use crate::path::PathError;

/// Trials for which the programs are started ahead.
const AHEAD: usize = 2;
/// What its client sends before and after what it reports.
const UNREPORTED: Duration = Duration::from_millis(450);
/// What it is to report of a ping-pong: as long as our own trials, and enough for a 99th
/// percentile.
const REPORTED: Duration = Duration::from_millis(250);

/// Its client sleeps two seconds before each test. So the programs of trials to come are started
/// ahead, and paused: the sleep passes while other arms run, even when the last of a block is the
/// first of the next. A block takes two seconds less, and an experiment has more of them.
#[derive(Default)]
pub(super) struct Sockperf {
    next: VecDeque<Started>,
    started_count: usize,
}

/// A server and a client that have not begun to measure.
struct Started {
    server: Child,
    client: Child,
}

impl Started {
    fn new(pair: &Pair, job: &Job, places: &Placement, port: u16) -> Result<Self, PathError> {
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
        // It says so when it listens; without the line it is given a moment all the same.
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
            // Whole seconds are the shortest it takes.
            .args(["-t", "1"]);
        let any = Placement::default();
        let places = if spins { places } else { &any };
        if spins {
            client.arg("--nonblocked");
        }
        let client = start_client(pair, places, client)?;
        Ok(Started { server, client })
    }

    /// Has both wait from the client's sleep on.
    fn park(self) -> Self {
        self.client.wait_for_stdout("Warmup stage", Duration::from_secs(1));
        // Paused before it sleeps, it would sleep afterwards.
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
    fn start(&mut self, pair: &Pair, job: &Job, places: &Placement) -> Result<Started, PathError> {
        // Those that are paused listen already.
        self.started_count += 1;
        let port = PORT + (self.started_count % (AHEAD + 1)) as u16;
        Ok(Started::new(pair, job, places, port)?.park())
    }
}

impl Peer for Sockperf {
    fn trial(
        &mut self,
        pair: &Pair,
        job: &Job,
        places: &Placement,
    ) -> Result<(Measurement, u64), PathError> {
        let started = match self.next.pop_front() {
            Some(started) => started,
            None => self.start(pair, job, places)?,
        };
        let before_ns = started.cpu_ns();
        let Started { server, mut client } = started;
        server.resume();
        client.resume();
        if job.traffic == Traffic::PingPong
            && client.wait_for_stdout("Starting test", Duration::from_secs(5))
        {
            // A second, its shortest, is more than a ping-pong needs.
            thread::sleep(UNREPORTED + REPORTED);
            client.interrupt();
        }
        let client = finish_client("sockperf", client, Duration::from_secs(20))?;
        let served = server.stop().map_err(PathError::part)?;
        // Its CPU time is told to nobody: it covers warm-up and idle spinning, its messages do not,
        // and so a cost per packet would be too high.
        let mut cpu_ns = cost(&client.usage).cpu_ns() + cost(&served.usage).cpu_ns() - before_ns;
        let measurement = parse(&String::from_utf8_lossy(&client.stdout), job.segment)?;
        // What cannot be started now is tried again, and told, at the next trial.
        while self.next.len() < AHEAD {
            let Ok(started) = self.start(pair, job, places) else { break };
            cpu_ns += started.cpu_ns();
            self.next.push_back(started);
        }
        Ok((measurement, cpu_ns))
    }
}

/// Number behind `key`, up to the next separator.
fn number_after(text: &str, key: &str) -> Option<f64> {
    let rest = text.split_once(key)?.1.trim_start_matches([' ', '=', ':']);
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// sockperf's text as a measurement. Its percentiles are of messages sent in its "valid"
/// part, in microseconds: whole round trips with `--full-rtt`, else half of one.
fn parse(text: &str, segment: &str) -> Result<Measurement, PathError> {
    let valid = text
        .split_once("[Valid Duration]")
        .ok_or_else(|| failed("sockperf", "its report has no [Valid Duration]"))?
        .1;
    let need = |key: &str| {
        number_after(valid, key)
            .ok_or_else(|| failed("sockperf", format!("its report has no {key}")))
    };
    let (sent, received) = (need("SentMessages")?, need("ReceivedMessages")?);
    let dropped = number_after(valid, "# dropped messages").unwrap_or(0.0);
    let duplicated = number_after(valid, "# duplicated messages").unwrap_or(0.0);
    let reordered = number_after(valid, "# out-of-order messages").unwrap_or(0.0);
    let mut measurement =
        Measurement { wall_ns: (need("RunTime")? * 1e9) as u64, ..Measurement::default() };
    // What was in flight at the cut is neither sent nor lost by its own count.
    measurement.deliveries.insert(
        "forward".into(),
        Delivery {
            sent_count: (received - duplicated + dropped).min(sent).max(0.0) as u64,
            received_count: received as u64,
            duplicated_count: duplicated as u64,
            reordered_count: reordered as u64,
        },
    );
    let mut quantiles = Vec::new();
    for (quantile, key) in [
        (0.50, "percentile 50.000"),
        (0.90, "percentile 90.000"),
        (0.99, "percentile 99.000"),
        (0.999, "percentile 99.900"),
    ] {
        if let Some(us) = number_after(valid, key) {
            quantiles.push((quantile, us * 1000.0));
        }
    }
    if quantiles.is_empty() {
        return Err(failed("sockperf", "its report has no percentiles"));
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
    fn its_report_becomes_a_measurement_in_nanoseconds() {
        let m = parse(REPORT, "rtt").unwrap();
        assert_eq!(m.wall_ns, 550_000_000);
        let quantiles = &m.reported["rtt"];
        assert_eq!(quantiles[0], (0.5, 3900.0));
        assert_eq!(quantiles[3], (0.999, 23_400.0));
        let delivery = m.deliveries["forward"];
        assert_eq!((delivery.duplicated_count, delivery.reordered_count), (1, 3));
    }

    #[test]
    fn another_report_is_an_error() {
        assert!(parse("sockperf: ERROR: no messages", "rtt").is_err());
    }
}
