//! Sections that are read once: rules, hooks, connection entries, addresses, routes.

use std::fs;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use sys::bpf::{HookFunction, hook_functions};

use super::Evidence;
use crate::net::nftables::{self, Ruleset};
use crate::net::{self, Connection, InterfaceAddress, TableRoute};
use crate::text::chain;
use crate::tune::KnobError;

/// A section, or the reason why it cannot be read.
type Section<T> = OnceLock<Result<T, String>>;

#[derive(Debug, Default)]
pub(super) struct Tables {
    rules: Section<Ruleset>,
    connections: Section<Vec<Connection>>,
    addresses: Section<Vec<InterfaceAddress>>,
    routes: Section<Vec<TableRoute>>,
    hooks: Section<Vec<HookFunction>>,
    legacy: OnceLock<Vec<LegacyTable>>,
}

/// A table of iptables-legacy that the namespace has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LegacyTable {
    pub(crate) is_ipv6: bool,
    pub(crate) name: String,
    /// `None` if it could not be read.
    pub(crate) rule_count: Option<u32>,
}

impl Evidence {
    /// Rules of nftables; none if the kernel lacks it.
    pub(crate) fn rules(&self) -> Result<&Ruleset, &str> {
        section(&self.tables.rules, || self.system.within(nftables::ruleset))
    }

    /// Entries of connection tracking; none if nothing is tracked.
    pub(crate) fn connections(&self) -> Result<&[Connection], &str> {
        let is_tracking = self
            .window()
            .is_ok_and(|window| window.latest("nf_conntrack entries").unwrap_or(0) > 0);
        section(&self.tables.connections, || {
            if is_tracking { self.system.within(net::connections) } else { Ok(Vec::new()) }
        })
        .map(Vec::as_slice)
    }

    pub(crate) fn addresses(&self) -> Result<&[InterfaceAddress], &str> {
        section(&self.tables.addresses, || self.system.within(net::all_addresses))
            .map(Vec::as_slice)
    }

    pub(crate) fn routes(&self) -> Result<&[TableRoute], &str> {
        section(&self.tables.routes, || self.system.within(net::all_routes)).map(Vec::as_slice)
    }

    /// Functions that are hooked into netfilter in the namespace. Needs CAP_BPF and CAP_PERFMON.
    pub(crate) fn hook_functions(&self) -> Result<&[HookFunction], &str> {
        let read = || hook_functions(self.system.netns()).map_err(|error| chain(&error));
        let hooks = self.tables.hooks.get_or_init(read);
        hooks.as_ref().map(Vec::as_slice).map_err(String::as_str)
    }

    /// Tables of iptables-legacy; none for a user who may not read their names.
    pub(crate) fn legacy_tables(&self) -> &[LegacyTable] {
        self.tables.legacy.get_or_init(|| self.system.run(legacy_tables).unwrap_or_default())
    }

    /// Name of an interface; its number if it is gone.
    pub(crate) fn name_of(&self, interface: u32) -> String {
        let link = self.links.get(&interface);
        link.map_or_else(|| format!("interface {interface}"), |link| link.name.clone())
    }
}

fn section<T: Default>(
    section: &Section<T>,
    read: impl FnOnce() -> Result<T, KnobError>,
) -> Result<&T, &str> {
    let read = || match read() {
        Err(error) if error.is_absence() => Ok(T::default()),
        answer => answer.map_err(|error| chain(&error)),
    };
    section.get_or_init(read).as_ref().map_err(String::as_str)
}

fn legacy_tables() -> Vec<LegacyTable> {
    let versions =
        [("ip_tables_names", false, libc::AF_INET), ("ip6_tables_names", true, libc::AF_INET6)];
    let mut found = Vec::new();
    for (file, is_ipv6, family) in versions {
        let names = fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
        if names.is_empty() {
            continue;
        }
        let socket = sys::socket::open(family, libc::SOCK_RAW, libc::IPPROTO_RAW);
        found.extend(names.lines().map(|name| LegacyTable {
            is_ipv6,
            name: name.to_owned(),
            rule_count: socket.as_ref().ok().and_then(|socket| {
                sys::socket::legacy_rule_count(socket.as_fd(), is_ipv6, name).ok()
            }),
        }));
    }
    found
}
