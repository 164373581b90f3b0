//! The rules that may have dropped a packet.

use super::packet::{HookPoint, RulePacket, Transport};
use super::registers::Registers;
use super::{Expression, NftChain, NftComparison, NftHeader, NftRule, NftSet, Ruleset, Verdict};

/// Deepest jump.
///
/// Source: net/netfilter/nf_tables.h, NFT_JUMP_STACK_SIZE.
const JUMPS_MAX: usize = 16;
/// Most rules that are evaluated for a packet.
const STEPS_MAX: usize = 1 << 18;
/// Most suspects of a packet.
const SUSPECTS_MAX: usize = 64;

/// A rule that drops a packet, or may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspect<'a> {
    pub chain: &'a NftChain,
    /// `None` for the chain's policy.
    pub rule: Option<&'a NftRule>,
    /// All expressions up to the verdict are known, and no rule before may have accepted the packet.
    pub is_certain: bool,
    /// Parts of the rule that were not evaluated.
    pub unread: Vec<&'a str>,
}

impl Ruleset {
    /// Rules and policies that may have dropped a packet, in its order. As it was dropped, a single one is the culprit
    /// even if it is not certain by itself. Rules whose counter is 0 are left out.
    ///
    /// - `points`: hooks where it may have been dropped, in its order.
    pub fn suspects(&self, packet: &RulePacket, points: &[HookPoint]) -> Vec<Suspect<'_>> {
        let mut walk = Walk {
            ruleset: self,
            packet,
            suspects: Vec::new(),
            is_sure: true,
            steps_left: STEPS_MAX,
        };
        for point in points {
            for chain in self.base_chains(packet, *point) {
                let ended = walk.chain(chain, JUMPS_MAX);
                let policy = chain.base.as_ref().is_some_and(|base| base.drops_by_policy);
                let is_dropped = match ended {
                    Flow::Dropped => true,
                    Flow::Accepted => false,
                    Flow::Through if policy => {
                        walk.add(chain, None, true, Vec::new());
                        true
                    }
                    Flow::Through => false,
                };
                if is_dropped {
                    return walk.suspects;
                }
            }
        }
        walk.suspects
    }

    /// Chains of a hook in the order of their priorities.
    fn base_chains(&self, packet: &RulePacket, point: HookPoint) -> Vec<&NftChain> {
        let device = if point.hook == "egress" { &packet.output } else { &packet.input };
        let is_met = |chain: &&NftChain| {
            let Some(base) = &chain.base else { return false };
            let is_own = base.devices.is_empty()
                || device.as_ref().is_none_or(|(_, name)| base.devices.contains(name));
            base.hook == point.hook && point.has(chain.family, packet) && is_own
        };
        let mut chains: Vec<&NftChain> = self.chains.iter().filter(is_met).collect();
        chains.sort_by_key(|chain| chain.base.as_ref().map(|base| base.priority));
        chains
    }

    fn chain_named(&self, of: &NftChain, name: &str) -> Option<&NftChain> {
        self.chains.iter().find(|chain| {
            chain.name == name && chain.table == of.table && chain.family == of.family
        })
    }

    fn set_named(&self, of: &NftChain, name: &str) -> Option<&NftSet> {
        self.sets
            .iter()
            .find(|set| set.name == name && set.table == of.table && set.family == of.family)
    }
}

/// The end of a packet in a chain, as far as it is sure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Dropped,
    Accepted,
    /// It may reach the end of the chain.
    Through,
}

#[derive(Debug)]
struct Walk<'a, 'p> {
    ruleset: &'a Ruleset,
    packet: &'p RulePacket,
    suspects: Vec<Suspect<'a>>,
    /// The packet surely came here.
    is_sure: bool,
    steps_left: usize,
}

/// A rule that matches, or may.
#[derive(Debug)]
struct Matched<'a> {
    /// Verdicts that it may give.
    verdicts: Vec<Verdict>,
    is_certain: bool,
    unread: Vec<&'a str>,
}

