//! Steering rules of a device as text: `7:udp4,dst-port=4789,queue=1 8:ether,ether-type=0x88f7,queue=0`.

use std::net::{Ipv4Addr, Ipv6Addr};

use sys::ethtool::{FIELDS_BYTES, FlowRule};

/// A device without rules.
pub(super) const NONE: &str = "none";
const QUEUE: &str = "queue";
const DROP: &str = "drop";
/// `RX_CLS_FLOW_DISC`.
const DISCARD: u64 = u64::MAX;

/// Kind of packets that a rule is for.
struct Kind {
    name: &'static str,
    flow_type: u32,
    fields: &'static [Field],
}

/// Field of a packet that a rule compares, at its offset in the kernel's structure.
struct Field {
    name: &'static str,
    at: usize,
    form: Form,
}

#[derive(Clone, Copy)]
enum Form {
    Ip4,
    Ip6,
    Port,
    Mac,
    EtherType,
}

const fn field(name: &'static str, at: usize, form: Form) -> Field {
    Field { name, at, form }
}

/// `struct ethtool_tcpip4_spec`.
static PORTS4: [Field; 4] = [
    field("src-ip", 0, Form::Ip4),
    field("dst-ip", 4, Form::Ip4),
    field("src-port", 8, Form::Port),
    field("dst-port", 10, Form::Port),
];
/// `struct ethtool_tcpip6_spec`.
static PORTS6: [Field; 4] = [
    field("src-ip", 0, Form::Ip6),
    field("dst-ip", 16, Form::Ip6),
    field("src-port", 32, Form::Port),
    field("dst-port", 34, Form::Port),
];
/// `struct ethhdr`.
static ETHER: [Field; 3] = [
    field("src-mac", 6, Form::Mac),
    field("dst-mac", 0, Form::Mac),
    field("ether-type", 12, Form::EtherType),
];

/// Source: linux/ethtool.h.
static KINDS: [Kind; 7] = [
    Kind { name: "tcp4", flow_type: 1, fields: &PORTS4 },
    Kind { name: "udp4", flow_type: 2, fields: &PORTS4 },
    Kind { name: "sctp4", flow_type: 3, fields: &PORTS4 },
    Kind { name: "tcp6", flow_type: 5, fields: &PORTS6 },
    Kind { name: "udp6", flow_type: 6, fields: &PORTS6 },
    Kind { name: "sctp6", flow_type: 7, fields: &PORTS6 },
    Kind { name: "ether", flow_type: 0x12, fields: &ETHER },
];

/// Rules by location; `None` if the text is invalid or has two rules of one location.
pub(super) fn rules(text: &str) -> Option<Vec<FlowRule>> {
    if text.trim() == NONE {
        return Some(Vec::new());
    }
    let mut rules: Vec<FlowRule> = text.split_whitespace().map(rule).collect::<Option<_>>()?;
    rules.sort_by_key(|rule| rule.location);
    let is_unique = rules.windows(2).all(|two| two[0].location != two[1].location);
    (is_unique && !rules.is_empty()).then_some(rules)
}

