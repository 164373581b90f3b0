//! Configuration of the forwarder: parses TOML into checked values, or errors with line, key and
//! remedy. Reads no files.
//!
//! ```toml
//! workers = 2
//!
//! [port]                        # interface of the plain frames
//! interface = "lan0"
//!
//! [underlay]                    # interface of the tunnels
//! interface = "wan0"
//! address = "10.0.0.1"
//!
//! [[tunnel]]
//! name = "site-b"
//! carrier = "vxlan"             # or "gretap"
//! vni = 42
//! remote = "10.0.0.2"
//! ```

mod file;
#[doc(hidden)]
pub mod fuzzing;
mod qos;
mod tunnels;
mod value;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use super::decap::DecapSpec;
use super::fdb::{Fdb, FdbError, FdbPort, FdbSpec};
use super::order::OrderSpec;
use super::qos::{Classifier, QueueSpec, Shaper, TokenBucket};
use super::spec::{Carrier, Field, Outer, Tunnel};
use crate::forwarder::PolicerSpec;

/// Configuration of the forwarder.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Worker threads, 1 to 64.
    pub workers: usize,
    /// CPUs of the workers in turn; empty for any.
    pub cpus: Vec<usize>,
    /// I/O engine.
    pub engine: ForwardEngine,
    /// Interface of the plain frames.
    pub port: InterfaceConfig,
    /// Interface of the tunnels.
    pub underlay: InterfaceConfig,
    /// Local UDP port of VXLAN.
    pub vxlan_port: u16,
    /// True to accept VXLAN over IPv6 without UDP checksum.
    pub accepts_no_checksum_v6: bool,
    /// Allowed number of nested tunnels in inner frames.
    pub nested_max: usize,
    /// The tunnels, at least one.
    pub tunnels: Vec<TunnelConfig>,
    /// Static entries of the forwarding table.
    pub statics: Vec<StaticConfig>,
    /// The forwarding table; its seed is 0 until the forwarder chooses one.
    pub fdb: FdbSpec,
    /// True to learn addresses in addition to the static ones.
    pub learns: bool,
    /// Order restoration.
    pub order: OrderSpec,
    /// Ordering domain.
    pub domain: Domain,
    /// Shaper and queues into the tunnels.
    pub qos: QosConfig,
}

/// I/O engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardEngine {
    /// `in-kernel` if the host supports it, else `xdp`.
    Auto,
    /// Programs that forward known stations by themselves: at tcx if the port's frames come from sockets
    /// of this machine (a veth or a TAP device), else at XDP, with AF_XDP sockets for the rest.
    InKernel,
    /// The same at XDP, whatever the port is.
    InKernelXdp,
    /// AF_XDP sockets.
    Xdp,
    /// AF_PACKET rings.
    Packet,
    /// A TAP device with the port's name; AF_PACKET for the tunnels.
    Tap,
}

/// Configuration of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceConfig {
    /// Its name.
    pub name: String,
    /// IP address; underlay only.
    pub address: Option<IpAddr>,
    /// Largest IP packet, in bytes.
    pub mtu_bytes: u16,
    /// Receive queues that it must have; `None` for as many as it has.
    pub queues: Option<u32>,
}

/// Ordering domain: the frames whose order is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Domain {
    /// All frames of a port.
    Port,
    /// Frames of one flow; flows are spread over [`OrderSpec::lanes`].
    Flow,
}

/// A tunnel with its name and the rules for its outer headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelConfig {
    /// Name, used by counters and by `tunnel` in `[[static]]`.
    pub name: String,
    /// Ends and carrier.
    pub tunnel: Tunnel,
    /// VLAN of the port that it carries; `None` for untagged frames, or for all if no tunnel has one.
    pub vlan: Option<u16>,
    /// MAC address of the next hop; `None` to resolve it by ARP.
    pub next_hop: Option<[u8; 6]>,
    /// Keepalives to its far end; `None` for no requests. Those of the far end are always answered.
    pub keepalive: Option<KeepaliveConfig>,
    /// Rules for the outer header; its MAC addresses are zero until [`Self::outer`].
    rules: Outer,
}

impl TunnelConfig {
    /// Its network in the forwarding table.
    pub fn network(&self) -> u16 {
        self.vlan.unwrap_or(0)
    }

    /// Rules for the outer header with the MAC addresses of the interface and the next hop.
    pub fn outer(&self, src_mac: [u8; 6], dst_mac: [u8; 6]) -> Outer {
        Outer { src_mac, dst_mac, ..self.rules }
    }
}

