//! Settings of the NAPI instance of one receive queue.

use super::access::{Access, number};
use crate::net::{self, Napi};
use crate::tune::error::KnobError;
use crate::tune::knob::{About, Knob};
use crate::tune::system::System;
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Value, ValueFormat, pairs};

/// Deferral and suspension of the interrupt of one receive queue.
///
/// The instance is looked up by the queue for each access: its id changes when the interface goes down
/// and up.
///
/// Source: Documentation/networking/napi.rst, per-NAPI configuration.
#[derive(Debug)]
pub(super) struct QueueNapi;

static ABOUT: About = About {
    id: "napi",
    what: "interrupt of a receive queue: empty polls and ns until it is enabled, ns of its suspension by epoll",
    scope: Scope::RxQueue,
    format: ValueFormat::Pairs(&["defer-hard-irqs", "gro-flush-timeout", "irq-suspend-timeout"]),
};

impl QueueNapi {
    fn access<'a>(&self, system: &'a System, target: &'a Target) -> Access<'a> {
        Access::new(self, system, target)
            .needing("Linux 6.13, and a driver that names the NAPI of its queues")
    }

    fn now(&self, system: &System, target: &Target) -> Result<Napi, KnobError> {
        let Target::RxQueue(interface, queue) = target else {
            return Err(KnobError::NoTarget { target: target.clone() });
        };
        let access = self.access(system, target);
        let (_, found) = access.get(|index| {
            let id = net::napi_of_rx_queue(index, *queue)?;
            Ok(net::napi_instances(index)?.into_iter().find(|napi| napi.id == id))
        })?;
        found.ok_or_else(|| KnobError::NoTarget { target: Target::Interface(interface.clone()) })
    }
}

impl Knob for QueueNapi {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn read_at(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        let now = self.now(system, target)?.settings;
        let text = format!(
            "defer-hard-irqs={} gro-flush-timeout={} irq-suspend-timeout={}",
            now.defer_hard_irqs, now.gro_flush_timeout_ns, now.irq_suspend_timeout_ns
        );
        Ok(Value::new(text).expect("one short line"))
    }

    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        let Napi { id, mut settings } = self.now(system, target)?;
        for (name, count) in pairs(value.as_str()).unwrap_or_default() {
            let place = match name {
                "defer-hard-irqs" => &mut settings.defer_hard_irqs,
                "gro-flush-timeout" => &mut settings.gro_flush_timeout_ns,
                _ => &mut settings.irq_suspend_timeout_ns,
            };
            *place = number(self, value, count)?;
        }
        self.access(system, target).change(value, || net::set_napi(id, &settings))
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        self.now(system, target).map(drop)
    }
}
