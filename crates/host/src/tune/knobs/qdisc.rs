//! Root queueing discipline.

use super::access::{Access, number};
use crate::net::{self, Qdisc};
use crate::tune::error::KnobError;
use crate::tune::knob::{About, Kept, Knob};
use crate::tune::system::System;
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Value, ValueFormat};

/// The queueing discipline at the root of an interface.
///
/// Values: `default:KIND` is the kernel's own choice; `pfifo:1000` and `bfifo:15000` are queues
/// limited in packets or bytes; `noqueue`, `fq`, `fq_codel` and the like have their default
/// parameters. A discipline that was set by hand reads as `own:KIND` and is not changed, because its
/// parameters, classes and filters could not be restored.
///
/// Source: tc(8).
#[derive(Debug)]
pub(super) struct RootQdisc;

const NEEDS: &str = "the kernel's default discipline there; one set by hand could not be restored";

static ABOUT: About = About {
    id: "qdisc",
    what: "queueing discipline of frames that are sent",
    scope: Scope::Interface,
    format: ValueFormat::Word(&[]),
};

impl RootQdisc {
    fn now(&self, system: &System, target: &Target) -> Result<(u32, Option<Qdisc>), KnobError> {
        Access::new(self, system, target).get(net::root_qdisc)
    }
}

fn text(qdisc: Option<&Qdisc>) -> String {
    match qdisc {
        None => "default:none".to_owned(),
        Some(qdisc) if qdisc.is_default => format!("default:{}", qdisc.kind),
        Some(Qdisc { kind, limit: Some(limit), .. }) => format!("{kind}:{limit}"),
        Some(qdisc) if is_plain(&qdisc.kind) => qdisc.kind.clone(),
        Some(qdisc) => format!("own:{}", qdisc.kind),
    }
}

/// Kinds that are set without parameters.
fn is_plain(kind: &str) -> bool {
    matches!(kind, "noqueue" | "fq" | "fq_codel" | "pfifo_fast" | "mq" | "sfq")
}

impl Knob for RootQdisc {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn read_at(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        let (_, qdisc) = self.now(system, target)?;
        Ok(Value::new(text(qdisc.as_ref())).unwrap_or_else(|| Value::new("own:?").expect("short")))
    }

    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        let (index, now) = self.now(system, target)?;
        if text(now.as_ref()) == value.as_str() {
            return Ok(());
        }
        let access = Access::new(self, system, target).needing(NEEDS);
        match value.as_str().split_once(':') {
            Some(("default", _)) => access.change(value, || net::remove_root_qdisc(index)),
            Some((kind @ ("pfifo" | "bfifo"), limit)) => {
                let limit = number(self, value, limit)?;
                access.change(value, || net::set_root_fifo(index, limit, kind == "bfifo"))
            }
            None if is_plain(value.as_str()) => {
                access.change(value, || net::set_root_qdisc(index, value.as_str()))
            }
            _ => Err(KnobError::Value {
                knob: ABOUT.id.to_owned(),
                value: value.to_string(),
                expected: "default:KIND, pfifo:PACKETS, bfifo:BYTES, noqueue, fq, fq_codel, \
                           pfifo_fast, mq or sfq"
                    .to_owned(),
            }),
        }
    }

    fn kept(&self, _: &Target, value: &Value) -> Vec<Kept> {
        let words = match value.as_str().split_once(':') {
            // The kernel's default needs no configuration, and cannot be asked for by name.
            Some(("default" | "own", _)) => return Vec::new(),
            Some((kind, limit)) => format!("{kind} limit {limit}"),
            None => value.to_string(),
        };
        vec![Kept::Qdisc { words }]
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        let (_, now) = self.now(system, target)?;
        let access = Access::new(self, system, target);
        if now.is_some_and(|qdisc| !qdisc.is_default) {
            return Err(access.needing(NEEDS).not_offered());
        }
        access.may_configure()
    }
}
