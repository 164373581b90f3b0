//! Reads the chains, rules and sets of nftables.

use std::collections::HashMap;
use std::ffi::CStr;
use std::net::IpAddr;

use netlink_bindings::nftables::{
    self, ExprOps, IterableDataAttrs, IterableExprAttrs, IterableExprImmediateAttrs,
    IterableNftHookAttrs, IterableSetelemAttrs, IterableVerdictAttrs, Nfgenmsg, SetElemFlags,
    SetFlags,
};

use super::super::error::{NetError, ask};
use super::super::inspect::{attribute, family, hook_name};
use super::{
    BaseChain, Expression, NftChain, NftComparison, NftHeader, NftRule, NftSet, Ruleset,
    SetElement, Verdict,
};

/// Most rules of all chains, and most elements of a set, that are read.
const RULES_MAX: usize = 1 << 18;
const ELEMENTS_MAX: usize = 1 << 16;
const SETS_MAX: usize = 1 << 12;

/// Longest payload, mask or value in a register, bytes.
const REGISTER_BYTES: usize = 64;

/// Reads the rules of the calling thread's namespace.
///
/// Needs CAP_NET_ADMIN. Rules of iptables are among them if nftables runs them (`iptables -V` says `nf_tables`).
pub fn ruleset() -> Result<Ruleset, NetError> {
    let mut ruleset = Ruleset { chains: chains()?, ..Ruleset::default() };
    read_rules(&mut ruleset)?;
    ruleset.sets = sets()?;
    for set in &mut ruleset.sets {
        read_elements(set)?;
        set.sort();
    }
    Ok(ruleset)
}

fn text(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}

fn chains() -> Result<Vec<NftChain>, NetError> {
    ask("listing the chains of nftables", |socket| {
        let request = nftables::Request::new().op_getchain_dump(&Nfgenmsg::new());
        let mut replies = socket.request(&request)?;
        let mut chains = Vec::new();
        while let Some((header, attributes)) = replies.recv().transpose()? {
            let family = family(header.nfgen_family);
            let base = attributes.get_hook().ok().map(|hook| BaseChain {
                hook: hook.get_num().map_or("other", |number| hook_name(family, number)),
                priority: hook.get_priority().unwrap_or(0),
                kind: attributes.get_type().map(text).unwrap_or_default(),
                drops_by_policy: attributes.get_policy().is_ok_and(|policy| policy == DROP),
                devices: devices(&hook),
            });
            let (table, name) = (text(attributes.get_table()?), text(attributes.get_name()?));
            chains.push(NftChain { family, table, name, base, rules: Vec::new() });
        }
        Ok(chains)
    })
}

fn devices(hook: &IterableNftHookAttrs<'_>) -> Vec<String> {
    let several = hook.get_devs().into_iter().flat_map(|devices| devices.get_name());
    several.chain(hook.get_dev().ok()).map(text).collect()
}

fn read_rules(ruleset: &mut Ruleset) -> Result<(), NetError> {
    let mut places = HashMap::new();
    for (place, chain) in ruleset.chains.iter().enumerate() {
        places.insert((chain.family, chain.table.clone(), chain.name.clone()), place);
    }
    let mut rules_count = 0;
    ask("listing the rules of nftables", |socket| {
        let request = nftables::Request::new().op_getrule_dump(&Nfgenmsg::new());
        let mut replies = socket.request(&request)?;
        while let Some((header, attributes)) = replies.recv().transpose()? {
            let (table, name) = (text(attributes.get_table()?), text(attributes.get_chain()?));
            let place = places.get(&(family(header.nfgen_family), table, name));
            let Some(chain) = place.and_then(|place| ruleset.chains.get_mut(*place)) else {
                continue;
            };
            rules_count += 1;
            if rules_count > RULES_MAX {
                ruleset.is_partial = true;
                continue;
            }
            let expressions = attributes.get_expressions().into_iter().flat_map(|e| e.get_elem());
            let expressions = expressions.map(|one| expression(&one)).collect();
            chain.rules.push(NftRule { handle: attributes.get_handle()?, expressions });
        }
        Ok(())
    })
}

/// Source: linux/netfilter.h.
const DROP: u32 = 0;
const ACCEPT: u32 = 1;

fn expression(attributes: &IterableExprAttrs<'_>) -> Expression {
    let name = attributes.get_name().map(text).unwrap_or_default();
    let known = attributes.get_data().ok().and_then(|data| known_expression(&data));
    known.unwrap_or_else(|| match name.as_str() {
        "log" | "counter" | "notrack" | "last" | "dup" | "flow_offload" => {
            Expression::WithoutEffect
        }
        "reject" => Expression::Reject,
        "masq" => Expression::Translate { is_destination: false, addresses: Vec::new() },
        "redir" => Expression::Translate { is_destination: true, addresses: Vec::new() },
        "nat" | "tproxy" => Expression::Decide(Verdict::Accept),
        "queue" | "fwd" | "synproxy" => Expression::Decide(Verdict::Taken),
        _ => Expression::Unread { name },
    })
}