impl<'a> Walk<'a, '_> {
    fn add(
        &mut self,
        chain: &'a NftChain,
        rule: Option<&'a NftRule>,
        is_certain: bool,
        unread: Vec<&'a str>,
    ) {
        if self.suspects.len() < SUSPECTS_MAX {
            let is_certain = is_certain && self.is_sure;
            self.suspects.push(Suspect { chain, rule, is_certain, unread });
        }
    }

    fn chain(&mut self, chain: &'a NftChain, jumps_left: usize) -> Flow {
        for rule in &chain.rules {
            if self.steps_left == 0 {
                self.is_sure = false;
                return Flow::Through;
            }
            self.steps_left -= 1;
            let Some(matched) = self.matched(chain, rule) else { continue };
            let was_sure = self.is_sure;
            let (mut flow, mut is_last) = (Flow::Through, false);
            for verdict in &matched.verdicts {
                self.is_sure = was_sure && matched.is_certain;
                (flow, is_last) = self.decide(chain, rule, verdict, &matched, jumps_left);
            }
            if !matched.is_certain {
                // It may have ended here.
                self.is_sure = false;
            } else if is_last || flow != Flow::Through {
                return flow;
            }
        }
        Flow::Through
    }

    /// Follows a verdict. Returns how it ends, and true if no later rule of the chain is met.
    fn decide(
        &mut self,
        chain: &'a NftChain,
        rule: &'a NftRule,
        verdict: &Verdict,
        matched: &Matched<'a>,
        jumps_left: usize,
    ) -> (Flow, bool) {
        match verdict {
            Verdict::Drop => {
                self.add(chain, Some(rule), matched.is_certain, matched.unread.clone());
                (Flow::Dropped, true)
            }
            Verdict::Accept | Verdict::Taken => (Flow::Accepted, true),
            Verdict::Return => (Flow::Through, true),
            Verdict::Jump(name) | Verdict::Goto(name) => {
                let target = self.ruleset.chain_named(chain, name).filter(|_| jumps_left > 0);
                let flow =
                    target.map_or(Flow::Through, |target| self.chain(target, jumps_left - 1));
                (flow, matches!(verdict, Verdict::Goto(_)))
            }
        }
    }

    /// Evaluates a rule; `None` if it surely does not match, or decides on nothing.
    fn matched(&self, chain: &'a NftChain, rule: &'a NftRule) -> Option<Matched<'a>> {
        let mut registers = Registers::unknown();
        let mut matched = Matched { verdicts: Vec::new(), is_certain: true, unread: Vec::new() };
        for expression in &rule.expressions {
            let is_met = match expression {
                Expression::Payload { to, header, offset, length } => {
                    self.load_payload(&mut registers, *to, *header, *offset, *length)
                }
                Expression::Meta { to, key } => {
                    load(&mut registers, *to, self.packet.meta(*key).as_deref())
                }
                Expression::ConnectionState { to } => {
                    let state = self.packet.connection_state.map(u32::to_ne_bytes);
                    load(&mut registers, *to, state.as_ref().map(<[u8; 4]>::as_slice))
                }
                Expression::Unknown { to } => load(&mut registers, *to, None),
                Expression::Load { to, bytes } => load(&mut registers, *to, Some(bytes)),
                Expression::Mask { from, to, mask, xor } => {
                    let bytes = masked(&registers.get(*from, mask.len()), mask, xor);
                    registers.set(*to, &bytes);
                    Some(true)
                }
                Expression::Compare { from, comparison, with } => {
                    compared(&registers.get(*from, with.len()), *comparison, with)
                }
                Expression::Range { from, is_negated, low, high } => {
                    let known = registers.known(*from, low.len());
                    known.map(|key| (*low <= key && key <= *high) != *is_negated)
                }
                Expression::Lookup { from, set, to, is_negated } => {
                    let set = self.ruleset.set_named(chain, set);
                    let found = looked_up(&mut registers, *from, *to, set, &mut matched.verdicts);
                    let is_met = found.map(|is_found| is_found != *is_negated);
                    if to == &Some(0) && is_met != Some(false) {
                        matched.is_certain &= is_met.is_some();
                        return Some(matched).filter(|matched| !matched.verdicts.is_empty());
                    }
                    is_met
                }
                Expression::XtPorts { .. } => self.has_ports(expression),
                // It counts the packets that matched so far, and this one would be among them.
                Expression::Counter { packets_count } => Some(*packets_count > 0),
                Expression::WithoutEffect => Some(true),
                Expression::Unread { name } => {
                    registers = Registers::unknown();
                    matched.unread.push(name);
                    None
                }
                Expression::Decide(verdict) => {
                    matched.verdicts.push(verdict.clone());
                    return Some(matched);
                }
                Expression::Translate { .. } => {
                    matched.verdicts.push(Verdict::Accept);
                    return Some(matched);
                }
                Expression::Reject => {
                    matched.verdicts.push(Verdict::Drop);
                    return Some(matched);
                }
            };
            match is_met {
                Some(true) => {}
                Some(false) => return None,
                None => matched.is_certain = false,
            }
        }
        None
    }

    /// Returns false if the packet has no such header.
    fn load_payload(
        &self,
        registers: &mut Registers,
        to: u32,
        header: NftHeader,
        offset: usize,
        length: usize,
    ) -> Option<bool> {
        let packet = self.packet;
        let (bytes, start) = match header {
            NftHeader::Link => (packet.link.as_ref().map_or(&[][..], |link| &link[..]), 0),
            NftHeader::Network => (packet.network.as_slice(), 0),
            NftHeader::Transport => match packet.transport() {
                Transport::At(start) => (packet.network.as_slice(), start),
                Transport::Absent => return Some(false),
                Transport::Unknown => (&[][..], 0),
            },
        };
        let from = start.saturating_add(offset);
        load(registers, to, bytes.get(from..from.saturating_add(length)))
    }

    /// Source: linux/netfilter/xt_tcpudp.h: one of the first two bits inverts the source or the destination.
    fn has_ports(&self, expression: &Expression) -> Option<bool> {
        let Expression::XtPorts { protocol, source, destination, inverted } = expression else {
            return None;
        };
        if self.packet.protocol()? != *protocol {
            return Some(false);
        }
        let (from, to) = self.packet.ports()?;
        let is_in = |port: u16, range: &(u16, u16), bit: u8| {
            (range.0 <= port && port <= range.1) != (inverted & bit != 0)
        };
        Some(is_in(from, source, 1) && is_in(to, destination, 2))
    }
}

