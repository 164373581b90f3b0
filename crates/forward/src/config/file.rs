//! Structure of the file and conversion to checked values.

use std::net::IpAddr;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::value::{Check, FlagOrWord, NumberOrWord, line_of};
use super::{
    Carrier, ClassConfig, Config, ConfigError, ConfigErrors, Domain, Engine, FdbSpec, Interface,
    OrderSpec, Outer, PolicerSpec, QosConfig, QueueSpec, StaticConfig, Tunnel, TunnelConfig,
};
use crate::order::{LANE_COUNT_MAX, WINDOW_TICKETS_MAX};
use crate::qos::{BURST_BYTES_MAX, CLASS_COUNT_MAX, RATE_BITS_PER_S_MAX};
use crate::spec::{self, TunnelError};

const NS_PER_US: u64 = 1_000;
const NS_PER_S: u64 = 1_000_000_000;
/// Tunnel names are used as counter labels.
const NAME_CHARS_MAX: usize = 32;
const TUNNEL_COUNT_MAX: usize = 1 << 12;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    workers: Option<Spanned<i64>>,
    engine: Option<Engine>,
    vxlan_port: Option<Spanned<i64>>,
    accept_no_checksum_v6: Option<bool>,
    nested_max: Option<Spanned<i64>>,
    port: InterfaceTable,
    underlay: Spanned<InterfaceTable>,
    tunnel: Vec<Spanned<TunnelTable>>,
    #[serde(default, rename = "static")]
    statics: Vec<StaticTable>,
    #[serde(default)]
    fdb: FdbTable,
    #[serde(default)]
    order: OrderTable,
    #[serde(default)]
    qos: QosTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InterfaceTable {
    interface: Spanned<String>,
    address: Option<Spanned<String>>,
    mtu: Option<Spanned<i64>>,
    queues: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TunnelTable {
    name: Spanned<String>,
    carrier: CarrierWord,
    vni: Option<Spanned<i64>>,
    key: Option<Spanned<i64>>,
    remote: Spanned<String>,
    remote_port: Option<Spanned<i64>>,
    next_hop: Option<Spanned<String>>,
    ttl: Option<Spanned<NumberOrWord>>,
    dscp: Option<Spanned<NumberOrWord>>,
    dont_fragment: Option<Spanned<FlagOrWord>>,
    checksum: Option<bool>,
    sequence: Option<Spanned<bool>>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum CarrierWord {
    Vxlan,
    Gretap,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StaticTable {
    mac: Spanned<String>,
    tunnel: Spanned<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct FdbTable {
    entries: Option<Spanned<i64>>,
    ageing_s: Option<Spanned<i64>>,
    learn: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct OrderTable {
    domain: Option<Domain>,
    lanes: Option<Spanned<i64>>,
    window: Option<Spanned<i64>>,
    stuck_after_us: Option<Spanned<i64>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct QosTable {
    rate_kbps: Option<Spanned<i64>>,
    burst_bytes: Option<Spanned<i64>>,
    police_kbps: Option<Spanned<i64>>,
    police_burst_bytes: Option<Spanned<i64>>,
    overhead_bytes: Option<Spanned<i64>>,
    class: Vec<Spanned<ClassTable>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ClassTable {
    queue_frames: Option<Spanned<i64>>,
    queue_bytes: Option<Spanned<i64>>,
    dscp: Vec<Spanned<i64>>,
    priority: Vec<Spanned<i64>>,
}

pub(super) fn parse(text: &str) -> Result<Config, ConfigErrors> {
    let file: File = toml::from_str(text).map_err(|error| of_toml(text, &error))?;
    let mut check = Check::new(text);
    let config = checked(&file, &mut check);
    check.finish(config)
}

/// Converts an error of the TOML parser or of deserialization.
fn of_toml(text: &str, error: &toml::de::Error) -> ConfigErrors {
    let span = error.span().unwrap_or(0..0);
    let line = line_of(text, span.start);
    let problem = error.message().lines().collect::<Vec<_>>().join(" ");
    let remedy = match problem.as_str() {
        p if p.starts_with("unknown field") => "correct or remove the key",
        p if p.starts_with("missing field") => "add the key",
        p if p.starts_with("unknown variant") => "give one of them",
        p if p.starts_with("invalid type") => "give a value of the expected type",
        _ => "see the example in the documentation of `tunnel run`",
    };
    let key = key_at(text, line);
    ConfigErrors(vec![ConfigError { line, key, problem, remedy: remedy.to_owned() }])
}

/// Best guess of the key on a line, with its table.
fn key_at(text: &str, line: usize) -> String {
    let lines: Vec<&str> = text.lines().take(line).map(str::trim).collect();
    let name =
        |line: &&str| line.starts_with('[').then(|| line.trim_matches(['[', ']', ' ']).to_owned());
    let own = lines.last().copied().unwrap_or("");
    let table = lines.iter().rev().find_map(name);
    let key = own.split_once('=').map(|(key, _)| key.trim()).filter(|key| !key.is_empty());
    match (table, key) {
        (Some(table), Some(key)) => format!("{table}.{key}"),
        (Some(table), None) => table,
        (None, Some(key)) => key.to_owned(),
        (None, None) => "the file".to_owned(),
    }
}

fn checked(file: &File, check: &mut Check<'_>) -> Option<Config> {
    let port = interface("port", &file.port, check);
    let underlay_table = file.underlay.get_ref();
    let underlay = interface("underlay", underlay_table, check);
    if let Some(address) = &file.port.address {
        let problem = "only the underlay takes an address";
        check.wrong(address.span(), "port.address", problem, "remove the key");
    }
    if port.name == underlay.name {
        let span = underlay_table.interface.span();
        let problem = format!("{:?} is also the interface of the port", underlay.name);
        check.wrong(span, "underlay.interface", problem, "give another interface");
    }
    let vxlan_port =
        check.number("vxlan_port", file.vxlan_port.as_ref(), 1..=65535, wire::vxlan::PORT);
    let local = underlay_table.address.as_ref().map(|address| (address, underlay.address));
    let tunnels = match local {
        Some((_, Some(local))) => tunnels(file, local, &underlay, vxlan_port, check),
        // Already reported.
        Some((_, None)) => Vec::new(),
        None => {
            let problem = "the tunnels need a local address";
            let remedy = "add address = \"…\", an address of the interface";
            check.wrong(file.underlay.span(), "underlay.address", problem, remedy);
            Vec::new()
        }
    };
    let order = &file.order;
    let domain = order.domain.unwrap_or(Domain::Port);
    let lanes_default = if domain == Domain::Flow { 8 } else { 1 };
    let lanes =
        check.number("order.lanes", order.lanes.as_ref(), 1..=LANE_COUNT_MAX as i64, lanes_default);
    if let (Domain::Port, Some(found)) = (domain, &order.lanes)
        && lanes > 1
    {
        let remedy = "remove the key, or set domain = \"flow\"";
        check.wrong(found.span(), "order.lanes", "domain \"port\" has one lane", remedy);
    }
    let window_tickets: usize =
        check.number("order.window", order.window.as_ref(), 2..=WINDOW_TICKETS_MAX as i64, 64);
    if let Some(found) = &order.window
        && !window_tickets.is_power_of_two()
    {
        let problem = format!("{window_tickets} is not a power of two");
        let remedy = format!("give {}", window_tickets.next_power_of_two());
        check.wrong(found.span(), "order.window", problem, remedy);
    }
    let stuck_after_us: u64 = check.number(
        "order.stuck_after_us",
        order.stuck_after_us.as_ref(),
        10..=60_000_000,
        10_000,
    );
    let ageing_s: u64 =
        check.number("fdb.ageing_s", file.fdb.ageing_s.as_ref(), 1..=1_000_000, 300);
    Some(Config {
        workers: check.number("workers", file.workers.as_ref(), 1..=64, 1),
        engine: file.engine.unwrap_or(Engine::Auto),
        vxlan_port,
        accepts_no_checksum_v6: file.accept_no_checksum_v6.unwrap_or(false),
        nested_max: check.number("nested_max", file.nested_max.as_ref(), 0..=8, 1),
        statics: statics(file, &tunnels, check),
        tunnels,
        fdb: FdbSpec {
            entry_count_max: check.number(
                "fdb.entries",
                file.fdb.entries.as_ref(),
                16..=1 << 24,
                4096,
            ),
            ageing_ns: ageing_s * NS_PER_S,
            seed: 0,
        },
        learns: file.fdb.learn.unwrap_or(true),
        order: OrderSpec { lanes, window_tickets, stuck_after_ns: stuck_after_us * NS_PER_US },
        domain,
        qos: qos(&file.qos, check),
        port,
        underlay,
    })
}

fn interface(table: &str, found: &InterfaceTable, check: &mut Check<'_>) -> Interface {
    let key = |key: &str| format!("{table}.{key}");
    let name = check.interface(&key("interface"), &found.interface);
    let address = found.address.as_ref().and_then(|address| {
        check.parsed::<IpAddr>(&key("address"), address, "IP address", "10.0.0.1")
    });
    Interface {
        name,
        address,
        mtu_bytes: check.number(&key("mtu"), found.mtu.as_ref(), 576..=65535, 1500),
        queues: check.number(&key("queues"), found.queues.as_ref(), 1..=64, 1),
    }
}

fn tunnels(
    file: &File,
    local: IpAddr,
    underlay: &Interface,
    vxlan_port: u16,
    check: &mut Check<'_>,
) -> Vec<TunnelConfig> {
    let mut tunnels: Vec<TunnelConfig> = Vec::new();
    if file.tunnel.is_empty() || file.tunnel.len() > TUNNEL_COUNT_MAX {
        let problem = format!("there are {} tunnels", file.tunnel.len());
        check.wrong(0..0, "tunnel", problem, format!("give 1 to {TUNNEL_COUNT_MAX}"));
    }
    for table in &file.tunnel {
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
        tunnels.push(tunnel);
    }
    tunnels
}

fn tunnel(
    found: &TunnelTable,
    span: Range<usize>,
    local: IpAddr,
    underlay: &Interface,
    vxlan_port: u16,
    check: &mut Check<'_>,
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
    Some(TunnelConfig { name: name.clone(), tunnel, next_hop, rules })
}

/// Carrier of a tunnel. Reports keys that belong to the other carrier.
fn carrier(found: &TunnelTable, span: Range<usize>, check: &mut Check<'_>) -> Option<Carrier> {
    let mut foreign = |span: Option<Range<usize>>, key: &str, of: &str| {
        if let Some(span) = span {
            let problem = format!("only {of} tunnels have this key");
            check.wrong(span, key, problem, "remove the key, or change the carrier");
        }
    };
    match found.carrier {
        CarrierWord::Vxlan => {
            foreign(found.key.as_ref().map(Spanned::span), "tunnel.key", "gretap");
            foreign(found.sequence.as_ref().map(Spanned::span), "tunnel.sequence", "gretap");
            if found.vni.is_none() {
                let problem = "VXLAN needs a network identifier";
                check.wrong(span, "tunnel.vni", problem, "add vni = 0 to 16777215");
                return None;
            }
            let max = i64::from(wire::vxlan::VNI_MAX);
            Some(Carrier::Vxlan { vni: check.number("tunnel.vni", found.vni.as_ref(), 0..=max, 0) })
        }
        CarrierWord::Gretap => {
            foreign(found.vni.as_ref().map(Spanned::span), "tunnel.vni", "vxlan");
            foreign(found.remote_port.as_ref().map(Spanned::span), "tunnel.remote_port", "vxlan");
            let key = found
                .key
                .as_ref()
                .map(|key| check.number("tunnel.key", Some(key), 0..=i64::from(u32::MAX), 0));
            Some(Carrier::Gretap { key })
        }
    }
}

fn statics(file: &File, tunnels: &[TunnelConfig], check: &mut Check<'_>) -> Vec<StaticConfig> {
    let mut statics: Vec<StaticConfig> = Vec::new();
    for found in &file.statics {
        let mac = check.mac("static.mac", &found.mac);
        let name = found.tunnel.get_ref();
        let tunnel = tunnels.iter().position(|tunnel| tunnel.name == *name);
        // Names are compared only if all tunnels are valid: otherwise some are missing.
        if tunnel.is_none() && tunnels.len() == file.tunnel.len() {
            let names: Vec<_> = tunnels.iter().map(|tunnel| &tunnel.name[..]).collect();
            let problem = format!("there is no tunnel {name:?}");
            let remedy = format!("give one of: {}", names.join(", "));
            check.wrong(found.tunnel.span(), "static.tunnel", problem, remedy);
        }
        let (Some(mac), Some(tunnel)) = (mac, tunnel) else { continue };
        if statics.iter().any(|other| other.mac == mac) {
            let problem = format!("{} is listed twice", found.mac.get_ref());
            check.wrong(found.mac.span(), "static.mac", problem, "list each address once");
        }
        statics.push(StaticConfig { mac, tunnel });
    }
    statics
}

/// Rate in bits per second and burst in bytes from the keys `names`; `None` without a rate.
fn bucket(
    names: [&str; 2],
    found: [&Option<Spanned<i64>>; 2],
    check: &mut Check<'_>,
) -> Option<(u64, u64)> {
    let keys = names.map(|name| format!("qos.{name}"));
    let rate_max = (RATE_BITS_PER_S_MAX / 1000) as i64;
    let rate_kbps: u64 = check.number(&keys[0], found[0].as_ref(), 1..=rate_max, 0);
    // Default: 10 ms at the rate, at least two full frames of 9000 bytes.
    let burst_default = (rate_kbps * 1000 / 8 / 100).clamp(18_000, BURST_BYTES_MAX);
    let range = 1514..=BURST_BYTES_MAX as i64;
    let burst_bytes = check.number(&keys[1], found[1].as_ref(), range, burst_default);
    if let (None, Some(burst)) = (found[0], found[1]) {
        let problem = "a burst needs a rate";
        check.wrong(burst.span(), &keys[1], problem, format!("add {}, or remove it", names[0]));
    }
    found[0].as_ref().map(|_| (rate_kbps * 1000, burst_bytes))
}

fn qos(found: &QosTable, check: &mut Check<'_>) -> QosConfig {
    let shaper =
        bucket(["rate_kbps", "burst_bytes"], [&found.rate_kbps, &found.burst_bytes], check);
    let policer = bucket(
        ["police_kbps", "police_burst_bytes"],
        [&found.police_kbps, &found.police_burst_bytes],
        check,
    );
    if let Some(extra) = found.class.get(CLASS_COUNT_MAX) {
        let problem = format!("there are {} classes", found.class.len());
        check.wrong(extra.span(), "qos.class", problem, format!("give 1 to {CLASS_COUNT_MAX}"));
    }
    let default = [ClassTable::default()];
    let tables: Vec<&ClassTable> = match found.class.is_empty() {
        true => default.iter().collect(),
        false => found.class.iter().map(Spanned::get_ref).collect(),
    };
    let (mut seen_dscp, mut seen_priority) = (Vec::new(), Vec::new());
    let classes = tables
        .into_iter()
        .map(|class| ClassConfig {
            queue: QueueSpec {
                frame_count_max: check.number(
                    "qos.class.queue_frames",
                    class.queue_frames.as_ref(),
                    1..=65536,
                    512,
                ),
                byte_count_max: check.number(
                    "qos.class.queue_bytes",
                    class.queue_bytes.as_ref(),
                    1514..=1 << 30,
                    1 << 20,
                ),
            },
            dscp: codes("qos.class.dscp", &class.dscp, 63, &mut seen_dscp, check),
            priority: codes("qos.class.priority", &class.priority, 7, &mut seen_priority, check),
        })
        .collect();
    QosConfig {
        shaper,
        policer: policer
            .map(|(rate_bits_per_s, burst_bytes)| PolicerSpec { rate_bits_per_s, burst_bytes }),
        overhead_bytes: check.number(
            "qos.overhead_bytes",
            found.overhead_bytes.as_ref(),
            0..=256,
            24,
        ),
        classes,
    }
}

/// Checks code points; each may be listed once over all classes.
fn codes(
    key: &str,
    found: &[Spanned<i64>],
    max: i64,
    seen: &mut Vec<u8>,
    check: &mut Check<'_>,
) -> Vec<u8> {
    let mut codes = Vec::new();
    for found in found {
        let before = check.error_count();
        let code: u8 = check.number(key, Some(found), 0..=max, 0);
        if check.error_count() > before {
            continue;
        }
        if seen.contains(&code) {
            let problem = format!("{code} is listed twice");
            check.wrong(found.span(), key, problem, "list each value once, in one class");
        }
        seen.push(code);
        codes.push(code);
    }
    codes
}
