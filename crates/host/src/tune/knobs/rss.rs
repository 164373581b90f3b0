//! Distribution of arrivals to receive queues by the device.

use super::access::Access;
use crate::net::ethtool;
use crate::net::{self, FlowKind};
use crate::tune::error::KnobError;
use crate::tune::knob::{About, Ethtool, Kept, Knob};
use crate::tune::system::System;
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Value, ValueFormat, pairs, queues, queues_text};

/// Table of receive queues that a packet's hash selects.
///
/// The default, which spreads the hashes over all queues in use, is set as such: the driver then follows
/// a new number of channels again.
///
/// Source: ethtool(8), `-X`.
#[derive(Debug)]
pub(super) struct Table;

static TABLE: About = About {
    id: "rss-table",
    what: "receive queues that the hash of a packet selects, repeated over the device's table",
    scope: Scope::Interface,
    format: ValueFormat::Queues,
};

impl Knob for Table {
    fn about(&self) -> &About {
        &TABLE
    }

    fn read_at(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        let (_, table) = Access::new(self, system, target).get(net::rss_table)?;
        Value::new(queues_text(&table)).ok_or_else(|| KnobError::Read {
            what: "the table of queues: it is too long for a value".to_owned(),
            source: std::io::ErrorKind::InvalidData.into(),
        })
    }

    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        let access = Access::new(self, system, target);
        let (index, now) = access.get(net::rss_table)?;
        let pattern = queues(value.as_str()).unwrap_or_default();
        let mut table: Vec<u32> = pattern.iter().copied().cycle().take(now.len()).collect();
        if let Ok((_, channels)) = access.get(ethtool::channels)
            && is_spread_over(&table, channels.rx_queues())
        {
            table.clear();
        }
        access.change(value, || net::set_rss_table(index, &table))
    }

    fn kept(&self, _: &Target, value: &Value) -> Vec<Kept> {
        let pattern = queues(value.as_str()).unwrap_or_default();
        if !is_spread_over(&pattern, pattern.len() as u32) {
            return Vec::new();
        }
        let words = vec![("equal".to_owned(), pattern.len().to_string())];
        vec![Kept::Ethtool { what: Ethtool::Table, words }]
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        self.read_at(system, target)?;
        Access::new(self, system, target).may_configure()
    }
}

/// True if each entry is the next queue: 0, 1, …, `count` - 1, 0, 1, …
fn is_spread_over(table: &[u32], count: u32) -> bool {
    count > 0 && (0_u32..).zip(table).all(|(number, queue)| *queue == number % count)
}

/// Fields of a packet that the device hashes.
///
/// Source: ethtool(8), `-N rx-flow-hash`.
#[derive(Debug)]
pub(super) struct HashFields;

const KINDS: [(&str, FlowKind); 4] = [
    ("tcp4", FlowKind::Tcp4),
    ("udp4", FlowKind::Udp4),
    ("tcp6", FlowKind::Tcp6),
    ("udp6", FlowKind::Udp6),
];

/// Letters of ethtool(8) with the bits `RXH_*`, in the order in which a value has them.
const FIELDS: [(char, u64); 7] = [
    ('m', 1 << 1),
    ('v', 1 << 2),
    ('t', 1 << 3),
    ('s', 1 << 4),
    ('d', 1 << 5),
    ('f', 1 << 6),
    ('n', 1 << 7),
];

const NONE: &str = "none";

static FIELDS_ABOUT: About = About {
    id: "rss-fields",
    what: "fields that the device hashes, by kind of packet: s and d for the addresses, f and n for the ports",
    scope: Scope::Interface,
    format: ValueFormat::Pairs(&["tcp4", "udp4", "tcp6", "udp6"]),
};

impl HashFields {
    /// Kinds whose fields the driver names.
    fn now(&self, system: &System, target: &Target) -> Result<(u32, Vec<Fields>), KnobError> {
        let access = Access::new(self, system, target);
        let (index, fields) = access.get(|index| {
            let all: Vec<_> = KINDS
                .into_iter()
                .map(|(name, kind)| {
                    net::hash_fields(index, kind).map(|fields| (name, kind, fields))
                })
                .collect();
            if all.iter().any(Result::is_ok) {
                Ok(all.into_iter().filter_map(Result::ok).collect())
            } else {
                all.into_iter().collect()
            }
        })?;
        Ok((index, fields))
    }

