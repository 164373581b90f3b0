//! Loads, and the peers on the same QEMU and wire that carry them.

use std::time::Duration;

/// Debian's arm64 kernel.
pub(super) const LINUX: &str = "linux";
/// Firmware with driver `virtio-drivers` and protocols `smoltcp`.
pub(super) const REFERENCE: &str = "virtio-drivers";
/// The same with the driver of this project, through its adapter: the two differ in the driver alone.
pub(super) const SMOLTCP: &str = "smoltcp";

/// Judged under loads of one echo at a time: also what the answers cost the firmware's other tasks.
const RTT: &[&str] = &[
    "rtt_ns_p50",
    "rtt_ns_p99",
    "main_wait_ns_per_packet",
    "cpu_ns_per_packet",
    "guest_tick_late_ns_max",
    "guest_share_ticks",
];

model::loads! {
    /// Loads of the guest.
    pub enum GuestLoad {
        Ping {
            what: "ICMP echoes back to back: the next when the answer has arrived (closed loop)",
            judged: RTT,
            size_bytes: 56,
            rate_pps: 0,
            trial: Duration::from_millis(400),
            peers: &[LINUX, REFERENCE, SMOLTCP],
        },
        UdpPing {
            what: "UDP echoes back to back",
            judged: RTT,
            size_bytes: 56,
            rate_pps: 0,
            trial: Duration::from_millis(400),
            peers: &[REFERENCE, SMOLTCP],
        },
        Flood {
            what: "UDP echoes, as many as the card accepts; answers count as received",
            judged: &[
                "received_pps",
                "cpu_ns_per_packet",
                "main_wait_ns_per_packet",
                "guest_tick_late_ns_max",
                "guest_share_ticks",
            ],
            size_bytes: 18,
            rate_pps: 0,
            trial: Duration::from_millis(400),
            peers: &[],
        },
        TapPing {
            what: "ping(8) through a TAP interface in a namespace, 20 echoes a second",
            judged: &[
                "rtt_ns_mean",
                "rtt_ns_p50",
                "rtt_ns_max",
                "main_wait_ns_per_packet",
                "rtt_ns_mdev",
            ],
            size_bytes: 56,
            rate_pps: 0,
            trial: Duration::from_millis(1250),
            peers: &[LINUX, REFERENCE, SMOLTCP],
        },
        PingUart115200 {
            what: "as ping, with the console as slow as a 115,200 baud line",
            judged: &["rtt_ns_p50", "main_wait_ns_per_packet", "cpu_ns_per_packet"],
            size_bytes: 56,
            rate_pps: 0,
            trial: Duration::from_millis(400),
            peers: &[],
        },
        Start {
            what: "boots, one after the other, while frames arrive: from exec of QEMU to the first answer",
            judged: &["start_ns_mean", "start_ns_min"],
            size_bytes: 56,
            rate_pps: 0,
            trial: Duration::from_secs(1),
            peers: &[REFERENCE, SMOLTCP],
        },
    }
}
