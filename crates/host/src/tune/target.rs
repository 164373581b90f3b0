//! Targets: the places where a knob can be set.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use super::route_target::RouteTarget;

/// Kind of target that a knob has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    Host,
    Netns,
    Interface,
    RxQueue,
    TxQueue,
    /// A route by an interface.
    Route,
    /// An interrupt of an interface.
    Irq,
    Cpu,
    /// Two commands of the user.
    Command,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Host => "host",
            Scope::Netns => "namespace",
            Scope::Interface => "interface",
            Scope::RxQueue => "receive queue",
            Scope::TxQueue => "transmit queue",
            Scope::Route => "route",
            Scope::Irq => "interrupt",
            Scope::Cpu => "CPU",
            Scope::Command => "pair of commands",
        })
    }
}

/// One place where a knob can be set.
///
/// Notation in plans and journals: `host`, `netns`, `interface eth0`, `queue eth0 rx-0`,
/// `route 10.0.0.0/8 dev eth0`, `irq 24`, `cpu 3`, `command hooks`. Interfaces cannot have blanks in their names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
pub enum Target {
    Host,
    /// The network namespace of the plan.
    Netns,
    /// An interface of that namespace, by name.
    Interface(String),
    RxQueue(String, u32),
    TxQueue(String, u32),
    Route(RouteTarget),
    Irq(u32),
    Cpu(u32),
    /// A pair of commands of the user, by its name; they run in the namespace of the plan.
    Command(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "invalid target {0:?}: write host, netns, interface NAME, queue NAME rx-N, queue NAME tx-N, \
     route PREFIX dev NAME, irq N, cpu N or command NAME"
)]
pub struct InvalidTarget(String);

impl Target {
    pub fn scope(&self) -> Scope {
        match self {
            Target::Host => Scope::Host,
            Target::Netns => Scope::Netns,
            Target::Interface(_) => Scope::Interface,
            Target::RxQueue(..) => Scope::RxQueue,
            Target::TxQueue(..) => Scope::TxQueue,
            Target::Route(_) => Scope::Route,
            Target::Irq(_) => Scope::Irq,
            Target::Cpu(_) => Scope::Cpu,
            Target::Command(_) => Scope::Command,
        }
    }

    /// Interface that it belongs to; unknown for interrupts.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Target::Interface(name) | Target::RxQueue(name, _) | Target::TxQueue(name, _) => {
                Some(name)
            }
            Target::Route(route) => Some(&route.interface),
            _ => None,
        }
    }

    pub(super) fn on_interface(&self, name: &str) -> Self {
        match self {
            Target::Interface(_) => Target::Interface(name.to_owned()),
            Target::RxQueue(_, queue) => Target::RxQueue(name.to_owned(), *queue),
            Target::TxQueue(_, queue) => Target::TxQueue(name.to_owned(), *queue),
            Target::Route(route) => {
                Target::Route(RouteTarget { interface: name.to_owned(), ..route.clone() })
            }
            other => other.clone(),
        }
    }

    /// True if it belongs to a network namespace and not to the host.
    pub fn is_in_netns(&self) -> bool {
        !matches!(self, Target::Host | Target::Irq(_) | Target::Cpu(_))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Host => f.write_str("host"),
            Target::Netns => f.write_str("netns"),
            Target::Interface(name) => write!(f, "interface {name}"),
            Target::RxQueue(name, queue) => write!(f, "queue {name} rx-{queue}"),
            Target::TxQueue(name, queue) => write!(f, "queue {name} tx-{queue}"),
            Target::Route(route) => write!(f, "route {route}"),
            Target::Irq(irq) => write!(f, "irq {irq}"),
            Target::Cpu(cpu) => write!(f, "cpu {cpu}"),
            Target::Command(name) => write!(f, "command {name}"),
        }
    }
}

/// True if the kernel accepts this as an interface name.
///
/// Source: dev_valid_name of net/core/dev.c.
pub fn is_interface_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && name.len() < 16
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control())
}

/// True for a name of a pair of commands: letters, digits, `-`, `_` and `.`.
pub fn is_command_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

impl FromStr for Target {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        let wrong = || InvalidTarget(text.to_owned());
        let number = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u32>().ok().filter(|_| is_plain).ok_or_else(wrong)
        };
        let name = |text: &str| is_interface_name(text).then(|| text.to_owned()).ok_or_else(wrong);
        match text.split(' ').collect::<Vec<_>>()[..] {
            ["host"] => Ok(Target::Host),
            ["netns"] => Ok(Target::Netns),
            ["interface", interface] => Ok(Target::Interface(name(interface)?)),
            ["queue", interface, queue] => match queue.split_once('-') {
                Some(("rx", queue)) => Ok(Target::RxQueue(name(interface)?, number(queue)?)),
                Some(("tx", queue)) => Ok(Target::TxQueue(name(interface)?, number(queue)?)),
                _ => Err(wrong()),
            },
            ["route", ref route @ ..] => {
                RouteTarget::parse(route).map(Target::Route).ok_or_else(wrong)
            }
            ["irq", irq] => Ok(Target::Irq(number(irq)?)),
            ["cpu", cpu] => Ok(Target::Cpu(number(cpu)?)),
            ["command", name] if is_command_name(name) => Ok(Target::Command(name.to_owned())),
            _ => Err(wrong()),
        }
    }
}

impl TryFrom<String> for Target {
    type Error = InvalidTarget;

    fn try_from(text: String) -> Result<Self, InvalidTarget> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> String {
        target.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsing_the_text_of_a_target_returns_it() {
        let name = || "eth0.7".to_owned();
        for target in [
            Target::Host,
            Target::Netns,
            Target::Interface(name()),
            Target::RxQueue(name(), 0),
            Target::TxQueue(name(), 12),
            "route default dev eth0.7".parse().unwrap(),
            "route 10.0.0.0/8 dev eth0.7 table 100".parse().unwrap(),
            "route fd00::/8 dev eth0.7".parse().unwrap(),
            Target::Irq(4_000_000_000),
            Target::Cpu(7),
            Target::Command("hooks.1".into()),
        ] {
            assert_eq!(target.to_string().parse(), Ok(target));
        }
    }

    #[test]
    fn paths_and_malformed_numbers_are_refused() {
        for bad in [
            "",
            "hosts",
            "interface",
            "interface ../../x",
            "interface a/b",
            "interface  eth0",
            "interface a-name-of-more-than-fifteen",
            "queue eth0",
            "queue eth0 rx-",
            "queue eth0 rx-+1",
            "queue eth0 zx-1",
            "route",
            "route default",
            "route default dev",
            "route default dev a/b",
            "route 10.0.0.0 dev eth0",
            "route 10.0.0.1/8 dev eth0",
            "route 10.0.0.0/33 dev eth0",
            "route 10.0.0.0/+8 dev eth0",
            "route fd00::1/8 dev eth0",
            "route default dev eth0 table x",
            "route default dev eth0 table 0",
            "route default dev eth0 via 10.0.0.1",
            "irq -1",
            "irq 1 2",
            "cpu 4294967296",
            "interface ..",
            "irq 1\n",
            "command",
            "command a b",
            "command a;b",
        ] {
            assert!(bad.parse::<Target>().is_err(), "{bad:?}");
        }
    }
}
