//! Loads of virtual machines.

use std::time::Duration;

const ROUND_TRIPS: &[&str] =
    &["rtt_ns_mean", "rtt_ns_min", "rtt_ns_max", "rtt_ns_mdev", "cpu_ns_per_packet"];

model::loads! {
    /// Loads of virtual machines.
    pub(crate) enum VmLoad {
        Ping {
            what: "ICMP echoes, 20 a second, as of `ping -i 0.05`",
            judged: ROUND_TRIPS,
            size_bytes: 56,
            rate_pps: 20,
            trial: Duration::from_millis(1250),
            peers: &[],
        },
        BackToBack {
            what: "ICMP echoes: the next when the answer has arrived (closed loop)",
            judged: &["rtt_ns_p50", "rtt_ns_mean", "rtt_ns_max", "cpu_ns_per_packet"],
            size_bytes: 56,
            rate_pps: 0,
            trial: Duration::from_millis(500),
            peers: &[],
        },
        Flood {
            what: "ICMP echoes, 16 under way at any time: answers a second, and losses",
            judged: &["received_pps", "cpu_ns_per_packet"],
            size_bytes: 56,
            rate_pps: 0,
            trial: Duration::from_millis(500),
            peers: &[],
        },
        Start {
            what: "boots under traffic: from exec of the machine to its first answer, while pings arrive from the first \
                   moment; a machine that never answers is a failed trial",
            judged: &["start_ns_mean"],
            size_bytes: 56,
            rate_pps: 0,
            trial: Duration::from_millis(1),
            peers: &[],
        },
        Client {
            what: "the file's client, through or to the guest",
            judged: &["client_wall_ns", "cpu_ns_per_packet"],
            size_bytes: 0,
            rate_pps: 0,
            trial: Duration::from_secs(1),
            peers: &[],
        },
    }
}
