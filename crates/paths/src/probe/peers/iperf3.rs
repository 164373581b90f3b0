//! iperf3 as a peer of `flood`: `iperf3 -u -b 0`, its receiver's report.

use std::process::Command;
use std::time::Duration;

use host::lab::Pair;
use model::{Delivery, Measurement, Throughput};
use serde_json::Value;

use super::super::session::Placement;
use super::{PORT, Peer, cost, failed, finish_client, serve, start_client};
use crate::path::{Load, PathError};

pub(super) struct Iperf3;

impl Peer for Iperf3 {
    fn trial(
        &mut self,
        pair: &Pair,
        load: &Load,
        places: &Placement,
    ) -> Result<(Measurement, u64), PathError> {
        let port = PORT.to_string();
        let mut server = Command::new("iperf3");
        server.args(["-s", "-1", "-J", "--forceflush", "-p", &port]);
        let mut server = serve(pair, places, server)?;
        // Its listening line only comes without -J; a refused connection is tried again.
        let mut finished = Err(failed("iperf3", "was not run"));
        for _ in 0..50 {
            let mut client = Command::new("iperf3");
            client
                .args(["-c", &pair.far.ip.to_string(), "-p", &port, "-u", "-b", "0", "-J"])
                // Whole seconds are the shortest it takes.
                .args(["-t", "1", "-l", &load.size_bytes.to_string()]);
            finished = start_client(pair, places, client)
                .and_then(|client| finish_client("iperf3", client, Duration::from_secs(20)));
            if finished.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let client = finished?;
        let served = server.wait(Duration::from_secs(2)).map_err(PathError::part)?;
        let served = served.ok_or_else(|| failed("iperf3", "its server did not end"))?;
        let mut measurement = parse(&client.stdout, &served.stdout, load.size_bytes)?;
        measurement.costs.insert("near".into(), cost(&client.usage));
        measurement.costs.insert("far".into(), cost(&served.usage));
        let cpu_ns = measurement.cpu_ns();
        Ok((measurement, cpu_ns))
    }
}

/// Both ends' JSON as a measurement: what was sent by the client's count, the rest by the
/// server's. iperf3 nets duplicates against losses and so can show neither.
fn parse(client: &[u8], server: &[u8], size_bytes: usize) -> Result<Measurement, PathError> {
    let json = |bytes: &[u8], whose: &str| -> Result<Value, PathError> {
        serde_json::from_slice(bytes)
            .map_err(|e| failed("iperf3", format!("its {whose}'s report is not JSON: {e}")))
    };
    let (client, server) = (json(client, "client")?, json(server, "server")?);
    let number = |v: &Value, pointer: &str| {
        v.pointer(pointer)
            .and_then(Value::as_f64)
            .ok_or_else(|| failed("iperf3", format!("its report has no {pointer}")))
    };
    let sent_count = number(&client, "/end/sum/packets")? as u64;
    let seconds = number(&server, "/end/sum/seconds")?;
    let seen = number(&server, "/end/sum/packets")?;
    let lost = number(&server, "/end/sum/lost_packets")?;
    let received_count = (seen - lost).max(0.0) as u64;
    let out_of_order =
        server.pointer("/end/streams/0/udp/out_of_order").and_then(Value::as_u64).unwrap_or(0);
    let interval_ns = (seconds * 1e9) as u64;
    let mut measurement = Measurement { wall_ns: interval_ns, ..Measurement::default() };
    measurement.deliveries.insert(
        "forward".into(),
        Delivery {
            sent_count: sent_count.max(received_count),
            received_count,
            duplicated_count: 0,
            reordered_count: out_of_order,
        },
    );
    let payload_bytes = received_count * size_bytes as u64;
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
        assert_eq!(m.deliveries["forward"].reordered_count, 3);
    }

    #[test]
    fn a_report_without_the_figures_is_an_error_that_names_them() {
        let error = parse(b"{}", b"{}", 64).unwrap_err().to_string();
        assert!(error.contains("/end/sum/packets"), "{error}");
        assert!(parse(b"iperf3: error", b"{}", 64).is_err());
    }
}