    fn invalid(&self, value: &Value) -> KnobError {
        KnobError::Value {
            knob: FIELDS_ABOUT.id.to_owned(),
            value: value.to_string(),
            expected: format!("letters in the order mvtsdfn, or {NONE}"),
        }
    }
}

type Fields = (&'static str, FlowKind, u64);

impl Knob for HashFields {
    fn about(&self) -> &About {
        &FIELDS_ABOUT
    }

    fn read_at(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        let (_, all) = self.now(system, target)?;
        let words = all.iter().map(|(name, _, fields)| format!("{name}={}", letters(*fields)));
        let text = words.collect::<Vec<_>>().join(" ");
        Ok(Value::new(text).expect("one short line"))
    }

    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        let (index, now) = self.now(system, target)?;
        let access = Access::new(self, system, target);
        let mut changes = Vec::new();
        for (name, text) in pairs(value.as_str()).unwrap_or_default() {
            let wanted = bits(text).ok_or_else(|| self.invalid(value))?;
            let found = now.iter().find(|(known, ..)| *known == name);
            let (_, kind, fields) = found.ok_or_else(|| access.not_offered())?;
            if wanted != *fields {
                changes.push((*kind, wanted));
            }
        }
        access.change(value, || {
            changes.iter().try_for_each(|(kind, bits)| net::set_hash_fields(index, *kind, *bits))
        })
    }

    fn kept(&self, _: &Target, value: &Value) -> Vec<Kept> {
        let all = pairs(value.as_str()).unwrap_or_default();
        if all.iter().any(|(_, letters)| *letters == NONE) {
            return Vec::new();
        }
        let kept = all.into_iter().map(|(kind, letters)| Kept::Ethtool {
            what: Ethtool::HashFields,
            words: vec![(format!("rx-flow-hash {kind}"), letters.to_owned())],
        });
        kept.collect()
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        let (_, all) = self.now(system, target)?;
        let access = Access::new(self, system, target);
        // A virtio card without RSS answers so.
        if all.iter().all(|(.., fields)| *fields == 0) {
            return Err(access.not_offered());
        }
        // Its driver answers with what the card does, and cannot change it.
        if system.driver(target.interface().unwrap_or_default()) == "e1000e" {
            return Err(access.not_offered());
        }
        access.may_configure()
    }
}

fn letters(fields: u64) -> String {
    let known = FIELDS.iter().filter(|(_, bit)| fields & bit != 0);
    let letters: String = known.map(|(letter, _)| *letter).collect();
    if letters.is_empty() { NONE.to_owned() } else { letters }
}

/// `None` if the letters are not in the order of [`FIELDS`].
fn bits(text: &str) -> Option<u64> {
    let all = FIELDS.iter().filter(|(letter, _)| text != NONE && text.contains(*letter));
    let bits = all.map(|(_, bit)| bit).sum();
    (letters(bits) == text).then_some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_bits_convert_in_one_order_only() {
        for (text, fields) in [("sdfn", 0xf0), ("sd", 0x30), ("mvtsdfn", 0xfe), (NONE, 0)] {
            assert_eq!((letters(fields).as_str(), bits(text)), (text, Some(fields)));
        }
        for bad in ["", "ds", "sdx", "ssd", "none "] {
            assert_eq!(bits(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn an_even_spread_and_each_kind_of_packet_can_be_kept_by_ethtool() {
        let value = |text: &str| Value::new(text).unwrap();
        let words = |kept: Vec<Kept>| -> Vec<String> {
            let words = kept.into_iter().map(|kept| match kept {
                Kept::Ethtool { what, words } => format!("{} {words:?}", what.option()),
                other => panic!("{other:?}"),
            });
            words.collect()
        };
        let kept = |text: &str| words(Table.kept(&Target::Host, &value(text)));
        assert_eq!(kept("0,1,2"), ["-X [(\"equal\", \"3\")]"]);
        assert_eq!(kept("0"), ["-X [(\"equal\", \"1\")]"]);
        assert!(kept("1,0").is_empty() && kept("0x64,1x64").is_empty());
        assert_eq!(
            words(HashFields.kept(&Target::Host, &value("udp4=sdfn udp6=sd"))),
            ["-N [(\"rx-flow-hash udp4\", \"sdfn\")]", "-N [(\"rx-flow-hash udp6\", \"sd\")]"]
        );
        assert!(HashFields.kept(&Target::Host, &value("udp4=none")).is_empty());
    }
}