/// Canonical text of rules that are in the order of their locations.
///
/// Errors: the location of a rule that has no text here: of another kind, with a part of a field, or with
/// more than a queue to go to.
pub(super) fn rules_text(rules: &[FlowRule]) -> Result<String, u32> {
    let texts: Vec<String> = rules
        .iter()
        .map(|rule| rule_text(rule).ok_or(rule.location))
        .collect::<Result<_, u32>>()?;
    Ok(if texts.is_empty() { NONE.to_owned() } else { texts.join(" ") })
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

fn rule(text: &str) -> Option<FlowRule> {
    let (location, rest) = text.split_once(':')?;
    let mut parts = rest.split(',');
    let name = parts.next()?;
    let kind = KINDS.iter().find(|kind| kind.name == name)?;
    let mut rule = FlowRule {
        location: number(location)?,
        flow_type: kind.flow_type,
        fields: [0; FIELDS_BYTES],
        mask: [0; FIELDS_BYTES],
        queue: DISCARD,
    };
    let mut seen = Vec::new();
    for part in parts {
        let (name, text) = part.split_once('=')?;
        if seen.contains(&name) {
            return None;
        }
        seen.push(name);
        if name == QUEUE {
            rule.queue = if text == DROP { DISCARD } else { number(text)?.into() };
            continue;
        }
        let field = kind.fields.iter().find(|field| field.name == name)?;
        let (value, mask) = field.form.parse(text)?;
        rule.fields[field.at..][..value.len()].copy_from_slice(&value);
        rule.mask[field.at..][..mask.len()].copy_from_slice(&mask);
    }
    seen.contains(&QUEUE).then_some(rule)
}

fn rule_text(rule: &FlowRule) -> Option<String> {
    let kind = KINDS.iter().find(|kind| kind.flow_type == rule.flow_type)?;
    let mut text = format!("{}:{}", rule.location, kind.name);
    let mut rest = rule.mask;
    for Field { name, at, form } in kind.fields {
        let range = *at..at + form.len();
        rest[range.clone()].fill(0);
        if let Some(value) = form.text(&rule.fields[range.clone()], &rule.mask[range])? {
            text.push_str(&format!(",{name}={value}"));
        }
    }
    let queue = match rule.queue {
        DISCARD => DROP.to_owned(),
        queue => u32::try_from(queue).ok()?.to_string(),
    };
    rest.iter().all(|byte| *byte == 0).then(|| format!("{text},{QUEUE}={queue}"))
}

/// Words of ethtool(8) for a rule: `flow-type udp4 dst-port 4789 action 1 loc 7`.
pub(super) fn ethtool_words(rule: &FlowRule) -> Option<Vec<(String, String)>> {
    let kind = KINDS.iter().find(|kind| kind.flow_type == rule.flow_type)?;
    let mut words = vec![("flow-type".to_owned(), kind.name.to_owned())];
    for Field { name, at, form } in kind.fields {
        let range = *at..at + form.len();
        let mask = &rule.mask[range.clone()];
        let Some(text) = form.text(&rule.fields[range], mask)? else { continue };
        let name = match *name {
            "src-mac" => "src",
            "dst-mac" => "dst",
            "ether-type" => "proto",
            name => name,
        };
        let (value, is_part) = match text.split_once('/') {
            Some((address, _)) => (address.to_owned(), true),
            None => (text, false),
        };
        words.push((name.to_owned(), value));
        if is_part {
            // Its mask has the bits that do not count.
            let ignored: Vec<u8> = mask.iter().map(|byte| !byte).collect();
            words.push(("m".to_owned(), form.address(&ignored)?));
        }
    }
    let queue = if rule.queue == DISCARD { "-1".to_owned() } else { rule.queue.to_string() };
    words.push(("action".to_owned(), queue));
    words.push(("loc".to_owned(), rule.location.to_string()));
    Some(words)
}

impl Form {
    const fn len(self) -> usize {
        match self {
            Form::Ip4 => 4,
            Form::Ip6 => 16,
            Form::Port | Form::EtherType => 2,
            Form::Mac => 6,
        }
    }

    /// Value and mask in network byte order.
    fn parse(self, text: &str) -> Option<(Vec<u8>, Vec<u8>)> {
        let whole = |value: Vec<u8>| {
            let mask = vec![0xff; value.len()];
            (value, mask)
        };
        match self {
            Form::Port => Some(whole(u16::try_from(number(text)?).ok()?.to_be_bytes().to_vec())),
            Form::EtherType => {
                let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 4)?;
                Some(whole(u16::from_str_radix(digits, 16).ok()?.to_be_bytes().to_vec()))
            }
            Form::Mac => {
                let byte =
                    |text: &str| u8::from_str_radix(text, 16).ok().filter(|_| text.len() == 2);
                let bytes: Vec<u8> = text.split(':').map(byte).collect::<Option<_>>()?;
                (bytes.len() == self.len()).then(|| whole(bytes))
            }
            Form::Ip4 | Form::Ip6 => {
                let (address, len) = text.split_once('/').unwrap_or((text, ""));
                let mut bytes = match self {
                    Form::Ip4 => address.parse::<Ipv4Addr>().ok()?.octets().to_vec(),
                    _ => address.parse::<Ipv6Addr>().ok()?.octets().to_vec(),
                };
                let bits = 8 * self.len() as u32;
                let len = if len.is_empty() && address == text { bits } else { number(len)? };
                let mask = prefix(self.len(), len).filter(|_| len > 0)?;
                bytes.iter_mut().zip(&mask).for_each(|(byte, mask)| *byte &= mask);
                Some((bytes, mask))
            }
        }
    }

    /// Text of a field, or `Some(None)` if it does not count; `None` if a part of it does for which there
    /// is no text.
    fn text(self, value: &[u8], mask: &[u8]) -> Option<Option<String>> {
        if mask.iter().all(|byte| *byte == 0) {
            return Some(None);
        }
        let len: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
        let is_whole = len as usize == 8 * self.len();
        let text = match self {
            Form::Ip4 | Form::Ip6 => {
                prefix(self.len(), len).filter(|prefix| prefix == mask)?;
                let masked: Vec<u8> = value.iter().zip(mask).map(|(a, b)| a & b).collect();
                let address = self.address(&masked)?;
                if is_whole { address } else { format!("{address}/{len}") }
            }
            _ if !is_whole => return None,
            Form::Port => u16::from_be_bytes(value.try_into().ok()?).to_string(),
            Form::EtherType => format!("{:#06x}", u16::from_be_bytes(value.try_into().ok()?)),
            Form::Mac => {
                let bytes: Vec<String> = value.iter().map(|byte| format!("{byte:02x}")).collect();
                bytes.join(":")
            }
        };
        Some(Some(text))
    }

    /// Text of an IP address; `None` for another form.
    fn address(self, bytes: &[u8]) -> Option<String> {
        match self {
            Form::Ip4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).to_string()),
            Form::Ip6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_string()),
            _ => None,
        }
    }
}

