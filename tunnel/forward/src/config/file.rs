//! Structure of the file and conversion to checked values.

use std::net::IpAddr;

use serde::Deserialize;
use toml::Spanned;

use super::qos::{QosTable, codes, qos};
use super::tunnels::{StaticTable, TunnelTable, statics, tunnels};
use super::value::{ConfigCheck, line_number};
use super::{
    Config, ConfigError, ConfigErrors, Domain, FdbSpec, ForwardEngine, InterfaceConfig, OrderSpec,
};
use crate::order::{LANE_COUNT_MAX, WINDOW_TICKETS_MAX};

/// Highest number of a CPU.
///
/// Source: CONFIG_NR_CPUS of x86-64.
const CPU_MAX: u16 = 8191;
const NS_PER_US: u64 = 1_000;
const NS_PER_S: u64 = 1_000_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    workers: Option<Spanned<i64>>,
    #[serde(default)]
    cpus: Vec<Spanned<i64>>,
    engine: Option<ForwardEngine>,
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

pub(super) fn parse(text: &str) -> Result<Config, ConfigErrors> {
    let file: ConfigFile = toml::from_str(text).map_err(|error| toml_errors(text, &error))?;
    let mut check = ConfigCheck::new(text);
    let config = checked(&file, &mut check);
    check.finish(config)
}

/// Converts an error of the TOML parser or of deserialization.
fn toml_errors(text: &str, error: &toml::de::Error) -> ConfigErrors {
    let span = error.span().unwrap_or(0..0);
    let line = line_number(text, span.start);
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
    let mut table = None;
    let mut key = None;
    for line in text.lines().take(line).map(|line| without_comment(line).trim()) {
        let header = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        if let Some(header) = header {
            table = Some(header.trim_matches(['[', ']', ' ']));
        }
        let assigned = line.split_once('=').filter(|_| header.is_none());
        key = assigned.map(|(key, _)| key.trim()).filter(|key| !key.is_empty());
    }
    match (table, key) {
        (Some(table), Some(key)) => format!("{table}.{key}"),
        (Some(table), None) => table.to_owned(),
        (None, Some(key)) => key.to_owned(),
        (None, None) => "the file".to_owned(),
    }
}

/// The part of a line in front of its comment. A `#` in quotes begins none.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut is_escaped = false;
    for (at, letter) in line.char_indices() {
        match (quote, letter) {
            (Some('"'), '\\') if !is_escaped => {
                is_escaped = true;
                continue;
            }
            (Some(open), letter) if open == letter && !is_escaped => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '#') => return &line[..at],
            _ => {}
        }
        is_escaped = false;
    }
    line
}

fn checked(file: &ConfigFile, check: &mut ConfigCheck<'_>) -> Option<Config> {
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
        Some((_, Some(local))) => tunnels(&file.tunnel, local, &underlay, vxlan_port, check),
        // Already reported.
        Some((_, None)) => Vec::new(),
        None => {
            let problem = "the tunnels need a local address";
            let remedy = "add address = \"…\", an address of the interface";
            check.wrong(file.underlay.span(), "underlay.address", problem, remedy);
            Vec::new()
        }
    };
    let has_vlans = tunnels.iter().any(|tunnel| tunnel.vlan.is_some());
    if has_vlans && file.engine == Some(ForwardEngine::Packet) {
        let remedy = "give another engine, or remove vlan of the tunnels";
        check.wrong(0..0, "engine", "\"packet\" receives frames without their VLAN tags", remedy);
    }
    let cpus: Vec<usize> = codes("cpus", &file.cpus, CPU_MAX, &mut Vec::new(), check)
        .into_iter()
        .map(usize::from)
        .collect();
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
        workers: check.number("workers", file.workers.as_ref(), 1..=64, cpus.len().clamp(1, 64)),
        cpus,
        engine: file.engine.unwrap_or(ForwardEngine::Auto),
        vxlan_port,
        accepts_no_checksum_v6: file.accept_no_checksum_v6.unwrap_or(false),
        nested_max: check.number("nested_max", file.nested_max.as_ref(), 0..=8, 1),
        statics: statics(&file.statics, &tunnels, tunnels.len() == file.tunnel.len(), check),
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

fn interface(table: &str, found: &InterfaceTable, check: &mut ConfigCheck<'_>) -> InterfaceConfig {
    let name = check.interface(&format!("{table}.interface"), &found.interface);
    let address = found.address.as_ref().and_then(|address| {
        check.parsed::<IpAddr>(&format!("{table}.address"), address, "IP address", "10.0.0.1")
    });
    InterfaceConfig {
        name,
        address,
        mtu_bytes: check.number(&format!("{table}.mtu"), found.mtu.as_ref(), 576..=65535, 1500),
        queues: found
            .queues
            .as_ref()
            .map(|queues| check.number(&format!("{table}.queues"), Some(queues), 1..=32, 1)),
    }
}
