//! iperf3 between two hosts: the far end starts its server.

use std::net::IpAddr;

use host::child::{Child, ChildPlace, Finished};
use model::{Measurement, PathError};

use super::iperf3::{CLIENT_TIMEOUT, client_command, error_in, parsed, reported_error};
use super::{PeerJob, cost, failed, wait_client};

/// TCP and UDP port of the server.
pub const PORT: u16 = 9002;

/// Command line of a server for one client, at an address of its host.
pub fn server_command(address: IpAddr) -> String {
    format!("exec iperf3 -s -1 -J --forceflush -B {address} -p {PORT}")
}

/// Error that a server reports; `None` if its report has none.
pub fn server_error(report: &[u8]) -> Option<String> {
    error_in(report)
}

/// Runs the client in the calling thread's namespace.
///
/// - `cpus`: empty for all.
///
/// Errors: it failed, or takes too long.
pub fn run_client(job: &PeerJob, to: IpAddr, cpus: &[usize]) -> Result<Finished, PathError> {
    let place = ChildPlace { netns: None, cpus };
    let client = Child::spawn(client_command(to, PORT, job), &place).map_err(PathError::part)?;
    let client = wait_client("iperf3", client, CLIENT_TIMEOUT)?;
    match reported_error(&client) {
        Some(why) => Err(failed("iperf3", format!("the client reports: {why}"))),
        None => Ok(client),
    }
}

/// The measurement of a run, with the client's cost as that of the near end.
///
/// - `server`: JSON report of the server.
pub fn measurement(
    job: &PeerJob,
    client: &Finished,
    server: &[u8],
) -> Result<Measurement, PathError> {
    let mut measurement = parsed(job, &client.stdout, server)?;
    measurement.costs.insert("near".into(), cost(&client.usage));
    Ok(measurement)
}