/// Keepalives of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepaliveConfig {
    /// Time from one request to the next.
    pub interval: Duration,
    /// Requests in a row without an answer after which the tunnel is down.
    pub lost: u64,
}

/// A static address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaticConfig {
    /// The address.
    pub mac: [u8; 6],
    /// Index of its tunnel.
    pub tunnel: usize,
}

/// Policer, shaper, queues and classes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QosConfig {
    /// Rate in bits per second and burst in bytes; `None` for no limit.
    pub shaper: Option<(u64, u64)>,
    /// Policer before the order is restored; `None` for no limit.
    pub policer: Option<PolicerSpec>,
    /// Bytes on the wire per frame beyond the frame's own.
    pub overhead_bytes: u16,
    /// Queues, first class first, at least one.
    pub classes: Vec<ClassConfig>,
}

/// A class of service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassConfig {
    /// Bounds of its queue.
    pub queue: QueueSpec,
    /// DSCPs of the packets in it.
    pub dscp: Vec<u8>,
    /// VLAN priorities of the frames in it.
    pub priority: Vec<u8>,
}

/// One error of a configuration, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Line number, from 1.
    pub line: usize,
    /// Key with its table.
    pub key: String,
    /// Message, without the key.
    pub problem: String,
    /// Change of the file that removes it.
    pub remedy: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigError { line, key, problem, remedy } = self;
        write!(f, "line {line}: {key}: {problem}; {remedy}")
    }
}

/// All errors of a configuration, at least one, sorted by line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl Config {
    /// Reads and checks a configuration.
    pub fn parse(text: &str) -> Result<Config, ConfigErrors> {
        file::parse(text)
    }

    /// Keys that differ from `other` and cannot change while the forwarder runs.
    pub fn fixed_differences(&self, other: &Config) -> Vec<&'static str> {
        let differences = [
            ("workers", self.workers != other.workers),
            ("cpus", self.cpus != other.cpus),
            ("engine", self.engine != other.engine),
            ("port", self.port != other.port),
            ("underlay", self.underlay != other.underlay),
            ("vxlan_port", self.vxlan_port != other.vxlan_port),
            ("order", self.order != other.order || self.domain != other.domain),
        ];
        differences.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }

    /// The forwarding table with its static addresses.
    ///
    /// - `seed`: see [`FdbSpec::seed`].
    pub fn table(&self, seed: u64) -> Result<Fdb, FdbError> {
        let mut fdb = Fdb::new(FdbSpec { seed, ..self.fdb });
        for entry in &self.statics {
            let network = self.tunnels.get(entry.tunnel).map_or(0, TunnelConfig::network);
            // At most 4096 tunnels.
            fdb.add_static(network, entry.mac, FdbPort::Tunnel(entry.tunnel as u16))?;
        }
        Ok(fdb)
    }

    /// VLANs by tunnel.
    pub fn vlans(&self) -> Vec<Option<u16>> {
        self.tunnels.iter().map(|tunnel| tunnel.vlan).collect()
    }

    /// Assigns frames to classes; frames that no class lists go to the last.
    pub fn classifier(&self) -> Classifier {
        // At most eight classes.
        let last = self.qos.classes.len().saturating_sub(1) as u8;
        let mut classifier = Classifier::new(last);
        for (class, found) in (0..).zip(&self.qos.classes) {
            found.dscp.iter().for_each(|dscp| classifier.set_dscp(*dscp, class));
            found.priority.iter().for_each(|code| classifier.set_priority(*code, class));
        }
        classifier
    }

    /// Shaper and queues into the tunnels. `None` with neither a rate nor several classes, in which
    /// case frames are sent directly.
    pub fn shaper(&self, now_ns: u64) -> Option<Shaper> {
        let bucket = self.qos.shaper.map(|(rate, burst)| TokenBucket::new(rate, burst, now_ns));
        let queues: Vec<_> = self.qos.classes.iter().map(|class| class.queue).collect();
        (bucket.is_some() || queues.len() > 1)
            .then(|| Shaper::new(bucket, self.qos.overhead_bytes, &queues))
    }

    /// Configuration of decapsulation.
    pub fn decap(&self) -> DecapSpec {
        DecapSpec {
            tunnels: self.tunnels.iter().map(|tunnel| tunnel.tunnel).collect(),
            vxlan_port: self.vxlan_port,
            accepts_no_checksum_v6: self.accepts_no_checksum_v6,
            // The port's MTU plus the Ethernet header and up to two tags.
            inner_bytes_max: usize::from(self.port.mtu_bytes) + 22,
            nested_max: self.nested_max,
        }
    }
}

#[cfg(test)]
mod tests;
