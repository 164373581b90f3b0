//! A wire with delay, jitter, rate, buffer and loss, for kernels without netem.
//!
//! A process of its own joins two interfaces by packet sockets. Offloads of the ends stay on: a super-frame is counted
//! segment by segment in the queue and in the losses, and delivered in parts. Arrivals have the kernel's stamps, so the
//! delay does not depend on when the process runs; its lateness on sending is counted.
//!
//! The process ends with its owner, `kill -9` included, and leaves nothing.

mod carrier;
mod counts;
mod frame;
mod lateness;
mod link;
mod losses;
mod store;
mod trials;

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use model::WireSpec;
use sys::forked::Forked;
use sys::packet_port::PacketPort;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::LabError;
use crate::{End, Middle, Pair, PairSpec, Triple};
use carrier::{BEGIN, Carrier, MESSAGE_BYTES, REPORT};
pub use counts::{WireCounts, late_limit_ns};
pub use trials::WireTrials;

/// Longest wait for the process to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Received frames that wait for the process: some milliseconds of the highest rate, with the kernel's bookkeeping.
const BUFFER_BYTES: usize = 32 << 20;

/// Counts of both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct WireReport {
    /// From the near end.
    pub forward: WireCounts,
    /// From the far end.
    pub back: WireCounts,
}

impl WireReport {
    /// Reason why a trial over the wire is not valid.
    pub fn fault(&self, wire: &WireSpec) -> Option<String> {
        self.forward.fault(wire).or_else(|| self.back.fault(wire))
    }
}

/// A wire with distance. Dropping it ends its process and removes the interfaces in the middle.
#[derive(Debug)]
pub struct DistantWire {
    /// Before the namespace of its sockets.
    process: Forked,
    spec: WireSpec,
    _middle: Middle,
}

/// Two namespaces with a wire of some length between them; see [`crate::Pair`].
#[derive(Debug)]
pub struct DistantPair {
    pub ends: Pair,
    pub wire: DistantWire,
}

impl DistantPair {
    /// Builds the lab; it is ready to carry traffic on return.
    ///
    /// Needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_RAW.
    pub fn new(spec: &PairSpec, wire: &WireSpec) -> Result<Self, LabError> {
        let Triple { near, middle, far } = Triple::new(spec)?;
        for end in [&near, &far] {
            forget_metrics(end)?;
        }
        let wire = DistantWire::start(middle, wire)?;
        Ok(DistantPair { ends: Pair { near, far }, wire })
    }
}

/// Makes each connection begin without what the kernel learned from those before.
///
/// Source: Documentation/networking/ip-sysctl.rst, tcp_no_metrics_save.
fn forget_metrics(end: &End) -> Result<(), LabError> {
    const FILE: &str = "/proc/sys/net/ipv4/tcp_no_metrics_save";
    end.run(|| fs::write(FILE, "1"))?
        .map_err(|source| LabError::Sysctl { path: FILE.into(), source })
}

impl DistantWire {
    fn start(middle: Middle, spec: &WireSpec) -> Result<Self, LabError> {
        let open = |end: &End| {
            let port = end.run(|| PacketPort::open(end.ifindex, BUFFER_BYTES))?;
            port.map_err(|source| LabError::Wire { what: "opening its packet sockets", source })
        };
        let ports = [open(&middle.near_if)?, open(&middle.far_if)?];
        let needed = ports.each_ref().map(PacketPort::as_fd);
        let carrier = Carrier::new(spec, &ports);
        let process = Forked::start(c"wirepath-wire", &needed, |owner| carrier.run(owner))
            .map_err(|source| LabError::Wire { what: "starting its process", source })?;
        let wire = DistantWire { process, spec: spec.clone(), _middle: middle };
        // It answers once its memory is ready.
        wire.begin(0)?;
        Ok(wire)
    }

    pub fn spec(&self) -> &WireSpec {
        &self.spec
    }

    /// Process id of the wire.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Begins a trial: losses are those of `seed` from the first segment on, and counts begin at 0.
    pub fn begin(&self, seed: u64) -> Result<(), LabError> {
        self.exchange(BEGIN, seed).map(drop)
    }

    /// Counts since the last [`Self::begin`].
    pub fn report(&self) -> Result<WireReport, LabError> {
        self.exchange(REPORT, 0)
    }

    fn exchange(&self, kind: u8, seed: u64) -> Result<WireReport, LabError> {
        let answer = || -> io::Result<WireReport> {
            let mut connection = self.process.connection();
            connection.set_read_timeout(Some(ANSWER_TIMEOUT))?;
            let mut message = [kind; MESSAGE_BYTES];
            message[1..].copy_from_slice(&seed.to_ne_bytes());
            connection.write_all(&message)?;
            let mut report = WireReport::default();
            connection.read_exact(report.as_mut_bytes())?;
            Ok(report)
        };
        answer().map_err(|source| LabError::Wire { what: "asking its process", source })
    }
}
