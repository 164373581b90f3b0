//! A guest that serves TCP, UDP and ICMP in the lab.

use std::net::Ipv4Addr;

use guest_pages::Mode;
use host::netns::Netns;
use model::Arm;

use super::image;
use super::run_guest::{RING_LOG2, spec};
use super::topology::{BackEnd, Topology, Wire};
use host::text::chain;
use model::PathError;
use vmm::{self, GuestTask, Running};

/// A running guest with echo (7), discard (9) and chargen (19) over TCP and echo over UDP.
///
/// Drop ends the guest, then the lab.
pub struct ServedGuest {
    running: Running,
    ends: Topology,
    back_end: BackEnd,
    guest_ip: Ipv4Addr,
}

/// Counters of a guest that served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeSummary {
    pub tx_frame_count: u64,
    pub rx_frame_count: u64,
    /// Exits to the monitor.
    pub exit_count: u64,
    /// CPU time of the vCPU's thread.
    pub vcpu_ns: u64,
    /// CPU time of the device's thread.
    pub device_ns: u64,
    /// Guest, device and monitor at the end, in lines: why an answer is missing.
    pub state: String,
}

impl ServedGuest {
    /// Builds a lab and starts a guest with the switches of `arm`.
    ///
    /// Errors: missing support on this host, with its remedy.
    pub fn start(arm: &Arm) -> Result<Self, PathError> {
        ServedGuest::start_in(Topology::new()?, arm)
    }

    /// Starts a guest behind a TAP interface of this namespace, which stays.
    ///
    /// Errors: as [`start`](Self::start), or a switch of `arm` is of another wire.
    pub fn start_on_tap(arm: &Arm, ifname: &str) -> Result<Self, PathError> {
        if BackEnd::new(arm) != BackEnd::Tap {
            return Err(PathError::Invalid {
                what: format!("{} passes frames by rings, not by a TAP", arm.name),
                remedy: "leave out --tap, or the switches of rings".into(),
            });
        }
        ServedGuest::start_in(Topology::attached(ifname)?, arm)
    }

    fn start_in(ends: Topology, arm: &Arm) -> Result<Self, PathError> {
        let image = image::load().map_err(PathError::part)?;
        let back_end = BackEnd::new(arm);
        let (running, guest_ip) = {
            let Wire { far, guest_ip, .. } = ends.wire(back_end);
            let task = GuestTask {
                mode: Mode::Serve,
                tx_ring_log2: RING_LOG2,
                rx_ring_log2: RING_LOG2,
                ip: guest_ip,
                peer_ip: far.ip,
                ..GuestTask::send(1460, 0)
            };
            let spec = spec(&image, arm, task);
            let running = vmm::start(&spec, |ram| Ok(ends.open(back_end, Some(ram))?));
            (running.map_err(PathError::part)?, guest_ip)
        };
        Ok(ServedGuest { running, ends, back_end, guest_ip })
    }

    pub fn guest_ip(&self) -> Ipv4Addr {
        self.guest_ip
    }

    /// The namespace from which it is reached.
    pub fn netns(&self) -> &Netns {
        &self.ends.far(self.back_end).netns
    }

    /// Process id of the monitor, which runs in a process of its own.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// True if the guest has ended by itself, which is an error.
    pub fn has_ended(&self) -> bool {
        self.running.wait(std::time::Duration::ZERO)
    }

    /// Stops it.
    pub fn stop(self) -> Result<ServeSummary, PathError> {
        let stopped = self.running.stop();
        let (outcome, _) = stopped.map_err(|e| PathError::at("guest", chain(&e)))?;
        if outcome.end != vmm::GuestEnd::Stopped {
            return Err(PathError::at("guest", format!("ended by {:?}", outcome.end)));
        }
        let (seen, condition) = (&outcome.total, &outcome.condition);
        Ok(ServeSummary {
            state: vmm::FailureReport { condition, total: seen }.to_string(),
            tx_frame_count: seen.nic.tx_frame_count,
            rx_frame_count: seen.nic.rx_frame_count,
            exit_count: seen.exits.count(),
            vcpu_ns: seen.vcpu.cpu_ns(),
            device_ns: seen.device_cpu_ns,
        })
    }
}
