//! Dropped packets: reason, place, the program or rule behind it, and a remedy.

mod firewall;
mod places;
mod spaces;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sys::bpf::explain::Seen;
use sys::bpf::explain_drops::{DropSample, Drops, drop_reasons};

use super::drop_sentences;
use super::symbols::Symbols;
use crate::causes;
use crate::generated::Plain;
use crate::net::nftables::RulePacket;
pub(super) use spaces::{Spaces, process_name};

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

/// Most places of a row, and most kinds of drops that are looked into for them.
const PLACES_MAX: usize = 8;
const KINDS_MAX: usize = 64;

/// Packets dropped for one reason by one function.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DropRow {
    /// The kernel's name of the reason (`enum skb_drop_reason`), or its number.
    pub reason: String,
    /// Cause in the library of causes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'static str>,
    /// The reason in plain English.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentence: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<&'static str>,
    /// The function that dropped, or its address.
    pub function: String,
    /// Packets.
    pub count: u64,
    /// Where and why, most frequent first; not all of them, and none in the middle of an observation.
    pub places: Vec<DropPlace>,
    /// Packets of other places.
    pub other_places_count: u64,
    #[serde(skip)]
    pub(super) kinds: Vec<Drops>,
}

/// Packets dropped in one place.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DropPlace {
    /// Packets.
    pub count: u64,
    /// Cause, place and those concerned, in plain English.
    pub sentence: String,
    /// Commands and settings to try.
    pub remedy: String,
    pub undo: String,
    /// Network namespace: name of `ip netns`, or a process in it; `None` for the one of this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// `TCP`, `UDP`, or the number of another IP protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Destination port; `None` for all ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// One of the packets: `UDP 10.0.0.1:40000 to 10.0.0.2:9000`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<String>,
    /// Program and process of the socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Rules of nftables that drop it; more than one if it may be any of them.
    pub rules: Vec<DropRule>,
    /// The sentence without a port, if the same holds for packets to others; else the sentence.
    #[serde(skip)]
    of_all_ports: String,
}

/// A rule of nftables, or a chain's policy.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DropRule {
    pub family: &'static str,
    pub table: String,
    pub chain: String,
    /// Number of the rule, as `nft -a` shows it; `None` for the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<u64>,
}

/// A sentence with its remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advice {
    sentence: String,
    remedy: String,
    undo: String,
}

impl Advice {
    fn new(
        sentence: impl Into<String>,
        remedy: impl Into<String>,
        undo: impl Into<String>,
    ) -> Self {
        Advice { sentence: sentence.into(), remedy: remedy.into(), undo: undo.into() }
    }
}

/// A name in a command to copy: `placeholder` in place of one in which a shell would find more than a word.
fn command_word(name: &str, placeholder: &'static str) -> String {
    Plain::word(name).map_or(placeholder.to_owned(), |word| word.as_str().to_owned())
}

/// Drops by reason and function, most frequent first, without places.
pub(super) fn rows(seen: &Seen, symbols: &Symbols) -> Vec<DropRow> {
    let reasons = drop_reasons();
    let mut rows: Vec<DropRow> = Vec::new();
    for kind in &seen.drops {
        let number = kind.reason;
        let reason = reasons.get(&number).cloned().unwrap_or_else(|| format!("reason {number}"));
        let function = symbols.name(kind.location);
        // Several locations in one function are reported as one.
        match rows.iter_mut().find(|row| row.reason == reason && row.function == function) {
            Some(row) => {
                row.count += kind.count;
                row.kinds.push(kind.clone());
            }
            None => rows.push(DropRow::new(reason, function, kind)),
        }
    }
    rows.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
    rows
}

impl DropRow {
    fn new(reason: String, function: String, kind: &Drops) -> DropRow {
        let meaning = drop_sentences::meaning(&reason, &function);
        let known = drop_sentences::of(meaning);
        DropRow {
            cause: causes::of_reason(meaning).map(|cause| cause.id),
            sentence: known.map(|known| known.sentence),
            remedy: known.map(|known| known.remedy),
            undo: known.map(|known| known.undo),
            reason,
            function,
            count: kind.count,
            places: Vec::new(),
            other_places_count: 0,
            kinds: vec![kind.clone()],
        }
    }

    /// The reason, or that for which its function stands.
    pub(super) fn meaning(&self) -> &str {
        drop_sentences::meaning(&self.reason, &self.function)
    }