/// A mask of the first `len` bits; `None` if there are fewer.
fn prefix(bytes: usize, len: u32) -> Option<Vec<u8>> {
    if len as usize > 8 * bytes {
        return None;
    }
    Some(
        (0..bytes as u32)
            .map(|at| {
                let ones = len.saturating_sub(8 * at).min(8);
                (0xff_u32 << (8 - ones)) as u8
            })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const VXLAN: &str = "7:udp4,dst-ip=10.1.0.0/16,dst-port=4789,queue=1";
    const PTP: &str = "12:ether,src-mac=02:00:00:00:00:0a,ether-type=0x88f7,queue=0";
    const V6: &str = "13:tcp6,src-ip=2001:db8::/32,dst-port=80,queue=drop";

    #[test]
    fn rules_and_their_text_convert_both_ways() {
        let text = [VXLAN, PTP, V6].join(" ");
        let parsed = rules(&text).unwrap();
        assert_eq!(rules_text(&parsed), Ok(text));
        let vxlan = &parsed[0];
        assert_eq!((vxlan.location, vxlan.flow_type, vxlan.queue), (7, 2, 1));
        assert_eq!(vxlan.fields[..12], [0, 0, 0, 0, 10, 1, 0, 0, 0, 0, 0x12, 0xb5]);
        assert_eq!(vxlan.mask[..12], [0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff]);
        let ptp = &parsed[1];
        assert_eq!(ptp.fields[..14], [0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 10, 0x88, 0xf7]);
        assert_eq!(ptp.mask[..14], [0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(
            (parsed[2].queue, parsed[2].mask[..5].to_vec()),
            (u64::MAX, vec![255, 255, 255, 255, 0])
        );
        assert_eq!((rules(NONE), rules_text(&[])), (Some(Vec::new()), Ok(NONE.to_owned())));
    }

    #[test]
    fn order_and_ignored_bits_make_no_other_rule() {
        for (text, canonical) in [
            ("7:udp4,queue=1,dst-port=4789,dst-ip=10.1.2.3/16", VXLAN),
            ("7:udp4,dst-ip=10.1.0.0/16,dst-port=04789,queue=01", VXLAN),
            (&[PTP, VXLAN].join("  "), &[VXLAN, PTP].join(" ")),
            ("1:udp4,dst-ip=10.0.0.1/32,queue=0", "1:udp4,dst-ip=10.0.0.1,queue=0"),
        ] {
            assert_eq!(rules_text(&rules(text).unwrap()).as_deref(), Ok(canonical), "{text}");
        }
    }

    #[test]
    fn mistakes_are_no_rules() {
        for bad in [
            "",
            "udp4,queue=1",
            "7:udp4",
            "7:udp4,dst-port=4789",
            "7:udp5,queue=1",
            "7:udp4,dst-port=65536,queue=1",
            "7:udp4,dst-port=+1,queue=1",
            "7:udp4,dst-ip=10.0.0.0/33,queue=1",
            "7:udp4,dst-ip=10.0.0.0/0,queue=1",
            "7:udp4,dst-ip=10.0.0.0/,queue=1",
            "7:udp4,dst-ip=::1,queue=1",
            "7:udp4,queue=1,queue=2",
            "7:udp4,queue=-1",
            "7:ether,ether-type=88f7,queue=1",
            "7:ether,src-mac=02:00:00:00:00,queue=1",
            "7:udp4,queue=1 7:udp4,queue=2",
            "none 7:udp4,queue=1",
            "99999999999:udp4,queue=1",
        ] {
            assert_eq!(rules(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_rule_without_a_text_is_named_by_its_location() {
        let base = rules(VXLAN).unwrap()[0];
        let extended = FlowRule { flow_type: base.flow_type | 0x8000_0000, ..base };
        let to_function = FlowRule { queue: 1 << 32 | 1, ..base };
        let mut part = base;
        part.mask[11] = 0xf0;
        let mut service = base;
        service.mask[12] = 0xff;
        let mut holes = base;
        holes.mask[5] = 0x0f;
        for rule in [extended, to_function, part, service, holes] {
            assert_eq!(rules_text(&[rule]), Err(7), "{rule:?}");
        }
    }

    fn line(text: &str) -> String {
        let words = ethtool_words(&rules(text).unwrap()[0]).unwrap();
        words.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ethtool_has_the_same_rule_in_its_own_words() {
        assert_eq!(
            line(VXLAN),
            "flow-type udp4 dst-ip 10.1.0.0 m 0.0.255.255 dst-port 4789 action 1 loc 7"
        );
        assert_eq!(line(PTP), "flow-type ether src 02:00:00:00:00:0a proto 0x88f7 action 0 loc 12");
        assert_eq!(
            line(V6),
            "flow-type tcp6 src-ip 2001:db8:: m ::ffff:ffff:ffff:ffff:ffff:ffff dst-port 80 action -1 loc 13"
        );
    }
}
