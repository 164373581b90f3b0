//! Encryption of a tunnel in the file.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::tunnels::TunnelTable;
use super::value::Check;
use super::{Domain, EncryptionConfig, Engine, TunnelConfig};
use crate::esp::{self, Framing};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EncryptionTable {
    keys: Spanned<String>,
    state: Option<Spanned<String>>,
    framing: Option<FramingWord>,
    port: Option<Spanned<i64>>,
    extended_numbers: Option<bool>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum FramingWord {
    Udp,
    Ip,
}

/// Checks the encryption of a tunnel.
pub(super) fn checked(
    found: &Spanned<EncryptionTable>,
    vxlan_port: u16,
    check: &mut Check<'_>,
) -> EncryptionConfig {
    let table = found.get_ref();
    let mut path = |key: &str, found: &Spanned<String>| {
        if found.get_ref().is_empty() {
            check.wrong(found.span(), key, "the name is empty", "name a file");
        }
        PathBuf::from(found.get_ref())
    };
    let keys = path("tunnel.encryption.keys", &table.keys);
    let state = match &table.state {
        Some(state) => path("tunnel.encryption.state", state),
        None => PathBuf::from(format!("{}.state", table.keys.get_ref())),
    };
    if keys == state {
        let span = table.state.as_ref().map_or(table.keys.span(), Spanned::span);
        let problem = "it is also the file of the keys";
        check.wrong(span, "tunnel.encryption.state", problem, "name another file");
    }
    let key = "tunnel.encryption.port";
    let port = check.number(key, table.port.as_ref(), 1..=65535, esp::UDP_PORT);
    let framing = match (table.framing, &table.port) {
        (Some(FramingWord::Ip), Some(found)) => {
            let remedy = "remove the key, or set framing = \"udp\"";
            check.wrong(found.span(), key, "ESP straight in IP has no port", remedy);
            Framing::Ip
        }
        (Some(FramingWord::Ip), None) => Framing::Ip,
        (Some(FramingWord::Udp) | None, found) => {
            if port == vxlan_port {
                let span = found.as_ref().map_or(table.keys.span(), Spanned::span);
                let remedy = format!("give another, such as {}", esp::UDP_PORT);
                check.wrong(span, key, format!("{port} is the port of VXLAN"), remedy);
            }
            Framing::Udp { port }
        }
    };
    EncryptionConfig { keys, state, framing, is_extended: table.extended_numbers.unwrap_or(true) }
}

/// Reports a tunnel that has the keys or the state of another.
pub(super) fn apart(
    others: &[TunnelConfig],
    tunnel: &TunnelConfig,
    found: &TunnelTable,
    check: &mut Check<'_>,
) {
    let (Some(own), Some(table)) = (&tunnel.encryption, &found.encryption) else { return };
    let shares = |other: &&TunnelConfig| {
        let other = other.encryption.as_ref();
        other.is_some_and(|other| {
            [&other.keys, &other.state].iter().any(|file| [&own.keys, &own.state].contains(file))
        })
    };
    if let Some(other) = others.iter().find(shares) {
        let problem = format!("tunnel {:?} has the same key or state file", other.name);
        let remedy = "make keys for each tunnel: wirepath tunnel keys FILE";
        check.wrong(table.span(), "tunnel.encryption", problem, remedy);
    }
}

/// Reports what cannot be combined with encryption.
pub(super) fn possible(
    tables: &[Spanned<TunnelTable>],
    engine: Option<Engine>,
    domain: Option<Domain>,
    check: &mut Check<'_>,
) {
    let mut encrypted = tables.iter().filter_map(|table| table.get_ref().encryption.as_ref());
    let Some(first) = encrypted.next() else { return };
    if let Some(Engine::InKernel | Engine::InKernelXdp) = engine {
        let problem = "engine \"in-kernel\" cannot encrypt";
        let remedy = "give engine = \"xdp\", or remove the key engine";
        check.wrong(first.span(), "tunnel.encryption", problem, remedy);
    }
    if domain == Some(Domain::Flow) {
        let problem = "domain \"flow\" sends packets out of the order of their numbers";
        let remedy = "remove order.domain";
        check.wrong(first.span(), "tunnel.encryption", problem, remedy);
    }
}
