//! Where a knob acts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a knob belongs to; the kind of its targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The whole machine.
    Host,
    /// A network namespace.
    Netns,
    /// An interface.
    Interface,
    /// A receive queue of an interface.
    RxQueue,
    /// A transmit queue of an interface.
    TxQueue,
    /// An interrupt of an interface.
    Irq,
    /// A CPU.
    Cpu,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Host => "host",
            Scope::Netns => "namespace",
            Scope::Interface => "interface",
            Scope::RxQueue => "receive queue",
            Scope::TxQueue => "transmit queue",
            Scope::Irq => "interrupt",
            Scope::Cpu => "CPU",
        })
    }
}

/// One place where a knob acts.
///
/// Its text, in plans and journals: `host`, `netns`, `interface eth0`, `queue eth0 rx-0`,
/// `irq 24`, `cpu 3`. Interfaces cannot have blanks in their names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// The whole machine.
    Host,
    /// The network namespace of the plan.
    Netns,
    /// An interface of that namespace, by name.
    Interface(String),
    /// A receive queue of an interface.
    RxQueue(String, u32),
    /// A transmit queue of an interface.
    TxQueue(String, u32),
    /// An interrupt, by number.
    Irq(u32),
    /// A CPU, by number.
    Cpu(u32),
}

impl Target {
    /// What kind of place it is.
    pub fn scope(&self) -> Scope {
        match self {
            Target::Host => Scope::Host,
            Target::Netns => Scope::Netns,
            Target::Interface(_) => Scope::Interface,
            Target::RxQueue(..) => Scope::RxQueue,
            Target::TxQueue(..) => Scope::TxQueue,
            Target::Irq(_) => Scope::Irq,
            Target::Cpu(_) => Scope::Cpu,
        }
    }

    /// Interface that it is part of; interrupts do not say.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Target::Interface(name) | Target::RxQueue(name, _) | Target::TxQueue(name, _) => {
                Some(name)
            }
            _ => None,
        }
    }

    /// Whether it goes with a network namespace, and not with the machine.
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
            Target::Irq(irq) => write!(f, "irq {irq}"),
            Target::Cpu(cpu) => write!(f, "cpu {cpu}"),
        }
    }
}

/// Whether the kernel would take this as an interface's name.
///
/// Source: dev_valid_name of net/core/dev.c.
pub fn is_interface_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && name.len() < 16
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control())
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no target: write host, netns, interface NAME, queue NAME rx-N, \
                 queue NAME tx-N, irq N or cpu N"
            )
        };
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
            ["irq", irq] => Ok(Target::Irq(number(irq)?)),
            ["cpu", cpu] => Ok(Target::Cpu(number(cpu)?)),
            _ => Err(wrong()),
        }
    }
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
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
    fn a_target_comes_back_from_its_text() {
        let name = || "eth0.7".to_owned();
        for target in [
            Target::Host,
            Target::Netns,
            Target::Interface(name()),
            Target::RxQueue(name(), 0),
            Target::TxQueue(name(), 12),
            Target::Irq(4_000_000_000),
            Target::Cpu(7),
        ] {
            assert_eq!(target.to_string().parse(), Ok(target));
        }
    }

    #[test]
    fn what_could_lead_elsewhere_is_no_target() {
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
            "irq -1",
            "irq 1 2",
            "cpu 4294967296",
            "interface ..",
            "irq 1\n",
        ] {
            assert!(bad.parse::<Target>().is_err(), "{bad:?}");
        }
    }
}
