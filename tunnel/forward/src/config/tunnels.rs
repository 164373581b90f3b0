//! Tunnels and static addresses of the file.

use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::value::{ConfigCheck, FlagOrWord, NumberOrWord};
use super::{Carrier, InterfaceConfig, KeepaliveConfig, Outer, StaticConfig, Tunnel, TunnelConfig};
use crate::domain::VLAN_MAX;
use crate::spec::{self, TunnelError};

/// Tunnel names are used as counter labels.
const NAME_CHARS_MAX: usize = 32;
const TUNNEL_COUNT_MAX: usize = 1 << 12;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TunnelTable {
    name: Spanned<String>,
    carrier: CarrierWord,
    vni: Option<Spanned<i64>>,
    key: Option<Spanned<i64>>,
    vlan: Option<Spanned<i64>>,
    remote: Spanned<String>,
    remote_port: Option<Spanned<i64>>,
    next_hop: Option<Spanned<String>>,
    ttl: Option<Spanned<NumberOrWord>>,
    dscp: Option<Spanned<NumberOrWord>>,
    dont_fragment: Option<Spanned<FlagOrWord>>,
    checksum: Option<bool>,
    sequence: Option<Spanned<bool>>,
    /// Of earlier versions; its own error names what replaces it.
    encryption: Option<Spanned<toml::Value>>,
    keepalive: Option<KeepaliveTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeepaliveTable {
    interval_ms: Option<Spanned<i64>>,
    lost: Option<Spanned<i64>>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum CarrierWord {
    Vxlan,
    Gretap,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StaticTable {
    mac: Spanned<String>,
    tunnel: Spanned<String>,
}

/// Checks all tunnels.
///
/// - `local`: address of the underlay.
pub(super) fn tunnels(
    tables: &[Spanned<TunnelTable>],
    local: IpAddr,
    underlay: &InterfaceConfig,
    vxlan_port: u16,
    check: &mut ConfigCheck<'_>,
) -> Vec<TunnelConfig> {
    let mut tunnels: Vec<TunnelConfig> = Vec::new();
    if tables.is_empty() || tables.len() > TUNNEL_COUNT_MAX {
        let problem = format!("there are {} tunnels", tables.len());
        check.wrong(0..0, "tunnel", problem, format!("give 1 to {TUNNEL_COUNT_MAX}"));
    }
    for table in tables {
        let found = table.get_ref();
        let Some(tunnel) = tunnel(found, table.span(), local, underlay, vxlan_port, check) else {
            continue;
        };
        if tunnels.iter().any(|other| other.name == tunnel.name) {
            let problem = format!("duplicate tunnel name {:?}", tunnel.name);
            check.wrong(found.name.span(), "tunnel.name", problem, "give each tunnel its own name");
        } else if let Some(other) = tunnels.iter().find(|other| other.tunnel == tunnel.tunnel) {
            let problem = format!("tunnel {:?} has the same endpoints and network", other.name);
            let remedy = "give it another remote, vni or key";
            check.wrong(found.remote.span(), "tunnel.remote", problem, remedy);
        }
        separate(&tunnels, &tunnel, found, check);
        tunnels.push(tunnel);
    }
    tunnels
}

/// Reports a tunnel whose broadcast domain is not clear: each VNI or key is one, and has a VLAN of the
/// port to itself.
fn separate(
    others: &[TunnelConfig],
    tunnel: &TunnelConfig,
    found: &TunnelTable,
    check: &mut ConfigCheck<'_>,
) {
    let carrier = tunnel.tunnel.carrier;
    let span = found.vlan.as_ref().map_or(found.name.span(), Spanned::span);
    let same = others.iter().find(|other| other.tunnel.carrier == carrier);
    if let Some(other) = same.filter(|other| other.vlan != tunnel.vlan) {
        let problem = format!("tunnel {:?} has the same VNI or key and another VLAN", other.name);
        let remedy = match other.vlan {
            Some(vlan) => format!("give both vlan = {vlan}, or this one a VNI or key of its own"),
            None => "give both the same vlan, or this one a VNI or key of its own".to_owned(),
        };
        return check.wrong(span, "tunnel.vlan", problem, remedy);
    }
    let shared =
        others.iter().find(|other| other.tunnel.carrier != carrier && other.vlan == tunnel.vlan);
    let Some(other) = shared else { return };
    let (problem, remedy) = match tunnel.vlan {
        Some(vlan) => (
            format!("VLAN {vlan} is that of tunnel {:?}, which has another VNI or key", other.name),
            "give each VNI or key its own vlan".to_owned(),
        ),
        None => (
            format!(
                "tunnel {:?} has another VNI or key, so it is another broadcast domain, and both \
                 would carry the same frames of the port",
                other.name
            ),
            format!("add vlan = 1 to {VLAN_MAX}, the VLAN of the port that it carries"),
        ),
    };
    check.wrong(span, "tunnel.vlan", problem, remedy);
}

fn tunnel(
    found: &TunnelTable,
    span: Range<usize>,
    local: IpAddr,
    underlay: &InterfaceConfig,
    vxlan_port: u16,
    check: &mut ConfigCheck<'_>,
) -> Option<TunnelConfig> {
    let name = found.name.get_ref();
    let is_fine = !name.is_empty()
        && name.len() <= NAME_CHARS_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !is_fine {
        let problem = format!("invalid tunnel name {name:?}");
        let remedy = format!("give 1 to {NAME_CHARS_MAX} letters, digits, '-', '_' and '.'");
        check.wrong(found.name.span(), "tunnel.name", problem, remedy);
    }
    let carrier = carrier(found, span, check)?;
    let remote = check.parsed("tunnel.remote", &found.remote, "IP address", "10.0.0.2")?;
    let next_hop = match &found.next_hop {
        Some(mac) => Some(check.mac("tunnel.next_hop", mac)?),
        None => None,
    };
    let tunnel = Tunnel { local, remote, carrier };
    let suggested = Outer::suggested(&tunnel, [0; 6], [0; 6]);
    let rules = Outer {
        ttl: check.number_or_inherit("tunnel.ttl", found.ttl.as_ref(), 1..=255, suggested.ttl),
        dscp: check.number_or_inherit("tunnel.dscp", found.dscp.as_ref(), 0..=63, suggested.dscp),
        dont_fragment: check.flag_or_inherit(
            "tunnel.dont_fragment",
            found.dont_fragment.as_ref(),
            true,
        ),
        mtu_bytes: underlay.mtu_bytes,
        vxlan_port: check.number(
            "tunnel.remote_port",
            found.remote_port.as_ref(),
            1..=65535,
            vxlan_port,
        ),
        has_checksum: found.checksum.unwrap_or(suggested.has_checksum),
        has_sequence: found.sequence.as_ref().is_some_and(|sequence| *sequence.get_ref()),
        ..suggested
    };
    if let Err(error) = spec::check(&tunnel, &rules) {
        let text = error.to_string();
        let (problem, remedy) = text.split_once("; ").unwrap_or((&text, "see the rules"));
        let key = match error {
            TunnelError::Mtu { .. } => "underlay.mtu",
            TunnelError::Ttl => "tunnel.ttl",
            TunnelError::Dscp { .. } => "tunnel.dscp",
            TunnelError::Vni { .. } => "tunnel.vni",
            _ => "tunnel.remote",
        };
        check.wrong(found.remote.span(), key, problem, remedy);
    }
    let vlan = found
        .vlan
        .as_ref()
        .map(|vlan| check.number("tunnel.vlan", Some(vlan), 1..=i64::from(VLAN_MAX), 1));
    if let Some(encryption) = &found.encryption {
        let problem = "tunnels are not encrypted by Wirepath any more";
        let remedy = "remove the key and run the tunnel over WireGuard or IPsec of the kernel \
                      (tunnel/docs/tunnel.md, Encryption)";
        check.wrong(encryption.span(), "tunnel.encryption", problem, remedy);
    }
    let keepalive = found.keepalive.as_ref().map(|found| {
        // The monitoring thread looks twenty times a second.
        let interval_ms = found.interval_ms.as_ref();
        let interval_ms =
            check.number("tunnel.keepalive.interval_ms", interval_ms, 100..=60_000, 1000_u16);
        let lost = check.number("tunnel.keepalive.lost", found.lost.as_ref(), 1..=100, 3_u64);
        KeepaliveConfig { interval: Duration::from_millis(interval_ms.into()), lost }
    });
    Some(TunnelConfig { name: name.clone(), tunnel, vlan, next_hop, keepalive, rules })
}

/// Reports a key that only tunnels of another carrier have.
fn refuse<T>(found: &Option<Spanned<T>>, key: &str, carrier: &str, check: &mut ConfigCheck<'_>) {
    if let Some(found) = found {
        let problem = format!("only {carrier} tunnels have this key");
        check.wrong(found.span(), key, problem, "remove the key, or change the carrier");
    }
}

/// Carrier of a tunnel. Reports keys that belong to the other carrier.
fn carrier(
    found: &TunnelTable,
    span: Range<usize>,
    check: &mut ConfigCheck<'_>,
) -> Option<Carrier> {
    match found.carrier {
        CarrierWord::Vxlan => {
            refuse(&found.key, "tunnel.key", "gretap", check);
            refuse(&found.sequence, "tunnel.sequence", "gretap", check);
            if found.vni.is_none() {
                let problem = "VXLAN needs a network identifier";
                check.wrong(span, "tunnel.vni", problem, "add vni = 0 to 16777215");
                return None;
            }
            let max = i64::from(wire::vxlan::VNI_MAX);
            Some(Carrier::Vxlan { vni: check.number("tunnel.vni", found.vni.as_ref(), 0..=max, 0) })
        }
        CarrierWord::Gretap => {
            refuse(&found.vni, "tunnel.vni", "vxlan", check);
            refuse(&found.remote_port, "tunnel.remote_port", "vxlan", check);
            let key = found
                .key
                .as_ref()
                .map(|key| check.number("tunnel.key", Some(key), 0..=i64::from(u32::MAX), 0));
            Some(Carrier::Gretap { key })
        }
    }
}

/// Checks the static addresses.
///
/// - `are_whole`: `tunnels` has every tunnel of the file, the invalid ones are not missing.
pub(super) fn statics(
    tables: &[StaticTable],
    tunnels: &[TunnelConfig],
    are_whole: bool,
    check: &mut ConfigCheck<'_>,
) -> Vec<StaticConfig> {
    let mut statics: Vec<StaticConfig> = Vec::new();
    for found in tables {
        let mac = check.mac("static.mac", &found.mac);
        let name = found.tunnel.get_ref();
        let tunnel = tunnels.iter().position(|tunnel| tunnel.name == *name);
        if tunnel.is_none() && are_whole {
            let names: Vec<_> = tunnels.iter().map(|tunnel| &tunnel.name[..]).collect();
            let problem = format!("there is no tunnel {name:?}");
            let remedy = format!("give one of: {}", names.join(", "));
            check.wrong(found.tunnel.span(), "static.tunnel", problem, remedy);
        }
        let (Some(mac), Some(tunnel)) = (mac, tunnel) else { continue };
        let vlan = tunnels[tunnel].vlan;
        if statics.iter().any(|other| other.mac == mac && tunnels[other.tunnel].vlan == vlan) {
            let problem = format!("{} is listed twice", found.mac.get_ref());
            check.wrong(found.mac.span(), "static.mac", problem, "list each address once");
        }
        statics.push(StaticConfig { mac, tunnel });
    }
    statics
}