/// `None` for one that is known by its name alone.
fn known_expression(data: &ExprOps<'_>) -> Option<Expression> {
    Some(match data {
        ExprOps::Payload(payload) => match payload.get_dreg() {
            Ok(to) => Expression::Payload {
                to,
                header: match payload.get_base().ok()? {
                    0 => NftHeader::Link,
                    1 => NftHeader::Network,
                    2 => NftHeader::Transport,
                    _ => return Some(Expression::Unknown { to }),
                },
                offset: payload.get_offset().ok()? as usize,
                length: (payload.get_len().ok()? as usize).min(REGISTER_BYTES),
            },
            // It writes into the packet.
            Err(_) => Expression::WithoutEffect,
        },
        ExprOps::Meta(meta) => match meta.get_dreg() {
            Ok(to) => Expression::Meta { to, key: meta.get_key().ok()? },
            Err(_) => Expression::WithoutEffect,
        },
        ExprOps::Ct(connection) => match (connection.get_dreg(), connection.get_key().ok()?) {
            (Ok(to), STATE) => Expression::ConnectionState { to },
            (Ok(to), _) => Expression::Unknown { to },
            (Err(_), _) => Expression::WithoutEffect,
        },
        ExprOps::Fib(route) => Expression::Unknown { to: route.get_dreg().ok()? },
        ExprOps::Numgen(number) => Expression::Unknown { to: number.get_dreg().ok()? },
        ExprOps::Cmp(compare) => Expression::Compare {
            from: compare.get_sreg().ok()?,
            comparison: comparison(compare.get_op().ok()?)?,
            with: value(&compare.get_data().ok()?)?,
        },
        ExprOps::Range(range) => Expression::Range {
            from: range.get_sreg().ok()?,
            is_negated: range.get_op().ok()? != 0,
            low: value(&range.get_from_data().ok()?)?,
            high: value(&range.get_to_data().ok()?)?,
        },
        ExprOps::Bitwise(bits) => {
            let to = bits.get_dreg().ok()?;
            let (mask, xor) = (bits.get_mask().ok(), bits.get_xor().ok());
            match (mask.and_then(|mask| value(&mask)), xor.and_then(|xor| value(&xor))) {
                (Some(mask), Some(xor)) if bits.get_op().unwrap_or(0) == 0 => {
                    Expression::Mask { from: bits.get_sreg().ok()?, to, mask, xor }
                }
                _ => Expression::Unknown { to },
            }
        }
        ExprOps::Immediate(immediate) => loaded(immediate)?,
        ExprOps::Lookup(lookup) => {
            // The bindings number the registers otherwise than the kernel, so these are read by number.
            let number = |wanted| {
                let bytes = attribute(lookup.get_buf(), wanted)?;
                bytes.try_into().ok().map(u32::from_be_bytes)
            };
            Expression::Lookup {
                from: number(LOOKUP_SREG)?,
                set: text(lookup.get_set().ok()?),
                to: number(LOOKUP_DREG),
                is_negated: number(LOOKUP_FLAGS).unwrap_or(0) & 1 != 0,
            }
        }
        ExprOps::Counter(counter) => {
            Expression::Counter { packets_count: counter.get_packets().ok()? }
        }
        ExprOps::Objref(object) => match object.get_imm_type() {
            Ok(COUNTER_OBJECT) => Expression::WithoutEffect,
            _ => Expression::Unread { name: "object".to_owned() },
        },
        ExprOps::Match(of) => {
            xt_match(&text(of.get_name().ok()?), of.get_info().unwrap_or_default())
        }
        ExprOps::Target(target) => {
            xt_target(&text(target.get_name().ok()?), target.get_info().unwrap_or_default())
        }
        ExprOps::Nat(nat) => Expression::Translate {
            is_destination: nat.get_type().ok()? == DESTINATION,
            addresses: Vec::new(),
        },
        _ => return None,
    })
}

/// Source: linux/netfilter/nf_tables.h, enum nft_lookup_attributes, nft_set_elem_attributes and nft_data_attributes.
const LOOKUP_SREG: u16 = 2;
const LOOKUP_DREG: u16 = 3;
const LOOKUP_FLAGS: u16 = 5;
const ELEMENT_KEY_END: u16 = 10;
const DATA_VALUE: u16 = 1;

/// Source: linux/netfilter/nf_tables.h, NFT_CT_STATE, NFT_OBJECT_COUNTER and NFT_NAT_DNAT.
const STATE: u32 = 0;
const COUNTER_OBJECT: u32 = 1;
const DESTINATION: u32 = 1;

