//! sockperf as a peer: `ping-pong` for `ping`, `under-load` for `paced`; full round trips.

use std::process::Command;
use std::time::Duration;

use host::lab::Pair;
use model::{Delivery, Measurement};

use super::super::session::Placement;
use super::{Child, PORT, Peer, cost, failed, finish_client, serve, start_client};
use crate::path::{Load, PathError};

/// Its client sleeps two seconds before each test. So the programs of the next trial are started
/// at the end of the last, and paused: the sleep passes while other arms run, a block takes two
/// seconds less, and an experiment has more of them.
#[derive(Default)]
pub(super) struct Sockperf {
    next: Option<Started>,
}

/// A server and a client that have not begun to measure.
struct Started {
    server: Child,
    client: Child,
}

impl Started {
    fn new(pair: &Pair, load: &Load, places: &Placement) -> Result<Self, PathError> {
        let (ip, port) = (pair.far.ip.to_string(), PORT.to_string());
        let size = load.size_bytes.to_string();
        let mut server = Command::new("sockperf");
        server.args(["server", "-i", &ip, "-p", &port]);
        // Under load its client has two threads; three spinners on two CPUs would measure the
        // scheduler's time slice.
        let spins = load.kind != "paced";
        if spins {
            server.arg("--nonblocked");
        }
        let server = serve(pair, places, server)?;
        // It says so when it listens; without the line it is given a moment all the same.
        server.wait_for_stdout("Warmup stage", Duration::from_millis(300));
        let mut client = Command::new("sockperf");
        let rate = load.rate_pps.to_string();
        if load.kind == "paced" {
            client.args(["under-load", "--mps", &rate, "--reply-every", "1"]);
        } else {
            client.arg("ping-pong");
        }
        client
            .args(["--full-rtt", "-i", &ip, "-p", &port, "-m", &size])
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
        std::thread::sleep(Duration::from_millis(20));
        self.client.pause();
        self.server.pause();
        self
    }

    fn cpu_ns(&self) -> u64 {
        self.server.cpu_ns().unwrap_or(0) + self.client.cpu_ns().unwrap_or(0)
    }
}

impl Peer for Sockperf {
    fn trial(
        &mut self,
        pair: &Pair,
        load: &Load,
        places: &Placement,
    ) -> Result<(Measurement, u64), PathError> {
        let started = match self.next.take() {
            Some(started) => started,
            None => Started::new(pair, load, places)?.park(),
        };
        let before_ns = started.cpu_ns();
        let Started { server, client } = started;
        server.resume();
        client.resume();
        let client = finish_client("sockperf", client, Duration::from_secs(20))?;
        let served = server.stop().map_err(PathError::part)?;
        // Its CPU time is told to nobody: it covers warm-up and idle spinning, its messages do not,
        // and so a cost per packet would be too high.
        let mut cpu_ns = cost(&client.usage).cpu_ns() + cost(&served.usage).cpu_ns() - before_ns;
        let measurement = parse(&String::from_utf8_lossy(&client.stdout))?;
        // What cannot be started now is tried again, and told, at the next trial.
        self.next = Started::new(pair, load, places).ok().map(Started::park);
        cpu_ns += self.next.as_ref().map_or(0, Started::cpu_ns);
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
/// part; with `--full-rtt` they are whole round trips in microseconds.
fn parse(text: &str) -> Result<Measurement, PathError> {
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
    measurement.reported.insert("rtt".into(), quantiles);
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
        let m = parse(REPORT).unwrap();
        assert_eq!(m.wall_ns, 550_000_000);
        let quantiles = &m.reported["rtt"];
        assert_eq!(quantiles[0], (0.5, 3900.0));
        assert_eq!(quantiles[3], (0.999, 23_400.0));
        let delivery = m.deliveries["forward"];
        assert_eq!((delivery.duplicated_count, delivery.reordered_count), (1, 3));
    }

    #[test]
    fn another_report_is_an_error() {
        assert!(parse("sockperf: ERROR: no messages").is_err());
    }
}
