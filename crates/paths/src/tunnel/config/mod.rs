//! The forwarder's configuration: TOML in, checked values or errors with line, key and remedy
//! out. Reads no files.
//!
//! ```toml
//! workers = 2
//!
//! [port]                        # where plain frames come from and go to
//! interface = "lan0"
//!
//! [underlay]                    # where tunnels go
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
mod value;

use std::fmt;
use std::net::IpAddr;

use super::decap::DecapSpec;
use super::fdb::{Fdb, FdbError, FdbSpec, Port};
use super::forward::PolicerSpec;
use super::order::OrderSpec;
use super::qos::{Classifier, QueueSpec, Shaper, TokenBucket};
use super::spec::{Carrier, Field, Outer, Tunnel};

/// Everything that the forwarder is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Threads that forward, 1 to 64.
    pub workers: usize,
    /// How frames get in and out.
    pub engine: Engine,
    /// Interface of the plain frames.
    pub port: Interface,
    /// Interface of the tunnels.
    pub underlay: Interface,
    /// UDP port that VXLAN comes in at.
    pub vxlan_port: u16,
    /// Whether VXLAN over IPv6 may come without UDP checksum.
    pub accepts_no_checksum_v6: bool,
    /// Tunnels within inner frames that are let through.
    pub nested_max: usize,
    /// The tunnels, at least one.
    pub tunnels: Vec<TunnelConfig>,
    /// Addresses that are where they are for good.
    pub statics: Vec<StaticConfig>,
    /// The forwarding table; its seed is 0 until the forwarder chooses one.
    pub fdb: FdbSpec,
    /// Whether addresses are learnt beside the static ones.
    pub learns: bool,
    /// Order restoration.
    pub order: OrderSpec,
    /// What is one order.
    pub domain: Domain,
    /// Shaper and queues into the tunnels.
    pub qos: QosConfig,
}

/// How frames get in and out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// AF_XDP sockets.
    Xdp,
    /// AF_PACKET rings.
    Packet,
    /// A TAP device of the port's name; the tunnels through AF_PACKET.
    Tap,
}

/// An interface that is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its IP address, for the underlay's.
    pub address: Option<IpAddr>,
    /// Largest IP packet, in bytes.
    pub mtu_bytes: u16,
    /// Queues that are used.
    pub queues: u32,
}

/// Frames that keep their order among each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Domain {
    /// All of a port.
    Port,
    /// Those of a flow; the lanes of [`OrderSpec::lanes`] share the flows.
    Flow,
}

/// A tunnel with its name and the rules for its outer headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelConfig {
    /// Name, for counters and for `tunnel` in `[[static]]`.
    pub name: String,
    /// Ends and carrier.
    pub tunnel: Tunnel,
    /// MAC address of the next hop; none to ask by ARP.
    pub next_hop: Option<[u8; 6]>,
    /// Rules for the outer header; its MAC addresses are zero until [`Self::outer`].
    rules: Outer,
}

impl TunnelConfig {
    /// The rules for the outer header, sent from `src_mac` to the next hop `dst_mac`.
    pub fn outer(&self, src_mac: [u8; 6], dst_mac: [u8; 6]) -> Outer {
        Outer { src_mac, dst_mac, ..self.rules }
    }
}

/// An address that is where it is for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaticConfig {
    /// The address.
    pub mac: [u8; 6],
    /// Index of the tunnel that it is behind.
    pub tunnel: usize,
}

/// Policer, shaper, queues and who goes into which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QosConfig {
    /// Rate in bits per second and burst in bytes; none to send as fast as one can.
    pub shaper: Option<(u64, u64)>,
    /// What drops frames before the order is restored; none to let all in.
    pub policer: Option<PolicerSpec>,
    /// Bytes that a frame takes on the wire beside its own.
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

/// What is wrong with a configuration, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Line, from 1 on.
    pub line: usize,
    /// The key, with the table that it is in.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What to write instead.
    pub remedy: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigError { line, key, problem, remedy } = self;
        write!(f, "line {line}: {key}: {problem}; {remedy}")
    }
}

/// Everything that is wrong with a configuration, at least one thing, by line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl Config {
    /// Reads and checks a configuration.
    pub fn parse(text: &str) -> Result<Config, ConfigErrors> {
        file::parse(text)
    }

    /// Keys in which another configuration differs that a running forwarder cannot change.
    pub fn fixed_differences(&self, other: &Config) -> Vec<&'static str> {
        let has_gre = |config: &Config| {
            config.tunnels.iter().any(|t| matches!(t.tunnel.carrier, Carrier::Gretap { .. }))
        };
        let differences = [
            ("workers", self.workers != other.workers),
            ("engine", self.engine != other.engine),
            ("port", self.port != other.port),
            ("underlay", self.underlay != other.underlay),
            ("vxlan_port", self.vxlan_port != other.vxlan_port),
            ("order", self.order != other.order || self.domain != other.domain),
            // The XDP program leaves GRE to the stack where it was not wanted at the start.
            ("the first gretap tunnel", !has_gre(self) && has_gre(other)),
        ];
        differences.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }

    /// The forwarding table with its static addresses.
    ///
    /// - `seed`: see [`FdbSpec::seed`].
    pub fn table(&self, seed: u64) -> Result<Fdb, FdbError> {
        let mut fdb = Fdb::new(FdbSpec { seed, ..self.fdb });
        for entry in &self.statics {
            // There are at most 4096 tunnels.
            fdb.add_static(0, entry.mac, Port::Tunnel(entry.tunnel as u16))?;
        }
        Ok(fdb)
    }

    /// Who is in which class: what no class lists is in the last.
    pub fn classifier(&self) -> Classifier {
        // There are at most eight classes.
        let last = self.qos.classes.len().saturating_sub(1) as u8;
        let mut classifier = Classifier::new(last);
        for (class, found) in (0..).zip(&self.qos.classes) {
            found.dscp.iter().for_each(|dscp| classifier.set_dscp(*dscp, class));
            found.priority.iter().for_each(|code| classifier.set_priority(*code, class));
        }
        classifier
    }

    /// Shaper and queues into the tunnels; none when there is neither a rate nor a choice of
    /// classes, and frames may go straight on.
    pub fn shaper(&self, now_ns: u64) -> Option<Shaper> {
        let bucket = self.qos.shaper.map(|(rate, burst)| TokenBucket::new(rate, burst, now_ns));
        let queues: Vec<_> = self.qos.classes.iter().map(|class| class.queue).collect();
        (bucket.is_some() || queues.len() > 1)
            .then(|| Shaper::new(bucket, self.qos.overhead_bytes, &queues))
    }

    /// What comes out of the tunnels.
    pub fn decap(&self) -> DecapSpec {
        DecapSpec {
            tunnels: self.tunnels.iter().map(|tunnel| tunnel.tunnel).collect(),
            vxlan_port: self.vxlan_port,
            accepts_no_checksum_v6: self.accepts_no_checksum_v6,
            // A frame of the port's MTU with its header and up to two tags.
            inner_bytes_max: usize::from(self.port.mtu_bytes) + 22,
            nested_max: self.nested_max,
        }
    }
}

#[cfg(test)]
mod tests;