fn loaded(immediate: &IterableExprImmediateAttrs<'_>) -> Option<Expression> {
    let data = immediate.get_data().ok()?;
    match immediate.get_dreg().ok()? {
        0 => match verdict(&data.get_verdict().ok()?) {
            Some(verdict) => Some(Expression::Decide(verdict)),
            None => Some(Expression::WithoutEffect),
        },
        to => Some(Expression::Load { to, bytes: value(&data)? }),
    }
}

fn value(data: &IterableDataAttrs<'_>) -> Option<Vec<u8>> {
    data.get_value().ok().filter(|value| value.len() <= REGISTER_BYTES).map(<[u8]>::to_vec)
}

/// `None` for a verdict that goes on with the next rule.
///
/// Source: linux/netfilter/nf_tables.h, enum nft_verdicts.
fn verdict(verdict: &IterableVerdictAttrs<'_>) -> Option<Verdict> {
    const RETURN: u32 = -5_i32 as u32;
    const GOTO: u32 = -4_i32 as u32;
    const JUMP: u32 = -3_i32 as u32;
    const BREAK: u32 = -2_i32 as u32;
    const CONTINUE: u32 = -1_i32 as u32;
    match verdict.get_code().ok()? {
        DROP => Some(Verdict::Drop),
        ACCEPT => Some(Verdict::Accept),
        RETURN => Some(Verdict::Return),
        GOTO => Some(Verdict::Goto(text(verdict.get_chain().ok()?))),
        JUMP => Some(Verdict::Jump(text(verdict.get_chain().ok()?))),
        BREAK | CONTINUE => None,
        _ => Some(Verdict::Taken),
    }
}

/// Source: linux/netfilter/nf_tables.h, enum nft_cmp_ops.
fn comparison(number: u32) -> Option<NftComparison> {
    use NftComparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual].get(number as usize).copied()
}

/// A match of iptables.
///
/// Source: linux/netfilter/xt_tcpudp.h, struct xt_tcp and xt_udp.
fn xt_match(name: &str, info: &[u8]) -> Expression {
    let unread = Expression::Unread { name: format!("match {name}") };
    let port = |at: usize| Some(u16::from_ne_bytes([*info.get(at)?, *info.get(at + 1)?]));
    let (protocol, inverted, flags) = match name {
        "comment" => return Expression::WithoutEffect,
        // Option, mask and flags must be free of conditions.
        "tcp" => (6, info.get(11), info.get(8..10)),
        "udp" => (17, info.get(8), None),
        _ => return unread,
    };
    if flags.is_some_and(|flags| flags.iter().any(|flag| *flag != 0)) {
        return unread;
    }
    match (port(0), port(2), port(4), port(6), inverted) {
        (Some(low), Some(high), Some(to_low), Some(to_high), Some(inverted)) => {
            Expression::XtPorts {
                protocol,
                source: (low, high),
                destination: (to_low, to_high),
                inverted: *inverted,
            }
        }
        _ => unread,
    }
}

/// A target of iptables.
fn xt_target(name: &str, info: &[u8]) -> Expression {
    match name {
        "REJECT" => Expression::Reject,
        "DROP" => Expression::Decide(Verdict::Drop),
        "MASQUERADE" | "SNAT" | "DNAT" | "REDIRECT" => Expression::Translate {
            is_destination: matches!(name, "DNAT" | "REDIRECT"),
            addresses: if name == "DNAT" { xt_addresses(info) } else { Vec::new() },
        },
        "NETMAP" | "TPROXY" => Expression::Decide(Verdict::Accept),
        "NFQUEUE" => Expression::Decide(Verdict::Taken),
        "LOG" | "NFLOG" | "MARK" | "CONNMARK" | "TCPMSS" | "CT" | "CLASSIFY" | "CHECKSUM"
        | "DSCP" | "TOS" | "TTL" | "HL" | "TRACE" | "SET" => Expression::WithoutEffect,
        _ => Expression::Unread { name: format!("target {name}") },
    }
}

/// First address of a target DNAT, as one of either IP version.
///
/// Source: linux/netfilter/nf_nat.h, struct nf_nat_range2; of revisions before 2, only the first row is that of IPv4.
fn xt_addresses(info: &[u8]) -> Vec<IpAddr> {
    let v6 = info.get(4..20).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let v4 = info.get(4..8).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    let old_v4 = info.get(8..12).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    v6.map(IpAddr::from)
        .into_iter()
        .chain(v4.map(IpAddr::from))
        .chain(old_v4.map(IpAddr::from))
        .collect()
}

/// Packets that a rule dropped or refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropCount {
    pub family: &'static str,
    pub table: String,
    /// Unique in its table.
    pub handle: u64,
    pub packets_count: u64,
}