/// Loads a register; it is unknown without bytes. Goes on in any case.
fn load(registers: &mut Registers, to: u32, bytes: Option<&[u8]>) -> Option<bool> {
    match bytes {
        Some(bytes) => registers.set_known(to, bytes),
        None => registers.forget(to),
    }
    Some(true)
}

/// Source: linux/netfilter/nf_tables.h, nft_bitwise.
fn masked(bytes: &[Option<u8>], mask: &[u8], xor: &[u8]) -> Vec<Option<u8>> {
    let masks = mask.iter().zip(xor.iter().copied().chain(std::iter::repeat(0)));
    let masked = bytes.iter().zip(masks).map(|(byte, (mask, xor))| match (byte, mask) {
        (_, 0) => Some(xor),
        (Some(byte), mask) => Some(byte & mask ^ xor),
        (None, _) => None,
    });
    masked.collect()
}

fn compared(bytes: &[Option<u8>], comparison: NftComparison, with: &[u8]) -> Option<bool> {
    let differs = bytes.iter().zip(with).any(|(byte, with)| byte.is_some_and(|byte| byte != *with));
    match comparison {
        // One known byte may decide.
        NftComparison::Equal if differs => return Some(false),
        NftComparison::NotEqual if differs => return Some(true),
        _ => {}
    }
    let known: Vec<u8> = bytes.iter().copied().collect::<Option<_>>()?;
    let known = known.as_slice();
    Some(match comparison {
        NftComparison::Equal => known == with,
        NftComparison::NotEqual => known != with,
        NftComparison::Less => known < with,
        NftComparison::LessOrEqual => known <= with,
        NftComparison::Greater => known > with,
        NftComparison::GreaterOrEqual => known >= with,
    })
}

/// Searches a set, and loads a map's value. Returns true if the key is in it.
///
/// - `verdicts`: those of a map of verdicts; all that it has if the key is unknown.
fn looked_up(
    registers: &mut Registers,
    from: u32,
    to: Option<u32>,
    set: Option<&NftSet>,
    verdicts: &mut Vec<Verdict>,
) -> Option<bool> {
    if let Some(to) = to.filter(|to| *to != 0) {
        registers.forget(to);
    }
    let set = set?;
    let key = registers.known(from, set.key_bytes).filter(|_| !set.is_unknown);
    let Some(key) = key else {
        verdicts.extend(set.elements.iter().filter_map(|element| element.verdict.clone()));
        return None;
    };
    let Some(element) = set.find(&key) else { return Some(false) };
    verdicts.extend(element.verdict.clone());
    if let (Some(to), Some(value)) = (to.filter(|to| *to != 0), &element.value) {
        registers.set_known(to, value);
    }
    Some(true)
}

#[cfg(test)]
#[path = "evaluate_tests.rs"]
mod tests;
