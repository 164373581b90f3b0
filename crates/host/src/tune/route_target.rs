//! A route as a target: destination, interface and table.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use super::error::KnobError;
use super::system::System;
use super::target::{Target, is_interface_name};
use crate::net;

/// A route by an interface.
///
/// Notation: `10.0.0.0/8 dev eth0`, `default dev eth0 table 100`; the default route of IPv6 is `::/0`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RouteTarget {
    /// Its bits after the prefix are zero.
    pub destination: IpAddr,
    pub prefix_bits: u8,
    pub interface: String,
    pub table: u32,
}

const MAIN: u32 = libc::RT_TABLE_MAIN as u32;
/// Most routes of an interface that are listed as targets; others can still be named.
const LISTED_MAX: usize = 32;

impl RouteTarget {
    /// Parses words such as `10.0.0.0/8 dev eth0`; `None` if they are invalid.
    pub(super) fn parse(words: &[&str]) -> Option<Self> {
        let (prefix, interface, table) = match *words {
            [prefix, "dev", interface] => (prefix, interface, MAIN),
            [prefix, "dev", interface, "table", table] => (prefix, interface, number(table)?),
            _ => return None,
        };
        let (destination, prefix_bits) = match prefix {
            "default" => (Ipv4Addr::UNSPECIFIED.into(), 0),
            prefix => {
                let (address, bits) = prefix.split_once('/')?;
                (address.parse::<IpAddr>().ok()?, u8::try_from(number(bits)?).ok()?)
            }
        };
        let is_whole = is_interface_name(interface)
            && table != 0
            && has_no_host_part(destination, prefix_bits);
        let interface = interface.to_owned();
        is_whole.then_some(RouteTarget { destination, prefix_bits, interface, table })
    }

    /// Destination as ip-route(8) has it.
    pub(super) fn prefix(&self) -> String {
        match self.destination {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) if self.prefix_bits == 0 => "default".to_owned(),
            destination => format!("{destination}/{}", self.prefix_bits),
        }
    }

    /// Routes by an interface of the table `main`, at most 32.
    pub(super) fn all(system: &System, interface: &str) -> Result<Vec<Target>, KnobError> {
        if !system.has_real_interfaces() {
            return Ok(Vec::new());
        }
        let index = system.index(interface)?;
        let mut routes = system.within(|| net::routes_by(index))?;
        routes.retain(|route| route.table == MAIN);
        let mut targets: Vec<Target> = Vec::new();
        for route in routes {
            let target = Target::Route(RouteTarget {
                destination: route.destination,
                prefix_bits: route.prefix_bits,
                interface: interface.to_owned(),
                table: route.table,
            });
            if targets.len() < LISTED_MAX && !targets.contains(&target) {
                targets.push(target);
            }
        }
        Ok(targets)
    }

    /// True if the route or its interface does not exist.
    pub(super) fn is_gone(&self, system: &System) -> bool {
        let Ok(index) = system.index(&self.interface) else { return true };
        let found = system
            .within(|| net::route_entry(self.destination, self.prefix_bits, self.table, index));
        matches!(found, Ok(None))
    }
}

impl fmt::Display for RouteTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} dev {}", self.prefix(), self.interface)?;
        if self.table == MAIN { Ok(()) } else { write!(f, " table {}", self.table) }
    }
}

fn number(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

fn has_no_host_part(destination: IpAddr, prefix_bits: u8) -> bool {
    let bits = u32::from(prefix_bits);
    match destination {
        IpAddr::V4(address) => bits <= 32 && address.to_bits().checked_shl(bits).unwrap_or(0) == 0,
        IpAddr::V6(address) => bits <= 128 && address.to_bits().checked_shl(bits).unwrap_or(0) == 0,
    }
}