/// Counters of all rules that drop or refuse, if they have one; at most a bounded number. Needs CAP_NET_ADMIN.
pub fn drop_counts() -> Result<Vec<DropCount>, NetError> {
    ask("listing the rules of nftables", |socket| {
        let request = nftables::Request::new().op_getrule_dump(&Nfgenmsg::new());
        let mut replies = socket.request(&request)?;
        let mut counts = Vec::new();
        while let Some((header, attributes)) = replies.recv().transpose()? {
            let expressions = attributes.get_expressions().into_iter().flat_map(|e| e.get_elem());
            let (mut packets_count, mut is_drop) = (None, false);
            for one in expressions {
                match one.get_data() {
                    Ok(ExprOps::Counter(counter)) => packets_count = counter.get_packets().ok(),
                    Ok(ExprOps::Reject(_)) => is_drop = true,
                    Ok(ExprOps::Immediate(immediate)) => {
                        is_drop |= loaded(&immediate) == Some(Expression::Decide(Verdict::Drop));
                    }
                    Ok(ExprOps::Target(target)) => {
                        is_drop |= target.get_name().is_ok_and(|name| name == c"REJECT");
                    }
                    _ => {}
                }
            }
            let Some(packets_count) = packets_count.filter(|_| is_drop) else { continue };
            let (table, handle) = (text(attributes.get_table()?), attributes.get_handle()?);
            let family = family(header.nfgen_family);
            counts.push(DropCount { family, table, handle, packets_count });
            if counts.len() >= RULES_MAX {
                break;
            }
        }
        Ok(counts)
    })
}

fn sets() -> Result<Vec<NftSet>, NetError> {
    ask("listing the sets of nftables", |socket| {
        let request = nftables::Request::new().op_getset_dump(&Nfgenmsg::new());
        let mut replies = socket.request(&request)?;
        let mut sets = Vec::new();
        while let Some((header, attributes)) = replies.recv().transpose()? {
            let flags = attributes.get_flags().unwrap_or(0);
            let has = |flag: SetFlags| flags & flag as u32 != 0;
            if sets.len() == SETS_MAX {
                continue;
            }
            sets.push(NftSet {
                family: family(header.nfgen_family),
                table: text(attributes.get_table()?),
                name: text(attributes.get_name()?),
                key_bytes: (attributes.get_key_len()? as usize).min(REGISTER_BYTES),
                is_interval: has(SetFlags::Interval),
                is_unknown: has(SetFlags::Eval) || has(SetFlags::Timeout),
                elements: Vec::new(),
            });
        }
        Ok(sets)
    })
}

/// Source: linux/netfilter.h, NFPROTO_*.
fn family_number(family: &str) -> u8 {
    match family {
        "inet" => 1,
        "ip" => 2,
        "arp" => 3,
        "netdev" => 5,
        "bridge" => 7,
        "ip6" => 10,
        _ => 0,
    }
}

fn read_elements(set: &mut NftSet) -> Result<(), NetError> {
    let what = format!("listing the elements of set {} of nftables", set.name);
    let header = Nfgenmsg { nfgen_family: family_number(set.family), ..Nfgenmsg::new() };
    let read = ask(what, |socket| {
        let mut request = nftables::Request::new().op_getsetelem_dump(&header);
        let attributes = request.encode().push_table_bytes(set.table.as_bytes());
        drop(attributes.push_set_bytes(set.name.as_bytes()));
        let mut replies = socket.request(&request)?;
        while let Some((_, attributes)) = replies.recv().transpose()? {
            let elements = attributes.get_elements().into_iter().flat_map(|list| list.get_elem());
            for attributes in elements {
                if set.elements.len() == ELEMENTS_MAX {
                    set.is_unknown = true;
                    continue;
                }
                set.elements.push(element(&attributes));
            }
        }
        Ok(())
    });
    match read {
        // It was removed meanwhile.
        Err(error) if error.is_not_found() => {
            set.is_unknown = true;
            Ok(())
        }
        read => read,
    }
}

fn element(attributes: &IterableSetelemAttrs<'_>) -> SetElement {
    let flags = attributes.get_flags().unwrap_or_default();
    let flags = flags.try_into().map_or(0, u32::from_be_bytes);
    let data = attributes.get_data().ok();
    SetElement {
        // That which matches all has no key.
        key: attributes.get_key().ok().and_then(|key| value(&key)).unwrap_or_default(),
        // As with the lookup: the bindings number it otherwise.
        key_end: attribute(attributes.get_buf(), ELEMENT_KEY_END)
            .and_then(|data| attribute(data, DATA_VALUE))
            .map(<[u8]>::to_vec),
        is_end: flags & SetElemFlags::IntervalEnd as u32 != 0,
        value: data.as_ref().and_then(value),
        verdict: data.and_then(|data| verdict(&data.get_verdict().ok()?)),
    }
}