    /// Finds the places of its drops. Places of which the same is to be said are one.
    pub(super) fn locate(&mut self, spaces: &mut Spaces, symbols: &Symbols) {
        self.kinds.sort_by_key(|kind| std::cmp::Reverse(kind.count));
        let mut places: Vec<DropPlace> = Vec::new();
        for kind in self.kinds.iter().take(KINDS_MAX) {
            let place = places::place(self, kind, spaces, symbols);
            let known = places.iter_mut().find(|known| {
                known.of_all_ports == place.of_all_ports && known.netns == place.netns
            });
            match known {
                Some(known) => {
                    known.count += place.count;
                    if known.port != place.port {
                        known.port = None;
                        known.sentence.clone_from(&known.of_all_ports);
                    }
                }
                None => places.push(place),
            }
        }
        places.sort_by_key(|place| std::cmp::Reverse(place.count));
        places.truncate(PLACES_MAX);
        self.other_places_count =
            self.count.saturating_sub(places.iter().map(|place| place.count).sum());
        self.places = places;
    }
}

/// Finds the places of all drops.
pub(super) fn locate(rows: &mut [DropRow], spaces: &mut Spaces, symbols: &Symbols) {
    rows.iter_mut().for_each(|row| row.locate(spaces, symbols));
}

/// Addresses and ports of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Flow {
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    ports: Option<(u16, u16)>,
}

impl Flow {
    /// `None` for a packet that is not IP, and for a truncated header.
    fn of(packet: &RulePacket) -> Option<Flow> {
        let bytes = |from: usize, count: usize| packet.network.get(from..from + count);
        let v4 =
            |from| Some(IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes(from, 4)?).ok()?)));
        let v6 =
            |from| Some(IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes(from, 16)?).ok()?)));
        let (from, to, protocol) = match packet.ethertype {
            0x0800 => (v4(12)?, v4(16)?, *packet.network.get(9)?),
            0x86dd => (v6(8)?, v6(24)?, *packet.network.get(6)?),
            _ => return None,
        };
        Some(Flow { from, to, protocol, ports: packet.ports() })
    }
}

impl std::fmt::Display for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let protocol = protocol_name(self.protocol);
        match self.ports {
            Some((from, to)) => {
                let (from, to) = (
                    std::net::SocketAddr::new(self.from, from),
                    std::net::SocketAddr::new(self.to, to),
                );
                write!(f, "{protocol} {from} to {to}")
            }
            None => write!(f, "{protocol} {} to {}", self.from, self.to),
        }
    }
}

pub(super) fn protocol_name(protocol: u8) -> String {
    match protocol {
        1 => "ICMP".to_owned(),
        0 => "IPv6 with options".to_owned(),
        2 => "IGMP".to_owned(),
        TCP => "TCP".to_owned(),
        UDP => "UDP".to_owned(),
        50 => "ESP".to_owned(),
        58 => "ICMPv6".to_owned(),
        132 => "SCTP".to_owned(),
        other => format!("IP protocol {other}"),
    }
}

/// The packet as the rules of a namespace see it.
fn rule_packet(sample: &DropSample, names: &BTreeMap<u32, String>) -> RulePacket {
    let interface = |index: u32| match index {
        0 => Some((0, String::new())),
        index => names.get(&index).map(|name| (index, name.clone())),
    };
    RulePacket {
        link: sample.link,
        network: sample.network.clone(),
        ethertype: sample.ethertype,
        input: interface(sample.iif),
        output: interface(sample.oif),
        mark: Some(sample.mark),
        length_bytes: Some(sample.length_bytes),
        packet_type: Some(sample.packet_type),
        connection_state: sample.connection.map(connection_state),
    }
}

/// Bits of `ct state` in rules.
///
/// Source: linux/netfilter/nf_conntrack_common.h, NF_CT_STATE_*; net/netfilter/nft_ct.c.
fn connection_state(connection: u8) -> u32 {
    const NONE: u8 = 8;
    const UNTRACKED: u8 = 7;
    const REPLIES_FROM: u8 = 3;
    match (connection & NONE != 0, connection & 7) {
        (true, UNTRACKED) => 1 << 6,
        (true, _) => 1,
        (false, state) => 1 << (state % REPLIES_FROM + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_connections_are_the_bits_of_rules() {
        // Established, related, new, and an established reply; then invalid and untracked.
        for (connection, state) in [(0, 2), (1, 4), (2, 8), (3, 2), (8, 1), (15, 64)] {
            assert_eq!(connection_state(connection), state, "{connection}");
        }
    }

    #[test]
    fn flows_are_read_from_headers_and_short_ones_are_none() {
        let mut network = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        network.extend([0x9c, 0x40, 0x23, 0x28]);
        let packet = RulePacket { network, ethertype: 0x0800, ..RulePacket::default() };
        let flow = Flow::of(&packet).expect("a flow");
        assert_eq!(flow.to_string(), "UDP 10.0.0.1:40000 to 10.0.0.2:9000");
        for length in 0..20 {
            let network = packet.network[..length].to_vec();
            assert_eq!(Flow::of(&RulePacket { network, ..packet.clone() }), None);
        }
    }

    #[test]
    fn names_that_a_shell_would_run_are_not_in_commands() {
        assert_eq!(command_word("in", "CHAIN"), "in");
        assert_eq!(command_word("a;reboot", "CHAIN"), "CHAIN");
    }
}
