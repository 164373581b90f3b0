//! qperf as a peer for floods: `udp_bw` and `tcp_bw`, as its receiver reports them.

use std::process::Command;
use std::time::Duration;

use model::{Measurement, PathError, Throughput};

use super::{PORT, Peer, PeerJob, Traffic, cost, failed, finish_client, serve, start_client};
use crate::adapters::Figure;
use crate::{Pair, Placement};

pub(super) struct Qperf;

impl Peer for Qperf {
    fn trial(
        &mut self,
        pair: &Pair,
        job: &PeerJob,
        places: &Placement,
    ) -> Result<(Measurement, u64), PathError> {
        let (ip, port, size) =
            (pair.far.ip.to_string(), PORT.to_string(), job.size_bytes.to_string());
        let mut server = Command::new("qperf");
        server.args(["-lp", &port]);
        let server = serve(pair, places, server)?;
        let mut client = Command::new("qperf");
        // It waits for its server itself, and takes whole seconds only.
        client.args([&ip, "-lp", &port, "-ws", "30", "-t", "1", "-m", &size, "-uu", "-vvs"]);
        client.arg(if job.traffic == Traffic::TcpFlood { "tcp_bw" } else { "udp_bw" });
        let client = start_client(pair, places, client)?;
        let client = finish_client("qperf", client, Duration::from_secs(60))?;
        let served = server.stop().map_err(PathError::part)?;
        // Not a cost: the server's share of what its own children used is not known to be whole.
        let cpu_ns = cost(&client.usage).cpu_ns() + cost(&served.usage).cpu_ns();
        Ok((parse(&client.stdout)?, cpu_ns))
    }
}

fn figure(report: &[u8], figure: &'static str) -> Result<f64, PathError> {
    Figure::fixed(figure).take(report).map_err(|why| failed("qperf", why.to_string()))
}

/// Converts a report with `-uu -vvs`. It has arrivals, but neither losses nor order.
fn parse(report: &[u8]) -> Result<Measurement, PathError> {
    let goodput_bps = figure(report, r"goodput_bps=re:^ +(?:recv_)?bw += +(\S+ \S+)$")?;
    let received_count = figure(report, r"received_count=re:^ +recv_msgs += +(\d+) *$")? as u64;
    let payload_bytes = figure(report, r"payload_bytes=re:^ +recv_bytes += +(\S+ \S+)$ higher")?;
    // Neither is 0, which would be no figure.
    let interval_ns = (payload_bytes * 8e9 / goodput_bps) as u64;
    let payload_bytes = payload_bytes as u64;
    let throughput = Throughput { interval_ns, received_count, payload_bytes };
    Ok(Measurement { wall_ns: interval_ns, throughput: Some(throughput), ..Measurement::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_version_0_4_11_are_read() {
        let udp = include_bytes!("../../tests/adapters/qperf-0.4.11-udp_bw-verbose.txt");
        let tcp = include_bytes!("../../tests/adapters/qperf-0.4.11-tcp_bw-verbose.txt");
        for (report, count, bytes) in
            [(&udp[..], 68_012, 4_352_768), (&tcp[..], 42_424, 2_780_299_264)]
        {
            let m = parse(report).unwrap();
            let seen = m.throughput.unwrap();
            assert_eq!((seen.received_count, seen.payload_bytes), (count, bytes));
            assert!(seen.interval_ns.abs_diff(1_000_000_000) < 2, "{seen:?}");
            assert!(m.deliveries.is_empty() && m.costs.is_empty(), "absent, not 0");
        }
    }

    #[test]
    fn report_without_arrivals_or_without_a_figure_is_an_error() {
        let nothing = "udp_bw:\n    recv_bw  =  0 bytes/sec\n    recv_bytes  =  0 bytes\n    recv_msgs  =  0 \n";
        for (report, expected) in [(nothing, "measured nothing"), ("", "goodput_bps")] {
            let error = parse(report.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
