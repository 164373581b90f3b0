//! DPDK's testpmd as the forwarder: frames from one interface to the other as they are, without
//! a tunnel. The cost of user-space forwarding alone.

use std::process::Command;
use std::time::Duration;

use host::child::{Child, ChildPlace};
use host::net;
use host::netns::Netns;
use lab::peers::version_in;
use lab::{RunCause, Triple};
use model::Support;

use crate::path::TunnelLoad;
use crate::topology::SINK_IP;
use model::{PathError, PathLoad};

const PROGRAM: &str = "dpdk-testpmd";
/// Time limit for its start.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for its end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A testpmd that forwards; killed when dropped.
pub(super) struct Testpmd {
    // Dropped before its leftovers are removed.
    child: Option<Child>,
    netns: Netns,
    ifindexes: [u32; 2],
    sink_mac: [u8; 6],
}

/// Support for a peer: known, able to run the load, and installed.
pub(super) fn support(name: &str, load: TunnelLoad) -> Support {
    let known = load.kind().peers;
    if !known.contains(&name) {
        let carries = if known.is_empty() { "none does".into() } else { known.join(", ") };
        return Support::Refused {
            why: format!("{name} does not carry load {load}; of the known forwarders {carries}"),
        };
    }
    match Command::new(PROGRAM).arg("--help").output() {
        Ok(_) => Support::Yes,
        Err(_) => Support::unsupported("testpmd is not installed", "apt-get install dpdk-dev"),
    }
}

fn failed(why: impl Into<RunCause>) -> PathError {
    PathError::at("testpmd", why)
}

impl Testpmd {
    /// - `name`: `testpmd` for AF_XDP, `testpmd-packet` for AF_PACKET.
    /// - `cpus`: the first is its own.
    pub(super) fn start(name: &str, lab: &Triple, cpus: &[usize]) -> Result<Self, PathError> {
        let cpu = cpus.first().copied().unwrap_or(0);
        let driver = if name == "testpmd" { "net_af_xdp" } else { "net_af_packet" };
        let middle = &lab.middle;
        let mut command = Command::new(PROGRAM);
        // Its own first thread sleeps; both are on the one CPU.
        command.args([&format!("--lcores=0@{cpu},1@{cpu}"), "--no-huge", "-m", "256"]);
        // It prints its version.
        command.arg("-v");
        // Nothing shared with other programs of DPDK; --in-memory does not go with --no-huge.
        command.args(["--no-pci", "--no-telemetry", "--no-shconf", "--file-prefix=wirepath"]);
        for (n, end) in [&middle.near_if, &middle.far_if].into_iter().enumerate() {
            command.arg(format!("--vdev={driver}{n},iface={}", end.ifname));
        }
        command.args(["--", "--nb-cores=1", "--forward-mode=io", "--stats-period=1"]);
        // Its own choice, for ports with many queues, does not fit its memory.
        command.arg("--total-num-mbufs=16384");
        let place = ChildPlace { netns: Some(&middle.netns), cpus: &[cpu] };
        let netns = middle.netns.try_clone().map_err(PathError::part)?;
        let ifindexes = [middle.near_if.ifindex, middle.far_if.ifindex];
        let spawned = Child::spawn(command, &place).map_err(PathError::part)?;
        let testpmd = Testpmd { child: Some(spawned), netns, ifindexes, sink_mac: lab.far.mac };
        let Some(child) = &testpmd.child else { return Err(failed("it is gone")) };
        if !child.wait_for_stdout("Port statistics", START_TIMEOUT) {
            let text = [child.stdout_so_far(), child.stderr_so_far()].concat();
            let text = String::from_utf8_lossy(&text).into_owned();
            let line = text.lines().rev().find(|line| {
                let line = line.to_lowercase();
                line.contains("error") || line.contains("fail") || line.contains("cannot")
            });
            let why = line.unwrap_or("it says nothing").trim().to_owned();
            return Err(failed(format!(
                "does not forward after {} s: {why}",
                START_TIMEOUT.as_secs()
            )));
        }
        Ok(testpmd)
    }

    /// Version of DPDK.
    pub(super) fn version(&self) -> Option<String> {
        let child = self.child.as_ref()?;
        let text = [child.stdout_so_far(), child.stderr_so_far()].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        version_in(text.lines().find(|line| line.contains("RTE Version"))?)
    }

    /// CPU time until now, nanoseconds. Errors: the program has ended, which none is to do by itself.
    pub(super) fn cpu_ns(&mut self) -> Result<u64, PathError> {
        let Some(child) = &mut self.child else { return Err(failed("it is gone")) };
        if let Some(finished) = child.wait(Duration::ZERO).map_err(PathError::part)? {
            return Err(failed(format!("ended during the trial: {}", finished.status)));
        }
        child.cpu_ns().ok_or_else(|| failed("its CPU time cannot be read"))
    }

    /// Ends it; its CPU time, nanoseconds.
    pub(super) fn stop(mut self) -> Result<u64, PathError> {
        let Some(mut child) = self.child.take() else { return Ok(0) };
        // It closes its ports, which takes it about a second.
        child.interrupt();
        let finished = match child.wait(STOP_TIMEOUT).map_err(PathError::part)? {
            Some(finished) => finished,
            None => child.stop().map_err(PathError::part)?,
        };
        Ok(finished.usage.user_ns + finished.usage.system_ns)
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        drop(self.child.take());
        // One that was killed leaves its XDP programs on the interfaces.
        let (ifindexes, sink_mac) = (self.ifindexes, self.sink_mac);
        let _ = self.netns.run(|| {
            for ifindex in ifindexes {
                sys::bpf::detach_leftover(ifindex);
            }
            // Over AF_PACKET it takes the interfaces down briefly, which removes even static
            // neighbours: the next forwarder would not find the sink.
            let _ = net::set_neighbour(ifindexes[1], SINK_IP, sink_mac);
        });
    }
}
