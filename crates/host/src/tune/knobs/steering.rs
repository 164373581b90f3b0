//! Rules by which the device steers flows to receive queues.

use std::io;

use super::access::Access;
use crate::net::{self, FlowRule};
use crate::tune::error::KnobError;
use crate::tune::knob::{About, Ethtool, Kept, Knob};
use crate::tune::rules::{ethtool_words, rules, rules_text};
use crate::tune::system::System;
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Value, ValueFormat};

/// All rules of a device: those that a value does not have are removed.
///
/// A rule of a kind that has no text here makes the knob unreadable, because it could not be restored.
///
/// Source: ethtool(8), `-N flow-type`.
#[derive(Debug)]
pub(super) struct Rules;

static ABOUT: About = About {
    id: "ntuple-rules",
    what: "rules by which the device steers flows to a receive queue, or drops them; all of its rules",
    scope: Scope::Interface,
    format: ValueFormat::Rules,
};

impl Rules {
    fn now(&self, system: &System, target: &Target) -> Result<(u32, Vec<FlowRule>), KnobError> {
        Access::new(self, system, target).get(net::flow_rules)
    }
}

fn has(rules: &[FlowRule], rule: &FlowRule) -> bool {
    let text = rules_text(std::slice::from_ref(rule));
    rules.iter().any(|other| rules_text(std::slice::from_ref(other)) == text)
}

impl Knob for Rules {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn read_at(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        let (_, rules) = self.now(system, target)?;
        let unreadable = |why: String| KnobError::Read {
            what: format!("the steering rules of {target}: {why}"),
            source: io::ErrorKind::InvalidData.into(),
        };
        let text = rules_text(&rules).map_err(|location| {
            let why = "compares or does more than the knob can restore; `ethtool -n` shows it";
            unreadable(format!("rule {location} {why}"))
        })?;
        Value::new(text).ok_or_else(|| unreadable("they are too long for a value".to_owned()))
    }

    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        let (index, now) = self.now(system, target)?;
        let wanted = rules(value.as_str()).unwrap_or_default();
        // Removed first: drivers take a second rule of one location for its replacement, or refuse it.
        let gone = now.iter().filter(|rule| !has(&wanted, rule));
        let new = wanted.iter().filter(|rule| !has(&now, rule));
        let access = Access::new(self, system, target)
            .needing("a card with such rules, and with most drivers ntuple=on");
        access.change(value, || {
            gone.into_iter().try_for_each(|rule| net::delete_flow_rule(index, rule.location))?;
            new.into_iter().try_for_each(|rule| net::insert_flow_rule(index, rule))
        })
    }

    fn kept(&self, _: &Target, value: &Value) -> Vec<Kept> {
        let all = rules(value.as_str()).unwrap_or_default();
        let kept = all
            .iter()
            .map(|rule| Some(Kept::Ethtool { what: Ethtool::Rules, words: ethtool_words(rule)? }));
        kept.collect::<Option<_>>().unwrap_or_default()
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        self.read_at(system, target)?;
        Access::new(self, system, target).may_configure()
    }
}
