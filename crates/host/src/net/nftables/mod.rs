//! The rules of nftables, and the rule that dropped a packet.
//!
//! [`ruleset`] reads all chains, rules and sets of a network namespace. [`Ruleset::suspects`] evaluates them over the
//! headers of a packet that netfilter dropped. Expressions that cannot be evaluated from headers, such as a rate limit,
//! are unknown: three-valued logic.

use std::net::IpAddr;

mod evaluate;
mod packet;
mod read;
mod registers;
mod set;

pub use evaluate::Suspect;
pub use packet::{HookPoint, Layer, RuleInterface, RulePacket};
pub use read::{DropCount, drop_counts, ruleset};
pub use set::{NftSet, SetElement};

/// All chains and sets of a network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ruleset {
    pub chains: Vec<NftChain>,
    pub sets: Vec<NftSet>,
    /// There are more rules than were read.
    pub is_partial: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NftChain {
    /// Family: `ip`, `inet`, `bridge`, `netdev` and so on.
    pub family: &'static str,
    pub table: String,
    pub name: String,
    /// `None` for a chain that is only jumped to.
    pub base: Option<BaseChain>,
    pub rules: Vec<NftRule>,
}

/// A chain that packets enter at a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseChain {
    /// Such as `input`.
    pub hook: &'static str,
    /// Chains of lower priority come first.
    pub priority: i32,
    /// `filter`, `nat` or `route`.
    pub kind: String,
    /// The policy drops packets that no rule decides on.
    pub drops_by_policy: bool,
    /// Interfaces of a chain at `ingress` or `egress`.
    pub devices: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NftRule {
    /// Number by which `nft` names it.
    pub handle: u64,
    pub expressions: Vec<Expression>,
}

impl NftRule {
    /// Packets that matched, if it counts them.
    pub fn packets_count(&self) -> Option<u64> {
        self.expressions.iter().find_map(|expression| match expression {
            Expression::Counter { packets_count } => Some(*packets_count),
            _ => None,
        })
    }

    /// The rule drops or refuses what matches.
    pub fn drops(&self) -> bool {
        self.expressions.last().is_some_and(|one| {
            matches!(one, Expression::Reject | Expression::Decide(Verdict::Drop))
        })
    }
}

/// Verdict of a rule, or of an element of a map, on a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Accept,
    Drop,
    /// Back to the chain that jumped here, or to the policy.
    Return,
    Jump(String),
    Goto(String),
    /// Given to another interface or to a program.
    Taken,
}

/// Header that an offset counts from.
///
/// Source: linux/netfilter/nf_tables.h, enum nft_payload_bases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NftHeader {
    Link,
    Network,
    Transport,
}

/// Comparison of bytes in network order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NftComparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Step of a rule. Registers are numbered as in the kernel: 1 to 4 of 16 bytes, or 8 to 23 of 4 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expression {
    Payload {
        to: u32,
        header: NftHeader,
        offset: usize,
        length: usize,
    },
    /// - `key`: `enum nft_meta_keys`.
    Meta {
        to: u32,
        key: u32,
    },
    ConnectionState {
        to: u32,
    },
    /// Something that a header does not tell, such as a route or a mark of a connection.
    Unknown {
        to: u32,
    },
    Compare {
        from: u32,
        comparison: NftComparison,
        with: Vec<u8>,
    },
    Range {
        from: u32,
        is_negated: bool,
        low: Vec<u8>,
        high: Vec<u8>,
    },
    /// `(from & mask) ^ xor`.
    Mask {
        from: u32,
        to: u32,
        mask: Vec<u8>,
        xor: Vec<u8>,
    },
    Load {
        to: u32,
        bytes: Vec<u8>,
    },
    /// - `to`: register of a map's value; the verdict's is 0.
    Lookup {
        from: u32,
        set: String,
        to: Option<u32>,
        is_negated: bool,
    },
    Decide(Verdict),
    /// Translates addresses and accepts.
    ///
    /// - `addresses`: new ones of a target of iptables; those of nftables are in registers.
    Translate {
        is_destination: bool,
        addresses: Vec<IpAddr>,
    },
    /// Drops and answers.
    Reject,
    Counter {
        packets_count: u64,
    },
    /// Ports of a match of iptables, host byte order.
    XtPorts {
        protocol: u8,
        source: (u16, u16),
        destination: (u16, u16),
        inverted: u8,
    },
    /// Decides on nothing: logs, counts, marks.
    WithoutEffect,
    /// Matches by something that is not read here; may write registers.
    ///
    /// - `name`: `limit`, or `match conntrack` of iptables.
    Unread {
        name: String,
    },
}
